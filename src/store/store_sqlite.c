/*
 * The role `store` on a SQLite file (client/sqlite_file.h). It is written with synchronous=FULL, so a commit
 * that succeeded survives power loss.
 *
 * A batch is judged before it is written (decide.h): a change that fails by itself (a conflict, say) touches
 * nothing. When SQLite fails, the whole batch is rolled back. What comes back to the caller is held in
 * `struct store_outcome` until the commit, so a batch that failed can be handed in again as it is.
 */
#include "client/sqlite_file.h"
#include "store/backends.h"
#include "store/rules.h"
#include "store/sqlite_change.h"
#include "store/sqlite_read.h"
#include "store/sqlite_rows.h"

#include <stdlib.h>
#include <sys/random.h>

enum { CHECKPOINT_PAGES = 1000 }; /* 4 MB: changes are small, and a lookup searches the log first */

struct store_sqlite {
	struct store base;
	struct store_rules rules;
	struct sqlite_file *file;
};

static struct store_sqlite *self(struct store *base)
{
	return container_of(base, struct store_sqlite, base);
}

/* --- reads --- */

/* Lends a reader until the end of the block. */
#define READER(base, read) \
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin(self(base)->file)

static int sqlite_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	READER(base, read);
	return sqlite_read_links(read.conn, reads, n);
}

static int sqlite_list(struct store *base, struct store_list *page)
{
	uint64_t id_max;
	if (page->limit == 0 || !cursor_parse(page->cursor, &id_max))
		return ERR_INVALID;
	READER(base, read);
	return sqlite_read_list(read.conn, page, id_max);
}

static int sqlite_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	READER(base, read);
	return sqlite_read_tagged(read.conn, tag, max, ret_ids, ret_count);
}

static int sqlite_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                            size_t *ret_count)
{
	READER(base, read);
	return sqlite_read_permitted(read.conn, link, arena, ret, ret_count);
}

static int sqlite_over(struct store *base, struct store_over *over)
{
	READER(base, read);
	return sqlite_read_over(read.conn, over);
}

static int sqlite_users(struct store *base, struct store_users *page)
{
	if (page->limit == 0)
		return ERR_INVALID;
	READER(base, read);
	return sqlite_read_users(read.conn, page);
}

static int sqlite_keys(struct store *base, struct store_keys *page)
{
	if (page->limit == 0)
		return ERR_INVALID;
	READER(base, read);
	return sqlite_read_keys(read.conn, page);
}

static int sqlite_accounts(struct store *base, struct store_account *reads, size_t n, struct arena *arena)
{
	READER(base, read);
	return sqlite_read_accounts(read.conn, reads, n, arena);
}

/* --- changes --- */

static int changes_run(struct sqlite_conn *c, struct view *v, const struct store_write *writes, size_t n,
                       struct store_outcome *outcomes, bool *ret_lost)
{
	CLEANUP(buf_release) struct buf feed = {0}; /* of accounts */
	memset(outcomes, 0, n * sizeof(*outcomes));
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) { /* first: a link may be for a new user */
		if (!store_write_is_link(writes[i].kind))
			rc = sqlite_change_account(c, &writes[i], &outcomes[i], &feed);
	}
	if (rc == SQLITE_OK)
		rc = sqlite_feed_add(c, SQL_ACCOUNT_FEED_ADD, writes[n - 1].now_ms, buf_view(&feed));
	if (rc == SQLITE_OK)
		rc = sqlite_fetch_links(c, v);
	if (rc == SQLITE_OK)
		rc = sqlite_of_error(decide_links(v, writes, n, outcomes));
	if (rc == SQLITE_OK)
		rc = sqlite_write_links(c, v, ret_lost);
	return rc;
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
	while (rc == SQLITE_OK && lost) { /* an id is taken: a bug of whoever gave it out */
		lost = false;
		rc = sqlite_conn_run(c, SQL_ROLLBACK);
		if (rc == SQLITE_OK)
			rc = sqlite_conn_run(c, SQL_BEGIN_WRITE);
		if (rc == SQLITE_OK)
			rc = changes_run(c, v, writes, n, outcomes, &lost);
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

static int clicks_set(struct sqlite_conn *c, const struct store_count *count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CLICKS_SET);
	query_int(&q, (int64_t)count->id);
	query_int(&q, (int64_t)count->clicks);
	return query_run(&q);
}

static int sqlite_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct sqlite_file *f = self(base)->file;
	struct sqlite_conn *c;
	(void)node; /* there is one only */
	ASSERT(n <= STORE_COUNTS_MAX);
	int r = n > 0 ? sqlite_file_write_begin(f, &c) : 0;
	if (r != 0 || n == 0)
		return r;
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
		if (id_is_valid(counts[i].id))
			rc = clicks_set(c, &counts[i]);
	}
	return sqlite_file_write_end(f, rc);
}

/* --- counters and constants --- */

static int counter_set(struct sqlite_conn *c, struct str name, int64_t next)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_COUNTER_SET);
	query_str(&q, name);
	query_int(&q, next);
	return query_run(&q);
}

static int sqlite_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct sqlite_file *f = self(base)->file;
	struct sqlite_conn *c;
	if (counter.len == 0 || count == 0)
		return ERR_INVALID;
	if (count > INT64_MAX)
		return ERR_LIMIT;
	int r = sqlite_file_write_begin(f, &c);
	if (r != 0)
		return r;
	int64_t first, next;
	int rc = sqlite_counter_next(c, counter, &first);
	bool fits = rc == SQLITE_OK && !__builtin_add_overflow(first, (int64_t)count, &next);
	if (fits)
		rc = counter_set(c, counter, next);
	r = sqlite_file_write_end(f, rc);
	if (r == 0 && fits)
		*ret_first = (uint64_t)first;
	return r ? r : fits ? 0 : ERR_LIMIT;
}

/* ERR_NOT_FOUND in *ret_result: there is none of that name. */
static int constant_get(struct sqlite_conn *c, struct str name, void *value, size_t len, int *ret_result)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CONSTANT_GET);
	query_str(&q, name);
	bool found;
	int rc = query_find(&q, &found);
	*ret_result = found ? ERR_CORRUPT : ERR_NOT_FOUND;
	if (!found)
		return rc;
	if ((size_t)sqlite3_column_bytes(q.stmt, 0) != len)
		return SQLITE_OK;
	const void *stored = sqlite3_column_blob(q.stmt, 0);
	if (!stored && len > 0)
		return SQLITE_NOMEM;
	if (len > 0)
		memcpy(value, stored, len);
	*ret_result = 0;
	return SQLITE_OK;
}

static int constant_put(struct sqlite_conn *c, struct str name, const void *value, size_t len)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CONSTANT_PUT);
	query_str(&q, name);
	query_blob(&q, value, len);
	return query_run(&q);
}

static int sqlite_constant(struct store *base, struct str name, void *value, size_t len)
{
	struct sqlite_file *f = self(base)->file;
	struct sqlite_conn *c;
	int r = sqlite_file_write_begin(f, &c);
	if (r != 0)
		return r;
	int result;
	int rc = constant_get(c, name, value, len, &result);
	if (rc == SQLITE_OK && result == ERR_NOT_FOUND) {
		rc = constant_put(c, name, value, len);
		result = 0;
	}
	r = sqlite_file_write_end(f, rc);
	return r ? r : result;
}

/* --- the feed --- */

static int sqlite_feed(struct store *base, bool accounts, struct feed_page *page)
{
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_snapshot_begin(self(base)->file);
	return read.rc ? sqlite_error(read.rc) : sqlite_read_feed(read.conn, accounts, page);
}

static int prune(struct sqlite_conn *c, unsigned sql, int64_t until_ms, size_t *ret)
{
	int rc = sqlite_purge(c, sql, &(struct purge){until_ms, FEED_PRUNE_MAX});
	if (rc == SQLITE_OK)
		*ret += (size_t)sqlite3_changes(c->db);
	return rc;
}

static int sqlite_feed_prune(struct store *base, int64_t until_ms, size_t *ret)
{
	struct sqlite_file *f = self(base)->file;
	struct sqlite_conn *c;
	*ret = 0;
	int r = sqlite_file_write_begin(f, &c);
	if (r != 0)
		return r;
	int rc = prune(c, SQL_LINK_FEED_PRUNE, until_ms, ret);
	if (rc == SQLITE_OK)
		rc = prune(c, SQL_ACCOUNT_FEED_PRUNE, until_ms, ret);
	return sqlite_file_write_end(f, rc);
}

/* --- health and life --- */

static int sqlite_ping(struct store *base, struct err *e)
{
	return sqlite_file_ping(self(base)->file, e);
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
    .over = sqlite_over,
    .users = sqlite_users,
    .keys = sqlite_keys,
    .accounts = sqlite_accounts,
    .lease = sqlite_lease,
    .constant = sqlite_constant,
    .feed = sqlite_feed,
    .feed_prune = sqlite_feed_prune,
    .ping = sqlite_ping,
};

int store_sqlite_open(const char *path, struct store **ret, struct err *e)
{
	const struct sqlite_file_config config = {
	    .path = path,
	    .layout = &link_file_layout,
	    .checkpoint_pages = CHECKPOINT_PAGES,
	    .ping_writes = true, /* a server that is not ready gets no requests, so nobody would write */
	};
	struct store_sqlite *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: out of memory", path);
	s->base.ops = &sqlite_ops;
	ASSERT(getrandom(&s->rules.hash_seed, sizeof(s->rules.hash_seed), 0) == sizeof(s->rules.hash_seed));
	int r = sqlite_file_open(&config, &s->file, e);
	if (r == 0)
		*ret = &s->base;
	else
		sqlite_free(&s->base);
	return r;
}
