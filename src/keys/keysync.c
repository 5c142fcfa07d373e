#include "keys/keysync.h"

#include "obs/log.h"
#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>
#include <time.h>

enum {
	BATCH = KEY_LIST_KEYS_MAX,
	PUSH_TRIES = 20, /* of one batch, as long as nobody knows what came of it */
	PUSH_REST_MS = 100,
	QUIET_MS = 10000, /* what goes on is told so often */
};

_Static_assert((int)KEY_LIST_KEYS_MAX <= (int)KEYS_DB_KEYS_MAX, "a batch is taken in one call");

struct keysync {
	struct keysync_config config;
	struct leased_worker *leased_worker;
	bool *filling;     /* a shard between the marks is filled if it was below the lower one */
	uint64_t *shelved; /* as last counted */
	uint64_t *batches; /* how many were pushed to each shard */
	struct source_key *keys;
	size_t db_next;   /* whose turn it is */
	int64_t dry_ms;   /* when the log was last told that all databases are empty */
	int64_t *away_ms; /* ... and that one is away */
	struct keysync_sums sums;
	uint64_t moved_before; /* at the last status */
};

static int lease_of(void *ctx, size_t place, struct leases **ret, char name[LEASE_NAME_BYTES], struct err *e)
{
	(void)e;
	const struct keysync *s = ctx;
	leased_worker_name("keysync", key_list_name(s->config.lists[place]), name);
	*ret = s->config.leases[place];
	return 0;
}

/* From now on the shard refuses whoever looked after it before. */
static int begin(void *ctx, size_t place, uint64_t fence, struct err *e)
{
	const struct keysync *s = ctx;
	s->filling[place] = false;
	return key_list_push(s->config.lists[place], fence, ++s->batches[place], NULL, 0, e);
}

static bool is_time_to_tell(int64_t *logged_ms)
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
		          "up to %zu keys are lost: keys database %.*s does not say which it gave (%s)", max,
		          STR_ARG(keys_db_address(from)), e.text);
	} else if (is_time_to_tell(&s->away_ms[db]))
		log_warn("keys", "keys database %.*s: %s", STR_ARG(keys_db_address(from)), e.text);
	return 0;
}

/* From the first database that has some, beginning with the one whose turn it is; its number in ret_db. */
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

static int push_until_known(struct keysync *s, size_t place, uint64_t fence, size_t count, struct err *e)
{
	uint64_t batch = ++s->batches[place];
	bool uncertain = false;
	for (int i = 0; i < PUSH_TRIES; i++) {
		int r = key_list_push(s->config.lists[place], fence, batch, s->keys, count, e);
		uncertain |= r == ERR_UNCERTAIN;
		if (r == 0 || !uncertain)
			return r;
		if (r == ERR_CONFLICT) /* somebody else's batch may have come after ours */
			return ERR_UNCERTAIN;
		const struct timespec rest = {.tv_nsec = PUSH_REST_MS * 1000000L};
		nanosleep(&rest, NULL);
	}
	return ERR_UNCERTAIN;
}

static int move(struct keysync *s, size_t place, uint64_t fence, size_t max, struct err *e)
{
	struct redis_key_list *list = s->config.lists[place];
	size_t db = 0;
	size_t count = take_in_turn(s, max, &db);
	if (count == 0) {
		if (is_time_to_tell(&s->dry_ms))
			log_warn("keys", "no keys database has keys: start curt keygen, or more of them");
		return 0;
	}
	int r = push_until_known(s, place, fence, count, e);
	if (r == 0) {
		s->sums.moved += count;
		s->shelved[place] += count;
		s->filling[place] = s->shelved[place] < s->config.high;
		return 1;
	}
	if (r == ERR_UNCERTAIN) {
		s->sums.lost += count;
		log_error("keys", "%zu keys may be lost: Redis at %.*s does not say whether it has them (%s)",
		          count, STR_ARG(key_list_name(list)), e->text);
		return r;
	}
	struct err why = {""};
	if (keys_db_return(s->config.dbs[db], s->keys, count, &why) == 0) {
		s->sums.returned += count;
		return r;
	}
	s->sums.lost += count;
	log_error("keys", "%zu keys are lost: neither Redis nor keys database %.*s took them: %s", count,
	          STR_ARG(keys_db_address(s->config.dbs[db])), why.text);
	return r;
}

static int visit(void *ctx, size_t place, uint64_t fence, struct err *e)
{
	struct keysync *s = ctx;
	uint64_t count = 0;
	int r = key_list_count(s->config.lists[place], &count, e);
	if (r < 0)
		return r;
	s->shelved[place] = count;
	s->filling[place] = count < (s->filling[place] ? s->config.high : s->config.low);
	return s->filling[place] ? move(s, place, fence, MIN((size_t)BATCH, s->config.high - count), e) : 0;
}

static void status(void *ctx, const bool *held, uint64_t ms)
{
	struct keysync *s = ctx;
	for (size_t i = 0; i < s->config.list_count; i++) {
		if (held[i])
			log_info("keys", "shard %.*s: %ju keys", STR_ARG(key_list_name(s->config.lists[i])),
			         (uintmax_t)s->shelved[i]);
	}
	log_info("keys", "keysync: %ju keys moved, %ju a second of late; %ju put back, %ju lost",
	         (uintmax_t)s->sums.moved, (uintmax_t)((s->sums.moved - s->moved_before) * 1000 / MAX(ms, 1)),
	         (uintmax_t)s->sums.returned, (uintmax_t)s->sums.lost);
	s->moved_before = s->sums.moved;
}

static struct str address(void *ctx, size_t place)
{
	const struct keysync *s = ctx;
	return key_list_name(s->config.lists[place]);
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
	s->shelved = calloc(config->list_count, sizeof(*s->shelved));
	s->batches = calloc(config->list_count, sizeof(*s->batches));
	s->away_ms = calloc(config->db_count, sizeof(*s->away_ms));
	s->keys = calloc(BATCH, sizeof(*s->keys));
	const struct leased_worker_config leased_worker = {
	    .ops = &keysync_ops,
	    .ctx = s,
	    .task = "keysync",
	    .what = "shard",
	    .places = config->list_count,
	    .held_max = config->held_max,
	    .lease_ms = config->lease_ms,
	};
	bool has_room = s->filling && s->shelved && s->batches && s->away_ms && s->keys;
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
	free(s->shelved);
	free(s->batches);
	free(s->away_ms);
	free(s->keys);
	free(s);
}
