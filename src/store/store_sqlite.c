/*
 * The store on a SQLite file (client/sqlite_file.h). synchronous=FULL: a committed batch survives power
 * loss.
 *
 * The rules run before anything is written (decide.h), so a change that fails by itself touches nothing. If
 * SQLite fails, the whole batch is rolled back. Results are published only after the commit, so a batch
 * that failed can be submitted again unchanged.
 */
#include "store/backends.h"
#include "store/sqlite_store.h"

#include <stdlib.h>
#include <sys/random.h>

enum { CHECKPOINT_PAGES = 1000 }; /* 4 MB: changes are small, and lookups search the WAL first */

static struct store_sqlite *self(struct store *base)
{
	return container_of(base, struct store_sqlite, base);
}

/* --- reads --- */

/* Only a private link needs the second statement. */
static int lookup_one(struct sqlite_conn *c, struct store_lookup *read)
{
	int rc = sqlite_link_find(c, read->ref, read->arena, &read->result, &read->link);
	read->permitted = false;
	if (rc != SQLITE_OK || read->result != 0 || !read->link.is_private || read->user == 0)
		return rc;
	return sqlite_permission_find(c, read->link.id, read->user, &read->permitted);
}

static int lookup_each(struct sqlite_conn *c, struct store_lookup *reads, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = lookup_one(c, &reads[i]);
		if (sqlite_error(rc) == ERR_CORRUPT)
			reads[i].result = ERR_CORRUPT; /* its page is damaged; others may be intact */
		else if (rc != SQLITE_OK)
			return sqlite_error(rc);
	}
	return 0;
}

/* One snapshot for all: a read takes its locks only once. */
static int sqlite_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	SQLITE_READER(self(base), read);
	struct sqlite_conn *c = read.conn;
	if (n == 1) {
		int r = lookup_each(c, reads, n);
		if (r != 0 || reads[0].result != ERR_CORRUPT)
			return r;
		/* The link may have been removed between the two statements: read again in one snapshot. */
	}
	int rc = sqlite_conn_run(c, SQL_BEGIN_READ);
	if (rc != SQLITE_OK)
		return sqlite_error(rc);
	int r = lookup_each(c, reads, n);
	sqlite_conn_run(c, SQL_ROLLBACK);
	return r;
}

static int list_collect(struct query *q, struct store_list *page)
{
	struct link_record *links = NULL;
	size_t count = 0, cap = 0, bytes = 0;
	struct str next = STR_NULL;
	int rc;
	ASSERT(page->limit > 0);
	while ((rc = query_step(q)) == SQLITE_ROW) {
		if (page_is_full(page, count, bytes)) { /* one more row: another page follows */
			next = cursor_format(page->arena, links[count - 1].id);
			if (!next.ptr)
				return ERR_NOMEM;
			break;
		}
		links = array_room(page->arena, links, count, &cap, sizeof(*links));
		int r = links ? sqlite_row_link(q->stmt, page->arena, &links[count]) : ERR_NOMEM;
		if (r != 0)
			return r;
		bytes += link_bytes(&links[count]);
		count++;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return sqlite_error(rc);
	page->links = links;
	page->count = count;
	page->next = next;
	return 0;
}

static int sqlite_list(struct store *base, struct store_list *page)
{
	uint64_t id_max;
	if (page->limit == 0 || !cursor_parse(page->cursor, &id_max))
		return ERR_INVALID;
	SQLITE_READER(self(base), read);
	CLEANUP(query_end)
	struct query q = QUERY_VALUES(read.conn, page->owner ? SQL_LINKS_OF_OWNER : SQL_LINKS_OF_ALL,
	                              Q_INT(id_max), Q_INT((int64_t)MIN(page->limit, INT32_MAX) + 1));
	if (page->owner)
		query_int(&q, (int64_t)page->owner);
	return list_collect(&q, page);
}

/* `ret_ids` has room for the statement's limit. */
static int ids_collect(struct query *q, uint64_t *ret_ids, size_t *ret_count)
{
	size_t count = 0;
	int rc;
	while ((rc = query_step(q)) == SQLITE_ROW)
		ret_ids[count++] = (uint64_t)sqlite3_column_int64(q->stmt, 0);
	if (rc != SQLITE_DONE)
		return sqlite_error(rc);
	*ret_count = count;
	return 0;
}

static int sqlite_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	SQLITE_READER(self(base), read);
	CLEANUP(query_end)
	struct query q = QUERY_VALUES(read.conn, SQL_TAGGED, Q_STR(tag), Q_INT(MIN(max, INT64_MAX)));
	return ids_collect(&q, ret_ids, ret_count);
}

static int sqlite_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                            size_t *ret_count)
{
	SQLITE_READER(self(base), read);
	CLEANUP(query_end) struct query q = QUERY_VALUES(read.conn, SQL_PERMISSIONS, Q_INT(link));
	uint64_t *users = NULL;
	size_t count = 0, cap = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		users = array_room(arena, users, count, &cap, sizeof(*users));
		if (!users)
			return ERR_NOMEM;
		users[count++] = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	}
	if (rc != SQLITE_DONE)
		return sqlite_error(rc);
	*ret = users;
	*ret_count = count;
	return 0;
}

static int expired_ids(struct sqlite_conn *c, struct store_expired *expired)
{
	CLEANUP(query_end)
	struct query q = QUERY_VALUES(c, SQL_LINKS_EXPIRED, Q_INT(expired->now_ms),
	                              Q_INT(MIN(expired->max, INT64_MAX)));
	return ids_collect(&q, expired->ids, &expired->count);
}

static int sqlite_expired(struct store *base, struct store_expired *expired)
{
	SQLITE_READER(self(base), read);
	struct sqlite_conn *c = read.conn;
	if (!expired->count_all)
		return expired_ids(c, expired);
	int rc = sqlite_conn_run(c, SQL_BEGIN_READ); /* one snapshot for both */
	if (rc != SQLITE_OK)
		return sqlite_error(rc);
	int64_t total = 0;
	bool found;
	rc = QUERY_FIND(c, SQL_LINKS_EXPIRED_COUNT, &found, &total, 1, Q_INT(expired->now_ms));
	int r = sqlite_error(rc) ?: expired_ids(c, expired);
	if (r == 0)
		expired->total = (uint64_t)total;
	sqlite_conn_run(c, SQL_ROLLBACK);
	return r;
}

/* --- changes --- */

static int changes_run(struct sqlite_conn *c, struct view *v, const struct store_write *writes, size_t n,
                       struct store_outcome *outcomes, bool *ret_lost)
{
	memset(outcomes, 0, n * sizeof(*outcomes));
	return sqlite_fetch_links(c, v)
	           ?: sqlite_of_error(decide_links(v, writes, n, outcomes))
	           ?: sqlite_write_links(c, v, ret_lost);
}

static int apply(struct sqlite_file *f, struct view *v, const struct store_write *writes, size_t n,
                 struct store_outcome *outcomes)
{
	struct sqlite_conn *c;
	int r = sqlite_file_write_begin(f, &c);
	if (r != 0)
		return r;
	bool lost = false;
	int rc = changes_run(c, v, writes, n, outcomes, &lost);
	while (rc == SQLITE_OK && lost) { /* an id is taken: a bug in the id counter */
		lost = false;
		rc = sqlite_conn_run(c, SQL_ROLLBACK)
		         ?: sqlite_conn_run(c, SQL_BEGIN_WRITE)
		         ?: changes_run(c, v, writes, n, outcomes, &lost);
	}
	return sqlite_file_write_end(f, rc);
}

static int sqlite_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_sqlite *s = self(base);
	if (n == 0)
		return 0;
	struct view v;
	struct store_outcome *outcomes = malloc(n * sizeof(*outcomes));
	int r = view_init(&v, &s->rules, writes, n);
	if (!outcomes)
		r = ERR_NOMEM;
	if (r == 0)
		r = apply(s->file, &v, writes, n, outcomes);
	view_release(&v);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return r;
}

/* --- click totals --- */

static int sqlite_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct sqlite_file *f = self(base)->file;
	struct sqlite_conn *c;
	(void)node; /* there is only one */
	ASSERT(n <= STORE_COUNTS_MAX);
	int r = n > 0 ? sqlite_file_write_begin(f, &c) : 0;
	if (r != 0 || n == 0)
		return r;
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
		if (id_is_valid(counts[i].id))
			rc = QUERY_RUN(c, SQL_CLICKS_SET, Q_INT(counts[i].id), Q_INT(counts[i].clicks));
	}
	return sqlite_file_write_end(f, rc);
}

/* --- the feed --- */

/* One process writes, and numbers its transactions in the order of commits: every row is settled, and a
 * missing number was pruned. Rows are pruned by time, and clocks may be set back, so gaps are possible. */
static int feed_read(struct sqlite_conn *c, unsigned feed, struct feed_page *page)
{
	int64_t ends[2] = {0};
	bool found;
	int r = sqlite_error(QUERY_FIND(c, feed + FEED_ENDS, &found, ends, 2));
	uint64_t first = (uint64_t)ends[0], last = (uint64_t)ends[1]; /* 0: the feed is empty */
	page->entries = NULL;
	page->count = 0;
	page->more = false;
	/* A cursor after the last row is older than a restore of the file. */
	page->lost = r == 0 && !page->from_end &&
	             (first > page->cursor.sequence + 1 || page->cursor.sequence > last);
	if (r == 0 && page->from_end)
		page->cursor = (struct feed_cursor){.sequence = last};
	if (r != 0 || page->from_end)
		return r;
	CLEANUP(query_end)
	struct query q = QUERY_VALUES(c, feed + FEED_READ, Q_INT(page->cursor.sequence), Q_INT(page->max));
	size_t rows = 0, room = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		struct str row = str_n(sqlite3_column_blob(q.stmt, 2),
		                       (size_t)sqlite3_column_bytes(q.stmt, 2));
		r = feed_page_add(page, &room, row, sqlite3_column_int64(q.stmt, 1));
		if (r != 0)
			return r;
		uint64_t sequence = (uint64_t)sqlite3_column_int64(q.stmt, 0);
		page->lost |= sequence != page->cursor.sequence + 1;
		page->cursor.sequence = sequence;
		rows++;
	}
	page->more = rows == page->max;
	return rc == SQLITE_DONE ? 0 : sqlite_error(rc);
}

int sqlite_feed_read(struct sqlite_file *f, unsigned feed, struct feed_page *page)
{
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_snapshot_begin(f);
	return read.rc ? sqlite_error(read.rc) : feed_read(read.conn, feed, page);
}

int sqlite_feed_add(struct sqlite_conn *c, unsigned feed, int64_t now_ms, struct str entries)
{
	return entries.len > 0
	           ? QUERY_RUN(c, feed + FEED_ADD, Q_INT(now_ms), Q_BLOB(entries.ptr, entries.len))
	           : SQLITE_OK;
}

int sqlite_feed_prune(struct sqlite_file *f, unsigned feed, int64_t until_ms, size_t *ret)
{
	struct sqlite_conn *c;
	*ret = 0;
	int r = sqlite_file_write_begin(f, &c);
	if (r != 0)
		return r;
	int rc = QUERY_RUN(c, feed + FEED_PRUNE, Q_INT(until_ms), Q_INT(FEED_PRUNE_MAX));
	if (rc == SQLITE_OK)
		*ret = (size_t)sqlite3_changes(c->db);
	return sqlite_file_write_end(f, rc);
}

static int sqlite_feed(struct store *base, struct feed_page *page)
{
	return sqlite_feed_read(self(base)->file, SQL_LINK_FEED, page);
}

static int sqlite_prune(struct store *base, int64_t until_ms, size_t *ret)
{
	return sqlite_feed_prune(self(base)->file, SQL_LINK_FEED, until_ms, ret);
}

/* --- health and life --- */

static int sqlite_ping(struct store *base, struct err *e)
{
	return sqlite_file_ping(self(base)->file, e);
}

/* Generated keys are never reused here: the counter tells which were issued. */
static int sqlite_claim(struct store *base, int64_t now_ms, uint64_t quarantine_ms, size_t max,
                        uint64_t *ret_ids, size_t *ret_count)
{
	(void)base, (void)now_ms, (void)quarantine_ms, (void)max, (void)ret_ids;
	*ret_count = 0;
	return 0;
}

static size_t sqlite_shard_count(struct store *base)
{
	(void)base;
	return 1;
}

static size_t sqlite_shard_of(struct store *base, struct str name)
{
	(void)base, (void)name;
	return 0;
}

static void sqlite_free(struct store *base)
{
	sqlite_file_free(self(base)->file);
	free(self(base));
}

static const struct store_ops sqlite_ops = {
    .free = sqlite_free,
    .lookup = sqlite_lookup,
    .apply = sqlite_apply,
    .list = sqlite_list,
    .tagged = sqlite_tagged,
    .set_clicks = sqlite_set_clicks,
    .permitted = sqlite_permitted,
    .expired = sqlite_expired,
    .feed = sqlite_feed,
    .feed_prune = sqlite_prune,
    .claim = sqlite_claim,
    .shard_count = sqlite_shard_count,
    .shard_of = sqlite_shard_of,
    .ping = sqlite_ping,
};

int store_sqlite_open(const char *path, struct store **ret, struct err *e)
{
	const struct sqlite_file_config config = {
	    .path = path,
	    .layout = &link_file_layout,
	    .checkpoint_pages = CHECKPOINT_PAGES,
	    /* a server that is not ready gets no requests, so nothing else would write */
	    .ping_writes = true,
	};
	struct store_sqlite *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: out of memory", path);
	s->base.ops = &sqlite_ops;
	s->base.registry = &s->registry;
	s->registry.ops = &sqlite_registry_ops;
	ASSERT(getrandom(&s->rules.hash_seed, sizeof(s->rules.hash_seed), 0) == sizeof(s->rules.hash_seed));
	int r = sqlite_file_open(&config, &s->file, e);
	if (r == 0)
		*ret = &s->base;
	else
		sqlite_free(&s->base);
	return r;
}
