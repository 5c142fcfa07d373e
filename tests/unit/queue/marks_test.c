/* Marks: what was there before is recognised, and a sink that keeps positions keeps the marks. */
#include "event/format.h"
#include "lib/queue_suite.h"
#include "lib/test.h"
#include "queue/marks.h"

enum { PARTITIONS = 3, NODES = 5, WRITERS = 7, STEPS_MAX = 2 * PARTITIONS * NODES * WRITERS };

static struct marks *marks;

static int make(void **state)
{
	return marks_new(&marks);
}

static int release(void **state)
{
	marks_free(marks);
	return 0;
}

static struct event_id id_of(unsigned node, unsigned boot, unsigned writer, unsigned sequence,
                             uint64_t position)
{
	return (struct event_id){node, event_segment(boot, writer, sequence), position};
}

TEST(what_was_there_before_is_reported)
{
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 0, 64)), 1);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 0, 64)), 0);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 0, 100)), 1);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 0, 64)), 0);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 1, 64)), 1); /* the writer's next segment */
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 0, 900)), 0);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 2, 2, 0, 64)), 1); /* its next boot */
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 2, 7, 64)), 0);
}

TEST(partitions_nodes_and_writers_are_distinguished)
{
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned n = 0; n < PARTITIONS * NODES * WRITERS; n++) {
			struct event_id id = id_of(n % NODES, 1, n / NODES % WRITERS, 0, 64 + n);
			assert_int_equal(marks_pass(marks, n / NODES / WRITERS, id), round == 0);
		}
	}
}

TEST(what_is_undone_comes_again)
{
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 64)), 1);
	marks_commit(marks);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 80)), 1);
	marks_undo(marks);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 80)), 1);
	marks_rewind(marks);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 64)), 0);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 80)), 1);
}

/* Somebody else who begins with what was kept leaves out what we would. */
TEST(what_is_kept_is_taken_up_by_another)
{
	struct advance steps[STEPS_MAX];
	struct queue_keeper keeper = {0};
	for (unsigned n = 0; n < 200; n++) {
		struct event_id id = id_of(n % NODES, 1 + n / 100, n % WRITERS, n / 30 % 3, 64 + n);
		marks_pass(marks, n % PARTITIONS, id);
		assert_true(marks_steps_max(marks) <= STEPS_MAX);
		if (n % 10 == 9) {
			keeper_take(&keeper, steps, marks_steps(marks, steps));
			marks_commit(marks);
			assert_int_equal(marks_steps(marks, steps), 0);
		}
	}
	struct marks *other;
	assert_int_equal(marks_new(&other), 0);
	assert_int_equal(marks_load(other, keeper.positions, keeper.count), 0);
	for (unsigned n = 0; n < 400; n++) {
		struct event_id id = id_of(n % NODES, 1 + n / 100, n % WRITERS, n / 30 % 3, 64 + n);
		assert_int_equal(marks_pass(other, n % PARTITIONS, id),
		                 marks_pass(marks, n % PARTITIONS, id));
	}
	/* The steps of the other begin where they should, too. */
	keeper_take(&keeper, steps, marks_steps(other, steps));
	marks_free(other);
	keeper_release(&keeper);
}

TEST(streams_of_marks_are_never_those_of_partitions)
{
	struct advance steps[STEPS_MAX];
	for (unsigned n = 0; n < PARTITIONS * NODES * WRITERS; n++)
		marks_pass(marks, n / NODES / WRITERS, id_of(n % NODES, 1, n / NODES % WRITERS, 0, 64));
	size_t count = marks_steps(marks, steps);
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
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 64)), 1);
	assert_int_equal(marks_pass(marks, 2, id_of(1, 1, 0, 0, 70)), 1);
	keeper_take(&keeper, steps, marks_steps(marks, steps));
	marks_commit(marks);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 90)), 1);
	marks_forget(marks, 1);
	assert_int_equal(marks_load(marks, keeper.positions, keeper.count), 0);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 64)), 0);
	assert_int_equal(marks_pass(marks, 2, id_of(1, 1, 0, 0, 70)), 0);
	assert_int_equal(marks_pass(marks, 1, id_of(1, 1, 0, 0, 90)), 1);
	keeper_take(&keeper, steps, marks_steps(marks, steps));
	keeper_release(&keeper);
}

TEST_MAIN(.setup = make, .teardown = release)
