/* Readers of one event log that follow each other: none reads what another has read. */
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"
#include "stats/checkpoint_handover.h"

enum { NODE = 7, POSITIONS_MAX = 8 };

/* A sink that keeps positions. */
static struct fake {
	struct sink base;
	struct position kept[POSITIONS_MAX];
	size_t count;
	unsigned asked, moved, settled;
	uint64_t clicks; /* in its books */
	int says;
} fake;

static struct temp dir;
static struct arena arena;

static int fake_resume(struct sink *s, uint64_t source, struct arena *a, struct position **ret,
                       size_t *ret_count)
{
	(void)s;
	(void)a;
	assert_int_equal(source, NODE);
	fake.asked++;
	*ret = fake.kept;
	*ret_count = fake.count;
	return fake.says;
}

static int fake_commit(struct sink *s, const struct sink_batch *b, uint64_t *ret_duplicates)
{
	(void)s;
	assert_int_equal(b->source, NODE);
	assert_int_equal(b->visit_count + b->impression_count + b->note_count, 0);
	for (size_t i = 0; fake.says == 0 && i < b->advance_count; i++) {
		size_t k = 0;
		while (k < fake.count && fake.kept[k].stream != b->advances[i].stream)
			k++;
		assert_true(k < POSITIONS_MAX);
		if (k == fake.count)
			fake.kept[fake.count++] = (struct position){b->advances[i].stream, 0};
		assert_int_equal(b->advances[i].from, fake.kept[k].offset);
		fake.kept[k].offset = b->advances[i].to;
	}
	fake.moved++;
	*ret_duplicates = 0;
	return fake.says;
}

static int fake_sync(struct sink *s)
{
	(void)s;
	fake.settled++;
	return fake.says;
}

static int fake_reconciliation(struct sink *s, uint64_t node, bool deep, struct reconciliation *ret)
{
	(void)s;
	(void)deep;
	assert_int_equal(node, NODE);
	*ret = (struct reconciliation){.tally.clicks = fake.clicks};
	return fake.says;
}

static const struct sink_ops keeping = {
    .resume = fake_resume, .commit = fake_commit, .sync = fake_sync, .reconciliation = fake_reconciliation};
static const struct sink_ops forgetting = {
    .commit = fake_commit, .sync = fake_sync, .reconciliation = fake_reconciliation};

static int setup(void **state)
{
	log_level_set(LOG_ERROR + 1);
	fake = (struct fake){.base.ops = &keeping};
	temp_init(&dir);
	return 0;
}

static int teardown(void **state)
{
	arena_release(&arena);
	temp_release(&dir);
	return 0;
}

static bool has_file(const char *name)
{
	char path[TEMP_PATH_BYTES];
	return access(temp_path(&dir, name, path), F_OK) == 0;
}

static void segment_write(void)
{
	char path[TEMP_PATH_BYTES];
	temp_path(&dir, "00000001-00-000000.log", path);
	assert_int_equal(file_write_atomic(path, STR("something"), 0600, NULL), 0);
}

static struct checkpoint begin(enum checkpoint_owner owner)
{
	struct checkpoint c;
	struct err e = {""};
	const struct handover_config config = {dir.path, owner, &fake.base, false};
	if (checkpoint_handover(&config, NODE, &arena, &c, &e) < 0)
		fail_msg("%s", e.text);
	return c;
}

static int begin_while_the_sink_is_away(enum checkpoint_owner owner)
{
	struct checkpoint c;
	struct err e = {""};
	const struct handover_config config = {dir.path, owner, &fake.base, true};
	return checkpoint_handover(&config, NODE, &arena, &c, &e);
}

/* A reader that keeps its place in a file has read on. */
static void read_on(enum checkpoint_owner owner, uint64_t segment, uint64_t offset, uint64_t clicks)
{
	char path[TEMP_PATH_BYTES];
	struct position at = {segment, offset};
	struct checkpoint c = {.positions = &at, .count = 1, .counts.clicks = clicks};
	assert_int_equal(checkpoint_write(temp_path(&dir, handover_file(owner), path), &c, NULL), 0);
}

static void assert_at(const struct checkpoint *c, uint64_t segment, uint64_t offset)
{
	for (size_t i = 0; i < c->count; i++) {
		if (c->positions[i].stream == segment) {
			assert_int_equal(c->positions[i].offset, offset);
			return;
		}
	}
	fail_msg("nothing is known of segment %llu", (unsigned long long)segment);
}

TEST(a_forwarder_begins_where_the_sink_is)
{
	segment_write();
	fake.kept[fake.count++] = (struct position){1, 500};
	fake.clicks = 10;
	struct checkpoint c = begin(OWNER_FORWARDER);
	assert_at(&c, 1, 500);
	assert_int_equal(c.counts.clicks, 10);
	/* From then on it is its own business: the sink may be away. */
	fake.says = ERR_UNAVAILABLE;
	assert_int_equal(begin_while_the_sink_is_away(OWNER_FORWARDER), 0);
	c = begin(OWNER_FORWARDER);
	assert_at(&c, 1, 500);
	assert_int_equal(fake.asked, 1);
}

TEST(a_sink_goes_on_where_the_forwarder_was_and_back)
{
	segment_write();
	fake.kept[fake.count++] = (struct position){1, 500};
	fake.kept[fake.count++] = (struct position){2, 900};
	begin(OWNER_FORWARDER);
	read_on(OWNER_FORWARDER, 1, 700, 15);
	struct checkpoint c = begin(OWNER_SINK);
	assert_at(&c, 1, 700);
	assert_at(&c, 2, 900);
	assert_int_equal(c.counts.clicks, 15); /* some may be on their way through the queue */
	assert_int_equal(fake.kept[0].offset, 700);
	assert_int_equal(fake.settled, 1);
	assert_false(has_file("forwarded"));
	/* The sink counts on, and it is the forwarder's turn again. */
	fake.kept[0].offset = 800;
	fake.clicks = 20;
	c = begin(OWNER_FORWARDER);
	assert_at(&c, 1, 800);
	assert_int_equal(c.counts.clicks, 20);
	assert_true(has_file("forwarded"));
}

TEST(a_sink_that_does_not_take_the_place_leaves_the_file)
{
	struct checkpoint c;
	struct err e = {""};
	const struct handover_config config = {dir.path, OWNER_SINK, &fake.base, false};
	read_on(OWNER_FORWARDER, 1, 700, 15);
	fake.says = ERR_UNAVAILABLE;
	assert_int_equal(checkpoint_handover(&config, NODE, &arena, &c, &e), ERR_UNAVAILABLE);
	assert_true(has_file("forwarded"));
	fake.says = 0;
	c = begin(OWNER_SINK);
	assert_at(&c, 1, 700);
}

TEST(an_ordinary_start_changes_nothing)
{
	segment_write();
	fake.kept[fake.count++] = (struct position){1, 500};
	struct checkpoint c = begin(OWNER_SINK);
	assert_at(&c, 1, 500);
	assert_int_equal(fake.moved + fake.settled, 0);
	assert_false(has_file("forwarded") || has_file("counted"));
}

TEST(readers_with_files_follow_each_other)
{
	segment_write();
	fake.base.ops = &forgetting;
	read_on(OWNER_WORKER, 1, 500, 10);
	struct checkpoint c = begin(OWNER_FORWARDER);
	assert_at(&c, 1, 500);
	assert_int_equal(c.counts.clicks, 10);
	assert_false(has_file("counted"));
	read_on(OWNER_FORWARDER, 1, 600, 12);
	c = begin(OWNER_WORKER);
	assert_at(&c, 1, 600);
	assert_int_equal(c.counts.clicks, 12);
	assert_false(has_file("forwarded"));
}

TEST(a_sink_that_is_down_and_alone_knows_the_position_is_waited_for)
{
	assert_int_equal(begin_while_the_sink_is_away(OWNER_FORWARDER), 0); /* there was nothing to read */
	assert_int_equal(unlink(temp_path(&dir, "forwarded", (char[TEMP_PATH_BYTES]){0})), 0);
	segment_write();
	assert_int_equal(begin_while_the_sink_is_away(OWNER_FORWARDER), ERR_UNAVAILABLE);
	assert_false(has_file("forwarded"));
	read_on(OWNER_WORKER, 1, 500, 10);
	assert_int_equal(begin_while_the_sink_is_away(OWNER_FORWARDER), 0);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
