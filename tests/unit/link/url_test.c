#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/url.h"

#include <stdio.h>
#include <stdlib.h>

static const struct str hosts[] = {STR("192.0.2.7"), STR("[2001:db8::7]")};
static const struct url_rules rules = {
    .own = STR("s.example"), .port = 8080, .loopback = true, .hosts = hosts, .host_count = ARRAY_LEN(hosts)};

static struct err err;

/* The input is in a block of exactly its size, so that the sanitizer sees a look beyond. */
static int canonicalize(struct str in, struct buf *out)
{
	char *copy = malloc(in.len ? in.len : 1);
	assert_non_null(copy);
	if (in.len > 0)
		memcpy(copy, in.ptr, in.len);
	err.text[0] = '\0';
	int rc = url_canonicalize(str_n(copy, in.len), &rules, out, &err);
	free(copy);
	return rc;
}

static void assert_safe(struct str url)
{
	assert_true(url.len <= URL_BYTES_MAX);
	for (size_t i = 0; i < url.len; i++) {
		char c = url.ptr[i];
		if (c <= 0x20 || c >= 0x7f || strchr("\"<>\\^`{|}", c))
			fail_msg("byte %#x at %zu of %.*s", (unsigned)c, i, STR_ARG(url));
	}
}

static void assert_gives(struct str in, const char *want)
{
	CLEANUP(buf_release) struct buf out = {0}, again = {0};
	if (canonicalize(in, &out) != 0)
		fail_msg("%.*s: %s", STR_ARG(in), err.text);
	if (!str_eq(buf_view(&out), str_of(want)))
		fail_msg("%.*s gave %.*s instead of %s", STR_ARG(in), STR_ARG(buf_view(&out)), want);
	assert_safe(buf_view(&out));
	assert_int_equal(canonicalize(buf_view(&out), &again), 0);
	assert_true(str_eq(buf_view(&out), buf_view(&again)));
}

static void assert_refused(struct str in, const char *sentence_part)
{
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&out, STR("as before"));
	int rc = canonicalize(in, &out);
	if (rc != ERR_INVALID)
		fail_msg("%.*s was taken: %.*s", STR_ARG(in), STR_ARG(buf_view(&out)));
	assert_true(str_eq(buf_view(&out), STR("as before")));
	assert_false(out.failed);
	if (!strstr(err.text, sentence_part))
		fail_msg("%.*s: '%s' is not in: %s", STR_ARG(in), sentence_part, err.text);
	for (const char *p = err.text; *p; p++)
		assert_true(*p >= 0x20 && *p < 0x7f);
}

struct row {
	const char *in;
	const char *out;
};

static void assert_all_give(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_gives(str_of(rows[i].in), rows[i].out);
}

static void assert_all_refused(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_refused(str_of(rows[i].in), rows[i].out);
}

static void scheme_and_host_are_lowered_and_defaults_dropped(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://example.com", "http://example.com/"},
	    {"HTTP://EXAMPLE.com/Path", "http://example.com/Path"},
	    {"hTTps://Example.Com:443/", "https://example.com/"},
	    {"http://example.com:80", "http://example.com/"},
	    {"https://example.com:80/", "https://example.com:80/"},
	    {"http://example.com:443/", "http://example.com:443/"},
	    {"http://example.com:00081/", "http://example.com:81/"},
	    {"http://example.com:65535/", "http://example.com:65535/"},
	    {"http://example.com:1/", "http://example.com:1/"},
	    {"http://012345678901234567890123456789012345678901234567890123456789012.example/",
	     "http://012345678901234567890123456789012345678901234567890123456789012.example/"},
	    {"http://example.com./a", "http://example.com/a"},
	    {"http://localhost/", "http://localhost/"},
	    {"http://a_b.example/", "http://a_b.example/"},
	    {"http://_dmarc.example/", "http://_dmarc.example/"},
	    {"http://r3---sn-x.example/", "http://r3---sn-x.example/"},
	    {"http://1.example/", "http://1.example/"},
	    {"http://0xg/", "http://0xg/"},
	    {"http://1.2.3.4.example/", "http://1.2.3.4.example/"},
	};
	assert_all_give(rows, ARRAY_LEN(rows));
}

static void white_space_around_is_trimmed(void **state)
{
	(void)state;
	assert_gives(STR(" \t\r\n\v\fhttp://a.example/x \n\t "), "http://a.example/x");
}

static void query_and_fragment_are_kept(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://a.example?q", "http://a.example/?q"},
	    {"http://a.example#f", "http://a.example/#f"},
	    {"http://a.example?q#f", "http://a.example/?q#f"},
	    {"http://a.example/p?", "http://a.example/p?"},
	    {"http://a.example/p#", "http://a.example/p#"},
	    {"http://a.example/p?a=1&b=2?c=/../x#d?e/../f", "http://a.example/p?a=1&b=2?c=/../x#d?e/../f"},
	    {"http://a.example/#a#b", "http://a.example/#a%23b"},
	    {"http://a.example?u=http://user@b.example:99/", "http://a.example/?u=http://user@b.example:99/"},
	    {"http://a.example/@x:y", "http://a.example/@x:y"},
	    {"http://a.example/!$&'()*+,;=:@-._~", "http://a.example/!$&'()*+,;=:@-._~"},
	};
	assert_all_give(rows, ARRAY_LEN(rows));
}

static void dot_segments_are_removed_even_when_escaped(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://h/a/b/c/./../../g", "http://h/a/g"},
	    {"http://h/..", "http://h/"},
	    {"http://h/../..//x", "http://h//x"},
	    {"http://h/.", "http://h/"},
	    {"http://h/a/.", "http://h/a/"},
	    {"http://h/a/..", "http://h/"},
	    {"http://h/a/b/..", "http://h/a/"},
	    {"http://h/a/%2e%2E/b/%2e/c", "http://h/b/c"},
	    {"http://h/a//../b", "http://h/a/b"},
	    {"http://h/...", "http://h/..."},
	    {"http://h/.a/..b/c.", "http://h/.a/..b/c."},
	    {"http://h/a/", "http://h/a/"},
	    {"http://h//", "http://h//"},
	    {"http://h/.//x", "http://h//x"},
	    {"http://h/a%2F..%2Fb", "http://h/a%2F..%2Fb"},
	};
	assert_all_give(rows, ARRAY_LEN(rows));
}

static void bytes_are_escaped_when_they_must_be_and_only_then(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://h/\xc3\xa4?\xc3\xb6#\xe2\x82\xac", "http://h/%C3%A4?%C3%B6#%E2%82%AC"},
	    {"http://h/\xf0\x9f\x98\x80", "http://h/%F0%9F%98%80"},
	    {"http://h/\"<>^`{|}[]", "http://h/%22%3C%3E%5E%60%7B%7C%7D%5B%5D"},
	    {"http://h/?\"<>^`{|}[]", "http://h/?%22%3C%3E%5E%60%7B%7C%7D%5B%5D"},
	    {"http://h/#\"<>^`{|}[]", "http://h/#%22%3C%3E%5E%60%7B%7C%7D%5B%5D"},
	    {"http://h/%c3%a4%2f%3a", "http://h/%C3%A4%2F%3A"},
	    {"http://h/%41%7a%30%2D%5f%7E%2e", "http://h/Az0-_~."},
	    {"http://h/?%41%3d%26#%41%23", "http://h/?A%3D%26#A%23"},
	    {"http://h/%2541", "http://h/%2541"},
	    {"http://h/%00%0d%0A%ff", "http://h/%00%0D%0A%FF"},
	    {"http://h/a+b%20c", "http://h/a+b%20c"},
	};
	assert_all_give(rows, ARRAY_LEN(rows));
}

static void international_names_become_a_labels(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://m\xc3\xbcnchen.example/", "http://xn--mnchen-3ya.example/"},
	    {"http://M\xc3\x9cNCHEN.EXAMPLE/", "http://xn--mnchen-3ya.example/"},
	    {"http://mu\xcc\x88nchen.example/", "http://xn--mnchen-3ya.example/"},
	    {"http://fa\xc3\x9f.example./", "http://xn--fa-hia.example/"},
	    {"http://XN--MNCHEN-3YA.example/", "http://xn--mnchen-3ya.example/"},
	    {"http://a_b.m\xc3\xbcnchen.example:81/", "http://a_b.xn--mnchen-3ya.example:81/"},
	    {"http://\xe4\xbe\x8b\xe3\x81\x88\xe3\x80\x82jp/", "http://xn--r8jz45g.jp/"},
	    {"http://\xef\xbd\x85xample.com/", "http://example.com/"},
	};
	assert_all_give(rows, ARRAY_LEN(rows));
}

static void addresses_have_one_spelling(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://192.0.2.1/", "http://192.0.2.1/"},
	    {"http://0.0.0.0/", "http://0.0.0.0/"},
	    {"http://255.255.255.255:81/", "http://255.255.255.255:81/"},
	    {"http://192.0.2.1./", "http://192.0.2.1/"},
	    {"http://\xef\xbc\x91.2.3.4/", "http://1.2.3.4/"},
	    {"http://[2001:DB8:0:0:0:0:0:1]/", "http://[2001:db8::1]/"},
	    {"http://[::]:80/", "http://[::]/"},
	    {"http://[::1]:81/", "http://[::1]:81/"},
	    {"http://[::ffff:192.0.2.1]/", "http://[::ffff:192.0.2.1]/"},
	    {"http://[::FFFF:c000:0201]?x", "http://[::ffff:192.0.2.1]/?x"},
	};
	assert_all_give(rows, ARRAY_LEN(rows));
}

static void odd_spellings_of_addresses_are_refused(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://0x7f.1/", "IPv4 address such as"},
	    {"http://0x7f000001/", "IPv4"},
	    {"http://0177.0.0.1/", "IPv4"},
	    {"http://01.2.3.4/", "IPv4"},
	    {"http://2130706433/", "IPv4"},
	    {"http://1.2.3/", "IPv4"},
	    {"http://1.2.3.4.5/", "IPv4"},
	    {"http://256.0.0.1/", "IPv4"},
	    {"http://1.2.3.256/", "IPv4"},
	    {"http://1.2.3.0x4/", "IPv4"},
	    {"http://a.example.1/", "IPv4"},
	    {"http://a.0x/", "IPv4"},
	    {"http://\xef\xbc\x91/", "IPv4"},
	    {"http://[1.2.3.4]/", "IPv6 address"},
	    {"http://[]/", "no host"},
	    {"http://[::1/", "in brackets"},
	    {"http://[::1]x/", "in brackets"},
	    {"http://[::1]80/", "in brackets"},
	    {"http://[fe80::1%25eth0]/", "without a zone"},
	    {"http://[fe80::1%eth0]/", "without a zone"},
	    {"http://[::g]/", "IPv6"},
	    {"http://[v1.x]/", "IPv6"},
	    {"http://[0000:0000:0000:0000:0000:0000:0000:0000:0000:0001]/", "IPv6"},
	    {"http://::1/", "in brackets"},
	    {"http://2001:db8::1/", "in brackets"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

static void only_http_and_https_are_taken(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"", "empty"},
	    {" \n ", "empty"},
	    {"ftp://a.example/", "must begin with http:// or https://, not 'ftp:'"},
	    {"javascript:alert(1)", "not 'javascript:'"},
	    {"JAVASCRIPT://a.example/%0aalert(1)", "not 'JAVASCRIPT:'"},
	    {"data:text/html,x", "not 'data:'"},
	    {"httpx://a/", "not 'httpx:'"},
	    {"://a/", "not ':'"},
	    {"example.com/page", "'https://example.com/page'"},
	    {"//example.com/page", "'https://example.com/page'"},
	    {"example.com:8080/x", "not 'example.com:'"},
	    {"http:a.example", "// after 'http:'"},
	    {"http:/a.example", "// after 'http:'"},
	    {"https:", "// after 'https:'"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

static void hosts_that_are_no_names_are_refused(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://", "no host"},
	    {"http:///x", "no host"},
	    {"http://?x", "no host"},
	    {"http://#x", "no host"},
	    {"http://:80/", "no host"},
	    {"http://./", "not a valid name"},
	    {"http://a..b/", "not a valid name"},
	    {"http://.a/", "not a valid name"},
	    {"http://a../", "not a valid name"},
	    {"http://-a.example/", "not a valid name"},
	    {"http://a-.example/", "not a valid name"},
	    {"http://a%41.example/", "not a valid name"},
	    {"http://a,b/", "not a valid name"},
	    {"http://a;b/", "not a valid name"},
	    {"http://a*b/", "not a valid name"},
	    {"http://a'b/", "not a valid name"},
	    {"http://a\xef\xbc\x8f"
	     "b.example/",
	     "not a valid name"}, /* a full-width slash */
	    {"http://\xe2\x80\xaexa.example/", "not a valid international name"},
	    {"http://i\xe2\x9d\xa4.example/", "not a valid international name"},
	    {"http://xn--a.example/", "not a valid international name"},
	    {"http://xn--.example/", "not a valid"},
	    {"http://xn--abc-.example/", "not a valid"},
	    {"http://0123456789012345678901234567890123456789012345678901234567890123.example/", "1 to 63"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

static void long_hosts_are_refused(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf in = {0};
	buf_str(&in, STR("http://"));
	for (int i = 0; i < 126; i++)
		buf_str(&in, STR("a."));
	buf_str(&in, STR("b/"));
	CLEANUP(buf_release) struct buf out = {0};
	assert_int_equal(canonicalize(buf_view(&in), &out), 0); /* 253 bytes */
	in.len -= 2;
	buf_str(&in, STR("bc/"));
	assert_refused(buf_view(&in), "longer than 253");
	in.len = 7;
	for (int i = 0; i < 4000; i++)
		buf_str(&in, STR("\xc3\xa4"));
	assert_refused(buf_view(&in), "longer than 253");
	in.len = 7;
	for (int i = 0; i < 500; i++)
		buf_str(&in, STR("\xc3\xa4"));
	assert_refused(buf_view(&in), "not a valid international name");
}

static void ports_are_numbers_from_1_to_65535(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://a:/", "1 to 65535"},      {"http://a:0/", "1 to 65535"},
	    {"http://a:65536/", "1 to 65535"}, {"http://a:-1/", "1 to 65535"},
	    {"http://a:+1/", "1 to 65535"},    {"http://a:80a/", "1 to 65535"},
	    {"http://a:0x50/", "1 to 65535"},  {"http://a:000080/", "1 to 65535"},
	    {"http://[::1]:/", "1 to 65535"},  {"http://a:99999999999999999999/", "1 to 65535"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

static void user_info_is_refused(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://user@a.example/", "user info"}, {"http://user:pass@a.example/", "user info"},
	    {"http://@a.example/", "user info"},     {"http://good.example@evil.example", "user info"},
	    {"http://a@b@c/", "user info"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

static void stray_bytes_are_refused_and_located(void **state)
{
	(void)state;
	assert_refused(STR("http://a.example/x y"), "white space inside, at byte 19");
	assert_refused(STR("http://a .example/"), "white space inside");
	assert_refused(STR("http://a.example/\tx"), "white space");
	assert_refused(STR("http://a.example/\r\nx"), "white space");
	assert_refused(STR("ht tp://a.example/"), "white space");
	assert_refused(STR("http://a.example/\0x"), "control character at byte 18");
	assert_refused(STR("http://a.example/\x7f"), "control character");
	assert_refused(STR("http://a.example/\x1b[0m"), "control character");
	assert_refused(STR("http://a.example/\xc2\x85"), "control character");
	assert_refused(STR("http:\\\\a.example\\"), "backslash at byte 6");
	assert_refused(STR("http://a.example\\@b.example/"), "backslash");
}

static void malformed_utf_8_is_refused(void **state)
{
	(void)state;
	static const char *const tails[] = {
	    "\x80",         "\xbf",         "\xc0\x80",         "\xc1\xbf",         "\xc3",
	    "\xc3(",        "\xe2\x82",     "\xe2\x82(",        "\xe0\x9f\xbf",     "\xed\xa0\x80",
	    "\xed\xbf\xbf", "\xf0\x9f\x98", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
	    "\xff",         "\xe2(\x82",    "\xf0\x9f(\x80",    "\xf0\x9f\x98("};
	for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
		char url[64];
		snprintf(url, sizeof(url), "http://a.example/%s", tails[i]);
		assert_refused(str_of(url), "not valid UTF-8 at byte 18");
	}
	assert_gives(
	    STR("http://h/"
	        "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\xc2\xa0\xdf\xbf"),
	    "http://h/%ED%9F%BF%EE%80%80%F4%8F%BF%BF%E0%A0%80%F0%90%80%80%C2%A0%DF%BF");
}

static void malformed_escapes_are_refused(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://h/%", "'%' is not an escape"},
	    {"http://h/%4", "'%4' is not an escape"},
	    {"http://h/%4?41", "'%4' is not an escape"},
	    {"http://h/%zz", "'%zz' is not an escape"},
	    {"http://h/?%g1", "%25"},
	    {"http://h/#%1g", "%25"},
	    {"http://h/100%", "%25"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

static void links_to_ourselves_are_refused(void **state)
{
	(void)state;
	static const struct row rows[] = {
	    {"http://s.example/abc", "points back to this server (s.example)"},
	    {"https://s.example/abc", "points back"},
	    {"https://S.Example.:443", "points back"},
	    {"http://s.example:80?x", "points back"},
	    {"http://\xef\xbd\x93.example/", "points back"},
	    {"http://127.0.0.1:8080/", "points back"},
	    {"http://[0:0::1]:8080/", "points back"},
	    {"http://127.9.9.9:8080/", "points back"},
	    {"http://0.0.0.0:8080/", "points back"},
	    {"http://[::]:8080/", "points back"},
	    {"http://[::ffff:127.0.0.1]:8080/", "points back"},
	    {"http://LOCALHOST:8080/", "points back"},
	    {"https://foo.localhost:8080/", "points back"},
	    {"http://192.0.2.7:8080/", "points back"},
	    {"http://[2001:0db8::7]:8080/", "points back"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
	assert_gives(STR("http://s.example:8080/"), "http://s.example:8080/");
	assert_gives(STR("http://x.s.example/"), "http://x.s.example/");
	assert_gives(STR("http://127.0.0.1:8081/"), "http://127.0.0.1:8081/");
	assert_gives(STR("http://127.0.0.1/"), "http://127.0.0.1/");
	assert_gives(STR("http://localhost.example:8080/"), "http://localhost.example:8080/");
	assert_gives(STR("http://192.0.2.8:8080/"), "http://192.0.2.8:8080/");
	assert_gives(STR("http://127.0.0.1/"), "http://127.0.0.1/");
}

static void without_rules_every_host_will_do(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf out = {0};
	assert_int_equal(url_canonicalize(STR("http://s.example/"), NULL, &out, NULL), 0);
	assert_int_equal(url_canonicalize(STR("http://s.example/"), &rules, &out, NULL), ERR_INVALID);
}

static void a_url_has_at_most_8_kib_before_and_after(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf in = {0};
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&in, STR("http://a.example/"));
	while (in.len < URL_BYTES_MAX)
		buf_char(&in, 'x');
	buf_str(&in, STR("  ")); /* what is trimmed does not count */
	assert_int_equal(canonicalize(buf_view(&in), &out), 0);
	assert_int_equal(out.len, URL_BYTES_MAX);
	in.len = URL_BYTES_MAX;
	buf_char(&in, 'x');
	assert_refused(buf_view(&in), "8193 bytes; use at most 8192");
	in.len = URL_BYTES_MAX - 1;
	buf_char(&in, '"');
	assert_refused(buf_view(&in), "8194 bytes when percent-encoded");
}

static void the_result_is_appended(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&out, STR("Location: "));
	assert_int_equal(canonicalize(STR("http://A/../b"), &out), 0);
	assert_true(str_eq(buf_view(&out), STR("Location: http://a/b")));
	out.failed = true;
	assert_int_equal(canonicalize(STR("http://A/"), &out), ERR_NOMEM);
	out.failed = false;
}

static void memory_that_runs_out_leaves_the_buffer_as_it_was(void **state)
{
	(void)state;
	char byte = 'x';
	struct buf full = {.data = &byte, .len = SIZE_MAX - 4, .cap = SIZE_MAX - 4}; /* cannot grow */
	assert_int_equal(canonicalize(STR("http://a.example/"), &full), ERR_NOMEM);
	assert_true(full.len == SIZE_MAX - 4);
	assert_false(full.failed);
	assert_non_null(strstr(err.text, "memory"));
}

static void what_a_sentence_repeats_is_short_and_printable(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf in = {0}, out = {0};
	for (int i = 0; i < 300; i++)
		buf_str(&in, STR("\xc3\xa4"));
	buf_str(&in, STR("://x/"));
	assert_int_equal(canonicalize(buf_view(&in), &out), ERR_INVALID);
	assert_non_null(strstr(err.text, "'????????????????????????????????????????...:'"));
	assert_true(strlen(err.text) < 200);
}

/* Pieces of URLs put together at random: whatever is taken is safe, and canonical for good. */
static void whatever_is_taken_is_safe_and_gives_itself(void **state)
{
	(void)state;
	static const char *const pieces[] = {"http://",
	                                     "https://",
	                                     "HTTP://",
	                                     "a",
	                                     "B",
	                                     ".",
	                                     "..",
	                                     "/",
	                                     "//",
	                                     "/./",
	                                     "/../",
	                                     "?",
	                                     "#",
	                                     ":",
	                                     "80",
	                                     "443",
	                                     "@",
	                                     "%",
	                                     "%41",
	                                     "%2e",
	                                     "%2F",
	                                     "%c3",
	                                     "%25",
	                                     "[",
	                                     "]",
	                                     "::1",
	                                     "\xc3\xa4",
	                                     "\xc3\x9f",
	                                     "\xe3\x80\x82",
	                                     "xn--",
	                                     "mnchen-3ya",
	                                     "-",
	                                     "_",
	                                     "1",
	                                     "127.0.0.1",
	                                     "0x7f",
	                                     "\"",
	                                     "<",
	                                     "{",
	                                     "|",
	                                     "^",
	                                     "`",
	                                     "'",
	                                     "+",
	                                     "&",
	                                     "=",
	                                     ";",
	                                     " ",
	                                     "\\",
	                                     "\x7f",
	                                     "\xff",
	                                     "\xef\xbd\x81",
	                                     "\xe2\x80\x8d",
	                                     "example.com"};
	uint64_t seed = 1234567;
	size_t taken = 0;
	for (int round = 0; round < 60000; round++) {
		CLEANUP(buf_release) struct buf in = {0}, out = {0}, again = {0};
		buf_str(&in, round % 8 ? STR("http://a") : STR(""));
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		for (uint64_t count = (seed >> 33) % 8; count > 0; count--) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			buf_str(&in, str_of(pieces[(seed >> 33) % ARRAY_LEN(pieces)]));
		}
		if (canonicalize(buf_view(&in), &out) != 0)
			continue;
		taken++;
		assert_safe(buf_view(&out));
		if (canonicalize(buf_view(&out), &again) != 0 || !str_eq(buf_view(&out), buf_view(&again)))
			fail_msg("%.*s gave %.*s, which gave %.*s %s", STR_ARG(buf_view(&in)),
			         STR_ARG(buf_view(&out)), STR_ARG(buf_view(&again)), err.text);
	}
	assert_true(taken > 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scheme_and_host_are_lowered_and_defaults_dropped),
	    cmocka_unit_test(white_space_around_is_trimmed),
	    cmocka_unit_test(query_and_fragment_are_kept),
	    cmocka_unit_test(dot_segments_are_removed_even_when_escaped),
	    cmocka_unit_test(bytes_are_escaped_when_they_must_be_and_only_then),
	    cmocka_unit_test(international_names_become_a_labels),
	    cmocka_unit_test(addresses_have_one_spelling),
	    cmocka_unit_test(odd_spellings_of_addresses_are_refused),
	    cmocka_unit_test(only_http_and_https_are_taken),
	    cmocka_unit_test(hosts_that_are_no_names_are_refused),
	    cmocka_unit_test(long_hosts_are_refused),
	    cmocka_unit_test(ports_are_numbers_from_1_to_65535),
	    cmocka_unit_test(user_info_is_refused),
	    cmocka_unit_test(stray_bytes_are_refused_and_located),
	    cmocka_unit_test(malformed_utf_8_is_refused),
	    cmocka_unit_test(malformed_escapes_are_refused),
	    cmocka_unit_test(links_to_ourselves_are_refused),
	    cmocka_unit_test(without_rules_every_host_will_do),
	    cmocka_unit_test(a_url_has_at_most_8_kib_before_and_after),
	    cmocka_unit_test(the_result_is_appended),
	    cmocka_unit_test(memory_that_runs_out_leaves_the_buffer_as_it_was),
	    cmocka_unit_test(what_a_sentence_repeats_is_short_and_printable),
	    cmocka_unit_test(whatever_is_taken_is_safe_and_gives_itself),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
