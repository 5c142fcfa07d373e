#include "keys/pool.h"
#include "keys/redis_key_list.h"
#include "lib/keys_kit.h"
#include "lib/redis_kit.h"
#include "lib/test.h"

enum { SERVERS = 2, BATCH = 10 };

static struct redis_server *const servers = redis_kit_servers;
static struct redis_key_list *lists[SERVERS];
static uint64_t batch;

static int key_lists_open(void **state)
{
	redis_kit_renew(state);
	for (int i = 0; servers[0].port && i < SERVERS; i++)
		assert_int_equal(key_list_new(str_of(servers[i].url), &lists[i], NULL), 0);
	return 0;
}

static int key_lists_close(void **state)
{
	for (int i = 0; i < SERVERS; i++)
		key_list_free(steal(lists[i]));
	return 0;
}

static struct key_source *open_pool(void)
{
	struct key_source *pool = NULL;
	char urls[REDIS_KIT_URLS_BYTES];
	redis_kit_need();
	MUST(key_pool_open(redis_kit_urls(urls), BATCH, &pool, &why));
	return pool;
}

static void fill(int server, unsigned first, size_t n)
{
	struct source_key keys[KEY_LIST_KEYS_MAX];
	redis_kit_need();
	pipe_keys(keys, n, first);
	assert_int_equal(key_list_push(lists[server], 1, ++batch, keys, n, NULL), 0);
}

static uint64_t left_in(int server)
{
	uint64_t count = 0;
	assert_int_equal(key_list_count(lists[server], &count, NULL), 0);
	return count;
}

static size_t take(struct key_source *pool, struct source_key *ret, size_t n)
{
	size_t count = 0;
	MUST(pipe_take(pool, ret, n, &count, &why));
	assert_in_range(count, 1, n);
	return count;
}

TEST(keys_are_taken_in_batches_from_the_fullest_shard, key_lists_open, key_lists_close)
{
	fill(0, 0, 100);
	fill(1, 1000, 300);
	struct key_source *pool = open_pool();
	struct source_key key;
	UNTIL(pool->ops->stats(pool).available == 400);
	assert_int_equal(take(pool, &key, 1), 1);
	assert_in_range(pipe_key_number(&key), 1000, 1299);
	assert_int_equal(left_in(0), 100);
	assert_true(left_in(1) <= 300 - BATCH);
	struct source_stats stats = pool->ops->stats(pool);
	assert_int_equal(stats.taken, 1);
	assert_int_equal(stats.shards, 2);
	assert_int_equal(stats.shards_unhealthy, 0);
	pool->ops->free(pool);
}

TEST(what_was_not_handed_out_goes_back_at_the_end, key_lists_open, key_lists_close)
{
	fill(0, 0, 100);
	fill(1, 1000, 95);
	struct key_source *pool = open_pool();
	struct source_key keys[30];
	size_t taken = 0;
	while (taken < 30)
		taken += take(pool, keys, 30 - taken);
	pool->ops->free(pool);
	assert_int_equal(left_in(0) + left_in(1), 195 - 30);
}

TEST(what_comes_back_is_handed_out_again_and_goes_back_at_the_end, key_lists_open, key_lists_close)
{
	fill(0, 0, 1);
	struct key_source *pool = open_pool();
	struct source_key key, again, many[5 * BATCH];
	take(pool, &key, 1);
	pool->ops->put_back(pool, &key, 1, false);
	assert_int_equal(take(pool, &again, 1), 1);
	assert_memory_equal(again.text, key.text, key.len);
	pool->ops->put_back(pool, &again, 1, false);
	assert_int_equal(pool->ops->stats(pool).available, 1);
	pool->ops->free(pool);
	assert_int_equal(left_in(0), 1);
	pool = open_pool();
	pipe_keys(many, 5 * BATCH, 1000);
	pool->ops->put_back(pool, many, 5 * BATCH, false); /* more than there is room for */
	pool->ops->put_back(pool, many, 5 * BATCH, false);
	assert_int_equal(take(pool, many, 5 * BATCH), 2 * BATCH);
	pool->ops->free(pool);
}

TEST(all_keys_are_handed_out_once_and_then_it_says_that_none_is_left, key_lists_open, key_lists_close)
{
	enum { KEYS = 200 };
	fill(0, 0, KEYS / 2);
	fill(1, KEYS / 2, KEYS / 2);
	struct key_source *pool = open_pool();
	struct source_key keys[7];
	struct pipe_seen seen;
	struct err e = {""};
	size_t count;
	pipe_seen_init(&seen, KEYS);
	while (seen.count < KEYS)
		pipe_seen_note(&seen, keys, take(pool, keys, ARRAY_LEN(keys)));
	assert_int_equal(pipe_take(pool, keys, 1, &count, &e), ERR_LIMIT);
	assert_non_null(strstr(e.text, "the key pool is empty"));
	assert_non_null(strstr(e.text, "curt keygen"));
	fill(0, 0, 1); /* it comes back by itself */
	int r;
	UNTIL((r = pool->ops->take(pool, keys, 1, &count, &e)) != ERR_LIMIT);
	assert_int_equal(r, 0);
	pipe_seen_release(&seen);
	pool->ops->free(pool);
}

TEST(a_shard_that_is_down_is_skipped, key_lists_open, key_lists_close)
{
	fill(0, 0, 500);
	fill(1, 1000, 100);
	struct key_source *pool = open_pool();
	struct source_key keys[BATCH];
	UNTIL(pool->ops->stats(pool).available == 600);
	redis_server_kill(&servers[0]);
	size_t from_second = 0;
	while (from_second < 50) {
		size_t count = take(pool, keys, BATCH);
		for (size_t i = 0; i < count; i++)
			from_second += pipe_key_number(&keys[i]) >= 1000 ? 1 : 0;
	}
	assert_int_equal(pool->ops->stats(pool).shards_unhealthy, 1);
	pool->ops->free(pool);
}

TEST(keys_that_did_not_arrive_are_counted, key_lists_open, key_lists_close)
{
	fill(0, 0, 500);
	fill(1, 1000, 100);
	struct key_source *pool = open_pool();
	struct source_key keys[BATCH];
	UNTIL(pool->ops->stats(pool).available == 600);
	assert_int_equal(pool->ops->stats(pool).lost, 0);
	redis_server_signal(&servers[0], SIGSTOP);
	struct err e;
	size_t count;
	while (pool->ops->stats(pool).lost == 0)
		pool->ops->take(pool, keys, BATCH, &count, &e);
	assert_int_equal(pool->ops->stats(pool).lost % BATCH, 0);
	redis_server_signal(&servers[0], SIGCONT);
	pool->ops->free(pool);
}

TEST(when_no_shard_answers_it_says_so, key_lists_open, key_lists_close)
{
	struct key_source *pool = open_pool();
	struct source_key key;
	size_t count;
	struct err e = {""};
	for (int i = 0; i < SERVERS; i++)
		redis_server_kill(&servers[i]);
	assert_int_equal(pipe_take(pool, &key, 1, &count, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "no key shard answers"));
	pool->ops->free(pool);
}

struct taker {
	struct key_source *pool;
	struct source_key keys[2000];
	size_t count;
};

static void *take_in_thread(void *arg)
{
	struct taker *t = arg;
	size_t some = 0;
	struct err e;
	while (t->pool->ops->take(t->pool, t->keys + t->count, 3, &some, &e) == 0)
		t->count += some;
	return NULL;
}

TEST(threads_that_take_at_once_get_different_keys, key_lists_open, key_lists_close)
{
	enum { TAKERS = 4, KEYS = 2000 };
	fill(0, 0, KEYS / 2);
	fill(1, KEYS / 2, KEYS / 2);
	struct key_source *pools[2] = {open_pool(), open_pool()};
	struct taker *takers = test_calloc(TAKERS, sizeof(*takers));
	pthread_t threads[TAKERS];
	struct pipe_seen seen;
	for (int i = 0; i < TAKERS; i++) {
		takers[i].pool = pools[i % 2];
		assert_int_equal(pthread_create(&threads[i], NULL, take_in_thread, &takers[i]), 0);
	}
	pipe_seen_init(&seen, KEYS);
	for (int i = 0; i < TAKERS; i++) {
		pthread_join(threads[i], NULL);
		pipe_seen_note(&seen, takers[i].keys, takers[i].count);
	}
	for (int i = 0; i < 2; i++)
		pools[i]->ops->free(pools[i]);
	assert_int_equal(seen.count + left_in(0) + left_in(1), KEYS);
	pipe_seen_release(&seen);
	test_free(takers);
}

TEST(it_counts_what_is_brought_for_anybody, key_lists_open, key_lists_close)
{
	fill(0, 0, 100);
	fill(1, 500, 1);
	struct key_source *pool = open_pool();
	UNTIL(pool->ops->stats(pool).available == 101);
	assert_int_equal(pool->ops->stats(pool).refilled, 0); /* it was there before */
	fill(0, 100, 30);
	fill(1, 1000, 50);
	UNTIL(pool->ops->stats(pool).refilled == 80);
	pool->ops->free(pool);
}

TEST(an_address_that_cannot_be_read_is_refused_without_its_password)
{
	struct key_source *pool = NULL;
	struct err e = {""};
	assert_int_equal(key_pool_open("redis://:hidden@host:notaport", BATCH, &pool, &e), ERR_INVALID);
	assert_true(e.text[0] != '\0');
	assert_null(strstr(e.text, "hidden"));
	assert_null(pool);
}

TEST_MAIN(.group_setup = redis_kit_two, .group_teardown = redis_kit_down)
