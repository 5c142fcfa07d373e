/* What `curt verify` says about segments: it names the file, and the byte where reading stops. */
#include "event/log_private.h"
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/file.h"

static struct temp dir;
static struct event_sample sample, bad;
static struct buf report;

static int make_folder(void **state)
{
	temp_init(&dir);
	return 0;
}

static int remove_folder(void **state)
{
	os_fault_reset();
	buf_release(&report);
	temp_release(&dir);
	return 0;
}

/* How many are damaged; the words are in `report`. */
static int verify(bool growing)
{
	report.len = 0;
	int damaged = folder_damage(dir.path, growing, &report);
	buf_char(&report, '\0');
	assert_false(report.failed);
	return damaged;
}

static bool says(const char *fmt, ...) PRINTF_LIKE(1, 2);
static bool says(const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return strstr(report.data, text) != NULL;
}

static void write_sample(const struct event_sample *s)
{
	segment_file_write(dir.path, s->segment, s->data, s->len);
}

static void check_report(enum damage what, size_t byte)
{
	char path[SEGMENT_PATH_BYTES];
	size_t good = byte < EVENT_HEADER_BYTES ? 0 : sample_records_before(&sample, byte);
	int damaged = verify(false);
	segment_path(dir.path, sample.segment, path);
	assert_true(says("%s: ", path));
	if (byte < EVENT_HEADER_BYTES && what == DAMAGE_CUT) {
		assert_int_equal(damaged, 0);
		assert_true(says("empty: the process stopped"));
	} else if (byte < EVENT_HEADER_BYTES) {
		assert_int_equal(damaged, 1);
		assert_true(says("DAMAGED at byte 0: "));
	} else if (what != DAMAGE_CUT && good + 1 < sample.count) {
		assert_int_equal(damaged, 1);
		assert_true(says("; DAMAGED at byte %zu: ", sample.at[good]));
		assert_true(says("go on at byte %zu,", sample.at[good + 1]));
		assert_true(says(" %zu bytes are lost", sample.len - sample.at[good]));
	} else {
		assert_int_equal(damaged, 0);
		assert_true(bad.len == sample.at[good] ? says("; not closed")
		                                       : says("; torn at byte %zu: ", sample.at[good]));
	}
	if (byte >= EVENT_HEADER_BYTES) {
		struct event_counts c = sample_counts(&sample, good);
		assert_true(says("%d clicks, %d orphan visits, %d impressions", (int)c.clicks, (int)c.orphans,
		                 (int)c.impressions));
	}
}

TEST(every_damaged_byte_is_named)
{
	sample_make(&sample, SAMPLE_SEGMENT, 4, true);
	for (size_t byte = 0; byte < sample.len; byte++) {
		for (enum damage what = 0; what < DAMAGES; what++) {
			if (!sample_damage(&sample, what, byte, &bad))
				continue;
			write_sample(&bad);
			check_report(what, byte);
		}
	}
}

TEST(a_whole_segment_is_called_so)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	write_sample(&sample);
	assert_int_equal(verify(false), 0);
	assert_true(says("3 clicks, 2 orphan visits, 2 impressions; whole\n"));
}

TEST(an_end_by_recovery_is_reported)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, false);
	sample.len += event_encode_end(sample.data + sample.len, sample.segment, sample.len, sample.count,
	                               EVENT_END_BY_RECOVERY);
	write_sample(&sample);
	assert_int_equal(verify(false), 0);
	assert_true(says("; whole (closed by recovery)\n"));
}

TEST(an_end_that_counts_wrongly_is_damage)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, false);
	sample.len += event_encode_end(sample.data + sample.len, sample.segment, sample.len, sample.count + 1,
	                               0);
	write_sample(&sample);
	assert_int_equal(verify(false), 1);
	assert_true(says("DAMAGED: its end record tells another number of records"));
}

TEST(bytes_behind_the_end_are_damage)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	size_t end = sample.len;
	sample.data[sample.len++] = 7;
	write_sample(&sample);
	assert_int_equal(verify(false), 1);
	assert_true(says("DAMAGED at byte %zu: 1 bytes stand behind its end record", end));
}

TEST(only_the_last_segment_of_a_writer_may_lack_its_end)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, false);
	write_sample(&sample);
	sample_make(&bad, event_segment(5, 3, 0), 1, true); /* another writer's */
	write_sample(&bad);
	assert_int_equal(verify(false), 0);
	assert_true(says("; not closed"));
	sample_make(&bad, SAMPLE_SEGMENT + 1, 1, true);
	write_sample(&bad);
	assert_int_equal(verify(false), 1);
	assert_true(says("DAMAGED at byte %zu: its end record is missing", sample.len));
	sample.len -= 3;
	write_sample(&sample);
	assert_int_equal(verify(false), 1);
	assert_true(
	    says("DAMAGED at byte %zu: it goes on beyond the end of the file", sample.at[sample.count - 1]));
	/* Not even a header: it was made, or the next would not be there. */
	sample.len = 12;
	write_sample(&sample);
	assert_int_equal(verify(false), 1);
	assert_true(says("DAMAGED at byte 0"));
}

TEST(what_a_server_is_writing_is_not_torn)
{
	sample_make(&sample, event_segment(4, 0, 0), 1, false);
	sample.len -= 3;
	write_sample(&sample);
	sample_make(&bad, event_segment(5, 0, 0), 1, false);
	bad.len -= 3;
	write_sample(&bad);
	assert_int_equal(verify(true), 0);
	assert_true(says("00000004-00-000000.log: 3 clicks, 2 orphan visits, 2 impressions; torn at byte"));
	assert_true(says("00000005-00-000000.log: 3 clicks, 2 orphan visits, 2 impressions; being written"));
}

TEST(an_empty_folder_is_fine_and_a_missing_one_is_not)
{
	assert_int_equal(verify(false), 0);
	assert_true(says("no segments"));
	assert_int_equal(folder_damage("/nowhere/at/all", false, &report), ERR_NOT_FOUND);
}

TEST(a_segment_that_cannot_be_read_is_reported_and_the_others_are_looked_at)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	write_sample(&sample);
	sample_make(&sample, SAMPLE_SEGMENT + (1 << 24), 1, true);
	write_sample(&sample);
	os_fault_fail(OS_PREAD, 2, EIO, OS_ONCE);
	assert_int_equal(verify(false), 1);
	assert_true(says("DAMAGED at byte"));
	assert_true(says("whole"));
}

TEST(a_damaged_boot_file_is_reported)
{
	static const char line[] = "node 00000000deadbeef boot 7\n";
	char path[TEMP_PATH_BYTES];
	temp_path(&dir, "boot", path);
	assert_int_equal(file_write_atomic(path, str_of(line), 0600, NULL), 0);
	assert_int_equal(verify(false), 0);
	for (size_t i = 0; i < sizeof(line) - 1; i++) {
		char flipped[sizeof(line)];
		memcpy(flipped, line, sizeof(line));
		flipped[i] ^= 0x20;
		assert_int_equal(file_write_atomic(path, str_n(flipped, sizeof(line) - 1), 0600, NULL), 0);
		assert_int_equal(verify(false), 1);
		assert_true(says("boot: DAMAGED"));
	}
}

TEST(a_damaged_salt_is_reported)
{
	static const char *const lines[] = {"", "2026-02-30 00112233445566778899aabbccddeeff\n",
	                                    "2026-02-03 00112233445566778899aabbccddeef\n",
	                                    "2026-02-03-00112233445566778899aabbccddeeff\n",
	                                    "2026-02-03 00112233445566778899aabbccddeefg\n"};
	char path[TEMP_PATH_BYTES];
	temp_path(&dir, "salt", path);
	assert_int_equal(
	    file_write_atomic(path, STR("2026-02-03 00112233445566778899aabbccddeeff\n"), 0600, NULL), 0);
	assert_int_equal(verify(false), 0);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		assert_int_equal(file_write_atomic(path, str_of(lines[i]), 0600, NULL), 0);
		assert_int_equal(verify(false), 1);
		assert_true(says("salt: DAMAGED"));
	}
}

TEST_MAIN(.setup = make_folder, .teardown = remove_folder)
