/* A store of several parts of which one was restored from a backup, or is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/ring_kit.h"
#include "lib/until.h"

enum { FEW_LINKS = 300 };

/* A copy that a part brought back, of a link that is another part's. */
static void stray_make(size_t part, uint64_t id)
{
	struct store_write w = kit_generated(&ring.arena, id);
	w.link.url = STR("https://example.com/old");
	assert_int_equal(kit_apply(ring.inner[part], &w), 0);
}

static void link_delete(struct store *s, uint64_t id)
{
	struct store_write w = {.kind = STORE_LINK_DELETE,
	                        .arena = &ring.arena,
	                        .ref = kit_generated(&ring.arena, id).ref,
	                        .now_ms = KIT_NOW_MS};
	assert_int_equal(kit_apply(s, &w), 0);
}

static void assert_is_new(struct store *s, uint64_t id)
{
	struct link_record link;
	struct str key = kit_generated(&ring.arena, id).ref.key;
	assert_int_equal(kit_find(s, &ring.arena, id, key.ptr, &link), 0);
	assert_false(str_eq(link.url, STR("https://example.com/old")));
}

/* All links from the newest on, page by page; each has its own URL. */
static size_t links_listed(struct store *s, uint64_t not_id)
{
	struct str cursor = STR_NULL;
	size_t sum = 0;
	do {
		struct store_list page = {.cursor = cursor, .limit = 7, .arena = &ring.arena};
		assert_int_equal(store_list(s, &page), 0);
		assert_true(page.count > 0);
		for (size_t i = 0; i < page.count; i++) {
			assert_int_not_equal(page.links[i].id, not_id);
			assert_false(str_eq(page.links[i].url, STR("https://example.com/old")));
			assert_null(page.links[i].key.ptr);
		}
		sum += page.count;
		cursor = page.next;
	} while (cursor.ptr);
	return sum;
}

static struct store *three(void)
{
	struct store *s = ring_kit_first(3);
	ring_kit_links_make(s, 1, FEW_LINKS);
	return s;
}

static void what_a_part_brings_back_is_neither_listed_nor_kept(void **state)
{
	(void)state;
	struct store *s = three();
	uint64_t changed = ring_kit_id_in(s, 2, 1), deleted = ring_kit_id_in(s, 2, changed + 1);
	link_delete(s, deleted);
	stray_make(1, changed);
	stray_make(1, deleted);
	for (uint64_t id = FEW_LINKS + 1; id < FEW_LINKS + 20;
	     id++) /* newest of all: pages of strays alone */
		stray_make(1, ring_kit_id_in(s, 2, id * 1000));
	assert_int_equal(links_listed(s, deleted), FEW_LINKS - 1);
	struct reshard r = {.dry_run = true};
	assert_int_equal(store_reshard(s, &r, &ring.e), 0);
	assert_int_equal(r.strays, 21);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_int_equal(r.strays, 21);
	assert_true(r.is_settled);
	assert_int_equal(ring_kit_links_in(0) + ring_kit_links_in(1) + ring_kit_links_in(2), FEW_LINKS - 1);
	ring_kit_close(s);
}

static void what_a_part_brings_back_does_not_win_when_keys_move(void **state)
{
	(void)state;
	struct store *s = three();
	uint64_t changed = ring_kit_id_in(s, 2, 1), deleted = ring_kit_id_in(s, 2, changed + 1);
	link_delete(s, deleted);
	for (size_t part = 0; part < 2; part++) {
		stray_make(part, changed);
		stray_make(part, deleted);
	}
	struct reshard r = {.leave = &ring_kit_addresses[2], .leave_count = 1};
	assert_int_equal(store_reshard(s, &r, &ring.e), 0);
	assert_is_new(s, changed);
	assert_int_equal(kit_find_generated(s, &ring.arena, deleted), ERR_NOT_FOUND);
	assert_int_equal(ring_kit_links_in(0) + ring_kit_links_in(1), FEW_LINKS - 1);
	ring_kit_close(s);
}

/* Stops a move that has begun, before anything has moved. */
static bool stop_at_once(void *ctx, const struct reshard_progress *progress)
{
	(void)ctx;
	return progress->walk == 0;
}

/* The first key that is to move to the third part, when keys have begun to. */
static uint64_t moving_begin(struct store *s)
{
	struct reshard r = {.progress = stop_at_once};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_BUSY);
	unsigned long before = atomic_load(&ring.proxies[2].lookups);
	for (uint64_t id = 10ULL * RING_LINKS;; id++) { /* one that is not there is asked for in both */
		(void)kit_find_generated(s, &ring.arena, id);
		if (atomic_load(&ring.proxies[2].lookups) > before)
			return id;
	}
}

static void what_lies_where_a_key_moves_to_gives_way(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	uint64_t id = moving_begin(s);
	struct store_write w = kit_generated(&ring.arena, id);
	struct reshard r;
	for (size_t part = 0; part < 2; part++) { /* one of them is where it lies */
		w = kit_generated(&ring.arena, id);
		assert_int_equal(kit_apply(ring.inner[part], &w), 0);
	}
	stray_make(2, id);
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_is_new(s, id);
	ring_kit_close(s);
}

static void an_id_that_is_there_twice_stops_a_move_and_nothing_is_lost(void **state)
{
	(void)state;
	struct store *s = ring_kit_grown();
	uint64_t id = moving_begin(s);
	for (size_t part = 0; part < 2; part++) {
		struct store_write w = kit_generated(&ring.arena, id);
		assert_int_equal(kit_apply(ring.inner[part], &w), 0);
	}
	struct store_write other = kit_alias(&ring.arena, id, "other");
	assert_int_equal(kit_apply(ring.inner[2], &other), 0);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &ring.e), ERR_CORRUPT);
	ring_kit_assert_said("the id of another");
	assert_int_equal(kit_find_generated(s, &ring.arena, id), 0);
	ring_kit_close(s);
}

static void ids_go_on_behind_the_highest_of_all_parts(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	uint64_t there = ring_kit_id_in(s, 1, 500), first;
	ring_kit_links_make(s, there, 1); /* the home's counter does not know of it */
	ring_kit_close(s);
	s = ring_kit_first(2);
	assert_int_equal(store_lease(s, STORE_LINK_COUNTER, 1, &first), 0);
	assert_int_equal(first, there + 1);
	ring_kit_close(s);
}

/* --- lost parts --- */

/* Another database stands in its place. */
static void part_lose(size_t i)
{
	store_free(ring.inner[i]);
	assert_int_equal(store_memory_open(&ring.inner[i], NULL), 0);
	store_proxy_init(&ring.proxies[i], ring.inner[i]);
}

static struct store *looker(void)
{
	struct store_ring_part parts[2];
	struct store *s = NULL;
	for (size_t i = 0; i < 2; i++)
		parts[i] = (struct store_ring_part){.store = &ring.proxies[i].base,
		                                    .address = ring_kit_addresses[i]};
	assert_int_equal(store_ring_open(parts, 2, false, &s, &ring.e), 0);
	return s;
}

static void a_part_that_is_lost_can_be_given_up(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, FEW_LINKS);
	size_t kept = ring_kit_links_in(0);
	uint64_t here = ring_kit_id_in(s, 0, 1), there = ring_kit_id_in(s, 1, 1);
	ring_kit_close(s);
	part_lose(1);
	s = ring_kit_first(2); /* servers start */
	assert_int_equal(kit_find_generated(s, &ring.arena, here), 0);
	assert_int_equal(kit_find_generated(s, &ring.arena, there), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(s, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("b:2/x is not the one that was in the ring");
	struct store *tool = looker();
	struct ring_status status;
	assert_int_equal(store_ring_status(tool, &ring.arena, &status, &ring.e), 0);
	assert_true(status.parts[1].is_lost && status.parts[1].is_member && !status.parts[0].is_lost);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(tool, &r, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("--forget b:2/x");
	assert_int_equal(store_ring_forget(tool, ring_kit_addresses[1], false, &ring.e), ERR_INVALID);
	ring_kit_assert_said("--yes");
	assert_int_equal(store_ring_forget(tool, ring_kit_addresses[0], true, &ring.e), ERR_INVALID);
	assert_int_equal(store_ring_forget(tool, ring_kit_addresses[1], true, &ring.e), 0);
	UNTIL(kit_find_generated(s, &ring.arena, there) == ERR_NOT_FOUND);
	assert_int_equal(ring_kit_reshard(tool, &r), 0); /* what stands in its place joins */
	assert_true(r.moved > 0);
	assert_int_equal(ring_kit_links_in(0) + ring_kit_links_in(1), kept);
	assert_int_equal(kit_find_generated(s, &ring.arena, here), 0);
	assert_int_equal(store_ping(s, &ring.e), 0);
	assert_int_equal(store_ring_forget(tool, ring_kit_addresses[1], true, &ring.e), ERR_INVALID);
	ring_kit_assert_said("--leave");
	store_free(tool);
	ring_kit_close(s);
}

static void a_home_that_is_lost_is_shown_and_not_given_up(void **state)
{
	(void)state;
	ring_kit_close(ring_kit_first(2));
	part_lose(0);
	struct store *s = NULL;
	assert_int_equal(ring_kit_over((size_t[]){0, 1}, 2, &s), ERR_UNAVAILABLE);
	ring_kit_assert_said("home");
	struct store *tool = looker();
	struct ring_status status;
	assert_int_equal(store_ring_status(tool, &ring.arena, &status, &ring.e), 0);
	assert_true(status.parts[0].is_lost && status.parts[0].is_home);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(tool, &r, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("a:1/x");
	assert_int_equal(store_ring_forget(tool, ring_kit_addresses[0], true, &ring.e), ERR_INVALID);
	ring_kit_assert_said("home");
	assert_int_equal(store_ring_forget(tool, ring_kit_addresses[1], true, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("home");
	store_free(tool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    RING_TEST(what_a_part_brings_back_is_neither_listed_nor_kept),
	    RING_TEST(what_a_part_brings_back_does_not_win_when_keys_move),
	    RING_TEST(what_lies_where_a_key_moves_to_gives_way),
	    RING_TEST(an_id_that_is_there_twice_stops_a_move_and_nothing_is_lost),
	    RING_TEST(ids_go_on_behind_the_highest_of_all_parts),
	    RING_TEST(a_part_that_is_lost_can_be_given_up),
	    RING_TEST(a_home_that_is_lost_is_shown_and_not_given_up),
	};
	return cmocka_run_group_tests_name("store_ring_restore", tests, NULL, NULL);
}
