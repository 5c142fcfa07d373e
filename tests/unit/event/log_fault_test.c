/*
 * A disk that fails under the event log: for every N the N-th call of a kind, once or for good. However it
 * goes, each visit is either on record or counted as dropped, whoever was told that an event is kept finds it
 * in the files, and nothing leaks.
 */
#include "event/log_private.h"
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"

enum { TURNS = 12, SEGMENT_BYTES = 6000, TURN_STEP_MS = 2 * EVENT_RETRY_MS };

static struct temp dir;
static struct event_log *events;
static struct event_settings settings;

/* What the world saw. */
static struct ledger {
	uint64_t clicks, orphans; /* served */
	uint64_t impressions;     /* acknowledged */
	uint64_t limited, tried;  /* likewise, clicks of limited links; and all of them */
	uint64_t rejected;
	int64_t now_ms;
} told;

static int make_folder(void **state)
{
	temp_init(&dir);
	settings = kit_settings;
	settings.segment_bytes = SEGMENT_BYTES;
	log_level_set(LOG_ERROR + 1);
	return 0;
}

static int remove_folder(void **state)
{
	os_fault_reset();
	temp_release(&dir);
	return 0;
}

static void fresh_folder(void)
{
	temp_release(&dir);
	temp_init(&dir);
	told = (struct ledger){.now_ms = SAMPLE_TIME_MS};
}

static void serve_orphan(struct event_writer *w)
{
	struct event_visit v = {.time_ms = told.now_ms, .kind = EVENT_ORPHAN_ROOT};
	const struct event_visitor from = {.agent = STR("agent/1.0")};
	event_writer_visit(w, &v, &from);
	told.orphans++;
}

/* It is on record, or it did not happen. */
static bool serve_limited(struct event_writer *w)
{
	struct event_visit v = {.time_ms = told.now_ms, .kind = EVENT_CLICK, .link = 3, .key = STR("lim")};
	const struct event_visitor from = {.agent = STR("agent/1.0")};
	return event_writer_limited(w, &v, &from);
}

static void serve_turn(struct event_writer *w)
{
	uint64_t failures = event_writer_failures(w);
	unsigned taken = 0;
	for (unsigned i = 0; i < 2; i++) {
		kit_click(w, 1 + i, told.now_ms);
		told.clicks++;
	}
	bool limited = serve_limited(w);
	serve_orphan(w);
	for (unsigned i = 0; i < 3; i++)
		taken += kit_impression(w, i, told.now_ms);
	event_writer_rejected(w, 1);
	told.rejected++;
	int r = event_writer_flush(w, told.now_ms);
	assert_true(r == 0 || event_writer_failures(w) > failures);
	if (event_writer_failures(w) == failures)
		told.impressions += taken, told.limited += limited;
	told.tried++;
	told.now_ms += TURN_STEP_MS;
}

/* What is counted is what was served, and what a reader finds is what is counted. */
static void check_books(struct event_writer *w)
{
	struct event_counts c = event_writer_counts(w);
	assert_int_equal(c.clicks - c.limited + c.dropped, told.clicks);
	assert_true(c.limited >= told.limited);
	assert_int_equal(c.orphans + c.dropped_orphans, told.orphans);
	assert_true(c.impressions >= told.impressions);
	assert_int_equal(c.rejected, told.rejected);
	struct event_found found = folder_count(dir.path);
	assert_int_equal(found.counts.clicks, c.clicks);
	assert_int_equal(found.counts.orphans, c.orphans);
	assert_int_equal(found.counts.impressions, c.impressions);
}

/* After closing in order the tallies are written as well, and all is whole. */
static void check_closed(struct event_counts c)
{
	struct buf CLEANUP(buf_release) report = {0};
	struct event_found found = folder_count(dir.path);
	assert_int_equal(found.counts.clicks, c.clicks);
	assert_int_equal(found.counts.impressions, c.impressions);
	assert_int_equal(found.counts.dropped, c.dropped);
	assert_int_equal(found.counts.rejected, c.rejected);
	assert_int_equal(folder_damage(dir.path, false, &report), 0);
}

/* Arms, works, mends the disk, works on; true when the fault struck. */
static bool work_with(enum os_call call, uint64_t nth, int error, enum os_span span)
{
	unsigned before = open_descriptors();
	fresh_folder();
	os_fault_clear(call);
	kit_syncs_skip();
	events = kit_log_open(dir.path, &settings, 1);
	struct event_writer *w = event_log_writer(events, 0);
	os_fault_fail(call, nth, error, span);
	for (unsigned i = 0; i < TURNS; i++)
		serve_turn(w);
	bool struck = os_fault_hits(call) > 0;
	os_fault_clear(call);
	check_books(w);
	uint64_t failures = event_writer_failures(w);
	for (unsigned i = 0; i < 3; i++)
		serve_turn(w);
	assert_int_equal(event_writer_failures(w), failures);
	assert_int_equal(event_log_trouble(events, NULL), 0);
	check_books(w);
	struct event_counts counts = event_writer_counts(w);
	event_log_close(events);
	os_fault_reset();
	assert_int_equal(open_descriptors(), before);
	check_closed(counts);
	return struck;
}

TEST(every_call_may_fail_while_turns_are_written)
{
	static const struct {
		enum os_call call;
		int error;
		unsigned at_least;
	} faults[] = {{OS_PWRITEV, ENOSPC, TURNS + 2}, {OS_PWRITEV, EIO, TURNS + 2}, {OS_OPEN, EMFILE, 2}};
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		for (enum os_span span = OS_ONCE; span <= OS_FOR_GOOD; span++) {
			unsigned struck = 0;
			while (work_with(faults[i].call, struck + 1, faults[i].error, span))
				struck++;
			assert_true(struck >= faults[i].at_least);
		}
	}
}

TEST(an_interrupted_write_is_no_failure)
{
	fresh_folder();
	events = kit_log_open(dir.path, &settings, 1);
	struct event_writer *w = event_log_writer(events, 0);
	for (unsigned i = 1; i < TURNS; i++) {
		os_fault_fail(OS_PWRITEV, 1, EINTR, OS_ONCE);
		serve_turn(w);
	}
	assert_int_equal(event_writer_failures(w), 0);
	assert_int_equal(event_writer_counts(w).dropped, 0);
	check_books(w);
	event_log_close(events);
}

/* Short writes of every size: alone they are gone on with; with a failure behind them they leave a part of
 * the turn in the file. */
enum then { THEN_GOES_ON, THEN_FAILS, THEN_CANNOT_TRUNCATE, THEN_DIES, THENS };

static size_t work_with_short(size_t bytes, enum then then)
{
	fresh_folder();
	os_fault_clear(OS_PWRITEV);
	kit_syncs_skip();
	events = kit_log_open(dir.path, &settings, 1);
	struct event_writer *w = event_log_writer(events, 0);
	serve_turn(w);
	uint64_t before = event_writer_written(w);
	os_fault_short(OS_PWRITEV, 1, bytes, OS_ONCE);
	if (then != THEN_GOES_ON)
		os_fault_fail(OS_PWRITEV, 2, ENOSPC, OS_ONCE);
	if (then == THEN_CANNOT_TRUNCATE)
		os_fault_fail(OS_FTRUNCATE, 1, EIO, OS_ONCE);
	serve_turn(w);
	uint64_t turn = event_writer_written(w) - before;
	struct event_counts counts = event_writer_counts(w);
	if (then == THEN_DIES) {
		w->segment = NULL;
		w->unpublished = (struct event_counts){0};
	} else {
		for (unsigned i = 0; i < 3; i++)
			serve_turn(w);
		counts = event_writer_counts(w);
		assert_int_equal(counts.dropped, then == THEN_FAILS             ? 2
		                                 : then == THEN_CANNOT_TRUNCATE ? 4
		                                                                : 0);
		check_books(w);
	}
	event_log_close(events);
	os_fault_reset();
	if (then != THEN_DIES) {
		check_closed(counts);
		return turn;
	}
	/* Nobody was told of the turn; what is whole of it counts, and the rest is cut off. */
	kit_syncs_skip();
	event_log_close(kit_log_open(dir.path, &settings, 1));
	struct event_found found = folder_count(dir.path);
	assert_true(found.counts.clicks >= counts.clicks && found.counts.clicks <= told.clicks + told.tried);
	assert_true(found.counts.impressions >= told.impressions);
	assert_int_equal(found.ended, found.segments);
	return turn;
}

TEST(short_writes_of_every_size_lose_and_double_nothing)
{
	size_t turn = work_with_short(1, THEN_GOES_ON);
	assert_true(turn > 300 && turn < 1000);
	for (size_t bytes = 1; bytes < turn; bytes++) {
		for (enum then then = 0; then < THENS; then++) {
			/* Most of them are alike; the ends of records are tried all. */
			if (bytes % 3 == 0 || then == THEN_DIES)
				work_with_short(bytes, then);
		}
	}
}

/* A lost turn is followed at once by another: it is refused without asking the disk, until a moment later. */
TEST(a_failing_disk_is_left_alone_for_a_moment)
{
	struct err e = {""};
	fresh_folder();
	os_fault_fail(OS_PWRITEV, 2, ENOSPC, OS_FOR_GOOD);
	events = kit_log_open(dir.path, &settings, 1);
	struct event_writer *w = event_log_writer(events, 0);
	assert_true(kit_impression(w, 1, told.now_ms));
	assert_int_equal(event_writer_flush(w, told.now_ms), ERR_UNAVAILABLE);
	assert_int_equal(event_writer_failures(w), 1);
	uint64_t calls = os_fault_calls(OS_PWRITEV);
	for (int ms = 0; ms < EVENT_RETRY_MS; ms++) {
		assert_false(kit_impression(w, 1, told.now_ms + ms));
		assert_int_equal(event_writer_flush(w, told.now_ms + ms), 0);
	}
	assert_int_equal(os_fault_calls(OS_PWRITEV), calls);
	assert_int_equal(event_log_trouble(events, &e), ERR_UNAVAILABLE);
	os_fault_clear(OS_PWRITEV);
	assert_true(kit_impression(w, 2, told.now_ms + EVENT_RETRY_MS));
	assert_int_equal(event_writer_flush(w, told.now_ms + EVENT_RETRY_MS), 0);
	assert_int_equal(event_log_trouble(events, &e), 0);
	assert_int_equal(folder_count(dir.path).counts.impressions, 1);
	event_log_close(events);
}

/* Two records fill the segment so far that the tally, which the flush adds, needs the next one; so the flush
 * first ends this one. */
static void check_full_segment(uint64_t nth, bool loses)
{
	static const char text[EVENT_FIELD_BYTES_MAX] = "x";
	enum { BYTES = EVENT_IMPRESSION_BYTES + 3 * EVENT_FIELD_BYTES_MAX };
	const struct str field = str_n(text, sizeof(text));
	const struct event_impression i = {SAMPLE_TIME_MS, SAMPLE_TIME_MS, field, field, field};
	fresh_folder();
	settings.segment_bytes = EVENT_HEADER_BYTES + 2 * BYTES + EVENT_END_BYTES + EVENT_TALLY_BYTES;
	os_fault_clear(OS_PWRITEV);
	events = kit_log_open(dir.path, &settings, 1);
	struct event_writer *w = event_log_writer(events, 0);
	assert_true(event_writer_impression(w, &i));
	assert_true(event_writer_impression(w, &i));
	event_writer_rejected(w, 1);
	os_fault_fail(OS_PWRITEV, nth, ENOSPC, OS_FOR_GOOD);
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), loses ? ERR_UNAVAILABLE : 0);
	assert_int_equal(event_writer_failures(w), loses);
	assert_int_equal(event_writer_counts(w).impressions, loses ? 0 : 2);
	os_fault_clear(OS_PWRITEV);
	event_log_close(events);
	struct event_found found = folder_count(dir.path);
	assert_int_equal(found.counts.impressions, loses ? 0 : 2);
	assert_int_equal(found.counts.rejected, 1);
	os_fault_reset();
}

TEST(a_flush_says_whether_the_turn_was_lost)
{
	check_full_segment(1, true);  /* the turn, with the end record */
	check_full_segment(2, false); /* the next segment's header */
	check_full_segment(3, false); /* the tally in it */
	check_full_segment(4, false);
}

/* Syncs */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	unsigned calls;
} watcher = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void watched(void *ctx, unsigned writer)
{
	(void)ctx;
	(void)writer;
	pthread_mutex_lock(&watcher.lock);
	watcher.calls++;
	pthread_cond_broadcast(&watcher.wake);
	pthread_mutex_unlock(&watcher.lock);
}

static void sync_and_wait(struct event_writer *w)
{
	pthread_mutex_lock(&watcher.lock);
	unsigned before = watcher.calls;
	event_writer_want_sync(w);
	while (watcher.calls == before)
		pthread_cond_wait(&watcher.wake, &watcher.lock);
	pthread_mutex_unlock(&watcher.lock);
}

static void check_failed_sync(enum os_call call, unsigned nth)
{
	struct err e = {""};
	const struct event_log_config config = {
	    .path = dir.path, .settings = &settings, .writers = 1, .synced = watched};
	unsigned before = open_descriptors();
	fresh_folder();
	os_fault_clear(call);
	assert_int_equal(event_log_open(&config, &events, NULL), 0);
	struct event_writer *w = event_log_writer(events, 0);
	os_fault_fail(call, nth, EIO, OS_ONCE);
	uint64_t synced = 0, syncs = 0;
	for (unsigned i = 0; i < 10; i++) {
		serve_turn(w);
		sync_and_wait(w); /* comes back, so that nobody waits for ever */
		bool failed = event_log_sync_failed(events);
		assert_int_equal(failed, os_fault_hits(call) > 0);
		if (!failed) {
			synced = event_writer_synced(w);
			assert_int_equal(synced, event_writer_written(w));
		} else {
			assert_int_equal(event_writer_synced(w), synced);
			assert_int_equal(event_log_trouble(events, &e), ERR_UNAVAILABLE);
			assert_non_null(strstr(e.text, "restart"));
			syncs = syncs ? syncs : os_fault_calls(OS_FDATASYNC) + os_fault_calls(OS_FSYNC);
			assert_int_equal(os_fault_calls(OS_FDATASYNC) + os_fault_calls(OS_FSYNC), syncs);
		}
	}
	assert_true(syncs > 0);
	check_books(w);
	event_log_close(events);
	assert_int_equal(os_fault_calls(OS_FDATASYNC) + os_fault_calls(OS_FSYNC), syncs);
	os_fault_reset();
	assert_int_equal(open_descriptors(), before);
	events = kit_log_open(dir.path, &settings, 1);
	assert_false(event_log_sync_failed(events));
	assert_int_equal(event_log_trouble(events, NULL), 0);
	event_log_close(events);
}

TEST(a_failed_sync_is_never_tried_again)
{
	for (unsigned nth = 1; nth < 6; nth++)
		check_failed_sync(OS_FDATASYNC, nth);
	check_failed_sync(OS_FSYNC, 1); /* of the folder */
}

/* Opening */

TEST(every_call_may_fail_while_the_log_is_opened)
{
	static const enum os_call calls[] = {OS_OPEN,  OS_READ,      OS_WRITE,     OS_PREAD, OS_PWRITEV,
	                                     OS_FSYNC, OS_FDATASYNC, OS_FTRUNCATE, OS_RENAME};
	struct event_sample sample;
	struct event_counts all;
	for (size_t c = 0; c < ARRAY_LEN(calls); c++) {
		for (uint64_t n = 1;; n++) {
			fresh_folder();
			kit_syncs_skip();
			event_log_close(kit_log_open(dir.path, &settings, 1));
			sample_make(&sample, event_segment(1, 0, 0), 2, false);
			all = sample_counts(&sample, sample.count);
			memset(sample.data + sample.len, 1, 20); /* torn */
			segment_file_write(dir.path, sample.segment, sample.data, sample.len + 20);
			/* another writer's, just begun */
			segment_file_write(dir.path, event_segment(1, 1, 0), sample.data, EVENT_HEADER_BYTES);
			unsigned before = open_descriptors();
			struct err e = {""};
			const struct event_log_config config = {
			    .path = dir.path, .settings = &settings, .writers = 2};
			os_fault_fail(calls[c], n, EIO, OS_ONCE);
			if (calls[c] != OS_FSYNC && calls[c] != OS_FDATASYNC && calls[c] != OS_RENAME)
				kit_syncs_skip();
			events = NULL;
			int r = event_log_open(&config, &events, &e);
			bool struck = os_fault_hits(calls[c]) > 0;
			assert_int_equal(r == 0, events != NULL);
			assert_true(r == 0 || e.text[0] != '\0');
			assert_true(struck || r == 0);
			event_log_close(events);
			os_fault_reset();
			assert_int_equal(open_descriptors(), before);
			kit_syncs_skip();
			events = kit_log_open(dir.path, &settings, 2);
			struct event_counts backlog = event_log_backlog(events);
			assert_counts_equal(&backlog, &all);
			event_log_close(events);
			struct event_found found = folder_count(dir.path);
			assert_int_equal(found.segments, 1);
			assert_int_equal(found.ended, 1);
			if (!struck)
				break;
		}
	}
}

TEST_MAIN(.setup = make_folder, .teardown = remove_folder)
