#include "client/redis_wire.h"

#include "os/clock.h"

#include <stdatomic.h>

_Atomic int64_t redis_timeout_ms = REDIS_TIMEOUT_MS;

/* A reply that was read with `r`: silence and errors fail the connection. What a server says to AUTH may
 * repeat the password ("unknown command ... with args beginning with"): no more of it is passed on than a
 * word that is known. */
static int reply_check(struct redis_conn *c, int r, bool is_auth, const struct redis_reply *reply)
{
	static const char *const words[] = {"WRONGPASS", "NOAUTH", "NOPERM"};
	if (r)
		return r == ERR_BUSY ? wire_fail(c, "it does not answer") : r;
	if (reply->type != REDIS_ERROR)
		return 0;
	if (!is_auth)
		return wire_fail(c, "%.*s", (int)MIN(reply->text.len, 200), reply->text.ptr);
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (str_starts(reply->text, str_of(words[i])))
			return wire_fail(c, "it refuses the user or the password of its URL (%s)", words[i]);
	}
	return wire_fail(c, "it refuses AUTH; does it want the user and the password of its URL?");
}

/* True: there is an answer to be read. */
static bool auth_write(struct redis_conn *c, const struct redis_url *u)
{
	if (u->user.ptr)
		redis_write(c, REDIS_ARGS(STR("AUTH"), u->user, u->password));
	else if (u->password.ptr)
		redis_write(c, REDIS_ARGS(STR("AUTH"), u->password));
	return u->user.ptr || u->password.ptr;
}

/* Signs in, and hears from the server itself that it works: a stopped process still accepts connections. */
static int greet(struct redis_conn *c, const struct redis_url *u, int64_t deadline_ms)
{
	struct redis_reply reply = {0};
	bool auth = auth_write(c, u);
	if (!str_eq(u->db, STR("0")))
		redis_write(c, REDIS_ARGS(STR("SELECT"), u->db));
	redis_write(c, REDIS_ARGS(u->is_sentinel ? STR("ROLE") : STR("PING")));
	int r = wire_send(c, deadline_ms);
	for (; r == 0 && c->replies_pending > 0; c->replies_pending--, auth = false)
		r = reply_check(c, wire_read(c, deadline_ms, &reply), auth, &reply);
	if (r || !u->is_sentinel)
		return r;
	if (reply.type != REDIS_ARRAY || reply.count == 0 ||
	    !str_eq(redis_reply_at(&reply, 0).text, STR("master")))
		return wire_fail(c, "it is not the primary");
	return 0;
}

static struct redis_conn *open_server(const struct redis_host *host, const struct redis_url *u,
                                      int64_t deadline_ms, struct err *e)
{
	struct redis_conn *c = wire_open(host, deadline_ms, e);
	if (c && greet(c, u, deadline_ms) != 0) {
		err_set(e, ERR_UNAVAILABLE, "%s port %u: %s", host->host, host->port, c->why.text);
		wire_close(c);
		return NULL;
	}
	return c;
}

static int read_primary(struct redis_conn *c, const struct redis_reply *reply, struct arena *arena,
                        struct redis_host *ret)
{
	uint64_t port;
	if (reply->type != REDIS_ARRAY || reply->count < 2 ||
	    !str_u64(redis_reply_at(reply, 1).text, &port) || port == 0 || port > 65535)
		return wire_fail(c, "it knows no such primary");
	ret->host = (char *)arena_str(arena, redis_reply_at(reply, 0).text).ptr;
	ret->port = (uint16_t)port;
	return ret->host ? 0 : wire_fail(c, "memory ran out");
}

static int ask_for_primary(struct redis_conn *c, const struct redis_url *u, int64_t deadline_ms,
                           struct redis_reply *ret)
{
	redis_write(c, REDIS_ARGS(STR("SENTINEL"), STR("get-master-addr-by-name"), u->primary));
	return wire_send(c, deadline_ms) ?: wire_read(c, deadline_ms, ret);
}

/* Where the primary is, as one sentinel believes. */
static int ask_sentinel(const struct redis_host *sentinel, const struct redis_url *u, int64_t deadline_ms,
                        struct arena *arena, struct redis_host *ret, struct err *e)
{
	struct redis_reply reply = {0};
	struct redis_conn *c = wire_open(sentinel, deadline_ms, e);
	if (!c)
		return ERR_UNAVAILABLE;
	int r = ask_for_primary(c, u, deadline_ms, &reply);
	if (r == 0 && reply.type == REDIS_ERROR && u->password.ptr &&
	    str_starts(reply.text, STR("NOAUTH "))) { /* it is given the servers' */
		auth_write(c, u);
		r = wire_send(c, deadline_ms)
		    ?: reply_check(c, wire_read(c, deadline_ms, &reply), true, &reply)
		    ?: ask_for_primary(c, u, deadline_ms, &reply);
	}
	r = reply_check(c, r, false, &reply) ?: read_primary(c, &reply, arena, ret);
	if (r)
		err_set(e, r, "the sentinel at %s port %u: %s", sentinel->host, sentinel->port, c->why.text);
	wire_close(c);
	return r;
}

/* A silent sentinel may use up only its share of the time, so that others and the server are left some. */
static struct redis_conn *open_by_sentinel(const struct redis_url *u, _Atomic size_t *hint,
                                           int64_t deadline_ms, struct err *e)
{
	size_t first = atomic_load_explicit(hint, memory_order_relaxed);
	int64_t share_ms = redis_timeout_ms / (int64_t)(u->host_count + 1);
	struct redis_conn *c = NULL;
	struct arena arena = {0};
	bool named = false; /* an error about the primary says more than a sentinel that is down */
	for (size_t i = 0; !c && i < u->host_count; i++) {
		size_t s = (first + i) % u->host_count;
		struct redis_host primary = {0};
		int64_t until_ms = MIN(clock_mono_ms() + share_ms, deadline_ms);
		if (ask_sentinel(&u->hosts[s], u, until_ms, &arena, &primary, named ? NULL : e) != 0)
			continue;
		named = true;
		c = open_server(&primary, u, deadline_ms, e);
		if (c)
			atomic_store_explicit(hint, s, memory_order_relaxed);
	}
	arena_release(&arena);
	return c;
}

struct redis_conn *redis_connect(const struct redis_url *u, _Atomic size_t *sentinel, struct err *e)
{
	int64_t deadline_ms = clock_mono_ms() + redis_timeout_ms;
	return u->is_sentinel ? open_by_sentinel(u, sentinel, deadline_ms, e)
	                      : open_server(&u->hosts[0], u, deadline_ms, e);
}
