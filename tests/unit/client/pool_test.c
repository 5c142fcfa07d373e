/* What a pool does, whatever its connections are: against a server that does as a test says. */
#include "client/pool.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/clock.h"

enum { LONG_MS = 60000 };

/* --- the server --- */

enum mode {
	UP,
	AWAY,  /* it refuses connections */
	HANGS, /* who connects waits until it does something else */
};

static struct {
	_Atomic enum mode mode;
	atomic_uint room;             /* it takes so many, and refuses more */
	atomic_uint connecting;       /* those who wait */
	atomic_uint tried, made;      /* connects, and those that worked */
	atomic_int open, open_most;   /* connections */
	_Atomic pid_t maker, refused; /* threads that tried last */
} server;

struct fake {
	struct pool_conn base;
	unsigned number; /* from 1 on */
	bool is_dead;
	enum conn_verdict verdict; /* at its return */
	unsigned uses;             /* not atomic: only one thread has it */
};

static int fake_connect(void *ctx, void **ret, struct err *e)
{
	(void)ctx;
	atomic_fetch_add(&server.tried, 1);
	atomic_fetch_add(&server.connecting, 1);
	while (atomic_load(&server.mode) == HANGS)
		until_pause();
	atomic_fetch_sub(&server.connecting, 1);
	if (atomic_load(&server.mode) == AWAY || atomic_load(&server.made) >= atomic_load(&server.room)) {
		atomic_store(&server.refused, gettid());
		return err_set(e, ERR_UNAVAILABLE, "the server is down");
	}
	struct fake *f = calloc(1, sizeof(*f));
	f->number = atomic_fetch_add(&server.made, 1) + 1;
	atomic_store(&server.maker, gettid());
	int open = atomic_fetch_add(&server.open, 1) + 1, most = atomic_load(&server.open_most);
	while (open > most && !atomic_compare_exchange_weak(&server.open_most, &most, open))
		continue;
	*ret = f;
	return 0;
}

static void fake_close(void *conn)
{
	atomic_fetch_sub(&server.open, 1);
	free(conn);
}

static bool fake_is_alive(const void *conn)
{
	return !((const struct fake *)conn)->is_dead;
}

static enum conn_verdict fake_reset(void *conn, struct err *why)
{
	const struct fake *f = conn;
	err_set(why, 0, "%s", f->verdict == CONN_LATE ? "no answer in time" : "it failed");
	return f->verdict;
}

/* As PostgreSQL, and as Redis. */
static const struct conn_driver with_reconnector = {.reconnector = "reconnector",
                                                    .connect = fake_connect,
                                                    .close = fake_close,
                                                    .is_alive = fake_is_alive,
                                                    .reset = fake_reset};
static const struct conn_driver with_fate = {.shares_fate = true,
                                             .idle_max = 2,
                                             .idle_ms_max = 1000,
                                             .connect = fake_connect,
                                             .close = fake_close,
                                             .is_alive = fake_is_alive,
                                             .reset = fake_reset};

/* --- tests' own --- */

static struct conn_pool *pool;

static void pool_make(const struct conn_driver *driver, size_t max)
{
	assert_int_equal(conn_pool_new(driver, NULL, "the server", max, &pool, NULL), 0);
}

static int setup(void **state)
{
	memset(&server, 0, sizeof(server));
	server.room = UINT32_MAX;
	return 0;
}

static int teardown(void **state)
{
	conn_pool_free(pool);
	pool = NULL;
	os_fault_reset();
	return atomic_load(&server.open); /* all are closed */
}

static struct fake *take(void)
{
	struct err e = {""};
	struct fake *f = conn_pool_take(pool, LONG_MS, &e);
	if (!f)
		fail_msg("%s", e.text);
	return f;
}

static void give(struct fake *f, enum conn_verdict verdict)
{
	f->verdict = verdict;
	conn_pool_return(f);
}

/* Nobody waits, and the reason is this. */
static void assert_refused(const char *why)
{
	struct err e = {""};
	assert_null(conn_pool_take(pool, LONG_MS, &e));
	assert_string_equal(e.text, why);
}

/* Somebody who wants one, on a thread of its own. */
struct taker {
	pthread_t thread;
	_Atomic pid_t id;
	atomic_bool has_ended;
	int64_t timeout_ms;
	struct err why;
	unsigned number; /* of the connection that it got; 0: none */
};

static void *taker_run(void *arg)
{
	struct taker *t = arg;
	atomic_store(&t->id, gettid());
	struct fake *f = conn_pool_take(pool, t->timeout_ms, &t->why);
	t->number = f ? f->number : 0;
	conn_pool_return(f);
	atomic_store(&t->has_ended, true);
	return NULL;
}

/* And lets it come to where it waits. */
static void taker_start(struct taker *t, int64_t timeout_ms)
{
	t->timeout_ms = timeout_ms;
	assert_int_equal(pthread_create(&t->thread, NULL, taker_run, t), 0);
	UNTIL(atomic_load(&t->id) && thread_is_asleep(atomic_load(&t->id)));
	assert_false(atomic_load(&t->has_ended));
}

/* --- lending --- */

TEST(the_connection_that_was_used_last_is_lent_first)
{
	pool_make(&with_reconnector, 3);
	assert_int_equal(server.tried, 0);
	struct fake *a = take(), *b = take();
	give(a, CONN_KEEP);
	give(b, CONN_KEEP);
	a = take();
	assert_int_equal(a->number, 2);
	give(a, CONN_KEEP);
	assert_int_equal(server.made, 2);
	conn_pool_return(NULL);
}

TEST(a_connection_that_is_not_to_be_kept_is_closed)
{
	pool_make(&with_reconnector, 1);
	give(take(), CONN_CLOSE);
	assert_int_equal(server.open, 0);
	assert_false(conn_pool_is_failing(pool));
	struct fake *f = take();
	assert_int_equal(f->number, 2);
	give(f, CONN_KEEP);
}

TEST(an_idle_connection_that_is_dead_is_replaced)
{
	pool_make(&with_reconnector, 2);
	struct fake *a = take(), *b = take();
	a->is_dead = b->is_dead = true;
	give(a, CONN_KEEP);
	give(b, CONN_KEEP);
	a = take();
	assert_int_equal(a->number, 3);
	assert_int_equal(server.open, 1);
	assert_false(conn_pool_is_failing(pool));
	give(a, CONN_KEEP);
}

TEST(too_many_idle_ones_and_too_old_ones_are_closed)
{
	os_fault_clock_set(clock_real_ms(), clock_mono_ms());
	pool_make(&with_fate, 3);
	struct fake *all[] = {take(), take(), take()};
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		give(all[i], CONN_KEEP);
	assert_int_equal(server.open, 2);
	os_fault_clock_advance(999);
	give(take(), CONN_KEEP);
	assert_int_equal(server.made, 3);
	os_fault_clock_advance(999); /* the one that was not used is too old, but not looked at yet */
	struct fake *a = take(), *b = take();
	assert_int_equal(a->number, 2);
	assert_int_equal(b->number, 4);
	give(a, CONN_KEEP);
	give(b, CONN_KEEP);
}

TEST(a_taker_waits_when_all_are_lent)
{
	struct taker t = {0};
	pool_make(&with_reconnector, 1);
	struct fake *f = take();
	taker_start(&t, LONG_MS);
	give(f, CONN_KEEP);
	pthread_join(t.thread, NULL);
	assert_int_equal(t.number, 1);
}

TEST(a_place_that_becomes_free_is_as_good_as_a_connection)
{
	struct taker t = {0};
	pool_make(&with_fate, 1);
	struct fake *f = take();
	taker_start(&t, LONG_MS);
	give(f, CONN_CLOSE);
	pthread_join(t.thread, NULL);
	assert_int_equal(t.number, 2);
}

TEST(a_taker_waits_no_longer_than_its_timeout)
{
	struct err e = {""};
	pool_make(&with_reconnector, 1);
	struct fake *f = take();
	assert_null(conn_pool_take(pool, 0, &e));
	assert_string_equal(e.text, "the server: all 1 connections are in use");
	assert_null(conn_pool_take(pool, 0, NULL));
	assert_false(conn_pool_is_failing(pool));
	give(f, CONN_KEEP);
}

enum { THREADS = 12, ROUNDS = 500, CONNECTIONS = 3 };

static void *use_many(void *arg)
{
	unsigned *seed = arg;
	for (int i = 0; i < ROUNDS; i++) {
		struct fake *f = conn_pool_take(pool, LONG_MS, NULL);
		if (!f)
			continue;
		f->uses++;
		f->is_dead = rand_r(seed) % 16 == 0;
		give(f, rand_r(seed) % 8 ? CONN_KEEP : CONN_CLOSE);
	}
	return NULL;
}

static void users_start(pthread_t threads[THREADS], unsigned seeds[THREADS], void *(*run)(void *))
{
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, run, &seeds[i]), 0);
	}
}

static void join_all(const pthread_t threads[THREADS])
{
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

TEST(many_threads_share_few_connections_one_at_a_time)
{
	pthread_t threads[THREADS];
	unsigned seeds[THREADS];
	pool_make(&with_reconnector, CONNECTIONS);
	users_start(threads, seeds, use_many);
	join_all(threads);
	assert_true(server.open_most <= CONNECTIONS);
	assert_false(conn_pool_is_failing(pool));
}

/* --- a server that is down --- */

TEST(a_server_that_refuses_connections_makes_takers_fail_at_once)
{
	server.mode = AWAY;
	pool_make(&with_reconnector, 2);
	assert_false(conn_pool_is_failing(pool));
	assert_refused("the server is down");
	assert_int_equal(server.refused, gettid());
	assert_true(conn_pool_is_failing(pool));
	/* From now on others try. */
	unsigned tried = server.tried;
	UNTIL(atomic_load(&server.tried) > tried + 1);
	assert_int_not_equal(atomic_load(&server.refused), gettid());
	assert_refused("the server is down");
	assert_int_not_equal(atomic_load(&server.refused), gettid());
}

TEST(a_server_that_is_back_is_found_by_the_pool_itself)
{
	server.mode = AWAY;
	pool_make(&with_reconnector, 2);
	assert_refused("the server is down");
	server.mode = UP;
	UNTIL(!conn_pool_is_failing(pool));
	assert_int_not_equal(atomic_load(&server.maker), gettid());
	give(take(), CONN_KEEP);
	assert_int_equal(server.made, 1);
}

TEST(a_taker_that_cannot_connect_waits_for_an_open_connection)
{
	struct taker t = {0};
	server.room = 1;
	pool_make(&with_reconnector, 4);
	struct fake *f = take();
	taker_start(&t, LONG_MS);
	UNTIL(atomic_load(&server.refused) != 0);
	assert_false(conn_pool_is_failing(pool));
	give(f, CONN_KEEP);
	pthread_join(t.thread, NULL);
	assert_int_equal(t.number, 1);
	/* Idle ones are lent however often no other can be made. */
	unsigned tried = atomic_load(&server.tried);
	UNTIL(atomic_load(&server.tried) > tried + 1);
	f = take();
	assert_int_equal(f->number, 1);
	assert_false(conn_pool_is_failing(pool));
	/* The last one is gone: there is nothing to wait for. */
	give(f, CONN_CLOSE);
	assert_true(conn_pool_is_failing(pool));
	assert_refused("the server is down");
}

TEST(all_waiting_takers_fail_when_the_last_connection_is_closed)
{
	struct taker takers[3] = {0};
	server.room = 1;
	pool_make(&with_reconnector, 4);
	struct fake *f = take();
	for (size_t i = 0; i < ARRAY_LEN(takers); i++)
		taker_start(&takers[i], LONG_MS);
	give(f, CONN_CLOSE);
	for (size_t i = 0; i < ARRAY_LEN(takers); i++) {
		pthread_join(takers[i].thread, NULL);
		assert_string_equal(takers[i].why.text, "the server is down");
	}
}

/* --- a server that hangs --- */

TEST(a_late_answer_costs_its_own_connection_only)
{
	pool_make(&with_reconnector, 2);
	struct fake *late = take(), *other = take();
	give(other, CONN_KEEP);
	give(late, CONN_LATE);
	struct fake *a = take(), *b = take(); /* a new one proves that the server is well */
	assert_int_equal(a->number + b->number, 2 + 3);
	assert_int_not_equal(server.maker, gettid());
	assert_int_equal(server.made, 3);
	assert_false(conn_pool_is_failing(pool));
	give(a, CONN_KEEP);
	give(b, CONN_KEEP);
}

TEST(after_a_late_answer_a_server_that_takes_no_connections_is_given_up)
{
	pool_make(&with_reconnector, 3);
	struct fake *late = take(), *idle = take(), *lent = take();
	server.room = 3;
	give(idle, CONN_KEEP);
	give(late, CONN_LATE);
	UNTIL(!conn_pool_is_failing(pool)); /* one is still lent */
	assert_int_equal(server.open, 1);
	give(lent, CONN_KEEP); /* what works is lent */
	lent = take();
	assert_int_equal(lent->number, 3);
	give(lent, CONN_LATE);
	assert_true(conn_pool_is_failing(pool));
	assert_refused("the server is down");
}

TEST(a_late_answer_makes_the_pool_sick_and_takers_wait)
{
	struct taker patient = {0}, hasty = {0};
	pool_make(&with_reconnector, 2);
	struct fake *late = take(), *idle = take();
	give(idle, CONN_KEEP);
	server.mode = HANGS;
	give(late, CONN_LATE);
	assert_true(conn_pool_is_failing(pool));
	UNTIL(atomic_load(&server.connecting) == 1);
	taker_start(&patient, LONG_MS);
	assert_int_equal(pthread_create(&hasty.thread, NULL, taker_run, &hasty), 0);
	pthread_join(hasty.thread, NULL);
	assert_int_equal(hasty.number, 0);
	assert_string_equal(hasty.why.text, "no answer in time");
	assert_int_equal(server.tried, 3); /* one at a time */
	server.mode = UP;
	pthread_join(patient.thread, NULL);
	assert_int_not_equal(patient.number, 0);
	assert_false(conn_pool_is_failing(pool));
}

/* --- a server that fails for all --- */

TEST(a_shared_failure_closes_all_connections_and_counts_once)
{
	enum { LENT = 5 };
	os_fault_clock_set(clock_real_ms(), clock_mono_ms());
	pool_make(&with_fate, LENT + 2);
	struct fake *lent[LENT], *good = take(), *idle = take();
	for (size_t i = 0; i < LENT; i++)
		lent[i] = take();
	give(idle, CONN_KEEP);
	for (size_t i = 0; i < LENT; i++)
		give(lent[i], CONN_FAILED);
	assert_int_equal(server.open, 1);
	assert_true(conn_pool_is_failing(pool));
	assert_refused("it failed");
	give(good, CONN_KEEP); /* of before */
	assert_int_equal(server.open, 0);
	assert_refused("it failed");
	os_fault_clock_advance(CONN_RETRY_MIN_MS); /* it did not double */
	good = take();
	assert_false(conn_pool_is_failing(pool));
	give(good, CONN_KEEP);
	assert_int_equal(server.open, 1);
}

TEST(the_pause_doubles_up_to_its_most_and_starts_anew)
{
	os_fault_clock_set(clock_real_ms(), clock_mono_ms());
	server.mode = AWAY;
	pool_make(&with_fate, 2);
	assert_refused("the server is down");
	unsigned tried = 1;
	for (int64_t pause_ms = CONN_RETRY_MIN_MS; pause_ms < 4 * CONN_RETRY_MAX_MS; pause_ms *= 2) {
		int64_t most_ms = MIN(pause_ms, (int64_t)CONN_RETRY_MAX_MS);
		os_fault_clock_advance(most_ms - most_ms / 4 - 1);
		assert_refused("the server is down");
		assert_int_equal(server.tried, tried);
		os_fault_clock_advance(most_ms / 4 + 1);
		assert_refused("the server is down");
		assert_int_equal(server.tried, ++tried);
	}
	server.mode = UP;
	os_fault_clock_advance(CONN_RETRY_MAX_MS);
	give(take(), CONN_FAILED);
	os_fault_clock_advance(CONN_RETRY_MIN_MS);
	give(take(), CONN_KEEP);
}

static size_t ended_count(const struct taker *takers, size_t n)
{
	size_t ended = 0;
	for (size_t i = 0; i < n; i++)
		ended += atomic_load(&takers[i].has_ended);
	return ended;
}

TEST(a_failed_server_is_tried_by_one_taker_at_a_time)
{
	struct taker takers[8] = {0};
	os_fault_clock_set(clock_real_ms(), clock_mono_ms());
	pool_make(&with_fate, 16);
	give(take(), CONN_FAILED);
	server.mode = HANGS;
	os_fault_clock_advance(CONN_RETRY_MIN_MS);
	for (size_t i = 0; i < ARRAY_LEN(takers); i++)
		assert_int_equal(pthread_create(&takers[i].thread, NULL, taker_run, &takers[i]), 0);
	UNTIL(ended_count(takers, ARRAY_LEN(takers)) == ARRAY_LEN(takers) - 1);
	assert_int_equal(server.tried, 2);
	server.mode = UP;
	unsigned served = 0;
	for (size_t i = 0; i < ARRAY_LEN(takers); i++) {
		pthread_join(takers[i].thread, NULL);
		served += takers[i].number != 0;
	}
	assert_int_equal(served, 1);
}

/* --- a server that comes and goes --- */

static atomic_bool is_over;
static enum conn_verdict bad_verdict;

static void *use_until_over(void *arg)
{
	unsigned *seed = arg;
	while (!atomic_load(&is_over)) {
		struct fake *f = conn_pool_take(pool, 1, NULL);
		if (!f)
			continue;
		f->uses++;
		f->is_dead = rand_r(seed) % 8 == 0;
		unsigned fate = (unsigned)rand_r(seed) % 16;
		give(f, fate == 0 ? bad_verdict : fate == 1 ? CONN_CLOSE : CONN_KEEP);
	}
	return NULL;
}

static void flap(const struct conn_driver *driver, enum conn_verdict verdict)
{
	enum { TURNS = 100 };
	static const enum mode modes[] = {UP, AWAY, UP, HANGS};
	pthread_t threads[THREADS];
	unsigned seeds[THREADS];
	struct fake *f;
	bad_verdict = verdict;
	atomic_store(&is_over, false);
	pool_make(driver, CONNECTIONS);
	users_start(threads, seeds, use_until_over);
	for (int i = 0; i < TURNS; i++) {
		atomic_store(&server.mode, modes[(size_t)i % ARRAY_LEN(modes)]);
		until_pause();
	}
	atomic_store(&server.mode, UP);
	atomic_store(&is_over, true);
	join_all(threads);
	assert_true(server.open_most <= CONNECTIONS);
	UNTIL((f = conn_pool_take(pool, 0, NULL)));
	assert_false(conn_pool_is_failing(pool));
	give(f, CONN_KEEP);
}

TEST(a_pool_survives_a_flapping_server)
{
	flap(&with_reconnector, CONN_LATE);
}

TEST(a_pool_without_a_reconnector_survives_it_too)
{
	flap(&with_fate, CONN_FAILED);
}

/* --- ending --- */

static void *free_in_thread(void *arg)
{
	struct taker *t = arg;
	atomic_store(&t->id, gettid());
	conn_pool_free(pool);
	atomic_store(&t->has_ended, true);
	return NULL;
}

TEST(freeing_waits_for_lent_connections)
{
	struct taker t = {0};
	pool_make(&with_reconnector, 2);
	struct fake *a = take(), *b = take();
	assert_int_equal(pthread_create(&t.thread, NULL, free_in_thread, &t), 0);
	UNTIL(atomic_load(&t.id) && thread_is_asleep(atomic_load(&t.id)));
	give(a, CONN_KEEP);
	assert_false(atomic_load(&t.has_ended));
	give(b, CONN_CLOSE);
	pthread_join(t.thread, NULL);
	pool = NULL;
	assert_int_equal(server.open, 0);
}

TEST(freeing_waits_for_a_connect)
{
	struct taker t = {0};
	pool_make(&with_reconnector, 2);
	struct fake *late = take();
	server.mode = HANGS;
	give(late, CONN_LATE);
	UNTIL(atomic_load(&server.connecting) == 1);
	assert_int_equal(pthread_create(&t.thread, NULL, free_in_thread, &t), 0);
	UNTIL(atomic_load(&t.id) && thread_is_asleep(atomic_load(&t.id)));
	assert_false(atomic_load(&t.has_ended));
	server.mode = UP;
	pthread_join(t.thread, NULL);
	pool = NULL;
	assert_int_equal(server.open, 0);
}

TEST(a_stopped_pool_lends_nothing_and_wakes_takers)
{
	struct taker t = {0};
	pool_make(&with_fate, 1);
	struct fake *f = take();
	taker_start(&t, LONG_MS);
	assert_false(conn_pool_is_stopped(pool));
	conn_pool_stop(pool);
	assert_true(conn_pool_is_stopped(pool));
	pthread_join(t.thread, NULL);
	assert_int_equal(t.number, 0);
	give(f, CONN_KEEP);
	assert_refused("the server is not asked any more, as curt stops");
}

TEST_MAIN(.setup = setup, .teardown = teardown)
