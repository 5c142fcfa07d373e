#include "client/redis.h"

#include "client/redis_wire.h"
#include "os/clock.h"

#include <poll.h>
#include <stdlib.h>

enum { CONNECTIONS_MAX = 256, IDLE_MAX = 16, IDLE_MS_MAX = 60 * 1000 };

struct redis {
	struct redis_url url;
	_Atomic size_t sentinel; /* the one that answered last; a hint */
	struct conn_pool *conns;
};

struct str redis_name(const struct redis *r)
{
	return r->url.name;
}

/* --- the driver --- */

static int away(const struct redis *r, const char *why, struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "Redis (%.*s) does not answer: %s", STR_ARG(redis_name(r)), why);
}

static int driver_connect(void *ctx, void **ret, struct err *e)
{
	struct redis *r = ctx;
	struct err why = {""};
	struct redis_conn *c = redis_connect(&r->url, &r->sentinel, &why);
	if (!c)
		return away(r, why.text, e);
	c->owner = r;
	*ret = c;
	return 0;
}

static enum conn_verdict driver_reset(void *conn, struct err *why)
{
	struct redis_conn *c = conn;
	if (c->failed) {
		away(c->owner, c->why.text, why);
		return CONN_FAILED;
	}
	if (c->is_single_use || c->replies_pending > 0 || c->out.len > 0)
		return CONN_CLOSE;
	wire_rest(c);
	return CONN_KEEP;
}

/* A demoted server takes no writes on any connection: all connections share its fate. */
static const struct conn_driver driver = {
    .shares_fate = true,
    .idle_max = IDLE_MAX,
    .idle_ms_max = IDLE_MS_MAX,
    .connect = driver_connect,
    .close = wire_close,
    .is_alive = wire_is_quiet,
    .reset = driver_reset,
};

/* --- lending --- */

int redis_new(struct str url, struct redis **ret, struct err *e)
{
	struct redis *r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int bad = redis_url_parse(url, &r->url, e)
	              ?: conn_pool_new(&driver, r, r->url.name.ptr, CONNECTIONS_MAX, &r->conns, e);
	if (bad)
		redis_free(r);
	else
		*ret = r;
	return bad;
}

void redis_free(struct redis *r)
{
	if (!r)
		return;
	conn_pool_free(r->conns);
	redis_url_release(&r->url);
	free(r);
}

bool redis_is_failing(const struct redis *r)
{
	return conn_pool_is_failing(r->conns);
}

struct redis_conn *redis_take(struct redis *r, struct err *e)
{
	return conn_pool_take(r->conns, redis_timeout_ms, e);
}

void redis_return(struct redis_conn *c)
{
	conn_pool_return(c);
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
	c->replies_pending++;
}

int redis_send(struct redis_conn *c)
{
	return wire_send(c, clock_mono_ms() + redis_timeout_ms);
}

/* Replies that mean: ask another server, or later. */
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
	ASSERT(c->replies_pending > 0);
	c->replies_pending--;
	int r = redis_send(c) ?: wire_read(c, c->deadline_ms, ret);
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
	c->is_single_use = true;
	return redis_send(c) ?: wire_read(c, clock_mono_ms() + (int64_t)ms, ret) ?: check_reply(c, ret);
}
