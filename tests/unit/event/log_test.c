/* The folder of the event log: boots, recovery, what is known of segments, and the flusher. */
#include "event/log_private.h"
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"

static struct event_sample sample, bad;

struct read_so_far {
	const struct position *read;
	size_t count;
};

static int resume(void *ctx, uint64_t node, struct arena *arena, struct position **ret, size_t *ret_count)
{
	const struct read_so_far *so_far = ctx;
	assert_int_not_equal(node, 0);
	*ret = arena_alloc(arena, so_far->count * sizeof(**ret) + 1);
	assert_non_null(*ret);
	if (so_far->count > 0)
		memcpy(*ret, so_far->read, so_far->count * sizeof(**ret));
	*ret_count = so_far->count;
	return 0;
}

static int open_reading(const struct position *read, size_t count, struct event_log **ret, struct err *e)
{
	struct read_so_far so_far = {read, count};
	const struct event_log_config config = {.path = test_dir.path,
	                                        .settings = &kit_settings,
	                                        .writers = 1,
	                                        .resume = resume,
	                                        .resume_ctx = &so_far};
	return event_log_open(&config, ret, e);
}

static unsigned boot_of(const struct event_log *log)
{
	return log->boot;
}

static struct event_segment_state only_state(struct event_log *log)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct event_segment_state *states;
	size_t count;
	assert_int_equal(event_log_segments(log, &arena, &states, &count), 0);
	assert_int_equal(count, 1);
	return states[0];
}

/* Boots */

TEST(boots_grow_and_the_node_stays)
{
	uint64_t node = 0;
	for (unsigned boot = 1; boot < 5; boot++) {
		struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
		assert_int_equal(boot_of(log), boot);
		assert_int_not_equal(event_log_node(log), 0);
		if (boot > 1)
			assert_int_equal(event_log_node(log), node);
		node = event_log_node(log);
		event_log_close(log);
	}
	struct buf CLEANUP(buf_release) text = {0};
	char path[TEMP_PATH_BYTES], want[64];
	assert_int_equal(file_read(temp_path(&test_dir, "boot", path), 100, &text, NULL), 0);
	int n = snprintf(want, sizeof(want), "node %016llx boot 4\n", (unsigned long long)node);
	assert_true(str_eq(buf_view(&text), str_n(want, (size_t)n)));
}

TEST(a_boot_is_higher_than_any_segment_or_position_knows)
{
	struct event_log *log;
	sample_make(&sample, event_segment(40, 0, 0), 1, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	log = kit_log_open(test_dir.path, &kit_settings, 1); /* there is no boot file */
	assert_int_equal(boot_of(log), 41);
	event_log_close(log);
	const struct position read[] = {{event_segment(90, 1, 2), 64}, {event_segment(12, 0, 0), 64}};
	assert_int_equal(open_reading(read, 2, &log, NULL), 0);
	assert_int_equal(boot_of(log), 91);
	event_log_close(log);
	log = kit_log_open(test_dir.path, &kit_settings, 1);
	assert_int_equal(boot_of(log), 92);
	event_log_close(log);
}

static unsigned boot_at(int64_t now_ms)
{
	struct event_log *log;
	const struct event_log_config config = {.path = test_dir.path,
	                                        .settings = &kit_settings,
	                                        .writers = 1,
	                                        .boot_min = event_log_boot(now_ms)};
	assert_int_equal(event_log_open(&config, &log, NULL), 0);
	unsigned boot = boot_of(log);
	event_log_close(log);
	return boot;
}

/* The copy knows nothing of what was numbered since; the clock does. */
TEST(a_folder_that_was_put_back_begins_beyond_what_was_lost)
{
	struct buf CLEANUP(buf_release) copy = {0};
	char path[TEMP_PATH_BYTES];
	const int64_t now_ms = 1790000000000;
	unsigned first = boot_at(now_ms);
	assert_int_equal(file_read(temp_path(&test_dir, "boot", path), 100, &copy, NULL), 0);
	unsigned lost = boot_at(now_ms + 5000);
	assert_true(lost > first);
	assert_int_equal(file_write_atomic(path, buf_view(&copy), 0600, NULL), 0);
	assert_true(boot_at(now_ms + 9000) > lost);
	/* A clock that goes back, or stands, makes no number come twice. */
	unsigned last = boot_at(now_ms + 9000);
	assert_int_equal(boot_at(now_ms), last + 1);
	assert_int_equal(boot_at(0), last + 2);
	assert_int_equal(boot_at(-1), last + 3);
	assert_true(boot_at(INT64_MAX) < UINT32_MAX / 2 + 1);
}

TEST(a_damaged_boot_file_stops_the_start)
{
	static const char *const texts[] = {"", "node", "node xyz boot 1\n", "node 00ff boot\n"};
	char path[TEMP_PATH_BYTES];
	temp_path(&test_dir, "boot", path);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct event_log *log = NULL;
		struct err e = {""};
		assert_int_equal(file_write_atomic(path, str_of(texts[i]), 0600, NULL), 0);
		assert_int_equal(open_reading(NULL, 0, &log, &e), ERR_CORRUPT);
		assert_null(log);
		assert_non_null(strstr(e.text, path));
	}
	assert_int_equal(unlink(path), 0);
	event_log_close(kit_log_open(test_dir.path, &kit_settings, 1));
}

TEST(the_folder_is_made)
{
	char path[TEMP_PATH_BYTES];
	struct stat st;
	event_log_close(kit_log_open(temp_path(&test_dir, "a/b", path), &kit_settings, 2));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

/* Recovery */

static void expect_file(const uint8_t *data, size_t len)
{
	struct buf CLEANUP(buf_release) file = {0};
	segment_file_read(test_dir.path, sample.segment, &file);
	assert_int_equal(file.len, len);
	assert_memory_equal(file.data, data, len);
}

/* Opens twice: the second must find what the first has left. */
static void expect_recovery(const uint8_t *file, size_t len, uint64_t end, size_t records)
{
	struct event_counts counts = sample_counts(&sample, records);
	bool changes = len != bad.len || memcmp(file, bad.data, len) != 0;
	int times = changes || records % 8 == 0 ? 2 : 1; /* what is left alone is found alike */
	for (int i = 0; i < times; i++) {
		struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 0);
		struct event_counts backlog = event_log_backlog(log);
		struct event_segment_state s = only_state(log);
		assert_int_equal(s.segment, sample.segment);
		assert_int_equal(s.end, end);
		assert_true(s.finished);
		assert_counts_equal(&backlog, &counts);
		uint64_t waits = end > EVENT_HEADER_BYTES ? end - EVENT_HEADER_BYTES : 0;
		assert_int_equal(event_log_spool_bytes(log), waits);
		event_log_close(log);
		expect_file(file, len);
	}
}

static void check_recovery(enum damage what, size_t byte)
{
	size_t good = byte < EVENT_HEADER_BYTES ? 0 : sample_records_before(&sample, byte);
	if (bad.len <= EVENT_HEADER_BYTES) {
		event_log_close(kit_log_open(test_dir.path, &kit_settings, 0));
		assert_false(segment_file_is_there(test_dir.path, sample.segment));
	} else if (byte < EVENT_HEADER_BYTES) {
		expect_recovery(bad.data, bad.len, 0, 0);
	} else if (what != DAMAGE_CUT && good + 1 < sample.count) {
		expect_recovery(bad.data, bad.len, sample.at[good], good);
	} else {
		static uint8_t sealed[SAMPLE_BYTES_MAX];
		memcpy(sealed, sample.data, sample.at[good]);
		size_t len = sample.at[good];
		len += event_encode_end(sealed + len, sample.segment, len, good, EVENT_END_BY_RECOVERY);
		expect_recovery(sealed, len, len, good);
	}
}

/* A torn tail is cut off and the segment sealed; a damaged segment stays as it is; twice is like once. */
TEST(recovery_copes_with_damage_at_every_byte)
{
	kit_syncs_skip();
	sample_make(&sample, SAMPLE_SEGMENT, 4, true);
	assert_true(sample.len > 2000);
	for (size_t byte = 0; byte < sample.len; byte++) {
		for (enum damage what = 0; what < DAMAGES; what++) {
			if (!sample_damage(&sample, what, byte, &bad))
				continue;
			segment_file_write(test_dir.path, sample.segment, bad.data, bad.len);
			check_recovery(what, byte);
		}
	}
}

TEST(a_whole_segment_is_left_as_it_is)
{
	sample_make(&sample, SAMPLE_SEGMENT, 3, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	expect_recovery(sample.data, sample.len, sample.len, sample.count);
}

/* From every record on: what is unread is counted, and the end record still counts all. */
TEST(recovery_begins_where_the_reader_stands)
{
	kit_syncs_skip();
	sample_make(&sample, SAMPLE_SEGMENT, 2, false);
	struct event_counts all = sample_counts(&sample, sample.count);
	for (size_t i = 0; i <= sample.count; i++) {
		for (size_t torn = 0; torn < 3; torn++) {
			static uint8_t sealed[SAMPLE_BYTES_MAX];
			struct event_log *log;
			struct event_counts read = sample_counts(&sample, i);
			const struct position at = {sample.segment, sample.at[i]};
			memset(sample.data + sample.len, 9, torn);
			segment_file_write(test_dir.path, sample.segment, sample.data, sample.len + torn);
			assert_int_equal(open_reading(&at, 1, &log, NULL), 0);
			struct event_counts backlog = event_log_backlog(log);
			assert_int_equal(backlog.clicks, all.clicks - read.clicks);
			assert_int_equal(backlog.impressions, all.impressions - read.impressions);
			assert_int_equal(backlog.rejected, all.rejected - read.rejected);
			assert_int_equal(event_log_spool_bytes(log),
			                 sample.len + EVENT_END_BYTES - sample.at[i]);
			event_log_close(log);
			memcpy(sealed, sample.data, sample.len);
			event_encode_end(sealed + sample.len, sample.segment, sample.len, sample.count,
			                 EVENT_END_BY_RECOVERY);
			expect_file(sealed, sample.len + EVENT_END_BYTES);
		}
	}
}

TEST(a_reader_behind_the_end_record_has_nothing_left)
{
	struct event_log *log;
	sample_make(&sample, SAMPLE_SEGMENT, 2, true);
	const struct position at = {sample.segment, sample.len};
	const struct event_counts none = {0};
	for (size_t junk = 0; junk < 3; junk++) {
		memset(sample.data + sample.len, 9, junk);
		segment_file_write(test_dir.path, sample.segment, sample.data, sample.len + junk);
		assert_int_equal(open_reading(&at, 1, &log, NULL), 0);
		struct event_counts backlog = event_log_backlog(log);
		assert_counts_equal(&backlog, &none);
		assert_int_equal(event_log_spool_bytes(log), 0);
		event_log_close(log);
		expect_file(sample.data, sample.len + junk);
	}
}

/* The sink knows of more than the file has: the power went before the file was on the disk. */
TEST(a_segment_shorter_than_what_was_read_is_left_alone)
{
	struct event_log *log;
	sample_make(&sample, SAMPLE_SEGMENT, 2, false);
	const struct position at = {sample.segment, sample.len};
	sample.len = sample.at[5] + 3;
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	assert_int_equal(open_reading(&at, 1, &log, NULL), 0);
	assert_int_equal(event_log_spool_bytes(log), 0);
	assert_int_equal(event_log_backlog(log).clicks, 0);
	event_log_close(log);
	expect_file(sample.data, sample.len);
}

TEST(files_that_are_no_segments_are_left_alone)
{
	static const char *const names[] = {"0000000A-00-000000.log", "00000001-00-000000.log~", "notes.txt"};
	char path[TEMP_PATH_BYTES];
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(
		    file_write_atomic(temp_path(&test_dir, names[i], path), STR("mine"), 0600, NULL), 0);
	struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
	assert_int_equal(boot_of(log), 1);
	event_log_close(log);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct buf CLEANUP(buf_release) text = {0};
		assert_int_equal(file_read(temp_path(&test_dir, names[i], path), 100, &text, NULL), 0);
		assert_true(str_eq(buf_view(&text), STR("mine")));
	}
}

/* What a killed process leaves: nothing is lost, and nothing is lost by opening again and again. */
TEST(what_was_flushed_survives_a_killed_process)
{
	uint64_t node = 0;
	uint64_t clicks = 0;
	for (int life = 0; life < 4; life++) {
		struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 2);
		assert_true(life == 0 || event_log_node(log) == node);
		node = event_log_node(log);
		assert_int_equal(event_log_backlog(log).clicks, clicks);
		for (unsigned i = 0; i < 2; i++) {
			struct event_writer *w = event_log_writer(log, i);
			assert_true(kit_click(w, 1, SAMPLE_TIME_MS));
			assert_true(kit_click(w, 2, SAMPLE_TIME_MS));
			assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
			assert_true(kit_click(w, 3, SAMPLE_TIME_MS)); /* never flushed */
			clicks += 2;
			w->turn_len = 0; /* the process dies here */
			w->turn = (struct event_counts){0};
			w->segment = NULL;
		}
		event_log_close(log);
		assert_int_equal(folder_count(test_dir.path).counts.clicks, clicks);
	}
	struct event_found found = folder_count(test_dir.path);
	assert_int_equal(found.segments, 8);
	assert_int_equal(found.ended, 6);
}

/* Segments */

TEST(a_segment_is_made_with_its_first_record)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct event_segment_state *states;
	size_t count;
	struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 3);
	assert_int_equal(event_log_segments(log, &arena, &states, &count), 0);
	assert_int_equal(count, 0);
	struct event_writer *w = event_log_writer(log, 2);
	assert_true(kit_click(w, 1, SAMPLE_TIME_MS));
	assert_int_equal(only_state(log).segment, event_segment(1, 2, 0));
	assert_int_equal(only_state(log).end, EVENT_HEADER_BYTES);
	assert_false(only_state(log).finished);
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
	assert_int_equal(only_state(log).end, EVENT_HEADER_BYTES + event_writer_written(w));
	event_log_close(log);
	assert_int_equal(folder_count(test_dir.path).segments, 1);
	assert_int_equal(folder_count(test_dir.path).ended, 1);
}

TEST(only_what_is_done_with_can_be_removed)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
	struct event_writer *w = event_log_writer(log, 0);
	assert_true(kit_click(w, 1, SAMPLE_TIME_MS));
	assert_int_equal(event_log_remove(log, event_segment(boot_of(log), 0, 0)), ERR_BUSY);
	assert_int_equal(event_log_remove(log, 12345), ERR_NOT_FOUND);
	assert_int_equal(event_log_remove(log, sample.segment), 0);
	assert_false(segment_file_is_there(test_dir.path, sample.segment));
	assert_int_equal(event_log_remove(log, sample.segment), ERR_NOT_FOUND);
	event_log_close(log);
}

TEST(a_segment_that_cannot_be_removed_stays_known)
{
	sample_make(&sample, SAMPLE_SEGMENT, 1, true);
	segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
	os_fault_fail(OS_ACCEPT4, 1, EIO,
	              OS_ONCE); /* never called: puts the table in place before the flusher starts */
	struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
	os_fault_fail(OS_UNLINK, 1, EIO, OS_ONCE);
	assert_int_equal(event_log_remove(log, sample.segment), ERR_UNAVAILABLE);
	os_fault_fail(OS_FSYNC, 1, EIO, OS_ONCE); /* of the folder: its name may come back */
	assert_int_equal(event_log_remove(log, sample.segment), ERR_UNAVAILABLE);
	assert_int_equal(event_log_remove(log, sample.segment), 0);
	event_log_close(log);
}

/* Its writer went on to another one, so this one had its end. */
TEST(a_segment_without_its_end_that_has_a_successor_is_damaged)
{
	for (int header_only = 0; header_only < 2; header_only++) {
		sample_make(&sample, SAMPLE_SEGMENT, 1, true);
		size_t len = header_only ? EVENT_HEADER_BYTES : sample.len - EVENT_END_BYTES;
		segment_file_write(test_dir.path, sample.segment, sample.data, len);
		sample_make(&bad, SAMPLE_SEGMENT + 1, 1, true);
		segment_file_write(test_dir.path, bad.segment, bad.data, bad.len);
		struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
		assert_int_equal(event_log_remove(log, sample.segment), ERR_CORRUPT);
		assert_int_equal(event_log_remove(log, bad.segment), 0);
		event_log_close(log);
		expect_file(sample.data, len);
	}
}

TEST(what_is_longer_than_a_write_is_no_torn_write)
{
	static const uint8_t rubbish[EVENT_TURN_BYTES + 1] = {0};
	sample_make(&sample, SAMPLE_SEGMENT, 1, false);
	struct buf CLEANUP(buf_release) file = {0};
	buf_append(&file, sample.data, sample.len);
	buf_append(&file, rubbish, sizeof(rubbish));
	segment_file_write(test_dir.path, sample.segment, (uint8_t *)file.data, file.len);
	struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
	assert_int_equal(event_log_damaged_bytes(log), sizeof(rubbish));
	event_log_close(log);
	expect_file((uint8_t *)file.data, file.len);
	segment_file_write(test_dir.path, sample.segment, (uint8_t *)file.data, file.len - 1);
	log = kit_log_open(test_dir.path, &kit_settings, 1);
	assert_int_equal(event_log_damaged_bytes(log), 0);
	event_log_close(log);
}

TEST(a_damaged_segment_stays_for_people_to_look_at)
{
	for (int header = 0; header < 2; header++) {
		sample_make(&sample, SAMPLE_SEGMENT, 1, true);
		sample.data[header ? 20 : sample.at[4] + 20] ^= 1;
		segment_file_write(test_dir.path, sample.segment, sample.data, sample.len);
		struct event_log *log = kit_log_open(test_dir.path, &kit_settings, 1);
		assert_int_equal(event_log_remove(log, sample.segment), ERR_CORRUPT);
		event_log_close(log);
		expect_file(sample.data, sample.len);
	}
}

/* The flusher */

struct watcher {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	unsigned calls;
	unsigned syncs_at_first;
	bool wants_turn;
	unsigned syncs;
};
static struct watcher watcher;

static void watcher_begin(void)
{
	watcher = (struct watcher){.calls = 0};
	pthread_mutex_init(&watcher.lock, NULL);
	pthread_cond_init(&watcher.wake, NULL);
}

static void watched(void *ctx, unsigned writer)
{
	assert_ptr_equal(ctx, &watcher);
	assert_int_equal(writer, 0);
	pthread_mutex_lock(&watcher.lock);
	if (watcher.calls++ == 0)
		watcher.syncs_at_first = watcher.syncs;
	pthread_cond_broadcast(&watcher.wake);
	pthread_mutex_unlock(&watcher.lock);
}

static struct event_log *open_watched(void)
{
	struct event_log *log = NULL;
	const struct event_log_config config = {.path = test_dir.path,
	                                        .settings = &kit_settings,
	                                        .writers = 2,
	                                        .synced = watched,
	                                        .ctx = &watcher};
	watcher_begin();
	assert_int_equal(event_log_open(&config, &log, NULL), 0);
	return log;
}

TEST(a_wanted_sync_is_done_and_told)
{
	os_fault_clear(OS_FDATASYNC);
	struct event_log *log = open_watched();
	struct event_writer *w = event_log_writer(log, 0);
	for (unsigned round = 1; round <= 20; round++) {
		assert_true(kit_impression(w, round, SAMPLE_TIME_MS));
		assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
		assert_true(event_writer_synced(w) < event_writer_written(w));
		event_writer_want_sync(w);
		pthread_mutex_lock(&watcher.lock);
		while (watcher.calls < round)
			pthread_cond_wait(&watcher.wake, &watcher.lock);
		pthread_mutex_unlock(&watcher.lock);
		assert_int_equal(event_writer_synced(w), event_writer_written(w));
		assert_int_equal(os_fault_calls(OS_FDATASYNC), round);
	}
	assert_int_equal(os_fault_calls(OS_FSYNC), 2 + 1); /* the boot file, its folder; the segment's name */
	event_log_close(log);
}

/* During every sync another turn is written, so the segment is never done; whoever waits must be told all
 * the same. */
enum { TURNS_DURING_SYNCS = 20 };

static int sync_while_turns_go_on(int fd)
{
	(void)fd;
	pthread_mutex_lock(&watcher.lock);
	if (watcher.syncs++ < TURNS_DURING_SYNCS && watcher.calls == 0) {
		watcher.wants_turn = true;
		pthread_cond_broadcast(&watcher.wake);
		while (watcher.wants_turn)
			pthread_cond_wait(&watcher.wake, &watcher.lock);
	}
	pthread_mutex_unlock(&watcher.lock);
	return 0;
}

TEST(a_busy_writer_does_not_hold_up_those_who_wait_for_the_disk)
{
	os_sys.fdatasync = sync_while_turns_go_on;
	struct event_log *log = open_watched();
	struct event_writer *w = event_log_writer(log, 0);
	assert_true(kit_impression(w, 0, SAMPLE_TIME_MS));
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
	uint64_t before = event_writer_written(w);
	event_writer_want_sync(w);
	pthread_mutex_lock(&watcher.lock);
	while (watcher.calls == 0) {
		if (watcher.wants_turn) {
			assert_true(kit_impression(w, 1, SAMPLE_TIME_MS));
			assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
			watcher.wants_turn = false;
			pthread_cond_broadcast(&watcher.wake);
		}
		pthread_cond_wait(&watcher.wake, &watcher.lock);
	}
	pthread_mutex_unlock(&watcher.lock);
	assert_int_equal(watcher.syncs_at_first, 1);
	assert_int_equal(event_writer_synced(w), before); /* who knows whether the sync took the later turn */
	event_log_close(log);
}

TEST(closing_syncs_and_ends_everything)
{
	os_fault_clear(OS_FDATASYNC);
	unsigned before = open_descriptors();
	struct event_log *log = open_watched();
	assert_true(kit_impression(event_log_writer(log, 0), 1, SAMPLE_TIME_MS)); /* in the turn */
	event_log_close(log);
	assert_int_equal(watcher.calls, 1);
	assert_int_equal(os_fault_calls(OS_FDATASYNC), 1);
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(folder_count(test_dir.path).counts.impressions, 1);
	assert_int_equal(folder_count(test_dir.path).ended, 1);
	event_log_close(NULL);
}

TEST_MAIN(.setup = test_dir_make, .teardown = test_dir_remove)
