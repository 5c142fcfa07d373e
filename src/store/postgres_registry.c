/* The registry on PostgreSQL: counters, constants and the account feed. Accounts: postgres_accounts.c. */
#include "store/postgres_feed.h"
#include "store/postgres_store.h"

/* --- counters and constants --- */

static const struct pg_statement counter_lease = {
    "counter_lease",
    "INSERT INTO counter AS c (name, next) VALUES ($1, 1 + $2::bigint)"
    " ON CONFLICT (name) DO UPDATE SET next = c.next + $2 WHERE c.next <= 9223372036854775807 - $2"
    " RETURNING next - $2"};
_Static_assert(COUNTER_FIRST == 1, "the statement says so");

static int lease_on(struct pg_conn *c, struct str counter, int64_t count, uint64_t *ret_first)
{
	int64_t first = 0; /* stays: the counter has no room */
	int r = PG_ASK_INT(c, &counter_lease, &first, PG_TEXT(counter), PG_INT(count));
	if (r != 0)
		return postgres_error(r);
	if (first == 0)
		return ERR_LIMIT;
	*ret_first = (uint64_t)first;
	return 0;
}

static int lease(struct registry *r, struct str counter, uint64_t count, uint64_t *ret_first)
{
	if (counter.len == 0 || count == 0)
		return ERR_INVALID;
	if (count > INT64_MAX - COUNTER_FIRST)
		return ERR_LIMIT;
	return POSTGRES_WRITE_ON(registry_postgres(r), lease_on(c, counter, (int64_t)count, ret_first));
}

static const struct pg_statement counter_read = {"counter_read", "SELECT next FROM counter WHERE name = $1"};

static int counter_on(struct pg_conn *c, struct str counter, uint64_t *ret_next)
{
	int64_t next = COUNTER_FIRST;
	int r = PG_ASK_INT(c, &counter_read, &next, PG_TEXT(counter));
	if (r == 0)
		*ret_next = (uint64_t)next;
	return postgres_error(r);
}

static int counter(struct registry *r, struct str name, uint64_t *ret_next)
{
	return POSTGRES_READ(registry_postgres(r), counter_on(c, name, ret_next));
}

static const struct pg_statement constant_put = {
    "constant_put", "INSERT INTO constant (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"};
static const struct pg_statement constant_get = {"constant_get",
                                                 "SELECT value FROM constant WHERE name = $1"};
static const struct pg_statement constant_drop = {"constant_drop",
                                                  "DELETE FROM constant WHERE name >= $1 AND name < $2"};

static int constant_on(struct pg_conn *c, struct str name, void *value, size_t len)
{
	CLEANUP(pg_result_end) struct pg_result put = {NULL, 0};
	CLEANUP(pg_result_end) struct pg_result got = {NULL, 0};
	PG_SEND(c, &constant_put, PG_TEXT(name), PG_BYTES(len > 0 ? value : "", len));
	PG_SEND(c, &constant_get, PG_TEXT(name));
	pg_flush(c);
	pg_next(c, &put, NULL);
	pg_next(c, &got, NULL);
	int r = pg_sync(c, NULL);
	if (r != 0)
		return postgres_error(r);
	struct str stored = got.rows == 1 ? pg_get_text(&got, 0, 0) : STR_NULL;
	if (!stored.ptr || stored.len != len)
		return ERR_CORRUPT;
	if (len > 0)
		memcpy(value, stored.ptr, len);
	return 0;
}

static int constant(struct registry *r, struct str name, void *value, size_t len)
{
	return POSTGRES_WRITE_ON(registry_postgres(r), constant_on(c, name, value, len));
}

static int forget(struct registry *r, struct str from, struct str before)
{
	return POSTGRES_WRITE_ON(registry_postgres(r),
	                         postgres_error(PG_EXEC(c, &constant_drop, PG_TEXT(from), PG_TEXT(before))));
}

/* --- the feed --- */

static int feed(struct registry *r, struct feed_page *page)
{
	return POSTGRES_READ(
	    registry_postgres(r),
	    postgres_feed_read(c, registry_postgres(r)->kind.has_advisory_locks, true, page));
}

static int feed_prune(struct registry *r, int64_t until_ms, size_t *ret)
{
	return POSTGRES_WRITE_ON(registry_postgres(r), postgres_feed_prune(c, true, until_ms, ret));
}

const struct registry_ops postgres_registry_ops = {
    .apply = postgres_accounts_apply,
    .page = postgres_page,
    .accounts = postgres_accounts,
    .lease = lease,
    .counter = counter,
    .constant = constant,
    .forget = forget,
    .feed = feed,
    .feed_prune = feed_prune,
};
