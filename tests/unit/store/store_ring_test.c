/* A store of several parts: who is in it, what happens when one is away, and keys that move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/store_kit.h"
#include "lib/store_proxy.h"
#include "store/backends.h"
#include "store/reshard.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PARTS = 3, LINKS = 3000 };

static struct store *inner[PARTS];
static struct store_proxy proxies[PARTS];
static const struct str addresses[PARTS] = {STR("a:1/x"), STR("b:2/x"), STR("c:3/x")};
static struct arena arena;
static struct err e;

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < PARTS; i++) {
		if (store_memory_open(&inner[i], NULL) != 0)
			return -1;
		store_proxy_init(&proxies[i], inner[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < PARTS; i++)
		store_free(inner[i]);
	arena_release(&arena);
	return 0;
}

static int open_over(const size_t *which, size_t n, struct store **ret)
{
	struct store_ring_part parts[PARTS];
	for (size_t i = 0; i < n; i++)
		parts[i] = (struct store_ring_part){.store = &proxies[which[i]].base,
		                                    .address = addresses[which[i]]};
	e.text[0] = '\0';
	return store_ring_open(parts, n, true, ret, &e);
}

/* Over the first n. */
static struct store *ring_over_first(size_t n)
{
	static const size_t first[PARTS] = {0, 1, 2};
	struct store *s = NULL;
	int r = open_over(first, n, &s);
	if (r != 0)
		print_error("%s\n", e.text);
	assert_int_equal(r, 0);
	return s;
}

static void assert_text_has(const char *text, const char *word)
{
	if (!strstr(text, word))
		print_error("no '%s' in: %s\n", word, text);
	assert_non_null(strstr(text, word));
}

static void links_make(struct store *s, uint64_t first, uint64_t count)
{
	struct store_write *writes = calloc(count, sizeof(*writes));
	for (uint64_t i = 0; i < count; i++)
		writes[i] = kit_generated(&arena, first + i);
	assert_int_equal(store_apply(s, writes, count), 0);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(writes[i].result, 0);
	free(writes);
}

static void links_check(struct store *s, uint64_t first, uint64_t count)
{
	struct store_lookup *reads = calloc(count, sizeof(*reads));
	for (uint64_t i = 0; i < count; i++)
		reads[i] = (struct store_lookup){.ref = kit_generated(&arena, first + i).ref,
		                                 .arena = &arena};
	assert_int_equal(store_lookup(s, reads, count), 0);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(reads[i].result, 0);
		assert_int_equal(reads[i].link.id, first + i);
	}
	free(reads);
}

static size_t links_in(size_t part)
{
	struct str keys[64];
	char after[KEY_BYTES_MAX];
	size_t count, sum = 0;
	struct str last = STR_NULL;
	do {
		struct arena here = {0};
		assert_int_equal(
		    inner[part]->ops->part->keys_after(inner[part], last, 64, &here, keys, &count), 0);
		if (count > 0) {
			memcpy(after, keys[count - 1].ptr, keys[count - 1].len);
			last = str_n(after, keys[count - 1].len);
		}
		sum += count;
		arena_release(&here);
	} while (count > 0);
	return sum;
}

static int reshard(struct store *s, struct reshard *ret)
{
	*ret = (struct reshard){.leave = NULL};
	int r = store_reshard(s, ret, &e);
	if (r != 0)
		print_error("%s\n", e.text);
	return r;
}

/* --- who is in it --- */

static void fresh_parts_are_all_in_the_ring(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	links_check(s, 1, LINKS);
	assert_in_range(links_in(0), LINKS * 40 / 100, LINKS * 60 / 100);
	assert_int_equal(links_in(0) + links_in(1), LINKS);
	store_free(s);
	s = ring_over_first(2);
	links_check(s, 1, LINKS);
	store_free(s);
}

static void the_order_of_urls_does_not_matter_later(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 100);
	struct store_write user = kit_user(&arena, "a@example.com", ROLE_ADMIN);
	assert_int_equal(kit_apply(s, &user), 0);
	store_free(s);
	assert_int_equal(open_over((size_t[]){1, 0}, 2, &s), 0);
	links_check(s, 1, 100);
	struct user_record found;
	assert_int_equal(store_user(s, user.user.id, STR_NULL, &arena, &found), 0);
	store_free(s);
}

static void a_new_part_waits_until_it_is_taken_in(void **state)
{
	(void)state;
	store_free(ring_over_first(2));
	struct store *s = ring_over_first(3);
	links_make(s, 1, LINKS);
	assert_int_equal(links_in(2), 0);
	store_free(s);
}

static void a_store_of_its_own_becomes_the_ring_and_grows(void **state)
{
	(void)state;
	links_make(inner[1], 1, LINKS);
	struct store_write user = kit_user(&arena, "a@example.com", ROLE_ADMIN);
	assert_int_equal(kit_apply(inner[1], &user), 0);
	struct store *s = ring_over_first(2);
	links_check(s, 1, LINKS);
	assert_int_equal(links_in(0), 0);
	struct reshard r;
	assert_int_equal(reshard(s, &r), 0);
	assert_in_range(r.moved, LINKS * 40 / 100, LINKS * 60 / 100);
	assert_int_equal(links_in(0), r.moved);
	links_check(s, 1, LINKS);
	struct user_record found;
	assert_int_equal(store_user(s, user.user.id, STR_NULL, &arena, &found), 0);
	store_free(s);
}

static void two_stores_of_their_own_are_no_ring(void **state)
{
	(void)state;
	links_make(inner[0], 1, 1);
	links_make(inner[1], 2, 1);
	struct store *s = NULL;
	assert_int_equal(open_over((size_t[]){0, 1}, 2, &s), ERR_INVALID);
	assert_text_has(e.text, "a:1/x");
	assert_text_has(e.text, "b:2/x");
	assert_null(s);
}

static void a_member_without_a_url_is_named(void **state)
{
	(void)state;
	store_free(ring_over_first(2));
	struct store *s = NULL;
	assert_int_equal(open_over((size_t[]){0, 2}, 2, &s), ERR_INVALID);
	assert_text_has(e.text, "b:2/x");
	assert_text_has(e.text, "store.url");
}

static void one_database_named_twice_is_refused(void **state)
{
	(void)state;
	struct store *s = NULL;
	assert_int_equal(open_over((size_t[]){0, 0}, 2, &s), ERR_INVALID);
	assert_text_has(e.text, "twice");
}

static void a_ring_is_made_only_on_request(void **state)
{
	(void)state;
	const struct store_ring_part part = {.store = &proxies[0].base, .address = addresses[0]};
	struct store *s = NULL;
	assert_int_equal(store_ring_open(&part, 1, false, &s, &e), ERR_NOT_FOUND);
	assert_text_has(e.text, "restart all servers");
	assert_int_equal(store_alone_open(inner[0], &s, &e), 0);
	links_make(s, 1, 10);
	links_check(s, 1, 10);
	inner[0] = s; /* has it now */
	store_free(ring_over_first(2));
}

/* A server that was left with one URL while the others grew to three. */
static void a_store_that_is_not_alone_any_more_fails_and_says_so(void **state)
{
	(void)state;
	struct store *alone = NULL, *late = NULL;
	assert_int_equal(store_alone_open(&proxies[0].base, &alone, &e), 0);
	links_make(alone, 1, LINKS);
	struct store *s = ring_over_first(3);
	links_check(alone, 1, LINKS); /* the only member still */
	struct store_write user = kit_user(&arena, "listed@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(alone, &user), 0);
	assert_int_equal(store_ping(alone, &e), 0); /* it looks, and knows the ring of one */
	links_check(alone, 1, LINKS);
	struct reshard r;
	assert_int_equal(reshard(s, &r), 0);
	assert_true(r.moved > 0);
	struct store_write w = kit_generated(&arena, LINKS + 1);
	assert_int_equal(store_apply(alone, &w, 1), ERR_UNAVAILABLE);
	struct store_lookup read = {.ref = kit_generated(&arena, 1).ref, .arena = &arena};
	assert_int_equal(store_lookup(alone, &read, 1), ERR_UNAVAILABLE);
	struct store_list page = {.limit = 5, .arena = &arena};
	assert_int_equal(store_list(alone, &page), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(alone, &e), ERR_UNAVAILABLE);
	assert_text_has(e.text, "c:3/x");
	assert_int_equal(store_alone_open(&proxies[0].base, &late, &e), ERR_INVALID);
	assert_text_has(e.text, "c:3/x");
	assert_int_equal(kit_find_generated(s, &arena, LINKS + 1), ERR_NOT_FOUND);
	store_free(alone);
	store_free(s);
}

static void two_that_start_at_once_agree(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2), *t = ring_over_first(2);
	links_make(s, 1, 100);
	links_check(t, 1, 100);
	store_free(s);
	store_free(t);
}

/* --- parts that are away --- */

/* The first of the kit's keys that lies in the part. */
static uint64_t id_in(struct store *s, size_t part, uint64_t from)
{
	struct arena here = {0};
	for (uint64_t id = from;; id++) {
		unsigned long before = atomic_load(&proxies[part].lookups);
		(void)kit_find_generated(s, &here, id);
		if (atomic_load(&proxies[part].lookups) > before) {
			arena_release(&here);
			return id;
		}
	}
}

static void a_part_that_is_away_fails_only_what_is_its_own(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 100);
	uint64_t here = id_in(s, 0, 1), there = id_in(s, 1, 1);
	atomic_store(&proxies[1].is_away, true);
	struct store_lookup reads[] = {{.ref = kit_generated(&arena, here).ref, .arena = &arena},
	                               {.ref = kit_generated(&arena, there).ref, .arena = &arena}};
	assert_int_equal(store_lookup(s, reads, 2), 0);
	assert_int_equal(reads[0].result, 0);
	assert_int_equal(reads[1].result, ERR_UNAVAILABLE);
	uint64_t new_here = id_in(s, 0, 200), new_there = 200;
	while (kit_find_generated(s, &arena, new_there) != ERR_UNAVAILABLE)
		new_there++;
	struct store_write writes[] = {kit_generated(&arena, new_there), kit_generated(&arena, new_here)};
	assert_int_equal(store_apply(s, writes, 2), 0);
	assert_int_equal(writes[0].result, ERR_UNAVAILABLE);
	assert_int_equal(writes[1].result, 0);
	struct store_list page = {.limit = 5, .arena = &arena};
	assert_int_equal(store_list(s, &page), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(s, &e), ERR_UNAVAILABLE);
	assert_text_has(e.text, "b:2/x");
	atomic_store(&proxies[1].is_away, false);
	assert_int_equal(store_ping(s, &e), 0);
	assert_int_equal(kit_find_generated(s, &arena, there), 0);
	store_free(s);
}

static void what_a_part_says_may_be_old_is_passed_on(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 100);
	uint64_t here = id_in(s, 0, 1), there = id_in(s, 1, 1);
	atomic_store(&proxies[1].is_old, true);
	struct store_lookup reads[] = {{.ref = kit_generated(&arena, here).ref, .arena = &arena},
	                               {.ref = kit_generated(&arena, there).ref, .arena = &arena}};
	assert_int_equal(store_lookup(s, reads, 2), 0);
	assert_int_equal(reads[1].result, 0);
	assert_false(reads[0].old);
	assert_true(reads[1].old);
	store_free(s);
}

static void a_ring_starts_without_a_part_but_not_without_its_home(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 100);
	uint64_t here = id_in(s, 0, 1), there = id_in(s, 1, 1);
	store_free(s);
	atomic_store(&proxies[1].is_away, true);
	s = ring_over_first(2);
	assert_int_equal(kit_find_generated(s, &arena, here), 0);
	struct store_lookup read = {.ref = kit_generated(&arena, there).ref, .arena = &arena};
	assert_int_equal(store_lookup(s, &read, 1), 0);
	assert_int_equal(read.result, ERR_UNAVAILABLE);
	atomic_store(&proxies[1].is_away, false);
	links_check(s, 1, 100);
	store_free(s);
	atomic_store(&proxies[0].is_away, true);
	assert_int_equal(open_over((size_t[]){0, 1}, 2, &s), ERR_UNAVAILABLE);
	assert_text_has(e.text, "a:1/x");
}

/* What the composition root does for a database that does not answer yet. */
static int open_late(void *ctx, struct store **ret, struct err *why)
{
	struct store_proxy *p = &proxies[*(size_t *)ctx];
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
		parts[i] = (struct store_ring_part){.store = &proxies[i].base, .address = addresses[i]};
	size_t *number = malloc(sizeof(*number));
	*number = late;
	parts[late].store = NULL;
	parts[late].open = open_late;
	parts[late].ctx = number;
	e.text[0] = '\0';
	if (store_ring_open(parts, 2, true, &s, &e) != 0)
		free(number);
	return s;
}

static void a_part_that_could_not_be_opened_is_opened_later(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 100);
	uint64_t here = id_in(s, 0, 1), there = id_in(s, 1, 1);
	store_free(s);
	atomic_store(&proxies[1].is_away, true);
	s = ring_with_late(1);
	assert_non_null(s);
	assert_int_equal(kit_find_generated(s, &arena, here), 0);
	struct store_lookup read = {.ref = kit_generated(&arena, there).ref, .arena = &arena};
	assert_int_equal(store_lookup(s, &read, 1), 0);
	assert_int_equal(read.result, ERR_UNAVAILABLE);
	assert_int_equal(store_ping(s, &e), ERR_UNAVAILABLE);
	assert_text_has(e.text, "b:2/x");
	atomic_store(&proxies[1].is_away, false);
	for (int tries = 0; tries < 1000 && read.result != 0; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		assert_int_equal(store_lookup(s, &read, 1), 0);
	}
	assert_int_equal(read.result, 0);
	links_check(s, 1, 100);
	store_free(s);
	atomic_store(&proxies[0].is_away, true);
	assert_null(ring_with_late(0)); /* the home */
	assert_text_has(e.text, "a:1/x");
}

static void a_fresh_ring_needs_all_its_parts(void **state)
{
	(void)state;
	struct store *s = NULL;
	atomic_store(&proxies[1].is_away, true);
	assert_int_equal(open_over((size_t[]){0, 1}, 2, &s), ERR_UNAVAILABLE);
	assert_text_has(e.text, "b:2/x");
}

static void another_database_in_a_members_place_is_not_written_to(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 100);
	uint64_t there = id_in(s, 1, 1);
	proxies[1].inner = inner[2]; /* restored from nothing, say */
	struct store_lookup read = {.ref = kit_generated(&arena, there).ref, .arena = &arena};
	assert_int_equal(store_lookup(s, &read, 1), 0);
	assert_int_equal(read.result, ERR_UNAVAILABLE); /* and not: it is not there */
	assert_int_equal(store_ping(s, &e), ERR_UNAVAILABLE);
	assert_text_has(e.text, "b:2/x");
	uint64_t epoch;
	struct str text;
	assert_int_equal(inner[2]->ops->part->ring_get(inner[2], &arena, &epoch, &text), 0);
	assert_int_equal(epoch, 0);
	store_free(s);
}

static void a_lost_commit_is_uncertain_for_its_own_changes(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	uint64_t here = id_in(s, 0, 1), there = id_in(s, 1, 1);
	atomic_store(&proxies[1].loses_commits, true);
	struct store_write writes[] = {kit_generated(&arena, there), kit_generated(&arena, here)};
	assert_int_equal(store_apply(s, writes, 2), 0);
	assert_int_equal(writes[0].result, ERR_UNCERTAIN);
	assert_int_equal(writes[1].result, 0);
	store_free(s);
}

/* --- idempotency keys --- */

static struct store_write once(uint64_t id, uint8_t fingerprint)
{
	struct store_write w = kit_generated(&arena, id);
	w.idempotency_key = STR("once");
	memset(w.fingerprint, fingerprint, sizeof(w.fingerprint));
	return w;
}

static void a_retry_is_repeated_whatever_part_its_own_key_lies_in(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	struct store_write first = once(id_in(s, 0, 1), 1), again = once(id_in(s, 1, 1), 1);
	uint64_t id = first.link.id;
	atomic_store(&proxies[0].loses_commits, true);
	assert_int_equal(kit_apply(s, &first), ERR_UNCERTAIN);
	atomic_store(&proxies[0].loses_commits, false);
	assert_int_equal(kit_apply(s, &again), 0);
	assert_true(again.replayed);
	assert_int_equal(again.link.id, id);
	struct store_write other = once(id_in(s, 1, 50), 2);
	assert_int_equal(kit_apply(s, &other), ERR_INVALID);
	store_free(s);
}

static void a_retry_of_what_never_happened_is_made_under_the_first_key(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	struct store_write first = once(id_in(s, 1, 1), 1), again = once(id_in(s, 0, 1), 1);
	atomic_store(&proxies[1].is_away, true);
	assert_int_equal(kit_apply(s, &first), ERR_UNAVAILABLE);
	atomic_store(&proxies[1].is_away, false);
	assert_int_equal(kit_apply(s, &again), 0);
	assert_false(again.replayed);
	assert_int_equal(again.link.id, first.link.id);
	assert_true(str_eq(again.ref.key, first.ref.key));
	assert_int_equal(kit_find_generated(s, &arena, first.link.id), 0);
	store_free(s);
}

static void a_refused_create_leaves_its_idempotency_key_free(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	struct store_write taken = kit_alias(&arena, 90, "g5");
	assert_int_equal(kit_apply(s, &taken), 0);
	struct store_write meets = once(5, 1), next = once(6, 1);
	assert_int_equal(kit_apply(s, &meets), ERR_CONFLICT);
	assert_int_equal(kit_apply(s, &next), 0);
	assert_int_equal(next.link.id, 6);
	store_free(s);
}

static void an_alias_is_not_made_under_another_ones_name(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	struct store_write first = kit_alias(&arena, 1, "first"), second = kit_alias(&arena, 2, "second");
	first.idempotency_key = second.idempotency_key = STR("once");
	first.fingerprint[0] = 1;
	for (size_t i = 0; i < 2; i++)
		atomic_store(&proxies[i].pause_us_max, 0);
	/* Where "first" lies is away when it is made, so that only its route is left. */
	size_t part = 1;
	struct store_write probe = kit_alias(&arena, 3, "first");
	atomic_store(&proxies[1].is_away, true);
	if (kit_apply(s, &probe) == 0)
		part = 0;
	atomic_store(&proxies[1].is_away, false);
	if (part == 1) {
		atomic_store(&proxies[1].is_away, true);
		assert_int_equal(kit_apply(s, &first), ERR_UNAVAILABLE);
		atomic_store(&proxies[1].is_away, false);
	} else {
		assert_int_equal(kit_apply(s, &first), ERR_CONFLICT); /* the probe has it */
	}
	assert_int_equal(kit_apply(s, &second), 0);
	assert_int_equal(second.link.id, 2);
	assert_int_equal(kit_find(s, &arena, 0, "second", NULL), 0);
	store_free(s);
}

/* --- moving --- */

static void from_two_to_three_a_third_moves(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	store_free(s);
	s = ring_over_first(3);
	struct reshard dry = {.dry_run = true}, r;
	assert_int_equal(store_reshard(s, &dry, &e), 0);
	assert_int_equal(links_in(2), 0);
	assert_int_equal(reshard(s, &r), 0);
	print_message("%llu of %d keys moved\n", (unsigned long long)r.moved, LINKS);
	assert_in_range(r.moved, LINKS * 26 / 100, LINKS * 41 / 100);
	assert_int_equal(dry.moved, r.moved);
	assert_int_equal(links_in(2), r.moved); /* none moved between the old ones */
	assert_int_equal(r.flow_count, 2);
	links_check(s, 1, LINKS);
	assert_int_equal(reshard(s, &r), 0);
	assert_true(r.is_settled);
	assert_int_equal(r.moved, 0);
	struct store_list page = {.limit = 2 * LINKS, .arena = &arena};
	assert_int_equal(store_list(s, &page), 0);
	assert_int_equal(page.count, LINKS);
	store_free(s);
}

static void everything_under_a_key_moves_with_it(void **state)
{
	(void)state;
	enum { NAMES = 60 };
	struct store *s = ring_over_first(2);
	struct store_write user = kit_user(&arena, "a@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(s, &user), 0);
	for (uint64_t i = 0; i < NAMES; i++) {
		const char *name = arena_printf(&arena, "name%llu", (unsigned long long)i).ptr;
		struct store_write w = kit_alias(&arena, 1 + i, name);
		w.link.is_private = true;
		w.idempotency_key = arena_str(&arena, str_of(name));
		assert_int_equal(kit_apply(s, &w), 0);
		struct store_write permit = {
		    .kind = STORE_PERMIT, .arena = &arena, .ref = w.ref, .user.id = user.user.id};
		assert_int_equal(kit_apply(s, &permit), 0);
		struct store_write rests = kit_alias(
		    &arena, 1000 + i, arena_printf(&arena, "rest%llu", (unsigned long long)i).ptr);
		rests.link.expires_ms = 5;
		assert_int_equal(kit_apply(s, &rests), 0);
		struct store_write reap = {.kind = STORE_LINK_REAP,
		                           .arena = &arena,
		                           .now_ms = KIT_NOW_MS,
		                           .rest_ms = 1ULL << 40,
		                           .ref = {.id = 1000 + i}};
		assert_int_equal(kit_apply(s, &reap), 0);
	}
	store_free(s);
	s = ring_over_first(3);
	struct reshard r;
	assert_int_equal(reshard(s, &r), 0);
	assert_true(r.moved > 0);
	for (uint64_t i = 0; i < NAMES; i++) {
		const char *name = arena_printf(&arena, "name%llu", (unsigned long long)i).ptr;
		struct store_lookup read = {
		    .ref = {.key = str_of(name)}, .user = user.user.id, .arena = &arena};
		assert_int_equal(store_lookup(s, &read, 1), 0);
		assert_int_equal(read.result, 0);
		assert_true(read.permitted);
		struct store_write again = kit_alias(&arena, 2000 + i, name);
		again.idempotency_key = str_of(name);
		assert_int_equal(kit_apply(s, &again), 0);
		assert_true(again.replayed);
		struct store_write rests = kit_alias(
		    &arena, 3000 + i, arena_printf(&arena, "rest%llu", (unsigned long long)i).ptr);
		rests.link.owner = 8;
		assert_int_equal(kit_apply(s, &rests), ERR_CONFLICT);
	}
	store_free(s);
}

static void a_part_leaves_when_it_is_empty_and_the_home_never(void **state)
{
	(void)state;
	struct store *s = ring_over_first(3);
	links_make(s, 1, LINKS);
	struct reshard r = {.leave = &addresses[0], .leave_count = 1};
	assert_int_equal(store_reshard(s, &r, &e), ERR_INVALID);
	assert_text_has(e.text, "home");
	r = (struct reshard){.leave = &addresses[1], .leave_count = 1};
	assert_int_equal(store_reshard(s, &r, &e), 0);
	assert_int_equal(links_in(1), 0);
	links_check(s, 1, LINKS);
	store_free(s);
	assert_int_equal(open_over((size_t[]){0, 2}, 2, &s), 0); /* its URL is not needed any more */
	links_check(s, 1, LINKS);
	store_free(s);
}

static bool stop_after(void *ctx, const struct reshard_progress *progress)
{
	(void)progress;
	int *left = ctx;
	return --*left > 0;
}

static void a_move_that_was_stopped_goes_on(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	store_free(s);
	s = ring_over_first(3);
	struct store *other = ring_over_first(3); /* a server that goes on in between */
	int result = ERR_BUSY;
	uint64_t made = LINKS, moved = 0;
	for (int steps = 1; result == ERR_BUSY; steps += 2) {
		int left = steps;
		atomic_store(&proxies[steps % 4 / 2].forgets_moves, steps % 3 == 0);
		struct reshard r = {.progress = stop_after, .ctx = &left};
		result = store_reshard(s, &r, &e);
		if (result == ERR_UNAVAILABLE)
			result = ERR_BUSY; /* the mover "died" */
		for (size_t i = 0; i < PARTS; i++)
			atomic_store(&proxies[i].forgets_moves, false);
		moved += r.moved;
		links_make(other, made + 1, 10);
		made += 10;
		links_check(other, 1, made);
		struct store_write gone = {
		    .kind = STORE_LINK_DELETE, .arena = &arena, .ref = kit_generated(&arena, made).ref};
		assert_int_equal(kit_apply(other, &gone), 0);
		assert_int_equal(kit_find_generated(other, &arena, made), ERR_NOT_FOUND);
		made--;
	}
	assert_int_equal(result, 0);
	assert_true(moved > 0);
	links_check(s, 1, made);
	links_check(other, 1, made);
	assert_int_equal(links_in(0) + links_in(1) + links_in(2), made);
	store_free(s);
	store_free(other);
}

static void what_was_left_in_both_parts_goes_with_its_deletion(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 300);
	store_free(s);
	s = ring_over_first(3);
	atomic_store(&proxies[0].forgets_moves, true);
	atomic_store(&proxies[1].forgets_moves, true);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &e), ERR_UNAVAILABLE);
	atomic_store(&proxies[0].forgets_moves, false);
	atomic_store(&proxies[1].forgets_moves, false);
	assert_true(links_in(0) + links_in(1) + links_in(2) > 300); /* the test is about something */
	for (uint64_t id = 1; id <= 300; id++) {
		struct store_write gone = {.kind = id % 2 ? STORE_LINK_DELETE : STORE_LINK_UPDATE,
		                           .fields = LINK_TITLE,
		                           .link.title = STR("new"),
		                           .arena = &arena,
		                           .ref = kit_generated(&arena, id).ref};
		assert_int_equal(kit_apply(s, &gone), 0);
	}
	assert_int_equal(reshard(s, &r), 0);
	assert_true(r.was_begun);
	for (uint64_t id = 1; id <= 300; id++) {
		struct link_record link;
		struct store_write name = kit_generated(&arena, id);
		assert_int_equal(kit_find(s, &arena, id, name.ref.key.ptr, &link),
		                 id % 2 ? ERR_NOT_FOUND : 0);
		if (id % 2 == 0)
			assert_true(str_eq(link.title, STR("new")));
	}
	store_free(s);
}

static void a_part_that_is_away_holds_a_move_up_and_no_more(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	store_free(s);
	s = ring_over_first(3);
	atomic_store(&proxies[2].is_away, true);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &e), ERR_UNAVAILABLE);
	assert_text_has(e.text, "c:3/x");
	links_check(s, 1, LINKS);
	atomic_store(&proxies[2].is_away, false);
	assert_int_equal(reshard(s, &r), 0);
	links_check(s, 1, LINKS);
	store_free(s);
}

static void a_database_with_links_of_its_own_cannot_join(void **state)
{
	(void)state;
	links_make(inner[2], 5000, 1);
	store_free(ring_over_first(2));
	struct store *s = ring_over_first(3);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &e), ERR_INVALID);
	assert_text_has(e.text, "c:3/x");
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &arena, &status, &e), 0);
	assert_false(status.moves);
	store_free(s);
}

static void another_target_while_keys_move_is_refused(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	store_free(s);
	s = ring_over_first(3);
	int left = 2;
	struct reshard r = {.progress = stop_after, .ctx = &left};
	assert_int_equal(store_reshard(s, &r, &e), ERR_BUSY);
	struct reshard other = {.leave = &addresses[1], .leave_count = 1};
	assert_int_equal(store_reshard(s, &other, &e), ERR_INVALID);
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &arena, &status, &e), 0);
	assert_true(status.moves);
	assert_int_equal(status.part_count, 3);
	assert_true(status.parts[0].is_home && status.parts[0].is_member && status.parts[0].is_target);
	assert_true(!status.parts[2].is_member && status.parts[2].is_target && status.parts[2].answers);
	store_free(s);
}

/* All three have answered the one who came second when the one who came first goes on and finishes. */
static struct store *first_mover;
static atomic_int asked, answered;
static int first_result;

static void first_finishes(void)
{
	if (atomic_load(&asked) >= PARTS)
		return;
	if (atomic_fetch_add(&asked, 1) + 1 == PARTS) {
		struct reshard r = {.leave = NULL};
		first_result = store_reshard(first_mover, &r, NULL);
		atomic_store(&answered, 1);
	}
	while (!atomic_load(&answered))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void two_who_move_at_once_do_no_harm(void **state)
{
	(void)state;
	struct store_proxy others[PARTS];
	struct store_ring_part parts[PARTS];
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	store_free(s);
	for (size_t i = 0; i < PARTS; i++) {
		store_proxy_init(&others[i], inner[i]);
		parts[i] = (struct store_ring_part){.store = &others[i].base, .address = addresses[i]};
	}
	assert_int_equal(store_ring_open(parts, PARTS, true, &first_mover, &e), 0);
	int left = 2;
	struct reshard r = {.progress = stop_after, .ctx = &left};
	assert_int_equal(store_reshard(first_mover, &r, &e), ERR_BUSY);
	s = ring_over_first(3);
	atomic_store(&asked, 0);
	atomic_store(&answered, 0);
	for (size_t i = 0; i < PARTS; i++)
		atomic_store(&proxies[i].ring_was_asked, first_finishes);
	struct reshard second = {.leave = NULL};
	assert_int_equal(store_reshard(s, &second, &e), 0);
	for (size_t i = 0; i < PARTS; i++)
		atomic_store(&proxies[i].ring_was_asked, NULL);
	assert_int_equal(first_result, 0);
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &arena, &status, &e), 0);
	assert_false(status.moves);
	for (size_t i = 0; i < PARTS; i++)
		assert_true(status.parts[i].is_member);
	links_check(s, 1, LINKS);
	store_free(s);
	store_free(first_mover);
}

static void a_move_does_not_begin_while_a_part_cannot_take_it(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	store_free(s);
	s = ring_over_first(3);
	atomic_store(&proxies[1].refuses_rings, true);
	struct reshard r = {.leave = NULL};
	assert_int_equal(store_reshard(s, &r, &e), ERR_BUSY);
	assert_text_has(e.text, "b:2/x");
	assert_text_has(e.text, "nothing was changed");
	struct ring_status status;
	assert_int_equal(store_ring_status(s, &arena, &status, &e), 0);
	assert_false(status.moves);
	links_check(s, 1, LINKS);
	atomic_store(&proxies[1].refuses_rings, false);
	assert_int_equal(reshard(s, &r), 0);
	store_free(s);
}

/* The home and the third know the next ring; the second does not hear of it. */
static void a_part_that_does_not_hear_of_a_new_ring_fails_only_its_own(void **state)
{
	(void)state;
	struct store *s = ring_over_first(3);
	links_make(s, 1, LINKS);
	uint64_t here = id_in(s, 0, 1), there = id_in(s, 1, 1), epoch;
	struct str text;
	assert_int_equal(inner[0]->ops->part->ring_get(inner[0], &arena, &epoch, &text), 0);
	atomic_store(&proxies[1].holds_rings, true);
	assert_int_equal(inner[0]->ops->part->ring_set(inner[0], epoch + 1, text), 0);
	assert_int_equal(inner[2]->ops->part->ring_set(inner[2], epoch + 1, text), 0);
	struct store_lookup reads[] = {{.ref = kit_generated(&arena, here).ref, .arena = &arena},
	                               {.ref = kit_generated(&arena, there).ref, .arena = &arena}};
	struct store_write writes[] = {
	    {.kind = STORE_LINK_DELETE, .arena = &arena, .ref = kit_generated(&arena, there).ref},
	    {.kind = STORE_LINK_UPDATE, .arena = &arena, .ref = kit_generated(&arena, here).ref}};
	assert_int_equal(kit_find_generated(s, &arena, here), 0); /* it learns of the next ring */
	assert_int_equal(store_lookup(s, reads, 2), 0);
	assert_int_equal(reads[0].result, 0);
	assert_int_equal(reads[1].result, ERR_UNAVAILABLE);
	assert_int_equal(store_apply(s, writes, 2), 0);
	assert_int_equal(writes[0].result, ERR_UNAVAILABLE);
	assert_int_equal(writes[1].result, 0);
	atomic_store(&proxies[1].holds_rings, false);
	while (kit_find_generated(s, &arena, there) == ERR_UNAVAILABLE)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	links_check(s, 1, LINKS);
	store_free(s);
}

static void a_list_that_the_home_cannot_confirm_is_none(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, 10);
	struct store_list page = {.limit = 5, .arena = &arena};
	assert_int_equal(store_list(s, &page), 0);
	atomic_store(&proxies[0].loses_lookups, true);
	assert_int_equal(store_list(s, &page), ERR_UNAVAILABLE);
	atomic_store(&proxies[0].loses_lookups, false);
	store_free(s);
}

/* Servers lease ids in advance, so a larger id may be the older link. */
static void links_of_a_tag_come_newest_first_from_all_parts(void **state)
{
	(void)state;
	enum { TAGGED = 40 };
	uint64_t ids[TAGGED];
	size_t count;
	struct store *s = ring_over_first(2);
	for (uint64_t id = 1; id <= TAGGED; id++) {
		struct store_write w = kit_generated(&arena, id);
		w.link.tags = STR("[\"ad\"]");
		w.link.created_ms = KIT_NOW_MS + TAGGED - (int64_t)id;
		assert_int_equal(kit_apply(s, &w), 0);
	}
	assert_true(links_in(0) > 0 && links_in(1) > 0);
	assert_int_equal(store_tagged(s, STR("ad"), TAGGED, ids, &count), 0);
	assert_int_equal(count, TAGGED);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(ids[i], i + 1);
	store_free(s);
}

static void names_that_read_like_keys_are_asked_for_together(void **state)
{
	(void)state;
	enum { NAMES = 20 };
	struct store *s = ring_over_first(2);
	struct store_write writes[NAMES];
	uint64_t first;
	assert_int_equal(store_lease(s, STORE_LINK_COUNTER, 100, &first), 0);
	for (uint64_t i = 0; i < NAMES; i++) {
		writes[i] = kit_alias(&arena, 1000 + i, arena_printf(&arena, "name%u", (unsigned)i).ptr);
		writes[i].ref.id = i % 2 ? first + i : first + 200 + i; /* given out, or not yet */
	}
	assert_int_equal(store_apply(s, writes, NAMES), 0);
	for (size_t i = 0; i < NAMES; i++)
		assert_int_equal(writes[i].result, i % 2 ? ERR_CONFLICT : 0);
	assert_int_equal(atomic_load(&proxies[0].lookups), 1);
	assert_int_equal(atomic_load(&proxies[1].lookups), 1);
	store_free(s);
}

static unsigned long fresh_sum(void)
{
	unsigned long sum = 0;
	for (size_t i = 0; i < PARTS; i++)
		sum += atomic_load(&proxies[i].fresh);
	return sum;
}

static void what_moves_is_not_read_from_who_lags_behind(void **state)
{
	(void)state;
	struct store *s = ring_over_first(2);
	links_make(s, 1, LINKS);
	links_check(s, 1, LINKS);
	assert_int_equal(fresh_sum(), 0);
	store_free(s);
	s = ring_over_first(3);
	struct reshard plan = {.dry_run = true};
	assert_int_equal(store_reshard(s, &plan, &e), 0);
	int left = 1;
	struct reshard r = {.progress = stop_after, .ctx = &left};
	assert_int_equal(store_reshard(s, &r, &e), ERR_BUSY);
	links_check(s, 1, LINKS);
	assert_int_equal(fresh_sum(), plan.moved);
	store_free(s);
}

int main(void)
{
#define RING_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
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
	    RING_TEST(a_part_that_is_away_fails_only_what_is_its_own),
	    RING_TEST(what_a_part_says_may_be_old_is_passed_on),
	    RING_TEST(a_ring_starts_without_a_part_but_not_without_its_home),
	    RING_TEST(a_part_that_could_not_be_opened_is_opened_later),
	    RING_TEST(a_fresh_ring_needs_all_its_parts),
	    RING_TEST(another_database_in_a_members_place_is_not_written_to),
	    RING_TEST(a_lost_commit_is_uncertain_for_its_own_changes),
	    RING_TEST(a_retry_is_repeated_whatever_part_its_own_key_lies_in),
	    RING_TEST(a_retry_of_what_never_happened_is_made_under_the_first_key),
	    RING_TEST(a_refused_create_leaves_its_idempotency_key_free),
	    RING_TEST(an_alias_is_not_made_under_another_ones_name),
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
	    RING_TEST(a_part_that_does_not_hear_of_a_new_ring_fails_only_its_own),
	    RING_TEST(a_list_that_the_home_cannot_confirm_is_none),
	    RING_TEST(links_of_a_tag_come_newest_first_from_all_parts),
	    RING_TEST(names_that_read_like_keys_are_asked_for_together),
	    RING_TEST(what_moves_is_not_read_from_who_lags_behind),
	};
	return cmocka_run_group_tests_name("store_ring", tests, NULL, NULL);
}
