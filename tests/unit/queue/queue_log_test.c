/* The queue on the event log, where it differs from others; what all queues promise is in the conformance
 * suite. */
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "queue/queue_log.h"

enum { WRITERS = 3 };

static struct temp dir;
static struct event_log *events;
static struct event_settings settings;
static struct queue *queue;
static char checkpoint[TEMP_PATH_BYTES];
static struct arena arena;
static unsigned settled, forgotten;
static int settles; /* what settle says */

static int setup(void **state)
{
	temp_init(&dir);
	temp_path(&dir, "checkpoint", checkpoint);
	log_level_set(LOG_ERROR + 1);
	settings = kit_settings;
	settings.keep_ms = 3600 * 1000;
	settled = forgotten = 0;
	settles = 0;
	events = kit_log_open(dir.path, &settings, WRITERS);
	return 0;
}

static int teardown(void **state)
{
	if (queue)
		queue->ops->free(queue);
	queue = NULL;
	event_log_close(events);
	os_fault_reset();
	arena_release(&arena);
	temp_release(&dir);
	return 0;
}

static int sync_sink(void *ctx)
{
	(void)ctx;
	settled++;
	return settles;
}

static void forget(void *ctx, const uint64_t *segments, size_t count)
{
	(void)ctx;
	(void)segments;
	forgotten += (unsigned)count;
}

static void open_queue(bool by_checkpoint, bool boots_in_order)
{
	struct err e = {""};
	struct checkpoint c = {.count = 0};
	if (by_checkpoint)
		assert_int_equal(checkpoint_read(checkpoint, &arena, &c, &e), 0);
	const struct queue_log_config config = {
	    .log = events,
	    .settings = &settings,
	    .read = c.positions,
	    .read_count = c.count,
	    .checkpoint = by_checkpoint ? checkpoint : NULL,
	    .counts = c.counts,
	    .boots_in_order = boots_in_order,
	    .sync = sync_sink,
	    .forget = forget,
	};
	if (queue)
		queue->ops->free(queue);
	MUST(queue_log_new(&config, &queue, &why));
}

static void write_clicks(unsigned writer, uint64_t link, unsigned count)
{
	struct event_writer *w = event_log_writer(events, writer);
	for (unsigned i = 0; i < count; i++)
		assert_true(kit_click(w, link, SAMPLE_TIME_MS));
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
}

static void reboot(void)
{
	if (queue)
		queue->ops->free(queue);
	queue = NULL;
	event_log_close(events);
	events = kit_log_open(dir.path, &settings, WRITERS);
}

/* Visits of one round; the links that were visited, in order. */
static size_t round_links(uint64_t *links, size_t max)
{
	struct queue_event ev;
	size_t n = 0;
	assert_int_equal(queue->ops->refresh(queue), 0);
	while (n < max && queue->ops->next(queue, &ev) == 1) {
		if (ev.event->kind == EVENT_VISIT)
			links[n++] = ev.event->visit.link;
	}
	return n;
}

TEST(earlier_boots_are_read_whole_before_later_ones_when_that_is_asked_for)
{
	uint64_t links[200];
	for (unsigned boot = 1; boot <= 3; boot++) {
		for (unsigned w = 0; w < WRITERS; w++)
			write_clicks(w, boot, 10);
		if (boot < 3)
			reboot();
	}
	open_queue(false, true);
	/* In small rounds, and begun again in the middle: still in order. */
	size_t n = 0, again = 0;
	uint64_t last = 1;
	while (n < 90) {
		size_t got = round_links(links, 7);
		assert_true(got > 0 || again++ < 10);
		for (size_t i = 0; i < got; i++) {
			assert_true(links[i] >= last);
			last = links[i];
		}
		n += got;
		assert_int_equal(queue->ops->commit(queue), 0);
	}
	assert_int_equal(last, 3);
}

TEST(what_a_checkpoint_keeps_is_taken_up_with_its_counts)
{
	uint64_t links[100];
	struct checkpoint c;
	write_clicks(0, 1, 10);
	assert_true(kit_impression(event_log_writer(events, 1), 1, SAMPLE_TIME_MS));
	assert_int_equal(event_writer_flush(event_log_writer(events, 1), SAMPLE_TIME_MS), 0);
	open_queue(true, true);
	assert_int_equal(round_links(links, 100), 10);
	assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, NULL), 0);
	assert_int_equal(c.counts.clicks, 10);
	assert_int_equal(c.counts.impressions, 1);
	reboot();
	write_clicks(0, 2, 5);
	open_queue(true, true);
	size_t n = round_links(links, 100); /* the ends of those before */
	assert_true(queue->ops->is_behind(queue));
	n += round_links(links, 100);
	assert_int_equal(n, 5);
	assert_false(queue->ops->is_behind(queue));
	assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, NULL), 0);
	assert_int_equal(c.counts.clicks, 15);
}

/* It may lag behind, and the next one that can be written makes that good. */
TEST(a_checkpoint_that_cannot_be_written_holds_nobody_up)
{
	uint64_t links[100];
	struct checkpoint c;
	write_clicks(0, 1, 10);
	open_queue(true, true);
	assert_int_equal(round_links(links, 100), 10);
	os_fault_fail(OS_RENAME, 1, ENOSPC, OS_ONCE);
	assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(os_fault_hits(OS_RENAME), 1);
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, NULL), 0);
	assert_int_equal(c.count, 0);
	os_fault_reset();
	write_clicks(0, 1, 1);
	assert_int_equal(round_links(links, 100), 1);
	assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, NULL), 0);
	assert_int_equal(c.counts.clicks, 11);
}

/* How many of a round's events are in doubt. */
static unsigned round_doubts(size_t max, unsigned *ret_count)
{
	struct queue_event ev;
	unsigned doubts = 0;
	*ret_count = 0;
	assert_int_equal(queue->ops->refresh(queue), 0);
	while (*ret_count < max && queue->ops->next(queue, &ev) == 1) {
		if (ev.event->kind != EVENT_VISIT)
			continue;
		doubts += ev.in_doubt;
		++*ret_count;
	}
	return doubts;
}

TEST(events_are_in_doubt_until_all_that_may_have_been_read_before_is_committed)
{
	unsigned n;
	open_queue(true, false);
	for (unsigned w = 0; w < WRITERS; w++)
		write_clicks(w, 1, 10);
	assert_int_equal(round_doubts(5, &n), 0); /* nobody else can have read what was written since */
	assert_int_equal(n, 5);
	queue->ops->rewind(queue);
	assert_int_equal(round_doubts(5, &n), 5); /* perhaps others than before: segments take turns */
	assert_int_equal(queue->ops->commit(queue), 0);
	while (round_doubts(5, &n) > 0)
		assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(round_doubts(1000, &n), 0);
	assert_int_equal(queue->ops->commit(queue), 0);
	reboot();
	open_queue(true, false);
	assert_int_equal(round_doubts(1000, &n), 0);
	assert_int_equal(n, 0); /* there was nothing left but the segments' ends */
	assert_int_equal(queue->ops->commit(queue), 0);
	for (unsigned w = 0; w < WRITERS; w++)
		write_clicks(w, 2, 10);
	assert_int_equal(round_doubts(1000, &n), 0);
	assert_int_equal(n, WRITERS * 10);
	reboot();
	open_queue(true, false);
	write_clicks(0, 3, 10);
	assert_int_equal(round_doubts(1000, &n), WRITERS * 10 + 10);
	assert_int_equal(n, WRITERS * 10 + 10);
	assert_int_equal(queue->ops->commit(queue), 0);
	write_clicks(0, 3, 10);
	assert_int_equal(round_doubts(1000, &n), 0);
	assert_int_equal(n, 10);
}

TEST(what_is_in_doubt_comes_first)
{
	uint64_t links[400];
	for (unsigned w = 0; w < WRITERS; w++)
		write_clicks(w, 1, 20);
	reboot();
	for (unsigned shift = 0; shift < 2 * WRITERS; shift++) {
		open_queue(false, false);
		for (unsigned w = 0; w < WRITERS; w++)
			write_clicks(w, 100 + shift, 5); /* since it was opened: nobody can have read it */
		for (unsigned i = 0; i < shift; i++)
			assert_int_equal(queue->ops->refresh(queue), 0);
		size_t n = round_links(links, ARRAY_LEN(links)), before = WRITERS * (20 + 5 * shift);
		assert_int_equal(n, before + (size_t)WRITERS * 5);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(links[i] == 100 + shift, i >= before);
	}
}

TEST(put_back_events_do_not_count)
{
	struct checkpoint c;
	struct queue_event ev;
	write_clicks(0, 1, 3);
	open_queue(true, true);
	assert_int_equal(queue->ops->refresh(queue), 0);
	do {
		assert_int_equal(queue->ops->next(queue, &ev), 1);
	} while (ev.event->kind != EVENT_VISIT);
	queue->ops->put_back(queue);
	assert_int_equal(queue->ops->next(queue, &ev), 0); /* in this round */
	assert_int_equal(queue->ops->commit(queue), 0);
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, NULL), 0);
	assert_int_equal(c.counts.clicks, 0);
	uint64_t links[10];
	assert_int_equal(round_links(links, 10), 3);
}

TEST(segments_go_when_they_were_read_and_that_is_safe)
{
	uint64_t links[100];
	settings.keep_ms = 0;
	write_clicks(0, 1, 10);
	uint64_t segment = event_segment(1, 0, 0);
	reboot();
	open_queue(false, false);
	queue->ops->retention(queue);
	assert_true(segment_file_is_there(dir.path, segment)); /* nobody has read it */
	assert_int_equal(settled, 0);
	open_queue(false, false);
	assert_int_equal(round_links(links, 100), 10);
	assert_int_equal(queue->ops->commit(queue), 0);
	settles = ERR_UNAVAILABLE;
	queue->ops->retention(queue);
	assert_true(segment_file_is_there(dir.path, segment)); /* what was committed may be lost */
	assert_int_equal(settled, 1);
	open_queue(false, false);
	assert_int_equal(round_links(links, 100), 10);
	assert_int_equal(queue->ops->commit(queue), 0);
	settles = 0;
	queue->ops->retention(queue);
	assert_false(segment_file_is_there(dir.path, segment));
	assert_int_equal(forgotten, 1);
}

TEST(texts_are_found_also_by_who_begins_behind_them)
{
	char text[EVENT_STRING_BYTES_MAX];
	uint64_t links[4];
	struct queue_event ev;
	write_clicks(0, 1, 5);
	open_queue(true, true);
	assert_int_equal(round_links(links, 2), 2);
	assert_int_equal(queue->ops->commit(queue), 0);
	open_queue(true, true);
	assert_int_equal(queue->ops->refresh(queue), 0);
	assert_int_equal(queue->ops->next(queue, &ev), 1);
	assert_int_equal(ev.event->kind, EVENT_VISIT);
	assert_false(ev.has_texts);
	assert_true(
	    str_eq(queue->ops->text(queue, ev.stream, ev.event->visit.agent, text), STR("agent/1.0")));
	assert_true(str_eq(queue->ops->text(queue, ev.stream, ev.event->visit.language, text), STR("en")));
}

TEST(a_segment_that_cannot_be_read_at_present_is_a_trouble_and_read_later)
{
	uint64_t links[100];
	struct err e = {""};
	write_clicks(0, 1, 10);
	open_queue(false, false);
	os_fault_fail(OS_PREAD, 1, EIO, OS_FOR_GOOD);
	assert_int_equal(round_links(links, 100), 0);
	assert_int_equal(queue->ops->trouble(queue, &e), ERR_UNAVAILABLE);
	assert_true(e.text[0]);
	os_fault_reset();
	assert_int_equal(round_links(links, 100), 10);
	assert_int_equal(queue->ops->trouble(queue, &e), 0);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
