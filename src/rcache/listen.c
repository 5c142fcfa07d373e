/*
 * The task that listens to what others publish on a node, and tries it again when it is away. Its thread does
 * nothing else: while it is deaf, this server serves old links. It asks the node for a sign of life a few
 * times a second: a connection that is dead but not closed would otherwise keep silent for ever. The node has
 * as long to give one as for any command, and what it said while this thread itself stood still is heard
 * before it is given up.
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
	default: break; /* of a later version */
	}
}

/* Waits for the next thing that the node says, and passes it on if it is news. */
static int listen_once(struct node *n, uint64_t ms, struct str *ret_kind)
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

static void complain(struct node *n, const char *why)
{
	if (!n->is_away)
		log_warn("rcache",
		         "the node %.*s of the shared cache is away: %s; its keys are asked of the store",
		         STR_ARG(redis_name(n->redis)), why);
	n->is_away = true;
}

/* Until it is back, changes of others do not arrive: what was kept may be old, now and when it is back. */
static void unsubscribe(struct node *n, const char *why)
{
	const struct rcache_listener *to = n->listener;
	redis_return(n->conn);
	n->conn = NULL;
	atomic_store(&n->listening, false);
	complain(n, why);
	to->lost(to->ctx);
}

static void subscribe(struct node *n)
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
	if (n->is_away)
		log_info("rcache", "the node %.*s of the shared cache is back",
		         STR_ARG(redis_name(n->redis)));
	n->is_away = false;
	n->pinged_ms = clock_mono_ms();
	pending_recall(n->pending);
	atomic_store(&n->listening, true);
	to->lost(to->ctx);
}

static int64_t listen_run(struct task *t)
{
	struct node *n = container_of(t, struct node, listen);
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

int node_start(struct node *n, struct err *e)
{
	int r = task_start(&n->listen, &(struct task_config){.name = "rcache", .run = listen_run}, e);
	return r ? r : node_settle_start(n, e);
}

void node_ask_stop(struct node *n)
{
	task_ask_stop(&n->listen);
	task_ask_stop(&n->settle);
}

void node_stop(struct node *n)
{
	task_stop(&n->listen);
	task_stop(&n->settle);
	redis_return(n->conn);
	size_t left = n->pending ? pending_count(n->pending) : 0;
	if (left > 0)
		log_warn(
		    "rcache",
		    "%zu changes could not be told to the node %.*s of the shared cache; old values there "
		    "stay until they end by themselves",
		    left, STR_ARG(redis_name(n->redis)));
}
