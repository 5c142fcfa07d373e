/* Against servers that the tests start, stop and kill themselves. */
#include "lib/os_fault.h"
#include "lib/redis_kit.h"
#include "lib/test.h"

static struct redis_server *const server = &redis_kit_servers[0];

static struct redis *open_url(const char *url)
{
	struct redis *r = NULL;
	redis_kit_need();
	MUST(redis_new(str_of(url), &r, &why));
	return r;
}

static struct redis_conn *take(struct redis *r)
{
	struct err e = {""};
	struct redis_conn *c = redis_take(r, &e);
	if (!c)
		fail_msg("%s", e.text);
	return c;
}

/* A connection as soon as the server is tried again. */
static struct redis_conn *take_in_time(struct redis *r)
{
	struct redis_conn *c;
	UNTIL((c = redis_take(r, NULL)));
	return c;
}

static void assert_status(struct redis_conn *c, const struct str *args, size_t n, const char *expected)
{
	struct redis_reply reply;
	assert_int_equal(redis_ask(c, args, n, &reply), 0);
	assert_int_equal(reply.type, REDIS_STATUS);
	assert_int_equal(reply.text.len, strlen(expected));
	assert_memory_equal(reply.text.ptr, expected, reply.text.len);
}

TEST(replies_of_each_kind_come_in_the_order_of_their_commands)
{
	struct redis *r = open_url(server->url);
	struct redis_conn *c = take(r);
	struct redis_reply reply;
	redis_write(c, REDIS_ARGS(STR("SET"), STR("k\0\r\n"), STR("v\0w")));
	redis_write(c, REDIS_ARGS(STR("MGET"), STR("k\0\r\n"), STR("none")));
	redis_write(c, REDIS_ARGS(STR("STRLEN"), STR("k\0\r\n")));
	redis_write(c, REDIS_ARGS(STR("GET"), STR("none")));
	redis_write(c, REDIS_ARGS(STR("NOSUCH")));
	redis_write(c, REDIS_ARGS(STR("GET"), STR("k\0\r\n")));
	assert_int_equal(redis_read(c, &reply), 0);
	assert_int_equal(reply.type, REDIS_STATUS);
	assert_int_equal(redis_read(c, &reply), 0);
	assert_int_equal(reply.type, REDIS_ARRAY);
	assert_int_equal(reply.count, 2);
	assert_int_equal(redis_reply_at(&reply, 0).type, REDIS_STR);
	assert_true(str_eq(redis_reply_at(&reply, 0).text, STR("v\0w")));
	assert_int_equal(redis_reply_at(&reply, 1).type, REDIS_NIL);
	assert_int_equal(redis_read(c, &reply), 0);
	assert_int_equal(reply.type, REDIS_INT);
	assert_int_equal(reply.number, 3);
	assert_int_equal(redis_read(c, &reply), 0);
	assert_int_equal(reply.type, REDIS_NIL);
	assert_int_equal(redis_read(c, &reply), 0);
	assert_int_equal(reply.type, REDIS_ERROR);
	assert_int_equal(redis_read(c, &reply), 0);
	assert_true(str_eq(reply.text, STR("v\0w")));
	redis_return(c);
	redis_free(r);
}

TEST(a_value_larger_than_any_buffer_comes_back_whole)
{
	struct redis *r = open_url(server->url);
	struct redis_conn *c = take(r);
	struct redis_reply reply;
	size_t len = 5 << 20;
	char *big = malloc(len);
	for (size_t i = 0; i < len; i++)
		big[i] = (char)(i * 7 + i / 251);
	assert_status(c, REDIS_ARGS(STR("SET"), STR("big"), str_n(big, len)), "OK");
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("GET"), STR("big")), &reply), 0);
	assert_int_equal(reply.text.len, len);
	assert_memory_equal(reply.text.ptr, big, len);
	redis_return(c);
	redis_free(r);
	free(big);
}

/* Two commands in one go: 0 when both were answered as they should be. */
static int exchange(struct redis *r)
{
	struct redis_reply reply;
	struct redis_conn *c = redis_take(r, NULL);
	if (!c)
		return ERR_UNAVAILABLE;
	redis_write(c, REDIS_ARGS(STR("SET"), STR("exchange"), STR("some value")));
	redis_write(c, REDIS_ARGS(STR("MGET"), STR("exchange"), STR("exchange")));
	int bad = redis_read(c, &reply);
	if (bad == 0)
		assert_int_equal(reply.type, REDIS_STATUS);
	bad = redis_read(c, &reply);
	if (bad == 0) {
		assert_int_equal(reply.count, 2);
		assert_true(str_eq(redis_reply_at(&reply, 1).text, STR("some value")));
	}
	redis_return(c);
	return bad;
}

TEST(bytes_that_go_and_come_one_at_a_time_make_the_same_replies)
{
	struct redis *r = open_url(server->url);
	os_fault_short(OS_SEND, 1, 1, OS_FOR_GOOD);
	os_fault_short(OS_RECV, 1, 1, OS_FOR_GOOD);
	assert_int_equal(exchange(r), 0);
	assert_int_equal(exchange(r), 0);
	assert_true(os_fault_hits(OS_SEND) > 100);
	assert_true(os_fault_hits(OS_RECV) > 50);
	os_fault_reset();
	redis_free(r);
}

static void fail_each(enum os_call call, int error, int expected)
{
	for (uint64_t n = 1;; n++) {
		struct redis *r = open_url(server->url);
		os_fault_fail(call, n, error, OS_ONCE);
		int first = exchange(r);
		bool reached = os_fault_hits(call) > 0;
		os_fault_reset();
		assert_int_equal(first, reached ? expected : 0);
		redis_return(take_in_time(r));
		assert_int_equal(exchange(r), 0);
		redis_free(r);
		if (!reached) {
			assert_true(n > 2);
			return;
		}
	}
}

TEST(every_call_of_the_system_may_fail_once_and_the_next_connection_works)
{
	fail_each(OS_SEND, EPIPE, ERR_UNAVAILABLE);
	fail_each(OS_RECV, ECONNRESET, ERR_UNAVAILABLE);
	fail_each(OS_SEND, EINTR, 0);
	fail_each(OS_RECV, EINTR, 0);
}

TEST(a_connection_is_lent_again_and_one_with_replies_left_is_not)
{
	struct redis *r = open_url(server->url);
	struct redis_reply reply;
	struct redis_conn *c = take(r);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("CLIENT"), STR("ID")), &reply), 0);
	int64_t first = reply.number;
	redis_return(c);
	c = take(r);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("CLIENT"), STR("ID")), &reply), 0);
	assert_int_equal(reply.number, first);
	redis_write(c, REDIS_ARGS(STR("PING")));
	redis_return(c);
	c = take(r);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("CLIENT"), STR("ID")), &reply), 0);
	assert_int_not_equal(reply.number, first);
	redis_return(c);
	assert_false(redis_is_failing(r));
	redis_free(r);
}

TEST(a_database_is_chosen_by_the_url)
{
	char url[96];
	snprintf(url, sizeof(url), "%s/5", server->url);
	struct redis *five = open_url(url), *zero = open_url(server->url);
	struct redis_conn *c = take(five);
	struct redis_reply reply;
	assert_status(c, REDIS_ARGS(STR("SET"), STR("only in five"), STR("x")), "OK");
	redis_return(c);
	c = take(zero);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("EXISTS"), STR("only in five")), &reply), 0);
	assert_int_equal(reply.number, 0);
	redis_return(c);
	redis_free(five);
	redis_free(zero);
}

TEST(a_password_is_used_and_a_wrong_one_is_never_told)
{
	redis_kit_need();
	struct redis_server own;
	struct redis *r;
	struct err e = {""};
	char url[96];
	redis_server_start(&own, (const char *const[]){"--requirepass", "right one", NULL});
	snprintf(url, sizeof(url), "redis://right%%20one@127.0.0.1:%u", own.port);
	r = open_url(url);
	redis_return(take(r));
	redis_free(r);
	snprintf(url, sizeof(url), "redis://wrong-one@127.0.0.1:%u", own.port);
	r = open_url(url);
	assert_null(redis_take(r, &e));
	assert_non_null(strstr(e.text, "WRONGPASS"));
	assert_null(strstr(e.text, "wrong-one"));
	redis_free(r);
	redis_server_stop(&own);
}

static void assert_not_told(const struct redis_server *s, const char *user)
{
	char url[96];
	struct err e = {""};
	snprintf(url, sizeof(url), "redis://%shidden@127.0.0.1:%u", user, s->port);
	struct redis *r = open_url(url);
	assert_null(redis_take(r, &e));
	assert_non_null(strstr(e.text, "AUTH"));
	assert_null(strstr(e.text, "hidden"));
	assert_null(redis_take(r, &e)); /* what is remembered of it */
	assert_null(strstr(e.text, "hidden"));
	redis_free(r);
}

/* "unknown command 'AUTH', with args beginning with: 'hidden'" */
TEST(a_password_that_the_server_repeats_is_not_passed_on)
{
	redis_kit_need();
	struct redis_server own;
	redis_server_start(&own, (const char *const[]){"--rename-command", "AUTH", "x-auth", NULL});
	assert_not_told(&own, "");
	assert_not_told(&own, "user:");
	redis_server_stop(&own);
	assert_not_told(server, ""); /* it has none */
}

TEST(a_refusal_says_that_nothing_was_done)
{
	redis_kit_need();
	struct redis_server own;
	struct redis_reply reply;
	redis_server_start(&own, (const char *const[]){"--min-replicas-to-write", "1", NULL});
	struct redis *r = open_url(own.url);
	struct redis_conn *c = take(r);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("SET"), STR("k"), STR("v")), &reply), ERR_UNAVAILABLE);
	assert_true(redis_was_refused(c));
	assert_non_null(strstr(redis_why(c), "NOREPLICAS"));
	redis_return(c);
	assert_true(redis_is_failing(r));
	c = take_in_time(r);
	redis_server_kill(&own);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("SET"), STR("k"), STR("v")), &reply), ERR_UNAVAILABLE);
	assert_false(redis_was_refused(c));
	redis_return(c);
	redis_free(r);
	redis_server_stop(&own);
}

TEST(a_server_that_was_restarted_is_found_again_without_a_failure)
{
	struct redis *r = open_url(server->url);
	redis_return(take(r));
	redis_server_kill(server);
	redis_server_restart(server, NULL);
	struct redis_conn *c = take(r); /* what lay idle is dead, and that is no failure of the server */
	assert_status(c, REDIS_ARGS(STR("PING")), "PONG");
	redis_return(c);
	redis_free(r);
}

TEST(a_dead_server_is_left_alone_and_found_when_it_is_back)
{
	struct redis *r = open_url(server->url);
	struct redis_conn *c = take(r);
	struct redis_reply reply;
	struct err e = {""};
	redis_server_kill(server);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("PING")), &reply), ERR_UNAVAILABLE);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("PING")), &reply), ERR_UNAVAILABLE);
	assert_false(redis_is_failing(r));
	redis_return(c);
	assert_true(redis_is_failing(r));
	assert_null(redis_take(r, &e));
	assert_non_null(strstr(e.text, "does not answer"));
	redis_server_restart(server, NULL);
	c = take_in_time(r);
	assert_false(redis_is_failing(r));
	assert_status(c, REDIS_ARGS(STR("PING")), "PONG");
	redis_return(c);
	redis_free(r);
}

/* A stopped process still accepts connections. */
TEST(a_server_that_does_not_answer_has_failed)
{
	struct redis *r = open_url(server->url);
	struct redis_conn *c = take(r);
	struct redis_reply reply;
	struct err e = {""};
	redis_server_signal(server, SIGSTOP);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("PING")), &reply), ERR_UNAVAILABLE);
	redis_return(c);
	assert_true(redis_is_failing(r));
	UNTIL(!redis_take(r, &e) && strstr(e.text, "it does not answer")); /* so says a new connection */
	redis_server_signal(server, SIGCONT);
	c = take_in_time(r);
	assert_false(redis_is_failing(r));
	assert_status(c, REDIS_ARGS(STR("PING")), "PONG");
	redis_return(c);
	redis_free(r);
}

TEST(a_server_that_became_a_replica_fails_the_connection)
{
	struct redis *r = open_url(server->url);
	struct redis_conn *c = take(r);
	struct redis_reply reply;
	assert_status(c, REDIS_ARGS(STR("REPLICAOF"), STR("127.0.0.1"), STR("1")), "OK");
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("SET"), STR("a"), STR("b")), &reply), ERR_UNAVAILABLE);
	redis_return(c);
	assert_true(redis_is_failing(r));
	c = take_in_time(r);
	assert_status(c, REDIS_ARGS(STR("REPLICAOF"), STR("NO"), STR("ONE")), "OK");
	redis_return(c);
	redis_free(r);
}

TEST(a_listener_hears_what_is_published_and_when_nothing_is)
{
	struct redis *r = open_url(server->url);
	struct redis_conn *c = take(r), *speaker = take(r);
	struct redis_reply reply;
	redis_write(c, REDIS_ARGS(STR("SUBSCRIBE"), STR("news")));
	assert_int_equal(redis_wait(c, 5000, &reply), 0);
	assert_true(str_eq(redis_reply_at(&reply, 0).text, STR("subscribe")));
	assert_int_equal(redis_wait(c, 0, &reply), ERR_BUSY);
	assert_int_equal(redis_ask(speaker, REDIS_ARGS(STR("PUBLISH"), STR("news"), STR("x")), &reply), 0);
	assert_int_equal(reply.number, 1);
	assert_int_equal(redis_wait(c, 5000, &reply), 0);
	assert_true(str_eq(redis_reply_at(&reply, 2).text, STR("x")));
	redis_return(c);
	redis_return(speaker);
	assert_false(redis_is_failing(r));
	redis_free(r);
}

/* --- Sentinel, as far as one server can play it; the whole is in tests/cluster --- */

TEST(sentinels_that_are_down_are_reported)
{
	struct redis *r = open_url("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main");
	struct err e = {""};
	assert_null(redis_take(r, &e));
	assert_non_null(strstr(e.text, "(main@127.0.0.1:1/0) does not answer"));
	assert_true(redis_is_failing(r));
	redis_free(r);
}

TEST(a_sentinel_is_asked_and_a_server_that_is_no_primary_is_refused)
{
	redis_kit_need();
	struct redis_server sentinel;
	struct redis_reply reply;
	struct err e = {""};
	char url[96];
	redis_server_start_sentinel(&sentinel, server->port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:1,127.0.0.1:%u/main", sentinel.port);
	struct redis *r = open_url(url);
	struct redis_conn *c = take(r);
	assert_int_equal(redis_ask(c, REDIS_ARGS(STR("CONFIG"), STR("GET"), STR("port")), &reply), 0);
	snprintf(url, sizeof(url), "%u", server->port);
	assert_true(str_eq(redis_reply_at(&reply, 1).text, str_of(url)));
	assert_status(c, REDIS_ARGS(STR("REPLICAOF"), STR("127.0.0.1"), STR("1")), "OK");
	redis_write(c, REDIS_ARGS(STR("PING")));
	redis_return(c); /* a reply is left: the next take makes a new connection */
	assert_null(redis_take(r, &e));
	assert_non_null(strstr(e.text, "not the primary"));
	redis_free(r);

	r = open_url(server->url);
	c = take(r);
	assert_status(c, REDIS_ARGS(STR("REPLICAOF"), STR("NO"), STR("ONE")), "OK");
	redis_return(c);
	redis_free(r);
	redis_server_stop(&sentinel);
}

TEST(a_sentinel_that_wants_a_password_is_given_the_servers)
{
	redis_kit_need();
	struct redis_server primary, sentinel;
	struct err e = {""};
	char url[96];
	redis_server_start(&primary, (const char *const[]){"--requirepass", "right", NULL});
	redis_server_start_guarded_sentinel(&sentinel, primary.port, "right");
	snprintf(url, sizeof(url), "redis+sentinel://right@127.0.0.1:%u/main", sentinel.port);
	struct redis *r = open_url(url);
	struct redis_conn *c = take(r);
	assert_status(c, REDIS_ARGS(STR("PING")), "PONG");
	redis_return(c);
	redis_free(r);
	static const char *const wrong[] = {"redis+sentinel://wrong@127.0.0.1:%u/main",
	                                    "redis+sentinel://127.0.0.1:%u/main"};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		snprintf(url, sizeof(url), wrong[i], sentinel.port);
		r = open_url(url);
		assert_null(redis_take(r, &e));
		assert_non_null(strstr(e.text, i == 0 ? "WRONGPASS" : "NOAUTH"));
		redis_free(r);
	}
	redis_server_stop(&sentinel);
	redis_server_stop(&primary);
}

TEST_MAIN(.group_setup = redis_kit_one, .group_teardown = redis_kit_down, .setup = redis_kit_renew)
