/* What happens to the shared cache when its nodes stop, die, fill up or hold something else. */
#include "lib/rcache_kit.h"
#include "lib/redis_kit.h"
#include "lib/test.h"
#include "os/clock.h"
#include "os/sys.h"
#include "rcache/pending_invalidations.h"

enum { KEYS = 300, LIFE_MS = 600000 };

static struct redis_server *const servers = redis_kit_servers;

static void open_kit(struct rcache_kit *k, const char *urls)
{
	redis_kit_need();
	rcache_kit_open(k, urls, true);
}

TEST(a_cache_without_any_node_opens_and_everything_is_a_miss)
{
	struct rcache_kit k;
	struct err e = {""};
	rcache_kit_open(&k, "redis://secret@127.0.0.1:1", false);
	rcache_kit_fill(&k, "x", "v", LIFE_MS);
	assert_int_equal(rcache_kit_get(&k, "x", NULL), RCACHE_MISS);
	rcache_kit_change(&k, "x");
	assert_int_equal(rcache_kit_get(&k, "x", NULL), RCACHE_CHANGED);
	k.cache->ops->tell(k.cache, STR("topic"));
	assert_int_equal(k.cache->ops->ping(k.cache, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "127.0.0.1:1/0"));
	assert_null(strstr(e.text, "secret"));
	struct rcache_stats s = k.cache->ops->stats(k.cache);
	assert_int_equal(s.nodes, 1);
	assert_int_equal(s.nodes_unhealthy, 1);
	assert_false(s.listening);
	assert_true(s.errors > 0);
	rcache_kit_close(&k);
}

TEST(a_list_that_is_wrong_is_refused)
{
	static const char *const bad[] = {"", "http://h", "redis://a,redis://a:6379", "redis://a,redis://"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct rcache *cache = NULL;
		struct err e = {""};
		assert_int_equal(rcache_redis_open(bad[i], "test", &(struct rcache_listener){0}, &cache, &e),
		                 ERR_INVALID);
		assert_true(e.text[0] != '\0');
		assert_null(cache);
	}
}

TEST(a_dead_node_costs_its_own_keys_only_and_they_are_not_moved, redis_kit_renew)
{
	struct rcache_kit k;
	char urls[REDIS_KIT_URLS_BYTES];
	open_kit(&k, redis_kit_urls(urls));
	rcache_kit_fill_many(&k, KEYS);
	assert_int_equal(rcache_kit_hits_of_many(&k, KEYS), KEYS);
	redis_server_kill(&servers[1]);
	unsigned left = rcache_kit_hits_of_many(&k, KEYS);
	assert_in_range(left, KEYS / 3, KEYS - KEYS / 6);
	rcache_kit_fill_many(&k, KEYS);
	assert_int_equal(rcache_kit_hits_of_many(&k, KEYS), left);
	rcache_kit_wait_listening(&k, false);
	assert_int_equal(k.cache->ops->stats(k.cache).nodes_unhealthy, 1);

	redis_server_restart(&servers[1], NULL);
	rcache_kit_wait_listening(&k, true);
	rcache_kit_fill_many(&k, KEYS);
	assert_int_equal(rcache_kit_hits_of_many(&k, KEYS), KEYS);
	rcache_kit_close(&k);
}

TEST(a_lost_subscription_is_reported_when_it_is_lost_and_when_it_is_back, redis_kit_renew)
{
	struct rcache_kit k;
	open_kit(&k, servers[0].url);
	unsigned before = rcache_kit_lost(&k); /* what was kept before it listened may be old */
	redis_server_kill(&servers[0]);
	rcache_kit_wait_lost(&k, before + 1);
	rcache_kit_wait_listening(&k, false);
	assert_int_equal(rcache_kit_lost(&k), before + 1);
	redis_server_restart(&servers[0], NULL);
	rcache_kit_wait_lost(&k, before + 2);
	rcache_kit_wait_listening(&k, true);
	assert_int_equal(rcache_kit_lost(&k), before + 2);
	rcache_kit_close(&k);
}

TEST(a_node_that_is_silent_is_noticed_though_its_connection_stands, redis_kit_renew)
{
	struct rcache_kit k;
	open_kit(&k, servers[0].url);
	unsigned before = rcache_kit_lost(&k);
	redis_server_signal(&servers[0], SIGSTOP);
	rcache_kit_wait_lost(&k, before + 1);
	assert_int_equal(rcache_kit_get(&k, "k", NULL), RCACHE_MISS);
	redis_server_signal(&servers[0], SIGCONT);
	rcache_kit_wait_listening(&k, true);
	rcache_kit_close(&k);
}

TEST(a_change_that_a_node_missed_is_published_when_it_is_back, redis_kit_renew)
{
	struct rcache_kit a, b;
	open_kit(&a, servers[0].url);
	open_kit(&b, servers[0].url);
	rcache_kit_fill(&a, "missed", "old", LIFE_MS);
	rcache_kit_fill(&a, "other", "kept", LIFE_MS);
	unsigned before = rcache_kit_changed(&b) + rcache_kit_lost(&b);
	redis_server_signal(&servers[0], SIGSTOP);
	rcache_kit_change(&a, "missed");
	assert_int_equal(rcache_kit_get(&a, "missed", NULL), RCACHE_CHANGED);
	assert_int_equal(rcache_kit_get(&a, "other", NULL), RCACHE_MISS);
	redis_server_signal(&servers[0], SIGCONT);
	rcache_kit_wait_state(&b, "missed", RCACHE_CHANGED);
	rcache_kit_wait_news(&b, before + 1);
	rcache_kit_wait_state(&a, "other", RCACHE_HIT);
	rcache_kit_close(&a);
	rcache_kit_close(&b);
}

TEST(a_change_is_published_again_to_a_node_that_came_back_with_an_old_value, redis_kit_renew)
{
	struct rcache_kit a, b;
	open_kit(&a, servers[0].url);
	open_kit(&b, servers[0].url);
	rcache_kit_change(&a, "forgotten");
	assert_int_equal(rcache_kit_get(&b, "forgotten", NULL), RCACHE_CHANGED);
	redis_server_kill(&servers[0]);
	redis_server_restart(&servers[0], NULL);
	/* As if it had been saved, or replicated, just before the change. */
	redis_kit_ask(servers[0].url,
	              REDIS_ARGS(STR("SET"), STR("curt:l:test:forgotten"), STR("vold"), STR("NX")));
	rcache_kit_wait_state(&b, "forgotten", RCACHE_CHANGED);
	rcache_kit_close(&a);
	rcache_kit_close(&b);
}

static void change_numbered(struct rcache_kit *k, unsigned n)
{
	struct arena arena = {0};
	struct str *keys = calloc(n, sizeof(*keys));
	for (unsigned i = 0; i < n; i++)
		keys[i] = arena_printf(&arena, "n%u", i);
	k->cache->ops->change(k->cache, keys, n);
	free(keys);
	arena_release(&arena);
}

/* So much that covering it takes a while; in parts, each of them done in time. */
static void populate(const char *url)
{
	for (int i = 0; i < 15; i++) {
		char prefix[32];
		snprintf(prefix, sizeof(prefix), "curt:l:test:%d", i);
		redis_kit_ask(url, REDIS_ARGS(STR("DEBUG"), STR("POPULATE"), STR("5000"), str_of(prefix)));
	}
}

static bool everything_is_owed(struct rcache_kit *k)
{
	return rcache_kit_get(k, "nowhere", NULL) == RCACHE_CHANGED;
}

/* Has it begun? Until then everything is owed. */
static bool settles(struct rcache_kit *k, const char *url)
{
	bool begun = redis_kit_answers(url, "cmdstat_scan:", REDIS_ARGS(STR("INFO"), STR("commandstats")));
	if (!begun)
		assert_true(everything_is_owed(k));
	return begun;
}

/* What others change is heard although there is much to settle. */
static void assert_hears_while_it_settles(struct rcache_kit *k, struct rcache_kit *other, const char *url)
{
	bool heard = false, pending = true;
	UNTIL(settles(k, url));
	unsigned before = rcache_kit_changed(k);
	rcache_kit_change(other, "live");
	for (int64_t end_ms = until_now_ms() + UNTIL_MS; pending && !heard && until_now_ms() < end_ms;) {
		heard = rcache_kit_changed(k) > before;
		pending = everything_is_owed(k);
	}
	assert_true(heard && pending);
}

TEST(changes_beyond_number_make_everything_on_the_node_changed, redis_kit_renew)
{
	struct rcache_kit a, b;
	struct redis_server own;
	redis_kit_need();
	redis_server_start(&own, (const char *const[]){"--enable-debug-command", "yes", NULL});
	open_kit(&a, own.url);
	open_kit(&b, own.url);
	rcache_kit_fill_many(&b, 1200);
	redis_kit_ask(own.url, REDIS_ARGS(STR("SET"), STR("not ours"), STR("x")));
	populate(own.url);
	redis_server_signal(&own, SIGSTOP);
	change_numbered(&a, PENDING_KEYS_MAX + 100);
	assert_int_equal(rcache_kit_get(&a, "k7", NULL), RCACHE_CHANGED);
	rcache_kit_fill(&a, "k7", "anything", LIFE_MS);
	redis_server_signal(&own, SIGCONT);
	assert_hears_while_it_settles(&a, &b, own.url);
	rcache_kit_wait_state(&a, "nowhere", RCACHE_MISS); /* nothing is owed any more */
	assert_int_equal(rcache_kit_hits_of_many(&b, 1200), 0);
	assert_true(redis_kit_answers(own.url, "x", REDIS_ARGS(STR("GET"), STR("not ours"))));
	redis_server_stop(&own);
	rcache_kit_close(&a);
	rcache_kit_close(&b);
}

TEST(a_full_node_lets_old_values_go_and_is_reported_once, redis_kit_renew)
{
	enum { MANY = 600 };
	struct rcache_kit a, b;
	open_kit(&a, servers[0].url);
	open_kit(&b, servers[0].url);
	for (unsigned i = 0; i < MANY; i++) {
		char key[16];
		snprintf(key, sizeof(key), "n%u", i);
		rcache_kit_fill(&a, key, "old", LIFE_MS);
	}
	unsigned before = rcache_kit_changed(&b);
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("1")));
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("CONFIG"), STR("RESETSTAT")));
	change_numbered(&a, MANY);
	assert_int_equal(rcache_kit_get(&a, "n1", NULL), RCACHE_MISS); /* nothing is owed */
	assert_int_equal(rcache_kit_get(&b, "n599", NULL), RCACHE_MISS);
	rcache_kit_wait_changed(&b, before + MANY, NULL);
	assert_true(redis_kit_answers(servers[0].url, "cmdstat_unlink:calls=3,",
	                              REDIS_ARGS(STR("INFO"), STR("commandstats"))));
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("0")));
	rcache_kit_change(&a, "last");
	rcache_kit_wait_changed(&b, before + MANY + 1, "last");
	assert_int_equal(rcache_kit_changed(&b), before + MANY + 1);
	rcache_kit_close(&a);
	rcache_kit_close(&b);
}

/* As when it cannot save to its disk: neither marks nor removals. */
TEST(a_node_that_refuses_all_is_retried_and_reported_once, redis_kit_renew)
{
	struct rcache_kit a, b;
	open_kit(&a, servers[0].url);
	open_kit(&b, servers[0].url);
	const char *url = servers[0].url;
	rcache_kit_fill(&a, "kept", "old", LIFE_MS);
	unsigned before = rcache_kit_changed(&b);
	redis_kit_ask(url, REDIS_ARGS(STR("CONFIG"), STR("RESETSTAT")));
	redis_kit_ask(url,
	              REDIS_ARGS(STR("ACL"), STR("SETUSER"), STR("default"), STR("-set"), STR("-unlink")));
	rcache_kit_change(&a, "kept");
	assert_int_equal(rcache_kit_get(&a, "kept", NULL), RCACHE_CHANGED);
	rcache_kit_wait_changed(&b, before + 1, "kept");
	UNTIL(redis_kit_answers(url, "cmdstat_unlink:calls=0,usec=0,usec_per_call=0.00,rejected_calls=3",
	                        REDIS_ARGS(STR("INFO"), STR("commandstats"))));
	assert_int_equal(rcache_kit_changed(&b), before + 1);
	redis_kit_ask(url, REDIS_ARGS(STR("ACL"), STR("SETUSER"), STR("default"), STR("+@all")));
	rcache_kit_wait_state(&b, "kept", RCACHE_CHANGED);
	rcache_kit_wait_changed(&b, before + 2, "kept");
	rcache_kit_close(&a);
	rcache_kit_close(&b);
}

TEST(what_is_not_ours_under_a_key_is_a_miss, redis_kit_renew)
{
	struct rcache_kit k;
	open_kit(&k, servers[0].url);
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("SET"), STR("curt:l:test:odd"), STR("?value")));
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("SET"), STR("curt:l:test:nothing"), STR("")));
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("RPUSH"), STR("curt:l:test:list"), STR("v")));
	assert_int_equal(rcache_kit_get(&k, "odd", NULL), RCACHE_MISS);
	assert_int_equal(rcache_kit_get(&k, "nothing", NULL), RCACHE_MISS);
	assert_int_equal(rcache_kit_get(&k, "list", NULL), RCACHE_MISS);
	unsigned before = rcache_kit_changed(&k);
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("PUBLISH"), STR("curt:changes:test"), STR("")));
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("PUBLISH"), STR("curt:changes:test"), STR("?")));
	redis_kit_ask(servers[0].url, REDIS_ARGS(STR("PUBLISH"), STR("curt:changes:test"), STR("kone")));
	rcache_kit_wait_changed(&k, before + 1, "one");
	assert_int_equal(rcache_kit_changed(&k), before + 1);
	rcache_kit_close(&k);
}

static ssize_t (*send_now)(int, const void *, size_t, int);
static _Atomic int64_t late_ms;
static _Atomic unsigned held_up;

/* Holds up fills until they are late. */
static ssize_t send_late(int fd, const void *bytes, size_t n, int flags)
{
	if (memmem(bytes, n, "$2\r\nNX", 6)) {
		UNTIL(clock_mono_ms() > late_ms);
		held_up++;
	}
	return send_now(fd, bytes, n, flags);
}

/* The mark that would have refused it may be gone by then. */
TEST(a_fill_that_is_held_up_on_its_way_is_taken_back, redis_kit_renew)
{
	struct rcache_kit filler, other;
	redis_kit_need();
	send_now = os_sys.send;
	os_sys.send = send_late; /* before there are threads */
	held_up = 0;
	open_kit(&filler, servers[0].url);
	open_kit(&other, servers[0].url);
	const struct rcache_fill fill = {.key = STR("promo"), .value = STR("old"), .life_ms = LIFE_MS};
	for (unsigned tries = 0; held_up == 0 && tries < 100; tries++) {
		int64_t began_ms = clock_mono_ms() - RCACHE_MARK_MS / 2 + 50;
		late_ms = began_ms + RCACHE_MARK_MS / 2 + 1;
		filler.cache->ops->fill(filler.cache, &fill, 1, began_ms);
	}
	assert_int_equal(held_up, 1);
	assert_int_not_equal(rcache_kit_get(&other, "promo", NULL), RCACHE_HIT);
	rcache_kit_wait_changed(&other, 1, "promo");
	rcache_kit_close(&filler);
	rcache_kit_close(&other);
	os_sys.send = send_now;
}

TEST(a_fill_that_was_not_answered_is_taken_back, redis_kit_renew)
{
	struct rcache_kit filler, other;
	open_kit(&filler, servers[0].url);
	open_kit(&other, servers[0].url);
	assert_int_equal(rcache_kit_get(&filler, "promo", NULL), RCACHE_MISS); /* it is connected */
	redis_server_signal(&servers[0], SIGSTOP);
	rcache_kit_fill(&filler, "promo", "old", LIFE_MS);
	assert_int_equal(rcache_kit_get(&filler, "promo", NULL), RCACHE_CHANGED);
	redis_server_signal(&servers[0], SIGCONT);
	rcache_kit_wait_state(&other, "promo", RCACHE_CHANGED);
	rcache_kit_close(&filler);
	rcache_kit_close(&other);
}

TEST_MAIN(.group_setup = redis_kit_three, .group_teardown = redis_kit_down)
