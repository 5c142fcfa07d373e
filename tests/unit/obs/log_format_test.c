#include "lib/test.h"
#include "obs/log.h"
#include "obs/log_format.h"

#include <jansson.h>

static const int64_t time_ms = 1794718800123;

static struct str formatted(struct str text, enum log_format format)
{
	static char out[LOG_ENTRY_BYTES_MAX];
	struct log_entry entry = {.time_ms = time_ms, .level = LOG_INFO, .module = "http", .text = text};
	return str_n(out, log_entry_format(&entry, format, out));
}

static void assert_text(struct str text, const char *expected)
{
	struct str line = formatted(text, LOG_TEXT);
	struct str prefix = STR("2026-11-15T05:00:00.123Z info  http: ");
	assert_true(str_starts(line, prefix));
	assert_int_equal(line.ptr[line.len - 1], '\n');
	struct str rest = str_n(line.ptr + prefix.len, line.len - prefix.len - 1);
	if (!str_eq(rest, str_of(expected)))
		fail_msg("'%.*s' is not '%s'", STR_ARG(rest), expected);
}

/* Parses the line with another implementation and compares the message that comes out. */
static void assert_json(struct str text, struct str expected)
{
	struct str line = formatted(text, LOG_JSON);
	assert_int_equal(line.ptr[line.len - 1], '\n');
	assert_null(memchr(line.ptr, '\n', line.len - 1));
	json_error_t error;
	json_t *object = json_loadb(line.ptr, line.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	if (!object)
		fail_msg("%s in %.*s", error.text, STR_ARG(line));
	assert_int_equal(json_object_size(object), 4);
	assert_string_equal(json_string_value(json_object_get(object, "time")), "2026-11-15T05:00:00.123Z");
	assert_string_equal(json_string_value(json_object_get(object, "level")), "info");
	assert_string_equal(json_string_value(json_object_get(object, "module")), "http");
	const json_t *message = json_object_get(object, "message");
	assert_true(str_eq(str_n(json_string_value(message), json_string_length(message)), expected));
	json_decref(object);
}

TEST(every_level_keeps_the_columns)
{
	static const char *const expected[] = {
	    "1970-01-01T00:00:00.000Z debug os: x\n",
	    "1970-01-01T00:00:00.000Z info  os: x\n",
	    "1970-01-01T00:00:00.000Z warn  os: x\n",
	    "1970-01-01T00:00:00.000Z error os: x\n",
	};
	for (int level = LOG_DEBUG; level <= LOG_ERROR; level++) {
		char out[LOG_ENTRY_BYTES_MAX];
		struct log_entry entry = {.level = level, .module = "os", .text = STR("x")};
		size_t len = log_entry_format(&entry, LOG_TEXT, out);
		assert_true(str_eq(str_n(out, len), str_of(expected[level])));
	}
}

TEST(plain_text_and_utf8_stay_as_they_are)
{
	assert_text(STR("listening on http://127.0.0.1:8080"), "listening on http://127.0.0.1:8080");
	assert_text(STR(""), "");
	assert_text(STR("a \"quoted\" \\ word"), "a \"quoted\" \\ word");
	assert_text(STR("Gr\xc3\xbc\xc3\x9f"
	                "e \xe2\x82\xac \xf0\x9f\x94\x97"),
	            "Gr\xc3\xbc\xc3\x9f"
	            "e \xe2\x82\xac \xf0\x9f\x94\x97");
	assert_json(STR("a \"quoted\" \\ word \xe2\x82\xac"), STR("a \"quoted\" \\ word \xe2\x82\xac"));
	assert_json(STR(""), STR(""));
}

TEST(control_characters_cannot_end_a_line_or_drive_a_terminal)
{
	assert_text(STR("a\nb\r\tc"), "a\\nb\\r\\tc");
	assert_text(STR("\x1b[31m"), "\\x1b[31m");
	assert_text(STR("\0\x01\x7f"), "\\x00\\x01\\x7f");
	assert_text(STR("\xc2\x9b"
	                "31m"),
	            "\\xc2\\x9b31m");
	assert_text(STR("\xc2\xa0"), "\xc2\xa0");
	assert_json(STR("a\nb\r\tc\x1b\x7f"), STR("a\nb\r\tc\x1b\x7f"));
	assert_json(STR("\0x"), STR("\0x"));
	assert_json(STR("\xc2\x9b"), STR("\xc2\x9b"));
	assert_null(memchr(formatted(STR("\x7f\xc2\x9b"), LOG_JSON).ptr, 0x7f, 120));
}

TEST(bytes_that_are_not_utf8_are_escaped)
{
	assert_text(STR("\xff"), "\\xff");
	assert_text(STR("a\x80z"), "a\\x80z");
	assert_text(STR("\xc0\xaf"), "\\xc0\\xaf");                   /* overlong */
	assert_text(STR("\xe0\x80\x80"), "\\xe0\\x80\\x80");          /* overlong */
	assert_text(STR("\xed\xa0\x80"), "\\xed\\xa0\\x80");          /* a surrogate */
	assert_text(STR("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */
	assert_text(STR("\xe2\x82"), "\\xe2\\x82");                   /* cut off */
	assert_json(STR("a\xff"), STR("a\xef\xbf\xbd"));
	assert_json(STR("\xe2\x82"), STR("\xef\xbf\xbd\xef\xbf\xbd"));
}

TEST(any_two_bytes_give_one_line_of_valid_json)
{
	for (unsigned i = 0; i < 0x10000; i++) {
		char text[2] = {(char)(i >> 8), (char)i};
		struct str line = formatted(str_n(text, 2), LOG_JSON);
		json_t *object = json_loadb(line.ptr, line.len, JSON_ALLOW_NUL, NULL);
		assert_non_null(object);
		json_decref(object);
		line = formatted(str_n(text, 2), LOG_TEXT);
		for (size_t j = 0; j < line.len - 1; j++)
			assert_in_range((unsigned char)line.ptr[j], 0x20, 0xff);
	}
}

TEST(the_longest_line_of_the_worst_bytes_fits)
{
	char text[LOG_TEXT_MAX];
	memset(text, 0xff, sizeof(text));
	static const char module[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13"
	                             "\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13"
	                             "beyond the bound";
	for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
		char out[LOG_ENTRY_BYTES_MAX + 1];
		out[LOG_ENTRY_BYTES_MAX] = 'x';
		struct log_entry entry = {.time_ms = time_ms,
		                          .level = LOG_ERROR,
		                          .module = module,
		                          .text = str_n(text, sizeof(text))};
		size_t len = log_entry_format(&entry, (enum log_format)format, out);
		assert_in_range(len, LOG_TEXT_MAX * 4, LOG_ENTRY_BYTES_MAX);
		assert_int_equal(out[LOG_ENTRY_BYTES_MAX], 'x');
		assert_null(strstr(out, "beyond"));
	}
}

TEST_MAIN()
