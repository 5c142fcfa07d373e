#include "client/pool.h"

#include "obs/log.h"
#include "os/retry.h"
#include "os/task.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { LOG_EVERY_MS = 1000 };

static const struct retry_policy retry_policy = {.min_ms = CONN_RETRY_MIN_MS, .max_ms = CONN_RETRY_MAX_MS};

/* A generation ends when the server fails. A failure that began in an earlier one is old news: ten threads
 * that connect to the same dead server count as one failure. */
struct conn_pool {
	const struct conn_driver *driver;
	void *ctx;
	const char *address;
	size_t max;
	atomic_bool is_avoided;    /* stored under the lock, see avoid_note_locked */
	atomic_bool is_stopped;    /* likewise */
	_Atomic int64_t logged_ms; /* the last time; 0: never */

	pthread_mutex_t lock; /* for all below; a leaf, but for the driver's close and the log */
	pthread_cond_t changed;
	struct list idle; /* the most recently used is the last */
	size_t idle_count;
	size_t open_count;       /* idle and in use */
	size_t connecting_count; /* more to come */
	uint64_t generation;
	bool is_failing; /* the last connect failed */
	bool is_suspect; /* a reply was late, and no connect has ended since */
	struct retry retry;
	struct err why; /* why it is failing or suspect */

	struct task reconnector; /* woken when there may be work for it */
};

bool conn_pool_is_failing(const struct conn_pool *p)
{
	return atomic_load_explicit(&p->is_avoided, memory_order_relaxed);
}

bool conn_pool_is_stopped(const struct conn_pool *p)
{
	return atomic_load_explicit(&p->is_stopped, memory_order_relaxed);
}

void conn_pool_log(struct conn_pool *p, const char *text)
{
	int64_t now_ms = clock_mono_ms(), logged_ms = atomic_load(&p->logged_ms);
	if ((logged_ms == 0 || now_ms - logged_ms >= LOG_EVERY_MS) &&
	    atomic_compare_exchange_strong(&p->logged_ms, &logged_ms, now_ms))
		log_warn("client", "%s", text);
}

/* --- health --- */

/* Call after a change of what it depends on. */
static void avoid_note_locked(struct conn_pool *p)
{
	bool is_alone = p->open_count == 0 || p->driver->shares_fate;
	atomic_store_explicit(&p->is_avoided, p->is_suspect || (p->is_failing && is_alone),
	                      memory_order_relaxed);
}

static void idle_close_locked(struct conn_pool *p)
{
	struct list *node;
	p->open_count -= p->idle_count;
	p->idle_count = 0;
	while ((node = list_pop(&p->idle)))
		p->driver->close(container_of(node, struct pool_conn, link));
}

static void failure_note_locked(struct conn_pool *p, int error, const struct err *why)
{
	if (p->driver->logs_failure && error == ERR_UNAVAILABLE && !p->is_failing)
		log_warn("client", "%s", why->text);
	retry_failed(&p->retry, &retry_policy, clock_mono_ms());
	p->generation++;
	p->why = *why;
	p->is_failing = true;
	if (p->is_suspect || p->driver->shares_fate)
		idle_close_locked(p);
	p->is_suspect = false;
}

/* If no connection can be made either, the server is down. */
static void late_note_locked(struct conn_pool *p, const struct err *why)
{
	ASSERT(p->driver->reconnector);
	p->is_suspect = !p->is_failing;
	if (p->is_failing)
		idle_close_locked(p);
	else
		p->why = *why;
	p->retry.next_ms = 0;
}

/* --- lending --- */

static void idle_push_locked(struct conn_pool *p, struct pool_conn *c)
{
	c->idle_since_ms = clock_mono_ms();
	list_push(&p->idle, &c->link);
	p->idle_count++;
}

/* The lock is not held while connecting. */
static struct pool_conn *connect_unlocking(struct conn_pool *p)
{
	void *conn = NULL;
	struct err why = {""};
	uint64_t generation = p->generation;
	p->connecting_count++;
	pthread_mutex_unlock(&p->lock);
	int r = p->driver->connect(p->ctx, &conn, &why);
	pthread_mutex_lock(&p->lock);
	p->connecting_count--;
	struct pool_conn *c = conn;
	if (r == 0) {
		c->pool = p;
		c->generation = generation;
		p->open_count++;
		p->is_failing = p->is_suspect = false;
		p->retry = (struct retry){0};
	} else if (generation == p->generation) {
		failure_note_locked(p, r, &why);
		task_wake(&p->reconnector);
	}
	avoid_note_locked(p);
	pthread_cond_broadcast(&p->changed);
	return c;
}

static bool has_room_locked(const struct conn_pool *p)
{
	return p->open_count + p->connecting_count < p->max;
}

/* While the server fails, one connect at a time; by a caller only if there is no reconnector. */
static bool may_connect_locked(const struct conn_pool *p)
{
	return has_room_locked(p) &&
	       (!p->is_failing ||
	        (!p->driver->reconnector && p->connecting_count == 0 && clock_mono_ms() >= p->retry.next_ms));
}

/* NULL: there is none now. While one was connecting another may have come back. */
static struct pool_conn *try_locked(struct conn_pool *p)
{
	for (bool has_tried = false; !p->is_suspect; has_tried = true) {
		struct pool_conn *c;
		if (p->idle_count > 0) {
			c = container_of(p->idle.prev, struct pool_conn, link);
			list_remove(&c->link);
			p->idle_count--;
			return c;
		}
		if (!may_connect_locked(p) || (has_tried && p->is_failing))
			return NULL;
		c = connect_unlocking(p);
		if (c)
			return c;
	}
	return NULL;
}

static struct pool_conn *take_locked(struct conn_pool *p, const struct timespec *until, struct err *e)
{
	struct pool_conn *c = NULL;
	bool is_late = false;
	while (!conn_pool_is_stopped(p) && !(c = try_locked(p)) && !is_late &&
	       (p->is_suspect || !conn_pool_is_failing(p)))
		is_late = !cond_wait_until(&p->changed, &p->lock, until);
	if (c)
		return c;
	struct err why = p->why;
	if (conn_pool_is_stopped(p))
		err_set(&why, 0, "%s is not asked any more, as curt stops", p->address);
	else if (!p->is_failing && !p->is_suspect)
		err_set(&why, 0, "%s: all %zu connections are in use", p->address, p->open_count);
	if (is_late)
		conn_pool_log(p, why.text);
	err_set(e, ERR_UNAVAILABLE, "%s", why.text);
	return NULL;
}

static void give_back(struct pool_conn *c, enum conn_verdict verdict, const struct err *why)
{
	struct conn_pool *p = c->pool;
	const struct conn_driver *d = p->driver;
	uint64_t generation = c->generation;
	if (verdict != CONN_KEEP)
		d->close(c);
	pthread_mutex_lock(&p->lock);
	bool is_old = d->shares_fate && generation != p->generation;
	if (verdict == CONN_KEEP && !is_old && (d->idle_max == 0 || p->idle_count < d->idle_max)) {
		idle_push_locked(p, c);
	} else {
		p->open_count--;
		if (verdict == CONN_KEEP)
			d->close(c);
	}
	if (verdict == CONN_LATE)
		late_note_locked(p, why);
	if (verdict == CONN_FAILED && !is_old)
		failure_note_locked(p, ERR_UNAVAILABLE, why);
	avoid_note_locked(p);
	if (p->is_failing || p->is_suspect) {
		pthread_cond_broadcast(&p->changed); /* there may be none left to wait for */
		task_wake(&p->reconnector);
	} else {
		pthread_cond_signal(&p->changed);
	}
	pthread_mutex_unlock(&p->lock);
}

/* Of a connection that lay idle, outside of the lock: it is a system call. */
static bool is_usable(const struct pool_conn *c)
{
	const struct conn_driver *d = c->pool->driver;
	if (d->idle_ms_max != 0 && clock_mono_ms() - c->idle_since_ms >= d->idle_ms_max)
		return false;
	return !d->is_alive || d->is_alive(c);
}

void *conn_pool_take(struct conn_pool *p, int64_t timeout_ms, struct err *e)
{
	struct timespec until = clock_mono_after((uint64_t)timeout_ms);
	for (;;) {
		pthread_mutex_lock(&p->lock);
		struct pool_conn *c = take_locked(p, &until, e);
		pthread_mutex_unlock(&p->lock);
		if (!c || c->idle_since_ms == 0 || is_usable(c))
			return c;
		give_back(c, CONN_CLOSE, NULL);
	}
}

void conn_pool_return(void *conn)
{
	struct pool_conn *c = conn;
	struct err why;
	if (c)
		give_back(c, c->pool->driver->reset ? c->pool->driver->reset(c, &why) : CONN_KEEP, &why);
}

/* --- the reconnector --- */

static int64_t reconnector_run(struct task *t)
{
	struct conn_pool *p = container_of(t, struct conn_pool, reconnector);
	int64_t delay_ms = TASK_ON_WAKE;
	pthread_mutex_lock(&p->lock);
	if ((p->is_failing || p->is_suspect) && has_room_locked(p) && clock_mono_ms() >= p->retry.next_ms) {
		struct pool_conn *c = connect_unlocking(p);
		if (c)
			idle_push_locked(p, c);
	}
	if ((p->is_failing || p->is_suspect) && has_room_locked(p))
		delay_ms = MAX(p->retry.next_ms - clock_mono_ms(), 0);
	pthread_mutex_unlock(&p->lock);
	return delay_ms;
}

/* --- life --- */

int conn_pool_new(const struct conn_driver *driver, void *ctx, const char *address, size_t max,
                  struct conn_pool **ret, struct err *e)
{
	ASSERT(max > 0);
	struct conn_pool *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "memory ran out");
	p->driver = driver;
	p->ctx = ctx;
	p->address = address;
	p->max = max;
	list_init(&p->idle);
	pthread_mutex_init(&p->lock, NULL);
	cond_init_mono(&p->changed);
	const struct task_config reconnector = {
	    .name = driver->reconnector, .run = reconnector_run, .first_ms = TASK_ON_WAKE};
	int r = driver->reconnector ? task_start(&p->reconnector, &reconnector, e) : 0;
	if (r != 0)
		conn_pool_free(p);
	else
		*ret = p;
	return r;
}

void conn_pool_stop(struct conn_pool *p)
{
	pthread_mutex_lock(&p->lock);
	atomic_store_explicit(&p->is_stopped, true, memory_order_relaxed);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void conn_pool_free(struct conn_pool *p)
{
	if (!p)
		return;
	task_stop(&p->reconnector);
	pthread_mutex_lock(&p->lock);
	while (p->open_count > p->idle_count || p->connecting_count > 0)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	idle_close_locked(p);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
