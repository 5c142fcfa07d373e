#include "store/postgres_replica.h"

#include "base/hash.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"
#include "store/postgres_store.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
	TARGETS = 8,         /* remembered positions of the primary: some seconds */
	RECENT_SLOTS = 8192, /* a power of two */
};

/* What was last logged about a replica. */
enum { REPLICA_UNKNOWN, REPLICA_USED, REPLICA_UNUSED };

/* What the primary had written at a time. */
struct wal_target {
	int64_t position;
	int64_t at_ms; /* monotonic clock */
};

struct replica {
	struct postgres_replicas *all;
	struct pg_pool *pool;
	_Atomic int64_t fresh_ms; /* it has all changes up to then; 0: never polled */

	struct task poller;
	int reported; /* from here on used only by the poller */
	struct wal_target targets[TARGETS];
	size_t target_count;
};

struct postgres_replicas {
	struct pg_pool *primary;
	const uint8_t *name;
	size_t count;
	atomic_size_t turn; /* round robin */

	_Atomic int64_t created_ms[RECENT_SLOTS]; /* by hash of the key: when this process created a link */
	_Atomic int64_t changed_ms[RECENT_SLOTS]; /* likewise: updated or removed it */
	struct replica list[];
};

/* --- recent changes --- */

static size_t recent_slot(struct str key)
{
	return hash_str(key, 0) % RECENT_SLOTS;
}

static bool is_recent(const _Atomic int64_t *since_ms)
{
	int64_t since = atomic_load_explicit(since_ms, memory_order_relaxed);
	return since != 0 && clock_mono_ms() - since < REPLICA_RECENT_MS;
}

void postgres_replicas_changed(struct postgres_replicas *rs, const struct store_write *writes, size_t n)
{
	int64_t now_ms = clock_mono_ms();
	for (size_t i = 0; i < n; i++) {
		if (!writes[i].ref.key.ptr)
			continue;
		_Atomic int64_t *since_ms = writes[i].kind == STORE_LINK_CREATE ? rs->created_ms
		                                                                : rs->changed_ms;
		atomic_store_explicit(&since_ms[recent_slot(writes[i].ref.key)], now_ms,
		                      memory_order_relaxed);
	}
}

static bool may_answer(const struct postgres_replicas *rs, bool any, const struct store_lookup *read)
{
	if (read->fresh || !read->ref.key.ptr)
		return false;
	size_t slot = recent_slot(read->ref.key);
	return !is_recent(&rs->changed_ms[slot]) && (any || !is_recent(&rs->created_ms[slot]));
}

/* --- asking --- */

static bool replica_is_fresh(const struct replica *replica)
{
	int64_t fresh_ms = atomic_load_explicit(&replica->fresh_ms, memory_order_relaxed);
	return fresh_ms != 0 && clock_mono_ms() - fresh_ms < REPLICA_LAG_MAX_MS;
}

static bool replica_lookup(struct replica *replica, const struct slot_row *row, struct store_lookup **reads,
                           size_t n, struct arena *arena)
{
	struct pg_conn *c = pg_is_failing(replica->pool) ? NULL : pg_take(replica->pool, NULL);
	int r = c ? postgres_read_links(c, row, reads, n, arena) : ERR_UNAVAILABLE;
	pg_return(c);
	return r == 0;
}

bool postgres_replicas_lookup(struct postgres_replicas *rs, bool any, const struct slot_row *row,
                              struct store_lookup **reads, size_t *n, struct arena *arena)
{
	size_t first = atomic_fetch_add_explicit(&rs->turn, 1, memory_order_relaxed);
	size_t asked = 0, left = 0;
	for (size_t i = 0; i < *n; i++) {
		struct store_lookup *read = reads[i];
		if (!may_answer(rs, any, read))
			continue;
		reads[i] = reads[asked];
		reads[asked++] = read;
	}
	bool answered = false;
	for (size_t i = 0; asked > 0 && !answered && i < rs->count; i++) {
		struct replica *replica = &rs->list[(first + i) % rs->count];
		answered = (any || replica_is_fresh(replica)) &&
		           replica_lookup(replica, row, reads, asked, arena);
	}
	if (!answered)
		return false;
	for (size_t i = 0; i < *n; i++) {
		bool is_known = i < asked && reads[i]->result != ERR_NOT_FOUND;
		reads[i]->old = is_known && any;
		if (!is_known)
			reads[left++] = reads[i];
	}
	*n = left;
	return true;
}

/* --- how far they are --- */

static const struct pg_statement primary_position = {
    "primary_position", "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"};
static const struct pg_statement replica_position = {
    "replica_position", "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint"};

static int position_ask(struct pg_pool *pool, const struct pg_statement *statement, int64_t *ret,
                        struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_conn *c = pg_take(pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(c, statement);
	int r = pg_ask(&q, &row, e);
	if (r == 0 && pg_is_null(&row, 0, 0))
		r = err_set(e, ERR_UNAVAILABLE, "it is not a standby");
	if (r == 0)
		*ret = pg_get_int(&row, 0, 0);
	pg_return(c);
	return r;
}

static void target_add(struct replica *replica)
{
	struct wal_target wal_target = {.at_ms = clock_mono_ms()};
	if (position_ask(replica->all->primary, &primary_position, &wal_target.position, NULL) != 0)
		return;
	if (replica->target_count == TARGETS) {
		memmove(&replica->targets[0], &replica->targets[1], (TARGETS - 1) * sizeof(wal_target));
		replica->target_count--;
	}
	replica->targets[replica->target_count++] = wal_target;
}

static void replica_poll(struct replica *replica, struct err *e)
{
	int64_t position;
	if (position_ask(replica->pool, &replica_position, &position, e) != 0)
		return;
	for (size_t i = replica->target_count; i > 0; i--) {
		if (replica->targets[i - 1].position > position)
			continue;
		atomic_store_explicit(&replica->fresh_ms, replica->targets[i - 1].at_ms,
		                      memory_order_relaxed);
		return;
	}
}

/* Logs changes only. With several shards, each database is offered the replicas of all. */
static void replica_log(struct replica *replica, const struct err *why)
{
	const struct postgres_replicas *rs = replica->all;
	bool is_fresh = replica_is_fresh(replica);
	int now = is_fresh ? REPLICA_USED : REPLICA_UNUSED;
	if (replica->reported == now)
		return;
	replica->reported = now;
	if (is_fresh)
		log_info("store", "replica in use replica=%s primary=%s", pg_pool_address(replica->pool).ptr,
		         pg_pool_address(rs->primary).ptr);
	else
		log_info("store", "replica not used replica=%s primary=%s reason=\"%s\"",
		         pg_pool_address(replica->pool).ptr, pg_pool_address(rs->primary).ptr,
		         why->text[0] ? why->text : "it lags behind");
}

static int64_t poll_run(struct task *t)
{
	struct replica *replica = container_of(t, struct replica, poller);
	struct err why = {""};
	target_add(replica);
	replica_poll(replica, &why);
	replica_log(replica, &why);
	return REPLICA_POLL_MS;
}

/* --- life --- */

static const struct pg_statement name_get = {"shard_name", "SELECT value FROM constant WHERE name = $1"};

/* Checks that a new connection belongs to a replica of this primary. */
static int replica_setup(struct pg_conn *c, void *ctx, struct err *e)
{
	const struct postgres_replicas *rs = ctx;
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = pg_query(c, &name_get);
	pg_text(&q, REPLICA_NAME);
	int r = pg_ask(&q, &row, e);
	if (r != 0)
		return r;
	if (row.rows != 1 ||
	    !str_eq(pg_get_text(&row, 0, 0), str_n((const char *)rs->name, SHARD_NAME_BYTES)))
		return err_set(e, ERR_INVALID, "it is not a replica of %s", pg_pool_address(rs->primary).ptr);
	return 0;
}

int postgres_replicas_new(const struct str *urls, size_t n, const uint8_t *name, struct pg_pool *primary,
                          size_t connections_max, struct postgres_replicas **ret, struct err *e)
{
	struct postgres_replicas *rs = calloc(1, sizeof(*rs) + n * sizeof(rs->list[0]));
	int r = 0;
	if (!rs)
		return err_set(e, ERR_NOMEM, "memory ran out");
	rs->primary = primary;
	rs->name = name;
	for (; r == 0 && rs->count < n; rs->count += r == 0) {
		struct replica *replica = &rs->list[rs->count];
		replica->all = rs;
		r = pg_pool_new(urls[rs->count], connections_max, replica_setup, rs, &replica->pool, e);
		if (r == 0)
			pg_pool_timeout(replica->pool, REPLICA_TIMEOUT_MS);
	}
	if (r != 0) {
		postgres_replicas_free(rs);
		return r;
	}
	*ret = rs;
	return 0;
}

int postgres_replicas_start(struct postgres_replicas *rs, struct err *e)
{
	const struct task_config poller = {.name = "pg-replica", .run = poll_run};
	int r = 0;
	for (size_t i = 0; r == 0 && i < rs->count; i++) {
		if (!task_was_started(&rs->list[i].poller))
			r = task_start(&rs->list[i].poller, &poller, e);
	}
	return r;
}

void postgres_replicas_free(struct postgres_replicas *rs)
{
	if (!rs)
		return;
	for (size_t i = 0; i < rs->count; i++)
		task_ask_stop(&rs->list[i].poller);
	for (size_t i = 0; i < rs->count; i++)
		task_stop(&rs->list[i].poller);
	for (size_t i = 0; i < rs->count; i++)
		pg_pool_free(rs->list[i].pool);
	free(rs);
}
