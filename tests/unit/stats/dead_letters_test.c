#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"
#include "stats/dead_letters.h"

#include <jansson.h>

static struct temp dir;
static struct dead_letters *letters;
static const struct event_id id = {0xabc, (uint64_t)1 << 32 | 2 << 24 | 3, 0x40};

static int make(void **state)
{
	temp_init(&dir);
	log_level_set(LOG_ERROR + 1);
	return dead_letters_new(dir.path, &letters, NULL);
}

static int release(void **state)
{
	dead_letters_free(letters);
	os_fault_reset();
	temp_release(&dir);
	return 0;
}

static void read_letters(struct buf *ret)
{
	char path[TEMP_PATH_BYTES];
	assert_int_equal(file_read(temp_path(&dir, "dead-letters.ndjson", path), 1 << 20, ret, NULL), 0);
}

/* The one line that is there, which must be JSON. */
static json_t *read_letter(void)
{
	struct buf CLEANUP(buf_release) text = {0};
	read_letters(&text);
	assert_true(text.len > 0 && text.data[text.len - 1] == '\n');
	assert_ptr_equal(memchr(text.data, '\n', text.len), text.data + text.len - 1);
	json_t *letter = json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
	assert_non_null(letter);
	return letter;
}

static void assert_field(json_t *letter, const char *name, const char *want)
{
	const char *got = json_string_value(json_object_get(letter, name));
	assert_non_null(got);
	assert_string_equal(got, want);
}

TEST(an_impression_is_kept_with_its_reason)
{
	struct event ev = {.kind = EVENT_IMPRESSION, .position = 0x40};
	ev.impression = (struct event_impression){-5, 1, STR("a \"quote\" and\na line"), STR("\xff\xfe"),
	                                          STR_NULL};
	dead_letters_add(letters, id, &ev, "it is odd");
	json_t *letter = read_letter();
	assert_field(letter, "event", "0000000000000abc-0000000102000003-00000040");
	assert_field(letter, "reason", "it is odd");
	assert_field(letter, "kind", "impression");
	assert_int_equal(json_integer_value(json_object_get(letter, "ts")), -5);
	assert_field(letter, "id", "a \"quote\" and\na line");
	assert_field(letter, "userId", "\xef\xbf\xbd\xef\xbf\xbd");
	assert_true(json_is_null(json_object_get(letter, "adId")));
	json_decref(letter);
}

TEST(a_visit_is_kept_with_its_reason)
{
	struct event ev = {.kind = EVENT_VISIT, .position = 0x99};
	ev.visit = (struct event_visit){.time_ms = 77, .link = 12, .key = STR("k")};
	dead_letters_add(letters, id, &ev, "why");
	json_t *letter = read_letter();
	assert_field(letter, "kind", "visit");
	assert_field(letter, "key", "k");
	assert_int_equal(json_integer_value(json_object_get(letter, "link")), 12);
	assert_int_equal(json_integer_value(json_object_get(letter, "ts")), 77);
	json_decref(letter);
}

TEST(a_message_that_is_no_event_is_kept_as_it_came)
{
	struct event ev = {.kind = EVENT_UNUSABLE};
	ev.unusable = (struct event_unusable){.text = STR("{\"id\":"), .is_impression = true};
	dead_letters_add(letters, id, &ev, "it ends too early");
	json_t *letter = read_letter();
	assert_field(letter, "kind", "impression");
	assert_field(letter, "message", "{\"id\":");
	json_decref(letter);
}

TEST(letters_are_appended)
{
	struct event ev = {.kind = EVENT_VISIT};
	struct buf CLEANUP(buf_release) text = {0};
	unsigned before = open_descriptors();
	for (int i = 0; i < 10; i++)
		dead_letters_add(letters, id, &ev, "why");
	read_letters(&text);
	unsigned lines = 0;
	for (size_t i = 0; i < text.len; i++)
		lines += text.data[i] == '\n';
	assert_int_equal(lines, 10);
	assert_int_equal(open_descriptors(), before);
}

TEST(a_full_file_is_put_aside)
{
	enum { FULL = 16 << 20 };
	struct event ev = {.kind = EVENT_VISIT};
	char path[TEMP_PATH_BYTES], old[TEMP_PATH_BYTES];
	struct stat st;
	temp_path(&dir, "dead-letters.ndjson", path);
	temp_path(&dir, "dead-letters.ndjson.1", old);
	dead_letters_add(letters, id, &ev, "why");
	assert_int_equal(truncate(path, FULL), 0);
	dead_letters_add(letters, id, &ev, "why");
	assert_int_not_equal(stat(old, &st), 0); /* not yet more than full */
	dead_letters_add(letters, id, &ev, "why");
	assert_int_equal(stat(old, &st), 0);
	assert_true(st.st_size > FULL && st.st_size < FULL + 1000);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 1000);
	assert_int_equal(truncate(path, FULL + 1), 0);
	dead_letters_add(letters, id, &ev, "why"); /* over the one before */
	assert_int_equal(stat(old, &st), 0);
	assert_int_equal(st.st_size, FULL + 1);
}

TEST(a_letter_that_cannot_be_written_does_no_harm)
{
	static const enum os_call calls[] = {OS_OPEN, OS_WRITE, OS_CLOSE};
	struct event ev = {.kind = EVENT_VISIT};
	unsigned before = open_descriptors();
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		os_fault_fail(calls[i], 1, ENOSPC, OS_ONCE);
		dead_letters_add(letters, id, &ev, "why");
		assert_int_equal(os_fault_hits(calls[i]), 1);
		os_fault_reset();
	}
	assert_int_equal(open_descriptors(), before);
	dead_letters_free(NULL);
}

TEST_MAIN(.setup = make, .teardown = release)
