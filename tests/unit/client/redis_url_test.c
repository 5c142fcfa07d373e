#include "client/redis.h"
#include "client/redis_url.h"
#include "lib/test.h"

static void assert_str(struct str s, const char *expected)
{
	assert_int_equal(s.len, strlen(expected));
	assert_memory_equal(s.ptr, expected, s.len);
}

static void parse(const char *url, struct redis_url *ret)
{
	struct err e = {""};
	if (redis_url_parse(str_of(url), ret, &e) != 0)
		fail_msg("%s: %s", url, e.text);
}

TEST(a_url_with_a_host_alone_has_the_usual_port_and_database)
{
	struct redis_url u;
	parse("redis://cache.example", &u);
	assert_false(u.is_sentinel);
	assert_int_equal(u.host_count, 1);
	assert_string_equal(u.hosts[0].host, "cache.example");
	assert_int_equal(u.hosts[0].port, 6379);
	assert_null(u.user.ptr);
	assert_null(u.password.ptr);
	assert_str(u.db, "0");
	assert_str(u.name, "cache.example:6379/0");
	redis_url_release(&u);
}

TEST(all_parts_of_a_url_are_read)
{
	struct redis_url u;
	parse("redis://me:a%40b%2fc,d@127.0.0.1:7000/3", &u);
	assert_str(u.user, "me");
	assert_str(u.password, "a@b/c,d");
	assert_string_equal(u.hosts[0].host, "127.0.0.1");
	assert_int_equal(u.hosts[0].port, 7000);
	assert_str(u.db, "3");
	assert_str(u.name, "127.0.0.1:7000/3");
	redis_url_release(&u);
}

TEST(a_password_may_stand_alone_or_behind_a_colon)
{
	static const char *const urls[] = {"redis://secret@h/", "redis://:secret@h"};
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		struct redis_url u;
		parse(urls[i], &u);
		assert_null(u.user.ptr);
		assert_str(u.password, "secret");
		redis_url_release(&u);
	}
}

TEST(an_ipv6_address_stands_in_brackets)
{
	struct redis_url u;
	parse("redis://[::1]:6380/2", &u);
	assert_string_equal(u.hosts[0].host, "::1");
	assert_int_equal(u.hosts[0].port, 6380);
	assert_str(u.name, "[::1]:6380/2");
	redis_url_release(&u);
}

TEST(sentinels_are_a_list_and_the_primary_has_a_name)
{
	struct redis_url u;
	parse("redis+sentinel://pw@a,b:5000,[::1]/main/4", &u);
	assert_true(u.is_sentinel);
	assert_int_equal(u.host_count, 3);
	assert_string_equal(u.hosts[0].host, "a");
	assert_int_equal(u.hosts[0].port, 26379);
	assert_int_equal(u.hosts[1].port, 5000);
	assert_string_equal(u.hosts[2].host, "::1");
	assert_str(u.password, "pw");
	assert_str(u.primary, "main");
	assert_str(u.db, "4");
	assert_str(u.name, "main@[::1]:26379/4");
	redis_url_release(&u);
}

TEST(sets_of_sentinels_are_distinguished_and_not_by_the_order_of_their_list)
{
	struct redis_url u, same, other;
	parse("redis+sentinel://b:2,a:7,a:5/mymaster", &u);
	parse("redis+sentinel://a:5,a:7,b:2/mymaster/0", &same);
	parse("redis+sentinel://c:5,d:7/mymaster", &other);
	assert_str(u.name, "mymaster@a:5/0");
	assert_str(same.name, "mymaster@a:5/0");
	assert_str(other.name, "mymaster@c:5/0");
	redis_url_release(&u);
	redis_url_release(&same);
	redis_url_release(&other);
}

TEST(what_is_no_url_is_refused_without_repeating_it)
{
	static const char *const urls[] = {
	    "",
	    "hunter2",
	    "http://hunter2@h",
	    "redis://",
	    "redis:///0",
	    "redis://@h",
	    "redis://hunter2:@h",
	    "redis://:hunter2",
	    "redis://hunter2/x@h",
	    "redis://hunter2@h:0",
	    "redis://hunter2@h:65536",
	    "redis://hunter2@h:x",
	    "redis://hunter2@h/0/1",
	    "redis://hunter2@h/-1",
	    "redis://hunter2@h/10000",
	    "redis://hunter2@h?db=1",
	    "redis://hunter2@[::1",
	    "redis://hunter2@[::1]x",
	    "redis://hunter2@[hunter2]",
	    "redis://hunter2@a,b",
	    "redis://hunter2%4@h",
	    "redis://hunter2%zz@h",
	    "redis+sentinel://hunter2@a,b",
	    "redis+sentinel://hunter2@a,b/",
	    "redis+sentinel://hunter2@a,,b/m",
	    "redis+sentinel://hunter2@a/m/x",
	    "redis+sentinel://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a/hunter2",
	};
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		struct redis_url u;
		struct err e = {""};
		if (redis_url_parse(str_of(urls[i]), &u, &e) != ERR_INVALID)
			fail_msg("'%s' was taken", urls[i]);
		assert_true(e.text[0] != '\0');
		assert_null(strstr(e.text, "hunter2"));
	}
}

TEST(a_list_is_cut_between_urls_but_not_between_sentinels)
{
	struct arena arena = {0};
	struct str *urls;
	size_t count;
	struct err e = {""};
	assert_int_equal(redis_urls_cut(STR("redis://a,b:1@h, redis+sentinel://x,y:2/m,redis://c"), &arena,
	                                &urls, &count, &e),
	                 0);
	assert_int_equal(count, 3);
	assert_str(urls[0], "redis://a,b:1@h");
	assert_str(urls[1], "redis+sentinel://x,y:2/m");
	assert_str(urls[2], "redis://c");
	arena_release(&arena);
}

TEST(a_list_that_is_empty_is_refused)
{
	struct arena arena = {0};
	struct str *urls;
	size_t count;
	struct err e = {""};
	assert_int_equal(redis_urls_cut(STR("  "), &arena, &urls, &count, &e), ERR_INVALID);
	assert_true(e.text[0] != '\0');
	arena_release(&arena);
}

TEST_MAIN()
