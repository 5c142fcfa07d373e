#include "lib/test.h"
#include "link/cache.h"
#include "os/reclaim.h"

static struct cache *cache_of(uint64_t bytes)
{
	struct cache *c;
	assert_int_equal(cache_new(bytes, 42, &c, NULL), 0);
	return c;
}

static struct str key_of(unsigned n, char text[16])
{
	return str_n(text, (size_t)snprintf(text, 16, "k%u", n));
}

/* 100 bytes whose beginning tells the key. */
static void put(struct cache *c, unsigned n)
{
	char key[16], response[100] = "";
	snprintf(response, sizeof(response), "response of %u", n);
	struct cache_fill fill = {.key = key_of(n, key), .response = str_n(response, sizeof(response))};
	cache_insert(c, &fill, cache_epoch(c, fill.key));
}

static bool has(struct cache *c, unsigned n)
{
	char key[16], response[32];
	const struct cache_entry *e = cache_find(c, key_of(n, key));
	if (!e)
		return false;
	snprintf(response, sizeof(response), "response of %u", n);
	assert_int_equal(e->response_len, 100);
	assert_string_equal(cache_entry_response(e), response);
	return true;
}

TEST(what_was_put_is_found_and_nothing_else)
{
	struct cache *c = cache_of(1 << 20);
	assert_false(has(c, 1));
	put(c, 1);
	assert_true(has(c, 1));
	assert_false(has(c, 2));
	assert_int_equal(cache_read_stats(c).entries, 1);
	cache_free(c);
}

TEST(all_that_a_fill_says_is_kept)
{
	struct cache *c = cache_of(1 << 20);
	struct budget budget = {.owner = 3};
	struct click_limit limit = {.link = 9};
	struct cache_fill fill = {.key = STR("k"),
	                          .response = STR("there"),
	                          .response_date_at = 2,
	                          .expires_ms = 4,
	                          .link = 9,
	                          .budget = &budget,
	                          .limit = &limit,
	                          .max_clicks = 1ULL << 40,
	                          .late = true};
	cache_insert(c, &fill, cache_epoch(c, fill.key));
	const struct cache_entry *e = cache_find(c, STR("k"));
	assert_int_equal(e->response_date_at, 2);
	assert_int_equal(e->expires_ms, 4);
	assert_int_equal(e->link, 9);
	assert_ptr_equal(e->budget, &budget);
	assert_ptr_equal(e->limit, &limit);
	assert_int_equal(e->max_clicks, 1ULL << 40);
	assert_true(e->late);
	cache_free(c);
}

TEST(a_second_fill_replaces_the_first)
{
	struct cache *c = cache_of(1 << 20);
	struct cache_fill fill = {.key = STR("k"), .response = STR("old"), .expires_ms = 1};
	cache_insert(c, &fill, cache_epoch(c, fill.key));
	fill.response = STR("newer");
	fill.expires_ms = 2;
	cache_insert(c, &fill, cache_epoch(c, fill.key));
	const struct cache_entry *e = cache_find(c, STR("k"));
	assert_int_equal(e->response_len, 5);
	assert_memory_equal(cache_entry_response(e), "newer", 5);
	assert_int_equal(e->expires_ms, 2);
	assert_int_equal(cache_read_stats(c).entries, 1);
	cache_free(c);
}

TEST(a_negative_entry_has_no_response)
{
	struct cache *c = cache_of(1 << 20);
	struct cache_fill fill = {.key = STR("nobody"), .expires_ms = 99};
	cache_insert(c, &fill, cache_epoch(c, fill.key));
	const struct cache_entry *e = cache_find(c, STR("nobody"));
	assert_non_null(e);
	assert_int_equal(e->response_len, 0);
	assert_int_equal(e->expires_ms, 99);
	cache_free(c);
}

TEST(an_invalidated_key_is_gone)
{
	struct cache *c = cache_of(1 << 20);
	char key[16];
	put(c, 1);
	put(c, 2);
	cache_invalidate(c, key_of(1, key));
	assert_false(has(c, 1));
	assert_true(has(c, 2));
	cache_invalidate(c, key_of(3, key)); /* never there: fine */
	cache_free(c);
}

TEST(news_of_a_new_link_removes_what_is_not_of_that_link)
{
	struct cache *c = cache_of(1 << 20);
	const struct cache_fill fills[] = {{.key = STR("absent")},
	                                   {.key = STR("older"), .response = STR("r"), .link = 3},
	                                   {.key = STR("itself"), .response = STR("r"), .link = 4}};
	for (size_t i = 0; i < ARRAY_LEN(fills); i++) {
		uint32_t epoch = cache_epoch(c, fills[i].key);
		cache_insert(c, &fills[i], epoch);
		cache_link_created(c, fills[i].key, 4);
		assert_int_equal(cache_find(c, fills[i].key) != NULL, fills[i].link == 4);
		assert_true(cache_epoch(c, fills[i].key) != epoch); /* a lookup may have found nothing */
	}
	cache_free(c);
}

TEST(an_answer_older_than_an_invalidation_is_not_kept)
{
	struct cache *c = cache_of(1 << 20);
	struct cache_fill fill = {.key = STR("k"), .response = STR("stale")};
	uint32_t before = cache_epoch(c, fill.key); /* a lookup begins */
	cache_invalidate(c, fill.key);              /* the link changes meanwhile */
	cache_insert(c, &fill, before);             /* the lookup ends with what was */
	assert_null(cache_find(c, STR("k")));
	cache_insert(c, &fill, cache_epoch(c, fill.key));
	assert_non_null(cache_find(c, STR("k")));
	cache_free(c);
}

TEST(memory_stays_within_its_bound)
{
	struct cache *c = cache_of(1 << 20);
	for (unsigned n = 0; n < 100000; n++) {
		put(c, n);
		if (n % 1000 == 0)
			assert_true(cache_read_stats(c).bytes <= 1 << 20);
	}
	struct cache_stats s = cache_read_stats(c);
	assert_true(s.bytes <= s.bytes_max);
	assert_true(s.entries > 1000);
	cache_free(c);
}

TEST(an_entry_that_is_too_large_is_not_kept_and_pushes_nothing_out)
{
	static char huge[128 * 1024];
	struct cache *c = cache_of(1 << 20);
	put(c, 1);
	struct cache_fill fill = {.key = STR("huge"), .response = str_n(huge, sizeof(huge))};
	cache_insert(c, &fill, cache_epoch(c, fill.key));
	assert_null(cache_find(c, STR("huge")));
	assert_true(has(c, 1));
	cache_free(c);
}

/* The point of the policy: links that people use survive a crawler that asks for everything once. */
TEST(a_scan_does_not_push_out_what_is_used)
{
	enum { HOT = 1000, SCAN = 200000 };
	struct cache *c = cache_of(1 << 20); /* room for about 5000 */
	for (int round = 0; round < 3; round++) {
		for (unsigned n = 0; n < HOT; n++) {
			if (!has(c, n))
				put(c, n);
		}
	}
	for (unsigned n = 0; n < SCAN; n++) {
		put(c, 1000000 + n);
		has(c, n % HOT); /* the hot ones go on being used now and then */
	}
	unsigned left = 0;
	for (unsigned n = 0; n < HOT; n++)
		left += has(c, n);
	assert_true(left > HOT * 95 / 100);
	cache_free(c);
}

TEST(keys_that_come_back_soon_stay_longer)
{
	struct cache *c = cache_of(1 << 20);
	for (unsigned n = 0; n < 20000; n++) /* washes the first ones out, into the ghosts */
		put(c, n);
	unsigned stayed = 0;
	for (unsigned n = 13500; n < 13600; n++) {
		assert_false(has(c, n));
		put(c, n); /* most of their ghosts are still there: straight into the main queue */
	}
	for (unsigned n = 100000; n < 106000; n++)
		put(c, n);
	for (unsigned n = 13500; n < 13600; n++)
		stayed += has(c, n);
	assert_in_range(stayed, 60, 100); /* newcomers of the same age are all gone */
	for (unsigned n = 100000; n < 100100; n++)
		assert_false(has(c, n));
	cache_free(c);
}

struct churn {
	struct cache *cache;
	_Atomic bool stop;
	_Atomic unsigned hits;
};

static void *reader(void *arg)
{
	struct churn *churn = arg;
	unsigned n = 0;
	reclaim_reader_register();
	while (!churn->stop) {
		for (int i = 0; i < 64; i++)
			churn->hits += has(churn->cache, n++ % 20000);
		reclaim_reader_quiescent();
	}
	reclaim_reader_unregister();
	return NULL;
}

static void *writer(void *arg)
{
	struct churn *churn = arg;
	char key[16];
	for (unsigned round = 0; round < 60000; round++) {
		put(churn->cache, round * 7919 % 20000);
		if (round % 5 == 0)
			cache_invalidate(churn->cache, key_of(round * 104729 % 20000, key));
	}
	return NULL;
}

/* Readers check the contents of all they find, while entries are replaced, evicted and freed under them. */
TEST(readers_never_see_a_torn_or_freed_entry)
{
	struct churn churn = {.cache = cache_of(1 << 20)};
	pthread_t readers[2], writers[2];
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&readers[i], NULL, reader, &churn), 0);
		assert_int_equal(pthread_create(&writers[i], NULL, writer, &churn), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(writers[i], NULL);
	churn.stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	assert_true(churn.hits > 0);
	cache_free(churn.cache);
}

TEST_MAIN()
