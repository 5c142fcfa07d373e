/*
 * What a pool of PostgreSQL connections does when a connection fails or cannot be made, and when an answer
 * does not come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/postgres.h"
#include "lib/database_kit.h"
#include "lib/until.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static const char *const url = database_kit_urls[0];

/* A server that has room for so many connections of ours. */
struct room {
	unsigned max;
	atomic_uint made, refused;
	_Atomic pid_t maker; /* the thread that made the last one */
};

static int room_take(struct pg_conn *c, void *ctx, struct err *e)
{
	(void)c;
	struct room *room = ctx;
	if (atomic_load(&room->made) == room->max) {
		atomic_fetch_add(&room->refused, 1);
		return err_set(e, ERR_UNAVAILABLE, "too many connections");
	}
	atomic_fetch_add(&room->made, 1);
	atomic_store(&room->maker, gettid());
	return 0;
}

static struct pg_pool *pool_of(const char *text, size_t max, struct room *room)
{
	struct pg_pool *p = NULL;
	struct err e = {""};
	if (pg_pool_new(str_of(text), max, room_take, room, &p, &e) != 0)
		fail_msg("%s", e.text);
	return p;
}

static struct pg_conn *take(struct pg_pool *p)
{
	struct err e = {""};
	struct pg_conn *c = pg_take(p, &e);
	if (!c)
		fail_msg("%s", e.text);
	return c;
}

static const struct pg_statement backend = {"backend", "SELECT pg_backend_pid()::bigint"};

static int64_t backend_of(struct pg_conn *c)
{
	struct pg_result r;
	struct err e = {""};
	struct pg_query q = pg_query(c, &backend);
	if (pg_ask(&q, &r, &e) != 0)
		fail_msg("%s", e.text);
	int64_t pid = pg_get_int(&r, 0, 0);
	pg_result_end(&r);
	return pid;
}

struct waiter {
	struct pg_pool *pool;
	int64_t backend; /* 0: it got none */
};

static void *take_in_thread(void *arg)
{
	struct waiter *w = arg;
	struct pg_conn *c = pg_take(w->pool, NULL);
	w->backend = c ? backend_of(c) : 0;
	pg_return(c);
	return NULL;
}

static void who_cannot_have_a_new_connection_waits_for_one_that_there_is(void **state)
{
	(void)state;
	database_kit_need();
	struct room room = {.max = 1};
	struct pg_pool *p = pool_of(url, 4, &room);
	struct waiter w = {.pool = p};
	pthread_t thread;
	struct pg_conn *c = take(p);
	int64_t pid = backend_of(c);
	assert_int_equal(pthread_create(&thread, NULL, take_in_thread, &w), 0);
	UNTIL(atomic_load(&room.refused) > 0);
	assert_false(pg_is_sick(p));
	pg_return(c);
	pthread_join(thread, NULL);
	assert_int_equal(w.backend, pid);
	/* Idle ones are lent however often no other can be made. */
	unsigned refused = atomic_load(&room.refused);
	UNTIL(atomic_load(&room.refused) > refused + 2);
	c = take(p);
	assert_int_equal(backend_of(c), pid);
	pg_return(c);
	assert_false(pg_is_sick(p));
	pg_pool_free(p);
}

/* The server says nothing until the connection's patience is over, and goes on. */
static void answer_miss(struct pg_conn *c, struct relay *relay)
{
	struct err e = {""};
	relay_set(relay, RELAY_HOLD);
	assert_int_equal(pg_timeout(c, 100, &e), ERR_UNAVAILABLE);
	assert_string_equal(e.text, "the server did not answer in time");
	assert_true(pg_conn_failed(c));
	relay_set(relay, RELAY_PASS);
}

static void a_late_answer_costs_its_own_connection_only(void **state)
{
	(void)state;
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES];
	struct relay *relay = database_kit_relay(url, through);
	struct room room = {.max = 3};
	struct pg_pool *p = pool_of(through, 2, &room);
	struct pg_conn *late = take(p), *other = take(p);
	int64_t pid = backend_of(other);
	pg_return(other);
	answer_miss(late, relay);
	pg_return(late);
	struct pg_conn *a = take(p), *b = take(p); /* a new one proves that the server is well */
	assert_true(backend_of(a) == pid || backend_of(b) == pid);
	assert_int_equal(atomic_load(&room.made), 3);
	assert_false(pg_is_sick(p));
	pg_return(a);
	pg_return(b);
	pg_pool_free(p);
	relay_stop(relay);
}

static void after_a_late_answer_a_server_that_takes_no_connections_is_given_up(void **state)
{
	(void)state;
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES];
	struct relay *relay = database_kit_relay(url, through);
	struct room room = {.max = 2};
	struct pg_pool *p = pool_of(through, 2, &room);
	struct pg_conn *late = take(p), *other = take(p);
	struct err e = {""};
	pg_return(other);
	answer_miss(late, relay);
	pg_return(late);
	assert_null(pg_take(p, &e));
	assert_string_equal(e.text, "too many connections");
	assert_true(pg_is_sick(p));
	pg_pool_free(p);
	relay_stop(relay);
}

static void a_slow_statement_is_ended_by_the_server_and_its_connection_stays(void **state)
{
	(void)state;
	database_kit_need();
	struct room room = {.max = 1};
	struct err e = {""};
	struct pg_pool *p = pool_of(url, 1, &room);
	pg_pool_timeout(p, 2000);
	struct pg_conn *c = take(p);
	assert_int_equal(pg_run(c, "SELECT pg_sleep(60)", &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "statement timeout"));
	assert_false(pg_conn_failed(c));
	pg_return(c);
	assert_false(pg_is_sick(p));
	pg_return(take(p));
	pg_pool_free(p);
}

/* Frozen, and back: nobody asks meanwhile, and whoever did would not be the one who waits. */
static void a_server_that_froze_is_found_again_by_the_pool_itself(void **state)
{
	(void)state;
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES], hasty[2 * POSTGRES_KIT_URL_BYTES + 32];
	struct relay *relay = database_kit_relay(url, through);
	snprintf(hasty, sizeof(hasty), "%s%sconnect_timeout=2", through, strchr(through, '?') ? "&" : "?");
	struct room room = {.max = 9};
	struct pg_pool *p = pool_of(hasty, 2, &room);
	struct pg_conn *c = take(p);
	assert_int_equal(atomic_load(&room.maker), gettid());
	relay_set(relay, RELAY_HOLD);
	assert_int_equal(pg_timeout(c, 100, NULL), ERR_UNAVAILABLE);
	pg_return(c);
	assert_true(pg_is_sick(p)); /* who can go elsewhere knows it at once */
	assert_null(pg_take(p, NULL));
	assert_true(pg_is_sick(p));
	relay_set(relay, RELAY_PASS);
	UNTIL(!pg_is_sick(p));
	assert_int_not_equal(atomic_load(&room.maker), gettid());
	unsigned made = atomic_load(&room.made);
	pg_return(take(p));
	assert_int_equal(atomic_load(&room.made), made);
	pg_pool_free(p);
	relay_stop(relay);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(who_cannot_have_a_new_connection_waits_for_one_that_there_is),
	    cmocka_unit_test(a_late_answer_costs_its_own_connection_only),
	    cmocka_unit_test(after_a_late_answer_a_server_that_takes_no_connections_is_given_up),
	    cmocka_unit_test(a_slow_statement_is_ended_by_the_server_and_its_connection_stays),
	    cmocka_unit_test(a_server_that_froze_is_found_again_by_the_pool_itself),
	};
	return cmocka_run_group_tests(tests, database_kit_one, database_kit_down);
}
