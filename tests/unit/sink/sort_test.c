#include "lib/test.h"
#include "sink/sort.h"

enum { ITEMS_MAX = 3000 };

static uint64_t random_state = 88172645463325252;

static uint64_t random_u64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static bool in_order(const struct sort_item *a, const struct sort_item *b)
{
	if (a->major != b->major)
		return a->major < b->major;
	if (a->minor != b->minor)
		return a->minor < b->minor;
	return a->index < b->index; /* stable: the index was the place before */
}

static void check(size_t count, uint64_t major_mask, uint64_t minor_mask)
{
	static struct sort_item items[ITEMS_MAX], room[ITEMS_MAX];
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++) {
		items[i] = (struct sort_item){.major = random_u64() & major_mask,
		                              .minor = random_u64() & minor_mask,
		                              .index = (uint32_t)i};
		sum += items[i].major * 3 + items[i].minor;
	}
	sort_items(items, room, count);
	for (size_t i = 0; i < count; i++) {
		sum -= items[i].major * 3 + items[i].minor;
		assert_true(i == 0 || in_order(&items[i - 1], &items[i]));
	}
	assert_int_equal(sum, 0);
}

TEST(items_come_out_by_both_numbers_and_keep_their_order_otherwise)
{
	static const uint64_t masks[] = {0, 1, 0xff, 0x300, 0xffff0000, 0xff00000000000000, UINT64_MAX};
	for (size_t i = 0; i < ARRAY_LEN(masks); i++)
		for (size_t k = 0; k < ARRAY_LEN(masks); k++)
			check(ITEMS_MAX, masks[i], masks[k]);
}

TEST(few_items_and_none_are_fine)
{
	for (size_t count = 0; count < 5; count++)
		check(count, UINT64_MAX, UINT64_MAX);
}

TEST_MAIN()
