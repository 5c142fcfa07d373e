/*
 * The pool. A thread that wants a connection gets an idle one, or makes one while there are fewer than the
 * most, or waits for one to come back.
 *
 * When connecting fails, only the pool's own thread (the mender) tries it again, after a rest, until it has
 * worked. Meanwhile the connections that there are go on being lent, and when there are none, the server is
 * sick: whoever asks is told at once that it is away.
 *
 * When an answer is late, nobody knows whether that one connection hangs or the server. The mender makes a
 * new one, for which everybody waits: if that works, the others are as good as before, and otherwise they are
 * given up.
 */
#include "client/postgres.h"

#include "client/postgres_conn.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPTIONS_MAX = 64, TELL_MS = 1000 };

struct pg_pool {
	char *address;
	PQconninfoOption *options;         /* owns the strings of the next two */
	const char *keywords[OPTIONS_MAX]; /* up to a NULL */
	const char *values[OPTIONS_MAX];
	int (*setup)(struct pg_conn *, void *ctx, struct err *e);
	void *ctx;
	size_t max;
	int64_t timeout_ms; /* for answers */

	pthread_mutex_t lock; /* guards what follows; is_sick may be peeked at without */
	pthread_cond_t changed;
	struct pg_conn **idle; /* the last one was used last */
	size_t idle_count;
	size_t open_count;   /* idle and lent */
	size_t making_count; /* more to come */
	bool is_failing;     /* the last attempt to make one failed: only the mender makes them */
	bool is_doubted;     /* an answer was late, and the mender has not made a new one yet */
	atomic_bool is_sick; /* it is doubted, or failing and there are none */
	int64_t rest_ms;
	int64_t rest_until_ms;
	struct err why_failing;
	int64_t told_ms; /* when the log was told of trouble last; 0: never */

	pthread_t mender;
	bool has_mender;
	bool is_ending;
	pthread_cond_t mend; /* there may be work for the mender */
};

/* --- the URL --- */

static const char *option_get(const PQconninfoOption *options, const char *name)
{
	for (const PQconninfoOption *o = options; o->keyword; o++) {
		if (strcmp(o->keyword, name) == 0 && o->val && o->val[0])
			return o->val;
	}
	return NULL;
}

/* What the URL leaves open. A server that vanished without a word is found out within a few seconds. */
static const char *const usual[][2] = {
    {"fallback_application_name", "curt"},
    {"client_encoding", "UTF8"},
    {"connect_timeout", "3"},
    {"keepalives_idle", "10"},
    {"keepalives_interval", "2"},
    {"keepalives_count", "3"},
    {"tcp_user_timeout", "10000"},
};
_Static_assert(PG_CONNECT_TIMEOUT_MS == 3000, "connect_timeout is in seconds");

static void options_gather(struct pg_pool *p)
{
	size_t n = 0;
	for (const PQconninfoOption *o = p->options; o->keyword; o++) {
		if (!o->val)
			continue;
		ASSERT(n + ARRAY_LEN(usual) + 1 < OPTIONS_MAX);
		p->keywords[n] = o->keyword;
		p->values[n++] = o->val;
	}
	for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
		if (option_get(p->options, usual[i][0]))
			continue;
		p->keywords[n] = usual[i][0];
		p->values[n++] = usual[i][1];
	}
}

static int address_make(struct pg_pool *p)
{
	const char *host = option_get(p->options, "host"), *port = option_get(p->options, "port");
	const char *user = option_get(p->options, "user"), *name = option_get(p->options, "dbname");
	if (!host)
		host = option_get(p->options, "hostaddr");
	int n = asprintf(&p->address, "%s:%s/%s", host ? host : "localhost", port ? port : "5432",
	                 name   ? name
	                 : user ? user
	                        : "");
	if (n < 0)
		p->address = NULL;
	return p->address ? 0 : ERR_NOMEM;
}

/* libpq's own message may repeat the text, and so the password. */
static int url_parse(struct pg_pool *p, struct str url, struct err *e)
{
	if (!str_starts(url, STR("postgres://")) && !str_starts(url, STR("postgresql://")))
		return err_set(e, ERR_INVALID, "the URL of a PostgreSQL database begins with postgres://");
	CLEANUP(freep) char *text = strndup(url.ptr, url.len);
	char *message = NULL;
	p->options = text ? PQconninfoParse(text, &message) : NULL;
	PQfreemem(message);
	if (!p->options)
		return err_set(e, text ? ERR_INVALID : ERR_NOMEM,
		               "the URL of the PostgreSQL database cannot be read; it is "
		               "postgres://USER:PASSWORD@HOST:PORT/DATABASE, special characters "
		               "percent-encoded, and options as libpq knows them behind a '?'");
	options_gather(p);
	return address_make(p) == 0 ? 0 : err_set(e, ERR_NOMEM, "memory ran out");
}

/* --- health --- */

/* A caller may only say that the database did not do it; the log says why, once in a while. libpq's sentences
 * name the host and the user, never the password. */
static void trouble_tell_locked(struct pg_pool *p, const char *why)
{
	int64_t now_ms = clock_mono_ms();
	if (p->told_ms != 0 && now_ms - p->told_ms < TELL_MS)
		return;
	p->told_ms = now_ms;
	log_warn("client", "%s: %s", p->address, why);
}

void pg_pool_tell(struct pg_pool *p, const char *why)
{
	pthread_mutex_lock(&p->lock);
	trouble_tell_locked(p, why);
	pthread_mutex_unlock(&p->lock);
}

/* To be called when what it follows from has changed. */
static void sick_note_locked(struct pg_pool *p)
{
	atomic_store_explicit(&p->is_sick, p->is_doubted || (p->is_failing && p->open_count == 0),
	                      memory_order_relaxed);
}

static void idle_close_locked(struct pg_pool *p)
{
	p->open_count -= p->idle_count;
	while (p->idle_count > 0)
		pg_conn_close(p->idle[--p->idle_count]);
}

/* Those who were in doubt are not asked any more. */
static void failure_note_locked(struct pg_pool *p, int error, const struct err *why)
{
	if (error == ERR_UNAVAILABLE && !p->is_failing)
		log_warn("client", "%s", why->text);
	p->rest_ms = p->rest_ms ? MIN(p->rest_ms * 2, PG_REST_MAX_MS) : PG_REST_MIN_MS;
	p->rest_until_ms = clock_mono_ms() + p->rest_ms;
	p->why_failing = *why;
	p->is_failing = true;
	if (p->is_doubted)
		idle_close_locked(p);
	p->is_doubted = false;
}

static void success_note_locked(struct pg_pool *p)
{
	p->rest_ms = 0;
	p->is_failing = false;
	p->is_doubted = false;
}

/* When no new one can be made either, the server is away. */
static void late_note_locked(struct pg_pool *p)
{
	p->is_doubted = !p->is_failing;
	if (p->is_failing)
		idle_close_locked(p);
	else
		err_set(&p->why_failing, 0, "%s: the server did not answer in time", p->address);
	p->rest_until_ms = 0;
}

/* --- lending --- */

static int conn_make(struct pg_pool *p, struct pg_conn **ret, struct err *e)
{
	struct pg_conn *c;
	int r = pg_conn_open(p->keywords, p->values, p->address, p->timeout_ms, &c, e);
	if (r != 0)
		return r;
	c->pool = p;
	r = p->setup ? p->setup(c, p->ctx, e) : 0;
	if (r != 0) {
		pg_conn_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* The lock is not held while connecting. */
static struct pg_conn *conn_make_unlocking(struct pg_pool *p)
{
	struct pg_conn *c = NULL;
	struct err why = {""};
	p->making_count++;
	pthread_mutex_unlock(&p->lock);
	int r = conn_make(p, &c, &why);
	pthread_mutex_lock(&p->lock);
	p->making_count--;
	if (r == 0) {
		p->open_count++;
		success_note_locked(p);
	} else {
		failure_note_locked(p, r, &why);
		pthread_cond_signal(&p->mend);
	}
	sick_note_locked(p);
	pthread_cond_broadcast(&p->changed);
	return c;
}

static bool has_room_locked(const struct pg_pool *p)
{
	return p->open_count + p->making_count < p->max;
}

/* The one that was used last, as the others may be closed for idleness. */
static struct pg_conn *idle_take_locked(struct pg_pool *p)
{
	while (p->idle_count > 0) {
		struct pg_conn *c = p->idle[--p->idle_count];
		if (pg_conn_is_alive(c))
			return c;
		pg_conn_close(c);
		p->open_count--;
	}
	sick_note_locked(p);
	return NULL;
}

static int why_set_locked(const struct pg_pool *p, struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "%s", p->why_failing.text);
}

/* NULL: there is none now. With *ret_error nobody is to wait for one. */
static struct pg_conn *take_once_locked(struct pg_pool *p, int *ret_error, struct err *e)
{
	if (p->is_doubted)
		return NULL;
	struct pg_conn *c = idle_take_locked(p);
	if (!c && !p->is_failing && has_room_locked(p))
		c = conn_make_unlocking(p);
	if (!c && pg_is_sick(p))
		*ret_error = why_set_locked(p, e);
	return c;
}

static struct pg_conn *take_locked(struct pg_pool *p, struct err *e)
{
	struct timespec until = clock_mono_after((uint64_t)p->timeout_ms);
	int r = 0;
	for (;;) {
		struct pg_conn *c = take_once_locked(p, &r, e);
		if (c || r != 0)
			return c;
		if (pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0)
			continue;
		trouble_tell_locked(p, "no connection came back in time");
		if (p->is_failing || p->is_doubted)
			why_set_locked(p, e);
		else
			err_set(e, ERR_UNAVAILABLE, "%s: all %zu connections are in use", p->address,
			        p->open_count);
		return NULL;
	}
}

struct pg_conn *pg_take(struct pg_pool *p, struct err *e)
{
	pthread_mutex_lock(&p->lock);
	struct pg_conn *c = take_locked(p, e);
	pthread_mutex_unlock(&p->lock);
	return c;
}

static bool conn_is_kept(struct pg_conn *c)
{
	if (c->failed || !pg_conn_is_idle(c))
		return false;
	int64_t usual_ms = c->pool->timeout_ms;
	return c->timeout_ms == usual_ms || pg_patience(c, (uint64_t)usual_ms, NULL) == 0;
}

void pg_return(struct pg_conn *c)
{
	if (!c)
		return;
	struct pg_pool *p = c->pool;
	bool kept = conn_is_kept(c), late = c->late;
	struct err trouble = c->trouble;
	c->trouble.text[0] = '\0';
	if (!kept)
		pg_conn_close(c);
	pthread_mutex_lock(&p->lock);
	if (trouble.text[0])
		trouble_tell_locked(p, trouble.text);
	if (kept) {
		c->waited_in_vain = c->was_deadlocked = false;
		p->idle[p->idle_count++] = c;
	} else {
		p->open_count--;
	}
	if (late) {
		late_note_locked(p);
		pthread_cond_signal(&p->mend);
	}
	sick_note_locked(p);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

/* --- the mender --- */

static bool has_work_locked(const struct pg_pool *p)
{
	return (p->is_failing || p->is_doubted) && has_room_locked(p);
}

static void mender_wait_locked(struct pg_pool *p)
{
	if (!has_work_locked(p)) {
		pthread_cond_wait(&p->mend, &p->lock);
		return;
	}
	int64_t left_ms = MAX(p->rest_until_ms - clock_mono_ms(), 0);
	struct timespec until = clock_mono_after((uint64_t)left_ms);
	pthread_cond_timedwait(&p->mend, &p->lock, &until);
}

static bool is_due_locked(const struct pg_pool *p)
{
	return has_work_locked(p) && clock_mono_ms() >= p->rest_until_ms;
}

static void *mender_run(void *arg)
{
	struct pg_pool *p = arg;
	pthread_mutex_lock(&p->lock);
	while (!p->is_ending) {
		struct pg_conn *c = is_due_locked(p) ? conn_make_unlocking(p) : NULL;
		if (c)
			p->idle[p->idle_count++] = c;
		else
			mender_wait_locked(p);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int mender_start(struct pg_pool *p, struct err *e)
{
	int r = thread_start(&p->mender, "pg-mender", mender_run, p, e);
	p->has_mender = r == 0;
	return r;
}

static void mender_end(struct pg_pool *p)
{
	if (!p->has_mender)
		return;
	pthread_mutex_lock(&p->lock);
	p->is_ending = true;
	pthread_cond_signal(&p->mend);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->mender, NULL);
}

/* --- life --- */

int pg_pool_new(struct str url, size_t connections_max,
                int (*setup)(struct pg_conn *, void *ctx, struct err *e), void *ctx, struct pg_pool **ret,
                struct err *e)
{
	ASSERT(connections_max > 0);
	struct pg_pool *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "memory ran out");
	p->setup = setup;
	p->ctx = ctx;
	p->max = connections_max;
	p->timeout_ms = PG_ANSWER_TIMEOUT_MS;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_cond_init(&p->mend, &attr);
	pthread_condattr_destroy(&attr);
	p->idle = calloc(connections_max, sizeof(struct pg_conn *));
	int r = p->idle ? url_parse(p, url, e) : err_set(e, ERR_NOMEM, "memory ran out");
	if (r == 0)
		r = mender_start(p, e);
	if (r != 0) {
		pg_pool_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pg_pool_free(struct pg_pool *p)
{
	if (!p)
		return;
	mender_end(p);
	pthread_mutex_lock(&p->lock);
	while (p->open_count > p->idle_count || p->making_count > 0)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	for (size_t i = 0; i < p->idle_count; i++)
		pg_conn_close(p->idle[i]);
	pthread_cond_destroy(&p->mend);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	PQconninfoFree(p->options);
	free(p->address);
	free(p->idle);
	free(p);
}

struct str pg_pool_address(const struct pg_pool *p)
{
	return str_of(p->address);
}

void pg_pool_patience(struct pg_pool *p, int64_t timeout_ms)
{
	p->timeout_ms = timeout_ms;
}

bool pg_is_sick(const struct pg_pool *p)
{
	return atomic_load_explicit(&p->is_sick, memory_order_relaxed);
}
