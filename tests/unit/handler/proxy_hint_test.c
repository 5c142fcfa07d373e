#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handler/proxy_hint.h"
#include "http/forwarded.h"
#include "obs/log.h"

#include <stdio.h>

/* A connection that has a peer and nothing else, and a log that the test reads. */
struct http_conn {
	struct net_addr peer;
};

const struct net_addr *http_conn_peer(const struct http_conn *c)
{
	return &c->peer;
}

static int lines;
static char last_line[512];

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
	va_list ap;
	assert_int_equal(level, LOG_WARN);
	assert_string_equal(module, "api");
	va_start(ap, fmt);
	vsnprintf(last_line, sizeof(last_line), fmt, ap);
	va_end(ap);
	lines++;
}

static struct http_request forwarded = {
    .fields = {{STR("Host"), STR("h")}, {STR("X-Forwarded-For"), STR("203.0.113.9")}}, .field_count = 2};
static struct http_request plain = {.fields = {{STR("Host"), STR("h")}}, .field_count = 1};

static struct http_conn conn_from(const char *address)
{
	struct http_conn c;
	assert_int_equal(net_addr_parse(str_of(address), &c.peer, NULL), 0);
	return c;
}

static bool is_lost(const struct proxies *p, const char *address, const struct http_request *req)
{
	struct http_conn c = conn_from(address);
	return http_forwarded_is_lost(p, &c.peer, req);
}

static void a_proxy_nearby_that_nobody_named_is_noticed(void **state)
{
	(void)state;
	static const char *const near[] = {
	    "127.0.0.1:1",   "127.9.9.9:1", "10.1.2.3:1",  "172.16.0.1:1", "172.31.255.255:1",
	    "192.168.7.7:1", "[::1]:1",     "[fd00::1]:1", "[fc00::1]:1",  "[::ffff:10.0.0.1]:1"};
	static const char *const far[] = {"203.0.113.1:1", "172.15.255.255:1",      "172.32.0.0:1",
	                                  "11.0.0.1:1",    "192.169.0.1:1",         "128.0.0.1:1",
	                                  "[::2]:1",       "[2001:db8::1]:1",       "[fe00::1]:1",
	                                  "[fb00::1]:1",   "[::ffff:203.0.113.1]:1"};
	for (size_t i = 0; i < ARRAY_LEN(near); i++) {
		assert_true(is_lost(NULL, near[i], &forwarded));
		assert_false(is_lost(NULL, near[i], &plain));
	}
	for (size_t i = 0; i < ARRAY_LEN(far); i++)
		assert_false(is_lost(NULL, far[i], &forwarded));
}

static void with_any_proxy_named_somebody_has_thought_of_it(void **state)
{
	(void)state;
	struct proxies *named, *nobody;
	assert_int_equal(proxies_parse(STR("192.0.2.7"), &named, NULL), 0);
	assert_int_equal(proxies_parse(STR(""), &nobody, NULL), 0);
	assert_false(is_lost(named, "127.0.0.1:1", &forwarded));
	assert_true(is_lost(nobody, "127.0.0.1:1", &forwarded));
	proxies_free(named);
	proxies_free(nobody);
}

static void the_operator_is_told_once(void **state)
{
	(void)state;
	static struct api api;
	const struct api_worker w = {.api = &api};
	struct http_conn far = conn_from("203.0.113.1:1"), near = conn_from("10.0.0.9:4711");
	proxy_hint(&w, &far, &forwarded);
	proxy_hint(&w, &near, &plain);
	assert_int_equal(lines, 0);
	for (int i = 0; i < 3; i++)
		proxy_hint(&w, &near, &forwarded);
	assert_int_equal(lines, 1);
	assert_non_null(strstr(last_line, "10.0.0.9"));
	assert_non_null(strstr(last_line, "add it to serve.trusted_proxies"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_proxy_nearby_that_nobody_named_is_noticed),
	    cmocka_unit_test(with_any_proxy_named_somebody_has_thought_of_it),
	    cmocka_unit_test(the_operator_is_told_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
