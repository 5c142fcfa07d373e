/*
 * Connections that are lost in the middle: what a PostgreSQL store says afterwards is what happened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/postgres_kit.h"
#include "lib/relay.h"
#include "lib/store_kit.h"
#include "lib/store_ledger.h"
#include "store/backends.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char url[POSTGRES_KIT_URL_BYTES];
static struct relay *relay;
static struct store *store; /* through the relay */
static struct arena arena;

#define NEEDS_SERVER()          \
	do {                    \
		(void)state;    \
		if (!url[0])    \
			skip(); \
	} while (0)

static struct store *open_at(const char *where)
{
	struct store *s = NULL;
	struct err e = {""};
	const struct store_postgres_config config = {.url = str_of(where)};
	if (store_postgres_open(&config, &s, &e) != 0)
		fail_msg("%s", e.text);
	return s;
}

/* The URL with another address in it. */
static void url_through(const char *address, char ret[POSTGRES_KIT_URL_BYTES])
{
	const char *begin = strstr(url, "://") + 3, *path = strchr(begin, '/');
	const char *at = memchr(begin, '@', (size_t)(path - begin));
	const char *host = at ? at + 1 : begin;
	snprintf(ret, POSTGRES_KIT_URL_BYTES, "%.*s%s%s", (int)(host - url), url, address, path);
}

static void relay_here(void)
{
	char through[POSTGRES_KIT_URL_BYTES], server[128];
	const char *begin = strstr(url, "://") + 3, *path = strchr(begin, '/');
	const char *at = memchr(begin, '@', (size_t)(path - begin));
	const char *host = at ? at + 1 : begin;
	snprintf(server, sizeof(server), "%.*s", (int)(path - host), host);
	relay = relay_start(server);
	url_through(relay_address(relay), through);
	store = open_at(through);
}

static int setup(void **state)
{
	(void)state;
	if (!url[0])
		return 0;
	postgres_kit_database_empty(url);
	relay_here();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	store_free(store);
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

static void a_commit_that_never_arrived_is_done_again(void **state)
{
	NEEDS_SERVER();
	for (uint64_t id = 1; id <= 5; id++) {
		struct store_write w = kit_generated(&arena, id);
		relay_cut_at(relay, commit, false, false);
		assert_int_equal(kit_apply(store, &w), 0);
		assert_int_equal(rows(), id);
	}
}

static void a_commit_whose_answer_was_lost_is_found_out_and_not_done_twice(void **state)
{
	NEEDS_SERVER();
	for (uint64_t id = 1; id <= 5; id++) {
		/* Doing it twice would be a conflict with itself. */
		struct store_write w[] = {kit_generated(&arena, id), kit_user(&arena, NULL, ROLE_VIEWER)};
		relay_cut_at(relay, commit, true, false);
		assert_int_equal(store_apply(store, w, 2), 0);
		assert_int_equal(w[0].result, 0);
		assert_int_equal(rows(), id);
		assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM users"), id);
		assert_true(w[1].user.id > 0);
	}
}

static void a_batch_that_is_cut_off_before_its_commit_is_done_again(void **state)
{
	NEEDS_SERVER();
	struct store_write w = kit_generated(&arena, 1);
	relay_cut_at(relay, "links_insert", true, false);
	assert_int_equal(kit_apply(store, &w), 0);
	relay_cut_at(relay, "links_insert", false, false);
	w = kit_generated(&arena, 2);
	assert_int_equal(kit_apply(store, &w), 0);
	assert_int_equal(rows(), 2);
}

static void a_commit_that_nobody_can_tell_of_is_uncertain(void **state)
{
	NEEDS_SERVER();
	struct store_write w = kit_generated(&arena, 1);
	relay_cut_at(relay, commit, true, true);
	assert_int_equal(store_apply(store, &w, 1), ERR_UNCERTAIN);
	struct err e = {""};
	assert_int_equal(store_ping(store, &e), ERR_UNAVAILABLE);
	assert_true(strlen(e.text) > 0);
	w = kit_generated(&arena, 2);
	assert_int_equal(store_apply(store, &w, 1), ERR_UNAVAILABLE);
	relay_set(relay, RELAY_PASS);
	while (store_ping(store, &e) != 0) /* until its rest is over */
		usleep(10000);
	w = kit_generated(&arena, 2);
	assert_int_equal(kit_apply(store, &w), 0);
}

static void a_lookup_survives_a_server_that_was_restarted(void **state)
{
	NEEDS_SERVER();
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

static atomic_bool is_over;

/* Ends connections of the store's at random moments, as a server that crashes would. */
static void *terminate(void *arg)
{
	(void)arg;
	while (!atomic_load(&is_over)) {
		postgres_kit_run(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
		                      " current_database() AND pid <> pg_backend_pid() AND random() < 0.5");
		usleep((useconds_t)(random() % 30000));
	}
	return NULL;
}

static void what_was_acknowledged_is_there_and_what_was_refused_is_not(void **state)
{
	NEEDS_SERVER();
	struct ledger ledger = {0};
	pthread_t thread;
	unsigned done = 0;
	atomic_store(&is_over, false);
	/* The ledger knows the first user by number, and a number that was rolled back is not used again. */
	assert_int_equal(ledger_apply(&ledger, store, 1, 3), 0);
	assert_int_equal(pthread_create(&thread, NULL, terminate, NULL), 0);
	for (unsigned b = 2; b < LEDGER_BATCHES; b++) {
		if (ledger_apply(&ledger, store, b, 3) == 0)
			done++;
		else
			usleep(20000); /* the server is left alone for a while */
		ledger_lease(&ledger, store);
	}
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	struct store *well = open_at(url);
	ledger_check(&ledger, well);
	store_free(well);
	assert_true(done > 0);
	print_message("%u of %u batches were done\n", done, LEDGER_BATCHES - 2);
}

static int group_setup(void **state)
{
	(void)state;
	if (postgres_kit_is_there())
		postgres_kit_database_make(url);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	if (url[0])
		postgres_kit_database_remove(url);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_commit_that_never_arrived_is_done_again),
	    TEST(a_commit_whose_answer_was_lost_is_found_out_and_not_done_twice),
	    TEST(a_batch_that_is_cut_off_before_its_commit_is_done_again),
	    TEST(a_commit_that_nobody_can_tell_of_is_uncertain),
	    TEST(a_lookup_survives_a_server_that_was_restarted),
	    TEST(what_was_acknowledged_is_there_and_what_was_refused_is_not),
	};
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
