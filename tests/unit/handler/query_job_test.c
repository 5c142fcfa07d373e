#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handler/caller.h"
#include "handler/query_job.h"

#include <stdio.h>

/* A connection that only remembers what was answered, and a pool that only keeps what it was given. */
struct http_conn {
	struct arena arena;
	int replies, status, deferrals;
	char body[1024];
};

struct offload {
	struct offload_job *jobs[128];
	size_t count, max;
};

struct arena *http_conn_arena(struct http_conn *c)
{
	return &c->arena;
}

struct loop *http_conn_loop(struct http_conn *c)
{
	return (struct loop *)c;
}

int64_t loop_real_ms(const struct loop *l)
{
	(void)l;
	return 1;
}

int caller_recheck(const struct api *api, const struct caller *caller, bool *ret_ended)
{
	(void)api;
	(void)caller;
	*ret_ended = false;
	return 0;
}

void caller_reply_ended(struct http_conn *c, const struct caller *caller)
{
	(void)caller;
	c->replies++;
}

void http_conn_defer(struct http_conn *c)
{
	c->deferrals++;
}

void http_reply(struct http_conn *c, const struct http_response *r)
{
	c->replies++;
	c->status = r->status;
	snprintf(c->body, sizeof(c->body), "%.*s", STR_ARG(r->body));
}

int offload_submit(struct offload *o, struct offload_job *job)
{
	if (o->count == o->max)
		return ERR_LIMIT;
	o->jobs[o->count++] = job;
	return 0;
}

size_t offload_backlog(const struct offload *o)
{
	return o->count;
}

static struct offload hasher, query_pool;
static struct api api;
static struct api_worker worker = {.api = &api};
static struct http_conn conn;

static int start(void **state)
{
	(void)state;
	hasher = (struct offload){.max = HASH_QUEUE_MAX};
	query_pool = (struct offload){.max = ARRAY_LEN(query_pool.jobs)};
	for (int kind = 0; kind < HASH_KINDS; kind++)
		api.hashing[kind] = 0;
	api.hasher = &hasher;
	api.query_pool = &query_pool;
	conn = (struct http_conn){0};
	return 0;
}

static int stop(void **state)
{
	(void)state;
	arena_release(&conn.arena);
	return 0;
}

static void nothing(struct query_job *j)
{
	(void)j;
}

static struct query_job *new_job(void)
{
	struct query_job *j = query_job_new(&worker, &conn, sizeof(*j), nothing, nothing);
	assert_non_null(j);
	return j;
}

/* How many of that kind are taken before one is refused. */
static int fill(enum hash_kind kind)
{
	int taken = 0;
	conn.replies = 0;
	while (query_job_submit_hash(new_job(), kind))
		taken++;
	assert_int_equal(conn.replies, 1);
	assert_int_equal(conn.status, 503);
	return taken;
}

static void end_first_of_queue(void)
{
	struct offload_job *first = hasher.jobs[0];
	memmove(hasher.jobs, hasher.jobs + 1, --hasher.count * sizeof(*hasher.jobs));
	first->done(first);
}

static void each_kind_of_password_has_a_share_that_no_other_takes(void **state)
{
	(void)state;
	assert_int_equal(fill(HASH_SIGN_IN), HASH_SIGN_IN_MAX);
	assert_int_equal(fill(HASH_SET), HASH_SET_MAX);
	assert_int_equal(fill(HASH_UNLOCK), HASH_UNLOCK_MAX);
	assert_int_equal(hasher.count, HASH_QUEUE_MAX);
	assert_int_equal(conn.deferrals, HASH_QUEUE_MAX);
}

static void the_end_of_one_makes_room_for_one_of_its_kind(void **state)
{
	(void)state;
	fill(HASH_UNLOCK);
	fill(HASH_SET);
	for (int i = 0; i < 3; i++) {
		end_first_of_queue(); /* an unlock */
		assert_false(query_job_submit_hash(new_job(), HASH_SET));
		assert_true(query_job_submit_hash(new_job(), HASH_UNLOCK));
		assert_false(query_job_submit_hash(new_job(), HASH_UNLOCK));
	}
}

static void what_the_queue_did_not_take_keeps_no_share(void **state)
{
	(void)state;
	hasher.max = 2;
	assert_int_equal(fill(HASH_SET), 2);
	for (int i = 0; i < 2 * HASH_SET_MAX; i++)
		assert_false(query_job_submit_hash(new_job(), HASH_SET));
	hasher.max = HASH_QUEUE_MAX;
	assert_int_equal(fill(HASH_SET), HASH_SET_MAX - 2);
}

static void other_questions_take_no_share(void **state)
{
	(void)state;
	for (int i = 0; i < HASH_QUEUE_MAX; i++)
		query_job_submit(new_job());
	for (size_t i = 0; i < query_pool.count; i++)
		query_pool.jobs[i]->done(query_pool.jobs[i]);
	for (int kind = 0; kind < HASH_KINDS; kind++)
		assert_int_equal(api.hashing[kind], 0);
}

static void a_failure_is_told_as_the_one_of_who_failed(void **state)
{
	(void)state;
	struct query_job *j = new_job();
	j->result = ERR_UNAVAILABLE;
	assert_true(query_job_reply_failed(j));
	assert_int_equal(conn.status, 503);
	assert_non_null(strstr(conn.body, "The store does not answer"));
	j->result = query_job_sink_result(j, ERR_UNAVAILABLE);
	assert_true(query_job_reply_failed(j));
	assert_int_equal(conn.status, 503);
	assert_null(strstr(conn.body, "The store does not answer"));
	assert_non_null(strstr(conn.body, "sink.url"));
	j->result = query_job_sink_result(j, ERR_CORRUPT);
	assert_true(query_job_reply_failed(j));
	assert_int_equal(conn.status, 500);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(each_kind_of_password_has_a_share_that_no_other_takes),
	    TEST(the_end_of_one_makes_room_for_one_of_its_kind),
	    TEST(what_the_queue_did_not_take_keeps_no_share),
	    TEST(other_questions_take_no_share),
	    TEST(a_failure_is_told_as_the_one_of_who_failed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
