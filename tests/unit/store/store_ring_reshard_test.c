/* Keys that move between the parts of a store. With others at work: store_ring_move_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/ring_kit.h"
#include "lib/until.h"

static void from_two_to_three_a_third_moves(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	struct reshard dry = {.dry_run = true}, r;
	assert_int_equal(store_reshard(s, &dry, &ring.e), 0);
	assert_int_equal(ring_kit_links_in(2), 0);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	print_message("%llu of %d keys moved\n", (unsigned long long)r.moved, RING_LINKS);
	assert_in_range(r.moved, RING_LINKS * 26 / 100, RING_LINKS * 41 / 100);
	assert_int_equal(dry.moved, r.moved);
	assert_int_equal(ring_kit_links_in(2), r.moved); /* none moved between the old ones */
	assert_int_equal(r.flow_count, 2);
	ring_kit_links_check(s, 1, RING_LINKS);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_true(r.is_settled);
	assert_int_equal(r.moved, 0);
	struct store_list page = {.limit = 2 * RING_LINKS, .arena = &ring.arena};
	assert_int_equal(store_list(s, &page), 0);
	assert_int_equal(page.count, RING_LINKS);
	ring_kit_close(s);
}

static void everything_under_a_key_moves_with_it(void **state)
{
	(void)state;
	enum { NAMES = 60 };
	struct store *s = ring_kit_first(2);
	struct store_write user = kit_user(&ring.arena, "a@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(s, &user), 0);
	for (uint64_t i = 0; i < NAMES; i++) {
		const char *name = arena_printf(&ring.arena, "name%llu", (unsigned long long)i).ptr;
		struct store_write w = kit_alias(&ring.arena, 1 + i, name);
		w.link.is_private = true;
		w.idempotency_key = arena_str(&ring.arena, str_of(name));
		assert_int_equal(kit_apply(s, &w), 0);
		struct store_write permit = {
		    .kind = STORE_PERMIT, .arena = &ring.arena, .ref = w.ref, .user.id = user.user.id};
		assert_int_equal(kit_apply(s, &permit), 0);
		struct store_write rests = kit_alias(
		    &ring.arena, 1000 + i, arena_printf(&ring.arena, "rest%llu", (unsigned long long)i).ptr);
		rests.link.expires_ms = 5;
		assert_int_equal(kit_apply(s, &rests), 0);
		struct store_write reap = {.kind = STORE_LINK_REAP,
		                           .arena = &ring.arena,
		                           .now_ms = KIT_NOW_MS,
		                           .rest_ms = 1ULL << 40,
		                           .ref = rests.ref};
		assert_int_equal(kit_apply(s, &reap), 0);
	}
	ring_kit_close(s);
	s = ring_kit_first(3);
	struct reshard r;
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_true(r.moved > 0);
	for (uint64_t i = 0; i < NAMES; i++) {
		const char *name = arena_printf(&ring.arena, "name%llu", (unsigned long long)i).ptr;
		struct store_lookup read = {
		    .ref = {.key = str_of(name)}, .user = user.user.id, .arena = &ring.arena};
		assert_int_equal(store_lookup(s, &read, 1), 0);
		assert_int_equal(read.result, 0);
		assert_true(read.permitted);
		struct store_write again = kit_alias(&ring.arena, 2000 + i, name);
		again.idempotency_key = str_of(name);
		assert_int_equal(kit_apply(s, &again), 0);
		assert_true(again.replayed);
		struct store_write rests = kit_alias(
		    &ring.arena, 3000 + i, arena_printf(&ring.arena, "rest%llu", (unsigned long long)i).ptr);
		rests.link.owner = 8;
		assert_int_equal(kit_apply(s, &rests), ERR_CONFLICT);
	}
	ring_kit_close(s);
}

static void a_part_leaves_when_it_is_empty_and_the_home_never(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(3);
	ring_kit_links_make(s, 1, RING_LINKS);
	struct reshard r = {.leave = &ring_kit_addresses[0], .leave_count = 1};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_INVALID);
	ring_kit_assert_said("home");
	r = (struct reshard){.leave = &ring_kit_addresses[1], .leave_count = 1};
	assert_int_equal(store_reshard(s, &r, &ring.e), 0);
	assert_int_equal(ring_kit_links_in(1), 0);
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
	assert_int_equal(ring_kit_over((size_t[]){0, 2}, 2, &s), 0); /* its URL is not needed any more */
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
}

static bool stop_after(void *ctx, const struct reshard_progress *progress)
{
	int *left = ctx;
	return progress->walk == 0 || --*left > 0; /* nothing moves yet */
}

static void a_move_that_was_stopped_goes_on(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	struct store *other = ring_kit_first(3); /* a server that goes on in between */
	int result = ERR_BUSY;
	uint64_t made = RING_LINKS, moved = 0;
	for (int steps = 1; result == ERR_BUSY; steps += 2) {
		int left = steps;
		atomic_store(&ring.proxies[steps % 4 / 2].forgets_moves, steps % 3 == 0);
		struct reshard r = {.progress = stop_after, .ctx = &left};
		result = store_reshard(s, &r, &ring.e);
		if (result == ERR_UNAVAILABLE)
			result = ERR_BUSY; /* the mover "died" */
		for (size_t i = 0; i < RING_PARTS; i++)
			atomic_store(&ring.proxies[i].forgets_moves, false);
		moved += r.moved;
		ring_kit_links_make(other, made + 1, 10);
		made += 10;
		ring_kit_links_check(other, 1, made);
		struct store_write gone = {.kind = STORE_LINK_DELETE,
		                           .arena = &ring.arena,
		                           .ref = kit_generated(&ring.arena, made).ref};
		assert_int_equal(kit_apply(other, &gone), 0);
		assert_int_equal(kit_find_generated(other, &ring.arena, made), ERR_NOT_FOUND);
		made--;
	}
	assert_int_equal(result, 0);
	assert_true(moved > 0);
	ring_kit_links_check(s, 1, made);
	ring_kit_links_check(other, 1, made);
	assert_int_equal(ring_kit_links_in(0) + ring_kit_links_in(1) + ring_kit_links_in(2), made);
	ring_kit_close(s);
	ring_kit_close(other);
}

static void what_was_left_in_both_parts_goes_with_its_deletion(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 300);
	ring_kit_close(s);
	s = ring_kit_first(3);
	atomic_store(&ring.proxies[0].forgets_moves, true);
	atomic_store(&ring.proxies[1].forgets_moves, true);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_UNAVAILABLE);
	atomic_store(&ring.proxies[0].forgets_moves, false);
	atomic_store(&ring.proxies[1].forgets_moves, false);
	assert_true(ring_kit_links_in(0) + ring_kit_links_in(1) + ring_kit_links_in(2) >
	            300); /* the test is about something */
	for (uint64_t id = 1; id <= 300; id++) {
		struct store_write gone = {.kind = id % 2 ? STORE_LINK_DELETE : STORE_LINK_UPDATE,
		                           .fields = LINK_TITLE,
		                           .link.title = STR("new"),
		                           .arena = &ring.arena,
		                           .ref = kit_generated(&ring.arena, id).ref};
		assert_int_equal(kit_apply(s, &gone), 0);
	}
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_true(r.was_begun);
	for (uint64_t id = 1; id <= 300; id++) {
		struct link_record link;
		struct store_write name = kit_generated(&ring.arena, id);
		assert_int_equal(kit_find(s, &ring.arena, id, name.ref.key.ptr, &link),
		                 id % 2 ? ERR_NOT_FOUND : 0);
		if (id % 2 == 0)
			assert_true(str_eq(link.title, STR("new")));
	}
	ring_kit_close(s);
}

static void a_part_that_is_away_holds_a_move_up_and_no_more(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	atomic_store(&ring.proxies[2].is_away, true);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("c:3/x");
	ring_kit_links_check(s, 1, RING_LINKS);
	atomic_store(&ring.proxies[2].is_away, false);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
}

static void a_database_with_links_of_its_own_cannot_join(void **state)
{
	(void)state;
	ring_kit_links_make(ring.inner[2], 5000, 1);
	ring_kit_close(ring_kit_first(2));
	struct store *s = ring_kit_first(3);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_INVALID);
	ring_kit_assert_said("c:3/x");
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	assert_false(status.moves);
	ring_kit_close(s);
}

static void another_target_while_keys_move_is_refused(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	int left = 2;
	struct reshard r = {.progress = stop_after, .ctx = &left};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_BUSY);
	struct reshard other = {.leave = &ring_kit_addresses[1], .leave_count = 1};
	assert_int_equal(store_reshard(s, &other, &ring.e), ERR_INVALID);
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	assert_true(status.moves);
	assert_int_equal(status.part_count, 3);
	assert_true(status.parts[0].is_home && status.parts[0].is_member && status.parts[0].is_target);
	assert_true(!status.parts[2].is_member && status.parts[2].is_target && status.parts[2].answers);
	ring_kit_close(s);
}

/* All three have answered the one who came second when the one who came first goes on and finishes. */
static struct store *first_mover;
static atomic_int asked, answered;
static int first_result;

static void first_finishes(void)
{
	if (atomic_load(&asked) >= RING_PARTS)
		return;
	if (atomic_fetch_add(&asked, 1) + 1 == RING_PARTS) {
		struct reshard r = {.leave = NULL};
		first_result = store_reshard(first_mover, &r, NULL);
		atomic_store(&answered, 1);
	}
	UNTIL(atomic_load(&answered));
}

static void two_who_move_at_once_do_no_harm(void **state)
{
	(void)state;
	struct store_proxy others[RING_PARTS];
	struct store_ring_part parts[RING_PARTS];
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, RING_LINKS);
	ring_kit_close(s);
	for (size_t i = 0; i < RING_PARTS; i++) {
		store_proxy_init(&others[i], ring.inner[i]);
		parts[i] = (struct store_ring_part){.store = &others[i].base,
		                                    .address = ring_kit_addresses[i]};
	}
	assert_int_equal(store_ring_open(parts, RING_PARTS, true, &first_mover, &ring.e), 0);
	int left = 2;
	struct reshard r = {.progress = stop_after, .ctx = &left};
	assert_int_equal(store_reshard(first_mover, &r, &ring.e), ERR_BUSY);
	s = ring_kit_first(3);
	atomic_store(&asked, 0);
	atomic_store(&answered, 0);
	for (size_t i = 0; i < RING_PARTS; i++)
		atomic_store(&ring.proxies[i].ring_was_asked, first_finishes);
	struct reshard second = {.leave = NULL};
	assert_int_equal(store_reshard(s, &second, &ring.e), 0);
	for (size_t i = 0; i < RING_PARTS; i++)
		atomic_store(&ring.proxies[i].ring_was_asked, NULL);
	assert_int_equal(first_result, 0);
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	assert_false(status.moves);
	for (size_t i = 0; i < RING_PARTS; i++)
		assert_true(status.parts[i].is_member);
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
	store_free(first_mover);
}

static void a_move_does_not_begin_while_a_part_cannot_take_it(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	atomic_store(&ring.proxies[1].refuses_rings, true);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_BUSY);
	ring_kit_assert_said("b:2/x");
	ring_kit_assert_said("nothing was changed");
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &ring.arena, &status, &ring.e), 0);
	assert_false(status.moves);
	ring_kit_links_check(s, 1, RING_LINKS);
	atomic_store(&ring.proxies[1].refuses_rings, false);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	ring_kit_close(s);
}

static unsigned long fresh_sum(void)
{
	unsigned long sum = 0;
	for (size_t i = 0; i < RING_PARTS; i++)
		sum += atomic_load(&ring.proxies[i].fresh);
	return sum;
}

static void what_moves_is_not_read_from_who_lags_behind(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, RING_LINKS);
	ring_kit_links_check(s, 1, RING_LINKS);
	assert_int_equal(fresh_sum(), 0);
	ring_kit_close(s);
	s = ring_kit_first(3);
	struct reshard plan = {.dry_run = true};
	assert_int_equal(store_reshard(s, &plan, &ring.e), 0);
	int left = 1;
	struct reshard r = {.progress = stop_after, .ctx = &left};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_BUSY);
	ring_kit_links_check(s, 1, RING_LINKS);
	assert_int_equal(fresh_sum(), plan.moved);
	ring_kit_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    RING_TEST(from_two_to_three_a_third_moves),
	    RING_TEST(everything_under_a_key_moves_with_it),
	    RING_TEST(a_part_leaves_when_it_is_empty_and_the_home_never),
	    RING_TEST(a_move_that_was_stopped_goes_on),
	    RING_TEST(what_was_left_in_both_parts_goes_with_its_deletion),
	    RING_TEST(a_part_that_is_away_holds_a_move_up_and_no_more),
	    RING_TEST(a_database_with_links_of_its_own_cannot_join),
	    RING_TEST(another_target_while_keys_move_is_refused),
	    RING_TEST(two_who_move_at_once_do_no_harm),
	    RING_TEST(a_move_does_not_begin_while_a_part_cannot_take_it),
	    RING_TEST(what_moves_is_not_read_from_who_lags_behind),
	};
	return cmocka_run_group_tests_name("store_ring_reshard", tests, NULL, NULL);
}
