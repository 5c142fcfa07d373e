/* The feeds of a PostgreSQL store: their ends, what claims tell, and transactions that end late. */
#include "postgres_fixture.h"
#include "store/postgres_feed.h"

static struct feed_page feed_since(struct feed_cursor cursor, bool settled)
{
	struct feed_page page = {.cursor = cursor, .settled = settled, .arena = &arena, .max = 100};
	assert_int_equal(store_feed(store, &page), 0);
	return page;
}

/* The cursor stops before any transaction that still runs on the server: also another test's,
 * in another database. */
static struct feed_cursor feed_end(void)
{
	struct feed_page page = {.from_end = true, .arena = &arena, .max = 100};
	UNTIL(store_feed(store, &page) == 0 && feed_since(page.cursor, false).count == 0);
	return page.cursor;
}

static void create_at(uint64_t id, int64_t now_ms)
{
	struct store_write w = kit_generated(&arena, id);
	w.now_ms = now_ms;
	assert_int_equal(kit_apply(store, &w), 0);
}

/* As on CockroachDB. */
static struct feed_cursor end_by_time(bool accounts)
{
	struct pg_pool *pool = NULL;
	struct feed_page page = {.from_end = true, .arena = &arena, .max = 100};
	assert_int_equal(pg_pool_new(str_of(url), 1, NULL, NULL, &pool, NULL), 0);
	struct pg_conn *c = pg_take(pool, NULL);
	assert_non_null(c);
	int r = postgres_feed_read(c, false, accounts, &page);
	pg_return(c);
	pg_pool_free(pool);
	assert_int_equal(r, 0);
	return page.cursor;
}

TEST(without_transaction_numbers_each_feed_has_an_end_of_its_own)
{
	database_kit_need();
	postgres_kit_run(url, "INSERT INTO link_feed (xid, seq, at_ms, entries) VALUES (0, 900, 1, '');"
	                      "INSERT INTO account_feed (xid, seq, at_ms, entries) VALUES (0, 7, 1, '')");
	assert_int_equal(end_by_time(false).sequence, 900);
	assert_int_equal(end_by_time(true).sequence, 7);
}

TEST(a_claim_tells_which_link_is_gone)
{
	database_kit_need();
	uint64_t ids[2];
	size_t count;
	struct store_write w = kit_alias(&arena, 77, "g3"); /* of a key that was given out again */
	w.ref.id = 3;
	w.reuse = true;
	w.link.expires_ms = KIT_NOW_MS;
	assert_int_equal(kit_apply(store, &w), 0);
	struct feed_cursor cursor = feed_end();
	assert_int_equal(store->ops->claim(store, KIT_NOW_MS, 0, 2, ids, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(ids[0], 3);
	struct feed_page page = feed_since(cursor, false);
	assert_int_equal(page.count, 1);
	assert_int_equal(page.entries[0].kind, FEED_LINK_REMOVED);
	assert_int_equal(page.entries[0].id, 77);
}

static void *create_three(void *arg)
{
	(void)arg;
	create_at(3, 3);
	return NULL;
}

TEST(a_transaction_that_ends_late_is_not_skipped)
{
	database_kit_need();
	create_at(1, 1);
	struct feed_cursor cursor = feed_end();
	/* The create of g3 gets its transaction's number before that of g4, and ends after it. */
	database_kit_hold(url, "BEGIN; CREATE TEMP TABLE made AS SELECT * FROM link WHERE key = 'g1';"
	                       " UPDATE made SET key = 'g3', id = 9; INSERT INTO link SELECT * FROM made;"
	                       " DELETE FROM link WHERE key = 'g3'");
	database_kit_start_waiting(url, create_three, NULL);
	create_at(4, 4);
	struct feed_page page = feed_since(cursor, false);
	assert_int_equal(page.count, 1); /* at once, */
	assert_int_equal(page.entries[0].id, 4);
	assert_int_equal(feed_since(cursor, true).count, 0);
	cursor = page.cursor; /* but not behind it */
	database_kit_let_go();
	database_kit_join();
	page = feed_since(cursor, false);
	assert_int_equal(page.count, 2);
	assert_int_equal(page.entries[0].id, 3);
	assert_int_equal(page.entries[1].id, 4);
}

TEST(more_than_a_page_that_is_not_settled_is_a_loss)
{
	database_kit_need();
	struct feed_cursor cursor = feed_end();
	database_kit_hold(url, "BEGIN; SELECT txid_current()"); /* any program's */
	create_at(1, 1);
	struct feed_page page = {.cursor = cursor, .arena = &arena, .max = 2};
	assert_int_equal(store_feed(store, &page), 0);
	assert_int_equal(page.count, 1);
	assert_false(page.lost);
	create_at(2, 1);
	create_at(3, 1);
	assert_int_equal(store_feed(store, &page), 0);
	assert_true(page.lost); /* it tells of two of them, time and again */
	assert_false(page.more);
	page.settled = true;
	assert_int_equal(store_feed(store, &page), 0);
	assert_int_equal(page.count, 0);
	assert_false(page.lost);
	database_kit_let_go();
	page.settled = false;
	for (uint64_t last = 0; last != 3; last = page.count > 0 ? page.entries[page.count - 1].id : last) {
		assert_int_equal(store_feed(store, &page), 0);
		assert_true(page.lost || page.more || page.entries[page.count - 1].id == 3);
	}
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
