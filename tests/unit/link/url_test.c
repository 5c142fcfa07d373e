#include "base/utf8.h"
#include "lib/test.h"
#include "link/url.h"

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
		if (c <= 0x20 || c >= 0x7f || strchr("<>", c))
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
	assert_true(utf8_is_printable(str_of(err.text)));
}

struct row {
	const char *in;
	const char *out;
};

static void assert_all_refused(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_refused(str_of(rows[i].in), rows[i].out);
}

TEST(the_serialisation_is_that_of_the_standard)
{
	static const struct row rows[] = {
	    /* scheme, slashes, ends */
	    {"http://example.com", "http://example.com/"},
	    {"HTTP://EXAMPLE.com/Path", "http://example.com/Path"},
	    {"https:example.com", "https://example.com/"},
	    {"https:/example.com/x", "https://example.com/x"},
	    {"https:////example.com", "https://example.com/"},
	    {"https:\\\\example.com\\a\\b", "https://example.com/a/b"},
	    {" \t\r\n\v\fhttp://a.example/x \n\t ", "http://a.example/x"},
	    {"ht\ntp://a.exa\tmple/x\r\ny", "http://a.example/xy"},
	    /* port */
	    {"hTTps://Example.Com:443/", "https://example.com/"},
	    {"http://example.com:80", "http://example.com/"},
	    {"https://example.com:80/", "https://example.com:80/"},
	    {"http://example.com:00081/", "http://example.com:81/"},
	    {"http://example.com:/", "http://example.com/"},
	    {"http://example.com:0/", "http://example.com:0/"},
	    {"http://example.com:65535/", "http://example.com:65535/"},
	    /* names */
	    {"http://example.com./a", "http://example.com./a"},
	    {"http://a_b.-example-/", "http://a_b.-example-/"},
	    {"http://a%41,b.example/", "http://aa,b.example/"},
	    {"http://xn--a.example/", "http://xn--a.example/"},
	    {"http://1.2.3.4.example/", "http://1.2.3.4.example/"},
	    {"http://@a.example/", "http://a.example/"},
	    {"http://:@a.example/", "http://a.example/"},
	    /* international names */
	    {"http://M\xc3\x9cNCHEN.EXAMPLE/", "http://xn--mnchen-3ya.example/"},
	    {"http://mu\xcc\x88nchen.example/", "http://xn--mnchen-3ya.example/"},
	    {"http://fa\xc3\x9f.de/", "http://xn--fa-hia.de/"},
	    {"http://FA\xe1\xba\x9e.de/", "http://xn--fa-hia.de/"},
	    {"http://\xe2\x98\x83.net/", "http://xn--n3h.net/"},
	    {"http://\xe1\x82\xa0.example/", "http://xn--rkj.example/"},
	    {"http://lo\xe1\xa0\x8eok.example/", "http://look.example/"},
	    {"http://\xe4\xbe\x8b\xe3\x81\x88\xe3\x80\x82jp/", "http://xn--r8jz45g.jp/"},
	    {"http://\xef\xbd\x85xample.com/", "http://example.com/"},
	    /* addresses */
	    {"http://192.0.2.1./", "http://192.0.2.1/"},
	    {"http://0x7f.1/", "http://127.0.0.1/"},
	    {"http://0177.0.0.01/", "http://127.0.0.1/"},
	    {"http://2130706433/", "http://127.0.0.1/"},
	    {"http://a.0x./", NULL},
	    {"http://0x/", "http://0.0.0.0/"},
	    {"http://\xef\xbc\x91.2.3.4/", "http://1.2.3.4/"},
	    {"http://[2001:DB8:0:0:0:0:0:1]/", "http://[2001:db8::1]/"},
	    {"http://[1:0:0:2:0:0:0:3]/", "http://[1:0:0:2::3]/"},
	    {"http://[1:0:2:0:3:0:4:0]/", "http://[1:0:2:0:3:0:4:0]/"},
	    {"http://[1::]:81/", "http://[1::]:81/"},
	    {"http://[::]:80/", "http://[::]/"},
	    {"http://[::ffff:192.0.2.1]?x", "http://[::ffff:c000:201]/?x"},
	    /* path */
	    {"http://h/a/b/c/./../../g", "http://h/a/g"},
	    {"http://h/../..//x", "http://h//x"},
	    {"http://h/a/.", "http://h/a/"},
	    {"http://h/a/b/..", "http://h/a/"},
	    {"http://h/a/..", "http://h/"},
	    {"http://h/a/%2e%2E/b/%2e/c/.%2e", "http://h/b/"},
	    {"http://h/a//../b", "http://h/a/b"},
	    {"http://h/.../.a/..b/c.", "http://h/.../.a/..b/c."},
	    {"http://h\\a\\..\\b", "http://h/b"},
	    {"http://h/a%2F..%2Fb", "http://h/a%2F..%2Fb"},
	    /* query and fragment */
	    {"http://a.example?q#f", "http://a.example/?q#f"},
	    {"http://a.example/p?#", "http://a.example/p?#"},
	    {"http://a.example/p?a=/../x#d?e/../f#g", "http://a.example/p?a=/../x#d?e/../f#g"},
	    {"http://a.example?u=http://user@b.example:99/", "http://a.example/?u=http://user@b.example:99/"},
	    /* encoding */
	    {"http://h/\xc3\xa4?\xc3\xb6#\xe2\x82\xac", "http://h/%C3%A4?%C3%B6#%E2%82%AC"},
	    {"http://h/ \"<>^`{|}[]'", "http://h/%20%22%3C%3E%5E%60%7B|%7D[]'"},
	    {"http://h/? \"<>^`{|}[]'\\", "http://h/?%20%22%3C%3E^`{|}[]%27\\"},
	    {"http://h/# \"<>^`{|}[]'\\", "http://h/#%20%22%3C%3E^%60{|}[]'\\"},
	    {"http://h/foo%41%7a%c3%a4%2f?%41#%41", "http://h/foo%41%7a%c3%a4%2f?%41#%41"},
	    {"http://h/100%/%4/%zz?%g1#%", "http://h/100%/%4/%zz?%g1#%"},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].out)
			assert_gives(str_of(rows[i].in), rows[i].out);
		else
			assert_refused(str_of(rows[i].in), "");
	}
}

TEST(what_no_browser_takes_is_refused)
{
	static const struct row rows[] = {
	    {"", "empty"},
	    {" \n ", "empty"},
	    {"ftp://a.example/", "must begin with http:// or https://, not 'ftp:'"},
	    {"//a.example/", "write 'https://a.example/' if you mean that"},
	    {"JAVASCRIPT://a.example/%0aalert(1)", "not 'JAVASCRIPT:'"},
	    {"://a/", "not ':'"},
	    {"ht tp://a.example/", "not 'ht tp:'"},
	    {"example.com/page", "'https://example.com/page'"},
	    {"https:", "no host"},
	    {"http:///", "no host"},
	    {"http://?x", "no host"},
	    {"http://:80/", "no host"},
	    {"http://@/", "no host"},
	    {"http://\xc2\xad/", "no host"},
	    {"http://a b/", "a character that no host has"},
	    {"http://a%20b/", "a character that no host has"},
	    {"http://a<b/", "a character that no host has"},
	    {"http://a%/", "a character that no host has"},
	    {"http://a%00b/", "a character that no host has"},
	    {"http://a|b^/", "a character that no host has"},
	    {"http://a\xef\xbc\x8f"
	     "b.example/",
	     "a character that no host has"}, /* a full-width slash */
	    {"http://\xe2\x80\xaexa.example/", "not a valid international name"},
	    {"http://%ff.example/", "not a valid international name"},
	    {"http://1.2.3.4.5/", "not an IPv4 address"},
	    {"http://256.0.0.1/", "not an IPv4 address"},
	    {"http://1.2.3.256/", "not an IPv4 address"},
	    {"http://1.16777216/", "not an IPv4 address"},
	    {"http://4294967296/", "not an IPv4 address"},
	    {"http://1..2/", "not an IPv4 address"},
	    {"http://08.1/", "not an IPv4 address"},
	    {"http://a.example.1/", "not an IPv4 address"},
	    {"http://[]/", "not an IPv6 address"},
	    {"http://[::1/", "not an IPv6 address"},
	    {"http://[::1]x/", "not an IPv6 address"},
	    {"http://[fe80::1%25eth0]/", "without a zone"},
	    {"http://[1.2.3.4]/", "not an IPv6 address"},
	    {"http://2001:db8::1/", "not a number"},
	    {"http://a:65536/", "0 to 65535"},
	    {"http://a:-1/", "0 to 65535"},
	    {"http://a:80a/", "0 to 65535"},
	    {"http://[::1]:x/", "0 to 65535"},
	    {"http://a:99999999999999999999/", "0 to 65535"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
}

TEST(policy_refuses_credentials_and_controls)
{
	static const struct row rows[] = {
	    {"http://user@a.example/", "user name or password"},
	    {"http://user:pass@a.example/", "user name or password"},
	    {"http://:pass@a.example/", "user name or password"},
	    {"http://good.example@evil.example", "user name or password"},
	    {"http://a@b@c/", "user name or password"},
	    {"http://a.example/\x1b[0m", "control character at byte 18"},
	    {"http://a.example/\x7f", "control character"},
	    {"http://a.example/\xc2\x85", "control character"},
	};
	assert_all_refused(rows, ARRAY_LEN(rows));
	assert_refused(STR("http://a.example/\0x"), "control character at byte 18");
}

TEST(a_host_may_be_as_long_as_a_url)
{
	CLEANUP(buf_release) struct buf in = {0}, out = {0};
	buf_str(&in, STR("http://"));
	for (int i = 0; i < 1000; i++)
		buf_str(&in, STR("abc."));
	assert_int_equal(canonicalize(buf_view(&in), &out), 0);
	in.len = 7;
	for (int i = 0; i < 4000; i++)
		buf_str(&in, STR("\xc3\xa4"));
	out.len = 0;
	int r = canonicalize(buf_view(&in), &out); /* Punycode makes it longer or shorter */
	assert_true(r == 0 || r == ERR_INVALID);
}

TEST(malformed_utf_8_is_refused)
{
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

TEST(links_to_ourselves_are_refused)
{
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
	    {"http://0x7f.1:8080/", "points back"},
	    {"http://localhost.:8080/", "points back"},
	    {"https:/\\s.example./", "points back"},
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

TEST(without_rules_every_host_will_do)
{
	CLEANUP(buf_release) struct buf out = {0};
	assert_int_equal(url_canonicalize(STR("http://s.example/"), NULL, &out, NULL), 0);
	assert_int_equal(url_canonicalize(STR("http://s.example/"), &rules, &out, NULL), ERR_INVALID);
}

TEST(a_url_has_at_most_8_kib_before_and_after)
{
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
	assert_refused(buf_view(&in), "8193 bytes; it may have 8192");
	in.len = URL_BYTES_MAX - 1;
	buf_char(&in, '"');
	assert_refused(buf_view(&in), "8194 bytes once it is percent-encoded");
}

TEST(the_result_is_appended)
{
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&out, STR("Location: "));
	assert_int_equal(canonicalize(STR("http://A/../b"), &out), 0);
	assert_true(str_eq(buf_view(&out), STR("Location: http://a/b")));
	out.failed = true;
	assert_int_equal(canonicalize(STR("http://A/"), &out), ERR_NOMEM);
	out.failed = false;
}

TEST(memory_that_runs_out_leaves_the_buffer_as_it_was)
{
	char byte = 'x';
	struct buf full = {.data = &byte, .len = SIZE_MAX - 4, .cap = SIZE_MAX - 4}; /* cannot grow */
	assert_int_equal(canonicalize(STR("http://a.example/"), &full), ERR_NOMEM);
	assert_true(full.len == SIZE_MAX - 4);
	assert_false(full.failed);
	assert_non_null(strstr(err.text, "memory"));
}

TEST(what_a_sentence_repeats_is_short_and_printable)
{
	CLEANUP(buf_release) struct buf in = {0}, out = {0};
	for (int i = 0; i < 300; i++)
		buf_str(&in, STR("\xc3\xa4"));
	buf_str(&in, STR("://x/"));
	assert_int_equal(canonicalize(buf_view(&in), &out), ERR_INVALID);
	assert_non_null(strstr(err.text, "'\xc3\xa4\xc3\xa4"));
	assert_true(strlen(err.text) < 200);
}

/* Pieces of URLs put together at random: whatever is taken is safe, and canonical for good. */
TEST(whatever_is_taken_is_safe_and_gives_itself)
{
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

TEST_MAIN()
