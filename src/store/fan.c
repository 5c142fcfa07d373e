#include "store/fan.h"

#include "os/thread.h"

#include <stdlib.h>

struct fan {
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t work;
	struct list queue;
	bool ends;
	unsigned thread_count;
	pthread_t threads[];
};

/* One fan_run: how many tasks are still with the threads. */
struct fan_call {
	size_t left;
	pthread_cond_t done;
};

static struct fan_task *task_pop_locked(struct fan *f)
{
	struct list *node = list_pop(&f->queue);
	struct fan_task *task = node ? container_of(node, struct fan_task, list) : NULL;
	if (task)
		task->waits = false;
	return task;
}

static void *thread_main(void *arg)
{
	struct fan *f = arg;
	pthread_mutex_lock(&f->lock);
	for (;;) {
		struct fan_task *task = task_pop_locked(f);
		if (!task && f->ends)
			break;
		if (!task) {
			pthread_cond_wait(&f->work, &f->lock);
			continue;
		}
		struct fan_call *call = task->call;
		pthread_mutex_unlock(&f->lock);
		task->run(task);
		pthread_mutex_lock(&f->lock);
		if (--call->left == 0)
			pthread_cond_signal(&call->done);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int fan_new(unsigned threads, struct fan **ret, struct err *e)
{
	struct fan *f = calloc(1, sizeof(*f) + threads * sizeof(f->threads[0]));
	if (!f)
		return err_set(e, ERR_NOMEM, "out of memory");
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->work, NULL);
	list_init(&f->queue);
	for (; f->thread_count < threads; f->thread_count++) {
		int r = thread_start(&f->threads[f->thread_count], "curt-shard", thread_main, f, e);
		if (r < 0) {
			fan_free(f);
			return r;
		}
	}
	*ret = f;
	return 0;
}

void fan_free(struct fan *f)
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

/* Runs what no thread has taken yet. */
static void take_back_locked(struct fan *f, struct fan_task *const *tasks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!tasks[i]->waits)
			continue;
		tasks[i]->waits = false;
		list_remove(&tasks[i]->list);
		tasks[i]->call->left--;
		pthread_mutex_unlock(&f->lock);
		tasks[i]->run(tasks[i]);
		pthread_mutex_lock(&f->lock);
	}
}

void fan_run(struct fan *f, struct fan_task *const *tasks, size_t n)
{
	if (n == 0)
		return;
	if (n == 1 || f->thread_count == 0) {
		for (size_t i = 0; i < n; i++)
			tasks[i]->run(tasks[i]);
		return;
	}
	struct fan_call call = {.left = n - 1};
	pthread_cond_init(&call.done, NULL);
	pthread_mutex_lock(&f->lock);
	for (size_t i = 1; i < n; i++) {
		tasks[i]->call = &call;
		tasks[i]->waits = true;
		list_push(&f->queue, &tasks[i]->list);
		pthread_cond_signal(&f->work);
	}
	pthread_mutex_unlock(&f->lock);
	tasks[0]->run(tasks[0]);
	pthread_mutex_lock(&f->lock);
	take_back_locked(f, tasks + 1, n - 1);
	while (call.left > 0)
		pthread_cond_wait(&call.done, &f->lock);
	pthread_mutex_unlock(&f->lock);
	pthread_cond_destroy(&call.done);
}
