#include "http/request.h"
#include "lib/test.h"

static const struct http_limits limits = {
    .line_bytes_max = 8192,
    .headers_bytes_max = 32768,
    .headers_max = 100,
    .body_bytes_max = 1 << 20,
};

static struct http_request req;
static const char *reason;

/* The parser sees a block of exactly `len` bytes, so that the sanitizer sees a look beyond. */
static int parse_exact(const char *data, size_t len, const struct http_limits *l)
{
	char *copy = malloc(len ? len : 1);
	assert_non_null(copy);
	memcpy(copy, data, len);
	reason = NULL;
	int verdict = http_parse_head(copy, len, l, &req, &reason);
	if (verdict < 0)
		assert_non_null(reason);
	else
		assert_null(reason);
	free(copy);
	return verdict;
}

/* Parses in place, for tests that look at the strings in `req`. */
static int parse(struct str s)
{
	return http_parse_head(s.ptr, s.len, &limits, &req, &reason);
}

#define assert_str(s, lit)                                            \
	do {                                                          \
		struct str have_ = (s);                               \
		assert_non_null(have_.ptr);                           \
		assert_int_equal(have_.len, sizeof(lit) - 1);         \
		assert_memory_equal(have_.ptr, lit, sizeof(lit) - 1); \
	} while (0)

/* Bytes that come one by one are judged as if they came at once. */
static int verdict_of_all_prefixes(struct str s, const struct http_limits *l)
{
	int whole = parse_exact(s.ptr, s.len, l);
	const char *whole_reason = reason;
	bool said = false;
	for (size_t len = 0; len <= s.len; len++) {
		int verdict = parse_exact(s.ptr, len, l);
		if (said || verdict != HTTP_PARSE_MORE) {
			assert_int_equal(verdict, whole);
			assert_ptr_equal(reason, whole_reason);
			assert_true(verdict <= (int)len);
			said = true;
		}
	}
	return whole;
}

/* ---- the table ---- */

#define HOST "Host: a.example\r\n"

struct row {
	struct str bytes;
	int verdict; /* 0: taken whole; the negated status; 1: more is needed */
};

#define GOOD(lit)           \
	{                   \
		STR(lit), 0 \
	}
#define BAD(status, lit)            \
	{                           \
		STR(lit), -(status) \
	}
#define PART(lit)           \
	{                   \
		STR(lit), 1 \
	}

static const struct row rows[] = {
    GOOD("GET / HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("GET / HTTP/1.0\r\n\r\n"),
    GOOD("GET / HTTP/1.0\r\n" HOST "\r\n"),
    GOOD("\r\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n"),
    GOOD("GET /abc1234 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"),
    GOOD("GET /a?b=c&d=%20|{}\"<>\\^` HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("HEAD / HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "Content-Length: 12\r\n\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "content-length:0\r\n\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "Content-Length: 00044\r\n\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "TRANSFER-ENCODING:\tChunked \t\r\n\r\n"),
    GOOD("POST /event HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\n\r\n"),
    GOOD("POST /event HTTP/1.0\r\n" HOST "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"),
    GOOD("M-SEARCH / HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("get / HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("!#$%&'*+-.^_`|~09AZaz / HTTP/1.1\r\n" HOST "!#$%&'*+-.^_`|~09AZaz: x\r\n\r\n"),
    GOOD("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("OPTIONS http://b.example HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("GET http://b.example/p?q HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("GET HTTPS://b.example:443 HTTP/1.1\r\n" HOST "\r\n"),
    GOOD("GET http://[::1]:8080?q HTTP/1.0\r\n\r\n"),
    GOOD("GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n"),
    GOOD("GET / HTTP/1.1\r\nHost: [::ffff:1.2.3.4]\r\n\r\n"),
    GOOD("GET / HTTP/1.1\r\nHost:a_b-c.Example:65535\r\n\r\n"),
    GOOD("GET / HTTP/1.1\r\n" HOST "Empty:\r\nSpaces:   \t  \r\nTab: a\tb\r\nText: \x80\xff\r\n\r\n"),
    GOOD("GET / HTTP/1.1\r\n" HOST "Connection: close, , upgrade\r\nConnection: keep-alive\r\n\r\n"),
    GOOD("GET / HTTP/1.1\r\nA: 1\r\nA: 2\r\n" HOST "\r\n"),
    GOOD("GET // HTTP/1.1\r\n" HOST "\r\n"),

    PART(""),
    PART("\r"),
    PART("\r\n"),
    PART("GET / HTTP/1.1\r\n"),
    PART("GET / HTTP/1.1\r\n" HOST),
    PART("GET / HTTP/1.1\r\n" HOST "\r"),
    PART("\x16\x03\x01\x02"), /* judged once its line is there */

    /* line ends */
    BAD(400, "GET / HTTP/1.1\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a.example\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "\rX"),
    BAD(400, "GET / HTTP/1.1\r\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a\r.example\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\r\r\n\r\n"),
    BAD(400, "GET /\r HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "\rGET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n"),

    /* request line */
    BAD(400, "GET  / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET /  HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1 \r\n" HOST "\r\n"),
    BAD(400, " GET / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, " / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET /\tHTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET / a HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET /\r\n\r\n"),
    BAD(400, "GET\r\n\r\n"),
    BAD(400, "GET \r\n\r\n"),
    BAD(400, "GET / \r\n\r\n"),
    BAD(400, "GET  HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "G(T / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "G\0T / HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "/ HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "\x16\x03\x01\x02\r\n"),
    BAD(400, "GET / http/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1x\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/11.1\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1.10\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1,1\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/x.1\r\n" HOST "\r\n"),
    BAD(400, "GET / HTTP/1.x\r\n" HOST "\r\n"),
    BAD(400, "GET / XTTP/1.1\r\n" HOST "\r\n"),
    BAD(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    BAD(505, "GET / HTTP/2.0\r\n" HOST "\r\n"),
    BAD(505, "GET / HTTP/9.9\r\n" HOST "\r\n"),
    BAD(505, "GET / HTTP/0.9\r\n" HOST "\r\n"),
    BAD(505, "GET / HTTP/1.2\r\n" HOST "\r\n"),

    /* target */
    BAD(400, "GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET /\x7f HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET /\0 HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET a HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET ?a HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET * HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "OPTIONS ** HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET a.example:80 HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET ftp://a/b HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET http:/a HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET http:// HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET http:///a HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n"),
    BAD(400, "GET http://a:b/ HTTP/1.1\r\n" HOST "\r\n"),
    BAD(405, "CONNECT a.example:80 HTTP/1.1\r\n" HOST "\r\n"),
    BAD(405, "CONNECT / HTTP/1.1\r\n" HOST "\r\n"),

    /* host */
    BAD(400, "GET / HTTP/1.1\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nX-Host: a\r\n\r\n"),
    BAD(400, "GET http://b.example/ HTTP/1.1\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "hOST: b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.0\r\n" HOST HOST "\r\n"),
    BAD(400, "GET http://b.example/ HTTP/1.1\r\n" HOST HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a\xc3\xa4\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a:\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: :80\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a:000080\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a:-1\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: []\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: [::1]80\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: [g::1]\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: [v1.x]\r\n\r\n"),

    /* fields */
    BAD(400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "a\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "a b: c\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "a(b): c\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "\xc3\xa4: c\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "a\0b: c\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc: d\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n " HOST "\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\0c\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" HOST "A: b\x1b[0m\r\n\r\n"),

    /* framing */
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1,\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1 1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked;a=b\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n"),
    BAD(417, "POST / HTTP/1.1\r\n" HOST "Expect: 200-maybe\r\n\r\n"),
    BAD(417, "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue, x\r\n\r\n"),
    BAD(417, "POST / HTTP/1.1\r\n" HOST "Expect:\r\n\r\n"),
};

TEST(each_request_of_the_table_gets_its_verdict)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int want = rows[i].verdict == 0   ? (int)rows[i].bytes.len
		           : rows[i].verdict == 1 ? HTTP_PARSE_MORE
		                                  : rows[i].verdict;
		int have = parse_exact(rows[i].bytes.ptr, rows[i].bytes.len, &limits);
		if (have != want)
			fail_msg("verdict %d instead of %d for: %.*s", have, want, STR_ARG(rows[i].bytes));
	}
}

TEST(the_verdict_does_not_depend_on_how_the_bytes_arrive)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		verdict_of_all_prefixes(rows[i].bytes, &limits);
}

TEST(what_follows_the_head_changes_neither_verdict_nor_length)
{
	static const char tails[][8] = {"", "GET / H", "\r\n\r\n", "\n", " ", "\0\0\0"};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int alone = parse_exact(rows[i].bytes.ptr, rows[i].bytes.len, &limits);
		if (alone == HTTP_PARSE_MORE)
			continue;
		for (size_t t = 0; t < ARRAY_LEN(tails); t++) {
			char data[512];
			assert_true(rows[i].bytes.len + sizeof(tails[t]) <= sizeof(data));
			memcpy(data, rows[i].bytes.ptr, rows[i].bytes.len);
			memcpy(data + rows[i].bytes.len, tails[t], sizeof(tails[t]));
			assert_int_equal(parse_exact(data, rows[i].bytes.len + sizeof(tails[t]), &limits),
			                 alone);
		}
	}
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Requests that nobody thought of: rows with a few bytes changed, dropped, doubled, under tight limits. */
TEST(mutated_requests_get_one_verdict_however_they_arrive)
{
	static const char spice[] = "\r\n\r\n \t:,#?*/%\0\x7f\x80\xff"
	                            "0129aZ-_.[]HTTP";
	const struct http_limits tight = {.line_bytes_max = 20, .headers_bytes_max = 40, .headers_max = 2};
	uint64_t seed = 88172645463325252ULL;
	size_t taken = 0, refused = 0;
	for (int round = 0; round < 20000; round++) {
		const struct row *row = &rows[random_next(&seed) % ARRAY_LEN(rows)];
		char data[512];
		size_t len = row->bytes.len;
		memcpy(data, row->bytes.ptr, len);
		for (uint64_t changes = random_next(&seed) % 4; changes > 0 && len > 1; changes--) {
			size_t at = random_next(&seed) % len;
			switch (random_next(&seed) % 3) {
			case 0: data[at] = spice[random_next(&seed) % (sizeof(spice) - 1)]; break;
			case 1: memmove(data + at, data + at + 1, --len - at); break;
			default: memmove(data + at + 1, data + at, len++ - at); break;
			}
		}
		int verdict = verdict_of_all_prefixes(str_n(data, len), round % 2 ? &limits : &tight);
		taken += verdict > 0;
		refused += verdict < 0;
	}
	assert_true(taken > 1000);
	assert_true(refused > 1000);
}

TEST(a_refusal_says_what_is_wrong)
{
	static const struct {
		struct str bytes;
		const char *word;
	} refusals[] = {
	    {STR("GET / HTTP/1.1\n"), "CR LF"},
	    {STR("GET / HTTP/1.1\r\nA: b\n"), "CR LF"},
	    {STR("GET / HTTP/1.1\r\n\rA"), "followed by LF"},
	    {STR("G:T / HTTP/1.1\r\n"), "method"},
	    {STR("GET /# HTTP/1.1\r\n"), "target"},
	    {STR("GET /\r\n"), "HTTP/1.1"},
	    {STR("GET / HTTP/1.1\r\n A: b\r\n"), "folded"},
	    {STR("GET / HTTP/1.1\r\n\tA: b\r\n"), "folded"},
	    {STR("GET / HTTP/1.1\r\nA : b\r\n"), "before the colon"},
	    {STR("GET / HTTP/1.1\r\nA\t: b\r\n"), "before the colon"},
	    {STR("GET / HTTP/1.1\r\nA\r\n"), "a name, a colon"},
	    {STR("GET / HTTP/1.1\r\n:b\r\n"), "a name, a colon"},
	    {STR("GET / HTTP/1.1\r\nA(b)\r\n"), "a name, a colon"},
	    {STR("GET / HTTP/1.1\r\nA: b\x01\r\n"), "control"},
	    {STR("GET / HTTP/1.1\r\nA: b\r\r\n"), "control"},
	    {STR("GET / HTTP/1.1\r\n\r\n"), "Host field is missing"},
	    {STR("GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "together"},
	};
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		assert_int_equal(parse_exact(refusals[i].bytes.ptr, refusals[i].bytes.len, &limits), -400);
		if (!strstr(reason, refusals[i].word))
			fail_msg("'%s' is not in '%s' for: %.*s", refusals[i].word, reason,
			         STR_ARG(refusals[i].bytes));
	}
}

/* ---- bytes in their places ---- */

static bool is_alnum(int c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool may_be_in_name(int c)
{
	return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool may_be_in_value(int c)
{
	return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static bool may_be_in_target(int c)
{
	return c > 0x20 && c < 0x7f && c != '#';
}

/* Puts `byte` behind `before` letters and before `after` letters, at the mark '@' of the frame. */
static int verdict_with_byte(const char *frame, int byte, size_t before, size_t after)
{
	char data[512];
	size_t len = 0;
	for (const char *p = frame; *p; p++) {
		if (*p != '@') {
			data[len++] = *p;
			continue;
		}
		memset(data + len, 'x', before);
		len += before;
		data[len++] = (char)byte;
		memset(data + len, 'x', after);
		len += after;
	}
	int verdict = parse_exact(data, len, &limits);
	return verdict == (int)len ? 1 : verdict;
}

/* All byte values, at offsets around the 16 bytes that are scanned at once. */
TEST(every_byte_is_allowed_exactly_where_the_grammar_has_it)
{
	for (int c = 0; c < 256; c++) {
		for (size_t before = 1; before < 36; before++) {
			for (size_t after = 1; after < 36; after += 17) {
				int name = verdict_with_byte("GET / HTTP/1.0\r\n@:v\r\n\r\n", c, before,
				                             after);
				int value = verdict_with_byte("GET / HTTP/1.0\r\nn: @\r\n\r\n", c, before,
				                              after);
				int target = verdict_with_byte("GET /@ HTTP/1.0\r\n\r\n", c, before, after);
				int method = verdict_with_byte("@ / HTTP/1.0\r\n\r\n", c, before, after);
				assert_int_equal(name, may_be_in_name(c) || c == ':' ? 1 : -400);
				assert_int_equal(value, may_be_in_value(c) ? 1 : -400);
				assert_int_equal(target, may_be_in_target(c) ? 1 : -400);
				assert_int_equal(method, may_be_in_name(c) ? 1 : -400);
			}
		}
	}
}

TEST(a_host_has_only_the_bytes_of_names)
{
	for (int c = 0; c < 256; c++) {
		bool fine = is_alnum(c) || (c && strchr("-._~", c));
		assert_int_equal(verdict_with_byte("GET / HTTP/1.1\r\nHost: @\r\n\r\n", c, 1, 1),
		                 fine ? 1 : -400);
		assert_int_equal(verdict_with_byte("GET http://@/ HTTP/1.0\r\n\r\n", c, 1, 1),
		                 fine || c == '/' || c == '?' ? 1 : -400);
	}
}

/* ---- what is read out ---- */

TEST(the_parts_of_a_request_are_found)
{
	int len = parse(
	    STR("PATCH /a/b%20c?x=1&y=?/2 HTTP/1.1\r\nHost: s.example:8080\r\n"
	        "X-One:  first value \t\r\nx-one: second\r\nEmpty:\r\nContent-Length: 7\r\n\r\nbody"));
	assert_int_equal(len, 124);
	assert_int_equal(req.method, HTTP_PATCH);
	assert_int_equal(req.minor_version, 1);
	assert_str(req.target, "/a/b%20c?x=1&y=?/2");
	assert_str(req.path, "/a/b%20c");
	assert_str(req.query, "x=1&y=?/2");
	assert_str(req.host, "s.example:8080");
	assert_true(req.has_body);
	assert_false(req.chunked);
	assert_int_equal(req.content_length, 7);
	assert_int_equal(req.field_count, 5);
	assert_str(req.fields[1].name, "X-One");
	assert_str(req.fields[1].value, "first value");
	assert_str(http_request_field(&req, STR("x-one")), "first value");
	assert_str(http_request_field(&req, STR("empty")), "");
	assert_null(http_request_field(&req, STR("x-two")).ptr);
}

TEST(what_an_earlier_request_left_does_not_leak_into_the_next)
{
	memset(&req, 0xff, sizeof(req));
	assert_true(parse(STR("GET /a HTTP/1.0\r\n\r\n")) > 0);
	assert_null(req.query.ptr);
	assert_null(req.host.ptr);
	assert_int_equal(req.field_count, 0);
	assert_int_equal(req.content_length, 0);
	assert_false(req.chunked);
	assert_false(req.has_body);
	assert_false(req.keep_alive);
	assert_false(req.expect_continue);
}

TEST(methods_are_known_by_name_and_case)
{
	static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char data[64];
		int len = snprintf(data, sizeof(data), "%s / HTTP/1.0\r\n\r\n", names[i]);
		assert_int_equal(parse(str_n(data, (size_t)len)), len);
		assert_string_equal(http_method_name(req.method), names[i]);
		data[1] = (char)(data[1] | 0x20);
		assert_int_equal(parse(str_n(data, (size_t)len)), len);
		assert_int_equal(req.method, HTTP_METHOD_OTHER);
	}
}

TEST(a_query_may_be_empty_or_absent)
{
	assert_true(parse(STR("GET /a? HTTP/1.0\r\n\r\n")) > 0);
	assert_str(req.path, "/a");
	assert_str(req.query, "");
	assert_true(parse(STR("GET /a HTTP/1.0\r\n\r\n")) > 0);
	assert_str(req.path, "/a");
	assert_null(req.query.ptr);
}

TEST(the_authority_of_an_absolute_target_overrides_host)
{
	assert_true(parse(STR("GET http://b.example:81/p?q HTTP/1.1\r\n" HOST "\r\n")) > 0);
	assert_str(req.host, "b.example:81");
	assert_str(req.path, "/p");
	assert_str(req.query, "q");
	assert_str(req.target, "http://b.example:81/p?q");
	assert_true(parse(STR("GET http://b.example HTTP/1.0\r\n\r\n")) > 0);
	assert_str(req.host, "b.example");
	assert_str(req.path, "/");
	assert_null(req.query.ptr);
	assert_true(parse(STR("GET http://b.example?q HTTP/1.0\r\n\r\n")) > 0);
	assert_str(req.path, "/");
	assert_str(req.query, "q");
}

TEST(options_may_ask_about_the_whole_server)
{
	assert_true(parse(STR("OPTIONS * HTTP/1.1\r\n" HOST "\r\n")) > 0);
	assert_str(req.path, "*");
	assert_null(req.query.ptr);
	assert_true(parse(STR("OPTIONS http://b.example HTTP/1.1\r\n" HOST "\r\n")) > 0);
	assert_str(req.path, "*");
	assert_true(parse(STR("OPTIONS http://b.example/ HTTP/1.1\r\n" HOST "\r\n")) > 0);
	assert_str(req.path, "/");
}

static bool keeps_alive(const char *version, const char *fields)
{
	char data[256];
	int len = snprintf(data, sizeof(data), "GET / HTTP/%s\r\n" HOST "%s\r\n", version, fields);
	assert_int_equal(parse(str_n(data, (size_t)len)), len);
	return req.keep_alive;
}

TEST(a_connection_is_kept_as_version_and_fields_say)
{
	assert_true(keeps_alive("1.1", ""));
	assert_true(keeps_alive("1.1", "Connection: upgrade\r\n"));
	assert_true(keeps_alive("1.1", "Connection: closed, xclose\r\n"));
	assert_false(keeps_alive("1.1", "Connection: close\r\n"));
	assert_false(keeps_alive("1.1", "CONNECTION: foo ,\tCLOSE\t, bar\r\n"));
	assert_false(keeps_alive("1.1", "Connection: foo\r\nConnection: close\r\n"));
	assert_false(keeps_alive("1.1", "Connection: close\r\nConnection: keep-alive\r\n"));
	assert_false(keeps_alive("1.0", ""));
	assert_false(keeps_alive("1.0", "Connection: upgrade\r\n"));
	assert_true(keeps_alive("1.0", "Connection: a,Keep-Alive\r\n"));
	assert_false(keeps_alive("1.0", "Connection: keep-alive, close\r\n"));
}

TEST(an_expectation_counts_for_http_1_1_only)
{
	assert_true(
	    parse(STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")) > 0);
	assert_true(req.expect_continue);
	assert_true(
	    parse(STR("POST / HTTP/1.0\r\n" HOST "Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")) > 0);
	assert_false(req.expect_continue);
}

TEST(a_body_is_announced_by_a_length_or_by_chunks)
{
	assert_true(parse(STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n")) > 0);
	assert_false(req.has_body);
	assert_true(parse(STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n")) >
	            0);
	assert_true(req.has_body);
	assert_true(req.content_length == UINT64_MAX);
	assert_true(parse(STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n")) > 0);
	assert_true(req.has_body);
	assert_true(req.chunked);
	assert_int_equal(req.content_length, 0);
}

TEST(pipelined_requests_are_taken_one_by_one)
{
	struct str both = STR("GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n");
	int first = parse(both);
	assert_int_equal(first * 2, both.len);
	assert_str(req.path, "/1");
	assert_int_equal(parse(str_n(both.ptr + first, both.len - (size_t)first)), first);
	assert_str(req.path, "/2");
}

/* ---- limits ---- */

/* A request whose line has `line_bytes` and whose fields have `fields_bytes`. */
static size_t sized_request(char *to, size_t line_bytes, size_t fields_bytes)
{
	size_t len = (size_t)sprintf(to, "GET /");
	memset(to + len, 'p', line_bytes - 14);
	len = line_bytes - 9;
	len += (size_t)sprintf(to + len, " HTTP/1.1\r\n" HOST "A: ");
	size_t value_bytes = fields_bytes - (sizeof(HOST) - 1) - 5;
	memset(to + len, 'v', value_bytes);
	len += value_bytes;
	return len + (size_t)sprintf(to + len, "\r\n\r\n");
}

TEST(a_request_line_over_its_limit_is_414_as_soon_as_that_is_certain)
{
	const struct http_limits l = {.line_bytes_max = 64, .headers_bytes_max = 100, .headers_max = 4};
	char data[512];
	size_t len = sized_request(data, 64, 50);
	assert_int_equal(verdict_of_all_prefixes(str_n(data, len), &l), len);
	len = sized_request(data, 65, 50);
	assert_int_equal(verdict_of_all_prefixes(str_n(data, len), &l), -414);
	assert_int_equal(parse_exact(data, 65, &l),
	                 HTTP_PARSE_MORE); /* CR LF of a good line could follow 64 */
	assert_int_equal(parse_exact(data, 66, &l), -414);
	memset(data, '\0', sizeof(data)); /* even if it is no request line at all */
	assert_int_equal(verdict_of_all_prefixes(str_n(data, sizeof(data)), &l), -414);
}

TEST(fields_over_their_limit_are_431_as_soon_as_that_is_certain)
{
	const struct http_limits l = {.line_bytes_max = 64, .headers_bytes_max = 100, .headers_max = 4};
	char data[512];
	size_t len = sized_request(data, 20, 100);
	assert_int_equal(verdict_of_all_prefixes(str_n(data, len), &l), len);
	len = sized_request(data, 20, 101);
	assert_int_equal(verdict_of_all_prefixes(str_n(data, len), &l), -431);
	assert_int_equal(parse_exact(data, 22 + 99, &l), HTTP_PARSE_MORE);
	assert_int_equal(parse_exact(data, 22 + 100, &l), -431);
	memset(data + 40, '\0', sizeof(data) - 40);
	assert_int_equal(verdict_of_all_prefixes(str_n(data, sizeof(data)), &l), -431);
}

TEST(more_fields_than_allowed_are_431_at_their_first_byte)
{
	const struct http_limits l = {.line_bytes_max = 64, .headers_bytes_max = 100, .headers_max = 2};
	struct str two = STR("GET / HTTP/1.1\r\n" HOST "a:b\r\n\r\n");
	assert_int_equal(verdict_of_all_prefixes(two, &l), two.len);
	struct str three = STR("GET / HTTP/1.1\r\n" HOST "a:b\r\nc");
	assert_int_equal(verdict_of_all_prefixes(three, &l), -431);
}

TEST(no_setting_allows_more_fields_than_there_is_room_for)
{
	const struct http_limits l = {
	    .line_bytes_max = UINT64_MAX, .headers_bytes_max = UINT64_MAX, .headers_max = UINT64_MAX};
	char data[4096];
	size_t len = (size_t)sprintf(data, "GET / HTTP/1.0\r\n");
	for (int i = 0; i < HTTP_FIELDS_MAX; i++)
		len += (size_t)sprintf(data + len, "a:%d\r\n", i);
	memcpy(data + len, "\r\n", 2);
	assert_int_equal(parse_exact(data, len + 2, &l), len + 2);
	assert_int_equal(req.field_count, HTTP_FIELDS_MAX);
	memcpy(data + len, "b:c\r\n\r\n", 7);
	assert_int_equal(parse_exact(data, len + 7, &l), -431);
}

/* ---- helpers for handlers ---- */

TEST(a_query_parameter_is_found_by_its_whole_name)
{
	struct str query = STR("a=1&ab=2&flag&empty=&b=x=y%26&a=3");
	assert_str(http_query_param(query, STR("a")), "1");
	assert_str(http_query_param(query, STR("ab")), "2");
	assert_str(http_query_param(query, STR("flag")), "");
	assert_str(http_query_param(query, STR("empty")), "");
	assert_str(http_query_param(query, STR("b")), "x=y%26");
	assert_null(http_query_param(query, STR("A")).ptr);
	assert_null(http_query_param(query, STR("x")).ptr);
	assert_null(http_query_param(STR_NULL, STR("a")).ptr);
	assert_null(http_query_param(STR(""), STR("a")).ptr);
}

TEST_MAIN()
