#include "http/body.h"
#include "lib/test.h"

enum { KIB = 1024, MIB = 1024 * KIB, BODY_BYTES_MAX = 1024 * MIB };

static char zeros[MIB];
static struct http_bodies all;
static const char *reason;

static struct http_body begun(uint64_t length)
{
	const struct http_request req = {.has_body = true, .content_length = length};
	struct http_body b = {0};
	http_body_begin(&b, &req, 1000);
	return b;
}

static struct http_body begun_chunked(void)
{
	const struct http_request req = {.has_body = true, .chunked = true};
	struct http_body b = {0};
	http_body_begin(&b, &req, 1000);
	return b;
}

static ssize_t feed(struct http_body *b, const char *text)
{
	return http_body_feed(b, &all, text, strlen(text), BODY_BYTES_MAX, &reason);
}

/* 0, or what refused it. */
static ssize_t fill(struct http_body *b, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = http_body_feed(b, &all, zeros, MIN(bytes, sizeof(zeros)), BODY_BYTES_MAX,
		                           &reason);
		if (n < 0)
			return n;
		bytes -= (size_t)n;
	}
	return 0;
}

static void release(struct http_body *b)
{
	http_body_release(b, &all);
	assert_null(b->bytes.data);
	assert_int_equal(b->share_bytes, 0);
}

static int nothing_is_taken(void **state)
{
	return all.taken_bytes == 0 ? 0 : -1;
}

TEST(a_body_gathers_up_to_its_length)
{
	struct http_body b = begun(10);
	assert_int_equal(feed(&b, "01234"), 5);
	assert_false(b.is_whole);
	assert_int_equal(feed(&b, "56789GET /"), 5);
	assert_true(b.is_whole);
	assert_int_equal(b.received, 10);
	assert_true(str_eq(buf_view(&b.bytes), STR("0123456789")));
	release(&b);
}

TEST(a_chunked_body_gathers_up_to_its_last_chunk)
{
	struct http_body b = begun_chunked();
	assert_int_equal(feed(&b, "3\r\nabc\r\n"), 8);
	assert_false(b.is_whole);
	assert_int_equal(feed(&b, "2\r\nde\r\n0\r\n\r\nGET /"), 12);
	assert_true(b.is_whole);
	assert_int_equal(b.received, 20); /* of the wire */
	assert_true(str_eq(buf_view(&b.bytes), STR("abcde")));
	release(&b);
}

TEST(what_is_wrong_has_a_status_and_a_reason)
{
	struct http_body b = begun_chunked();
	reason = NULL;
	assert_int_equal(feed(&b, "no size"), -400);
	assert_non_null(reason);
	release(&b);
	b = begun_chunked();
	reason = NULL;
	assert_int_equal(feed(&b, "40000001\r\n"), -413);
	assert_non_null(reason);
	release(&b);
}

TEST(without_memory_it_is_503)
{
	struct http_body bodies[] = {begun(5), begun_chunked()};
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		bodies[i].bytes.failed = true;
		reason = NULL;
		assert_int_equal(feed(&bodies[i], "1\r\na\r\n"), -503);
		assert_non_null(reason);
		release(&bodies[i]);
	}
}

TEST(a_promised_length_takes_nothing_and_the_first_64_kib_neither)
{
	struct http_body b = begun(512 * MIB);
	assert_int_equal(all.taken_bytes, 0);
	assert_int_equal(fill(&b, HTTP_LARGE_BYTES), 0);
	assert_int_equal(all.taken_bytes, 0);
	assert_int_equal(fill(&b, 1), 0);
	assert_int_equal(all.taken_bytes, b.bytes.cap - HTTP_LARGE_BYTES);
	assert_true(all.taken_bytes > 0);
	release(&b);
	assert_int_equal(all.taken_bytes, 0);
}

TEST(a_share_is_what_the_buffer_has_grown_to)
{
	struct http_body b = begun(64 * MIB), other = begun_chunked();
	assert_int_equal(feed(&other, "200000\r\n"), 8);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(fill(&b, 256 * KIB), 0);
		assert_int_equal(fill(&other, 256 * KIB), 0);
		assert_int_equal(b.share_bytes, b.bytes.cap - HTTP_LARGE_BYTES);
		assert_int_equal(other.share_bytes, other.bytes.cap - HTTP_LARGE_BYTES);
		assert_int_equal(all.taken_bytes, b.share_bytes + other.share_bytes);
	}
	release(&b);
	assert_int_equal(all.taken_bytes, other.share_bytes);
	release(&other);
	release(&other); /* once more does no harm */
}

TEST(a_body_that_finds_no_room_is_refused_in_either_framing)
{
	struct http_body first = begun(32 * MIB), second = begun(32 * MIB);
	assert_int_equal(fill(&first, 17 * MIB), 0);
	assert_int_equal(fill(&second, 17 * MIB), 0);
	assert_true(all.taken_bytes > HTTP_BODIES_BYTES_MAX - 256 * KIB);
	size_t taken = all.taken_bytes;

	struct http_body late[] = {begun(MIB), begun_chunked()};
	assert_int_equal(feed(&late[1], "100000\r\n"), 8);
	for (size_t i = 0; i < ARRAY_LEN(late); i++) {
		assert_int_equal(fill(&late[i], HTTP_LARGE_BYTES), 0);
		assert_int_equal(fill(&late[i], MIB - HTTP_LARGE_BYTES), HTTP_BODY_NO_ROOM);
		release(&late[i]);
		assert_int_equal(all.taken_bytes, taken);
	}

	release(&first);
	late[0] = begun(MIB);
	assert_int_equal(fill(&late[0], MIB), 0);
	assert_true(late[0].is_whole);
	release(&late[0]);
	release(&second);
}

TEST(one_alone_always_fits_and_then_nobody_else)
{
	struct http_body b = begun(80 * MIB), other = begun(MIB);
	assert_int_equal(fill(&b, 80 * MIB), 0);
	assert_true(b.is_whole);
	assert_true(all.taken_bytes > HTTP_BODIES_BYTES_MAX);
	assert_int_equal(fill(&other, HTTP_LARGE_BYTES), 0);
	assert_int_equal(fill(&other, 1), HTTP_BODY_NO_ROOM);
	release(&b);
	release(&other);
}

TEST(what_is_large_must_move_faster)
{
	assert_int_equal(http_slowest_ms(0, 1024), 0);
	assert_int_equal(http_slowest_ms(2048, 1024), 2000);
	assert_int_equal(http_slowest_ms(64 * KIB, 1024), 64000);
	assert_int_equal(http_slowest_ms(128 * KIB, 1024), 65000);
	assert_int_equal(http_slowest_ms(4 * MIB, 1024), 64000 + 63000); /* not an hour */
	assert_int_equal(http_slowest_ms(4 * MIB, MIB), 62 + 3937);      /* a higher rate holds */
}

TEST(a_body_has_time_for_what_has_come)
{
	struct http_body b = begun(MIB);
	assert_int_equal(http_body_deadline_ms(&b, 500, 1024), 1500);
	assert_int_equal(fill(&b, 2048), 0);
	assert_int_equal(http_body_deadline_ms(&b, 500, 1024), 3500);
	assert_int_equal(fill(&b, 126 * KIB), 0);
	assert_int_equal(http_body_deadline_ms(&b, 500, 1024), 1500 + 65000);
	release(&b);
}

TEST_MAIN(.teardown = nothing_is_taken)
