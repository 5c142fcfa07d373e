/* A store of several parts: changes that go to the right one, once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/ring_kit.h"

static void a_lost_commit_is_uncertain_for_its_own_changes(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1);
	atomic_store(&ring.proxies[1].loses_commits, true);
	struct store_write writes[] = {kit_generated(&ring.arena, there), kit_generated(&ring.arena, here)};
	assert_int_equal(store_apply(s, writes, 2), 0);
	assert_int_equal(writes[0].result, ERR_UNCERTAIN);
	assert_int_equal(writes[1].result, 0);
	ring_kit_close(s);
}

static struct store_write once(uint64_t id, uint8_t fingerprint)
{
	struct store_write w = kit_generated(&ring.arena, id);
	w.idempotency_key = STR("once");
	memset(w.fingerprint, fingerprint, sizeof(w.fingerprint));
	return w;
}

static void a_retry_is_repeated_whatever_part_its_own_key_lies_in(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	struct store_write first = once(ring_kit_id_in(s, 0, 1), 1), again = once(ring_kit_id_in(s, 1, 1), 1);
	uint64_t id = first.link.id;
	atomic_store(&ring.proxies[0].loses_commits, true);
	assert_int_equal(kit_apply(s, &first), ERR_UNCERTAIN);
	atomic_store(&ring.proxies[0].loses_commits, false);
	assert_int_equal(kit_apply(s, &again), 0);
	assert_true(again.replayed);
	assert_int_equal(again.link.id, id);
	struct store_write other = once(ring_kit_id_in(s, 1, 50), 2);
	assert_int_equal(kit_apply(s, &other), ERR_INVALID);
	ring_kit_close(s);
}

static void a_retry_of_what_never_happened_is_made_under_the_first_key(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	struct store_write first = once(ring_kit_id_in(s, 1, 1), 1), again = once(ring_kit_id_in(s, 0, 1), 1);
	atomic_store(&ring.proxies[1].is_away, true);
	assert_int_equal(kit_apply(s, &first), ERR_UNAVAILABLE);
	atomic_store(&ring.proxies[1].is_away, false);
	assert_int_equal(kit_apply(s, &again), 0);
	assert_false(again.replayed);
	assert_int_equal(again.link.id, first.link.id);
	assert_true(str_eq(again.ref.key, first.ref.key));
	assert_int_equal(kit_find_generated(s, &ring.arena, first.link.id), 0);
	ring_kit_close(s);
}

static void a_refused_create_leaves_its_idempotency_key_free(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	struct store_write taken = kit_alias(&ring.arena, 90, "g5");
	assert_int_equal(kit_apply(s, &taken), 0);
	struct store_write meets = once(5, 1), next = once(6, 1);
	assert_int_equal(kit_apply(s, &meets), ERR_CONFLICT);
	assert_int_equal(kit_apply(s, &next), 0);
	assert_int_equal(next.link.id, 6);
	ring_kit_close(s);
}

static void an_alias_is_not_made_under_another_ones_name(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	struct store_write first = kit_alias(&ring.arena, 1, "first"),
	                   second = kit_alias(&ring.arena, 2, "second");
	first.idempotency_key = second.idempotency_key = STR("once");
	first.fingerprint[0] = 1;
	for (size_t i = 0; i < 2; i++)
		atomic_store(&ring.proxies[i].pause_us_max, 0);
	/* Where "first" lies is away when it is made, so that only its route is left. */
	size_t part = 1;
	struct store_write probe = kit_alias(&ring.arena, 3, "first");
	atomic_store(&ring.proxies[1].is_away, true);
	if (kit_apply(s, &probe) == 0)
		part = 0;
	atomic_store(&ring.proxies[1].is_away, false);
	if (part == 1) {
		atomic_store(&ring.proxies[1].is_away, true);
		assert_int_equal(kit_apply(s, &first), ERR_UNAVAILABLE);
		atomic_store(&ring.proxies[1].is_away, false);
	} else {
		assert_int_equal(kit_apply(s, &first), ERR_CONFLICT); /* the probe has it */
	}
	assert_int_equal(kit_apply(s, &second), 0);
	assert_int_equal(second.link.id, 2);
	assert_int_equal(kit_find(s, &ring.arena, 0, "second", NULL), 0);
	ring_kit_close(s);
}

static void names_that_read_like_keys_are_asked_for_together(void **state)
{
	(void)state;
	enum { NAMES = 20 };
	struct store *s = ring_kit_first(2);
	struct store_write writes[NAMES];
	uint64_t first;
	assert_int_equal(store_lease(s, STORE_LINK_COUNTER, 100, &first), 0);
	for (uint64_t i = 0; i < NAMES; i++) {
		writes[i] = kit_alias(&ring.arena, 1000 + i,
		                      arena_printf(&ring.arena, "name%u", (unsigned)i).ptr);
		writes[i].ref.id = i % 2 ? first + i : first + 200 + i; /* given out, or not yet */
	}
	assert_int_equal(store_apply(s, writes, NAMES), 0);
	for (size_t i = 0; i < NAMES; i++)
		assert_int_equal(writes[i].result, i % 2 ? ERR_CONFLICT : 0);
	assert_int_equal(atomic_load(&ring.proxies[0].lookups), 1);
	assert_int_equal(atomic_load(&ring.proxies[1].lookups), 1);
	ring_kit_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    RING_TEST(a_lost_commit_is_uncertain_for_its_own_changes),
	    RING_TEST(a_retry_is_repeated_whatever_part_its_own_key_lies_in),
	    RING_TEST(a_retry_of_what_never_happened_is_made_under_the_first_key),
	    RING_TEST(a_refused_create_leaves_its_idempotency_key_free),
	    RING_TEST(an_alias_is_not_made_under_another_ones_name),
	    RING_TEST(names_that_read_like_keys_are_asked_for_together),
	};
	return cmocka_run_group_tests_name("store_ring_change", tests, NULL, NULL);
}
