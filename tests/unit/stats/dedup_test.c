/*
 * Impressions on their way from a log with several writers into a sink that inserts table by table and keeps
 * no positions, with a filter beside it: each id counts once when a worker dies between any two steps, and
 * everything that was written leaves one trace.
 */
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "queue/queue_log.h"
#include "stats/batch.h"
#include "stats/dedup.h"

enum {
	WRITERS = 3,
	IDS = 40,
	ROWS_MAX = 1000,
	BATCH = 9,
	SEEDS = 60,
	LIVES = 6,
	EACH_LIFE = 30,
	WINDOW_MS = 24 * 3600 * 1000,
};

/* Where a life ends: after that step. A failure that is not known to be one is the same, but that the process
 * goes on and reads again. */
enum step { STEP_SIFTED, STEP_SEEN, STEP_IMPRESSIONS, STEP_NOTES, STEP_MARKED, STEP_COMMITTED };

struct row {
	uint8_t print[SINK_FINGERPRINT_BYTES];
	struct event_id event;
};

/* A table that holds each event once. */
struct table {
	struct row rows[ROWS_MAX];
	size_t count;
};

static struct table seen_rows, impressions, notes, marks;
static unsigned asked; /* of the sink */
static uint64_t random_state;

static unsigned random_below(unsigned n)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(random_state >> 33) % n;
}

static const struct row *row_of(const struct table *t, struct event_id event)
{
	for (size_t i = 0; i < t->count; i++) {
		if (event_id_equals(t->rows[i].event, event))
			return &t->rows[i];
	}
	return NULL;
}

static const struct row *print_of(const struct table *t, const uint8_t print[SINK_FINGERPRINT_BYTES])
{
	for (size_t i = 0; i < t->count; i++) {
		if (memcmp(t->rows[i].print, print, SINK_FINGERPRINT_BYTES) == 0)
			return &t->rows[i];
	}
	return NULL;
}

static void insert(struct table *t, struct event_id event, const uint8_t *print)
{
	if (row_of(t, event))
		return;
	assert_true(t->count < ROWS_MAX);
	struct row *r = &t->rows[t->count++];
	*r = (struct row){.event = event};
	if (print)
		memcpy(r->print, print, sizeof(r->print));
}

static int fake_recall(struct sink *s, struct duplicate_query *about, size_t count)
{
	(void)s;
	asked += (unsigned)count;
	for (size_t i = 0; i < count; i++) {
		about[i].is_replay = row_of(&seen_rows, about[i].event) != NULL;
		about[i].is_duplicate = !about[i].is_replay && print_of(&seen_rows, about[i].fingerprint);
	}
	return 0;
}

static const struct sink_ops sink_ops = {.find_duplicates = fake_recall};
static struct sink sink = {&sink_ops};

/* A filter that always believes that it was told everything. */
static void fake_check(struct seen *s, struct seen_batch *b)
{
	(void)s;
	for (size_t i = 0; i < b->count; i++) {
		const struct row *r = print_of(&marks, b->items[i].fingerprint);
		b->items[i].verdict = !r                                             ? SEEN_NEVER
		                      : event_id_equals(r->event, b->items[i].event) ? SEEN_REPLAY
		                                                                     : SEEN_DUPLICATE;
	}
}

static void fake_record(struct seen *s, const struct seen_batch *b)
{
	(void)s;
	for (size_t i = 0; i < b->count; i++) {
		const struct seen_item *item = &b->items[i];
		if (item->verdict == SEEN_DUPLICATE || item->verdict == SEEN_REPLAY)
			continue;
		assert_null(print_of(&marks, item->fingerprint));
		insert(&marks, item->event, item->fingerprint);
	}
}

static const struct seen_ops filter_ops = {.check = fake_check, .record = fake_record};
static struct seen filter = {&filter_ops};

static struct temp dir;
static char checkpoint[TEMP_PATH_BYTES];
static struct event_log *events;
static struct queue *queue;
static struct batch *batch;
static struct dedup *dedup;
static struct agents *agents;
static size_t written;
static bool is_written[IDS];

static void begin(uint64_t seed)
{
	temp_init(&dir);
	temp_path(&dir, "checkpoint", checkpoint);
	log_level_set(LOG_ERROR + 1);
	kit_syncs_skip();
	random_state = seed;
	seen_rows.count = impressions.count = notes.count = marks.count = 0;
	asked = 0;
	written = 0;
	memset(is_written, 0, sizeof(is_written));
	events = kit_log_open(dir.path, &kit_settings, WRITERS);
	assert_int_equal(agents_new(64, &agents, NULL), 0);
	const struct batch_config config = {
	    .events_max = BATCH, .seen_ms = WINDOW_MS, .keeps_in_doubt = true, .agents = agents};
	assert_int_equal(batch_new(&config, &batch), 0);
	assert_int_equal(dedup_new(&sink, &filter, &dedup), 0);
}

static void close_queue(void)
{
	if (queue)
		queue->ops->free(queue);
	queue = NULL;
}

static void end(void)
{
	close_queue();
	dedup_free(dedup);
	batch_free(batch);
	agents_free(agents);
	event_log_close(events);
	os_fault_reset();
	temp_release(&dir);
}

static void write_one(unsigned writer, unsigned id)
{
	struct event_writer *w = event_log_writer(events, writer);
	assert_true(kit_impression(w, id, SAMPLE_TIME_MS));
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
	is_written[id] = true;
	written++;
}

static void open_queue(void)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct err e;
	struct checkpoint c;
	close_queue();
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, &e), 0);
	const struct queue_log_config config = {.log = events,
	                                        .settings = &kit_settings,
	                                        .read = c.positions,
	                                        .read_count = c.count,
	                                        .checkpoint = checkpoint,
	                                        .counts = c.counts};
	assert_int_equal(queue_log_new(&config, &queue, &e), 0);
}

static void gather(void)
{
	struct queue_event ev;
	batch_begin(batch, SAMPLE_TIME_MS);
	assert_int_equal(queue->ops->refresh(queue), 0);
	while (!batch_is_full(batch) && queue->ops->next(queue, &ev) == 1)
		assert_int_equal(batch_add(batch, queue, &ev), 0);
}

/* The batch goes on until after that step. */
static void carry(enum step last)
{
	struct sink_batch b = *batch_result(batch);
	const struct advance *partitions;
	size_t partition_count = queue->ops->partition_advances(queue, &partitions);
	assert_int_equal(dedup_filter(dedup, &b, partitions, partition_count), 0);
	assert_int_equal(b.tally.impressions, b.impression_count + b.tally.duplicates);
	assert_int_equal(b.note_count, b.tally.duplicates);
	for (size_t i = 0; last >= STEP_SEEN && i < b.impression_count; i++)
		insert(&seen_rows, b.impressions[i].event, b.impressions[i].fingerprint);
	for (size_t i = 0; last >= STEP_IMPRESSIONS && i < b.impression_count; i++)
		insert(&impressions, b.impressions[i].event, b.impressions[i].fingerprint);
	for (size_t i = 0; last >= STEP_NOTES && i < b.note_count; i++)
		insert(&notes, b.notes[i].event, NULL);
	if (last >= STEP_MARKED)
		dedup_record(dedup);
	if (last >= STEP_COMMITTED)
		assert_int_equal(queue->ops->commit(queue), 0);
}

static void drain(void)
{
	do {
		gather();
		carry(STEP_COMMITTED);
	} while (queue->ops->is_behind(queue));
}

static void assert_all_is_counted_once(void)
{
	size_t ids = 0;
	for (size_t i = 0; i < IDS; i++)
		ids += is_written[i];
	assert_int_equal(impressions.count, ids);
	assert_int_equal(impressions.count + notes.count, written);
	for (size_t i = 0; i < notes.count; i++)
		assert_null(row_of(&impressions, notes.rows[i].event));
}

static void life(void)
{
	for (unsigned i = 0; i < EACH_LIFE; i++)
		write_one(random_below(WRITERS), random_below(IDS));
	open_queue();
	for (unsigned i = random_below(WRITERS); i > 0; i--)
		assert_int_equal(queue->ops->refresh(queue), 0);
	for (bool lives = true; lives;) {
		enum step last = (enum step)random_below(2 * STEP_COMMITTED);
		gather();
		carry(last);
		if (random_below(2) == 0)
			write_one(random_below(WRITERS), random_below(IDS));
		if (last < STEP_COMMITTED && random_below(2) == 0)
			queue->ops->rewind(queue);
		else
			lives = last >= STEP_COMMITTED && queue->ops->is_behind(queue);
	}
}

TEST(each_id_counts_once_whichever_worker_dies_at_any_step)
{
	for (unsigned seed = 0; seed < SEEDS; seed++) {
		begin(seed);
		for (unsigned i = 0; i < LIVES; i++)
			life();
		open_queue();
		drain();
		assert_all_is_counted_once();
		end();
	}
}

TEST(what_was_never_read_before_is_the_filters_to_judge)
{
	begin(1);
	open_queue();
	drain();
	for (unsigned i = 0; i < IDS; i++) {
		write_one(i % WRITERS, i);
		write_one((i + 1) % WRITERS, i);
		drain();
	}
	assert_int_equal(asked, 0);
	assert_all_is_counted_once();
	end();
}

TEST(what_was_left_unread_is_asked_for_once)
{
	begin(1);
	for (unsigned i = 0; i < IDS; i++)
		write_one(i % WRITERS, i);
	open_queue();
	drain();
	assert_int_equal(asked, IDS);
	for (unsigned i = 0; i < IDS; i++)
		write_one(i % WRITERS, i);
	drain();
	assert_int_equal(asked, IDS);
	assert_all_is_counted_once();
	end();
}

TEST_MAIN()
