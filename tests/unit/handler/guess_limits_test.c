#include "conn_double.h"
#include "handler/guess_limits.h"
#include "http/forwarded.h"
#include "lib/test.h"

#include <sodium.h>

static struct metrics metrics;
static struct api_settings settings;
static struct api api = {.settings = &settings};
static struct api_worker worker = {.api = &api, .metrics = &metrics};
static struct http_request plain_request;

static int start(void **state)
{
	settings.guess_limits = (struct guess_limits){
	    .misses_max = 3,
	    .sign_ins_max = 2,
	    .sign_ins_account_max = 3,
	    .sign_ins_address_max = 5,
	    .passwords_link_max = 2,
	    .passwords_address_max = 4,
	    .tries_period_ms = 900000,
	};
	double_mono_ms = 1000000;
	metrics = (struct metrics){0};
	api.proxies = NULL;
	api.throttle = throttle_new();
	return api.throttle ? 0 : -1;
}

static int stop(void **state)
{
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
	bool may = guess_may_look_up(&worker, &c, &plain_request);
	assert_int_equal(c.replies, may ? 0 : 1);
	return may;
}

static bool signs_in(const char *address, const char *email)
{
	struct http_conn c = conn_from(address);
	struct guess_attempts tries;
	return guess_sign_in(&worker, &c, &plain_request, str_of(email), &tries);
}

TEST(misses_of_an_address_are_counted_in_a_minute)
{
	for (int i = 0; i < 3; i++)
		assert_true(misses("192.0.2.1:1000"));
	assert_false(misses("192.0.2.1:2000")); /* the port is no matter */
	assert_true(misses("192.0.2.2:1000"));
	assert_int_equal(metrics.http_requests_limited, 1);
	double_mono_ms += 60000;
	assert_true(misses("192.0.2.1:1000"));
}

TEST(an_ipv6_address_stands_for_its_64)
{
	assert_true(misses("[2001:db8:0:1::1]:1"));
	assert_true(misses("[2001:db8:0:1::2]:1"));
	assert_true(misses("[2001:db8:0:1:ffff::3]:1"));
	assert_false(misses("[2001:db8:0:1::4]:1"));
	assert_true(misses("[2001:db8:0:2::1]:1"));
}

TEST(who_has_used_up_their_misses_may_not_look_any_more)
{
	for (int i = 0; i < 3; i++) {
		assert_true(may_look("192.0.2.1:1"));
		assert_true(misses("192.0.2.1:1"));
	}
	assert_false(misses("192.0.2.1:1"));
	assert_false(may_look("192.0.2.1:1"));
	assert_true(may_look("192.0.2.2:1"));
	double_mono_ms += 60000;
	assert_true(may_look("192.0.2.1:1"));
}

TEST(a_refusal_says_when_to_come_back)
{
	struct http_conn c = conn_from("192.0.2.1:1");
	for (int i = 0; i < 3; i++)
		assert_true(guess_miss(&worker, &c, &c.peer, false));
	double_mono_ms += 20000;
	assert_false(guess_miss(&worker, &c, &c.peer, false));
	assert_int_equal(c.status, 429);
	assert_non_null(strstr(c.fields, "Retry-After: 40\n"));
	assert_non_null(strstr(c.body, "limit-reached"));
	assert_false(str_starts(c.content_type, STR("text/html")));
	assert_false(guess_miss(&worker, &c, &c.peer, true));
	assert_true(str_starts(c.content_type, STR("text/html")));
}

TEST(an_account_is_bounded_wherever_the_tries_come_from)
{
	assert_true(signs_in("192.0.2.1:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.3:1", "ada@example.com"));
	assert_false(signs_in("192.0.2.4:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.4:1", "bob@example.com"));
	double_mono_ms += 900000;
	assert_true(signs_in("192.0.2.4:1", "ada@example.com"));
}

TEST(an_account_is_bounded_more_strictly_for_each_address)
{
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

TEST(addresses_of_one_64_are_one_for_an_account)
{
	settings.guess_limits.sign_ins_account_max = 50;
	assert_true(signs_in("[2001:db8:0:1::1]:1", "ada@example.com"));
	assert_true(signs_in("[2001:db8:0:1::2]:1", "ada@example.com"));
	assert_false(signs_in("[2001:db8:0:1::3]:1", "ada@example.com"));
	assert_true(signs_in("[2001:db8:0:2::1]:1", "ada@example.com"));
}

TEST(a_current_password_counts_for_its_user_alone)
{
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

TEST(an_address_is_bounded_whatever_account_it_tries)
{
	for (int i = 0; i < 5; i++) {
		char email[] = "a@example.com";
		email[0] = (char)('a' + i);
		assert_true(signs_in("192.0.2.1:1", email));
	}
	assert_false(signs_in("192.0.2.1:1", "z@example.com"));
	assert_true(signs_in("192.0.2.2:1", "z@example.com"));
}

TEST(a_try_that_is_refused_for_its_address_is_none_of_the_account)
{
	settings.guess_limits.sign_ins_address_max = 1;
	assert_true(signs_in("192.0.2.1:1", "bob@example.com"));
	for (int i = 0; i < 10; i++)
		assert_false(signs_in("192.0.2.1:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.2:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.3:1", "ada@example.com"));
	assert_true(signs_in("192.0.2.4:1", "ada@example.com"));
	assert_false(signs_in("192.0.2.5:1", "ada@example.com"));
}

TEST(who_was_right_has_not_tried)
{
	struct http_conn c = conn_from("192.0.2.1:1");
	for (int i = 0; i < 20; i++) {
		struct guess_attempts tries;
		assert_true(guess_sign_in(&worker, &c, &plain_request, STR("ada@example.com"), &tries));
		assert_int_equal(tries.count, 3);
		guess_refund(&worker, &c, &tries);
	}
	assert_int_equal(c.replies, 0);
}

TEST(links_and_accounts_of_the_same_name_are_apart)
{
	struct http_conn c = conn_from("192.0.2.1:1");
	struct guess_attempts tries;
	for (int i = 0; i < 2; i++)
		assert_true(guess_link_password(&worker, &c, &plain_request, STR("same"), &tries));
	assert_false(guess_link_password(&worker, &c, &plain_request, STR("same"), &tries));
	assert_int_equal(tries.count, 0);
	assert_true(guess_link_password(&worker, &c, &plain_request, STR("other"), &tries));
	assert_true(guess_sign_in(&worker, &c, &plain_request, STR("same"), &tries));
	assert_true(misses("192.0.2.1:1"));
}

TEST(a_bound_of_0_means_no_bound)
{
	settings.guess_limits = (struct guess_limits){.tries_period_ms = 900000};
	for (int i = 0; i < 1000; i++) {
		assert_true(misses("192.0.2.1:1"));
		assert_true(may_look("192.0.2.1:1"));
		assert_true(signs_in("192.0.2.1:1", "ada@example.com"));
	}
}

TEST(behind_a_trusted_proxy_the_clients_own_address_counts)
{
	struct proxies *proxies;
	struct http_conn c = conn_from("10.0.0.1:1");
	struct http_request req = {.field_count = 1, .fields = {{STR("X-Forwarded-For"), STR("192.0.2.7")}}};
	struct net_addr client;
	assert_int_equal(proxies_parse(STR("10.0.0.0/8"), &proxies, NULL), 0);
	api.proxies = proxies;
	for (int i = 0; i < 3; i++) {
		request_client_address(&worker, &c, &req, &client);
		assert_true(guess_miss(&worker, &c, &client, false));
	}
	assert_false(guess_miss(&worker, &c, &client, false));
	assert_false(guess_may_look_up(&worker, &c, &req));
	req.fields[0].value = STR("192.0.2.8");
	assert_true(guess_may_look_up(&worker, &c, &req));
	assert_false(misses("192.0.2.7:9"));
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.setup = start, .teardown = stop);
}
