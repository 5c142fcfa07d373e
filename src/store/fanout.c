#include "store/fanout.h"

#include "base/list.h"
#include "os/thread.h"

#include <stdlib.h>

struct fanout {
	pthread_mutex_t lock; /* guards all below, and the fanout_calls */
	pthread_cond_t work;
	struct list queue; /* of calls with work that no thread has started */
	bool ends;
	unsigned thread_count;
	pthread_t threads[];
};

/* One fanout_run. Lives on the caller's stack. */
struct fanout_call {
	struct list list;
	void (*run)(void *ctx, size_t i);
	void *ctx;
	size_t n, begun, ended;
	pthread_cond_t done;
};

/* Runs the next index that no thread has started. */
static void call_step_locked(struct fanout *f, struct fanout_call *call)
{
	size_t i = call->begun++;
	if (call->begun == call->n)
		list_remove(&call->list);
	pthread_mutex_unlock(&f->lock);
	call->run(call->ctx, i);
	pthread_mutex_lock(&f->lock);
	if (++call->ended == call->n)
		pthread_cond_signal(&call->done);
}

static void *thread_main(void *arg)
{
	struct fanout *f = arg;
	pthread_mutex_lock(&f->lock);
	while (!f->ends) {
		if (list_empty(&f->queue))
			pthread_cond_wait(&f->work, &f->lock);
		else
			call_step_locked(f, container_of(f->queue.next, struct fanout_call, list));
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int fanout_new(unsigned threads, struct fanout **ret, struct err *e)
{
	struct fanout *f = calloc(1, sizeof(*f) + threads * sizeof(f->threads[0]));
	if (!f)
		return err_set(e, ERR_NOMEM, "out of memory");
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->work, NULL);
	list_init(&f->queue);
	for (; f->thread_count < threads; f->thread_count++) {
		int r = thread_start(&f->threads[f->thread_count], "curt-shard", thread_main, f, e);
		if (r < 0) {
			fanout_free(f);
			return r;
		}
	}
	*ret = f;
	return 0;
}

void fanout_free(struct fanout *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	f->ends = true;
	pthread_cond_broadcast(&f->work);
	pthread_mutex_unlock(&f->lock);
	for (unsigned i = 0; i < f->thread_count; i++)
		pthread_join(f->threads[i], NULL);
	pthread_cond_destroy(&f->work);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

void fanout_run(struct fanout *f, size_t n, void (*run)(void *ctx, size_t i), void *ctx)
{
	if (n <= 1 || f->thread_count == 0) {
		for (size_t i = 0; i < n; i++)
			run(ctx, i);
		return;
	}
	struct fanout_call call = {.run = run, .ctx = ctx, .n = n};
	pthread_cond_init(&call.done, NULL);
	pthread_mutex_lock(&f->lock);
	list_push(&f->queue, &call.list);
	for (size_t i = 1; i < n; i++)
		pthread_cond_signal(&f->work);
	while (call.begun < n)
		call_step_locked(f, &call);
	while (call.ended < n)
		pthread_cond_wait(&call.done, &f->lock);
	pthread_mutex_unlock(&f->lock);
	pthread_cond_destroy(&call.done);
}
