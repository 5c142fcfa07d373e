/* A store of several parts, of which some are away, or not what they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/os_fault.h"
#include "lib/ring_kit.h"
#include "lib/until.h"

#include <stdlib.h>

static void a_part_that_is_away_fails_only_what_is_its_own(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1);
	uint64_t new_here = ring_kit_id_in(s, 0, 200), new_there = ring_kit_id_in(s, 1, 200);
	atomic_store(&ring.proxies[1].is_away, true);
	struct store_lookup reads[] = {ring_kit_lookup_of(here), ring_kit_lookup_of(there)};
	assert_int_equal(store_lookup(s, reads, 2), 0);
	assert_int_equal(reads[0].result, 0);
	assert_int_equal(reads[1].result, ERR_UNAVAILABLE);
	struct store_write writes[] = {kit_generated(&ring.arena, new_there),
	                               kit_generated(&ring.arena, new_here)};
	assert_int_equal(store_apply(s, writes, 2), 0);
	assert_int_equal(writes[0].result, ERR_UNAVAILABLE);
	assert_int_equal(writes[1].result, 0);
	struct store_list page = {.limit = 5, .arena = &ring.arena};
	assert_int_equal(store_list(s, &page), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(s, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("b:2/x");
	atomic_store(&ring.proxies[1].is_away, false);
	assert_int_equal(store_ping(s, &ring.e), 0);
	assert_int_equal(kit_find_generated(s, &ring.arena, there), 0);
	ring_kit_close(s);
}

static void what_a_part_says_may_be_old_is_passed_on(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1);
	atomic_store(&ring.proxies[1].is_old, true);
	struct store_lookup reads[] = {ring_kit_lookup_of(here), ring_kit_lookup_of(there)};
	assert_int_equal(store_lookup(s, reads, 2), 0);
	assert_int_equal(reads[1].result, 0);
	assert_false(reads[0].old);
	assert_true(reads[1].old);
	ring_kit_close(s);
}

static void a_ring_starts_without_a_part_but_not_without_its_home(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1);
	ring_kit_close(s);
	atomic_store(&ring.proxies[1].is_away, true);
	s = ring_kit_first(2);
	assert_int_equal(kit_find_generated(s, &ring.arena, here), 0);
	struct store_lookup read = ring_kit_lookup_of(there);
	assert_int_equal(store_lookup(s, &read, 1), 0);
	assert_int_equal(read.result, ERR_UNAVAILABLE);
	atomic_store(&ring.proxies[1].is_away, false);
	ring_kit_links_check(s, 1, 100);
	ring_kit_close(s);
	atomic_store(&ring.proxies[0].is_away, true);
	assert_int_equal(ring_kit_over((size_t[]){0, 1}, 2, &s), ERR_UNAVAILABLE);
	ring_kit_assert_said("a:1/x");
}

/* What the composition root does for a database that does not answer yet. */
static int open_late(void *ctx, struct store **ret, struct err *why)
{
	struct store_proxy *p = &ring.proxies[*(size_t *)ctx];
	if (atomic_load(&p->is_away))
		return err_set(why, ERR_UNAVAILABLE, "it is away");
	*ret = &p->base;
	return 0;
}

static struct store *ring_with_late(size_t late)
{
	struct store_ring_part parts[2];
	struct store *s = NULL;
	for (size_t i = 0; i < 2; i++)
		parts[i] = (struct store_ring_part){.store = &ring.proxies[i].base,
		                                    .address = ring_kit_addresses[i]};
	size_t *number = malloc(sizeof(*number));
	*number = late;
	parts[late].store = NULL;
	parts[late].open = open_late;
	parts[late].ctx = number;
	ring.e.text[0] = '\0';
	if (store_ring_open(parts, 2, true, &s, &ring.e) != 0)
		free(number);
	return s;
}

static void a_part_that_could_not_be_opened_is_opened_later(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1);
	ring_kit_close(s);
	atomic_store(&ring.proxies[1].is_away, true);
	s = ring_with_late(1);
	assert_non_null(s);
	assert_int_equal(kit_find_generated(s, &ring.arena, here), 0);
	struct store_lookup read = ring_kit_lookup_of(there);
	assert_int_equal(store_lookup(s, &read, 1), 0);
	assert_int_equal(read.result, ERR_UNAVAILABLE);
	assert_int_equal(store_ping(s, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("b:2/x");
	atomic_store(&ring.proxies[1].is_away, false);
	UNTIL(store_lookup(s, &read, 1) == 0 && read.result == 0);
	ring_kit_links_check(s, 1, 100);
	ring_kit_close(s);
	atomic_store(&ring.proxies[0].is_away, true);
	assert_null(ring_with_late(0)); /* the home */
	ring_kit_assert_said("a:1/x");
}

static void a_fresh_ring_needs_all_its_parts(void **state)
{
	(void)state;
	struct store *s = NULL;
	atomic_store(&ring.proxies[1].is_away, true);
	assert_int_equal(ring_kit_over((size_t[]){0, 1}, 2, &s), ERR_UNAVAILABLE);
	ring_kit_assert_said("b:2/x");
}

static void another_database_in_a_members_place_is_not_written_to(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	uint64_t there = ring_kit_id_in(s, 1, 1);
	ring.proxies[1].inner = ring.inner[2]; /* restored from nothing, say */
	struct store_lookup read = ring_kit_lookup_of(there);
	assert_int_equal(store_lookup(s, &read, 1), 0);
	assert_int_equal(read.result, ERR_UNAVAILABLE); /* and not: it is not there */
	assert_int_equal(store_ping(s, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("b:2/x");
	uint64_t epoch;
	struct str text;
	assert_int_equal(ring.inner[2]->ops->part->ring_get(ring.inner[2], &ring.arena, &epoch, &text), 0);
	assert_int_equal(epoch, 0);
	ring_kit_close(s);
}

/* The home and the third know the next ring; the second does not hear of it. */
static void a_part_that_does_not_hear_of_a_new_ring_fails_only_its_own(void **state)
{
	(void)state;
	os_fault_clock_fast(8); /* a part has seconds to hear of it */
	struct store *s = ring_kit_first(3);
	ring_kit_links_make(s, 1, RING_LINKS);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1), epoch;
	struct str text;
	assert_int_equal(ring.inner[0]->ops->part->ring_get(ring.inner[0], &ring.arena, &epoch, &text), 0);
	atomic_store(&ring.proxies[1].holds_rings, true);
	assert_int_equal(ring.inner[0]->ops->part->ring_set(ring.inner[0], epoch + 1, text), 0);
	assert_int_equal(ring.inner[2]->ops->part->ring_set(ring.inner[2], epoch + 1, text), 0);
	struct store_lookup reads[] = {ring_kit_lookup_of(here), ring_kit_lookup_of(there)};
	struct store_write writes[] = {
	    {.kind = STORE_LINK_DELETE, .arena = &ring.arena, .ref = kit_generated(&ring.arena, there).ref},
	    {.kind = STORE_LINK_UPDATE, .arena = &ring.arena, .ref = kit_generated(&ring.arena, here).ref}};
	assert_int_equal(kit_find_generated(s, &ring.arena, here), 0); /* it learns of the next ring */
	assert_int_equal(store_lookup(s, reads, 2), 0);
	assert_int_equal(reads[0].result, 0);
	assert_int_equal(reads[1].result, ERR_UNAVAILABLE);
	assert_int_equal(store_apply(s, writes, 2), 0);
	assert_int_equal(writes[0].result, ERR_UNAVAILABLE);
	assert_int_equal(writes[1].result, 0);
	atomic_store(&ring.proxies[1].holds_rings, false);
	UNTIL(kit_find_generated(s, &ring.arena, there) != ERR_UNAVAILABLE);
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    RING_TEST(a_part_that_is_away_fails_only_what_is_its_own),
	    RING_TEST(what_a_part_says_may_be_old_is_passed_on),
	    RING_TEST(a_ring_starts_without_a_part_but_not_without_its_home),
	    RING_TEST(a_part_that_could_not_be_opened_is_opened_later),
	    RING_TEST(a_fresh_ring_needs_all_its_parts),
	    RING_TEST(another_database_in_a_members_place_is_not_written_to),
	    RING_TEST(a_part_that_does_not_hear_of_a_new_ring_fails_only_its_own),
	};
	return cmocka_run_group_tests_name("store_ring_away", tests, NULL, NULL);
}
