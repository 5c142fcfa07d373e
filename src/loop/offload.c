#include "loop/offload.h"

#include "base/hash.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FLIGHT_SLOTS = 1024 };

struct offload {
	const struct offload_ops *ops;
	void *ctx;
	size_t batch_max;
	size_t queue_max;

	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t wake;
	bool stopping;
	struct list queue;
	size_t queued;
	_Atomic size_t backlog; /* queued and running; read without the lock */
	struct list
	    flights[FLIGHT_SLOTS]; /* jobs with a `share`, from submission until their outcome is known */

	unsigned thread_count;
	pthread_t threads[];
};

static struct list *flight_slot(struct offload *o, const struct offload_job *job)
{
	return &o->flights[job->share_hash % FLIGHT_SLOTS];
}

static struct offload_job *flight_find_locked(struct offload *o, const struct offload_job *job)
{
	struct list *slot = flight_slot(o, job);
	for (struct list *node = slot->next; node != slot; node = node->next) {
		struct offload_job *other = container_of(node, struct offload_job, flight);
		if (other->share_hash == job->share_hash && str_eq(other->share, job->share))
			return other;
	}
	return NULL;
}

static void mail_open(struct mail *m)
{
	struct offload_job *job = container_of(m, struct offload_job, mail);
	job->done(job);
}

int offload_submit(struct offload *o, struct offload_job *job)
{
	list_init(&job->followers);
	list_init(&job->flight);
	list_init(&job->link);
	job->mail.open = mail_open;
	if (job->share.ptr)
		job->share_hash = hash_str(job->share, (uint64_t)(uintptr_t)o);

	int r = 0;
	pthread_mutex_lock(&o->lock);
	struct offload_job *leader = job->share.ptr ? flight_find_locked(o, job) : NULL;
	if (leader) {
		list_push(&leader->followers, &job->link);
	} else if (o->queued >= o->queue_max) {
		r = ERR_LIMIT;
	} else {
		if (job->share.ptr)
			list_push(flight_slot(o, job), &job->flight);
		list_push(&o->queue, &job->link);
		o->queued++;
		atomic_fetch_add_explicit(&o->backlog, 1, memory_order_relaxed);
		if (o->queued == 1)
			pthread_cond_signal(&o->wake);
	}
	pthread_mutex_unlock(&o->lock);
	return r;
}

size_t offload_backlog(const struct offload *o)
{
	return atomic_load_explicit(&o->backlog, memory_order_relaxed);
}

static size_t take_batch(struct offload *o, struct offload_job **batch)
{
	pthread_mutex_lock(&o->lock);
	while (o->queued == 0 && !o->stopping)
		pthread_cond_wait(&o->wake, &o->lock);
	size_t n = 0;
	while (n < o->batch_max) {
		struct list *node = list_pop(&o->queue);
		if (!node)
			break;
		batch[n++] = container_of(node, struct offload_job, link);
	}
	o->queued -= n;
	if (o->queued > 0)
		pthread_cond_signal(&o->wake); /* more than one batch: wake another thread */
	pthread_mutex_unlock(&o->lock);
	return n;
}

/* From here on, a new job of the same share runs by itself. */
static void end_flights(struct offload *o, struct offload_job **batch, size_t n)
{
	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < n; i++)
		list_remove(&batch[i]->flight);
	atomic_fetch_sub_explicit(&o->backlog, n, memory_order_relaxed);
	pthread_mutex_unlock(&o->lock);
}

static void hand_back(struct offload_job *job)
{
	if (job->origin)
		loop_post(job->origin, &job->mail);
	else
		job->done(job);
}

static void deliver(struct offload *o, struct offload_job *job)
{
	/* Followers first: once its mail is posted, the leader's memory is its owner's again. */
	struct list *node;
	while ((node = list_pop(&job->followers))) {
		struct offload_job *follower = container_of(node, struct offload_job, link);
		o->ops->adopt(o->ctx, follower, job);
		hand_back(follower);
	}
	hand_back(job);
}

static void *pool_thread(void *arg)
{
	struct offload *o = arg;
	struct offload_job *batch[OFFLOAD_BATCH_MAX];
	size_t n;
	while ((n = take_batch(o, batch)) > 0) {
		o->ops->run(o->ctx, batch, n);
		end_flights(o, batch, n);
		for (size_t i = 0; i < n; i++)
			deliver(o, batch[i]);
	}
	return NULL;
}

int offload_new(const struct offload_config *config, struct offload **ret, struct err *e)
{
	ASSERT(config->batch_max >= 1 && config->batch_max <= OFFLOAD_BATCH_MAX);
	struct offload *o = calloc(1, sizeof(*o) + config->threads * sizeof(pthread_t));
	if (!o)
		return err_set(e, ERR_NOMEM, "out of memory for the threads '%s'", config->name);
	o->ops = config->ops;
	o->ctx = config->ctx;
	o->batch_max = config->batch_max;
	o->queue_max = config->queue_max;
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->wake, NULL);
	list_init(&o->queue);
	for (size_t i = 0; i < FLIGHT_SLOTS; i++)
		list_init(&o->flights[i]);
	for (; o->thread_count < config->threads; o->thread_count++) {
		int r = thread_start(&o->threads[o->thread_count], config->name, pool_thread, o, e);
		if (r < 0) {
			offload_free(o);
			return r;
		}
	}
	*ret = o;
	return 0;
}

void offload_free(struct offload *o)
{
	if (!o)
		return;
	pthread_mutex_lock(&o->lock);
	o->stopping = true;
	pthread_cond_broadcast(&o->wake);
	pthread_mutex_unlock(&o->lock);
	for (unsigned i = 0; i < o->thread_count; i++)
		pthread_join(o->threads[i], NULL);
	pthread_cond_destroy(&o->wake);
	pthread_mutex_destroy(&o->lock);
	free(o);
}
