#include "keys/keysync.h"

#include "obs/log.h"
#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>
#include <time.h>

enum {
	BATCH = KEY_LIST_KEYS_MAX,
	PUSH_TRIES = 20, /* of one batch while the outcome is unknown */
	PUSH_REST_MS = 100,
	QUIET_MS = 10000, /* interval of repeated log lines */
};

_Static_assert((int)KEY_LIST_KEYS_MAX <= (int)KEYS_DB_KEYS_MAX, "a batch is taken in one call");

struct keysync {
	struct keysync_config config;
	struct leased_worker *leased_worker;
	bool *filling;     /* per shard: being filled; between the marks it continues */
	uint64_t *counts;  /* at the last count */
	uint64_t *batches; /* pushed to each shard */
	struct source_key *keys;
	size_t db_next;             /* the next database */
	int64_t empty_logged_ms;    /* when it was last logged that all databases are empty */
	int64_t *failure_logged_ms; /* per database: when a failure was last logged */
	struct keysync_sums sums;
	uint64_t moved_before; /* at the last status line */
};

static int lease_of(void *ctx, size_t resource, struct leases **ret, char name[LEASE_NAME_BYTES],
                    struct err *e)
{
	(void)e;
	const struct keysync *s = ctx;
	leased_worker_name("keysync", key_list_name(s->config.lists[resource]), name);
	*ret = s->config.leases[resource];
	return 0;
}

/* From now on the shard refuses the previous holder of the lease. */
static int begin(void *ctx, size_t resource, uint64_t fence, struct err *e)
{
	const struct keysync *s = ctx;
	s->filling[resource] = false;
	return key_list_push(s->config.lists[resource], fence, ++s->batches[resource], NULL, 0, e);
}

static bool should_log(int64_t *logged_ms)
{
	int64_t now_ms = clock_mono_ms();
	if (*logged_ms != 0 && now_ms - *logged_ms < QUIET_MS)
		return false;
	*logged_ms = now_ms;
	return true;
}

static size_t take_from(struct keysync *s, size_t db, size_t max)
{
	struct keys_db *from = s->config.dbs[db];
	size_t count = 0;
	struct err e = {""};
	int r = keys_db_is_failing(from) ? 0 : keys_db_take(from, max, s->keys, &count, &e);
	if (r == 0)
		return count;
	if (r == ERR_UNCERTAIN) {
		s->sums.lost += max;
		log_error("keys",
		          "keys lost, the answer did not arrive count_max=%zu database=%.*s error=\"%s\"",
		          max, STR_ARG(keys_db_address(from)), e.text);
	} else if (should_log(&s->failure_logged_ms[db]))
		log_warn("keys", "keys database failed database=%.*s error=\"%s\"",
		         STR_ARG(keys_db_address(from)), e.text);
	return 0;
}

/* From the first database with keys, starting with the next in turn; its index in *ret_db. */
static size_t take_in_turn(struct keysync *s, size_t max, size_t *ret_db)
{
	size_t dbs = s->config.db_count;
	for (size_t i = 0; i < dbs; i++) {
		size_t at = (s->db_next + i) % dbs;
		size_t count = take_from(s, at, max);
		if (count > 0) {
			s->db_next = at + 1;
			*ret_db = at;
			return count;
		}
	}
	return 0;
}

static int push_until_known(struct keysync *s, size_t resource, uint64_t fence, size_t count, struct err *e)
{
	uint64_t batch = ++s->batches[resource];
	bool uncertain = false;
	for (int i = 0; i < PUSH_TRIES; i++) {
		int r = key_list_push(s->config.lists[resource], fence, batch, s->keys, count, e);
		uncertain |= r == ERR_UNCERTAIN;
		if (r == 0 || !uncertain)
			return r;
		if (r == ERR_CONFLICT) /* another process's batch may have come after ours */
			return ERR_UNCERTAIN;
		const struct timespec rest = {.tv_nsec = PUSH_REST_MS * 1000000L};
		nanosleep(&rest, NULL);
	}
	return ERR_UNCERTAIN;
}

static int move(struct keysync *s, size_t resource, uint64_t fence, size_t max, struct err *e)
{
	struct redis_key_list *list = s->config.lists[resource];
	size_t db = 0;
	size_t count = take_in_turn(s, max, &db);
	if (count == 0) {
		if (should_log(&s->empty_logged_ms))
			log_warn("keys", "all keys databases are empty; start more curt keygen");
		return 0;
	}
	int r = push_until_known(s, resource, fence, count, e);
	if (r == 0) {
		s->sums.moved += count;
		s->counts[resource] += count;
		s->filling[resource] = s->counts[resource] < s->config.high;
		return 1;
	}
	if (r == ERR_UNCERTAIN) {
		s->sums.lost += count;
		log_error("keys", "keys may be lost count=%zu shard=%.*s error=\"%s\"", count,
		          STR_ARG(key_list_name(list)), e->text);
		return r;
	}
	struct err why = {""};
	if (keys_db_return(s->config.dbs[db], s->keys, count, &why) == 0) {
		s->sums.returned += count;
		return r;
	}
	s->sums.lost += count;
	log_error(
	    "keys",
	    "keys lost, neither Redis nor the database accepted them count=%zu database=%.*s error=\"%s\"",
	    count, STR_ARG(keys_db_address(s->config.dbs[db])), why.text);
	return r;
}

static int visit(void *ctx, size_t resource, uint64_t fence, struct err *e)
{
	struct keysync *s = ctx;
	uint64_t count = 0;
	int r = key_list_count(s->config.lists[resource], &count, e);
	if (r < 0)
		return r;
	s->counts[resource] = count;
	s->filling[resource] = count < (s->filling[resource] ? s->config.high : s->config.low);
	return s->filling[resource] ? move(s, resource, fence, MIN((size_t)BATCH, s->config.high - count), e)
	                            : 0;
}

static void status(void *ctx, const bool *held, uint64_t ms)
{
	struct keysync *s = ctx;
	for (size_t i = 0; i < s->config.list_count; i++) {
		if (held[i])
			log_info("keys", "keys shard=%.*s count=%ju",
			         STR_ARG(key_list_name(s->config.lists[i])), (uintmax_t)s->counts[i]);
	}
	log_info("keys", "keysync status moved=%ju per_second=%ju returned=%ju lost=%ju",
	         (uintmax_t)s->sums.moved, (uintmax_t)((s->sums.moved - s->moved_before) * 1000 / MAX(ms, 1)),
	         (uintmax_t)s->sums.returned, (uintmax_t)s->sums.lost);
	s->moved_before = s->sums.moved;
}

static struct str address(void *ctx, size_t resource)
{
	const struct keysync *s = ctx;
	return key_list_name(s->config.lists[resource]);
}

static const struct leased_worker_ops keysync_ops = {
    .lease = lease_of,
    .begin = begin,
    .visit = visit,
    .status = status,
    .address = address,
};

int keysync_start(const struct keysync_config *config, struct keysync **ret, struct err *e)
{
	struct keysync *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->config = *config;
	s->db_next = config->db_count > 1 ? randombytes_uniform((uint32_t)config->db_count) : 0;
	s->filling = calloc(config->list_count, sizeof(*s->filling));
	s->counts = calloc(config->list_count, sizeof(*s->counts));
	s->batches = calloc(config->list_count, sizeof(*s->batches));
	s->failure_logged_ms = calloc(config->db_count, sizeof(*s->failure_logged_ms));
	s->keys = calloc(BATCH, sizeof(*s->keys));
	const struct leased_worker_config leased_worker = {
	    .ops = &keysync_ops,
	    .ctx = s,
	    .task = "keysync",
	    .what = "shard",
	    .resources = config->list_count,
	    .held_max = config->held_max,
	    .lease_ms = config->lease_ms,
	};
	bool has_room = s->filling && s->counts && s->batches && s->failure_logged_ms && s->keys;
	int r = has_room ? 0 : err_set(e, ERR_NOMEM, "out of memory");
	if (r == 0)
		r = leased_worker_start(&leased_worker, &s->leased_worker, e);
	if (r < 0) {
		struct keysync_sums none;
		keysync_stop(s, &none);
		return r;
	}
	*ret = s;
	return 0;
}

void keysync_stop(struct keysync *s, struct keysync_sums *ret)
{
	*ret = (struct keysync_sums){0};
	if (!s)
		return;
	leased_worker_stop(s->leased_worker);
	*ret = s->sums;
	free(s->filling);
	free(s->counts);
	free(s->batches);
	free(s->failure_logged_ms);
	free(s->keys);
	free(s);
}
