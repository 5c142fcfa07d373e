/* A store of several parts: how a ring begins, and how a move begins and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/ring_kit.h"
#include "lib/until.h"

/* --- servers that start at once --- */

static struct store_proxy others[2];
static struct store *second;
static int second_result;
static atomic_int asked, opened;

/* When both parts have told the one who came first that there is no ring, another makes one, from a list in
 * another order, and has told its home only. */
static void second_opens(void)
{
	if (atomic_load(&asked) >= 2)
		return;
	if (atomic_fetch_add(&asked, 1) + 1 == 2) {
		const struct store_ring_part parts[] = {
		    {.store = &others[1].base, .address = ring_kit_addresses[1]},
		    {.store = &others[0].base, .address = ring_kit_addresses[0]}};
		second_result = store_ring_open(parts, 2, true, &second, NULL);
		atomic_store(&opened, 1);
	}
	UNTIL(atomic_load(&opened));
}

static size_t home_of(struct store *s)
{
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	for (size_t i = 0; i < status.part_count; i++) {
		if (status.parts[i].is_home)
			return str_eq(status.parts[i].address, ring_kit_addresses[1]);
	}
	return 2;
}

static void servers_that_start_at_once_make_one_ring(void **state)
{
	(void)state;
	atomic_store(&asked, 0);
	atomic_store(&opened, 0);
	for (size_t i = 0; i < 2; i++) {
		store_proxy_init(&others[i], ring.inner[i]);
		atomic_store(&ring.proxies[i].ring_was_asked, second_opens);
	}
	atomic_store(&others[0].refuses_rings, true);
	struct store *s = ring_kit_first(2);
	atomic_store(&others[0].refuses_rings, false);
	assert_int_equal(second_result, 0);
	assert_int_equal(home_of(s), home_of(second));
	ring_kit_links_make(s, 1, 20);
	ring_kit_links_check(second, 1, 20);
	ring_kit_close(s);
}

static int second_teardown(void **state)
{
	store_free(steal(second));
	return ring_kit_teardown(state);
}

/* --- from one to several --- */

static struct store_write order_of(unsigned number, uint64_t id)
{
	struct store_write w = kit_generated(&ring.arena, id);
	w.idempotency_key = arena_printf(&ring.arena, "order-%u", number);
	return w;
}

static void orders_are_remembered_when_one_database_becomes_several(void **state)
{
	(void)state;
	enum { ORDERS = 40 };
	struct store *alone = NULL;
	assert_int_equal(store_alone_open(&ring.proxies[0].base, &alone, &ring.e), 0);
	for (unsigned i = 0; i < ORDERS; i++) {
		struct store_write w = order_of(i, 1 + i);
		if (i == ORDERS / 2)
			ring_kit_close(ring_kit_first(2)); /* a ring of one: it goes on alone */
		assert_int_equal(kit_apply(alone, &w), 0);
	}
	struct store *s = ring_kit_first(2);
	struct reshard r;
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	for (unsigned i = 0; i < ORDERS; i++) {
		struct store_write again = order_of(i, 1000 + i);
		assert_int_equal(kit_apply(s, &again), 0);
		assert_true(again.replayed);
		assert_int_equal(again.link.id, 1 + i);
	}
	store_free(alone);
	ring_kit_close(s);
}

static void who_was_left_alone_writes_nothing_once_keys_move(void **state)
{
	(void)state;
	struct store *alone = NULL;
	struct reshard r;
	assert_int_equal(store_alone_open(&ring.proxies[0].base, &alone, &ring.e), 0);
	ring_kit_links_make(alone, 1, 10);
	struct store *s = ring_kit_first(2);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	struct store_write late = kit_generated(&ring.arena, 11);
	assert_int_equal(store_apply(alone, &late, 1), ERR_UNAVAILABLE);
	assert_int_equal(kit_find_generated(s, &ring.arena, 11), ERR_NOT_FOUND);
	struct store_lookup read = ring_kit_lookup_of(1);
	assert_int_equal(store_lookup(alone, &read, 1), ERR_UNAVAILABLE);
	store_free(alone);
	ring_kit_close(s);
}

/* --- parts that are away for a moment --- */

static bool goes_away_once(void *ctx, const struct reshard_progress *progress)
{
	int *waits = ctx;
	if (progress->walk == 1 && *waits == 0)
		atomic_store(&ring.proxies[1].is_away, true);
	if (progress->waits_ms > 0) {
		++*waits;
		atomic_store(&ring.proxies[1].is_away, false);
	}
	return true;
}

static void a_move_waits_for_a_part_that_is_away(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	int waits = 0;
	struct reshard r = {.progress = goes_away_once, .ctx = &waits, .patience_ms = UNTIL_MS};
	assert_int_equal(store_reshard(s, &r, &ring.e), 0);
	assert_true(waits > 0);
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
}

static bool refuse_at_the_end(void *ctx, const struct reshard_progress *progress)
{
	(void)ctx;
	atomic_store(&ring.proxies[1].refuses_rings, progress->walk == 2);
	return true;
}

static void the_end_of_a_move_waits_until_all_parts_can_take_it(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	struct reshard r = {.progress = refuse_at_the_end};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_BUSY);
	ring_kit_assert_said("all keys have moved");
	ring_kit_assert_said("b:2/x");
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	assert_true(status.moves);
	ring_kit_links_check(s, 1, RING_LINKS);
	atomic_store(&ring.proxies[1].refuses_rings, false);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	ring_kit_close(s);
}

static void a_part_that_does_not_take_the_ring_is_told_of(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	uint64_t epoch;
	struct str text;
	struct store *home = ring.inner[0];
	assert_int_equal(home->ops->part->ring_get(home, &ring.arena, &epoch, &text), 0);
	atomic_store(&ring.proxies[1].refuses_rings, true);
	assert_int_equal(home->ops->part->ring_set(home, epoch + 1, text), 0);
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	assert_true(status.parts[1].is_behind && !status.parts[0].is_behind);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_BUSY);
	UNTIL(store_ping(s, &ring.e) != 0);
	ring_kit_assert_said("b:2/x");
	atomic_store(&ring.proxies[1].refuses_rings, false);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_int_equal(store_ping(s, &ring.e), 0);
	ring_kit_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(servers_that_start_at_once_make_one_ring, ring_kit_setup,
	                                    second_teardown),
	    RING_TEST(orders_are_remembered_when_one_database_becomes_several),
	    RING_TEST(who_was_left_alone_writes_nothing_once_keys_move),
	    RING_TEST(a_move_waits_for_a_part_that_is_away),
	    RING_TEST(the_end_of_a_move_waits_until_all_parts_can_take_it),
	    RING_TEST(a_part_that_does_not_take_the_ring_is_told_of),
	};
	return cmocka_run_group_tests_name("store_ring_begin", tests, NULL, NULL);
}
