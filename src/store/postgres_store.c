/*
 * Opens a PostgreSQL database, and reads links from it.
 *
 * Changes, leases and the like go to the primary, over the connections of `writers`; each batch of changes is
 * one transaction, and its answer means that the primary has it on disk. Reads have connections of their own
 * (`readers`), so that they never wait for changes; lookups go to replicas where there are some.
 *
 * Other servers work on the same database. Whatever must not happen twice is decided by a unique constraint
 * or under a row's lock; whoever loses looks again (postgres_txn.h).
 */
#include "store/postgres_store.h"
#include "store/postgres_feed.h"
#include "store/postgres_layout.h"
#include "store/postgres_read.h"
#include "store/postgres_replica.h"
#include "store/postgres_rows.h"

#include <stdlib.h>
#include <sys/random.h>

enum { READERS_DEFAULT = 4, WRITERS_DEFAULT = 2 };

enum { READ_PATIENCE_MS = 3000 }; /* for an answer */

/* --- reading --- */

static int lookup_at_primary(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                             size_t n)
{
	return POSTGRES_READ(s, postgres_read_links(c, row, reads, n));
}

/* Some of the reads, copied together. */
struct some {
	struct store_lookup *copies;
	size_t *places; /* where they belong */
	size_t count;
};

static void some_add(struct some *to, const struct store_lookup *reads, size_t place)
{
	to->copies[to->count] = reads[place];
	to->places[to->count++] = place;
}

static void some_return(const struct some *from, struct store_lookup *reads)
{
	for (size_t i = 0; i < from->count; i++)
		reads[from->places[i]] = from->copies[i];
}

/* A link that a replica does not know may be too young for it. Returns whether a replica answered. */
static bool lookup_at_replica(struct store_postgres *s, bool any, const struct slot_row *row,
                              struct store_lookup *reads, size_t n, struct some *some, bool *settled)
{
	some->count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!settled[i] && postgres_replicas_may_answer(s->replicas, any, &reads[i]))
			some_add(some, reads, i);
	}
	if (some->count == 0 ||
	    postgres_replicas_lookup(s->replicas, any, row, some->copies, some->count) != 0)
		return false;
	some_return(some, reads);
	for (size_t i = 0; i < some->count; i++) {
		reads[some->places[i]].old = any;
		settled[some->places[i]] = some->copies[i].result != ERR_NOT_FOUND;
	}
	return true;
}

/* All that no replica has settled. */
static int lookup_rest(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                       size_t n, struct some *some, const bool *settled)
{
	some->count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!settled[i])
			some_add(some, reads, i);
	}
	int r = some->count > 0 ? lookup_at_primary(s, row, some->copies, some->count) : 0;
	if (r == 0)
		some_return(some, reads);
	return r;
}

/* Without the primary what replicas know is still told, and the rest fails one by one. */
static int lookup_without_primary(struct store_postgres *s, int error, bool was_answered,
                                  const struct slot_row *row, struct store_lookup *reads, size_t n,
                                  struct some *some, bool *settled)
{
	bool is_answered = lookup_at_replica(s, true, row, reads, n, some, settled) || was_answered;
	if (!is_answered)
		return error;
	for (size_t i = 0; i < n; i++) {
		if (!settled[i])
			reads[i].result = error;
	}
	return 0;
}

static int lookup_with_replicas(struct store_postgres *s, const struct slot_row *row,
                                struct store_lookup *reads, size_t n, struct some *some, bool *settled)
{
	bool was_answered = lookup_at_replica(s, false, row, reads, n, some, settled);
	int r = lookup_rest(s, row, reads, n, some, settled);
	if (r != ERR_UNAVAILABLE)
		return r;
	return lookup_without_primary(s, r, was_answered, row, reads, n, some, settled);
}

static int lookup_error(int r)
{
	return r == ERR_CONFLICT ? r : postgres_error(r);
}

int postgres_lookup(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                    size_t n)
{
	if (n == 0)
		return 0;
	if (!s->replicas)
		return lookup_error(lookup_at_primary(s, row, reads, n));
	struct arena arena = {0};
	struct some some = {.copies = arena_alloc(&arena, n * sizeof(*reads)),
	                    .places = arena_alloc(&arena, n * sizeof(*some.places))};
	bool *settled = arena_zalloc(&arena, n * sizeof(*settled));
	calls_enter(&s->calls);
	int r = some.copies && some.places && settled ? lookup_with_replicas(s, row, reads, n, &some, settled)
	                                              : ERR_NOMEM;
	calls_leave(&s->calls);
	arena_release(&arena);
	return lookup_error(r);
}

int postgres_list(struct store_postgres *s, const struct slot_row *row, struct store_list *page)
{
	return POSTGRES_READ(s, postgres_read_list(c, row, page));
}

int postgres_tagged(struct store_postgres *s, const struct slot_row *row, struct str tag, size_t max,
                    struct ranked_id *ret, size_t *ret_count)
{
	return POSTGRES_READ(s, postgres_read_tagged(c, row, tag, max, ret, ret_count));
}

int postgres_permitted(struct store_postgres *s, const struct slot_row *row, uint64_t link,
                       struct arena *arena, uint64_t **ret, size_t *ret_count)
{
	return POSTGRES_READ(s, postgres_read_permitted(c, row, link, arena, ret, ret_count));
}

/* Counting all takes the longer the more there are. */
static int over_on(struct pg_conn *c, const struct slot_row *row, const struct store_over *over,
                   struct ranked_id *ret, size_t *ret_count, uint64_t *ret_total)
{
	int r = over->count_all ? pg_timeout(c, PG_ANSWER_TIMEOUT_MS, NULL) : 0;
	return r ? postgres_error(r) : postgres_read_over(c, row, over, ret, ret_count, ret_total);
}

int postgres_over(struct store_postgres *s, const struct slot_row *row, const struct store_over *over,
                  struct ranked_id *ret, size_t *ret_count, uint64_t *ret_total)
{
	return POSTGRES_READ(s, over_on(c, row, over, ret, ret_count, ret_total));
}

/* --- health and life --- */

static int ping_read(struct store_postgres *s, struct err *e)
{
	struct pg_conn *c = pg_take(s->readers, e);
	int r = c ? pg_run(c, "SELECT 1", e) : ERR_UNAVAILABLE;
	pg_return(c);
	return postgres_error(r);
}

/* Changes nothing, and takes what a change takes: the rights, and room for a row. */
static const struct pg_statement touch_insert = {"touch_insert",
                                                 "INSERT INTO link SELECT * FROM link WHERE false"};
static const struct pg_statement touch_update = {
    "touch_update", "UPDATE link SET clicks = clicks"
                    " WHERE key IN (SELECT key FROM link LIMIT 1 FOR UPDATE SKIP LOCKED)"};

static int touch_run(struct postgres_txn *t, void *ctx)
{
	(void)ctx;
	struct pg_query q = txn_query(t, &touch_insert);
	txn_put(t, &q);
	if (!t->is_distributed) { /* it would have to lock rows of all shards */
		q = txn_query(t, &touch_update);
		txn_put(t, &q);
	}
	return 0;
}

/* After a failure only a write can tell whether writing works again, and nobody may be writing: a server that
 * is not ready gets no requests. */
static int ping_write(struct store_postgres *s, struct err *e)
{
	struct postgres_work work = postgres_work(s, touch_run, NULL);
	int r = postgres_error(postgres_write(s, &work, e));
	if (r == 0)
		atomic_store_explicit(&s->is_troubled, false, memory_order_relaxed);
	return r;
}

int postgres_ping(struct store_postgres *s, struct err *e)
{
	calls_enter(&s->calls);
	int r = ping_read(s, e);
	if (r == 0 && atomic_load_explicit(&s->is_troubled, memory_order_relaxed))
		r = ping_write(s, e);
	calls_leave(&s->calls);
	return r;
}

void postgres_close(struct store_postgres *s)
{
	if (!s)
		return;
	calls_wait(&s->calls);
	postgres_replicas_free(s->replicas);
	pg_pool_free(s->readers);
	pg_pool_free(s->writers);
	postgres_marks_free(s->marks);
	free(s);
}

/* Citus would spread a small statement over many connections, which it opens for it, and lock rows in no
 * order. Over one, a batch locks its rows shard by shard, and two that name the same things do not block each
 * other. */
static const char *const citus_manners = "SET citus.max_adaptive_executor_pool_size = 1;"
                                         " SET citus.multi_shard_modify_mode = 'sequential'";

static int reader_setup(struct pg_conn *c, void *ctx, struct err *e)
{
	const struct store_postgres *s = ctx;
	return s->kind.is_distributed ? pg_run(c, citus_manners, e) : 0;
}

/* A server that only follows another one would refuse every write. */
static int writer_setup(struct pg_conn *c, void *ctx, struct err *e)
{
	const struct store_postgres *s = ctx;
	if (pg_is_standby(c))
		return err_set(e, ERR_UNAVAILABLE, "%s is a standby: name the primary",
		               pg_pool_address(s->writers).ptr);
	return reader_setup(c, ctx, e);
}

static int pools_open(struct store_postgres *s, const struct postgres_config *config, struct err *e)
{
	size_t writers = config->writers ? config->writers : WRITERS_DEFAULT;
	size_t readers = config->readers ? config->readers : READERS_DEFAULT;
	s->marks = postgres_marks_new(writers);
	if (!s->marks)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int r = pg_pool_new(config->url, writers, writer_setup, s, &s->writers, e);
	if (r == 0)
		r = pg_pool_new(config->url, readers, reader_setup, s, &s->readers, e);
	if (r != 0)
		return r;
	pg_pool_timeout(s->writers, WRITE_PATIENCE_MS);
	pg_pool_timeout(s->readers, READ_PATIENCE_MS);
	return 0;
}

static int layout_make(struct store_postgres *s, struct err *e)
{
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, e);
	if (!c)
		return ERR_UNAVAILABLE;
	int r = postgres_layout_make(c, &s->kind, &why);
	if (r == 0)
		r = reader_setup(c, s, &why);
	pg_return(c);
	return r ? err_set(e, r == ERR_INVALID ? r : ERR_UNAVAILABLE, "%s: %s",
	                   pg_pool_address(s->writers).ptr, why.text)
	         : 0;
}

static int name_get(struct store_postgres *s, struct err *e)
{
	ASSERT(getrandom(s->name, sizeof(s->name), 0) == sizeof(s->name));
	int r = registry_constant(&s->registry, REPLICA_NAME, s->name, sizeof(s->name));
	return r ? err_set(e, r, "%s: the database's name cannot be read", pg_pool_address(s->writers).ptr)
	         : 0;
}

static int replicas_open(struct store_postgres *s, const struct postgres_config *config, struct err *e)
{
	if (config->replica_count == 0)
		return 0;
	if (s->kind.is_distributed)
		return err_set(e, ERR_INVALID,
		               "%s: Citus spreads its links over nodes, and no replica of it has them all; "
		               "leave store.replicas empty",
		               pg_pool_address(s->writers).ptr);
	return postgres_replicas_new(config->replicas, config->replica_count, s->name, s->readers,
	                             config->readers ? config->readers : READERS_DEFAULT, &s->replicas, e);
}

int postgres_open(const struct postgres_config *config, struct store_postgres **ret, struct err *e)
{
	struct store_postgres *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "memory ran out");
	s->registry.ops = &postgres_registry_ops;
	s->rules.gives_keys_back = true;
	ASSERT(getrandom(&s->rules.hash_seed, sizeof(s->rules.hash_seed), 0) == sizeof(s->rules.hash_seed));
	int r = pools_open(s, config, e);
	if (r == 0)
		r = layout_make(s, e);
	if (r == 0)
		r = name_get(s, e);
	if (r == 0)
		r = replicas_open(s, config, e);
	if (r != 0) {
		postgres_close(s);
		return r;
	}
	*ret = s;
	return 0;
}
