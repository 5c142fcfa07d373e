#include "keys/redis_key_list.h"
#include "lib/keys_kit.h"
#include "lib/redis_kit.h"
#include "lib/relay.h"
#include "lib/test.h"

static struct redis_server *const server = &redis_kit_servers[0];

static struct redis_key_list *open_at(const char *url)
{
	struct redis_key_list *s = NULL;
	MUST(key_list_new(str_of(url), &s, &why));
	return s;
}

static struct redis_key_list *open_here(void)
{
	redis_kit_need();
	return open_at(server->url);
}

static struct redis_key_list *open_through(struct relay **ret)
{
	char url[64];
	*ret = relay_start(server->url + strlen("redis://"));
	snprintf(url, sizeof(url), "redis://%s", relay_address(*ret));
	return open_at(url);
}

static int push(struct redis_key_list *s, uint64_t fence, uint64_t batch, unsigned first, size_t n)
{
	struct source_key keys[KEY_LIST_KEYS_MAX];
	pipe_keys(keys, n, first);
	return key_list_push(s, fence, batch, keys, n, NULL);
}

static void assert_count(struct redis_key_list *s, uint64_t expected)
{
	uint64_t count = UINT64_MAX;
	assert_int_equal(key_list_count(s, &count, NULL), 0);
	assert_int_equal(count, expected);
}

TEST(keys_come_out_in_the_order_they_went_in)
{
	struct redis_key_list *s = open_here();
	struct source_key keys[KEY_LIST_KEYS_MAX];
	size_t count;
	uint64_t left;
	assert_count(s, 0);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 10, keys, &count, &left, NULL), 0);
	assert_int_equal(count, 0);
	assert_int_equal(push(s, 1, 1, 0, KEY_LIST_KEYS_MAX), 0);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 600, keys, &count, &left, NULL), 0);
	assert_int_equal(count, 600);
	assert_int_equal(left, 400);
	for (unsigned i = 0; i < 600; i++)
		assert_int_equal(pipe_key_number(&keys[i]), i);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 600, keys, &count, &left, NULL), 0);
	assert_int_equal(count, 400);
	assert_int_equal(left, 0);
	assert_int_equal(pipe_key_number(&keys[399]), 999);
	key_list_free(s);
}

TEST(what_comes_back_is_taken_first)
{
	struct redis_key_list *s = open_here();
	struct source_key keys[4], again[4];
	size_t count;
	uint64_t left;
	assert_int_equal(push(s, 1, 1, 0, 8), 0);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 4, keys, &count, &left, NULL), 0);
	assert_int_equal(key_list_put(s, KEY_LIST_AVAILABLE, keys, 4, &left, NULL), 0);
	assert_int_equal(key_list_put(s, KEY_LIST_AVAILABLE, NULL, 0, &left, NULL), 0);
	assert_count(s, 8);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 4, again, &count, &left, NULL), 0);
	for (int i = 0; i < 4; i++)
		assert_true(pipe_key_number(&again[i]) < 4);
	key_list_free(s);
}

TEST(a_smaller_fencing_number_pushes_nothing)
{
	struct redis_key_list *old = open_here(), *new = open_at(server->url);
	const uint64_t large = (UINT64_C(1) << 62) + 1; /* a double cannot tell it from its neighbour */
	struct err e = {""};
	struct source_key key = pipe_key(50);
	assert_int_equal(push(old, 9, 1, 0, 2), 0);
	assert_int_equal(push(new, 10, 2, 0, 0), 0); /* making it known is enough */
	assert_int_equal(key_list_push(old, 9, 3, &key, 1, &e), ERR_CONFLICT);
	assert_non_null(strstr(e.text, "fencing number"));
	assert_count(new, 2);
	assert_int_equal(push(new, large, 4, 2, 2), 0);
	assert_int_equal(push(new, large - 1, 5, 4, 2), ERR_CONFLICT);
	assert_int_equal(push(new, large, 6, 4, 2), 0);
	assert_count(new, 6);
	key_list_free(old);
	key_list_free(new);
}

TEST(a_batch_that_is_pushed_again_is_there_once)
{
	struct redis_key_list *s = open_here();
	assert_int_equal(push(s, 1, 77, 0, 10), 0);
	assert_int_equal(push(s, 1, 77, 0, 10), 0);
	assert_count(s, 10);
	assert_int_equal(push(s, 1, 78, 10, 10), 0);
	assert_count(s, 20);
	assert_int_equal(push(s, 1, 77, 0, 10), 0); /* long after, over a connection that was given up */
	assert_count(s, 20);
	assert_int_equal(push(s, 2, 1, 20, 10), 0); /* the next holder counts anew */
	assert_count(s, 30);
	key_list_free(s);
}

/* A push whose answer is lost is uncertain, a push that never left is not. */
TEST(a_lost_answer_is_distinguished_from_a_server_that_is_down)
{
	struct relay *relay;
	struct redis_key_list *direct = open_here(), *s = open_through(&relay);
	assert_int_equal(push(s, 1, 5, 0, 10), 0);
	relay_set(relay, RELAY_HOLD);
	assert_int_equal(push(s, 1, 6, 10, 10), ERR_UNCERTAIN);
	assert_true(key_list_is_failing(s));
	assert_int_equal(push(s, 1, 6, 10, 10), ERR_UNAVAILABLE);
	relay_set(relay, RELAY_PASS); /* and what was on its way arrives */
	UNTIL(push(s, 1, 6, 10, 10) == 0);
	assert_count(direct, 20);
	key_list_free(s);
	key_list_free(direct);
	relay_stop(relay);
}

static void replicas_wanted(const char *count)
{
	redis_kit_ask(server->url,
	              REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("min-replicas-to-write"), str_of(count)));
}

TEST(a_refusal_is_certain_and_names_the_reason)
{
	struct redis_key_list *s = open_here();
	struct source_key keys[10];
	size_t count;
	uint64_t left;
	struct err e = {""};
	pipe_keys(keys, 10, 0);
	assert_int_equal(key_list_push(s, 1, 1, keys, 5, NULL), 0);
	replicas_wanted("1");
	assert_int_equal(key_list_push(s, 1, 2, keys + 5, 5, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "NOREPLICAS"));
	UNTIL(key_list_count(s, &left, NULL) == 0); /* it is left alone for a moment */
	assert_int_equal(left, 5);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 5, keys, &count, &left, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "NOREPLICAS"));
	replicas_wanted("0");
	UNTIL(key_list_take(s, KEY_LIST_AVAILABLE, 5, keys, &count, &left, NULL) == 0);
	assert_int_equal(count, 5);
	key_list_free(s);
}

TEST(keys_whose_answer_is_late_may_be_lost_and_it_says_so)
{
	struct relay *relay;
	struct redis_key_list *direct = open_here(), *s = open_through(&relay);
	struct source_key keys[10];
	size_t count;
	uint64_t left;
	struct err e = {""};
	assert_int_equal(push(s, 1, 1, 0, 10), 0);
	relay_set(relay, RELAY_MUTE);
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 4, keys, &count, &left, &e), ERR_UNCERTAIN);
	assert_true(e.text[0] != '\0');
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 4, keys, &count, &left, &e), ERR_UNAVAILABLE);
	assert_count(direct, 6);
	key_list_free(s);
	key_list_free(direct);
	relay_stop(relay);
}

/* Whatever else lies on the server: keys that it has are not put back elsewhere. */
TEST(a_push_that_fails_half_way_has_added_nothing)
{
	static const char *const others[] = {"curt:keys:fence", "curt:keys:batch", "curt:keys:brought"};
	struct redis_key_list *s = open_here();
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		redis_kit_ask(server->url, REDIS_ARGS(STR("FLUSHALL")));
		redis_kit_ask(server->url, REDIS_ARGS(STR("RPUSH"), str_of(others[i]), STR("x")));
		int r = push(s, 1, 1, 0, 10);
		assert_count(s, r == 0 ? 10 : 0);
		assert_true(r == 0 || r == ERR_UNAVAILABLE);
	}
	key_list_free(s);
}

TEST(what_is_no_key_is_dropped)
{
	struct redis_key_list *s = open_here();
	struct source_key keys[8];
	size_t count;
	uint64_t left;
	redis_kit_ask(server->url, REDIS_ARGS(STR("RPUSH"), STR("curt:keys:available"), STR("0000001"),
	                                      STR("no key at all"), STR(""), STR("0000003!")));
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 8, keys, &count, &left, NULL), 0);
	assert_int_equal(count, 2);
	assert_int_equal(pipe_key_number(&keys[0]), 1);
	assert_int_equal(pipe_key_number(&keys[1]), 3);
	key_list_free(s);
}

TEST(something_else_under_the_lists_name_is_an_error_in_words)
{
	struct redis_key_list *s = open_here();
	struct source_key key = pipe_key(1);
	size_t count;
	uint64_t left;
	struct err e = {""};
	redis_kit_ask(server->url, REDIS_ARGS(STR("SET"), STR("curt:keys:available"), STR("x")));
	assert_int_equal(key_list_push(s, 1, 1, &key, 1, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "WRONGTYPE"));
	assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, 1, &key, &count, &left, &e), ERR_UNAVAILABLE);
	assert_int_equal(key_list_count(s, &left, &e), ERR_UNAVAILABLE);
	key_list_free(s);
}

TEST_MAIN(.group_setup = redis_kit_one, .group_teardown = redis_kit_down, .setup = redis_kit_renew)
