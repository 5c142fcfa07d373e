/*
 * Copies the rows of names that move to another database. Rows travel as JSON, whole tables at a time, so
 * that no column can be forgotten. A copy replaces all rows of its names in the target. So it can be
 * repeated, and a name without rows is removed there.
 *
 * Tables are read one after the other. If a name changes meanwhile, its rows may not match; but then the
 * name is in the feed, and is copied again.
 */
#include "store/postgres_store.h"

struct table {
	struct pg_statement read, write, clear;
};

#define TABLE(table, column, put)                                                                            \
	{                                                                                                    \
		.read = {"copy_read_" table,                                                                 \
		         "SELECT coalesce(json_agg(t), '[]')::text FROM (SELECT * FROM " table               \
		         " WHERE " column " = ANY ($1::bytea[])) AS t"},                                     \
		.write = {"copy_write_" table, "INSERT INTO " table " SELECT * FROM json_populate_recordset" \
		                               "(NULL::" table ", $1::text::json) ORDER BY " column put},    \
		.clear = {                                                                                   \
			"copy_clear_" table,                                                                 \
			"DELETE FROM " table " WHERE " column " = ANY ($1::bytea[])"                         \
		}                                                                                            \
	}

/* A newer use of an idempotency key replaces an older one. */
#define REPLAY_PUT                                                                                  \
	" ON CONFLICT (caller, name) DO UPDATE SET fingerprint = excluded.fingerprint, link_key = " \
	"excluded.link_key,"                                                                        \
	" link_id = excluded.link_id, made_ms = excluded.made_ms WHERE replay.made_ms < excluded.made_ms"

static const struct table tables[] = {
    TABLE("link", "key", ""),
    TABLE("resting", "key", ""),
    TABLE("spent_key", "key", ""),
    TABLE("permission", "key", ""),
    TABLE("tag", "key", ""),
    TABLE("click_total", "key", ""),
    TABLE("replay", "link_key", REPLAY_PUT),
};

struct copy {
	const struct slot_row *row; /* of the target, or of where they are removed */
	const struct str *names;
	size_t n;
	struct arena arena;
	struct str rows[ARRAY_LEN(tables)]; /* JSON; STR_NULL: only remove */
};

static int copy_read(struct pg_conn *c, struct copy *copy)
{
	int r = 0;
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		PG_SEND(c, &tables[i].read, PG_BLOBS(copy->names, copy->n));
	}
	pg_flush(c);
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
		if (pg_next(c, &row, NULL) != 0)
			continue; /* pg_sync returns the error */
		copy->rows[i] = pg_get_text(&row, 0, 0);
		r = str_own(&copy->arena, &copy->rows[i]) ? r : ERR_NOMEM;
	}
	int synced = pg_sync(c, NULL);
	return synced ? postgres_error(synced) : r;
}

static int copy_write(struct postgres_txn *t, void *ctx)
{
	const struct copy *copy = ctx;
	postgres_slots_hold(t, copy->row);
	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		TXN_PUT(t, &tables[i].clear, PG_BLOBS(copy->names, copy->n));
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		if (copy->rows[i].len <= strlen("[]"))
			continue;
		TXN_PUT(t, &tables[i].write, PG_TEXT(copy->rows[i]));
	}
	return 0;
}

static int copy_put(struct store_postgres *s, struct copy *copy, struct err *e)
{
	struct postgres_work work = postgres_work(s, copy_write, copy);
	return postgres_slots_error(POSTGRES_WRITE(s, postgres_write(s, &work, e)));
}

int postgres_names_copy(struct store_postgres *from, struct store_postgres *to, const struct slot_row *to_row,
                        const struct str *names, size_t n, struct err *e)
{
	struct copy copy = {.row = to_row, .names = names, .n = n};
	int r = POSTGRES_READ(from, copy_read(c, &copy)) ?: copy_put(to, &copy, e);
	arena_release(&copy.arena);
	return r;
}

int postgres_names_remove(struct store_postgres *s, const struct slot_row *row, const struct str *names,
                          size_t n)
{
	struct copy copy = {.row = row, .names = names, .n = n};
	return copy_put(s, &copy, NULL);
}

/* --- which names there are --- */

#define NAMES_OF(table, column) \
	"(SELECT " column " AS key FROM " table " WHERE " column " > $1 ORDER BY " column " LIMIT $2)"

static const struct pg_statement names_after = {
    "names_after",
    "SELECT key FROM (" NAMES_OF("link", "key") " UNION " NAMES_OF("resting", "key") " UNION " NAMES_OF(
        "spent_key", "key") " UNION " NAMES_OF("replay", "link_key") ") AS k ORDER BY key LIMIT $2"};

static int names_after_on(struct pg_conn *c, struct str after, size_t max, struct arena *arena,
                          struct str *ret, size_t *ret_count)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = PG_ASK(c, &names_after, &rows, PG_TEXT(after.ptr ? after : STR("")),
	               PG_INT(MIN(max, INT32_MAX)));
	if (r != 0)
		return postgres_error(r);
	for (int row = 0; row < rows.rows; row++) {
		ret[row] = pg_get_text(&rows, row, 0);
		if (!str_own(arena, &ret[row]))
			return ERR_NOMEM;
	}
	*ret_count = (size_t)rows.rows;
	return 0;
}

int postgres_names_after(struct store_postgres *s, struct str after, size_t max, struct arena *arena,
                         struct str *ret, size_t *ret_count)
{
	return POSTGRES_READ(s, names_after_on(c, after, max, arena, ret, ret_count));
}

/* Reads by transaction number, not by what is settled (postgres_feed.h). The transaction that changed the
 * slot row has waited for all writers under the version before. Writers under the next version got their
 * numbers after it. So all rows before its number are visible, whatever other transactions are open. */
static const struct pg_statement names_changed = {
    "names_changed", "SELECT xid, seq, entries FROM link_feed WHERE (xid, seq) > ($1, $2) AND xid < $3"
                     " ORDER BY xid, seq LIMIT $4"};
static const struct pg_statement names_pruned = {
    "names_pruned",
    "SELECT count(*) FROM feed_pruned WHERE feed = 'link' AND (xid, seq) > ($1::bigint, $2::bigint)"};

static int changed_take(const struct pg_result *rows, struct feed_cursor *cursor, struct arena *arena,
                        struct str **ret, size_t *ret_count)
{
	size_t room = 0;
	*ret = NULL;
	*ret_count = 0;
	for (int row = 0; row < rows->rows; row++) {
		struct feed_entry entry;
		struct str entries = pg_get_text(rows, row, 2);
		int r = str_own(arena, &entries) ? 1 : ERR_NOMEM;
		while (r > 0 && (r = feed_entry_take(&entries, &entry)) > 0) {
			*ret = array_room(arena, *ret, *ret_count, &room, sizeof(**ret));
			if (!*ret)
				return ERR_NOMEM;
			(*ret)[(*ret_count)++] = entry.name;
		}
		if (r < 0)
			return r;
		*cursor = (struct feed_cursor){(uint64_t)pg_get_int(rows, row, 0),
		                               (uint64_t)pg_get_int(rows, row, 1)};
	}
	return 0;
}

static int names_changed_on(struct pg_conn *c, struct feed_cursor *cursor, uint64_t until, size_t max,
                            struct arena *arena, struct str **ret, size_t *ret_count, bool *ret_more)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	CLEANUP(pg_result_end) struct pg_result pruned = {NULL, 0};
	PG_SEND(c, &names_changed, PG_INT(cursor->transaction), PG_INT(cursor->sequence), PG_INT(until),
	        PG_INT(max));
	/* second, so that it sees what is pruned in between */
	PG_SEND(c, &names_pruned, PG_INT(cursor->transaction), PG_INT(cursor->sequence));
	pg_flush(c);
	pg_next(c, &rows, NULL);
	pg_next(c, &pruned, NULL);
	int r = pg_sync(c, NULL);
	if (r != 0)
		return postgres_error(r);
	if (pg_get_int(&pruned, 0, 0) > 0)
		return ERR_NOT_FOUND;
	*ret_more = (size_t)rows.rows == max;
	return changed_take(&rows, cursor, arena, ret, ret_count);
}

int postgres_names_changed(struct store_postgres *s, struct feed_cursor *cursor, uint64_t until, size_t max,
                           struct arena *arena, struct str **ret, size_t *ret_count, bool *ret_more)
{
	return POSTGRES_READ(s, names_changed_on(c, cursor, until, max, arena, ret, ret_count, ret_more));
}
