/* PostgreSQL stores as parts of a ring that changes: what backups hold up, and what they bring back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/database_kit.h"
#include "lib/store_kit.h"
#include "store/backends.h"
#include "store/part.h"

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
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		store_free(parts[i]);
		parts[i] = NULL;
	}
	arena_release(&arena);
	return 0;
}

static void rings_set(uint64_t epoch)
{
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(part->ring_set(parts[i], epoch, STR("ring")), 0);
}

static int move_under(uint64_t epoch, const struct str *keys, size_t n)
{
	struct part_move *m;
	assert_int_equal(part->move_begin(parts[0], epoch, keys, n, &m), 0);
	int r = part->move_put(parts[1], m);
	assert_int_equal(part->move_end(parts[0], m, r == 0), 0);
	return r;
}

static void link_make(size_t i, uint64_t id, const char *name, struct str url)
{
	struct store_write w = kit_alias(&arena, id, name);
	w.link.url = url;
	assert_int_equal(kit_apply(parts[i], &w), 0);
}

/* pg_dump holds such a lock on every table until it ends. */
static void a_part_takes_a_new_ring_while_a_backup_is_made(void **state)
{
	(void)state;
	database_kit_need();
	struct pg_pool *pool = NULL;
	struct err e = {""};
	assert_int_equal(pg_pool_new(str_of(urls[0]), 1, NULL, NULL, &pool, &e), 0);
	struct pg_conn *dump = pg_take(pool, &e);
	assert_non_null(dump);
	int held = pg_run(dump, "BEGIN; LOCK TABLE link, moved_key, ring_state, route IN ACCESS SHARE MODE",
	                  &e);
	int set = part->ring_set(parts[0], 1, STR("one"));
	int set_whole = part->ring_set_whole(parts[0], 2, STR("two"));
	pg_run(dump, "COMMIT", NULL);
	pg_return(dump);
	pg_pool_free(pool);
	assert_int_equal(held, 0);
	assert_int_equal(set, 0);
	assert_int_equal(set_whole, 0);
}

static void what_lies_where_a_key_moves_to_gives_way(void **state)
{
	(void)state;
	database_kit_need();
	const struct str keys[] = {STR("changed"), STR("g2"), STR("moved")};
	struct link_record link;
	struct store_write generated = kit_generated(&arena, 2), again = kit_generated(&arena, 2);
	link_make(0, 1, "changed", STR("https://example.com/new"));
	link_make(1, 1, "changed", STR("https://example.com/old"));
	link_make(1, 3, "moved", STR("https://example.com/new")); /* it came under an earlier epoch */
	assert_int_equal(kit_apply(parts[0], &generated), 0);
	assert_int_equal(kit_apply(parts[1], &again), 0);
	struct store_write gone = {
	    .kind = STORE_LINK_DELETE, .arena = &arena, .ref = generated.ref, .now_ms = KIT_NOW_MS};
	assert_int_equal(kit_apply(parts[0], &gone), 0);
	rings_set(5);
	assert_int_equal(move_under(5, keys, 3), 0);
	assert_int_equal(kit_find(parts[1], &arena, 0, "changed", &link), 0);
	assert_true(str_eq(link.url, STR("https://example.com/new")));
	assert_int_equal(kit_find_generated(parts[1], &arena, 2), ERR_NOT_FOUND);
	assert_int_equal(kit_find(parts[1], &arena, 0, "moved", NULL), 0);
}

static void an_id_that_is_there_twice_fails_the_move(void **state)
{
	(void)state;
	database_kit_need();
	const struct str keys[] = {STR("one")};
	link_make(0, 1, "one", STR("https://example.com/1"));
	link_make(1, 1, "other", STR("https://example.com/2"));
	rings_set(5);
	assert_int_equal(move_under(5, keys, 1), ERR_CORRUPT);
	assert_int_equal(kit_find(parts[0], &arena, 0, "one", NULL), 0);
	assert_int_equal(kit_find(parts[1], &arena, 0, "other", NULL), 0);
	uint64_t last = 0;
	assert_int_equal(part->link_id_last(parts[0], &last), 0);
	assert_int_equal(last, 1);
}

static void of_moves_under_earlier_rings_little_is_remembered(void **state)
{
	(void)state;
	database_kit_need();
	const struct str first[] = {STR("a"), STR("b"), STR("c")}, next[] = {STR("d"), STR("e")};
	rings_set(5);
	assert_int_equal(move_under(5, first, 3), 0);
	rings_set(6);
	assert_int_equal(move_under(6, next, 2), 0);
	assert_int_equal(postgres_kit_ask(urls[1], "SELECT count(*) FROM moved_key"), 2);
}

static void creates_that_are_remembered_become_routes(void **state)
{
	(void)state;
	database_kit_need();
	struct store_write w = kit_generated(&arena, 1);
	w.idempotency_key = STR("order");
	w.idempotency_owner = 7;
	assert_int_equal(kit_apply(parts[0], &w), 0);
	assert_int_equal(part->ring_set_whole(parts[0], 1, STR("one of two")), 0);
	assert_int_equal(part->ring_set_whole(parts[0], 1, STR("again")), ERR_CONFLICT);
	struct part_route route = {.owner = 7,
	                           .idempotency_key = STR("order"),
	                           .now_ms = KIT_NOW_MS,
	                           .arena = &arena,
	                           .ref = {9, STR("g9")},
	                           .link_id = 9};
	assert_int_equal(part->route(parts[0], &route, 1), 0);
	assert_int_equal(route.link_id, 1);
	assert_int_equal(route.ref.id, 1);
	assert_true(str_eq(route.ref.key, STR("g1")));
	assert_false(route.is_alias);
}

static void who_takes_a_part_for_the_whole_is_refused_once_it_was_in_a_ring(void **state)
{
	(void)state;
	database_kit_need();
	struct store_write before = kit_generated(&arena, 1), after = kit_generated(&arena, 2);
	struct store_lookup read = {.ref = before.ref, .arena = &arena};
	assert_int_equal(part->apply_whole(parts[0], PART_ALONE, &before, 1), 0);
	assert_int_equal(before.result, 0);
	assert_int_equal(part->lookup(parts[0], PART_ALONE, &read, 1), 0);
	assert_int_equal(read.result, 0);
	rings_set(1);
	assert_int_equal(part->apply_whole(parts[0], PART_ALONE, &after, 1), ERR_CONFLICT);
	assert_int_equal(part->lookup(parts[0], PART_ALONE, &read, 1), ERR_CONFLICT);
	assert_int_equal(kit_find_generated(parts[0], &arena, 2), ERR_NOT_FOUND);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_part_takes_a_new_ring_while_a_backup_is_made),
	    TEST(what_lies_where_a_key_moves_to_gives_way),
	    TEST(an_id_that_is_there_twice_fails_the_move),
	    TEST(of_moves_under_earlier_rings_little_is_remembered),
	    TEST(creates_that_are_remembered_become_routes),
	    TEST(who_takes_a_part_for_the_whole_is_refused_once_it_was_in_a_ring),
	};
	return cmocka_run_group_tests_name("store_postgres_move", tests, database_kit_two, database_kit_down);
}
