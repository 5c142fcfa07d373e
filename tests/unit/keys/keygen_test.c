#include "keys/keygen.h"
#include "lease/backends.h"
#include "lib/database_kit.h"
#include "lib/keys_kit.h"
#include "lib/test.h"

enum { STOCKS = 2, LOW = 1500, HIGH = 2500, LIFE_MS = 20000, KEYS_MAX = 100000 };

static struct temp folder;
static char (*const urls)[POSTGRES_KIT_URL_BYTES] = database_kit_urls;
static struct keys_db *dbs[STOCKS];
static struct leases *leases;
static struct key_source *origin;

static int setup(void **state)
{
	database_kit_renew(state);
	temp_init(&folder);
	assert_int_equal(leases_local_open(folder.path, &leases, NULL), 0);
	origin = pipe_source_new(1);
	for (int i = 0; i < STOCKS && urls[i][0]; i++)
		assert_int_equal(keys_db_new(str_of(urls[i]), &dbs[i], NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < STOCKS; i++)
		keys_db_free(steal(dbs[i]));
	origin->ops->free(origin);
	leases_free(leases);
	temp_release(&folder);
	return 0;
}

static struct keygen *start(size_t held_max)
{
	const struct keygen_config config = {
	    .origin = origin,
	    .leases = leases,
	    .dbs = dbs,
	    .db_count = STOCKS,
	    .low = LOW,
	    .high = HIGH,
	    .held_max = held_max,
	    .lease_ms = LIFE_MS,
	};
	struct keygen *g = NULL;
	database_kit_need();
	assert_int_equal(keygen_start(&config, &g, NULL), 0);
	return g;
}

static uint64_t stop(struct keygen *g)
{
	struct keygen_sums sums;
	keygen_stop(g, &sums);
	return sums.made;
}

static uint64_t count_in(int db)
{
	uint64_t count = 0;
	assert_int_equal(keys_db_count(dbs[db], &count, NULL), 0);
	return count;
}

static void drain(int db, size_t n, struct pipe_seen *seen)
{
	struct source_key keys[KEYS_DB_KEYS_MAX];
	for (int64_t end_ms = until_now_ms() + UNTIL_MS; n > 0;) {
		size_t count = 0;
		assert_true(until_now_ms() < end_ms);
		assert_int_equal(keys_db_take(dbs[db], MIN(n, KEYS_DB_KEYS_MAX), keys, &count, NULL), 0);
		pipe_seen_note(seen, keys, count);
		n -= count;
	}
}

TEST(a_keys_db_below_the_lower_mark_is_filled_to_the_upper_one)
{
	struct pipe_seen seen;
	struct keygen *g = start(STOCKS);
	pipe_seen_init(&seen, KEYS_MAX);
	for (int i = 0; i < STOCKS; i++)
		UNTIL(count_in(i) == HIGH);
	drain(0, HIGH - LOW, &seen); /* at the mark is not below it */
	drain(1, HIGH - LOW + 1, &seen);
	UNTIL(count_in(1) == HIGH);
	assert_int_equal(count_in(0), LOW);
	drain(0, 1, &seen);
	UNTIL(count_in(0) == HIGH);
	assert_int_equal(stop(g), 2 * HIGH + 2 * (HIGH - LOW + 1));
	pipe_seen_release(&seen);
}

TEST(several_generators_share_the_keys_dbs_and_make_no_key_twice)
{
	struct pipe_seen seen;
	struct keygen *first = start(1), *second = start(1);
	pipe_seen_init(&seen, KEYS_MAX);
	for (int i = 0; i < STOCKS; i++)
		UNTIL(count_in(i) == HIGH);
	stop(first);
	for (int i = 0; i < STOCKS; i++)
		drain(i, HIGH, &seen);
	UNTIL(count_in(0) == HIGH || count_in(1) == HIGH);
	struct keygen *third = start(1); /* the other one's place is free */
	for (int i = 0; i < STOCKS; i++)
		UNTIL(count_in(i) == HIGH);
	stop(second);
	stop(third);
	for (int i = 0; i < STOCKS; i++)
		drain(i, HIGH, &seen);
	assert_int_equal(seen.count, (size_t)2 * STOCKS * HIGH);
	pipe_seen_release(&seen);
}

/* Somebody with a larger number was there: it tries again with a new lease each time, and adds nothing. */
TEST(a_generator_that_was_succeeded_adds_nothing)
{
	struct pipe_seen seen;
	struct keygen *g = start(STOCKS);
	pipe_seen_init(&seen, KEYS_MAX);
	UNTIL(count_in(0) == HIGH);
	postgres_kit_run(urls[0], "UPDATE key_fence SET fence = 1000000");
	drain(0, HIGH, &seen);
	char name[KEYS_DB_NAME_BYTES], lease_name[LEASE_NAME_BYTES];
	struct lease *lease = NULL;
	assert_int_equal(keys_db_name(dbs[0], name, NULL), 0);
	leased_worker_name("keygen", str_of(name), lease_name);
	UNTIL(leases->ops->take(leases, str_of(lease_name), LIFE_MS, &lease) == 0); /* it has let go */
	assert_int_equal(count_in(0), 0);
	leases->ops->release(leases, lease);
	stop(g);
	assert_int_equal(count_in(0), 0);
	pipe_seen_release(&seen);
}

/* It counts and adds nothing, as when its disk is full. A sequence counts also what is rolled back. */
TEST(keys_that_a_keys_db_does_not_take_are_kept_until_it_does)
{
	struct pipe_seen seen;
	struct keygen_sums sums;
	database_kit_need();
	for (int i = 0; i < STOCKS; i++) {
		assert_int_equal(count_in(i), 0);
		postgres_kit_run(urls[i],
		                 "CREATE SEQUENCE tries;"
		                 "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		                 "PERFORM nextval('tries'); RAISE 'no space left'; END $$;"
		                 "CREATE TRIGGER refuse BEFORE INSERT ON key_stock FOR EACH STATEMENT "
		                 "EXECUTE FUNCTION refuse()");
	}
	struct keygen *g = start(STOCKS);
	for (int i = 0; i < STOCKS; i++)
		UNTIL(postgres_kit_ask(urls[i], "SELECT CASE WHEN is_called THEN last_value ELSE 0 END "
		                                "FROM tries") >= 2);
	for (int i = 0; i < STOCKS; i++)
		postgres_kit_run(urls[i], "DROP FUNCTION refuse CASCADE; DROP SEQUENCE tries");
	pipe_seen_init(&seen, STOCKS * HIGH + 1); /* so no number beyond those that were needed */
	for (int i = 0; i < STOCKS; i++)
		UNTIL(count_in(i) == HIGH);
	keygen_stop(g, &sums);
	for (int i = 0; i < STOCKS; i++)
		drain(i, HIGH, &seen);
	assert_int_equal(sums.made, STOCKS * HIGH);
	assert_int_equal(sums.lost, 0);
	pipe_seen_release(&seen);
}

TEST(a_keys_db_that_is_down_does_not_keep_it_from_the_others)
{
	struct keys_db *away = NULL;
	database_kit_need();
	assert_int_equal(keys_db_new(STR("postgres://nobody@127.0.0.1:1/none"), &away, NULL), 0);
	struct keys_db *here = dbs[0];
	dbs[0] = away;
	struct keygen *g = start(STOCKS);
	UNTIL(count_in(1) == HIGH);
	stop(g);
	dbs[0] = here;
	keys_db_free(away);
}

TEST_MAIN(.group_setup = database_kit_two, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
