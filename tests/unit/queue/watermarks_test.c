/* Watermarks: repeated events are recognised, and the positions that a sink stores restore the watermarks. */
#include "event/format.h"
#include "lib/queue_suite.h"
#include "lib/test.h"
#include "queue/watermarks.h"

#include <stdlib.h>

enum { PARTITIONS = 3, NODES = 5, WRITERS = 7, STEPS_MAX = 2 * PARTITIONS * NODES * WRITERS };

static struct watermarks *watermarks;

static int make(void **state)
{
	(void)state;
	return watermarks_new(&watermarks);
}

static int release(void **state)
{
	(void)state;
	watermarks_free(watermarks);
	return 0;
}

static struct event_id id_of(unsigned node, unsigned boot, unsigned writer, unsigned sequence,
                             uint64_t position)
{
	return (struct event_id){node, event_segment(boot, writer, sequence), position};
}

TEST(what_was_there_before_is_told)
{
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 0, 64)), 1);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 0, 64)), 0);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 0, 100)), 1);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 0, 64)), 0);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 1, 64)),
	                 1); /* the writer's next segment */
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 0, 900)), 0);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 2, 2, 0, 64)), 1); /* its next boot */
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 2, 7, 64)), 0);
}

TEST(partitions_nodes_and_writers_are_told_apart)
{
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned n = 0; n < PARTITIONS * NODES * WRITERS; n++) {
			struct event_id id = id_of(n % NODES, 1, n / NODES % WRITERS, 0, 64 + n);
			assert_int_equal(watermarks_advance(watermarks, n / NODES / WRITERS, id), round == 0);
		}
	}
}

TEST(what_is_undone_comes_again)
{
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 64)), 1);
	watermarks_commit(watermarks);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 80)), 1);
	watermarks_undo(watermarks);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 80)), 1);
	watermarks_rewind(watermarks);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 64)), 0);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 80)), 1);
}

/* Somebody else who begins with what was kept leaves out what we would. */
TEST(what_is_kept_is_taken_up_by_another)
{
	struct advance steps[STEPS_MAX];
	struct queue_keeper keeper = {0};
	for (unsigned n = 0; n < 200; n++) {
		struct event_id id = id_of(n % NODES, 1 + n / 100, n % WRITERS, n / 30 % 3, 64 + n);
		watermarks_advance(watermarks, n % PARTITIONS, id);
		assert_true(watermarks_changes_max(watermarks) <= STEPS_MAX);
		if (n % 10 == 9) {
			keeper_take(&keeper, steps, watermarks_changes(watermarks, steps));
			watermarks_commit(watermarks);
			assert_int_equal(watermarks_changes(watermarks, steps), 0);
		}
	}
	struct watermarks *other;
	assert_int_equal(watermarks_new(&other), 0);
	assert_int_equal(watermarks_load(other, keeper.positions, keeper.count), 0);
	for (unsigned n = 0; n < 400; n++) {
		struct event_id id = id_of(n % NODES, 1 + n / 100, n % WRITERS, n / 30 % 3, 64 + n);
		assert_int_equal(watermarks_advance(other, n % PARTITIONS, id),
		                 watermarks_advance(watermarks, n % PARTITIONS, id));
	}
	/* The steps of the other begin where they should, too. */
	keeper_take(&keeper, steps, watermarks_changes(other, steps));
	watermarks_free(other);
	keeper_release(&keeper);
}

TEST(streams_of_marks_are_never_those_of_partitions)
{
	struct advance steps[STEPS_MAX];
	for (unsigned n = 0; n < PARTITIONS * NODES * WRITERS; n++)
		watermarks_advance(watermarks, n / NODES / WRITERS,
		                   id_of(n % NODES, 1, n / NODES % WRITERS, 0, 64));
	size_t count = watermarks_changes(watermarks, steps);
	assert_int_equal(count, STEPS_MAX);
	for (size_t i = 0; i < count; i++) {
		assert_true(steps[i].stream >> 63 == 1);
		for (size_t k = 0; k < i; k++)
			assert_true(steps[k].stream != steps[i].stream);
	}
}

/* A partition that went away and came back is begun with what is kept now. */
TEST(a_partition_that_was_forgotten_begins_with_what_is_kept)
{
	struct advance steps[STEPS_MAX];
	struct queue_keeper keeper = {0};
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 64)), 1);
	assert_int_equal(watermarks_advance(watermarks, 2, id_of(1, 1, 0, 0, 70)), 1);
	keeper_take(&keeper, steps, watermarks_changes(watermarks, steps));
	watermarks_commit(watermarks);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 90)), 1);
	watermarks_forget(watermarks, 1);
	assert_int_equal(watermarks_load(watermarks, keeper.positions, keeper.count), 0);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 64)), 0);
	assert_int_equal(watermarks_advance(watermarks, 2, id_of(1, 1, 0, 0, 70)), 0);
	assert_int_equal(watermarks_advance(watermarks, 1, id_of(1, 1, 0, 0, 90)), 1);
	keeper_take(&keeper, steps, watermarks_changes(watermarks, steps));
	keeper_release(&keeper);
}

TEST_MAIN(.setup = make, .teardown = release)
