#include "lib/test.h"
#include "rcache/pending_invalidations.h"

static const struct str a = {"a", 1}, b = {"b", 1};

static size_t pick(struct pending *o, size_t max)
{
	struct arena arena = {0};
	struct str keys[8];
	size_t n = pending_pick(o, &arena, keys, MIN(max, ARRAY_LEN(keys)));
	arena_release(&arena);
	return n;
}

TEST(a_change_is_kept_while_it_is_published_and_removed_afterwards)
{
	struct pending *o = pending_new();
	assert_false(pending_any(o));
	pending_begin(o, &a, 1);
	assert_true(pending_has(o, a));
	assert_false(pending_has(o, b));
	assert_int_equal(pick(o, 8), 0); /* somebody is at it */
	pending_end(o, &a, 1, true);
	assert_false(pending_has(o, a));
	assert_false(pending_any(o));
	pending_free(o);
}

TEST(a_change_that_was_not_published_is_pending_until_it_is)
{
	struct pending *o = pending_new();
	pending_begin(o, &a, 1);
	pending_end(o, &a, 1, false);
	assert_int_equal(pick(o, 8), 1);
	assert_true(pending_has(o, a));
	assert_int_equal(pick(o, 8), 0);
	pending_end(o, &a, 1, false);
	assert_int_equal(pick(o, 8), 1);
	pending_end(o, &a, 1, true);
	assert_false(pending_has(o, a));
	assert_int_equal(pending_count(o), 0);
	pending_free(o);
}

TEST(a_key_that_changes_again_meanwhile_stays_until_both_are_published)
{
	struct pending *o = pending_new();
	pending_begin(o, &a, 1);
	pending_begin(o, &a, 1);
	pending_end(o, &a, 1, true);
	assert_true(pending_has(o, a));
	pending_end(o, &a, 1, false);
	assert_true(pending_has(o, a));
	assert_int_equal(pick(o, 8), 1);
	pending_begin(o, &a, 1);
	pending_end(o, &a, 1, true);
	assert_true(pending_has(o, a));
	pending_end(o, &a, 1, true);
	assert_false(pending_has(o, a));
	pending_free(o);
}

TEST(recent_changes_are_pending_again_when_the_node_may_have_forgotten)
{
	struct pending *o = pending_new();
	pending_begin(o, &a, 1);
	pending_end(o, &a, 1, true);
	pending_begin(o, &b, 1);
	pending_recall(o);
	assert_true(pending_has(o, a));
	assert_int_equal(pending_count(o), 2);
	assert_int_equal(pick(o, 8), 1);
	pending_end(o, &a, 1, true);
	pending_end(o, &b, 1, true);
	assert_false(pending_any(o));
	pending_recall(o);
	assert_int_equal(pick(o, 8), 2);
	pending_free(o);
}

static void add_numbered(struct pending *o, unsigned number)
{
	char text[16];
	struct str key = str_n(text, (size_t)snprintf(text, sizeof(text), "n%u", number));
	pending_begin(o, &key, 1);
	pending_end(o, &key, 1, false);
}

TEST(published_changes_give_way_to_pending_ones)
{
	struct pending *o = pending_new();
	int64_t since_ms;
	uint64_t version;
	pending_begin(o, &a, 1);
	pending_end(o, &a, 1, true);
	for (unsigned i = 0; i < PENDING_KEYS_MAX; i++)
		add_numbered(o, i);
	assert_false(pending_all_begin(o, &since_ms, &version));
	pending_recall(o);
	assert_false(pending_has(o, a));
	assert_int_equal(pending_count(o), PENDING_KEYS_MAX);
	pending_free(o);
}

TEST(what_finds_no_room_makes_everything_owed)
{
	struct pending *o = pending_new();
	int64_t since_ms;
	uint64_t version;
	for (unsigned i = 0; i < PENDING_KEYS_MAX; i++)
		add_numbered(o, i);
	assert_int_equal(pending_count(o), PENDING_KEYS_MAX);
	assert_false(pending_all_begin(o, &since_ms, &version));
	assert_false(pending_has(o, a));
	add_numbered(o, PENDING_KEYS_MAX);
	assert_int_equal(pending_count(o), PENDING_KEYS_MAX);
	assert_true(pending_all_begin(o, &since_ms, &version));
	assert_true(pending_has(o, a));
	add_numbered(o, PENDING_KEYS_MAX + 1);
	pending_all_end(o, version); /* another one came after it began: not all is published */
	assert_true(pending_has(o, a));
	assert_true(pending_all_begin(o, &since_ms, &version));
	pending_all_end(o, version);
	assert_false(pending_has(o, a));
	assert_true(pending_any(o));
	pending_free(o);
}

TEST_MAIN()
