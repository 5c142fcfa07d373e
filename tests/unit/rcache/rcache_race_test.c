/*
 * Several servers read, fill and change the same keys as fast as they can, with a store that is a number for
 * each key. A read that begins after a change was acknowledged must not get an older number by the
 * cache, however late those come who read before the change and fill after it.
 */
#include "lib/rcache_kit.h"
#include "lib/redis_kit.h"
#include "lib/test.h"
#include "os/clock.h"

enum {
	KEYS = 300,
	SERVERS = 2,
	READERS = 4, /* of each server */
	CHANGES = 300,
	CHANGE_EVERY_MS = 20, /* by each server: most keys rest long enough to lose their mark */
	LIFE_MS = 50,         /* so that they are filled again and again */
	LATE_ONE_IN = 8,
	LATE_US_MAX = 40 * 1000,
	READS_AT_ONCE = 8,
};

static struct rcache_kit servers[SERVERS];
static _Atomic uint64_t stored[KEYS];       /* the store */
static _Atomic uint64_t acknowledged[KEYS]; /* changes that have returned */
static _Atomic uint64_t hits, fills, changes, stale;
static _Atomic bool stop;

static int up(void **state)
{
	redis_kit_one(state);
	for (size_t i = 0; redis_kit_servers[0].port && i < SERVERS; i++)
		rcache_kit_open(&servers[i], redis_kit_servers[0].url, true);
	return 0;
}

static int down(void **state)
{
	for (size_t i = 0; redis_kit_servers[0].port && i < SERVERS; i++)
		rcache_kit_close(&servers[i]);
	return redis_kit_down(state);
}

static unsigned next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(*seed >> 33);
}

/* Reads the store, is late now and then, and fills. */
static void read_and_fill(struct rcache *cache, const struct rcache_get *get, unsigned key, uint64_t *seed)
{
	int64_t began_ms = clock_mono_ms();
	char value[24];
	int len = snprintf(value, sizeof(value), "%llu", (unsigned long long)atomic_load(&stored[key]));
	if (next_random(seed) % LATE_ONE_IN == 0) /* a fill that is late: what the cache must refuse */
		nanosleep(&(struct timespec){.tv_nsec = next_random(seed) % LATE_US_MAX * 1000L}, NULL);
	const struct rcache_fill fill = {
	    .key = get->key, .value = str_n(value, (size_t)len), .life_ms = LIFE_MS};
	cache->ops->fill(cache, &fill, 1, began_ms);
	atomic_fetch_add(&fills, 1);
}

static void judge(const struct rcache_get *get, uint64_t least)
{
	uint64_t seen = 0;
	assert_true(str_u64(get->value, &seen));
	atomic_fetch_add(&hits, 1);
	atomic_fetch_add(&stale, seen < least);
}

static void read_some(struct rcache *cache, uint64_t *seed)
{
	struct arena arena = {0};
	struct rcache_get gets[READS_AT_ONCE];
	unsigned keys[READS_AT_ONCE];
	uint64_t least[READS_AT_ONCE];
	for (size_t i = 0; i < READS_AT_ONCE; i++) {
		keys[i] = next_random(seed) % KEYS;
		least[i] = atomic_load(&acknowledged[keys[i]]);
		gets[i] = (struct rcache_get){.key = arena_printf(&arena, "%u", keys[i]), .arena = &arena};
	}
	cache->ops->get(cache, gets, READS_AT_ONCE);
	for (size_t i = 0; i < READS_AT_ONCE; i++) {
		if (gets[i].state == RCACHE_HIT)
			judge(&gets[i], least[i]);
		else if (gets[i].state == RCACHE_MISS)
			read_and_fill(cache, &gets[i], keys[i], seed);
	}
	arena_release(&arena);
}

static void *reader(void *arg)
{
	struct rcache_kit *server = arg;
	uint64_t seed = (uint64_t)(uintptr_t)&seed ^ (uint64_t)clock_mono_ns();
	while (!atomic_load(&stop))
		read_some(server->cache, &seed);
	return NULL;
}

/* Each has its own half of the keys, so that its numbers grow by one. */
static void *writer(void *arg)
{
	struct rcache_kit *server = arg;
	uint64_t seed = (uint64_t)clock_mono_ns();
	while (!atomic_load(&stop)) {
		char text[16];
		unsigned half = (unsigned)(server - servers);
		unsigned key = next_random(&seed) % (KEYS / SERVERS) * SERVERS + half;
		uint64_t number = atomic_fetch_add(&stored[key], 1) + 1;
		struct str name = str_n(text, (size_t)snprintf(text, sizeof(text), "%u", key));
		server->cache->ops->change(server->cache, &name, 1);
		atomic_store(&acknowledged[key], number);
		atomic_fetch_add(&changes, 1);
		/* The pace of changes, so that fills get between two of them. */
		nanosleep(&(struct timespec){.tv_nsec = CHANGE_EVERY_MS * 1000000L}, NULL);
	}
	return NULL;
}

TEST(nothing_old_is_read_after_a_change_was_acknowledged)
{
	pthread_t threads[SERVERS * (READERS + 1)];
	size_t n = 0;
	redis_kit_need();
	for (size_t i = 0; i < SERVERS; i++) {
		assert_int_equal(pthread_create(&threads[n++], NULL, writer, &servers[i]), 0);
		for (size_t k = 0; k < READERS; k++)
			assert_int_equal(pthread_create(&threads[n++], NULL, reader, &servers[i]), 0);
	}
	for (int64_t end_ms = until_now_ms() + UNTIL_MS; changes < CHANGES && until_now_ms() < end_ms;)
		until_pause();
	atomic_store(&stop, true);
	while (n > 0)
		pthread_join(threads[--n], NULL);
	print_message("%llu hits, %llu fills, %llu changes, %llu of the hits too old\n",
	              (unsigned long long)hits, (unsigned long long)fills, (unsigned long long)changes,
	              (unsigned long long)stale);
	assert_true(hits > 0 && fills > 0 && changes >= CHANGES);
	assert_int_equal(stale, 0);
}

TEST_MAIN(.group_setup = up, .group_teardown = down)
