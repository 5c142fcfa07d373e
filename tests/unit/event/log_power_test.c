/*
 * Power loss: the work of three lives of an event log is recorded, and at every moment of it the power goes.
 * What event_writer_synced had covered is found then, each event once, and nothing that was never written.
 * When only the process dies, everything is found for which a flush had said 0.
 */
#include "event/log_private.h"
#include "lib/event_disk.h"
#include "lib/event_kit.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/sys.h"

enum { LIVES = 3, WRITERS = 2, TURNS = 14, EVENTS_MAX = 2048, NOTES_MAX = 1024, POWER_TRIES = 4 };

static struct temp dir, copy;
static struct event_settings settings;
static uint64_t random_state = 0x2545f4914f6cdd1dULL;

/* Every impression that was written, by its number; and how much its writer had written with it. */
static struct {
	unsigned life, writer;
	uint64_t written;
	size_t flushed_at; /* the moment after */
} written[EVENTS_MAX];
static unsigned written_count;

/* What was said about the disk, and when. */
static struct note {
	size_t moment;
	unsigned life, writer;
	uint64_t synced;
} notes[NOTES_MAX];
static size_t note_count;
static size_t opened_at[LIVES + 1];
static unsigned life;
static struct event_log *events;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void synced(void *ctx, unsigned writer)
{
	(void)ctx;
	pthread_mutex_lock(&lock);
	assert_true(note_count < NOTES_MAX);
	uint64_t on_disk = event_writer_synced(event_log_writer(events, writer));
	notes[note_count++] = (struct note){disk_moment(), life, writer, on_disk};
	pthread_cond_broadcast(&wake);
	pthread_mutex_unlock(&lock);
}

/* A round on its own time may have synced all of it already; then nobody calls `synced` again. */
static void sync_and_perhaps_wait(struct event_writer *w, bool wait)
{
	uint64_t target = event_writer_written(w);
	event_writer_want_sync(w);
	pthread_mutex_lock(&lock);
	while (wait && event_writer_synced(w) < target)
		pthread_cond_wait(&wake, &lock);
	pthread_mutex_unlock(&lock);
}

/* `count` impressions, with a visit that brings its strings. */
static void write_turn(unsigned writer, unsigned count)
{
	struct event_writer *w = event_log_writer(events, writer);
	unsigned first = written_count;
	assert_true(kit_click(w, 1, SAMPLE_TIME_MS));
	for (unsigned i = 0; i < count; i++) {
		assert_true(written_count < EVENTS_MAX);
		assert_true(kit_impression(w, written_count++, SAMPLE_TIME_MS));
	}
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
	for (unsigned i = first; i < written_count; i++) {
		written[i].life = life;
		written[i].writer = writer;
		written[i].written = event_writer_written(w);
		written[i].flushed_at = disk_moment();
	}
}

static void live(bool dies)
{
	const struct event_log_config config = {
	    .path = dir.path, .settings = &settings, .writers = WRITERS, .synced = synced};
	assert_int_equal(event_log_open(&config, &events, NULL), 0);
	opened_at[life] = disk_moment();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (unsigned writer = 0; writer < WRITERS; writer++)
			write_turn(writer, 1 + (turn * 7 + writer * 3) % 25);
		if (turn % 3 == 2)
			sync_and_perhaps_wait(event_log_writer(events, turn % WRITERS), turn % 2);
	}
	for (unsigned writer = 0; dies && writer < WRITERS; writer++)
		event_log_writer(events, writer)->segment = NULL; /* it gets no end record */
	event_log_close(events);
	life++;
}

/* What is found */

struct found {
	unsigned times[EVENTS_MAX];
	unsigned count;
};

static void find_event(void *ctx, struct event_reader *r, const struct event *ev)
{
	struct found *found = ctx;
	char text[EVENT_STRING_BYTES_MAX];
	uint64_t number;
	if (ev->kind == EVENT_VISIT)
		assert_true(str_eq(event_reader_string(r, ev->visit.agent, text), STR("agent/1.0")));
	if (ev->kind != EVENT_IMPRESSION)
		return;
	const struct str id = ev->impression.id;
	assert_true(id.len > 1 && str_u64(str_n(id.ptr + 1, id.len - 1), &number) && number < written_count);
	assert_int_equal(event_segment_boot(r->segment), written[number].life + 1);
	assert_int_equal(r->segment >> 24 & 0xff, written[number].writer);
	found->times[number]++;
	found->count++;
}

/* How much of each writer was said to be on the disk by then. */
static void find_synced(size_t moment, uint64_t ret[LIVES][WRITERS])
{
	memset(ret, 0, LIVES * sizeof(ret[0]));
	for (size_t i = 0; i < note_count && notes[i].moment <= moment; i++)
		ret[notes[i].life][notes[i].writer] = notes[i].synced;
}

static unsigned opened_lives(size_t moment)
{
	unsigned n = 0;
	while (n < LIVES && opened_at[n] <= moment)
		n++;
	return n;
}

static unsigned lose_at(size_t moment, enum disk_loss loss)
{
	static struct found first, again;
	uint64_t on_disk[LIVES][WRITERS];
	unsigned musts = 0, twice = 0;
	find_synced(moment, on_disk);
	disk_restore(copy.path, moment, loss, &random_state);
	struct event_log *log = kit_log_open(copy.path, &settings, 0);
	assert_true(log->boot > opened_lives(moment));
	struct event_counts backlog = event_log_backlog(log);
	event_log_close(log);
	memset(&first, 0, sizeof(first));
	folder_each(copy.path, find_event, &first);
	assert_int_equal(backlog.impressions, first.count);
	for (unsigned i = 0; i < written_count; i++) {
		bool must = loss == DISK_KILLED
		                ? written[i].flushed_at < moment
		                : written[i].written <= on_disk[written[i].life][written[i].writer];
		if (must && first.times[i] == 0)
			fail_msg("event %u is lost at moment %zu", i, moment);
		musts += must;
		twice += first.times[i] > 1;
	}
	assert_int_equal(twice, 0);
	if (moment % 4 != loss)
		return musts;
	event_log_close(kit_log_open(copy.path, &settings, 0)); /* a second recovery changes nothing */
	memset(&again, 0, sizeof(again));
	folder_each(copy.path, find_event, &again);
	assert_memory_equal(&first, &again, sizeof(first));
	return musts;
}

TEST(what_was_synced_survives_power_loss_at_every_moment)
{
	disk_record(dir.path);
	for (unsigned i = 0; i < LIVES; i++)
		live(i == 1);
	disk_stop();
	size_t moments = disk_moment();
	assert_true(moments > 150);
	assert_true(note_count >= LIVES * 3);
	kit_syncs_skip();
	unsigned musts = 0;
	for (size_t moment = 0; moment <= moments; moment++) {
		musts += lose_at(moment, DISK_WORST);
		lose_at(moment, DISK_KILLED);
		for (unsigned i = 0; i < POWER_TRIES; i++)
			lose_at(moment, DISK_POWER);
	}
	assert_true(musts > moments * 10);
	assert_int_equal(lose_at(moments, DISK_WORST), written_count); /* closed in order */
}

static int make_folders(void **state)
{
	temp_init(&dir);
	temp_init(&copy);
	settings = kit_settings;
	settings.segment_bytes = 8000;
	log_level_set(LOG_ERROR + 1);
	return 0;
}

static int remove_folders(void **state)
{
	disk_stop();
	disk_release();
	temp_release(&dir);
	temp_release(&copy);
	return 0;
}

TEST_MAIN(.setup = make_folders, .teardown = remove_folders)
