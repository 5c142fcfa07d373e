#include "http/response.h"
#include "lib/test.h"

#define DATE      "Sun, 06 Nov 1994 08:49:37 GMT"
#define DATE_LINE "Date: " DATE "\r\n"

#define assert_bytes(have, have_len, lit)                        \
	do {                                                     \
		assert_int_equal(have_len, sizeof(lit) - 1);     \
		assert_memory_equal(have, lit, sizeof(lit) - 1); \
	} while (0)

static const struct http_field redirect_fields[] = {
    {STR("Location"), STR("https://example.com/")},
    {STR("Cache-Control"), STR("private, no-store")},
};

static const struct http_response redirect = {.status = 302, .fields = redirect_fields, .field_count = 2};

TEST(a_response_has_its_parts_in_order)
{
	CLEANUP(buf_release) struct buf out = {0};
	struct http_response r = redirect;
	r.content_type = STR("text/plain");
	r.body = STR("there");
	buf_str(&out, STR("before"));
	assert_int_equal(http_response_write(&out, &r, 0, DATE), 0);
	assert_bytes(out.data, out.len,
	             "beforeHTTP/1.1 302 Found\r\n" DATE_LINE
	             "Location: https://example.com/\r\nCache-Control: private, no-store\r\n"
	             "Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nthere");
}

TEST(head_gets_the_same_head_and_no_body)
{
	CLEANUP(buf_release) struct buf get = {0}, head = {0};
	struct http_response r = {.status = 200, .content_type = STR("a/b"), .body = STR("12345")};
	assert_int_equal(http_response_write(&get, &r, 0, DATE), 0);
	assert_int_equal(http_response_write(&head, &r, HTTP_OUT_HEAD_ONLY, DATE), 0);
	assert_int_equal(head.len + 5, get.len);
	assert_memory_equal(head.data, get.data, head.len);
}

TEST(the_connection_field_is_as_the_flags_say)
{
	CLEANUP(buf_release) struct buf out = {0};
	struct http_response r = {.status = 404};
	assert_int_equal(http_response_write(&out, &r, HTTP_OUT_CLOSE, DATE), 0);
	assert_bytes(out.data, out.len,
	             "HTTP/1.1 404 Not Found\r\n" DATE_LINE "Content-Length: 0\r\nConnection: close\r\n\r\n");
	out.len = 0;
	assert_int_equal(http_response_write(&out, &r, HTTP_OUT_KEEP_10, DATE), 0);
	assert_bytes(out.data, out.len,
	             "HTTP/1.1 404 Not Found\r\n" DATE_LINE
	             "Content-Length: 0\r\nConnection: keep-alive\r\n\r\n");
	out.len = 0;
	assert_int_equal(http_response_write(&out, &r, HTTP_OUT_KEEP_10 | HTTP_OUT_CLOSE, DATE), 0);
	assert_non_null(memmem(out.data, out.len, "Connection: close\r\n", 19));
	assert_null(memmem(out.data, out.len, "keep-alive", 10));
}

TEST(statuses_without_a_body_have_no_length_and_no_body)
{
	static const int statuses[] = {100, 101, 204, 304};
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
		CLEANUP(buf_release) struct buf out = {0};
		struct http_response r = {.status = statuses[i], .body = STR("must not be seen")};
		assert_int_equal(http_response_write(&out, &r, 0, DATE), 0);
		assert_null(memmem(out.data, out.len, "Content-Length", 14));
		assert_memory_equal(out.data + out.len - 4, "\r\n\r\n", 4);
		assert_null(memmem(out.data, out.len, "seen", 4));
	}
}

TEST(a_streaming_response_has_no_length_and_begins_with_its_body)
{
	CLEANUP(buf_release) struct buf out = {0};
	struct http_response r = {.status = 200, .content_type = STR("a/b"), .body = STR("first")};
	assert_int_equal(http_response_write(&out, &r, HTTP_OUT_STREAMING | HTTP_OUT_CLOSE, DATE), 0);
	assert_bytes(out.data, out.len,
	             "HTTP/1.1 200 OK\r\n" DATE_LINE "Content-Type: a/b\r\nConnection: close\r\n\r\nfirst");
}

static void assert_refused(const struct http_response *r)
{
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&out, STR("as before"));
	assert_int_equal(http_response_write(&out, r, 0, DATE), ERR_INVALID);
	assert_bytes(out.data, out.len, "as before");
	assert_false(out.failed);
}

static void refuse_field(struct str name, struct str value)
{
	struct http_field fields[] = {{STR("Fine"), STR("value")}, {name, value}};
	struct http_response r = {.status = 200, .fields = fields, .field_count = 2};
	assert_refused(&r);
}

TEST(a_control_in_a_value_refuses_the_whole_response)
{
	for (int c = 0; c < 256; c++) {
		char text[] = {'a', (char)c, 'b'};
		struct str value = str_n(text, sizeof(text));
		if ((c < 0x20 && c != '\t') || c == 0x7f) {
			struct http_response typed = {.status = 200, .content_type = value};
			refuse_field(STR("Location"), value);
			assert_refused(&typed);
			continue;
		}
		CLEANUP(buf_release) struct buf out = {0};
		struct http_field field = {STR("X"), value};
		struct http_response r = {.status = 200, .fields = &field, .field_count = 1};
		assert_int_equal(http_response_write(&out, &r, 0, DATE), 0);
		assert_non_null(memmem(out.data, out.len, text, sizeof(text)));
	}
}

TEST(a_name_that_is_no_token_refuses_the_whole_response)
{
	refuse_field(STR(""), STR("v"));
	refuse_field(STR_NULL, STR("v"));
	refuse_field(STR("a b"), STR("v"));
	refuse_field(STR("a:"), STR("v"));
	refuse_field(STR("a\r\nb"), STR("v"));
	refuse_field(STR("a\0"), STR("v"));
	refuse_field(STR("\xc3\xa4"), STR("v"));
}

TEST(fields_that_frame_the_message_cannot_be_given)
{
	refuse_field(STR("content-length"), STR("0"));
	refuse_field(STR("Transfer-Encoding"), STR("chunked"));
	refuse_field(STR("CONNECTION"), STR("close"));
	refuse_field(STR("Date"), STR(DATE));
}

TEST(a_status_out_of_range_is_refused)
{
	static const int statuses[] = {0, 99, 600, -200, 2000};
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
		assert_refused(&(struct http_response){.status = statuses[i]});
}

TEST(a_buffer_that_has_failed_takes_no_response)
{
	struct buf out = {.failed = true};
	assert_int_equal(http_response_write(&out, &redirect, 0, DATE), ERR_NOMEM);
	assert_int_equal(out.len, 0);
}

TEST(memory_that_runs_out_leaves_the_buffer_usable)
{
	CLEANUP(buf_release) struct buf out = {0};
	struct http_response endless = {.status = 200, .body = {"x", SIZE_MAX - 512}};
	for (int i = 0; i < 1000; i++)
		buf_char(&out, 'x');
	assert_int_equal(http_response_write(&out, &endless, 0, DATE), ERR_NOMEM);
	assert_int_equal(out.len, 1000);
	assert_int_equal(http_response_write(&out, &redirect, 0, DATE), 0);
}

/* A ready-made response is the written one, whatever the flags and the date. */
TEST(a_ready_response_equals_a_written_one)
{
	static const char date[] = "Tue, 15 Nov 1994 12:45:26 GMT";
	static const unsigned flags[] = {0,
	                                 HTTP_OUT_HEAD_ONLY,
	                                 HTTP_OUT_CLOSE,
	                                 HTTP_OUT_KEEP_10,
	                                 HTTP_OUT_CLOSE | HTTP_OUT_KEEP_10,
	                                 HTTP_OUT_CLOSE | HTTP_OUT_HEAD_ONLY};
	const struct http_response responses[] = {redirect, {.status = 204}, {.status = 431}};
	CLEANUP(buf_release) struct buf store = {0};
	buf_str(&store, STR("something else"));
	for (size_t i = 0; i < ARRAY_LEN(responses); i++) {
		struct http_ready ready;
		size_t at = store.len;
		assert_int_equal(http_ready_make(&store, &responses[i], &ready), 0);
		assert_int_equal(store.len - at, ready.len);
		for (size_t f = 0; f < ARRAY_LEN(flags); f++) {
			CLEANUP(buf_release) struct buf written = {0};
			char sent[512];
			assert_int_equal(http_response_write(&written, &responses[i], flags[f], date), 0);
			memset(sent, '#', sizeof(sent));
			size_t len = http_ready_write(sent, store.data + at, &ready, flags[f], date);
			assert_int_equal(len, written.len);
			assert_memory_equal(sent, written.data, len);
			assert_int_equal(sent[len], '#');
			assert_true(len <= ready.len + HTTP_READY_EXTRA);
		}
	}
}

TEST(a_ready_response_has_no_body_and_no_controls)
{
	CLEANUP(buf_release) struct buf out = {0};
	struct http_ready ready;
	struct http_response with_body = {.status = 200, .body = STR("x")};
	struct http_field bad = {STR("Location"), STR("a\r\nSet-Cookie: b")};
	struct http_response split = {.status = 302, .fields = &bad, .field_count = 1};
	assert_int_equal(http_ready_make(&out, &with_body, &ready), ERR_INVALID);
	assert_int_equal(http_ready_make(&out, &split, &ready), ERR_INVALID);
	assert_int_equal(out.len, 0);
}

TEST(statuses_have_their_names)
{
	for (int status = 100; status <= 599; status++) {
		CLEANUP(buf_release) struct buf out = {0};
		char line[64];
		int len = snprintf(line, sizeof(line), "HTTP/1.1 %d %s\r\nDate: ", status,
		                   http_status_text(status));
		assert_int_equal(
		    http_response_write(&out, &(struct http_response){.status = status}, 0, DATE), 0);
		assert_memory_equal(out.data, line, len);
	}
	assert_string_equal(http_status_text(200), "OK");
	assert_string_equal(http_status_text(404), "Not Found");
	assert_string_equal(http_status_text(431), "Request Header Fields Too Large");
	assert_string_equal(http_status_text(299), "Unknown");
}

TEST_MAIN()
