#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handler/guess_limits.h"
#include "http/forwarded.h"

#include <sodium.h>
#include <stdio.h>

/* A connection that only remembers what was answered, and a loop with a clock that stands still. */
struct http_conn {
	struct net_addr peer;
	int replies, status;
	char body[2048];
	char retry_after[16];
	bool is_page;
};

static int64_t mono_ms;

struct loop *http_conn_loop(struct http_conn *c)
{
	return (struct loop *)c;
}

const struct net_addr *http_conn_peer(const struct http_conn *c)
{
	return &c->peer;
}

int64_t loop_mono_ms(const struct loop *l)
{
	(void)l;
	return mono_ms;
}

void http_reply(struct http_conn *c, const struct http_response *r)
{
	c->replies++;
	c->status = r->status;
	snprintf(c->body, sizeof(c->body), "%.*s", STR_ARG(r->body));
	c->is_page = str_starts(r->content_type, STR("text/html"));
	for (size_t i = 0; i < r->field_count; i++) {
		if (str_eq(r->fields[i].name, STR("Retry-After")))
			snprintf(c->retry_after, sizeof(c->retry_after), "%.*s", STR_ARG(r->fields[i].value));
	}
}

static struct metrics metrics;
static struct api_settings settings;
static struct api api = {.settings = &settings};
static struct api_worker worker = {.api = &api, .metrics = &metrics};
static struct http_request plain_request;

static struct http_conn conn_from(const char *address)
{
	struct http_conn c = {0};
	assert_int_equal(net_addr_parse(str_of(address), &c.peer, NULL), 0);
	return c;
}

static int start(void **state)
{
	(void)state;
	settings.guess_limits = (struct guess_limits){
	    .misses_max = 3,
	    .sign_ins_max = 2,
	    .sign_ins_account_max = 3,
	    .sign_ins_address_max = 5,
	    .passwords_link_max = 2,
	    .passwords_address_max = 4,
	    .throttle_ms = 900000,
	};
	mono_ms = 1000000;
	metrics = (struct metrics){0};
	api.proxies = NULL;
	api.throttle = throttle_new();
	return api.throttle ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	throttle_free(api.throttle);
	proxies_free((struct proxies *)api.proxies);
	return 0;
}

static bool misses(const char *address)
{
	struct http_conn c = conn_from(address);
	bool may = guess_miss(&worker, &c, &c.peer, false);
	assert_int_equal(c.replies, may ? 0 : 1);
	return may;
}

static bool may_look(const char *address)
{
	struct http_conn c = conn_from(address);
	bool may = guess_may_look(&worker, &c, &plain_request);
	assert_int_equal(c.replies, may ? 0 : 1);
	return may;
}

static bool signs_in(const char *address, const char *email)
{
	struct http_conn c = conn_from(address);
	struct guess_attempts tries;
	return guess_sign_in(&worker, &c, &plain_request, str_of(email), &tries);
}

static void misses_of_an_address_are_counted_in_a_minute(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		assert_true(misses("192.0.2.1:1000"));
	assert_false(misses("192.0.2.1:2000")); /* the port is no matter */
	assert_true(misses("192.0.2.2:1000"));
	assert_int_equal(metrics.http_requests_limited, 1);
	mono_ms += 60000;
	assert_true(misses("192.0.2.1:1000"));
}

static void an_ipv6_address_stands_for_its_64(void **state)
{
	(void)state;
	assert_true(misses("[2001:db8:0:1::1]:1"));
	assert_true(misses("[2001:db8:0:1::2]:1"));
	assert_true(misses("[2001:db8:0:1:ffff::3]:1"));
	assert_false(misses("[2001:db8:0:1::4]:1"));
	assert_true(misses("[2001:db8:0:2::1]:1"));
}

static void who_has_used_up_their_misses_may_not_look_any_more(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_true(may_look("192.0.2.1:1"));
		assert_true(misses("192.0.2.1:1"));
	}
	assert_false(misses("192.0.2.1:1"));
	assert_false(may_look("192.0.2.1:1"));
	assert_true(may_look("192.0.2.2:1"));
	mono_ms += 60000;
	assert_true(may_look("192.0.2.1:1"));
}

static void a_refusal_says_when_to_come_back(void **state)
{
	(void)state;
	struct http_conn c = conn_from("192.0.2.1:1");
	for (int i = 0; i < 3; i++)
		assert_true(guess_miss(&worker, &c, &c.peer, false));
	mono_ms += 20000;
	assert_false(guess_miss(&worker, &c, &c.peer, false));
	assert_int_equal(c.status, 429);
	assert_string_equal(c.retry_after, "40");
	assert_non_null(strstr(c.body, "limit-reached"));
	assert_false(c.is_page);
	assert_false(guess_miss(&worker, &c, &c.peer, true));
	assert_true(c.is_page);
}

static void an_account_is_bounded_wherever_the_tries_come_from(void **state)
{
	(void)state;
	assert_true(signs_in("192.0.2.1:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.3:1", "ada@example.com"));
	assert_false(signs_in("192.0.2.4:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.4:1", "bob@example.com"));
	mono_ms += 900000;
	assert_true(signs_in("192.0.2.4:1", "ada@example.com"));
}

static void an_account_is_bounded_more_strictly_for_each_address(void **state)
{
	(void)state;
	settings.guess_limits.sign_ins_account_max = 5;
	settings.guess_limits.sign_ins_address_max = 50;
	assert_true(signs_in("192.0.2.1:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.1:2", "ada@example.com"));
	assert_false(signs_in("192.0.2.1:3", "ada@example.com"));
	assert_true(signs_in("192.0.2.1:1", "bob@example.com"));
	/* others do not keep its owner out, and who was refused has not counted */
	assert_true(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_false(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.3:1", "ada@example.com"));
	assert_false(signs_in("192.0.2.3:1", "ada@example.com")); /* now it is five from anywhere */
}

static void addresses_of_one_64_are_one_for_an_account(void **state)
{
	(void)state;
	settings.guess_limits.sign_ins_account_max = 50;
	assert_true(signs_in("[2001:db8:0:1::1]:1", "ada@example.com"));
	assert_true(signs_in("[2001:db8:0:1::2]:1", "ada@example.com"));
	assert_false(signs_in("[2001:db8:0:1::3]:1", "ada@example.com"));
	assert_true(signs_in("[2001:db8:0:2::1]:1", "ada@example.com"));
}

static void a_current_password_counts_for_its_user_alone(void **state)
{
	(void)state;
	struct http_conn c = conn_from("192.0.2.1:1"), other = conn_from("192.0.2.2:1");
	struct guess_attempts tries;
	/* whatever strangers do at the door */
	for (int i = 0; i < 10; i++)
		signs_in("192.0.2.1:1", "ada@example.com");
	assert_true(guess_current_password(&worker, &c, &plain_request, 7, &tries));
	assert_int_equal(tries.count, 1);
	assert_true(guess_current_password(&worker, &other, &plain_request, 7, &tries));
	assert_int_equal(c.replies + other.replies, 0);
	assert_false(guess_current_password(&worker, &c, &plain_request, 7, &tries));
	assert_int_equal(c.status, 429);
	assert_true(guess_current_password(&worker, &c, &plain_request, 8, &tries));
	guess_refund(&worker, &c, &tries);
	for (int i = 0; i < 5; i++) {
		assert_true(guess_current_password(&worker, &c, &plain_request, 8, &tries));
		guess_refund(&worker, &c, &tries);
	}
	assert_true(signs_in("192.0.2.9:1", "7"));
}

static void an_address_is_bounded_whatever_account_it_tries(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		char email[] = "a@example.com";
		email[0] = (char)('a' + i);
		assert_true(signs_in("192.0.2.1:1", email));
	}
	assert_false(signs_in("192.0.2.1:1", "z@example.com"));
	assert_true(signs_in("192.0.2.2:1", "z@example.com"));
}

static void a_try_that_is_refused_for_its_address_is_none_of_the_account(void **state)
{
	(void)state;
	settings.guess_limits.sign_ins_address_max = 1;
	assert_true(signs_in("192.0.2.1:1", "bob@example.com"));
	for (int i = 0; i < 10; i++)
		assert_false(signs_in("192.0.2.1:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.3:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.4:1", "ada@example.com"));
	assert_false(signs_in("192.0.2.5:1", "ada@example.com"));
}

static void who_was_right_has_not_tried(void **state)
{
	(void)state;
	struct http_conn c = conn_from("192.0.2.1:1");
	for (int i = 0; i < 20; i++) {
		struct guess_attempts tries;
		assert_true(guess_sign_in(&worker, &c, &plain_request, STR("ada@example.com"), &tries));
		assert_int_equal(tries.count, 3);
		guess_refund(&worker, &c, &tries);
	}
	assert_int_equal(c.replies, 0);
}

static void links_and_accounts_of_the_same_name_are_apart(void **state)
{
	(void)state;
	struct http_conn c = conn_from("192.0.2.1:1");
	struct guess_attempts tries;
	for (int i = 0; i < 2; i++)
		assert_true(guess_password(&worker, &c, &plain_request, STR("same"), &tries));
	assert_false(guess_password(&worker, &c, &plain_request, STR("same"), &tries));
	assert_int_equal(tries.count, 0);
	assert_true(guess_password(&worker, &c, &plain_request, STR("other"), &tries));
	assert_true(guess_sign_in(&worker, &c, &plain_request, STR("same"), &tries));
	assert_true(misses("192.0.2.1:1"));
}

static void a_bound_of_0_is_none(void **state)
{
	(void)state;
	settings.guess_limits = (struct guess_limits){.throttle_ms = 900000};
	for (int i = 0; i < 1000; i++) {
		assert_true(misses("192.0.2.1:1"));
		assert_true(may_look("192.0.2.1:1"));
		assert_true(signs_in("192.0.2.1:1", "ada@example.com"));
	}
}

static void behind_a_trusted_proxy_the_clients_own_address_counts(void **state)
{
	(void)state;
	struct proxies *proxies;
	struct http_conn c = conn_from("10.0.0.1:1");
	struct http_request req = {.field_count = 1, .fields = {{STR("X-Forwarded-For"), STR("192.0.2.7")}}};
	struct net_addr client;
	assert_int_equal(proxies_parse(STR("10.0.0.0/8"), &proxies, NULL), 0);
	api.proxies = proxies;
	for (int i = 0; i < 3; i++) {
		guess_address(&worker, &c, &req, &client);
		assert_true(guess_miss(&worker, &c, &client, false));
	}
	assert_false(guess_miss(&worker, &c, &client, false));
	assert_false(guess_may_look(&worker, &c, &req));
	req.fields[0].value = STR("192.0.2.8");
	assert_true(guess_may_look(&worker, &c, &req));
	assert_false(misses("192.0.2.7:9"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(misses_of_an_address_are_counted_in_a_minute),
	    TEST(an_ipv6_address_stands_for_its_64),
	    TEST(who_has_used_up_their_misses_may_not_look_any_more),
	    TEST(a_refusal_says_when_to_come_back),
	    TEST(an_account_is_bounded_wherever_the_tries_come_from),
	    TEST(an_account_is_bounded_more_strictly_for_each_address),
	    TEST(addresses_of_one_64_are_one_for_an_account),
	    TEST(a_current_password_counts_for_its_user_alone),
	    TEST(an_address_is_bounded_whatever_account_it_tries),
	    TEST(a_try_that_is_refused_for_its_address_is_none_of_the_account),
	    TEST(who_was_right_has_not_tried),
	    TEST(links_and_accounts_of_the_same_name_are_apart),
	    TEST(a_bound_of_0_is_none),
	    TEST(behind_a_trusted_proxy_the_clients_own_address_counts),
	};
	return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
