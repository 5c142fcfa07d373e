/*
 * What a PostgreSQL store does when others are in the way, and what it says of a database that takes no
 * changes.
 */
#include "postgres_fixture.h"

enum { LINKS = 8, HELD = 3 };

static void create(uint64_t id)
{
	struct store_write w = kit_generated(&arena, id);
	assert_int_equal(kit_apply(store, &w), 0);
}

/* --- others in the way --- */

static struct store_write update(uint64_t id)
{
	struct str key = arena_printf(&arena, "g%u", (unsigned)id);
	return (struct store_write){
	    .kind = STORE_LINK_UPDATE, .arena = &arena, .ref = {id, key}, .now_ms = KIT_NOW_MS};
}

TEST(a_row_that_somebody_holds_fails_only_those_who_want_it)
{
	database_kit_need();
	struct store_write batch[LINKS + 1];
	struct err e = {""};
	for (unsigned i = 0; i < LINKS; i++) {
		create(i + 1);
		batch[i] = update(i + 1);
	}
	batch[LINKS] = kit_generated(&arena, LINKS + 1);
	database_kit_hold(url, "BEGIN; SELECT 1 FROM link WHERE key = 'g4' FOR UPDATE");
	assert_int_equal(store_apply(store, batch, LINKS + 1), 0);
	for (unsigned i = 0; i <= LINKS; i++)
		assert_int_equal(batch[i].result, i == HELD ? ERR_UNAVAILABLE : 0);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link"), LINKS + 1);
	assert_int_equal(store_apply(store, &batch[HELD], 1), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(store, &e), 0); /* the others can be served */
	database_kit_let_go();
	assert_int_equal(kit_apply(store, &batch[HELD]), 0);
}

/* As a server that was frozen in the middle of a batch: it will not come to an end soon. */
static void others_stand_still(void)
{
	database_kit_hold(url, "BEGIN; SELECT pg_advisory_xact_lock_shared(1668641398, oid::int)"
	                       " FROM pg_namespace WHERE nspname = current_schema()");
}

/* The first `count` inserts fail so. */
static void inserts_fail(int count, const char *sqlstate)
{
	char sql[512];
	snprintf(sql, sizeof(sql),
	         "CREATE SEQUENCE tries; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
	         " IF nextval('tries') <= %d THEN RAISE SQLSTATE '%s'; END IF; RETURN NEW; END $$;"
	         " CREATE TRIGGER fail BEFORE INSERT ON link FOR EACH ROW EXECUTE FUNCTION fail()",
	         count, sqlstate);
	postgres_kit_run(url, sql);
}

static void inserts_work(void)
{
	postgres_kit_run(url, "DROP FUNCTION fail CASCADE; DROP SEQUENCE IF EXISTS tries");
}

TEST(what_is_done_again_does_not_wait_for_those_who_stand_still)
{
	database_kit_need();
	static const struct {
		int count;
		const char *sqlstate;
	} failures[] = {{1, "23505"}, {1, "40P01"}, {3, "40001"}};
	others_stand_still();
	for (unsigned i = 0; i < ARRAY_LEN(failures); i++) {
		inserts_fail(failures[i].count, failures[i].sqlstate);
		create(i + 1);
		inserts_work();
	}
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link"), ARRAY_LEN(failures));
}

/* --- a database that takes no changes --- */

static void refuse(const char *sqlstate, const char *when)
{
	char sql[512];
	snprintf(sql, sizeof(sql),
	         "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
	         " $$ BEGIN RAISE EXCEPTION 'no such luck' USING ERRCODE = '%s'; END $$;"
	         " CREATE TRIGGER fail BEFORE %s EXECUTE FUNCTION fail()",
	         sqlstate, when);
	postgres_kit_run(url, sql);
}

static void assert_not_ready(void)
{
	struct err e = {""};
	assert_int_equal(store_ping(store, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "no such luck"));
}

static void assert_told(struct store_write w, const char *sqlstate, const char *when)
{
	uint64_t first;
	struct err e = {""};
	refuse(sqlstate, when);
	assert_int_equal(store_ping(store, &e), 0); /* nobody has tried yet */
	assert_int_equal(store_apply(store, &w, 1), ERR_UNAVAILABLE);
	assert_not_ready();
	/* That something else can be written does not help. */
	assert_int_equal(registry_lease(store->registry, STORE_LINK_COUNTER, 1, &first), 0);
	assert_not_ready();
	inserts_work();
	assert_int_equal(store_ping(store, &e), 0);
}

TEST(a_database_that_takes_no_links_is_not_ready_until_it_does)
{
	database_kit_need();
	create(1);
	assert_told(kit_generated(&arena, 2), "53100", "INSERT ON link"); /* the disk is full */
	assert_told(kit_generated(&arena, 2), "42501", "INSERT ON link"); /* no right to */
	assert_told(update(1), "53100", "UPDATE ON link FOR EACH ROW");
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
