/* Slots, what may become of a database's row, and the map: no database is needed. */
#include "lib/test.h"
#include "store/slot_map.h"

static struct slot_set some(unsigned first, unsigned count)
{
	struct slot_set set = slots_none;
	for (unsigned slot = first; slot < first + count; slot++)
		slots_add(&set, slot);
	return set;
}

/* Stored data relies on it. */
TEST(a_name_has_its_slot_for_ever)
{
	assert_int_equal(slot_of(STR("")), 3837);
	assert_int_equal(slot_of(STR("a")), 2090);
	assert_int_equal(slot_of(STR("promo")), 2985);
	assert_int_equal(slot_of(str_n("\0\xff", 2)), 2763);
}

TEST(names_are_spread_evenly)
{
	static unsigned counts[SLOT_COUNT];
	enum { NAMES = 64 * SLOT_COUNT };
	for (unsigned i = 0; i < NAMES; i++) {
		char name[16];
		int len = snprintf(name, sizeof(name), "k%u", i);
		counts[slot_of(str_n(name, (size_t)len))]++;
	}
	for (unsigned i = 0; i < SLOT_COUNT; i++)
		assert_in_range(counts[i], 64 - 48, 64 + 48);
}

TEST(sets_are_sets)
{
	struct slot_set a = some(0, 10), b = some(5, 10);
	assert_true(slots_meet(&a, &b) && !slots_include(&a, &b));
	slots_join(&a, &b);
	assert_int_equal(slots_count(&a), 15);
	assert_true(slots_include(&a, &b));
	slots_drop(&a, &b);
	assert_true(!slots_meet(&a, &b) && slots_have(&a, 4) && !slots_have(&a, 5));
	assert_int_equal(slots_count(&slots_all), SLOT_COUNT);
}

TEST(a_move_goes_step_by_step)
{
	const struct slot_set half = some(0, SLOT_COUNT / 2);
	const uint8_t to[SHARD_NAME_BYTES] = {7};
	const struct slot_attempt a = {.token = 5, .slots = &half, .to = to, .freeze_ms = 100},
	                          b = {.token = 6};
	struct slot_row s = {.owned = slots_all, .now_ms = 1000}, t = {.owned = slots_none};
	assert_true(slot_row_owns_all(&s));
	assert_int_equal(slot_row_begin(&s, &a), 0);
	assert_false(slot_row_owns_all(&s));
	assert_int_equal(slot_row_begin(&s, &a), ERR_CONFLICT); /* one at a time */
	assert_int_equal(slot_row_expect(&t, &a), 0);
	assert_int_equal(slot_row_expect(&t, &a), ERR_CONFLICT);
	assert_int_equal(slot_row_touch(&s, &a), 0);
	assert_int_equal(slot_row_freeze(&s, &b), ERR_CONFLICT); /* another attempt's */
	assert_int_equal(slot_row_give(&s, &a), ERR_CONFLICT);   /* not frozen */
	assert_int_equal(slot_row_freeze(&s, &a), 0);
	assert_true(slot_is_frozen(&s, 0) && !slot_is_frozen(&s, SLOT_COUNT - 1));
	assert_int_equal(slot_row_thaw(&s, &b), ERR_CONFLICT); /* its time is not over */
	assert_int_equal(slot_row_give(&s, &a), 0);
	assert_false(slots_have(&s.owned, 0));
	assert_int_equal(slot_row_abandon(&s, &b), ERR_CONFLICT); /* there is no way back */
	assert_int_equal(slot_row_take(&t, &b), ERR_CONFLICT);
	assert_int_equal(slot_row_take(&t, &a), 0);
	assert_int_equal(slot_row_take(&t, &a), ERR_CONFLICT);
	assert_memory_equal(&t.owned, &half, sizeof(half));
	assert_int_equal(slot_row_finish(&s, &a), 0);
	assert_true(s.move == MOVE_NONE && slot_row_has_hidden(&s));
	assert_int_equal(slot_row_clean(&s, &a), 0);
	assert_false(slot_row_has_hidden(&s));
}

TEST(a_freeze_past_its_time_is_thawed_by_anybody_and_gives_nothing)
{
	const struct slot_attempt a = {.token = 5,
	                               .slots = &slots_all,
	                               .to = (const uint8_t[16]){7},
	                               .freeze_ms = 100},
	                          none = {0};
	struct slot_row s = {.owned = slots_all, .now_ms = 1000};
	assert_int_equal(slot_row_begin(&s, &a), 0);
	assert_int_equal(slot_row_freeze(&s, &a), 0);
	s.now_ms = 1100;
	assert_int_equal(slot_row_give(&s, &a), ERR_CONFLICT);
	assert_int_equal(slot_row_thaw(&s, &none), 0);
	assert_int_equal(slot_row_give(&s, &a), ERR_CONFLICT);
	assert_int_equal(slot_row_freeze(&s, &a), 0); /* and is tried again */
	assert_int_equal(slot_row_abandon(&s, &none), 0);
	assert_int_equal(slot_row_freeze(&s, &a), ERR_CONFLICT); /* somebody else has taken over */
	assert_true(slot_row_owns_all(&s));
}

TEST(what_came_for_nothing_is_garbage_and_does_not_come_back)
{
	const struct slot_set half = some(0, 10);
	const struct slot_attempt a = {.token = 5, .slots = &half}, none = {0};
	struct slot_row t = {.owned = slots_none};
	assert_int_equal(slot_row_expect(&t, &a), 0);
	assert_int_equal(slot_row_refuse(&t, &none), 0);
	assert_int_equal(slot_row_take(&t, &a), ERR_CONFLICT);
	assert_int_equal(slot_row_expect(&t, &a), ERR_CONFLICT); /* until it is clean */
	assert_int_equal(slot_row_adopt(&t, &a), ERR_CONFLICT);
	assert_int_equal(slot_row_clean(&t, &a), 0);
	assert_int_equal(slot_row_expect(&t, &a), 0);
}

TEST(only_who_was_never_one_of_several_is_enrolled)
{
	const struct slot_set half = some(0, 10);
	const struct slot_attempt a = {.slots = &half, .registry = STR("db:1/x")};
	struct slot_row s = {.owned = slots_all};
	assert_int_equal(slot_row_enroll(&s, &a), 0);
	assert_int_equal(slots_count(&s.owned), 10);
	assert_int_equal(slot_row_enroll(&s, &a), ERR_CONFLICT);
}

TEST(a_map_is_read_as_it_was_written)
{
	static struct slot_map map, same;
	const uint8_t one[SHARD_NAME_BYTES] = {1}, two[SHARD_NAME_BYTES] = {2};
	assert_true(slot_map_add(&map, one, STR("one:1/\"x\"")));
	assert_true(slot_map_add(&map, two, STR("two:1/x")));
	assert_true(slots_place((const uint8_t *const[SHARDS_MAX]){one, two}, map.owner));
	assert_false(slot_map_moves(&map));
	map.shards[1].is_target = true;
	assert_true(slot_map_moves(&map));
	map.version = 7;
	struct str text = slot_map_text(&map);
	assert_int_equal(slot_map_read(text, 7, &same), 0);
	assert_true(str_eq(slot_map_text(&same), text) && same.version == 7);
	const struct str wrong[] = {STR(""), STR("{}"), str_n(text.ptr, text.len - 1)};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(slot_map_read(wrong[i], 7, &same), ERR_CORRUPT);
	map.owner[5] = 2; /* there is no third */
	assert_int_equal(slot_map_read(text, 7, &same), ERR_CORRUPT);
	map.owner[5] = 1;
	map.count = SHARDS_MAX + 1;
	assert_int_equal(slot_map_read(text, 7, &same), ERR_CORRUPT);
	map.count = 2;
	memcpy(map.shards[1].name, one, sizeof(one)); /* one twice */
	assert_int_equal(slot_map_read(text, 7, &same), ERR_CORRUPT);
	memcpy(map.shards[1].name, two, sizeof(two));
	memset(map.shards[1].address, 'x', SHARD_ADDRESS_MAX); /* without an end */
	assert_int_equal(slot_map_read(text, 7, &same), ERR_CORRUPT);
}

TEST(who_leaves_the_map_leaves_no_gap)
{
	static struct slot_map map;
	const uint8_t names[3][SHARD_NAME_BYTES] = {{1}, {2}, {3}};
	for (size_t i = 0; i < 3; i++)
		assert_true(slot_map_add(&map, names[i], STR("x:1/y")));
	memset(map.owner, 2, SLOT_COUNT);
	slot_map_remove(&map, 1);
	assert_true(map.count == 2 && slot_map_find(&map, names[2]) == 1 && !slot_map_has(&map, names[1]));
	assert_true(map.owner[0] == 1 && map.shards[2].address[0] == '\0');
}

TEST(a_third_database_takes_a_third_from_both)
{
	const uint8_t a[SHARD_NAME_BYTES] = {1}, b[SHARD_NAME_BYTES] = {2}, c[SHARD_NAME_BYTES] = {3};
	uint8_t two[SLOT_COUNT], three[SLOT_COUNT];
	size_t moved = 0;
	assert_true(
	    slots_place((const uint8_t *const[SHARDS_MAX]){a, [2] = b}, two)); /* the second is left out */
	assert_true(slots_place((const uint8_t *const[SHARDS_MAX]){a, c, b}, three));
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		assert_true(three[slot] == 1 || three[slot] == two[slot]);
		moved += three[slot] == 1;
	}
	assert_in_range(moved, SLOT_COUNT / 4, SLOT_COUNT * 42 / 100);
}

TEST_MAIN()
