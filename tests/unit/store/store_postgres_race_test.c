/* Names that others take while a PostgreSQL store works on them, and rows that cannot be read. */
#include "postgres_fixture.h"

enum { CALLER = 5 };

static struct store_write on(enum store_write_kind kind, const char *name)
{
	return (struct store_write){
	    .kind = kind, .now_ms = KIT_NOW_MS, .arena = &arena, .ref.key = str_of(name)};
}

static struct store_write once(struct store_write w)
{
	w.idempotency_key = STR("once");
	w.idempotency_owner = CALLER;
	return w;
}

struct batch {
	struct store_write writes[2];
	int result;
};

static void *apply(void *arg)
{
	struct batch *b = arg;
	b->result = store_apply(store, b->writes, ARRAY_LEN(b->writes));
	return NULL;
}

TEST(who_loses_a_name_leaves_the_winners_list_alone)
{
	database_kit_need();
	struct registry_write user = kit_user(&arena, NULL, ROLE_VIEWER);
	struct store_write model = kit_alias(&arena, 1, "model");
	assert_int_equal(kit_apply(store, &user), 0);
	assert_int_equal(kit_apply(store, &model), 0);
	struct batch b = {{kit_alias(&arena, 2, "name"), on(STORE_PERMIT, "name")}, -1};
	b.writes[1].user = user.user.id;
	database_kit_hold(url, "BEGIN; CREATE TEMP TABLE made AS SELECT * FROM link WHERE key = 'model';"
	                       " UPDATE made SET key = 'name', id = 9, permitted_count = 5;"
	                       " INSERT INTO link SELECT * FROM made");
	database_kit_start_waiting(url, apply, &b);
	database_kit_let_go();
	database_kit_join();
	assert_int_equal(b.result, 0);
	assert_int_equal(b.writes[0].result, ERR_CONFLICT);
	assert_int_equal(b.writes[1].result, 0); /* it is about the winner's link now */
	assert_int_equal(b.writes[1].link.id, 9);
	assert_int_equal(postgres_kit_ask(url, "SELECT permitted_count FROM link WHERE key = 'name'"), 6);
}

TEST(a_twin_of_a_create_that_lost_its_name_is_made_instead)
{
	database_kit_need();
	struct store_write alias = kit_alias(&arena, 1, "g5");
	assert_int_equal(kit_apply(store, &alias), 0);
	struct store_write twins[] = {once(kit_generated(&arena, 5)), once(kit_generated(&arena, 6))};
	assert_int_equal(store_apply(store, twins, 2), 0);
	assert_int_equal(twins[0].result, ERR_CONFLICT);
	assert_int_equal(twins[1].result, 0);
	assert_false(twins[1].replayed);
	assert_int_equal(twins[1].link.id, 6);
	assert_int_equal(kit_find_generated(store, &arena, 6), 0);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link_feed WHERE entries = ''"), 0);
	struct store_write again = once(kit_generated(&arena, 7));
	assert_int_equal(kit_apply(store, &again), 0);
	assert_true(again.replayed);
	assert_int_equal(again.link.id, 6);
}

TEST(an_idempotency_key_outlives_a_link_that_its_own_batch_deletes)
{
	database_kit_need();
	struct store_write batch[] = {once(kit_alias(&arena, 1, "name")), on(STORE_LINK_DELETE, "name"),
	                              kit_generated(&arena, 2)};
	assert_int_equal(store_apply(store, batch, 3), 0);
	for (size_t i = 0; i < ARRAY_LEN(batch); i++)
		assert_int_equal(batch[i].result, 0);
	struct store_write again = once(kit_alias(&arena, 3, "name"));
	assert_int_equal(kit_apply(store, &again), ERR_NOT_FOUND);
	assert_true(again.replayed);
}

TEST(an_id_that_comes_twice_in_a_batch_is_one_links)
{
	database_kit_need();
	if (postgres_kit_has_citus())
		skip(); /* it looks for a name, not for an id */
	struct store_write batch[] = {kit_alias(&arena, 1, "one"), kit_alias(&arena, 1, "two")};
	assert_int_equal(store_apply(store, batch, 2), 0);
	assert_int_equal((batch[0].result == 0) + (batch[1].result == 0), 1);
	for (size_t i = 0; i < ARRAY_LEN(batch); i++)
		assert_int_equal(kit_find(store, &arena, 0, batch[i].ref.key.ptr, NULL),
		                 batch[i].result == 0 ? 0 : ERR_NOT_FOUND);
}

TEST(a_row_that_cannot_be_read_fails_only_those_who_want_it)
{
	database_kit_need();
	struct store_write damaged = once(kit_alias(&arena, 1, "damaged"));
	assert_int_equal(kit_apply(store, &damaged), 0);
	postgres_kit_run(url, "UPDATE link SET redirect_status = -1");
	struct store_write batch[] = {
	    on(STORE_LINK_UPDATE, "damaged"), on(STORE_LINK_DELETE, "damaged"),
	    kit_alias(&arena, 2, "damaged"),  once(kit_generated(&arena, 3)),
	    kit_generated(&arena, 4),
	};
	assert_int_equal(store_apply(store, batch, ARRAY_LEN(batch)), 0);
	assert_int_equal(batch[0].result, ERR_CORRUPT);
	assert_int_equal(batch[1].result, ERR_CORRUPT);
	assert_int_equal(batch[2].result, ERR_CONFLICT);
	assert_int_equal(batch[3].result, ERR_CORRUPT);
	assert_true(batch[3].replayed);
	assert_int_equal(batch[4].result, 0);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link"), 2);
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
