#include "lib/test.h"
#include "loop/offload.h"

enum { JOBS = 2000 };

struct job {
	struct offload_job job;
	int input;
	int output;
	bool adopted;
	_Atomic int done;
};

/* The pool's work: squares. The gate lets a test hold it while jobs gather behind it. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool closed;
	int waiting;
	size_t runs, largest, ran;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct loop *loop;
static pthread_t loop_thread_id;
static struct job jobs[JOBS];

static void run(void *ctx, struct offload_job **batch, size_t n)
{
	(void)ctx;
	pthread_mutex_lock(&gate.lock);
	gate.waiting++;
	pthread_cond_broadcast(&gate.changed);
	while (gate.closed)
		pthread_cond_wait(&gate.changed, &gate.lock);
	gate.waiting--;
	gate.runs++;
	gate.ran += n;
	gate.largest = MAX(gate.largest, n);
	pthread_mutex_unlock(&gate.lock);
	for (size_t i = 0; i < n; i++) {
		struct job *j = container_of(batch[i], struct job, job);
		j->output = j->input * j->input;
	}
}

static void adopt(void *ctx, struct offload_job *follower, const struct offload_job *leader)
{
	(void)ctx;
	struct job *to = container_of(follower, struct job, job);
	to->output = container_of(leader, const struct job, job)->output;
	to->adopted = true;
}

static const struct offload_ops pool_ops = {run, adopt};

static _Atomic int done_count;
static bool wrong_thread;

static void done(struct offload_job *job)
{
	struct job *j = container_of(job, struct job, job);
	wrong_thread |= !pthread_equal(pthread_self(), loop_thread_id);
	j->done++;
	done_count++;
}

static void *loop_main(void *arg)
{
	loop_run(arg);
	return NULL;
}

static struct offload *start(unsigned threads, size_t batch_max, size_t queue_max)
{
	struct loop_config config = {.streams_max = 1, .metrics = metrics_register()};
	assert_int_equal(loop_new(&config, &loop, NULL), 0);
	assert_int_equal(pthread_create(&loop_thread_id, NULL, loop_main, loop), 0);
	gate.closed = false;
	gate.runs = gate.largest = gate.ran = 0;
	done_count = 0;
	wrong_thread = false;
	for (int i = 0; i < JOBS; i++)
		jobs[i] = (struct job){.job = {.origin = loop, .done = done}, .input = i};
	struct offload *o;
	struct offload_config pool = {.name = "pool",
	                              .threads = threads,
	                              .batch_max = batch_max,
	                              .queue_max = queue_max,
	                              .ops = &pool_ops};
	assert_int_equal(offload_new(&pool, &o, NULL), 0);
	return o;
}

/* offload_free finishes everything; then the loop opens the last mail and ends. */
static void stop(struct offload *o)
{
	offload_free(o);
	loop_stop(loop);
	pthread_join(loop_thread_id, NULL);
	loop_free(loop);
	assert_false(wrong_thread);
}

static void gate_close(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed = true;
	pthread_mutex_unlock(&gate.lock);
}

static void gate_wait_for(int waiting)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.waiting < waiting)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed = false;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
}

TEST(every_job_is_done_once_on_its_own_loop)
{
	struct offload *o = start(3, 16, JOBS);
	for (int i = 0; i < JOBS; i++)
		assert_int_equal(offload_submit(o, &jobs[i].job), 0);
	stop(o);
	assert_int_equal(done_count, JOBS);
	for (int i = 0; i < JOBS; i++) {
		assert_int_equal(jobs[i].done, 1);
		assert_int_equal(jobs[i].output, i * i);
	}
	assert_true(gate.largest <= 16);
}

TEST(what_waits_is_done_in_one_batch)
{
	struct offload *o = start(1, 512, JOBS);
	gate_close();
	assert_int_equal(offload_submit(o, &jobs[0].job), 0);
	gate_wait_for(1);
	for (int i = 1; i < 400; i++)
		assert_int_equal(offload_submit(o, &jobs[i].job), 0);
	gate_open();
	stop(o);
	assert_int_equal(done_count, 400);
	assert_int_equal(gate.runs, 2);
	assert_int_equal(gate.largest, 399);
}

TEST(equal_jobs_share_one_flight_queued_or_under_way)
{
	struct offload *o = start(1, 512, JOBS);
	for (int i = 0; i < 100; i++) {
		jobs[i].job.share = i % 2 ? STR("odd") : STR("even");
		jobs[i].input = i % 2 ? 3 : 2;
	}
	gate_close();
	assert_int_equal(offload_submit(o, &jobs[0].job), 0);
	gate_wait_for(1); /* "even" is under way, "odd" will be in the queue */
	for (int i = 1; i < 100; i++)
		assert_int_equal(offload_submit(o, &jobs[i].job), 0);
	gate_open();
	stop(o);
	assert_int_equal(done_count, 100);
	assert_int_equal(gate.ran, 2);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(jobs[i].output, i % 2 ? 9 : 4);
		assert_int_equal(jobs[i].adopted, i > 1);
	}
}

TEST(a_flight_that_has_landed_is_not_boarded)
{
	struct offload *o = start(1, 512, JOBS);
	jobs[0].job.share = jobs[1].job.share = STR("same");
	assert_int_equal(offload_submit(o, &jobs[0].job), 0);
	while (!jobs[0].done)
		sched_yield();
	assert_int_equal(offload_submit(o, &jobs[1].job), 0);
	stop(o);
	assert_int_equal(gate.ran, 2);
	assert_false(jobs[1].adopted);
}

TEST(a_full_queue_refuses_but_flights_can_still_be_shared)
{
	struct offload *o = start(1, 512, 2);
	jobs[1].job.share = jobs[4].job.share = STR("k");
	gate_close();
	assert_int_equal(offload_submit(o, &jobs[0].job), 0);
	gate_wait_for(1);
	assert_int_equal(offload_submit(o, &jobs[1].job), 0);
	assert_int_equal(offload_submit(o, &jobs[2].job), 0);
	assert_int_equal(offload_submit(o, &jobs[3].job), ERR_LIMIT);
	assert_int_equal(offload_submit(o, &jobs[4].job), 0);
	gate_open();
	stop(o);
	assert_int_equal(done_count, 4);
	assert_int_equal(jobs[3].done, 0);
}

TEST_MAIN()
