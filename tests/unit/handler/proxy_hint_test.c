#include "conn_double.h"
#include "handler/proxy_hint.h"
#include "http/forwarded.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"

static struct http_request forwarded = {
    .fields = {{STR("Host"), STR("h")}, {STR("X-Forwarded-For"), STR("203.0.113.9")}}, .field_count = 2};
static struct http_request plain = {.fields = {{STR("Host"), STR("h")}}, .field_count = 1};

static bool is_lost(const struct proxies *p, const char *address, const struct http_request *req)
{
	struct http_conn c = conn_from(address);
	return http_forwarded_is_lost(p, &c.peer, req);
}

TEST(a_proxy_nearby_that_nobody_named_is_noticed)
{
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

TEST(with_any_proxy_named_somebody_has_thought_of_it)
{
	struct proxies *named, *nobody;
	assert_int_equal(proxies_parse(STR("192.0.2.7"), &named, NULL), 0);
	assert_int_equal(proxies_parse(STR(""), &nobody, NULL), 0);
	assert_false(is_lost(named, "127.0.0.1:1", &forwarded));
	assert_true(is_lost(nobody, "127.0.0.1:1", &forwarded));
	proxies_free(named);
	proxies_free(nobody);
}

TEST(the_operator_is_told_once, test_dir_make, test_dir_remove)
{
	static struct api api;
	const struct api_worker w = {.api = &api};
	struct http_conn far = conn_from("203.0.113.1:1"), near = conn_from("10.0.0.9:4711");
	CLEANUP(buf_release) struct buf lines = {0};
	char path[TEMP_PATH_BYTES];
	const struct log_settings settings = {.level = LOG_INFO, .file = temp_path(&test_dir, "log", path)};
	assert_int_equal(log_start(&settings, NULL), 0);
	proxy_hint(&w, &far, &forwarded);
	proxy_hint(&w, &near, &plain);
	for (int i = 0; i < 3; i++)
		proxy_hint(&w, &near, &forwarded);
	log_stop();
	assert_int_equal(file_read(path, sizeof(path) * 4, &lines, NULL), 0);
	buf_char(&lines, '\0');
	assert_non_null(strstr(lines.data, " warn  api: "));
	assert_non_null(strstr(lines.data, "10.0.0.9"));
	assert_non_null(
	    strstr(lines.data, "limits count the proxy as one visitor; add it to serve.trusted_proxies"));
	assert_ptr_equal(strchr(lines.data, '\n'), lines.data + lines.len - 2);
}

TEST_MAIN()
