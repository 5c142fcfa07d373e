/* A store of several parts: who is in it, and what all of them are asked together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/ring_kit.h"

static void fresh_parts_are_all_in_the_ring(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, RING_LINKS);
	ring_kit_links_check(s, 1, RING_LINKS);
	assert_in_range(ring_kit_links_in(0), RING_LINKS * 40 / 100, RING_LINKS * 60 / 100);
	assert_int_equal(ring_kit_links_in(0) + ring_kit_links_in(1), RING_LINKS);
	ring_kit_close(s);
	s = ring_kit_first(2);
	ring_kit_links_check(s, 1, RING_LINKS);
	ring_kit_close(s);
}

static void the_order_of_urls_does_not_matter_later(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	struct store_write user = kit_user(&ring.arena, "a@example.com", ROLE_ADMIN);
	assert_int_equal(kit_apply(s, &user), 0);
	ring_kit_close(s);
	assert_int_equal(ring_kit_over((size_t[]){1, 0}, 2, &s), 0);
	ring_kit_links_check(s, 1, 100);
	struct user_record found;
	assert_int_equal(store_user(s, user.user.id, STR_NULL, &ring.arena, &found), 0);
	ring_kit_close(s);
}

static void a_new_part_waits_until_it_is_taken_in(void **state)
{
	(void)state;
	ring_kit_close(ring_kit_first(2));
	struct store *s = ring_kit_first(3);
	ring_kit_links_make(s, 1, RING_LINKS);
	assert_int_equal(ring_kit_links_in(2), 0);
	ring_kit_close(s);
}

static void a_store_of_its_own_becomes_the_ring_and_grows(void **state)
{
	(void)state;
	ring_kit_links_make(ring.inner[1], 1, RING_LINKS);
	struct store_write user = kit_user(&ring.arena, "a@example.com", ROLE_ADMIN);
	assert_int_equal(kit_apply(ring.inner[1], &user), 0);
	struct store *s = ring_kit_first(2);
	ring_kit_links_check(s, 1, RING_LINKS);
	assert_int_equal(ring_kit_links_in(0), 0);
	struct reshard r;
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_in_range(r.moved, RING_LINKS * 40 / 100, RING_LINKS * 60 / 100);
	assert_int_equal(ring_kit_links_in(0), r.moved);
	ring_kit_links_check(s, 1, RING_LINKS);
	struct user_record found;
	assert_int_equal(store_user(s, user.user.id, STR_NULL, &ring.arena, &found), 0);
	ring_kit_close(s);
}

static void two_stores_of_their_own_are_no_ring(void **state)
{
	(void)state;
	ring_kit_links_make(ring.inner[0], 1, 1);
	ring_kit_links_make(ring.inner[1], 2, 1);
	struct store *s = NULL;
	assert_int_equal(ring_kit_over((size_t[]){0, 1}, 2, &s), ERR_INVALID);
	ring_kit_assert_said("a:1/x");
	ring_kit_assert_said("b:2/x");
	assert_null(s);
}

static void a_member_without_a_url_is_named(void **state)
{
	(void)state;
	ring_kit_close(ring_kit_first(2));
	struct store *s = NULL;
	assert_int_equal(ring_kit_over((size_t[]){0, 2}, 2, &s), ERR_INVALID);
	ring_kit_assert_said("b:2/x");
	ring_kit_assert_said("store.url");
}

static void one_database_named_twice_is_refused(void **state)
{
	(void)state;
	struct store *s = NULL;
	assert_int_equal(ring_kit_over((size_t[]){0, 0}, 2, &s), ERR_INVALID);
	ring_kit_assert_said("twice");
}

static void a_ring_is_made_only_on_request(void **state)
{
	(void)state;
	const struct store_ring_part part = {.store = &ring.proxies[0].base,
	                                     .address = ring_kit_addresses[0]};
	struct store *s = NULL;
	assert_int_equal(store_ring_open(&part, 1, false, &s, &ring.e), ERR_NOT_FOUND);
	ring_kit_assert_said("restart all servers");
	assert_int_equal(store_alone_open(ring.inner[0], &s, &ring.e), 0);
	ring_kit_links_make(s, 1, 10);
	ring_kit_links_check(s, 1, 10);
	ring.inner[0] = s; /* has it now */
	ring_kit_close(ring_kit_first(2));
}

/* A server that was left with one URL while the others grew to three. */
static void a_store_that_is_not_alone_any_more_fails_and_says_so(void **state)
{
	(void)state;
	struct store *alone = NULL, *late = NULL;
	assert_int_equal(store_alone_open(&ring.proxies[0].base, &alone, &ring.e), 0);
	ring_kit_links_make(alone, 1, RING_LINKS);
	struct store *s = ring_kit_first(3);
	ring_kit_links_check(alone, 1, RING_LINKS); /* the only member still */
	struct store_write user = kit_user(&ring.arena, "listed@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(alone, &user), 0);
	assert_int_equal(store_ping(alone, &ring.e), 0); /* it looks, and knows the ring of one */
	ring_kit_links_check(alone, 1, RING_LINKS);
	struct reshard r;
	assert_int_equal(ring_kit_reshard(s, &r), 0);
	assert_true(r.moved > 0);
	struct store_write w = kit_generated(&ring.arena, RING_LINKS + 1);
	assert_int_equal(store_apply(alone, &w, 1), ERR_UNAVAILABLE);
	struct store_lookup read = ring_kit_lookup_of(1);
	assert_int_equal(store_lookup(alone, &read, 1), ERR_UNAVAILABLE);
	struct store_list page = {.limit = 5, .arena = &ring.arena};
	assert_int_equal(store_list(alone, &page), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(alone, &ring.e), ERR_UNAVAILABLE);
	ring_kit_assert_said("c:3/x");
	assert_int_equal(store_alone_open(&ring.proxies[0].base, &late, &ring.e), ERR_INVALID);
	ring_kit_assert_said("c:3/x");
	assert_int_equal(kit_find_generated(s, &ring.arena, RING_LINKS + 1), ERR_NOT_FOUND);
	store_free(alone);
	ring_kit_close(s);
}

static void two_that_start_at_once_agree(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2), *t = ring_kit_first(2);
	ring_kit_links_make(s, 1, 100);
	ring_kit_links_check(t, 1, 100);
	ring_kit_close(s);
	ring_kit_close(t);
}

static void a_list_that_the_home_cannot_confirm_is_none(void **state)
{
	(void)state;
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, 10);
	struct store_list page = {.limit = 5, .arena = &ring.arena};
	assert_int_equal(store_list(s, &page), 0);
	atomic_store(&ring.proxies[0].loses_lookups, true);
	assert_int_equal(store_list(s, &page), ERR_UNAVAILABLE);
	atomic_store(&ring.proxies[0].loses_lookups, false);
	ring_kit_close(s);
}

/* Servers lease ids in advance, so a larger id may be the older link. */
static void links_of_a_tag_come_newest_first_from_all_parts(void **state)
{
	(void)state;
	enum { TAGGED = 40 };
	uint64_t ids[TAGGED];
	size_t count;
	struct store *s = ring_kit_first(2);
	for (uint64_t id = 1; id <= TAGGED; id++) {
		struct store_write w = kit_generated(&ring.arena, id);
		w.link.tags = STR("[\"ad\"]");
		w.link.created_ms = KIT_NOW_MS + TAGGED - (int64_t)id;
		assert_int_equal(kit_apply(s, &w), 0);
	}
	assert_true(ring_kit_links_in(0) > 0 && ring_kit_links_in(1) > 0);
	assert_int_equal(store_tagged(s, STR("ad"), TAGGED, ids, &count), 0);
	assert_int_equal(count, TAGGED);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(ids[i], i + 1);
	ring_kit_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    RING_TEST(fresh_parts_are_all_in_the_ring),
	    RING_TEST(the_order_of_urls_does_not_matter_later),
	    RING_TEST(a_new_part_waits_until_it_is_taken_in),
	    RING_TEST(a_store_of_its_own_becomes_the_ring_and_grows),
	    RING_TEST(two_stores_of_their_own_are_no_ring),
	    RING_TEST(a_member_without_a_url_is_named),
	    RING_TEST(one_database_named_twice_is_refused),
	    RING_TEST(a_ring_is_made_only_on_request),
	    RING_TEST(a_store_that_is_not_alone_any_more_fails_and_says_so),
	    RING_TEST(two_that_start_at_once_agree),
	    RING_TEST(a_list_that_the_home_cannot_confirm_is_none),
	    RING_TEST(links_of_a_tag_come_newest_first_from_all_parts),
	};
	return cmocka_run_group_tests_name("store_ring", tests, NULL, NULL);
}
