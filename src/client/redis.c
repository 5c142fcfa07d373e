#include "client/redis.h"

#include "client/redis_connect.h"
#include "os/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { IDLE_MAX = 16, IDLE_MS_MAX = 60 * 1000 };

/*
 * An era ends when the server fails: connections of earlier eras are closed and say nothing new about it, so
 * ten threads that wait for the same dead server count as one failure.
 */
struct redis {
	struct redis_url url;
	_Atomic bool sick;       /* rest_ms > 0, for those who only look */
	_Atomic size_t sentinel; /* the one that answered last; a hint */

	pthread_mutex_t lock; /* for all below; a leaf */
	struct list idle;     /* the most recently used is the last */
	size_t idle_count;
	uint64_t era;
	uint64_t rest_ms; /* how long it is left alone this time; 0: it is well */
	int64_t rest_until_ms;
	bool tried; /* somebody is finding out whether it is back */
	struct err why;
};

int redis_new(struct str url, struct redis **ret, struct err *e)
{
	struct redis *r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int bad = redis_url_parse(url, &r->url, e);
	if (bad) {
		free(r);
		return bad;
	}
	pthread_mutex_init(&r->lock, NULL);
	list_init(&r->idle);
	*ret = r;
	return 0;
}

static void close_all(struct list *conns)
{
	struct list *node;
	while ((node = list_pop(conns)))
		wire_close(container_of(node, struct redis_conn, link));
}

void redis_free(struct redis *r)
{
	if (!r)
		return;
	close_all(&r->idle);
	pthread_mutex_destroy(&r->lock);
	redis_url_release(&r->url);
	free(r);
}

struct str redis_name(const struct redis *r)
{
	return r->url.name;
}

bool redis_is_sick(const struct redis *r)
{
	return atomic_load_explicit(&r->sick, memory_order_relaxed);
}

/* --- health --- */

static void server_failed(struct redis *r, uint64_t era, const struct err *why)
{
	struct list gone;
	list_init(&gone);
	pthread_mutex_lock(&r->lock);
	if (era == r->era) {
		r->era++;
		r->rest_ms = r->rest_ms ? MIN(r->rest_ms * 2, REDIS_REST_MAX_MS) : REDIS_REST_MIN_MS;
		r->rest_until_ms = clock_mono_ms() + (int64_t)r->rest_ms;
		r->tried = false;
		r->why = *why;
		list_splice(&gone, &r->idle);
		r->idle_count = 0;
		atomic_store_explicit(&r->sick, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&r->lock);
	close_all(&gone);
}

static void server_answered(struct redis *r, uint64_t era)
{
	pthread_mutex_lock(&r->lock);
	if (era == r->era) {
		r->rest_ms = 0;
		r->tried = false;
		atomic_store_explicit(&r->sick, false, memory_order_relaxed);
	}
	pthread_mutex_unlock(&r->lock);
}

/* May the caller try the server? One at a time while it is sick. */
static bool may_try_locked(struct redis *r)
{
	if (r->rest_ms == 0)
		return true;
	if (r->tried || clock_mono_ms() < r->rest_until_ms)
		return false;
	r->tried = true;
	return true;
}

/* --- lending --- */

static struct redis_conn *open_new(struct redis *r, uint64_t era, struct err *e)
{
	struct err why = {""};
	struct redis_conn *c = redis_connect(&r->url, &r->sentinel, &why);
	if (!c) {
		server_failed(r, era, &why);
		err_set(e, ERR_UNAVAILABLE, "Redis (%.*s) is away: %s", STR_ARG(redis_name(r)), why.text);
		return NULL;
	}
	c->owner = r;
	c->era = era;
	server_answered(r, era);
	return c;
}

static struct redis_conn *idle_take_locked(struct redis *r)
{
	if (list_empty(&r->idle))
		return NULL;
	struct redis_conn *c = container_of(r->idle.prev, struct redis_conn, link);
	list_remove(&c->link);
	r->idle_count--;
	return c;
}

struct redis_conn *redis_take(struct redis *r, struct err *e)
{
	for (;;) {
		struct redis_conn *c = NULL;
		struct err why;
		pthread_mutex_lock(&r->lock);
		bool may = may_try_locked(r);
		if (may)
			c = idle_take_locked(r);
		else
			why = r->why;
		uint64_t era = r->era;
		pthread_mutex_unlock(&r->lock);
		if (!may) {
			err_set(e, ERR_UNAVAILABLE, "Redis (%.*s) is away: %s", STR_ARG(redis_name(r)),
			        why.text);
			return NULL;
		}
		if (!c)
			return open_new(r, era, e);
		if (!wire_is_stale(c) && clock_mono_ms() - c->idle_since_ms < IDLE_MS_MAX)
			return c;
		wire_close(c);
	}
}

static bool idle_put(struct redis *r, struct redis_conn *c)
{
	wire_rest(c);
	c->idle_since_ms = clock_mono_ms();
	pthread_mutex_lock(&r->lock);
	bool keep = c->era == r->era && r->idle_count < IDLE_MAX;
	if (keep) {
		list_push(&r->idle, &c->link);
		r->idle_count++;
	}
	pthread_mutex_unlock(&r->lock);
	return keep;
}

void redis_return(struct redis_conn *c)
{
	if (!c)
		return;
	bool whole = !c->failed && !c->spent && c->awaited == 0 && c->out.len == 0;
	if (c->failed)
		server_failed(c->owner, c->era, &c->why);
	if (!whole || !idle_put(c->owner, c))
		wire_close(c);
}

/* --- commands --- */

/* "$12\r\n": a kind, a number, the end of the line. */
static void write_head(struct buf *out, char kind, size_t number)
{
	char line[24];
	size_t at = sizeof(line);
	line[--at] = '\n';
	line[--at] = '\r';
	do {
		line[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	line[--at] = kind;
	buf_append(out, line + at, sizeof(line) - at);
}

void redis_write(struct redis_conn *c, const struct str *args, size_t n)
{
	write_head(&c->out, '*', n);
	for (size_t i = 0; i < n; i++) {
		write_head(&c->out, '$', args[i].len);
		buf_str(&c->out, args[i]);
		buf_str(&c->out, STR("\r\n"));
	}
	c->awaited++;
}

int redis_send(struct redis_conn *c)
{
	return wire_send(c, clock_mono_ms() + redis_timeout_ms);
}

/* Answers that say: ask somebody else, or later. */
static bool is_refusal(struct str error)
{
	static const char *const words[] = {"READONLY ", "LOADING ", "MASTERDOWN ", "NOREPLICAS ", "NOAUTH "};
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (str_starts(error, str_of(words[i])))
			return true;
	}
	return false;
}

static int check_reply(struct redis_conn *c, const struct redis_reply *reply)
{
	if (reply->type != REDIS_ERROR || !is_refusal(reply->text))
		return 0;
	c->refused = !c->failed;
	return wire_fail(c, "%.*s", (int)MIN(reply->text.len, 200), reply->text.ptr);
}

bool redis_was_refused(const struct redis_conn *c)
{
	return c->refused;
}

const char *redis_why(const struct redis_conn *c)
{
	return c->why.text;
}

int redis_read(struct redis_conn *c, struct redis_reply *ret)
{
	ASSERT(c->awaited > 0);
	c->awaited--;
	int r = redis_send(c);
	if (r == 0)
		r = wire_read(c, c->deadline_ms, ret);
	if (r == ERR_BUSY)
		return wire_fail(c, "no answer within %lld ms", (long long)redis_timeout_ms);
	return r ? r : check_reply(c, ret);
}

bool redis_is_ready(const struct redis_conn *c, uint64_t ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	return c->failed || poll(&p, 1, (int)ms) != 0;
}

int redis_ask(struct redis_conn *c, const struct str *args, size_t n, struct redis_reply *ret)
{
	redis_write(c, args, n);
	return redis_read(c, ret);
}

int redis_wait(struct redis_conn *c, uint64_t ms, struct redis_reply *ret)
{
	c->spent = true;
	int r = redis_send(c);
	if (r == 0)
		r = wire_read(c, clock_mono_ms() + (int64_t)ms, ret);
	return r ? r : check_reply(c, ret);
}
