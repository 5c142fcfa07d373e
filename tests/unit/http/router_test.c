#include "http/router.h"
#include "lib/test.h"

#define BIT(method) (1U << HTTP_##method)

/* Wide patterns stand before narrow ones on purpose. `target` is the route's name in these tests. */
static const struct route routes[] = {
    {HTTP_GET, "/{key}", "short link"},
    {HTTP_POST, "/event", "event"},
    {HTTP_GET, "/", "home"},
    {HTTP_GET, "/healthz", "health"},
    {HTTP_GET, "/links/{key}", "get link"},
    {HTTP_PATCH, "/links/{key}", "change link"},
    {HTTP_DELETE, "/links/{key}", "delete link"},
    {HTTP_GET, "/links", "list"},
    {HTTP_POST, "/links", "create"},
    {HTTP_POST, "/links/bulk", "bulk"},
    {HTTP_GET, "/links/{key}/stats", "stats"},
    {HTTP_GET, "/links/bulk/{id}", "bulk job"},
    {HTTP_GET, "/{a}/{b}/{c}/{}", "four"},
    {HTTP_GET, "/probe", "probe get"},
    {HTTP_HEAD, "/probe", "probe head"},
    {HTTP_HEAD, "/probe2", "probe2 head"},
    {HTTP_GET, "/probe2", "probe2 get"},
};

static struct route_match find(enum http_method method, const char *path)
{
	return route_find(routes, ARRAY_LEN(routes), method, str_of(path));
}

static const char *found(enum http_method method, const char *path)
{
	struct route_match m = find(method, path);
	return m.route ? m.route->target : "none";
}

TEST(a_literal_path_is_found)
{
	assert_string_equal(found(HTTP_GET, "/"), "home");
	assert_string_equal(found(HTTP_GET, "/healthz"), "health");
	assert_string_equal(found(HTTP_GET, "/links"), "list");
	assert_string_equal(found(HTTP_POST, "/links"), "create");
}

TEST(a_literal_segment_wins_whatever_the_order)
{
	assert_string_equal(found(HTTP_POST, "/links/bulk"), "bulk");
	assert_string_equal(found(HTTP_GET, "/links/bulk/stats"), "bulk job");
	struct route reversed[ARRAY_LEN(routes)];
	for (size_t i = 0; i < ARRAY_LEN(routes); i++)
		reversed[i] = routes[ARRAY_LEN(routes) - 1 - i];
	struct route_match m = route_find(reversed, ARRAY_LEN(routes), HTTP_GET, STR("/links/bulk/stats"));
	assert_string_equal(m.route->target, "bulk job");
	assert_int_equal(m.params[0].len, 5);
	m = route_find(reversed, ARRAY_LEN(routes), HTTP_GET, STR("/healthz"));
	assert_string_equal(m.route->target, "health");
	assert_null(m.params[0].ptr);
}

TEST(the_path_is_decided_before_the_method)
{
	struct route_match m = find(HTTP_GET, "/event");
	assert_null(m.route);
	assert_int_equal(m.allowed, BIT(POST));
	m = find(HTTP_DELETE, "/links/bulk");
	assert_null(m.route);
	assert_int_equal(m.allowed, BIT(POST));
}

TEST(a_known_path_tells_which_methods_it_has)
{
	struct route_match m = find(HTTP_PUT, "/links/abc");
	assert_null(m.route);
	assert_int_equal(m.allowed, BIT(GET) | BIT(PATCH) | BIT(DELETE));
	m = find(HTTP_METHOD_OTHER, "/links");
	assert_null(m.route);
	assert_int_equal(m.allowed, BIT(GET) | BIT(POST));
	m = find(HTTP_GET, "/links");
	assert_int_equal(m.allowed, BIT(GET) | BIT(POST));
}

TEST(parameters_are_the_segments_as_sent)
{
	struct route_match m = find(HTTP_GET, "/links/a%2Fb+/stats");
	assert_string_equal(m.route->target, "stats");
	assert_int_equal(m.params[0].len, 6);
	assert_memory_equal(m.params[0].ptr, "a%2Fb+", 6);
	assert_null(m.params[1].ptr);
	m = find(HTTP_GET, "/a/b/c/d");
	assert_string_equal(m.route->target, "four");
	assert_memory_equal(m.params[3].ptr, "d", 1);
}

TEST(head_takes_the_get_route_unless_it_has_its_own)
{
	assert_string_equal(found(HTTP_HEAD, "/healthz"), "health");
	assert_string_equal(found(HTTP_HEAD, "/abc"), "short link");
	assert_string_equal(found(HTTP_HEAD, "/probe"), "probe head");
	assert_string_equal(found(HTTP_HEAD, "/probe2"), "probe2 head");
	assert_string_equal(found(HTTP_GET, "/probe"), "probe get");
	assert_string_equal(found(HTTP_HEAD, "/event"), "none");
}

TEST(other_paths_are_not_found)
{
	static const char *const paths[] = {
	    "/links/",        "/healthz/",  "//", "//a", "/abc/", "/links//stats",     "/a/b",
	    "/a/b/c",         "/a/b/c/d/e", "*",  "",    "links", "/links/abc/stats/", "/links/abc/statsx",
	    "/links/abc/stat"};
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct route_match m = find(HTTP_GET, paths[i]);
		if (m.route)
			fail_msg("%s found %s", paths[i], (const char *)m.route->target);
		assert_int_equal(m.allowed, 0);
	}
}

static void assert_allow(unsigned allowed, const char *want)
{
	char text[96];
	size_t len = route_allow(allowed, text);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(text, want, len);
}

TEST(allow_lists_the_methods_with_head_and_options)
{
	assert_allow(0, "OPTIONS");
	assert_allow(BIT(GET), "GET, HEAD, OPTIONS");
	assert_allow(BIT(POST), "POST, OPTIONS");
	assert_allow(BIT(GET) | BIT(POST) | BIT(DELETE), "GET, HEAD, POST, DELETE, OPTIONS");
	assert_allow(~0U, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
}

TEST_MAIN()
