/*
 * The thread that listens to what others publish on a node, and tries it again when it is away. It does
 * nothing else: while it is deaf, this server serves old links. It asks the node for a sign of life a few
 * times a second: a connection that is dead but not closed would otherwise keep silent for ever. The node has
 * as long to give one as for any command, and what it said while this thread itself stood still is heard
 * before it is given up.
 */
#include "rcache/node.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <time.h>

enum { TURN_MS = 100, PING_MS = 300 };

struct listening {
	struct node *node;
	struct redis_conn *conn; /* NULL: not subscribed */
	int64_t pinged_ms;
	int64_t asked_ms; /* for the first time since it was heard; 0: not yet */
	bool complained;
};

static void hear(const struct rcache_listener *l, struct str message)
{
	if (message.len == 0)
		return;
	struct str text = str_n(message.ptr + 1, message.len - 1);
	switch (message.ptr[0]) {
	case NODE_SAYS_KEY: l->changed(l->ctx, text); break;
	case NODE_SAYS_TOPIC: l->told(l->ctx, text); break;
	case NODE_SAYS_ALL: l->lost(l->ctx); break;
	default: break; /* of a later version */
	}
}

/* Waits for the next thing that the node says, and passes it on if it is news. */
static int listen_once(struct listening *l, uint64_t ms, struct str *ret_kind)
{
	struct redis_reply reply;
	int r = redis_wait(l->conn, ms, &reply);
	if (r)
		return r;
	l->asked_ms = 0;
	*ret_kind = reply.type == REDIS_ARRAY && reply.count > 0 ? redis_reply_at(&reply, 0).text : STR("");
	if (str_eq(*ret_kind, STR("message")) && reply.count == 3)
		hear(l->node->listener, redis_reply_at(&reply, 2).text);
	return 0;
}

static void complain(struct listening *l, const char *why)
{
	if (!l->complained)
		log_warn("rcache",
		         "the node %.*s of the shared cache is away: %s; its keys are asked of the store",
		         STR_ARG(redis_name(l->node->redis)), why);
	l->complained = true;
}

/* Until it is back, changes of others do not arrive: what was kept may be old, now and when it is back. */
static void unsubscribe(struct listening *l, const char *why)
{
	const struct rcache_listener *to = l->node->listener;
	redis_return(l->conn);
	l->conn = NULL;
	atomic_store(&l->node->listening, false);
	complain(l, why);
	to->lost(to->ctx);
}

static void subscribe(struct listening *l)
{
	const struct rcache_listener *to = l->node->listener;
	struct err e = {"it does not answer"};
	struct str kind = STR("");
	l->conn = redis_take(l->node->redis, &e);
	if (l->conn) {
		redis_write(l->conn, REDIS_ARGS(STR("SUBSCRIBE"), l->node->names->channel));
		if (listen_once(l, (uint64_t)redis_timeout_ms, &kind) != 0 ||
		    !str_eq(kind, STR("subscribe"))) {
			redis_return(l->conn);
			l->conn = NULL;
		}
	}
	if (!l->conn) {
		complain(l, e.text);
		return;
	}
	if (l->complained)
		log_info("rcache", "the node %.*s of the shared cache is back",
		         STR_ARG(redis_name(l->node->redis)));
	l->complained = false;
	l->pinged_ms = clock_mono_ms();
	owed_recall(l->node->owed);
	atomic_store(&l->node->listening, true);
	to->lost(to->ctx);
}

static void ping_when_due(struct listening *l)
{
	int64_t now_ms = clock_mono_ms();
	if (now_ms - l->pinged_ms < PING_MS)
		return;
	redis_write(l->conn, REDIS_ARGS(STR("PING")));
	l->pinged_ms = now_ms;
	l->asked_ms = l->asked_ms ? l->asked_ms : now_ms;
}

static void listen_for_a_turn(struct listening *l)
{
	struct str kind;
	int64_t now_ms = clock_mono_ms(), end_ms = now_ms + TURN_MS;
	bool overdue = l->asked_ms && now_ms - l->asked_ms >= redis_timeout_ms;
	int r;
	ping_when_due(l);
	do
		r = listen_once(l, (uint64_t)MAX(end_ms - clock_mono_ms(), 0), &kind);
	while (r == 0 && clock_mono_ms() < end_ms);
	if (r == ERR_UNAVAILABLE)
		unsubscribe(l, "the connection failed");
	else if (overdue && l->asked_ms)
		unsubscribe(l, "it gives no sign of life");
}

static void *listen_run(void *arg)
{
	struct listening l = {.node = arg};
	while (!atomic_load(l.node->stop)) {
		if (!l.conn)
			subscribe(&l);
		if (l.conn)
			listen_for_a_turn(&l);
		else
			nanosleep(&(struct timespec){.tv_nsec = TURN_MS / 4 * 1000000L}, NULL);
	}
	redis_return(l.conn);
	return NULL;
}

int node_start(struct node *n, struct err *e)
{
	int r = thread_start(&n->listener_thread, "rcache", listen_run, n, e);
	n->listener_started = r == 0;
	return r ? r : node_settle_start(n, e);
}

void node_stop(struct node *n)
{
	if (n->listener_started)
		pthread_join(n->listener_thread, NULL);
	if (n->settler_started)
		pthread_join(n->settler_thread, NULL);
	size_t left = n->owed ? owed_count(n->owed) : 0;
	if (left > 0)
		log_warn(
		    "rcache",
		    "%zu changes could not be told to the node %.*s of the shared cache; old values there "
		    "stay until they end by themselves",
		    left, STR_ARG(redis_name(n->redis)));
}
