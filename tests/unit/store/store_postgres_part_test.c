/* A PostgreSQL store as one of several parts: store/part.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/database_kit.h"
#include "lib/store_kit.h"
#include "store/backends.h"
#include "store/part.h"

#include <stdatomic.h>
#include <stdio.h>

enum { OVER_MS = KIT_NOW_MS + 100, REST_MS = 1000 };

static char (*const urls)[POSTGRES_KIT_URL_BYTES] = database_kit_urls;
static struct store *parts[2];
static const struct store_part_ops *part;
static struct arena arena;

static int setup(void **state)
{
	(void)state;
	for (size_t i = 0; urls[0][0] && i < 2; i++) {
		postgres_kit_database_empty(urls[i]);
		parts[i] = database_kit_store(urls[i]);
		part = parts[i]->ops->part;
	}
	return 0;
}

static int teardown(void **state)
{
	database_kit_calm(state);
	for (size_t i = 0; i < 2; i++) {
		store_free(parts[i]);
		parts[i] = NULL;
	}
	arena_release(&arena);
	return 0;
}

static int find_at(uint64_t epoch, uint64_t id, struct link_record *ret)
{
	struct str key = arena_printf(&arena, "g%llu", (unsigned long long)id);
	struct store_lookup read = {.ref = {id, key}, .arena = &arena, .result = 12345};
	int r = part->lookup(parts[0], epoch, &read, 1);
	if (r == 0 && ret)
		*ret = read.link;
	return r ? r : read.result;
}

static int create_at(uint64_t epoch, uint64_t id)
{
	struct store_write w = kit_generated(&arena, id);
	int r = part->apply(parts[0], epoch, &w, 1);
	return r ? r : w.result;
}

/* --- the epoch --- */

static void a_part_that_was_never_in_a_ring_says_so(void **state)
{
	(void)state;
	database_kit_need();
	uint64_t epoch = 77;
	struct str text = STR("x");
	assert_int_equal(part->ring_get(parts[0], &arena, &epoch, &text), 0);
	assert_int_equal(epoch, 0);
	assert_null(text.ptr);
}

static void who_works_under_another_epoch_is_refused(void **state)
{
	(void)state;
	database_kit_need();
	uint64_t epoch;
	struct str text;
	struct part_move *move;
	const struct str key = STR("g1");
	assert_int_equal(create_at(0, 1), 0);
	assert_int_equal(part->ring_set(parts[0], 5, STR("five")), 0);
	assert_int_equal(create_at(5, 2), 0);
	assert_int_equal(find_at(5, 2, NULL), 0);
	assert_int_equal(create_at(4, 3), ERR_CONFLICT);
	assert_int_equal(create_at(6, 3), ERR_CONFLICT);
	assert_int_equal(find_at(4, 1, NULL), ERR_CONFLICT);
	assert_int_equal(find_at(5, 3, NULL), ERR_NOT_FOUND); /* nothing of it was done */
	assert_int_equal(part->move_begin(parts[0], 4, &key, 1, &move), ERR_CONFLICT);
	assert_int_equal(part->ring_set(parts[0], 5, STR("again")), ERR_CONFLICT);
	assert_int_equal(part->ring_set(parts[0], 4, STR("back")), ERR_CONFLICT);
	assert_int_equal(part->ring_get(parts[0], &arena, &epoch, &text), 0);
	assert_int_equal(epoch, 5);
	assert_true(str_eq(text, STR("five")));
	assert_int_equal(create_at(0, 4), 0); /* 0 is never refused */
}

static atomic_bool is_set;

static void *set_six(void *arg)
{
	(void)arg;
	assert_int_equal(part->ring_set(parts[0], 6, STR("six")), 0);
	atomic_store(&is_set, true);
	return NULL;
}

static void a_failure_of_the_database_is_not_taken_for_another_epoch(void **state)
{
	(void)state;
	database_kit_need();
	assert_int_equal(part->ring_set(parts[0], 5, STR("five")), 0);
	postgres_kit_run(urls[0], "ALTER TABLE link RENAME COLUMN note TO notice");
	assert_int_equal(create_at(5, 1), ERR_UNAVAILABLE);
	assert_int_equal(create_at(4, 1), ERR_CONFLICT);
	postgres_kit_run(urls[0], "ALTER TABLE link RENAME COLUMN notice TO note");
	assert_int_equal(create_at(5, 1), 0);
}

static void a_new_ring_waits_for_moves_under_the_old_one(void **state)
{
	(void)state;
	database_kit_need();
	struct part_move *move;
	const struct str key = STR("g1");
	assert_int_equal(create_at(0, 1), 0);
	assert_int_equal(part->ring_set(parts[0], 5, STR("five")), 0);
	assert_int_equal(part->move_begin(parts[0], 5, &key, 1, &move), 0);
	atomic_store(&is_set, false);
	database_kit_start_waiting(urls[0], set_six, NULL);
	assert_false(atomic_load(&is_set));
	assert_int_equal(part->move_end(parts[0], move, false), 0);
	database_kit_join();
	assert_true(atomic_load(&is_set));
	assert_int_equal(find_at(6, 1, NULL), 0);
}

static void in_a_ring_nobody_is_asked_whom_the_home_alone_knows(void **state)
{
	(void)state;
	database_kit_need();
	uint64_t first, next;
	struct store_write w = kit_generated(&arena, 1);
	w.link.is_private = true;
	assert_int_equal(kit_apply(parts[0], &w), 0);
	struct store_write permit = {.kind = STORE_PERMIT, .arena = &arena, .ref = w.ref, .user.id = 99};
	assert_int_equal(kit_apply(parts[0], &permit), ERR_INVALID);
	assert_int_equal(part->apply(parts[0], 0, &permit, 1), 0);
	assert_int_equal(permit.result, 0);
	assert_int_equal(part->counter(parts[0], STORE_LINK_COUNTER, &next), 0);
	assert_int_equal(next, 1);
	assert_int_equal(store_lease(parts[0], STORE_LINK_COUNTER, 10, &first), 0);
	assert_int_equal(part->counter(parts[0], STORE_LINK_COUNTER, &next), 0);
	assert_int_equal(next, 11);
	struct store_write alias = kit_alias(&arena, 50, "g7");
	alias.ref.id = 7;
	assert_int_equal(kit_apply(parts[0], &alias), ERR_CONFLICT);
	assert_int_equal(part->apply(parts[0], 0, &alias, 1), 0);
	assert_int_equal(alias.result, 0);
}

/* --- routes --- */

static struct part_route route_of(const char *name, uint64_t id)
{
	return (struct part_route){.owner = 5,
	                           .idempotency_key = str_of(name),
	                           .now_ms = KIT_NOW_MS,
	                           .arena = &arena,
	                           .ref = kit_generated(&arena, id).ref,
	                           .link_id = id};
}

static void the_first_choice_of_a_route_stays(void **state)
{
	(void)state;
	database_kit_need();
	struct part_route routes[] = {route_of("a", 1), route_of("b", 2), route_of("a", 3)};
	assert_int_equal(part->route(parts[0], routes, 3), 0);
	assert_int_equal(routes[0].link_id, 1);
	assert_int_equal(routes[1].link_id, 2);
	assert_int_equal(routes[2].link_id, 1); /* two of a call may be the same */
	assert_true(str_eq(routes[2].ref.key, STR("g1")));
	assert_int_equal(routes[2].ref.id, 1);
	struct part_route again = route_of("b", 9);
	assert_int_equal(part->route(parts[0], &again, 1), 0);
	assert_int_equal(again.link_id, 2);
	struct part_route other = route_of("b", 9);
	assert_int_equal(part->route_drop(parts[0], &other), 0); /* another choice: nothing goes */
	assert_int_equal(part->route(parts[0], &other, 1), 0);
	assert_int_equal(other.link_id, 2);
	assert_int_equal(part->route_drop(parts[0], &again), 0);
	other = route_of("b", 9);
	assert_int_equal(part->route(parts[0], &other, 1), 0);
	assert_int_equal(other.link_id, 9);
	other = route_of("a", 11);
	other.now_ms = KIT_NOW_MS + 24LL * 3600 * 1000; /* a day later it is forgotten */
	assert_int_equal(part->route(parts[0], &other, 1), 0);
	assert_int_equal(other.link_id, 11);
}

/* --- moving --- */

/* A link with all that may hang on one, a name that rests, and a key that is spent. */
static void fill(void)
{
	struct store_write user = kit_user(&arena, "a@b.example", ROLE_VIEWER);
	assert_int_equal(kit_apply(parts[0], &user), 0);
	struct store_write w[] = {kit_generated(&arena, 1), kit_alias(&arena, 2, "rests"),
	                          kit_generated(&arena, 3), kit_alias(&arena, 4, "stays")};
	w[0].link.is_private = true;
	w[0].link.title = STR("a \0 \xff \"title\" \\");
	w[0].link.tags = STR("[\"t\"]");
	w[0].idempotency_key = STR("once");
	w[1].link.expires_ms = w[2].link.expires_ms = OVER_MS;
	struct store_write more[] = {
	    {.kind = STORE_PERMIT, .arena = &arena, .ref = w[0].ref, .user.id = user.user.id},
	    {.kind = STORE_LINK_REAP,
	     .now_ms = OVER_MS,
	     .arena = &arena,
	     .ref = w[1].ref,
	     .rest_ms = REST_MS},
	    {.kind = STORE_LINK_REAP,
	     .now_ms = OVER_MS,
	     .arena = &arena,
	     .ref = w[2].ref,
	     .rest_ms = REST_MS},
	};
	assert_int_equal(store_apply(parts[0], w, ARRAY_LEN(w)), 0);
	assert_int_equal(store_apply(parts[0], more, ARRAY_LEN(more)), 0);
	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		assert_int_equal(more[i].result, 0);
	const struct store_count count = {.id = 1, .clicks = 41};
	assert_int_equal(store_set_clicks(parts[0], 9, &count, 1), 0);
}

static const struct str moved[] = {STR("g1"), STR("rests"), STR("g3"), STR("nothing")};

static void move(bool done)
{
	struct part_move *m;
	assert_int_equal(part->move_begin(parts[0], 0, moved, ARRAY_LEN(moved), &m), 0);
	assert_int_equal(part->move_put(parts[1], m), 0);
	assert_int_equal(part->move_end(parts[0], m, done), 0);
}

static void keys_of(size_t i, char *ret, size_t bytes)
{
	struct str keys[8];
	size_t count, len = 0;
	ret[0] = '\0';
	assert_int_equal(part->keys_after(parts[i], STR_NULL, ARRAY_LEN(keys), &arena, keys, &count), 0);
	for (size_t k = 0; k < count; k++)
		len += (size_t)snprintf(ret + len, bytes - len, "%.*s ", STR_ARG(keys[k]));
}

static void assert_keys(size_t i, const char *expected)
{
	char text[128];
	keys_of(i, text, sizeof(text));
	assert_string_equal(text, expected);
}

static void all_that_lies_under_a_key_moves_with_it(void **state)
{
	(void)state;
	database_kit_need();
	fill();
	assert_keys(0, "g1 g3 rests stays ");
	struct store_lookup before = {.ref = {1, STR("g1")}, .user = 1, .arena = &arena};
	assert_int_equal(store_lookup(parts[0], &before, 1), 0);
	assert_true(before.permitted);
	move(true);
	assert_keys(0, "stays ");
	assert_keys(1, "g1 g3 rests ");
	struct store_lookup after = {.ref = {1, STR("g1")}, .user = 1, .arena = &arena};
	assert_int_equal(store_lookup(parts[1], &after, 1), 0);
	assert_int_equal(after.result, 0);
	assert_true(after.permitted);
	assert_true(str_eq(after.link.title, before.link.title));
	assert_int_equal(after.link.clicks, 41);
	uint64_t ids[2];
	size_t count;
	assert_int_equal(store_tagged(parts[1], STR("t"), 2, ids, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(store_tagged(parts[0], STR("t"), 2, ids, &count), 0);
	assert_int_equal(count, 0);
	struct store_write thief = kit_alias(&arena, 60, "rests"); /* for another owner it still rests */
	thief.link.owner = 8;
	thief.now_ms = OVER_MS;
	assert_int_equal(kit_apply(parts[1], &thief), ERR_CONFLICT);
	struct store_write spent = kit_generated(&arena, 3);
	assert_int_equal(kit_apply(parts[1], &spent), ERR_CONFLICT);
	struct store_write again = kit_generated(&arena, 61);
	again.idempotency_key = STR("once");
	assert_int_equal(kit_apply(parts[1], &again), 0);
	assert_true(again.replayed);
	assert_int_equal(again.link.id, 1);
	const struct store_count more = {.id = 1, .clicks = 1}; /* totals of nodes are kept apart */
	assert_int_equal(store_set_clicks(parts[1], 8, &more, 1), 0);
	assert_int_equal(store_lookup(parts[1], &after, 1), 0);
	assert_int_equal(after.link.clicks, 42);
}

static void a_move_that_is_called_off_leaves_everything_and_can_be_done_again(void **state)
{
	(void)state;
	database_kit_need();
	fill();
	move(false);
	assert_keys(0, "g1 g3 rests stays ");
	assert_keys(1, "g1 g3 rests ");
	move(true); /* what is there already stays */
	assert_keys(0, "stays ");
	assert_keys(1, "g1 g3 rests ");
}

static struct store_write late;

static void *update_late(void *arg)
{
	(void)arg;
	assert_int_equal(store_apply(parts[0], &late, 1), 0);
	return NULL;
}

static void changes_wait_for_a_move_and_lookups_do_not(void **state)
{
	(void)state;
	database_kit_need();
	struct part_move *m;
	fill();
	assert_int_equal(part->move_begin(parts[0], 0, moved, ARRAY_LEN(moved), &m), 0);
	late = (struct store_write){.kind = STORE_LINK_UPDATE,
	                            .now_ms = KIT_NOW_MS,
	                            .arena = &arena,
	                            .ref = {1, STR("g1")},
	                            .fields = LINK_TITLE};
	database_kit_start_waiting(urls[0], update_late, NULL);
	assert_int_equal(find_at(0, 1, NULL), 0);
	assert_int_equal(part->move_put(parts[1], m), 0);
	assert_int_equal(part->move_end(parts[0], m, true), 0);
	database_kit_join();
	assert_int_equal(late.result, ERR_NOT_FOUND);
	assert_int_equal(find_at(0, 1, NULL), ERR_NOT_FOUND);
}

static void rings_set(uint64_t epoch)
{
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(part->ring_set(parts[i], epoch, STR("ring")), 0);
}

static void move_under(uint64_t epoch, struct str key)
{
	struct part_move *m;
	assert_int_equal(part->move_begin(parts[0], epoch, &key, 1, &m), 0);
	assert_int_equal(part->move_put(parts[1], m), 0);
	assert_int_equal(part->move_end(parts[0], m, true), 0);
}

/* As the database does to one that stands still for long. */
static void moves_break(void)
{
	postgres_kit_ask(urls[0], "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
	                          " WHERE state = 'idle in transaction' AND datname = current_database()");
}

static void a_move_that_was_overtaken_brings_nothing_back(void **state)
{
	(void)state;
	database_kit_need();
	const struct str key = STR("brand");
	struct part_move *slow;
	struct store_write w = kit_alias(&arena, 1, "brand");
	assert_int_equal(kit_apply(parts[0], &w), 0);
	rings_set(5);
	assert_int_equal(part->move_begin(parts[0], 5, &key, 1, &slow), 0);
	moves_break();
	move_under(5, key);
	struct store_write gone = {
	    .kind = STORE_LINK_DELETE, .arena = &arena, .ref = w.ref, .now_ms = KIT_NOW_MS};
	assert_int_equal(kit_apply(parts[1], &gone), 0);
	assert_int_equal(part->move_put(parts[1], slow), 0);
	assert_int_not_equal(part->move_end(parts[0], slow, true), 0);
	assert_int_equal(kit_find(parts[1], &arena, 0, "brand", NULL), ERR_NOT_FOUND);
}

static void a_move_of_an_older_ring_is_refused_where_it_goes(void **state)
{
	(void)state;
	database_kit_need();
	const struct str key = STR("g1");
	struct part_move *slow;
	assert_int_equal(create_at(0, 1), 0);
	rings_set(5);
	assert_int_equal(part->move_begin(parts[0], 5, &key, 1, &slow), 0);
	moves_break();
	rings_set(6);
	assert_int_equal(part->move_put(parts[1], slow), ERR_CONFLICT);
	assert_int_not_equal(part->move_end(parts[0], slow, false), 0);
	assert_keys(1, "");
}

static void a_key_moves_again_under_a_later_ring(void **state)
{
	(void)state;
	database_kit_need();
	assert_int_equal(create_at(0, 1), 0);
	rings_set(5);
	move_under(5, STR("g1"));
	rings_set(6);
	postgres_kit_run(urls[1], "DELETE FROM link"); /* as if it had moved back */
	assert_int_equal(create_at(0, 1), 0);
	move_under(6, STR("g1"));
	assert_keys(1, "g1 ");
}

static void the_newer_use_of_an_idempotency_key_moves(void **state)
{
	(void)state;
	database_kit_need();
	struct store_write old = kit_generated(&arena, 1), new = kit_generated(&arena, 2);
	old.idempotency_key = new.idempotency_key = STR("order");
	new.now_ms = KIT_NOW_MS + 25LL * 3600 * 1000; /* by then the old one is dead */
	struct store_write again = new;
	assert_int_equal(kit_apply(parts[1], &old), 0);
	assert_int_equal(kit_apply(parts[0], &new), 0);
	move_under(0, STR("g2"));
	assert_int_equal(kit_apply(parts[1], &again), 0);
	assert_true(again.replayed);
	assert_int_equal(again.link.id, 2);
}

static struct store_write behind;
static int behind_result;

static void *create_behind(void *arg)
{
	(void)arg;
	int r = part->apply(parts[0], 5, &behind, 1);
	behind_result = r ? r : behind.result;
	return NULL;
}

/* A transaction that sees all as it was when it began would not see the ring for which it waited. */
static void the_epoch_holds_whatever_isolation_the_database_prefers(void **state)
{
	(void)state;
	database_kit_need();
	rings_set(5);
	postgres_kit_run(urls[0], "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET"
	                          " default_transaction_isolation = ''repeatable read''',"
	                          " current_database()); END $$");
	store_free(parts[0]);
	parts[0] = database_kit_store(urls[0]);
	database_kit_hold(urls[0],
	                  "BEGIN; SELECT pg_advisory_xact_lock(1668641397, oid::int) FROM pg_namespace"
	                  " WHERE nspname = current_schema(); UPDATE ring_state SET epoch = 6");
	behind = kit_generated(&arena, 50);
	database_kit_start_waiting(urls[0], create_behind, NULL);
	database_kit_let_go();
	database_kit_join();
	postgres_kit_run(urls[0], "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET"
	                          " default_transaction_isolation', current_database()); END $$");
	assert_int_equal(behind_result, ERR_CONFLICT);
	assert_keys(0, "");
}

/* What a REAP does, with an end that is slow to come. */
static void a_name_that_comes_to_rest_while_somebody_wants_it_stays_its_owners(void **state)
{
	(void)state;
	database_kit_need();
	struct store_write w = kit_alias(&arena, 1, "brand");
	w.link.expires_ms = OVER_MS;
	assert_int_equal(kit_apply(parts[0], &w), 0);
	rings_set(5);
	database_kit_hold(urls[0], "BEGIN; DELETE FROM link WHERE key = 'brand';"
	                           " INSERT INTO resting VALUES ('brand', 7, 99999999999)");
	behind = kit_alias(&arena, 2, "brand");
	behind.link.owner = 8;
	behind.now_ms = OVER_MS + 1;
	database_kit_start_waiting(urls[0], create_behind, NULL);
	database_kit_let_go();
	database_kit_join();
	assert_int_equal(behind_result, ERR_CONFLICT);
	assert_int_equal(kit_find(parts[0], &arena, 0, "brand", NULL), ERR_NOT_FOUND);
}

/* As when a server was frozen in the middle of a move. */
static void a_key_that_is_held_for_long_fails_only_its_own_changes(void **state)
{
	(void)state;
	database_kit_need();
	struct part_move *m;
	const struct str key = STR("g1");
	assert_int_equal(create_at(0, 1), 0);
	assert_int_equal(create_at(0, 2), 0);
	assert_int_equal(part->move_begin(parts[0], 0, &key, 1, &m), 0);
	struct store_write w[] = {
	    {.kind = STORE_LINK_UPDATE, .arena = &arena, .ref = {1, STR("g1")}, .now_ms = KIT_NOW_MS},
	    {.kind = STORE_LINK_UPDATE, .arena = &arena, .ref = {2, STR("g2")}, .now_ms = KIT_NOW_MS}};
	assert_int_equal(store_apply(parts[0], &w[0], 1), ERR_UNAVAILABLE);
	assert_int_equal(store_apply(parts[0], &w[1], 1), 0);
	assert_int_equal(w[1].result, 0);
	assert_int_equal(part->move_end(parts[0], m, false), 0);
	assert_int_equal(store_apply(parts[0], &w[0], 1), 0);
	assert_int_equal(w[0].result, 0);
}

/* --- the order of locks --- */

static void *count_both(void *arg)
{
	(void)arg;
	const struct store_count counts[] = {{.id = 9, .clicks = 1}, {.id = 10, .clicks = 1}};
	assert_int_equal(store_set_clicks(parts[0], 1, counts, 2), 0);
	return NULL;
}

static void *update_both(void *arg)
{
	(void)arg;
	struct store_write w[] = {{.kind = STORE_LINK_UPDATE, .arena = &arena, .ref = {9, STR("g9")}},
	                          {.kind = STORE_LINK_UPDATE, .arena = &arena, .ref = {10, STR("g10")}}};
	assert_int_equal(store_apply(parts[0], w, 2), 0);
	assert_int_equal(w[0].result, 0);
	assert_int_equal(w[1].result, 0);
	return NULL;
}

/* By their keys g10 stands before g9. Who waits for the first must not have the second yet: somebody who goes
 * by keys may hold the one and want the other. */
static void assert_first_g10(void *(*run)(void *))
{
	database_kit_hold(urls[0], "BEGIN; SELECT 1 FROM link WHERE key = 'g10' FOR UPDATE");
	database_kit_start_waiting(urls[0], run, NULL);
	int64_t free_rows = postgres_kit_ask(urls[0], "SELECT count(*) FROM (SELECT 1 FROM link WHERE key ="
	                                              " 'g9' FOR UPDATE SKIP LOCKED) AS t");
	database_kit_let_go();
	database_kit_join();
	assert_int_equal(free_rows, 1);
}

static void rows_are_locked_in_the_order_of_their_keys(void **state)
{
	(void)state;
	database_kit_need();
	assert_int_equal(create_at(0, 9), 0);
	assert_int_equal(create_at(0, 10), 0);
	assert_first_g10(count_both);
	assert_first_g10(update_both);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_part_that_was_never_in_a_ring_says_so),
	    TEST(who_works_under_another_epoch_is_refused),
	    TEST(a_failure_of_the_database_is_not_taken_for_another_epoch),
	    TEST(a_new_ring_waits_for_moves_under_the_old_one),
	    TEST(in_a_ring_nobody_is_asked_whom_the_home_alone_knows),
	    TEST(the_first_choice_of_a_route_stays),
	    TEST(all_that_lies_under_a_key_moves_with_it),
	    TEST(a_move_that_is_called_off_leaves_everything_and_can_be_done_again),
	    TEST(changes_wait_for_a_move_and_lookups_do_not),
	    TEST(a_key_that_is_held_for_long_fails_only_its_own_changes),
	    TEST(rows_are_locked_in_the_order_of_their_keys),
	    TEST(a_move_that_was_overtaken_brings_nothing_back),
	    TEST(a_move_of_an_older_ring_is_refused_where_it_goes),
	    TEST(a_key_moves_again_under_a_later_ring),
	    TEST(the_newer_use_of_an_idempotency_key_moves),
	    TEST(the_epoch_holds_whatever_isolation_the_database_prefers),
	    TEST(a_name_that_comes_to_rest_while_somebody_wants_it_stays_its_owners),
	};
	return cmocka_run_group_tests(tests, database_kit_two, database_kit_down);
}
