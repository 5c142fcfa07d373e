#include "http/chunked.h"
#include "lib/test.h"

enum { BODY_MAX = 64 };

/* What came of feeding a whole input in pieces. */
struct outcome {
	ssize_t verdict; /* bytes taken in all, or the negated status */
	const char *reason;
	bool done;
	struct buf body;
};

static void outcome_release(struct outcome *o)
{
	buf_release(&o->body);
}

/* Feeds pieces of `piece` bytes (0: cut at random), each in a block of its own size. */
static struct outcome feed(struct str in, size_t piece, uint64_t body_bytes_max)
{
	struct http_chunked c;
	struct outcome o = {0};
	size_t at = 0;
	uint32_t seed = (uint32_t)in.len * 2654435761U + 1;
	http_chunked_init(&c);
	while (at < in.len && !c.done) {
		seed = seed * 1664525U + 1013904223U;
		size_t len = MIN(piece ? piece : 1 + (seed >> 16) % 7, in.len - at);
		char *copy = malloc(len);
		assert_non_null(copy);
		memcpy(copy, in.ptr + at, len);
		ssize_t taken = http_chunked_feed(&c, copy, len, body_bytes_max, &o.body, &o.reason);
		free(copy);
		if (taken < 0) {
			o.verdict = taken;
			return o;
		}
		assert_true((size_t)taken == len || c.done);
		at += (size_t)taken;
	}
	o.verdict = (ssize_t)at;
	o.done = c.done;
	return o;
}

static ssize_t verdict_max(struct str in, uint64_t body_bytes_max)
{
	CLEANUP(outcome_release) struct outcome o = feed(in, SIZE_MAX, body_bytes_max);
	return o.verdict;
}

static ssize_t verdict(struct str in)
{
	return verdict_max(in, BODY_MAX);
}

/* ---- the table ---- */

struct row {
	struct str in;
	int status; /* 0: fine so far */
	bool done;
	const char *body; /* when fine */
};

static const struct row rows[] = {
    {STR("0\r\n\r\n"), 0, true, ""},
    {STR("5\r\nhello\r\n0\r\n\r\n"), 0, true, "hello"},
    {STR("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"), 0, true, "hello world"},
    {STR("a\r\n0123456789\r\n0\r\n\r\n"), 0, true, "0123456789"},
    {STR("A\r\n0123456789\r\n0\r\n\r\n"), 0, true, "0123456789"},
    {STR("0000000000000001\r\nx\r\n0000000000000000\r\n\r\n"), 0, true, "x"},
    {STR("2\r\n\r\n\r\n0\r\n\r\n"), 0, true, "\r\n"},
    {STR("1;a\r\nx\r\n0;b\r\n\r\n"), 0, true, "x"},
    {STR("1;a=b;c;d=\"e;\\\"\t\x80\r\"\r\nx\r\n0\r\n\r\n"), -400, false, NULL},
    {STR("1;a=b;c;d=\"e;\\\"\t\x80\"\r\nx\r\n0\r\n\r\n"), 0, true, "x"},
    {STR("1;a=\"\";b=c\r\nx\r\n0\r\n\r\n"), 0, true, "x"},
    {STR("0\r\nA: b\r\nC:\r\nD: \t\x80 \r\n\r\n"), 0, true, ""},
    {STR("0\r\nContent-Length: 5\r\n\r\n"), 0, true, ""},

    {STR(""), 0, false, ""},
    {STR("5"), 0, false, ""},
    {STR("5\r\nhel"), 0, false, "hel"},
    {STR("5\r\nhello\r"), 0, false, "hello"},
    {STR("0\r\n"), 0, false, ""},
    {STR("0\r\nA: b\r\n\r"), 0, false, ""},

    /* sizes */
    {STR("\r\n"), -400, false, NULL},
    {STR("g\r\n"), -400, false, NULL},
    {STR("-1\r\n"), -400, false, NULL},
    {STR("+1\r\n"), -400, false, NULL},
    {STR("0x1\r\n"), -400, false, NULL},
    {STR(" 1\r\n"), -400, false, NULL},
    {STR("1 \r\n"), -400, false, NULL},
    {STR("1\t\r\n"), -400, false, NULL},
    {STR("1 ;a\r\n"), -400, false, NULL},
    {STR("00000000000000001\r\n"), -400, false, NULL},
    {STR("\0\r\n"), -400, false, NULL},
    {STR(";a\r\n"), -400, false, NULL},

    /* line ends */
    {STR("1\nx\r\n"), -400, false, NULL},
    {STR("1\r\rx"), -400, false, NULL},
    {STR("1\rx\r\n"), -400, false, NULL},
    {STR("1\r\nx\n0\r\n\r\n"), -400, false, NULL},
    {STR("1\r\nx\rX"), -400, false, NULL},
    {STR("1\r\nxy\r\n"), -400, false, NULL},
    {STR("1\r\nx0\r\n\r\n"), -400, false, NULL},
    {STR("0\n\n"), -400, false, NULL},
    {STR("0\r\n\n"), -400, false, NULL},
    {STR("0\r\n\rX"), -400, false, NULL},

    /* extensions */
    {STR("1;\r\n"), -400, false, NULL},
    {STR("1;;a\r\n"), -400, false, NULL},
    {STR("1;=b\r\n"), -400, false, NULL},
    {STR("1;a=\r\n"), -400, false, NULL},
    {STR("1;a=b=c\r\n"), -400, false, NULL},
    {STR("1; a\r\n"), -400, false, NULL},
    {STR("1;a =b\r\n"), -400, false, NULL},
    {STR("1;a=b c\r\n"), -400, false, NULL},
    {STR("1;a\0\r\n"), -400, false, NULL},
    {STR("1;a\n"), -400, false, NULL},
    {STR("1;a=\"b\n\"\r\n"), -400, false, NULL},
    {STR("1;a=\"b\0\"\r\n"), -400, false, NULL},
    {STR("1;a=\"b\\\n\"\r\n"), -400, false, NULL},
    {STR("1;a=\"b\"c\r\n"), -400, false, NULL},
    {STR("1;a=\"b\x7f\"\r\n"), -400, false, NULL},
    {STR("1;a=(\r\n"), -400, false, NULL},

    /* trailers */
    {STR("0\r\n: a\r\n\r\n"), -400, false, NULL},
    {STR("0\r\na\r\n\r\n"), -400, false, NULL},
    {STR("0\r\na : b\r\n\r\n"), -400, false, NULL},
    {STR("0\r\n a: b\r\n\r\n"), -400, false, NULL},
    {STR("0\r\na: b\r\n c\r\n\r\n"), -400, false, NULL},
    {STR("0\r\na: b\n\r\n"), -400, false, NULL},
    {STR("0\r\na: b\rc\r\n\r\n"), -400, false, NULL},
    {STR("0\r\na: \0\r\n\r\n"), -400, false, NULL},
    {STR("0\r\na(: b\r\n\r\n"), -400, false, NULL},

    /* too much */
    {STR("41\r\n"), -413, false, NULL},
    {STR("ffffffffffffffff\r\n"), -413, false, NULL},
    {STR("fffffffffffffffff\r\n"), -413, false, NULL},
    {STR("1\r\nx\r\n40"), -413, false, NULL},
};

TEST(each_body_of_the_table_gets_its_verdict_however_it_arrives)
{
	static const size_t pieces[] = {SIZE_MAX, 1, 2, 3, 0};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *first_reason = NULL;
		for (size_t p = 0; p < ARRAY_LEN(pieces); p++) {
			const struct row *r = &rows[i];
			CLEANUP(outcome_release) struct outcome o = feed(r->in, pieces[p], BODY_MAX);
			ssize_t want = r->status ? r->status : (ssize_t)r->in.len;
			if (o.verdict != want)
				fail_msg("row %zu: %zd instead of %zd for %.*s", i, o.verdict, want,
				         STR_ARG(r->in));
			first_reason = p == 0 ? o.reason : first_reason;
			assert_ptr_equal(o.reason, first_reason);
			assert_true((o.reason != NULL) == (r->status != 0));
			assert_int_equal(o.done, r->done);
			if (r->status == 0) {
				assert_int_equal(o.body.len, strlen(r->body));
				assert_memory_equal(o.body.len ? o.body.data : "", r->body, o.body.len);
			}
		}
	}
}

TEST(once_refused_a_longer_input_is_refused_alike)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		ssize_t said = 0;
		for (size_t len = 0; len <= rows[i].in.len; len++) {
			ssize_t now = verdict(str_n(rows[i].in.ptr, len));
			if (said < 0)
				assert_int_equal(now, said);
			said = now;
		}
	}
}

/* Rows with a byte changed, dropped or doubled: whole and byte by byte agree. */
TEST(mutated_bodies_get_one_verdict_however_they_arrive)
{
	static const char spice[] = "\r\n\r\n;=\"\\ \t:019afg\0\x7f\x80";
	uint32_t seed = 7;
	size_t fine = 0, refused = 0;
	for (int round = 0; round < 20000; round++) {
		char data[128];
		seed = seed * 1664525U + 1013904223U;
		struct str in = rows[(seed >> 8) % ARRAY_LEN(rows)].in;
		size_t len = in.len;
		memcpy(data, in.ptr, len);
		for (int change = 0; change < round % 4 && len > 1; change++) {
			seed = seed * 1664525U + 1013904223U;
			size_t at = (seed >> 8) % len;
			seed = seed * 1664525U + 1013904223U;
			switch ((seed >> 8) % 3) {
			case 0: data[at] = spice[(seed >> 16) % (sizeof(spice) - 1)]; break;
			case 1: memmove(data + at, data + at + 1, --len - at); break;
			default: memmove(data + at + 1, data + at, len++ - at); break;
			}
		}
		CLEANUP(outcome_release) struct outcome whole = feed(str_n(data, len), SIZE_MAX, BODY_MAX);
		CLEANUP(outcome_release) struct outcome single = feed(str_n(data, len), 1, BODY_MAX);
		assert_int_equal(whole.verdict, single.verdict);
		assert_ptr_equal(whole.reason, single.reason);
		assert_int_equal(whole.done, single.done);
		assert_int_equal(whole.body.len, single.body.len);
		if (whole.body.len)
			assert_memory_equal(whole.body.data, single.body.data, whole.body.len);
		fine += whole.verdict >= 0;
		refused += whole.verdict < 0;
	}
	assert_true(fine > 1000);
	assert_true(refused > 1000);
}

TEST(bytes_behind_the_body_are_left_for_the_next_request)
{
	struct http_chunked c;
	const char *reason = NULL;
	CLEANUP(buf_release) struct buf body = {0};
	struct str in = STR("1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n");
	http_chunked_init(&c);
	assert_int_equal(http_chunked_feed(&c, in.ptr, in.len, BODY_MAX, &body, &reason), 11);
	assert_true(c.done);
	assert_int_equal(http_chunked_feed(&c, in.ptr + 11, in.len - 11, BODY_MAX, &body, &reason), 0);
	assert_int_equal(body.len, 1);
}

TEST(a_body_may_fill_its_limit_and_is_413_at_the_digit_that_passes_it)
{
	assert_int_equal(verdict_max(STR("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"), 10), 25);
	assert_int_equal(verdict_max(STR("5\r\nhello\r\n6"), 10), -413);
	assert_int_equal(verdict_max(STR("0\r\n\r\n"), 0), 5);
	assert_int_equal(verdict_max(STR("1"), 0), -413);
}

/* `count` chunks of one byte, each with an extension of `extension_bytes`. */
static ssize_t small_chunks(size_t count, size_t extension_bytes)
{
	CLEANUP(buf_release) struct buf in = {0};
	for (size_t i = 0; i < count; i++) {
		buf_char(&in, '1');
		for (size_t e = 0; e < extension_bytes; e++)
			buf_char(&in, e == 0 ? ';' : 'x');
		buf_str(&in, STR("\r\nx\r\n"));
	}
	buf_str(&in, STR("0\r\n\r\n"));
	assert_false(in.failed);
	ssize_t whole = verdict_max(buf_view(&in), 1 << 20);
	CLEANUP(outcome_release) struct outcome single = feed(buf_view(&in), 1, 1 << 20);
	assert_int_equal(whole, single.verdict);
	return whole;
}

TEST(many_small_chunks_pass_but_not_with_long_extensions)
{
	assert_true(small_chunks(100000, 0) > 0);
	assert_true(small_chunks(100, 100) > 0);
	assert_int_equal(small_chunks(1000, 100), -400);
}

TEST(one_extension_without_end_is_refused)
{
	CLEANUP(buf_release) struct buf in = {0};
	buf_str(&in, STR("5;"));
	for (int i = 0; i < 16384; i++)
		buf_char(&in, 'x');
	assert_int_equal(verdict(buf_view(&in)), -400);
	assert_true(verdict(str_n(in.data, 16384)) > 0);
}

TEST(trailers_are_bounded)
{
	CLEANUP(buf_release) struct buf in = {0};
	buf_str(&in, STR("0\r\n"));
	for (int i = 0; i < 256; i++) /* of 32 bytes each: 8 KiB */
		buf_str(&in, STR("name: 0123456789abcdefghijklmn\r\n"));
	buf_str(&in, STR("\r\n"));
	assert_int_equal(verdict(buf_view(&in)), in.len);
	in.len -= 2;
	buf_str(&in, STR("a:\r\n\r\n"));
	assert_int_equal(verdict(buf_view(&in)), -400);
}

TEST(a_buffer_that_cannot_grow_is_503)
{
	struct http_chunked c;
	const char *reason = NULL;
	struct buf body = {.failed = true};
	http_chunked_init(&c);
	assert_int_equal(http_chunked_feed(&c, "1\r\nx", 4, BODY_MAX, &body, &reason), -503);
	assert_non_null(reason);
}

TEST_MAIN()
