/* Turns, strings, segments, tallies and the bound of the spool. */
#include "event/log_private.h"
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"

#define NOW SAMPLE_TIME_MS

static struct temp dir;
static struct event_log *events;
static struct event_writer *w;
static struct event_settings settings;

static int make_folder(void **state)
{
	temp_init(&dir);
	settings = kit_settings;
	log_level_set(LOG_ERROR + 1);
	return 0;
}

static int remove_folder(void **state)
{
	event_log_close(events);
	events = NULL;
	os_fault_reset();
	temp_release(&dir);
	return 0;
}

static void begin(void)
{
	events = kit_log_open(dir.path, &settings, 1);
	w = event_log_writer(events, 0);
}

static struct event_found end(void)
{
	event_log_close(events);
	events = NULL;
	return folder_count(dir.path);
}

static void flush(int64_t now_ms)
{
	assert_int_equal(event_writer_flush(w, now_ms), 0);
}

TEST(a_turn_is_one_write)
{
	os_fault_clear(OS_PWRITEV);
	begin();
	flush(NOW);
	assert_int_equal(os_fault_calls(OS_PWRITEV), 0);
	for (unsigned turn = 1; turn <= 10; turn++) {
		for (unsigned i = 0; i < 50; i++) {
			assert_true(kit_click(w, i + 1, NOW));
			assert_true(kit_impression(w, i, NOW));
		}
		event_writer_rejected(w, 1);
		flush(NOW);
		assert_int_equal(os_fault_calls(OS_PWRITEV), turn + 1); /* and the header */
		flush(NOW);
		assert_int_equal(os_fault_calls(OS_PWRITEV), turn + 1);
	}
	assert_int_equal(os_fault_calls(OS_FDATASYNC), 0);
}

static uint64_t published_end(void)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct event_segment_state *states;
	size_t count;
	assert_int_equal(event_log_segments(events, &arena, &states, &count), 0);
	assert_int_equal(count, 1);
	return states[0].end;
}

TEST(nothing_is_seen_before_the_flush)
{
	begin();
	assert_true(kit_click(w, 1, NOW));
	assert_int_equal(published_end(), EVENT_HEADER_BYTES);
	assert_int_equal(folder_count(dir.path).bytes, 0);
	assert_int_equal(event_writer_counts(w).clicks, 0);
	assert_int_equal(event_log_spool_bytes(events), 0);
	flush(NOW);
	uint64_t bytes = folder_count(dir.path).bytes;
	assert_int_equal(folder_count(dir.path).counts.clicks, 1);
	assert_int_equal(published_end(), EVENT_HEADER_BYTES + bytes);
	assert_int_equal(event_writer_counts(w).clicks, 1);
	assert_int_equal(event_log_spool_bytes(events), bytes);
	assert_int_equal(event_writer_written(w), bytes);
}

TEST(every_kind_is_counted)
{
	const struct event_visitor nobody = {STR_NULL, STR_NULL, STR_NULL};
	begin();
	for (int kind = 0; kind < EVENT_VISIT_KINDS; kind++) {
		struct event_visit v = {.time_ms = NOW, .link = 1, .kind = (uint8_t)kind};
		assert_true(event_writer_visit(w, &v, &nobody));
		assert_int_equal(v.agent | v.referrer | v.language, 0);
	}
	assert_true(kit_impression(w, 1, NOW));
	event_writer_rejected(w, 4);
	flush(NOW);
	const struct event_counts want = {.clicks = 3, .orphans = 2, .impressions = 1, .rejected = 4};
	struct event_counts counts = event_writer_counts(w);
	assert_counts_equal(&counts, &want);
	struct event_found found = end();
	assert_counts_equal(&found.counts, &want);
	assert_int_equal(found.strings, 0);
}

TEST(a_text_is_stored_once_per_segment)
{
	settings.segment_bytes = 32 * 1024;
	begin();
	for (unsigned i = 0; i < 1000; i++) {
		assert_true(kit_click(w, i + 1, NOW));
		if (i % 7 == 0)
			flush(NOW);
	}
	flush(NOW);
	struct event_found found = end();
	assert_true(found.segments > 1);
	assert_int_equal(found.strings, 3 * found.segments);
	assert_int_equal(found.counts.clicks, 1000);
}

TEST(a_full_segment_gets_its_end_and_another_begins)
{
	struct buf CLEANUP(buf_release) report = {0};
	settings.segment_bytes = 8 * 1024;
	begin();
	uint64_t number = 0;
	for (unsigned turn = 0; turn < 60; turn++) {
		for (unsigned i = 0; i <= turn % 9; i++) {
			assert_true(kit_click(w, ++number, NOW));
			assert_true(kit_impression(w, number, NOW));
		}
		event_writer_rejected(w, 1);
		flush(NOW);
	}
	assert_int_equal(event_writer_counts(w).clicks, number);
	struct event_found found = end();
	assert_true(found.segments > 5);
	assert_int_equal(found.ended, found.segments);
	assert_int_equal(found.counts.clicks, number);
	assert_int_equal(found.counts.impressions, number);
	assert_int_equal(found.counts.rejected, 60);
	assert_int_equal(folder_damage(dir.path, false, &report), 0);
	for (unsigned i = 0; i < found.segments; i++) {
		struct buf CLEANUP(buf_release) file = {0};
		segment_file_read(dir.path, event_segment(1, 0, i), &file);
		assert_true(file.len <= settings.segment_bytes);
	}
}

TEST(a_turn_larger_than_the_buffer_is_written_in_parts)
{
	enum { EVENTS = 10000 };
	os_fault_clear(OS_PWRITEV);
	begin();
	for (unsigned i = 0; i < EVENTS; i++)
		assert_true(kit_impression(w, i, NOW));
	flush(NOW);
	assert_true(os_fault_calls(OS_PWRITEV) > 2);
	assert_int_equal(event_writer_counts(w).impressions, EVENTS);
	assert_int_equal(event_writer_failures(w), 0);
	assert_int_equal(end().counts.impressions, EVENTS);
}

/* Agents */

static struct str numbered_agent(uint64_t number, char out[64])
{
	return str_n(out, (size_t)snprintf(out, 64, "agent number %llu", (unsigned long long)number));
}

static void check_agent(void *ctx, struct event_reader *r, const struct event *ev)
{
	char text[EVENT_STRING_BYTES_MAX], want[64];
	if (ev->kind != EVENT_VISIT)
		return;
	struct str got = event_reader_string(r, ev->visit.agent, text);
	assert_true(str_eq(got, numbered_agent(ev->visit.link, want)));
	++*(unsigned *)ctx;
}

TEST(mentions_stay_right_when_the_table_of_texts_is_full)
{
	enum { AGENTS = 2 * STRINGS_SLOTS };
	unsigned seen = 0;
	begin();
	for (unsigned i = 0; i < AGENTS + 2000; i++) {
		char text[64];
		struct event_visit v = {.time_ms = NOW, .link = 1 + i % AGENTS};
		const struct event_visitor from = {.agent = numbered_agent(v.link, text)};
		assert_true(event_writer_visit(w, &v, &from));
		if (i % 100 == 0)
			flush(NOW);
	}
	end();
	folder_each(dir.path, check_agent, &seen);
	assert_int_equal(seen, AGENTS + 2000);
}

static void check_bounds(void *ctx, struct event_reader *r, const struct event *ev)
{
	char text[EVENT_STRING_BYTES_MAX];
	if (ev->kind != EVENT_VISIT)
		return;
	assert_int_equal(event_reader_string(r, ev->visit.agent, text).len, EVENT_STRING_BYTES_MAX);
	assert_int_equal(event_reader_string(r, ev->visit.referrer, text).len, EVENT_STRING_BYTES_MAX);
	assert_int_equal(ev->visit.key.len, EVENT_KEY_BYTES_MAX);
	++*(unsigned *)ctx;
}

TEST(long_texts_are_cut_to_their_bounds)
{
	static char text[4096];
	unsigned seen = 0;
	memset(text, 'x', sizeof(text));
	begin();
	for (size_t more = 0; more < 3; more++) {
		struct event_visit v = {
		    .time_ms = NOW, .link = 1, .key = str_n(text, EVENT_KEY_BYTES_MAX + more)};
		const struct event_visitor from = {.agent = str_n(text, EVENT_STRING_BYTES_MAX + more),
		                                   .referrer = str_n(text, sizeof(text))};
		assert_true(event_writer_visit(w, &v, &from));
	}
	assert_int_equal(end().strings, 1); /* what is left of them is the same */
	folder_each(dir.path, check_bounds, &seen);
	assert_int_equal(seen, 3);
}

/* The spool */

static void fill_spool(void)
{
	settings.spool_bytes = 4096;
	begin();
	while (!event_log_is_full(events)) {
		assert_true(kit_click(w, 1, NOW));
		flush(NOW);
	}
}

TEST(a_full_spool_refuses_and_counts)
{
	struct err e = {""};
	fill_spool();
	uint64_t taken = event_writer_counts(w).clicks;
	const struct event_visitor nobody = {STR_NULL, STR_NULL, STR_NULL};
	for (unsigned i = 0; i < 10; i++) {
		struct event_visit orphan = {.time_ms = NOW, .kind = EVENT_ORPHAN_KEY};
		assert_false(kit_click(w, 1, NOW));
		assert_false(event_writer_visit(w, &orphan, &nobody));
		assert_false(kit_impression(w, 1, NOW));
	}
	struct event_counts counts = event_writer_counts(w);
	const struct event_counts want = {.clicks = taken, .dropped = 10, .dropped_orphans = 10};
	assert_counts_equal(&counts, &want);
	assert_int_equal(event_log_trouble(events, &e), ERR_LIMIT);
	assert_non_null(strstr(e.text, "spool_bytes"));
	struct event_found found = end();
	assert_int_equal(found.counts.clicks, taken);
	assert_int_equal(found.counts.dropped, 10);
}

TEST(a_full_spool_tells_its_tally_once_a_second)
{
	fill_spool();
	for (int64_t ms = 0; ms < 10000; ms += 50) {
		assert_false(kit_click(w, 1, NOW + ms));
		flush(NOW + ms);
	}
	struct event_found found = folder_count(dir.path);
	assert_int_equal(found.tallies, 10);
	assert_true(found.counts.dropped < 200);
	assert_true(event_log_spool_bytes(events) < settings.spool_bytes + 12 * EVENT_TALLY_BYTES);
	assert_int_equal(end().counts.dropped, 200);
}

TEST(reading_makes_room_again)
{
	fill_spool();
	assert_false(kit_click(w, 1, NOW));
	event_log_consumed(events, event_log_spool_bytes(events));
	assert_false(event_log_is_full(events));
	assert_true(kit_click(w, 1, NOW));
	flush(NOW);
	assert_int_equal(event_log_trouble(events, NULL), 0);
	struct event_found found = folder_count(dir.path);
	assert_int_equal(found.counts.clicks, event_writer_counts(w).clicks);
	assert_int_equal(found.counts.dropped, 1); /* told at once */
}

TEST(what_was_not_read_counts_towards_the_next_boots_spool)
{
	fill_spool();
	end();
	begin();
	assert_true(event_log_is_full(events));
	assert_false(kit_click(w, 1, NOW));
	assert_int_equal(event_writer_counts(w).dropped, 1);
	assert_int_equal(end().counts.dropped, 1);
}

TEST(writers_have_segments_of_their_own)
{
	events = kit_log_open(dir.path, &settings, EVENT_WRITERS_MAX);
	for (unsigned i = 0; i < EVENT_WRITERS_MAX; i += 51) {
		assert_true(kit_click(event_log_writer(events, i), 1, NOW));
		assert_int_equal(event_writer_flush(event_log_writer(events, i), NOW), 0);
		assert_true(segment_file_is_there(dir.path, event_segment(1, i, 0)));
	}
	struct event_found found = end();
	assert_int_equal(found.segments, 6);
	assert_int_equal(found.counts.clicks, 6);
}

TEST_MAIN(.setup = make_folder, .teardown = remove_folder)
