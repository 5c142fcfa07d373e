/* Checkpoints: what is written is read, what is damaged is as good as nothing, and nothing is half written.
 */
#include "lib/event_kit.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"
#include "queue/checkpoint.h"

static struct temp dir;
static struct arena arena;
static char path[TEMP_PATH_BYTES];

static int make(void **state)
{
	temp_init(&dir);
	temp_path(&dir, "checkpoint", path);
	log_level_set(LOG_ERROR + 1);
	return 0;
}

static int release(void **state)
{
	os_fault_reset();
	arena_release(&arena);
	temp_release(&dir);
	return 0;
}

static struct position some[] = {{0x100000000ULL, 64}, {0x101000001ULL, 1}, {UINT64_MAX, UINT64_MAX}};
static const struct checkpoint sample = {
    .positions = some,
    .count = ARRAY_LEN(some),
    .counts = {.clicks = 1, .orphans = 2, .impressions = UINT64_MAX, .rejected = 4, .dropped = 5}};

static void assert_checkpoint(const struct checkpoint *want)
{
	struct checkpoint got;
	assert_int_equal(checkpoint_read(path, &arena, &got, NULL), 0);
	assert_int_equal(got.count, want->count);
	for (size_t i = 0; i < got.count; i++)
		assert_memory_equal(&got.positions[i], &want->positions[i], sizeof(got.positions[i]));
	assert_counts_equal(&got.counts, &want->counts);
}

TEST(what_is_written_is_read)
{
	assert_int_equal(checkpoint_write(path, &sample, NULL), 0);
	assert_checkpoint(&sample);
	const struct checkpoint empty = {.count = 0};
	assert_int_equal(checkpoint_write(path, &empty, NULL), 0);
	assert_checkpoint(&empty);
}

TEST(one_that_is_not_there_is_empty)
{
	assert_checkpoint(&(struct checkpoint){.count = 0});
}

/* A changed byte must not send a reader ahead of what it has read. */
TEST(one_that_is_damaged_is_empty)
{
	struct buf CLEANUP(buf_release) whole = {0};
	assert_int_equal(checkpoint_write(path, &sample, NULL), 0);
	assert_int_equal(file_read(path, 1 << 20, &whole, NULL), 0);
	size_t empty = 0;
	kit_syncs_skip();
	for (size_t i = 0; i < 2 * whole.len; i++) {
		struct buf CLEANUP(buf_release) text = {0};
		struct checkpoint got;
		bool is_cut = i >= whole.len;
		size_t at = i % whole.len;
		buf_append(&text, whole.data, is_cut ? at : whole.len);
		if (!is_cut)
			text.data[at] ^= (char)(1 << at % 8);
		assert_int_equal(file_write_atomic(path, buf_view(&text), 0600, NULL), 0);
		assert_int_equal(checkpoint_read(path, &arena, &got, NULL), 0);
		/* Some bytes can be written otherwise: a digit of the sum, the last line's end. */
		if (got.count != 0)
			assert_checkpoint(&sample);
		empty += got.count == 0;
	}
	assert_true(empty > 2 * whole.len - 20);
}

/* Whatever fails, the one before is still there. */
TEST(one_that_cannot_be_written_leaves_the_one_before)
{
	static const enum os_call calls[] = {OS_OPEN, OS_WRITE, OS_FSYNC, OS_RENAME};
	struct position other[] = {{7, 7}};
	const struct checkpoint next = {.positions = other, .count = 1};
	assert_int_equal(checkpoint_write(path, &sample, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		struct err e = {""};
		os_fault_fail(calls[i], 1, ENOSPC, OS_ONCE);
		assert_int_equal(checkpoint_write(path, &next, &e), ERR_UNAVAILABLE);
		assert_int_equal(os_fault_hits(calls[i]), 1);
		assert_true(e.text[0]);
		os_fault_reset();
		assert_checkpoint(&sample);
	}
}

TEST(one_that_cannot_be_read_is_an_error)
{
	struct checkpoint got;
	struct err e = {""};
	assert_int_equal(checkpoint_write(path, &sample, NULL), 0);
	os_fault_fail(OS_OPEN, 1, EIO, OS_ONCE);
	assert_true(checkpoint_read(path, &arena, &got, &e) < 0);
	assert_true(e.text[0]);
}

TEST_MAIN(.setup = make, .teardown = release)
