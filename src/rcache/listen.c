/*
 * The task that listens to a node's messages, and reconnects. Its thread does nothing else: while it hears
 * nothing, this server serves old links. It pings the node a few times per second, because a dead
 * connection that is not closed stays silent for ever. The node has the usual timeout to answer; messages
 * that arrived while this thread was stopped are read before the connection is given up.
 */
#include "rcache/node.h"

#include "obs/log.h"
#include "os/clock.h"

enum { TURN_MS = 100, PING_MS = 300, RETRY_MS = 25 };

static void hear(const struct rcache_listener *l, struct str message)
{
	if (message.len == 0)
		return;
	struct str text = str_n(message.ptr + 1, message.len - 1);
	switch (message.ptr[0]) {
	case NODE_SAYS_KEY: l->changed(l->ctx, text); break;
	case NODE_SAYS_TOPIC: l->notified(l->ctx, text); break;
	case NODE_SAYS_ALL: l->lost(l->ctx); break;
	default: break; /* of a newer version */
	}
}

/* Waits for the next message, and dispatches it. */
static int listen_once(struct rcache_node *n, uint64_t ms, struct str *ret_kind)
{
	struct redis_reply reply;
	int r = redis_wait(n->conn, ms, &reply);
	if (r)
		return r;
	n->asked_ms = 0;
	*ret_kind = reply.type == REDIS_ARRAY && reply.count > 0 ? redis_reply_at(&reply, 0).text : STR("");
	if (str_eq(*ret_kind, STR("message")) && reply.count == 3)
		hear(n->listener, redis_reply_at(&reply, 2).text);
	return 0;
}

static void complain(struct rcache_node *n, const char *why)
{
	if (!n->is_down)
		log_warn("rcache", "cache node down, its keys are read from the store node=%.*s error=\"%s\"",
		         STR_ARG(redis_name(n->redis)), why);
	n->is_down = true;
}

/* Until it is back, changes of others do not arrive: cached values may be old, now and when it is back. */
static void unsubscribe(struct rcache_node *n, const char *why)
{
	const struct rcache_listener *to = n->listener;
	redis_return(n->conn);
	n->conn = NULL;
	atomic_store(&n->listening, false);
	complain(n, why);
	to->lost(to->ctx);
}

static void subscribe(struct rcache_node *n)
{
	const struct rcache_listener *to = n->listener;
	struct err e = {"it does not answer"};
	struct str kind = STR("");
	n->conn = redis_take(n->redis, &e);
	if (n->conn) {
		redis_write(n->conn, REDIS_ARGS(STR("SUBSCRIBE"), n->names->channel));
		if (listen_once(n, (uint64_t)redis_timeout_ms, &kind) != 0 ||
		    !str_eq(kind, STR("subscribe"))) {
			redis_return(n->conn);
			n->conn = NULL;
		}
	}
	if (!n->conn) {
		complain(n, e.text);
		return;
	}
	if (n->is_down)
		log_info("rcache", "cache node up node=%.*s", STR_ARG(redis_name(n->redis)));
	n->is_down = false;
	n->pinged_ms = clock_mono_ms();
	pending_recall(n->pending);
	atomic_store(&n->listening, true);
	to->lost(to->ctx);
}

static int64_t listen_run(struct task *t)
{
	struct rcache_node *n = container_of(t, struct rcache_node, listen);
	if (!n->conn)
		subscribe(n);
	if (!n->conn)
		return RETRY_MS;
	struct str kind;
	int64_t now_ms = clock_mono_ms(), end_ms = now_ms + TURN_MS;
	bool overdue = n->asked_ms && now_ms - n->asked_ms >= redis_timeout_ms;
	int r;
	if (now_ms - n->pinged_ms >= PING_MS) {
		redis_write(n->conn, REDIS_ARGS(STR("PING")));
		n->pinged_ms = now_ms;
		n->asked_ms = n->asked_ms ? n->asked_ms : now_ms;
	}
	do
		r = listen_once(n, (uint64_t)MAX(end_ms - clock_mono_ms(), 0), &kind);
	while (r == 0 && clock_mono_ms() < end_ms);
	if (r == ERR_UNAVAILABLE)
		unsubscribe(n, "the connection failed");
	else if (overdue && n->asked_ms)
		unsubscribe(n, "it gives no sign of life");
	return 0;
}

int node_start(struct rcache_node *n, struct err *e)
{
	int r = task_start(&n->listen, &(struct task_config){.name = "rcache", .run = listen_run}, e);
	return r ? r : node_deliver_start(n, e);
}

void node_ask_stop(struct rcache_node *n)
{
	task_ask_stop(&n->listen);
	task_ask_stop(&n->deliver);
}

void node_stop(struct rcache_node *n)
{
	task_stop(&n->listen);
	task_stop(&n->deliver);
	redis_return(n->conn);
	size_t left = n->pending ? pending_count(n->pending) : 0;
	if (left > 0)
		log_warn("rcache",
		         "invalidations not delivered, old values stay until they expire count=%zu node=%.*s",
		         left, STR_ARG(redis_name(n->redis)));
}
