#include "base/ring.h"
#include "lib/test.h"

enum { KEYS = 20000, MEMBERS_MAX = 9 };

static struct str names[MEMBERS_MAX] = {STR("alpha"), STR("beta"), STR("gamma"), STR("delta"), STR("epsilon"),
                                        STR("zeta"),  STR("eta"),  STR("theta"), STR("iota")};

static struct str key_of(char *room, size_t bytes, unsigned number)
{
	return str_n(room, (size_t)snprintf(room, bytes, "key-%u", number));
}

static struct ring *ring_of(size_t n)
{
	struct ring *r = ring_new(names, n);
	assert_non_null(r);
	return r;
}

/* Other processes, other versions and stored data rely on these: they never change. */
TEST(placement_is_for_ever)
{
	static const struct {
		struct str key;
		size_t of_two, of_three;
	} frozen[] = {
	    {STR(""), 0, 0},        {STR("a"), 1, 1},
	    {STR("abc1234"), 0, 0}, {STR("spring"), 1, 1},
	    {STR("Zz9_-"), 1, 2},   {STR("0000000"), 0, 0},
	    {STR("zzzzzzz"), 0, 0}, {STR("a-much-longer-alias-of-the-kind-that-people-make-up"), 1, 2},
	};
	struct ring *two = ring_of(2), *three = ring_of(3);
	for (size_t i = 0; i < ARRAY_LEN(frozen); i++) {
		assert_int_equal(ring_find(two, frozen[i].key), frozen[i].of_two);
		assert_int_equal(ring_find(three, frozen[i].key), frozen[i].of_three);
	}
	ring_free(two);
	ring_free(three);
}

TEST(shares_are_even)
{
	for (size_t n = 1; n <= MEMBERS_MAX; n++) {
		struct ring *r = ring_of(n);
		size_t shares[MEMBERS_MAX] = {0};
		char room[32];
		for (unsigned i = 0; i < KEYS; i++)
			shares[ring_find(r, key_of(room, sizeof(room), i))]++;
		for (size_t i = 0; i < n; i++)
			assert_in_range(shares[i] * n, KEYS * 80 / 100, KEYS * 120 / 100);
		ring_free(r);
	}
}

TEST(a_new_member_takes_its_share_and_nothing_else_moves)
{
	for (size_t n = 1; n < MEMBERS_MAX; n++) {
		struct ring *before = ring_of(n), *after = ring_of(n + 1);
		size_t moved = 0;
		char room[32];
		for (unsigned i = 0; i < KEYS; i++) {
			struct str key = key_of(room, sizeof(room), i);
			size_t old = ring_find(before, key), new = ring_find(after, key);
			if (old != new)
				assert_int_equal(new, n); /* never from one old member to another */
			moved += old != new;
		}
		assert_in_range(moved * (n + 1), KEYS * 80 / 100, KEYS * 120 / 100);
		ring_free(before);
		ring_free(after);
	}
}

TEST(the_order_of_the_names_does_not_matter)
{
	const struct str turned[] = {names[2], names[0], names[1]};
	static const size_t number[] = {2, 0, 1};
	struct ring *a = ring_of(3), *b = ring_new(turned, 3);
	char room[32];
	for (unsigned i = 0; i < KEYS; i++) {
		struct str key = key_of(room, sizeof(room), i);
		assert_int_equal(ring_find(a, key), number[ring_find(b, key)]);
	}
	ring_free(a);
	ring_free(b);
}

TEST(a_ring_of_nobody_finds_nobody)
{
	struct ring *r = ring_of(0);
	assert_int_equal(ring_find(r, STR("x")), 0);
	ring_free(r);
}

TEST_MAIN()
