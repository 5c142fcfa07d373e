/* The promises of the role `rcache`, on one node and on a ring of three. */
#include "lib/rcache_kit.h"
#include "lib/redis_server.h"
#include "lib/test.h"
#include "os/clock.h"

enum { NODES = 3, LIFE_MS = 600000 };

static struct redis_server servers[NODES];
static char urls[NODES * 80];
static struct rcache_kit a, b; /* two servers */

static int caches_up(void **state)
{
	rcache_kit_open(&a, urls, true);
	rcache_kit_open(&b, urls, true);
	return 0;
}

static int caches_down(void **state)
{
	rcache_kit_close(&a);
	rcache_kit_close(&b);
	return 0;
}

TEST(what_one_server_filled_another_finds_byte_for_byte)
{
	struct arena arena = {0};
	const struct rcache_fill fills[] = {
	    {.key = STR("bytes"), .value = STR("\0\r\n\xff v"), .life_ms = LIFE_MS},
	    {.key = STR("empty"), .value = STR(""), .life_ms = LIFE_MS},
	};
	struct rcache_get gets[] = {
	    {.key = STR("bytes"), .arena = &arena},
	    {.key = STR("never filled"), .arena = &arena},
	    {.key = STR("empty"), .arena = &arena},
	};
	a.cache->ops->fill(a.cache, fills, ARRAY_LEN(fills), clock_mono_ms());
	b.cache->ops->get(b.cache, gets, ARRAY_LEN(gets));
	assert_int_equal(gets[0].state, RCACHE_HIT);
	assert_true(str_eq(gets[0].value, STR("\0\r\n\xff v")));
	assert_int_equal(gets[1].state, RCACHE_MISS);
	assert_int_equal(gets[2].state, RCACHE_HIT);
	assert_int_equal(gets[2].value.len, 0);
	arena_release(&arena);
}

static void hear_nothing_of(void *ctx, struct str text)
{
	(void)text;
	++*(_Atomic unsigned *)ctx;
}

static void hear_nothing(void *ctx)
{
	(void)ctx;
}

TEST(servers_of_another_installation_have_nothing_to_do_with_it)
{
	_Atomic unsigned heard = 0;
	const struct rcache_listener listener = {
	    .changed = hear_nothing_of, .notified = hear_nothing_of, .lost = hear_nothing, .ctx = &heard};
	struct rcache_kit other = {.cache = NULL};
	MUST(rcache_redis_open(urls, "another", &listener, &other.cache, &why));
	rcache_kit_wait_listening(&other, true);
	rcache_kit_fill(&a, "alias", "ours", LIFE_MS);
	assert_int_equal(rcache_kit_get(&other, "alias", NULL), RCACHE_MISS);
	rcache_kit_fill(&other, "alias", "theirs", LIFE_MS);
	assert_int_equal(rcache_kit_get(&a, "alias", "ours"), RCACHE_HIT);
	rcache_kit_change(&a, "alias");
	assert_int_equal(rcache_kit_get(&other, "alias", "theirs"), RCACHE_HIT);
	a.cache->ops->tell(a.cache, STR("topic"));
	/* What it does hear is its own, and comes after the rest. */
	rcache_kit_change(&other, "alias");
	UNTIL(heard > 0);
	assert_int_equal(heard, 1);
	other.cache->ops->free(other.cache);
}

TEST(a_thousand_keys_go_and_come_in_one_call)
{
	struct rcache_stats before = b.cache->ops->stats(b.cache);
	rcache_kit_fill_many(&a, 1000);
	assert_int_equal(rcache_kit_hits_of_many(&b, 1000), 1000);
	assert_int_equal(rcache_kit_hits_of_many(&b, 1010), 1000);
	struct rcache_stats after = b.cache->ops->stats(b.cache);
	assert_int_equal(after.hits - before.hits, 2000);
	assert_int_equal(after.misses - before.misses, 10);
	assert_int_equal(after.errors, 0);
}

TEST(no_key_at_all_is_no_call_at_all)
{
	a.cache->ops->get(a.cache, NULL, 0);
	a.cache->ops->fill(a.cache, NULL, 0, clock_mono_ms());
	a.cache->ops->change(a.cache, NULL, 0);
}

TEST(a_value_ends_with_its_life)
{
	rcache_kit_fill(&a, "short", "x", 30);
	rcache_kit_wait_state(&b, "short", RCACHE_MISS);
	rcache_kit_fill(&a, "no life", "x", 0);
	assert_int_equal(rcache_kit_get(&a, "no life", NULL), RCACHE_MISS);
}

TEST(a_fill_never_replaces_what_is_there)
{
	rcache_kit_fill(&a, "twice", "first", LIFE_MS);
	rcache_kit_fill(&b, "twice", "second", LIFE_MS);
	assert_int_equal(rcache_kit_get(&a, "twice", "first"), RCACHE_HIT);
}

TEST(a_fill_that_comes_late_is_not_made)
{
	const struct rcache_fill fill = {.key = STR("late"), .value = STR("old"), .life_ms = LIFE_MS};
	a.cache->ops->fill(a.cache, &fill, 1, clock_mono_ms() - RCACHE_MARK_MS / 2 - 1);
	assert_int_equal(rcache_kit_get(&a, "late", NULL), RCACHE_MISS);
}

TEST(a_changed_key_says_so_for_a_while_and_is_not_filled_until_then)
{
	rcache_kit_fill(&a, "link", "old", LIFE_MS);
	rcache_kit_change(&a, "link");
	rcache_kit_fill(&b, "link", "old", LIFE_MS); /* read before the change, and slow */
	assert_int_equal(rcache_kit_get(&a, "link", NULL), RCACHE_CHANGED);
	assert_int_equal(rcache_kit_get(&b, "link", NULL), RCACHE_CHANGED);
	if (a.cache->ops->stats(a.cache).nodes > 1)
		return; /* its end is the same, and takes seconds */
	rcache_kit_wait_state(&b, "link", RCACHE_MISS);
	rcache_kit_fill(&b, "link", "new", LIFE_MS);
	assert_int_equal(rcache_kit_get(&a, "link", "new"), RCACHE_HIT);
}

TEST(a_change_is_heard_by_every_server_and_by_the_one_that_made_it)
{
	unsigned before_a = rcache_kit_changed(&a), before_b = rcache_kit_changed(&b);
	rcache_kit_change(&a, "one");
	rcache_kit_wait_changed(&a, before_a + 1, "one");
	rcache_kit_wait_changed(&b, before_b + 1, "one");
	struct str many[600];
	struct arena arena = {0};
	for (unsigned i = 0; i < ARRAY_LEN(many); i++)
		many[i] = arena_printf(&arena, "m%u", i);
	b.cache->ops->change(b.cache, many, ARRAY_LEN(many));
	rcache_kit_change(&b, "one");
	rcache_kit_wait_changed(&a, before_a + 2 + ARRAY_LEN(many), NULL);
	rcache_kit_wait_changed(&b, before_b + 2 + ARRAY_LEN(many), NULL);
	arena_release(&arena);
}

TEST(what_has_no_key_is_published_to_every_server)
{
	a.cache->ops->tell(a.cache, STR("accounts"));
	rcache_kit_wait_told(&a, "accounts");
	rcache_kit_wait_told(&b, "accounts");
}

TEST(all_nodes_answer)
{
	struct err e = {""};
	assert_int_equal(a.cache->ops->ping(a.cache, &e), 0);
	struct rcache_stats s = a.cache->ops->stats(a.cache);
	assert_int_equal(s.nodes_unhealthy, 0);
	assert_true(s.listening);
}

static int run(unsigned nodes)
{
	urls[0] = '\0';
	for (unsigned i = 0; i < nodes; i++) {
		redis_server_start(&servers[i], NULL);
		strcat(strcat(urls, i ? "," : ""), servers[i].url);
	}
	int failed = RUN_TESTS(.name = nodes == 1 ? "one node" : "a ring", .group_setup = caches_up,
	                       .group_teardown = caches_down);
	for (unsigned i = 0; i < nodes; i++)
		redis_server_stop(&servers[i]);
	return failed;
}

int main(void)
{
	if (!redis_server_exists()) {
		printf("redis-tools is not installed\n[  SKIPPED ] all of 20 test(s)\n");
		return 0;
	}
	return run(1) + run(NODES);
}
