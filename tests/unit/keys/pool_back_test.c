/* What becomes of keys that are given back, and of those who want a key while shards do not answer. */
#include "keys/pool.h"
#include "keys/redis_key_list.h"
#include "lib/keys_kit.h"
#include "lib/redis_kit.h"
#include "lib/test.h"

enum { SERVERS = 3, BATCH = 10, MANY = 100, TRIES_MAX = 10 };

static struct redis_server *const servers = redis_kit_servers;
static struct {
	struct redis_key_list *lists[SERVERS];
	struct key_source *pool;
	uint64_t batches;
} fx;

static int start(void **state)
{
	redis_kit_renew(state);
	fx.batches = 0;
	for (int i = 0; servers[0].port && i < SERVERS; i++)
		assert_int_equal(key_list_new(str_of(servers[i].url), &fx.lists[i], NULL), 0);
	return 0;
}

static void pool_close(void)
{
	if (fx.pool)
		fx.pool->ops->free(fx.pool);
	fx.pool = NULL;
}

static int stop(void **state)
{
	pool_close();
	for (int i = 0; i < SERVERS; i++)
		key_list_free(steal(fx.lists[i]));
	return 0;
}

static void pool_open(void)
{
	char urls[REDIS_KIT_URLS_BYTES];
	MUST(key_pool_open(redis_kit_urls(urls), BATCH, &fx.pool, &why));
}

static void fill(int server, unsigned first, size_t n)
{
	struct source_key keys[KEY_LIST_KEYS_MAX];
	redis_kit_need();
	pipe_keys(keys, n, first);
	assert_int_equal(key_list_push(fx.lists[server], 1, ++fx.batches, keys, n, NULL), 0);
}

static void take_all_of(struct source_key *ret, size_t n)
{
	for (size_t taken = 0, some = 0; taken < n; taken += some) {
		MUST(pipe_take(fx.pool, ret + taken, n - taken, &some, &why));
	}
}

static struct source_stats stats(void)
{
	return fx.pool->ops->stats(fx.pool);
}

static struct key_list_view on_shards(void)
{
	struct key_list_view sum = {0};
	for (int i = 0; i < SERVERS; i++) {
		struct key_list_view view = {0};
		assert_int_equal(key_list_look(fx.lists[i], &view, NULL), 0);
		sum.count += view.count;
		sum.deferred += view.deferred;
	}
	return sum;
}

TEST(what_finds_no_room_at_hand_goes_back_to_a_shard)
{
	struct source_key keys[MANY];
	fill(0, 0, MANY);
	pool_open();
	take_all_of(keys, MANY);
	assert_int_equal(stats().taken, MANY);
	fx.pool->ops->put_back(fx.pool, keys, MANY, false);
	UNTIL(on_shards().count == MANY - 2 * BATCH);
	assert_int_equal(stats().lost, 0);
	take_all_of(keys, MANY); /* all of them are there */
	assert_int_equal(stats().taken, MANY);
	fx.pool->ops->put_back(fx.pool, keys, MANY, false);
	pool_close();
	assert_int_equal(on_shards().count, MANY);
}

TEST(keys_for_later_lie_aside_and_others_are_taken)
{
	struct source_key keys[MANY], other;
	fill(0, 0, MANY);
	pool_open();
	take_all_of(keys, MANY);
	fx.pool->ops->put_back(fx.pool, keys, MANY, true);
	UNTIL(on_shards().deferred == MANY);
	assert_int_equal(on_shards().count, 0);
	UNTIL(stats().deferred == MANY);
	fill(1, 1000, MANY);
	UNTIL(stats().available == MANY);
	/* of those aside, few for each batch of others, as long as they come back */
	size_t later = 0;
	for (int i = 0; i < MANY / 2; i++) {
		take_all_of(&other, 1);
		if (pipe_key_number(&other) >= 1000)
			continue;
		later++;
		fx.pool->ops->put_back(fx.pool, &other, 1, true);
	}
	assert_in_range(later, 1, MANY / 4);
	assert_int_equal(stats().lost, 0);
}

TEST(when_nothing_else_is_left_few_of_those_aside_are_taken_while_they_come_back)
{
	struct source_key keys[MANY];
	size_t count;
	fill(0, 0, MANY);
	pool_open();
	take_all_of(keys, MANY);
	fx.pool->ops->put_back(fx.pool, keys, MANY, true);
	UNTIL(stats().deferred == MANY);
	for (int i = 0; i < TRIES_MAX; i++) {
		UNTIL(fx.pool->ops->take(fx.pool, keys, BATCH, &count, NULL) == 0);
		assert_in_range(count, 1, BATCH / 2);
		fx.pool->ops->put_back(fx.pool, keys, count, true);
	}
}

TEST(when_nothing_else_is_left_all_those_aside_are_taken)
{
	struct source_key keys[MANY];
	struct pipe_seen seen;
	fill(0, 0, MANY);
	pool_open();
	take_all_of(keys, MANY);
	fx.pool->ops->put_back(fx.pool, keys, MANY, true);
	pool_close();
	assert_int_equal(on_shards().deferred, MANY);
	pool_open();
	UNTIL(stats().deferred == MANY);
	take_all_of(keys, MANY);
	pipe_seen_init(&seen, MANY);
	pipe_seen_note(&seen, keys, MANY);
	pipe_seen_release(&seen);
	assert_int_equal(on_shards().deferred, 0);
}

TEST(what_no_shard_takes_waits_and_is_lost_only_when_there_is_too_much_of_it)
{
	struct source_key keys[KEY_LIST_KEYS_MAX];
	redis_kit_need();
	pool_open();
	for (int i = 0; i < SERVERS; i++)
		redis_server_kill(&servers[i]);
	pipe_keys(keys, MANY, 0);
	fx.pool->ops->put_back(fx.pool, keys, MANY, true);
	redis_kit_renew(state);
	UNTIL(on_shards().deferred == MANY);
	assert_int_equal(stats().lost, 0);
	for (int i = 0; i < SERVERS; i++)
		redis_server_kill(&servers[i]);
	/* What was on its way when they died may be lost, too; now nothing is. */
	UNTIL(stats().shards_unhealthy == SERVERS);
	uint64_t lost = stats().lost;
	pipe_keys(keys, KEY_LIST_KEYS_MAX, MANY);
	size_t given = 0;
	for (; stats().lost == lost; given += KEY_LIST_KEYS_MAX)
		fx.pool->ops->put_back(fx.pool, keys, KEY_LIST_KEYS_MAX, true);
	assert_true(given > 10000);
}

/* Each shard that is stopped is waited for in turn, which takes longer than anybody who wants a key waits.
 * Shards that are known to be stopped are not asked: then it is tried again. */
static bool is_told_that_none_answers(void)
{
	struct source_key key;
	struct err e = {""};
	size_t count;
	int r = 0;
	for (int i = 0; i < SERVERS; i++)
		redis_server_signal(&servers[i], SIGSTOP);
	while (r == 0)
		r = fx.pool->ops->take(fx.pool, &key, 1, &count, &e);
	for (int i = 0; i < SERVERS; i++)
		redis_server_signal(&servers[i], SIGCONT);
	return r == ERR_LIMIT && strstr(e.text, "no key shard has answered within");
}

TEST(who_wants_a_key_does_not_wait_for_one_stopped_shard_after_the_other)
{
	for (int i = 0; i < SERVERS; i++)
		fill(i, (unsigned)i * KEY_LIST_KEYS_MAX, KEY_LIST_KEYS_MAX);
	pool_open();
	bool told = false;
	for (int i = 0; !told && i < TRIES_MAX; i++) {
		UNTIL(stats().shards_unhealthy == 0 && stats().available > SERVERS * BATCH);
		told = is_told_that_none_answers();
	}
	assert_true(told);
	struct source_key keys[MANY];
	struct err e = {""};
	size_t count;
	UNTIL(fx.pool->ops->take(fx.pool, keys, 1, &count, &e) == 0);
}

TEST(the_same_shard_twice_is_refused)
{
	struct err e = {""};
	assert_int_equal(key_pool_open("redis://h:1,redis://:secret@h:1/0", BATCH, &fx.pool, &e),
	                 ERR_INVALID);
	assert_string_equal(e.text, "the Redis server h:1/0 is listed twice; remove one");
}

TEST_MAIN(.group_setup = redis_kit_three, .group_teardown = redis_kit_down, .setup = start, .teardown = stop)
