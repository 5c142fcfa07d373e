#include "store/postgres_feed.h"

#include "store/postgres_rows.h"
#include "store/rules.h"

#define FEED_ADD(table, transaction) \
	"INSERT INTO " table "_feed (xid, at_ms, entries) VALUES (" transaction ", $1, $2)"
#define FEED_READ(table, is_settled)                                  \
	"SELECT xid, seq, at_ms, entries, " is_settled " FROM " table \
	"_feed WHERE (xid, seq) > ($1, $2) ORDER BY xid, seq LIMIT $3"
#define FEED_PRUNE(table)                                                                           \
	"WITH gone AS (DELETE FROM " table "_feed WHERE (xid, seq) IN (SELECT xid, seq FROM " table \
	"_feed WHERE at_ms < $1 ORDER BY xid, seq LIMIT $2) RETURNING xid, seq), mark AS ("         \
	"INSERT INTO feed_pruned (feed, xid, seq) SELECT '" table "', xid, seq FROM gone"           \
	" ORDER BY xid DESC, seq DESC LIMIT 1"                                                      \
	" ON CONFLICT (feed) DO UPDATE SET xid = excluded.xid, seq = excluded.seq"                  \
	" WHERE (feed_pruned.xid, feed_pruned.seq) < (excluded.xid, excluded.seq))"                 \
	" SELECT count(*) FROM gone"

/* A row is settled if no open transaction can still insert a row before it. */
#define SETTLED_BY_SNAPSHOT "xid < txid_snapshot_xmin(txid_current_snapshot())"
#define SETTLED_BY_TIME     "at_ms < extract(epoch FROM now())::bigint * 1000 - 10000"
#define NO_TRANSACTION      "0"

struct feed_statements {
	struct pg_statement add, read;
};

/* The statements, by [is_postgres][accounts]. */
static const struct feed_statements statements[2][2] = {
    {{{"link_feed_add_0", FEED_ADD("link", NO_TRANSACTION)},
      {"link_feed_read_0", FEED_READ("link", SETTLED_BY_TIME)}},
     {{"account_feed_add_0", FEED_ADD("account", NO_TRANSACTION)},
      {"account_feed_read_0", FEED_READ("account", SETTLED_BY_TIME)}}},
    {{{"link_feed_add", FEED_ADD("link", FEED_TRANSACTION)},
      {"link_feed_read", FEED_READ("link", SETTLED_BY_SNAPSHOT)}},
     {{"account_feed_add", FEED_ADD("account", FEED_TRANSACTION)},
      {"account_feed_read", FEED_READ("account", SETTLED_BY_SNAPSHOT)}}},
};
/* By [accounts]. */
static const struct pg_statement prunes[] = {{"link_feed_prune", FEED_PRUNE("link")},
                                             {"account_feed_prune", FEED_PRUNE("account")}};

#define FEED_END(table)                                                                             \
	"SELECT 0, coalesce((SELECT min(seq) FROM " table "_feed WHERE NOT (" SETTLED_BY_TIME "))," \
	" (SELECT max(seq) + 1 FROM " table "_feed), 1) - 1"

/* By [accounts]. */
static const struct pg_statement ends_by_time[] = {{"link_feed_end_0", FEED_END("link")},
                                                   {"account_feed_end_0", FEED_END("account")}};
static const struct pg_statement end_by_snapshot = {
    "feed_end", "SELECT txid_snapshot_xmin(txid_current_snapshot()) - 1, 9223372036854775807"};
static const struct pg_statement pruned = {"feed_pruned", "SELECT xid, seq FROM feed_pruned WHERE feed = $1"};

void postgres_feed_put(struct postgres_txn *t, bool accounts, int64_t now_ms, struct str entries)
{
	if (entries.len == 0)
		return;
	TXN_PUT(t, &statements[t->is_postgres][accounts].add, PG_INT(now_ms), PG_TEXT(entries));
}

static bool is_before(struct feed_cursor a, struct feed_cursor b)
{
	return a.transaction != b.transaction ? a.transaction < b.transaction : a.sequence < b.sequence;
}

static struct feed_cursor row_cursor(const struct pg_result *rows, int row)
{
	return (struct feed_cursor){(uint64_t)pg_get_int(rows, row, 0), (uint64_t)pg_get_int(rows, row, 1)};
}

/* Rows of transactions that are open now come after this end. */
static int end_read(struct pg_conn *c, bool is_postgres, bool accounts, struct feed_page *page)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	int r = PG_ASK(c, is_postgres ? &end_by_snapshot : &ends_by_time[accounts], &row);
	if (r == 0)
		page->cursor = row_cursor(&row, 0);
	return postgres_error(r);
}

static int rows_add(const struct pg_result *rows, struct feed_page *page)
{
	size_t room = 0;
	bool is_settled = true, has_moved = false;
	for (int row = 0; row < rows->rows; row++) {
		is_settled = is_settled && pg_get_int(rows, row, 4);
		if (!is_settled && page->settled)
			break;
		int r = feed_page_add(page, &room, pg_get_text(rows, row, 3), pg_get_int(rows, row, 2));
		if (r != 0)
			return r;
		if (is_settled)
			page->cursor = row_cursor(rows, row);
		has_moved |= is_settled;
	}
	bool is_full = (size_t)rows->rows == page->max;
	page->more = is_full && (is_settled || (has_moved && !page->settled));
	/* The page cannot advance before a transaction ends, perhaps of another program. */
	page->lost |= is_full && !has_moved && !page->settled;
	return 0;
}

int postgres_feed_read(struct pg_conn *c, bool is_postgres, bool accounts, struct feed_page *page)
{
	page->entries = NULL;
	page->count = 0;
	page->more = page->lost = false;
	if (page->from_end)
		return end_read(c, is_postgres, accounts, page);
	CLEANUP(pg_result_end) struct pg_result gone = {NULL, 0};
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct feed_cursor began = page->cursor;
	PG_SEND(c, &statements[is_postgres][accounts].read, PG_INT(page->cursor.transaction),
	        PG_INT(page->cursor.sequence), PG_INT(page->max));
	/* second, so that it sees what is pruned in between */
	PG_SEND(c, &pruned, PG_TEXT(accounts ? STR("account") : STR("link")));
	pg_flush(c);
	pg_next(c, &rows, NULL);
	pg_next(c, &gone, NULL);
	int r = pg_sync(c, NULL);
	if (r != 0)
		return postgres_error(r);
	page->lost = gone.rows > 0 && is_before(began, row_cursor(&gone, 0));
	return rows_add(&rows, page);
}

int postgres_feed_prune(struct pg_conn *c, bool accounts, int64_t until_ms, size_t *ret)
{
	int64_t count = 0;
	int r = PG_ASK_INT(c, &prunes[accounts], &count, PG_INT(until_ms), PG_INT(FEED_PRUNE_MAX));
	*ret = (size_t)count;
	return postgres_error(r);
}
