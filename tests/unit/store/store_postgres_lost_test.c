/*
 * Connections that are lost in the middle: what a PostgreSQL store says afterwards is what happened.
 */
#include "lib/database_kit.h"
#include "lib/os_fault.h"
#include "lib/store_kit.h"
#include "lib/store_ledger.h"
#include "lib/test.h"
#include "store/backends.h"

enum { HASTE = 8 };

static const char *const url = database_kit_urls[0];
static struct relay *relay;
static struct store *store; /* through the relay */
static struct arena arena;

static int setup(void **state)
{
	if (!url[0])
		return 0;
	postgres_kit_database_empty(url);
	char through[2 * POSTGRES_KIT_URL_BYTES];
	relay = database_kit_relay(url, through);
	store = database_kit_store(through);
	return 0;
}

static pthread_t thread;
static bool thread_runs;
static atomic_bool is_over;

static void thread_end(void)
{
	atomic_store(&is_over, true);
	if (thread_runs)
		pthread_join(thread, NULL);
	thread_runs = false;
}

static int teardown(void **state)
{
	thread_end(); /* of a test that failed in the middle */
	store_free(store);
	os_fault_reset();
	relay_stop(relay);
	store = NULL;
	relay = NULL;
	arena_release(&arena);
	return 0;
}

static int64_t rows(void)
{
	return postgres_kit_ask(url, "SELECT count(*) FROM link");
}

static const char commit[] = "txn_commit"; /* the statement's name, which travels with each use */

TEST(a_commit_that_never_arrived_is_done_again)
{
	database_kit_need();
	for (uint64_t id = 1; id <= 5; id++) {
		struct store_write w = kit_generated(&arena, id);
		relay_cut_at(relay, commit, false, false);
		assert_int_equal(kit_apply(store, &w), 0);
		assert_int_equal(rows(), id);
	}
}

TEST(a_commit_whose_answer_was_lost_is_found_out_and_not_done_twice)
{
	database_kit_need();
	for (uint64_t id = 1; id <= 5; id++) {
		/* Doing it twice would be a conflict with itself. */
		struct store_write link = kit_generated(&arena, id);
		struct registry_write user = kit_user(&arena, NULL, ROLE_VIEWER);
		relay_cut_at(relay, commit, true, false);
		assert_int_equal(kit_apply(store, &link), 0);
		assert_int_equal(rows(), id);
		relay_cut_at(relay, commit, true, false);
		assert_int_equal(kit_apply(store, &user), 0);
		assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM users"), id);
		assert_true(user.user.id > 0);
	}
}

/* The link goes while it is found out what became of the COMMIT: nobody can tell it from one that was never
 * made, and to make it again would bring back what somebody removed. */
TEST(a_link_that_goes_before_its_commit_is_found_out_is_uncertain)
{
	database_kit_need();
	postgres_kit_run(url, "CREATE FUNCTION take_away() RETURNS trigger LANGUAGE plpgsql AS"
	                      " 'BEGIN DELETE FROM link WHERE id = 1; RETURN new; END';"
	                      "CREATE TRIGGER found_out BEFORE UPDATE ON commit_mark FOR EACH ROW"
	                      " WHEN (old.sequence = new.sequence) EXECUTE FUNCTION take_away()");
	struct store_write batch[] = {kit_alias(&arena, 1, "gone"), kit_alias(&arena, 2, "stays")};
	relay_cut_at(relay, commit, true, false);
	assert_int_equal(store_apply(store, batch, 2), 0);
	assert_int_equal(batch[0].result, ERR_UNCERTAIN);
	assert_int_equal(batch[1].result, 0);
	assert_int_equal(rows(), 1);
	postgres_kit_run(url, "DROP FUNCTION take_away CASCADE");
}

TEST(a_commit_whose_answer_was_lost_still_tells_who_lost_a_name)
{
	database_kit_need();
	struct store_write alias = kit_alias(&arena, 1, "g5");
	assert_int_equal(kit_apply(store, &alias), 0);
	struct store_write w[] = {kit_generated(&arena, 5), kit_generated(&arena, 6)};
	w[0].link.tags = w[1].link.tags = STR("[\"t\"]");
	relay_cut_at(relay, commit, true, false);
	assert_int_equal(store_apply(store, w, 2), 0);
	assert_int_equal(w[0].result, ERR_CONFLICT);
	assert_int_equal(w[1].result, 0);
	assert_int_equal(rows(), 2);
	assert_int_equal(postgres_kit_ask(url, "SELECT sum(id)::bigint FROM tag"), 6);
}

TEST(a_batch_that_is_cut_off_before_its_commit_is_done_again)
{
	database_kit_need();
	struct store_write w = kit_generated(&arena, 1);
	relay_cut_at(relay, "links_insert", true, false);
	assert_int_equal(kit_apply(store, &w), 0);
	relay_cut_at(relay, "links_insert", false, false);
	w = kit_generated(&arena, 2);
	assert_int_equal(kit_apply(store, &w), 0);
	assert_int_equal(rows(), 2);
}

TEST(a_commit_that_nobody_can_tell_of_is_uncertain)
{
	database_kit_need();
	os_fault_clock_fast(HASTE); /* it asks for seconds */
	struct store_write w;
	int r;
	/* In haste it may also be given up before the commit. */
	UNTIL((w = kit_generated(&arena, 1), relay_cut_at(relay, commit, true, true),
	       r = store_apply(store, &w, 1)) != ERR_UNAVAILABLE);
	assert_int_equal(r, ERR_UNCERTAIN);
	struct err e = {""};
	assert_int_equal(store_ping(store, &e), ERR_UNAVAILABLE);
	assert_true(strlen(e.text) > 0);
	w = kit_generated(&arena, 2);
	assert_int_equal(store_apply(store, &w, 1), ERR_UNAVAILABLE);
	relay_set(relay, RELAY_PASS);
	UNTIL(store_ping(store, &e) == 0); /* its rest is over */
	uint64_t id = 2;
	UNTIL((w = kit_generated(&arena, id++), store_apply(store, &w, 1) == 0 && w.result == 0));
}

TEST(a_lookup_survives_a_server_that_was_restarted)
{
	database_kit_need();
	struct store_write w = kit_generated(&arena, 1);
	assert_int_equal(kit_apply(store, &w), 0);
	assert_int_equal(kit_find_generated(store, &arena, 1), 0);
	relay_set(relay, RELAY_CUT);
	relay_set(relay, RELAY_PASS);
	assert_int_equal(kit_find_generated(store, &arena, 1), 0);
	relay_cut_at(relay, "links_by_key", true, false);
	assert_int_equal(kit_find_generated(store, &arena, 1), 0);
}

/* --- all at random --- */

static atomic_uint batch; /* that is being done */

static void terminate_once(void)
{
	usleep((useconds_t)(random() % 20000)); /* any moment will do: the outcome must be right after each */
	postgres_kit_run(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
	                      " current_database() AND pid <> pg_backend_pid() AND random() < 0.5");
}

/* Ends connections of the store's at random moments of each batch, as a server that crashes would. */
static void *terminate(void *arg)
{
	(void)arg;
	for (unsigned met = 0; !atomic_load(&is_over); until_pause()) {
		if (atomic_load(&batch) == met)
			continue;
		met = atomic_load(&batch);
		do
			terminate_once();
		while (random() % 2);
	}
	return NULL;
}

TEST(what_was_acknowledged_is_there_and_what_was_refused_is_not)
{
	database_kit_need();
	struct ledger ledger = {0};
	unsigned done = 0;
	struct err e;
	atomic_store(&is_over, false);
	/* The ledger knows the first user by number, and a number that was rolled back is not used again. */
	assert_int_equal(ledger_apply(&ledger, store, 1, 3), 0);
	assert_int_equal(pthread_create(&thread, NULL, terminate, NULL), 0);
	thread_runs = true;
	for (unsigned b = 2; b < LEDGER_BATCHES; b++) {
		atomic_store(&batch, b);
		if (ledger_apply(&ledger, store, b, 3) == 0)
			done++;
		else
			UNTIL(store_ping(store, &e) == 0); /* the server was left alone for a while */
		ledger_lease(&ledger, store);
	}
	thread_end();
	struct store *well = database_kit_store(url);
	ledger_check(&ledger, well);
	store_free(well);
	assert_true(done > 0);
	print_message("%u of %u batches were done\n", done, LEDGER_BATCHES - 2);
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
