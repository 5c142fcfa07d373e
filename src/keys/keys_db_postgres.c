/*
 * The tables of a keys database:
 *
 *	key_stock    the keys
 *	key_count    their number, spread over 16 rows, so that concurrent takers do not wait for one row;
 *	             every statement that adds or takes keys updates it
 *	key_fence    the largest fencing number
 *	key_layout   version of the tables, and the database's name
 */
#include "client/postgres.h"
#include "keys/element.h"
#include "keys/keys_db.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONNECTIONS_MAX = 4 };

/* Advisory lock of the migrations. */
#define LAYOUT_LOCK "7165063172340283"

/* Entry i migrates from version i to i + 1; only ever append. */
static const char *const layout_steps[] = {
    "CREATE TABLE key_stock (key text COLLATE \"C\" PRIMARY KEY, used_before boolean NOT NULL) "
    "    WITH (autovacuum_vacuum_scale_factor = 0.05);"
    "CREATE TABLE key_count (slot integer PRIMARY KEY, keys bigint NOT NULL);"
    "INSERT INTO key_count SELECT slot, 0 FROM generate_series(0, 15) AS slot;"
    "CREATE TABLE key_fence (name text PRIMARY KEY, fence bigint NOT NULL);"
    "INSERT INTO key_fence VALUES ('keygen', 0);"
    "INSERT INTO key_layout VALUES (1, md5(random()::text || clock_timestamp()::text));",
};

static const struct pg_statement layout_sql = {
    "keys-layout", "SELECT coalesce(max(version), 0)::bigint, coalesce(max(name), '') FROM key_layout"};

static const struct pg_statement count_sql = {"keys-count", "SELECT sum(keys)::bigint FROM key_count"};

/* The fence's row stays locked until the statement ends: a late process waits for it, then sees the larger
 * number. */
static const struct pg_statement add_sql = {
    "keys-add",
    "WITH guard AS (UPDATE key_fence SET fence = $1 WHERE name = 'keygen' AND fence <= $1 RETURNING fence), "
    "added AS (INSERT INTO key_stock SELECT rtrim(k, '!'), right(k, 1) = '!' FROM unnest($2::text[]) AS k "
    "WHERE EXISTS (SELECT FROM guard) ON CONFLICT DO NOTHING RETURNING key), "
    "counted AS (UPDATE key_count SET keys = keys + (SELECT count(*) FROM added) "
    "WHERE slot = pg_backend_pid() % 16 AND EXISTS (SELECT FROM added)) "
    "SELECT (SELECT count(*) FROM guard), (SELECT count(*) FROM added)"};

static const struct pg_statement return_sql = {
    "keys-return",
    "WITH added AS (INSERT INTO key_stock SELECT rtrim(k, '!'), right(k, 1) = '!' FROM unnest($1::text[]) AS "
    "k ON CONFLICT DO NOTHING RETURNING key), "
    "counted AS (UPDATE key_count SET keys = keys + (SELECT count(*) FROM added) "
    "WHERE slot = pg_backend_pid() % 16 AND EXISTS (SELECT FROM added)) "
    "SELECT count(*) FROM added"};

/* An array: the inner query runs once, and its keys are found by the index, whatever the planner estimates
 * for a table that is emptied and filled all the time. */
static const struct pg_statement take_sql = {
    "keys-take", "WITH taken AS (DELETE FROM key_stock WHERE key = ANY (ARRAY("
                 "SELECT key FROM key_stock LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING key, used_before), "
                 "counted AS (UPDATE key_count SET keys = keys - (SELECT count(*) FROM taken) "
                 "WHERE slot = pg_backend_pid() % 16 AND EXISTS (SELECT FROM taken)) "
                 "SELECT key, used_before FROM taken"};

struct keys_db {
	struct pg_pool *pool;
	pthread_mutex_t layout_lock;
	bool is_migrated; /* under the lock; `name` is fixed from then on */
	char name[KEYS_DB_NAME_BYTES];
};

/* Layout */

static int layout_read(struct pg_conn *c, int64_t *ret_version, char name[KEYS_DB_NAME_BYTES], struct err *e)
{
	struct pg_query q = pg_query(c, &layout_sql);
	struct pg_result CLEANUP(pg_result_end) rows = {0};
	int r = pg_ask(&q, &rows, e);
	if (r < 0)
		return r;
	*ret_version = pg_get_int(&rows, 0, 0);
	snprintf(name, KEYS_DB_NAME_BYTES, "%.*s", STR_ARG(pg_get_text(&rows, 0, 1)));
	return 0;
}

static int layout_update(struct keys_db *s, struct pg_conn *c, struct err *e)
{
	int64_t version = 0;
	int r = pg_run(c, "CREATE TABLE IF NOT EXISTS key_layout (version integer, name text)", e)
	            ?: layout_read(c, &version, s->name, e);
	if (r == 0 && (uint64_t)version > ARRAY_LEN(layout_steps))
		return err_set(
		    e, ERR_INVALID,
		    "the keys database %.*s was migrated by a newer version of curt; use that version",
		    STR_ARG(pg_pool_address(s->pool)));
	for (; r == 0 && (uint64_t)version < ARRAY_LEN(layout_steps); version++)
		r = pg_run(c, layout_steps[version], e);
	return r < 0 ? r : layout_read(c, &version, s->name, e);
}

static int layout_migrate_locked(struct keys_db *s, struct pg_conn *c, struct err *e)
{
	int r = s->is_migrated ? 0 : pg_run(c, "SELECT pg_advisory_lock(" LAYOUT_LOCK ")", e);
	if (s->is_migrated || r < 0)
		return r;
	r = layout_update(s, c, e);
	int unlocked = pg_run(c, "SELECT pg_advisory_unlock(" LAYOUT_LOCK ")", r == 0 ? e : NULL);
	s->is_migrated = r == 0 && unlocked == 0;
	return r < 0 ? r : unlocked;
}

/* Runs on each new connection; the first one migrates. */
static int layout_migrate(struct pg_conn *c, void *ctx, struct err *e)
{
	struct keys_db *s = ctx;
	pthread_mutex_lock(&s->layout_lock);
	int r = layout_migrate_locked(s, c, e);
	pthread_mutex_unlock(&s->layout_lock);
	return r;
}

/* Operations */

int keys_db_new(struct str url, struct keys_db **ret, struct err *e)
{
	struct keys_db *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	pthread_mutex_init(&s->layout_lock, NULL);
	int r = pg_pool_new(url, CONNECTIONS_MAX, layout_migrate, s, &s->pool, e);
	if (r < 0) {
		keys_db_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void keys_db_free(struct keys_db *s)
{
	if (!s)
		return;
	pg_pool_free(s->pool);
	pthread_mutex_destroy(&s->layout_lock);
	free(s);
}

struct str keys_db_address(const struct keys_db *s)
{
	return pg_pool_address(s->pool);
}

bool keys_db_is_failing(const struct keys_db *s)
{
	return pg_is_failing(s->pool);
}

int keys_db_name(struct keys_db *s, char out[KEYS_DB_NAME_BYTES], struct err *e)
{
	struct pg_conn *c = pg_take(s->pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	pg_return(c); /* a connection implies that the tables are migrated */
	memcpy(out, s->name, KEYS_DB_NAME_BYTES);
	return 0;
}

int keys_db_count(struct keys_db *s, uint64_t *ret, struct err *e)
{
	struct pg_conn *c = pg_take(s->pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(c, &count_sql);
	struct pg_result CLEANUP(pg_result_end) rows = {0};
	int r = pg_ask(&q, &rows, e);
	if (r == 0)
		*ret = (uint64_t)MAX(pg_get_int(&rows, 0, 0), 0);
	pg_return(c);
	return r;
}

/* Sends the keys, preceded by the fence if there is one. */
static int send_keys(struct pg_conn *c, const struct pg_statement *sql, const uint64_t *fence,
                     const struct source_key *keys, size_t n, struct pg_result *ret, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	const struct str *texts = elements_write(keys, n, &arena);
	if (!texts)
		return err_set(e, ERR_NOMEM, "out of memory");
	struct pg_query q = pg_query(c, sql);
	if (fence)
		pg_int(&q, (int64_t)*fence);
	pg_texts(&q, texts, n);
	return pg_ask(&q, ret, e);
}

int keys_db_add(struct keys_db *s, uint64_t fence, const struct source_key *keys, size_t n, size_t *ret_new,
                struct err *e)
{
	struct pg_conn *c = pg_take(s->pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_result CLEANUP(pg_result_end) rows = {0};
	int r = send_keys(c, &add_sql, &fence, keys, n, &rows, e);
	if (r == 0 && pg_get_int(&rows, 0, 0) == 0)
		r = err_set(
		    e, ERR_CONFLICT,
		    "the keys database %.*s has seen a larger fencing number than %ju: another curt keygen "
		    "has taken over (if none runs, lease.url was changed: set key_fence.fence to 0 "
		    "there)",
		    STR_ARG(pg_pool_address(s->pool)), (uintmax_t)fence);
	if (r == 0)
		*ret_new = (size_t)pg_get_int(&rows, 0, 1);
	else if (pg_conn_failed(c))
		r = ERR_UNCERTAIN;
	pg_return(c);
	return r;
}

int keys_db_return(struct keys_db *s, const struct source_key *keys, size_t n, struct err *e)
{
	struct pg_conn *c = pg_take(s->pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_result CLEANUP(pg_result_end) rows = {0};
	int r = send_keys(c, &return_sql, NULL, keys, n, &rows, e);
	pg_return(c);
	return r;
}

int keys_db_take(struct keys_db *s, size_t max, struct source_key *ret, size_t *ret_count, struct err *e)
{
	ASSERT(max <= KEYS_DB_KEYS_MAX);
	struct pg_conn *c = pg_take(s->pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(c, &take_sql);
	pg_int(&q, (int64_t)max);
	struct pg_result CLEANUP(pg_result_end) rows = {0};
	int r = pg_ask(&q, &rows, e);
	size_t count = 0;
	for (int i = 0; r == 0 && i < rows.rows; i++) {
		if (!element_read(pg_get_text(&rows, i, 0), &ret[count]))
			continue; /* invalid keys are dropped */
		ret[count++].used_before = pg_get_int(&rows, i, 1) != 0;
	}
	if (r < 0 && pg_conn_failed(c))
		r = ERR_UNCERTAIN;
	pg_return(c);
	if (r == 0)
		*ret_count = count;
	return r;
}

int keys_dbs_new(struct str urls, struct arena *arena, struct keys_db ***ret, size_t *ret_count,
                 struct err *e)
{
	size_t count = 0, made = 0;
	for (struct str rest = urls; rest.ptr; count++)
		str_cut_url(&rest);
	struct keys_db **dbs = arena_zalloc(arena, count * sizeof(struct keys_db *));
	if (!dbs)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = 0;
	while (r == 0 && made < count) {
		r = keys_db_new(str_cut_url(&urls), &dbs[made], e);
		made += r == 0 ? 1 : 0;
	}
	if (r < 0) {
		keys_dbs_free(dbs, made);
		return r;
	}
	*ret = dbs;
	*ret_count = count;
	return 0;
}

void keys_dbs_free(struct keys_db **dbs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		keys_db_free(dbs[i]);
}
