#include "client/postgres.h"

#include "client/postgres_conn.h"

#include <stdio.h>
#include <stdlib.h>

struct pg_pool {
	struct conn_pool *conns;
	char *url;
	char *address;
	int (*setup)(struct pg_conn *, void *ctx, struct err *e);
	void *ctx;
	int64_t timeout_ms; /* for answers, and for a free connection */
};

static const char *option_get(const PQconninfoOption *options, const char *name, const char *otherwise)
{
	for (const PQconninfoOption *o = options; o->keyword; o++) {
		if (strcmp(o->keyword, name) == 0 && o->val && o->val[0])
			return o->val;
	}
	return otherwise;
}

/* libpq's message may contain the URL, and so the password. */
static int url_parse(struct pg_pool *p, struct str url, struct err *e)
{
	if (!str_starts(url, STR("postgres://")) && !str_starts(url, STR("postgresql://")))
		return err_set(e, ERR_INVALID, "not a PostgreSQL URL; it must begin with postgres://");
	p->url = strndup(url.ptr, url.len);
	char *message = NULL;
	PQconninfoOption *options = p->url ? PQconninfoParse(p->url, &message) : NULL;
	PQfreemem(message);
	if (!options)
		return err_set(e, p->url ? ERR_INVALID : ERR_NOMEM,
		               "invalid PostgreSQL URL; write "
		               "postgres://USER:PASSWORD@HOST:PORT/DATABASE, special characters "
		               "percent-encoded, and libpq options after '?'");
	const char *host = option_get(options, "host", option_get(options, "hostaddr", "localhost"));
	const char *name = option_get(options, "dbname", option_get(options, "user", ""));
	if (asprintf(&p->address, "%s:%s/%s", host, option_get(options, "port", "5432"), name) < 0)
		p->address = NULL;
	PQconninfoFree(options);
	return p->address ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

/* --- the driver --- */

static int driver_connect(void *ctx, void **ret, struct err *e)
{
	struct pg_pool *p = ctx;
	struct pg_conn *c;
	int r = pg_conn_open(p->url, p->address, p->timeout_ms, &c, e);
	if (r != 0)
		return r;
	c->pool = p;
	r = p->setup ? p->setup(c, p->ctx, e) : 0;
	if (r != 0)
		pg_conn_close(c);
	else
		*ret = c;
	return r;
}

static enum conn_verdict driver_reset(void *conn, struct err *why)
{
	struct pg_conn *c = conn;
	bool is_kept = !c->failed && pg_conn_is_idle(c) &&
	               (c->timeout_ms == c->pool->timeout_ms ||
	                pg_timeout(c, (uint64_t)c->pool->timeout_ms, NULL) == 0);
	if (c->trouble.text[0])
		pg_pool_log(c->pool, c->trouble.text);
	c->trouble.text[0] = '\0';
	c->lock_timed_out = c->was_deadlocked = false;
	if (c->late)
		err_set(why, 0, "%s: the server did not answer in time", c->pool->address);
	return is_kept ? CONN_KEEP : c->late ? CONN_LATE : CONN_CLOSE;
}

static const struct conn_driver driver = {
    .reconnector = "pg-reconnect",
    .logs_failure = true,
    .connect = driver_connect,
    .close = pg_conn_close,
    .is_alive = pg_conn_is_alive,
    .reset = driver_reset,
};

/* --- the pool --- */

int pg_pool_new(struct str url, size_t connections_max,
                int (*setup)(struct pg_conn *, void *ctx, struct err *e), void *ctx, struct pg_pool **ret,
                struct err *e)
{
	struct pg_pool *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->setup = setup;
	p->ctx = ctx;
	p->timeout_ms = PG_ANSWER_TIMEOUT_MS;
	int r = url_parse(p, url, e) ?: conn_pool_new(&driver, p, p->address, connections_max, &p->conns, e);
	if (r != 0)
		pg_pool_free(p);
	else
		*ret = p;
	return r;
}

static void url_release(struct pg_pool *p)
{
	if (p->url)
		explicit_bzero(p->url, strlen(p->url));
	free(p->url);
	free(p->address);
}

int pg_url_check(struct str url, struct err *e)
{
	struct pg_pool p = {0};
	int r = url_parse(&p, url, e);
	url_release(&p);
	return r;
}

void pg_pool_free(struct pg_pool *p)
{
	if (!p)
		return;
	conn_pool_free(p->conns);
	url_release(p);
	free(p);
}

struct str pg_pool_address(const struct pg_pool *p)
{
	return str_of(p->address);
}

/* libpq's messages name host and user, never the password. */
void pg_pool_log(struct pg_pool *p, const char *why)
{
	struct err line;
	err_set(&line, 0, "%s: %s", p->address, why);
	conn_pool_log(p->conns, line.text);
}

void pg_pool_timeout(struct pg_pool *p, int64_t timeout_ms)
{
	p->timeout_ms = timeout_ms;
}

struct pg_conn *pg_take(struct pg_pool *p, struct err *e)
{
	return conn_pool_take(p->conns, p->timeout_ms, e);
}

void pg_return(struct pg_conn *c)
{
	conn_pool_return(c);
}

bool pg_is_failing(const struct pg_pool *p)
{
	return conn_pool_is_failing(p->conns);
}
