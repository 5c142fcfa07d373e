/*
 * Reading segments, whole and damaged. For every byte of a sample: flipped, zeroed, or the file cut there,
 * all records before the place are read as they were, and none behind it.
 */
#include "event/log_private.h"
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"

static struct event_sample sample, bad;

static struct event pristine(size_t i)
{
	struct event ev;
	assert_int_equal(event_decode(sample.data + sample.at[i], sample.len - sample.at[i], sample.segment,
	                              sample.at[i], &ev),
	                 EVENT_VALID);
	return ev;
}

/* Reads to where it stops, and compares with the sample. */
static size_t read_all_equal(size_t len, int *ret_last, uint64_t *ret_position)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev;
	size_t n = 0;
	*ret_last = event_reader_open(&r, test_dir.path, sample.segment, 0, NULL);
	*ret_position = 0;
	if (*ret_last < 0)
		return 0;
	assert_int_equal(r.node, SAMPLE_NODE);
	while ((*ret_last = event_reader_next(&r, len, &ev)) == 1) {
		struct event want = pristine(n++);
		assert_events_equal(&ev, &want);
	}
	*ret_position = r.position;
	if (*ret_last == ERR_CORRUPT) {
		assert_int_not_equal(r.fault, EVENT_VALID);
		assert_int_equal(event_reader_next(&r, len, &ev), ERR_CORRUPT); /* it stays there */
		assert_int_equal(r.position, *ret_position);
	}
	return n;
}

static void check_damaged_header(enum damage what)
{
	struct event_scan scan;
	int last;
	uint64_t position;
	assert_int_equal(event_scan(test_dir.path, sample.segment, 0, &scan, NULL), 0);
	assert_false(scan.header_valid);
	assert_false(scan.ended);
	assert_int_equal(scan.valid_end, 0);
	assert_int_equal(scan.records, 0);
	assert_int_equal(scan.size, what == DAMAGE_CUT ? bad.len : sample.len);
	assert_int_equal(read_all_equal(bad.len, &last, &position), 0);
	assert_int_equal(last, ERR_CORRUPT);
}

static void check_damaged_record(enum damage what, size_t byte)
{
	struct event_scan scan;
	int last;
	uint64_t position;
	size_t good = sample_records_before(&sample, byte);
	bool stops_clean = what == DAMAGE_CUT && byte == sample.at[good];
	struct event_counts counts = sample_counts(&sample, good);
	assert_int_equal(event_scan(test_dir.path, sample.segment, 0, &scan, NULL), 0);
	assert_true(scan.header_valid);
	assert_int_equal(scan.size, bad.len);
	assert_int_equal(scan.valid_end, sample.at[good]);
	assert_false(scan.ended);
	assert_int_equal(scan.records, good);
	assert_counts_equal(&scan.counts, &counts);
	assert_int_equal(scan.fault == EVENT_VALID, stops_clean);
	if (what == DAMAGE_CUT || good + 1 == sample.count)
		assert_int_equal(scan.valid_again_at, 0);
	else
		assert_int_equal(scan.valid_again_at, sample.at[good + 1]);
	assert_int_equal(read_all_equal(bad.len, &last, &position), good);
	assert_int_equal(last, stops_clean ? 0 : ERR_CORRUPT);
	assert_int_equal(position, sample.at[good]);
}

TEST(every_damaged_byte_stops_reading_at_its_record)
{
	size_t tried = 0;
	sample_make(&sample, SAMPLE_SEGMENT, 5, true);
	for (size_t byte = 0; byte < sample.len; byte++) {
		for (enum damage what = 0; what < DAMAGES; what++) {
			if (!sample_damage(&sample, what, byte, &bad))
				continue;
			segment_file_write(test_dir.path, sample.segment, bad.data, bad.len);
			if (byte < EVENT_HEADER_BYTES)
				check_damaged_header(what);
			else
				check_damaged_record(what, byte);
			tried++;
		}
	}
	assert_true(tried > 2 * sample.len);
}

TEST(a_whole_segment_is_read_to_its_end)
{
	struct event_scan scan;
	int last;
	uint64_t position;
	sample_make(&sample, SAMPLE_SEGMENT, 5, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	struct event_counts counts = sample_counts(&sample, sample.count);
	assert_int_equal(event_scan(test_dir.path, sample.segment, 0, &scan, NULL), 0);
	assert_true(scan.header_valid && scan.ended && !scan.count_is_wrong);
	assert_int_equal(scan.valid_end, sample.len);
	assert_int_equal(scan.records, sample.count - 1);
	assert_int_equal(scan.fault, EVENT_VALID);
	assert_counts_equal(&scan.counts, &counts);
	assert_int_equal(read_all_equal(sample.len, &last, &position), sample.count);
	assert_int_equal(last, 0);
	assert_int_equal(position, sample.len);
}

TEST(reading_can_begin_at_every_record)
{
	sample_make(&sample, SAMPLE_SEGMENT, 2, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	for (size_t i = 0; i <= sample.count; i++) {
		struct event_scan scan;
		struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
		struct event ev;
		assert_int_equal(event_scan(test_dir.path, sample.segment, sample.at[i], &scan, NULL), 0);
		assert_true(scan.ended);
		assert_false(scan.count_is_wrong);
		assert_int_equal(scan.valid_end, sample.len);
		assert_int_equal(scan.records, sample.count - 1 > i ? sample.count - 1 - i : 0);
		assert_int_equal(event_reader_open(&r, test_dir.path, sample.segment, sample.at[i], NULL), 0);
		for (size_t j = i; j < sample.count; j++) {
			struct event want = pristine(j);
			assert_int_equal(event_reader_next(&r, sample.len, &ev), 1);
			assert_events_equal(&ev, &want);
		}
		assert_int_equal(event_reader_next(&r, sample.len, &ev), 0);
	}
}

/* A text may look like an end; only where the file ends can it be one. */
TEST(a_forged_end_inside_a_text_ends_nothing)
{
	struct event_scan scan;
	static uint8_t file[512];
	uint8_t forged[EVENT_END_BYTES];
	size_t at = EVENT_HEADER_BYTES;
	event_header_encode(&(struct event_header){1, SAMPLE_SEGMENT, 1}, file);
	event_encode_end(forged, SAMPLE_SEGMENT, at + EVENT_RECORD_BYTES_MIN, 0, 0);
	at += event_encode_string(file + at, SAMPLE_SEGMENT, at, str_n((const char *)forged, sizeof(forged)));
	size_t from = at;
	at += event_encode_tally(file + at, SAMPLE_SEGMENT, at, &(struct event_tally){1, 2, 3});
	segment_file_write(test_dir.path, SAMPLE_SEGMENT, file, at);
	assert_int_equal(event_scan(test_dir.path, SAMPLE_SEGMENT, from, &scan, NULL), 0);
	assert_false(scan.ended);
	assert_int_equal(scan.counts.rejected, 2);
	assert_int_equal(scan.valid_end, at);
}

/* Longer than the reader's buffer several times over, so that records cross its borders. */
TEST(long_segments_are_read_whole)
{
	enum { RECORDS = 3000, BYTES = RECORDS * 400 };
	uint8_t *file = malloc(BYTES);
	char text[300];
	size_t at = EVENT_HEADER_BYTES;
	memset(text, 'x', sizeof(text));
	event_header_encode(&(struct event_header){1, SAMPLE_SEGMENT, 1}, file);
	for (unsigned i = 0; i < RECORDS; i++)
		at += event_encode_string(file + at, SAMPLE_SEGMENT, at, str_n(text, i % sizeof(text)));
	assert_true(at > 400 * 1024);
	segment_file_write(test_dir.path, SAMPLE_SEGMENT, file, at);
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev;
	assert_int_equal(event_reader_open(&r, test_dir.path, SAMPLE_SEGMENT, 0, NULL), 0);
	for (unsigned i = 0; i < RECORDS; i++) {
		assert_int_equal(event_reader_next(&r, at, &ev), 1);
		assert_int_equal(ev.string.len, i % sizeof(text));
	}
	assert_int_equal(event_reader_next(&r, at, &ev), 0);
	/* Damage in the middle of it, with the next valid record beyond a stretch of zeros. */
	struct event_scan scan;
	size_t hole = at / 3, hole_end = hole + 300 * 1024;
	memset(file + hole, 0, hole_end - hole);
	segment_file_write(test_dir.path, SAMPLE_SEGMENT, file, at);
	assert_int_equal(event_scan(test_dir.path, SAMPLE_SEGMENT, 0, &scan, NULL), 0);
	assert_true(scan.valid_end <= hole && scan.valid_end + 8 + sizeof(text) > hole);
	assert_true(scan.valid_again_at >= hole_end && scan.valid_again_at < hole_end + 8 + sizeof(text));
	free(file);
}

/* Every 97th byte of a larger sample. */
TEST(damage_in_larger_segments_is_found_too)
{
	sample_make(&sample, SAMPLE_SEGMENT, 22, true);
	assert_true(sample.len > 10000);
	for (size_t byte = EVENT_HEADER_BYTES; byte < sample.len; byte += 97) {
		for (enum damage what = 0; what < DAMAGES; what++) {
			if (!sample_damage(&sample, what, byte, &bad))
				continue;
			segment_file_write(test_dir.path, sample.segment, bad.data, bad.len);
			check_damaged_record(what, byte);
		}
	}
}

TEST(the_reader_goes_no_further_than_its_bound)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev;
	assert_int_equal(event_reader_open(&r, test_dir.path, sample.segment, 0, NULL), 0);
	assert_int_equal(event_reader_next(&r, EVENT_HEADER_BYTES, &ev), 0);
	for (size_t i = 0; i < sample.count; i++) {
		assert_int_equal(event_reader_next(&r, sample.at[i + 1] - 1, &ev), ERR_CORRUPT);
		assert_int_equal(event_reader_next(&r, sample.at[i + 1], &ev), 1);
		assert_int_equal(event_reader_next(&r, sample.at[i + 1], &ev), 0);
	}
}

/* Behind what is published may lie what a failed write left there; it is cut off, and something else takes
 * its place. A reader that had looked there early would take the old for the new. */
TEST(what_lay_behind_the_published_end_is_never_read)
{
	static uint8_t file[1024];
	struct event ev;
	const struct event_tally first = {1, 1, 0}, lost = {2, 20, 0}, second = {3, 3, 0};
	event_header_encode(&(struct event_header){1, SAMPLE_SEGMENT, 1}, file);
	size_t end = EVENT_HEADER_BYTES;
	end += event_encode_tally(file + end, SAMPLE_SEGMENT, end, &first);
	size_t lost_end = end + event_encode_tally(file + end, SAMPLE_SEGMENT, end, &lost);
	segment_file_write(test_dir.path, SAMPLE_SEGMENT, file, lost_end);
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	assert_int_equal(event_reader_open(&r, test_dir.path, SAMPLE_SEGMENT, 0, NULL), 0);
	assert_int_equal(event_reader_next(&r, end, &ev), 1);
	assert_int_equal(ev.tally.rejected, 1);
	assert_int_equal(event_reader_next(&r, end, &ev), 0);
	size_t second_end = end + event_encode_tally(file + end, SAMPLE_SEGMENT, end, &second);
	segment_file_write(test_dir.path, SAMPLE_SEGMENT, file, second_end);
	assert_int_equal(event_reader_next(&r, second_end, &ev), 1);
	assert_int_equal(ev.tally.rejected, 3);
}

TEST(mentions_lead_to_strings_only)
{
	char out[EVENT_STRING_BYTES_MAX];
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	assert_int_equal(event_reader_open(&r, test_dir.path, sample.segment, 0, NULL), 0);
	size_t found = 0;
	for (uint32_t at = 0; at < sample.len + 10; at++) {
		struct str text = event_reader_string(&r, at, out);
		bool is_string = at == sample.at[0] || at == sample.at[1] || at == sample.at[2];
		assert_int_equal(text.ptr != NULL, is_string);
		found += is_string;
	}
	assert_int_equal(found, 3);
	assert_true(str_eq(event_reader_string(&r, (uint32_t)sample.at[2], out), STR("de-AT")));
	assert_null(event_reader_string(&r, UINT32_MAX, out).ptr);
}

TEST(a_segment_under_another_name_holds_nothing)
{
	struct event_scan scan;
	struct event_reader r = {.fd = -1};
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	segment_file_write(test_dir.path, sample.segment + 1, sample.data, sample.len);
	assert_int_equal(event_scan(test_dir.path, sample.segment + 1, 0, &scan, NULL), 0);
	assert_false(scan.header_valid);
	assert_int_equal(event_reader_open(&r, test_dir.path, sample.segment + 1, 0, NULL), ERR_CORRUPT);
}

TEST(a_missing_segment_is_not_found)
{
	struct event_scan scan;
	struct event_reader r = {.fd = -1};
	struct err e = {""};
	assert_int_equal(event_reader_open(&r, test_dir.path, 1, 0, &e), ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, test_dir.path));
	event_reader_close(&r);
	event_reader_close(&r);
	assert_int_equal(event_scan(test_dir.path, 1, 0, &scan, &e), ERR_NOT_FOUND);
	event_reader_close(&(struct event_reader){0});
}

/* For every N the N-th read fails: an error with a sentence, and never a record that is not there. */
TEST(a_read_that_fails_is_reported_and_leaks_nothing)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	sample.data[sample.at[3] + 9] ^= 1; /* so that the rest is searched, too */
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	unsigned before = open_descriptors();
	unsigned failed = 0;
	for (uint64_t n = 1;; n++) {
		struct event_scan scan;
		struct err e = {""};
		os_fault_fail(OS_PREAD, n, EIO, OS_ONCE);
		int r = event_scan(test_dir.path, sample.segment, 0, &scan, &e);
		bool reached = os_fault_hits(OS_PREAD) > 0;
		os_fault_reset();
		assert_int_equal(r, reached ? ERR_UNAVAILABLE : 0);
		assert_int_equal(e.text[0] != '\0', reached);
		assert_int_equal(open_descriptors(), before);
		if (!reached)
			break;
		failed++;
	}
	assert_true(failed >= 3);
	os_fault_fail(OS_OPEN, 1, EMFILE, OS_ONCE);
	struct event_reader r = {.fd = -1};
	assert_int_equal(event_reader_open(&r, test_dir.path, sample.segment, 0, NULL), ERR_UNAVAILABLE);
}

TEST(short_and_interrupted_reads_change_nothing)
{
	sample_make(&sample, SAMPLE_SEGMENT, 2, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	for (size_t bytes = 1; bytes < 70; bytes++) {
		struct event_scan scan;
		os_fault_short(OS_PREAD, 1, bytes, OS_FOR_GOOD);
		os_fault_fail(OS_PREAD, 1 + bytes % 7, EINTR, OS_ONCE);
		assert_int_equal(event_scan(test_dir.path, sample.segment, 0, &scan, NULL), 0);
		os_fault_reset();
		assert_true(scan.ended);
		assert_int_equal(scan.records, sample.count - 1);
	}
}

/* The file grows between the look at its size and the reading of it. */
static size_t grow_to;

static int open_and_grow(const char *path, int flags, mode_t mode)
{
	int fd = os_sys_real.open(path, O_WRONLY | O_CLOEXEC, 0);
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	size_t len = (size_t)st.st_size;
	assert_int_equal(pwrite(fd, sample.data + len, grow_to - len, (off_t)len), grow_to - len);
	close(fd);
	return os_sys_real.open(path, flags, mode);
}

TEST(a_segment_that_grows_meanwhile_is_not_damaged)
{
	sample_make(&sample, SAMPLE_SEGMENT, 2, false);
	grow_to = sample.len;
	for (size_t cut = EVENT_HEADER_BYTES; cut < sample.at[4]; cut++) {
		struct event_scan scan;
		segment_file_write(test_dir.path, sample.segment, sample.data, cut);
		os_sys.open = open_and_grow;
		assert_int_equal(event_scan(test_dir.path, sample.segment, 0, &scan, NULL), 0);
		os_sys = os_sys_real;
		assert_int_equal(scan.valid_again_at, 0);
		assert_int_equal(scan.valid_end, sample.at[sample_records_before(&sample, cut)]);
	}
}

TEST(segments_are_listed_by_number_and_others_left_out)
{
	static const char *const others[] = {
	    "boot",
	    "00000001-00-000000.log.bak",
	    "1-0-0.log",
	    "0000000A-00-000000.log",
	    "salt",
	    "000000001-00-00000.log",
	    " 0000001-00-000000.log",
	    "+0000001-00-000000.log",
	    "00000001-00-000000.LOG",
	};
	const uint64_t numbers[] = {event_segment(2, 0, 0), event_segment(1, 255, 0xffffff),
	                            event_segment(1, 0, 7), event_segment(0xffffffff, 1, 1)};
	struct arena CLEANUP(arena_release) arena = {0};
	uint64_t *found;
	size_t count;
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		char path[TEMP_PATH_BYTES];
		FILE *f = fopen(temp_path(&test_dir, others[i], path), "w");
		assert_non_null(f);
		fclose(f);
	}
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		segment_file_write(test_dir.path, numbers[i], "", 0);
	assert_int_equal(event_folder_list(test_dir.path, &arena, &found, &count, NULL), 0);
	assert_int_equal(count, ARRAY_LEN(numbers));
	assert_int_equal(found[0], numbers[2]);
	assert_int_equal(found[1], numbers[1]);
	assert_int_equal(found[2], numbers[0]);
	assert_int_equal(found[3], numbers[3]);
	struct err e = {""};
	assert_int_equal(event_folder_list("/nowhere/at/all", &arena, &found, &count, &e), ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, "/nowhere/at/all"));
}

TEST_MAIN(.setup = test_dir_make, .teardown = test_dir_remove)
