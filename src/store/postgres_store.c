/*
 * Opens and checks a PostgreSQL database.
 *
 * Writes go to the primary over the pool `writers`. Each batch of changes is one transaction; when it is
 * answered, it is on the primary's disk. Reads use their own pool, `readers`, so they never wait for
 * writes. Lookups may go to replicas.
 *
 * Other servers write to the same database. Uniqueness is decided by constraints or under row locks; a
 * transaction that loses is retried (postgres_txn.h).
 */
#include "store/postgres_store.h"
#include "store/postgres_replica.h"

#include <stdlib.h>
#include <sys/random.h>

enum { READERS_DEFAULT = 4, WRITERS_DEFAULT = 2 };

enum { READ_TIMEOUT_MS = 3000 };

/* --- health --- */

static int ping_read(struct store_postgres *s, struct err *e)
{
	struct pg_conn *c = pg_take(s->readers, e);
	int r = c ? pg_run(c, "SELECT 1", e) : ERR_UNAVAILABLE;
	pg_return(c);
	return postgres_error(r);
}

/* Change nothing, but need what a change needs: privileges, and space for a row. */
static const struct pg_statement probe_insert = {"probe_insert",
                                                 "INSERT INTO link SELECT * FROM link WHERE false"};
static const struct pg_statement probe_update = {
    "probe_update", "UPDATE link SET clicks = clicks"
                    " WHERE key IN (SELECT key FROM link LIMIT 1 FOR UPDATE SKIP LOCKED)"};

static int write_probe(struct postgres_txn *t, void *ctx)
{
	(void)ctx;
	TXN_PUT(t, &probe_insert);
	if (!t->is_distributed) /* it would lock rows on all nodes */
		TXN_PUT(t, &probe_update);
	return 0;
}

/* After a failed write, ping writes until it succeeds: a server that is not ready gets no requests, so
 * nobody else would. */
static int ping_write(struct store_postgres *s, struct err *e)
{
	struct postgres_work work = postgres_work(s, write_probe, NULL);
	int r = postgres_error(postgres_write(s, &work, e));
	if (r == 0)
		atomic_store_explicit(&s->write_failed, false, memory_order_relaxed);
	return r;
}

int postgres_ping(struct store_postgres *s, struct err *e)
{
	calls_enter(&s->calls);
	int r = ping_read(s, e);
	if (r == 0 && atomic_load_explicit(&s->write_failed, memory_order_relaxed))
		r = ping_write(s, e);
	calls_leave(&s->calls);
	return r;
}

/* --- life --- */

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

/* By default Citus runs a small statement over many connections, and locks rows in no defined order. Over
 * one connection a batch locks shard by shard, so batches with common keys do not deadlock. */
static const char *const citus_settings = "SET citus.max_adaptive_executor_pool_size = 1;"
                                          " SET citus.multi_shard_modify_mode = 'sequential'";

static int reader_setup(struct pg_conn *c, void *ctx, struct err *e)
{
	const struct store_postgres *s = ctx;
	return s->kind.is_distributed ? pg_run(c, citus_settings, e) : 0;
}

/* A standby would refuse every write. */
static int writer_setup(struct pg_conn *c, void *ctx, struct err *e)
{
	const struct store_postgres *s = ctx;
	if (pg_is_standby(c))
		return err_set(e, ERR_UNAVAILABLE,
		               "%s is a standby, which takes no writes; use the address of its primary",
		               pg_pool_address(s->writers).ptr);
	return reader_setup(c, ctx, e);
}

static int pools_new(struct store_postgres *s, const struct postgres_config *config, struct err *e)
{
	size_t writers = config->writers ? config->writers : WRITERS_DEFAULT;
	size_t readers = config->readers ? config->readers : READERS_DEFAULT;
	s->marks = postgres_marks_new(writers);
	if (!s->marks)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = pg_pool_new(config->url, writers, writer_setup, s, &s->writers, e)
	            ?: pg_pool_new(config->url, readers, reader_setup, s, &s->readers, e);
	if (r != 0)
		return r;
	pg_pool_timeout(s->writers, WRITE_TIMEOUT_MS);
	pg_pool_timeout(s->readers, READ_TIMEOUT_MS);
	return config->replica_count == 0
	           ? 0
	           : postgres_replicas_new(config->replicas, config->replica_count, s->name, s->readers,
	                                   readers, &s->replicas, e);
}

int postgres_new(const struct postgres_config *config, struct store_postgres **ret, struct err *e)
{
	struct store_postgres *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->registry.ops = &postgres_registry_ops;
	s->rules.gives_keys_back = true;
	ASSERT(getrandom(&s->rules.hash_seed, sizeof(s->rules.hash_seed), 0) == sizeof(s->rules.hash_seed));
	int r = pools_new(s, config, e);
	if (r != 0) {
		postgres_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

int postgres_connect(struct store_postgres *s, struct err *e)
{
	const char *address = pg_pool_address(s->writers).ptr;
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, e);
	if (!c)
		return ERR_UNAVAILABLE;
	int r = postgres_layout_make(c, &s->kind, &why) ?: reader_setup(c, s, &why);
	pg_return(c);
	if (r != 0)
		return err_set(e, r == ERR_INVALID ? r : ERR_UNAVAILABLE, "%s: %s", address, why.text);
	if (s->replicas && s->kind.is_distributed)
		return err_set(e, ERR_INVALID,
		               "%s: a replica of one Citus node does not have all links; "
		               "leave store.replicas empty",
		               address);
	ASSERT(getrandom(s->name, sizeof(s->name), 0) == sizeof(s->name));
	r = registry_constant(&s->registry, REPLICA_NAME, s->name, sizeof(s->name));
	if (r != 0)
		return err_set(e, r, "%s: cannot read the database's constant 'part-name'", address);
	return s->replicas ? postgres_replicas_start(s->replicas, e) : 0;
}
