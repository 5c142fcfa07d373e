#include "conn_double.h"
#include "handler/caller.h"
#include "handler/query_job.h"
#include "lib/test.h"

/* A pool that only keeps what it was given. */
struct offload {
	struct offload_job *jobs[128];
	size_t count, max;
};

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
	hasher = (struct offload){.max = HASH_QUEUE_MAX};
	query_pool = (struct offload){.max = ARRAY_LEN(query_pool.jobs)};
	for (int kind = 0; kind < HASH_KINDS; kind++)
		api.hashing[kind] = 0;
	api.hasher = &hasher;
	api.query_pool = &query_pool;
	conn = (struct http_conn){0};
	double_real_ms = 1;
	return 0;
}

static int stop(void **state)
{
	arena_release(&conn.arena);
	return 0;
}

static void nothing(struct query_job *j)
{
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

TEST(each_kind_of_password_has_a_share_that_no_other_takes)
{
	assert_int_equal(fill(HASH_SIGN_IN), HASH_SIGN_IN_MAX);
	assert_int_equal(fill(HASH_SET), HASH_SET_MAX);
	assert_int_equal(fill(HASH_UNLOCK), HASH_UNLOCK_MAX);
	assert_int_equal(hasher.count, HASH_QUEUE_MAX);
	assert_int_equal(conn.deferrals, HASH_QUEUE_MAX);
}

TEST(the_end_of_one_makes_room_for_one_of_its_kind)
{
	fill(HASH_UNLOCK);
	fill(HASH_SET);
	for (int i = 0; i < 3; i++) {
		end_first_of_queue(); /* an unlock */
		assert_false(query_job_submit_hash(new_job(), HASH_SET));
		assert_true(query_job_submit_hash(new_job(), HASH_UNLOCK));
		assert_false(query_job_submit_hash(new_job(), HASH_UNLOCK));
	}
}

TEST(what_the_queue_did_not_take_keeps_no_share)
{
	hasher.max = 2;
	assert_int_equal(fill(HASH_SET), 2);
	for (int i = 0; i < 2 * HASH_SET_MAX; i++)
		assert_false(query_job_submit_hash(new_job(), HASH_SET));
	hasher.max = HASH_QUEUE_MAX;
	assert_int_equal(fill(HASH_SET), HASH_SET_MAX - 2);
}

TEST(other_questions_take_no_share)
{
	for (int i = 0; i < HASH_QUEUE_MAX; i++)
		query_job_submit(new_job());
	for (size_t i = 0; i < query_pool.count; i++)
		query_pool.jobs[i]->done(query_pool.jobs[i]);
	for (int kind = 0; kind < HASH_KINDS; kind++)
		assert_int_equal(api.hashing[kind], 0);
}

TEST(a_failure_is_told_as_the_one_of_who_failed)
{
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

TEST_MAIN(.setup = start, .teardown = stop)
