/*
 * Leases as ephemeral nodes of ZooKeeper. Each lease has its own session, whose timeout is the lease's
 * lifetime: a doubt about one does not affect others, and closing the session removes the node.
 *
 * A lease is held as long as it was proven. The server keeps a session for its timeout after the last
 * message. So each answered request about the node (a beat, every third of the lifetime) proves the lease
 * for that long after the request was sent, minus a margin. A paused holder finds its proof too old,
 * whatever the library has noticed. If the connection breaks, the lease is lost at once: the session may
 * live on, but that cannot be known.
 *
 * A create whose answer was lost may have succeeded. The node's data is a random token, so the next attempt
 * recognizes its own node. The fencing number is the transaction that created the node.
 *
 * No request waits long (zk_session.h). Unanswered requests need no cleanup: the session is closed, and its
 * nodes disappear. Closing also waits for a silent server, so each such session is closed by its own
 * thread, all in parallel.
 */

#include "base/list.h"
#include "lease/backends.h"
#include "lease/zk_session.h"
#include "os/clock.h"
#include "os/task.h"
#include "os/thread.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	TAKE_MS = 2000,   /* connecting and all requests; also for a ping */
	RELEASE_MS = 500, /* for all leases together, if the service does not answer */
	IDLE_MS = 2000,
	PING_SESSION_MS = 10000,
	TRIES = 4,
	TOKEN_BYTES = 16,
	TOKEN_TEXT_BYTES = TOKEN_BYTES * 2 + 1,
	PATH_BYTES = 512,
	NAME_BYTES_MAX = 64,
	NODE_BYTES = PATH_BYTES + NAME_BYTES_MAX + 1,
};

struct leases_zookeeper {
	struct leases base;
	char *hosts;
	char path[PATH_BYTES]; /* parent node of the leases; begins with a slash */
	struct task beater;
	pthread_mutex_t lock; /* guards all below, and each lease's list node, due_ms and beat_pending */
	struct list leases, closing;
	struct zk_session *spare; /* kept by an attempt that found the lease taken, for the next one */
	bool silent;              /* the last release was not answered: do not wait for the next */
};

struct lease {
	struct list node;
	struct leases_zookeeper *owner;
	struct zk_session *session;
	char path[NODE_BYTES];
	uint64_t fence;
	uint64_t span_ms; /* validity of a proof */
	int64_t due_ms;   /* next beat */
	int64_t sent_ms;  /* the running beat */
	bool beat_pending;
	_Atomic int64_t proven_ms; /* when the last answered request was sent */
	_Atomic bool lost;         /* permanent */
	pthread_t closer;          /* while closing */
	_Atomic bool closed;
};

/* Keeps a session for the next attempt. It must have no node, which nothing would remove. */
static void session_put(struct leases_zookeeper *l, struct zk_session *s)
{
	pthread_mutex_lock(&l->lock);
	if (!l->spare)
		l->spare = steal(s);
	pthread_mutex_unlock(&l->lock);
	zk_session_free(s);
}

/* A connected session, spare or new, or NULL. One that cannot connect keeps trying until the next attempt. */
static struct zk_session *session_get(struct leases_zookeeper *l, uint64_t life_ms,
                                      const struct timespec *until)
{
	pthread_mutex_lock(&l->lock);
	struct zk_session *s = steal(l->spare);
	pthread_mutex_unlock(&l->lock);
	if (s && (s->life_ms != life_ms || zk_session_is_over(s)))
		zk_session_free(steal(s));
	if (!s)
		s = zk_session_new(l->hosts, life_ms);
	if (s && !zk_session_await(s, until))
		session_put(l, steal(s));
	return s;
}

/* Closing */

static struct lease *closing_pop(struct leases_zookeeper *l, bool all)
{
	struct lease *found = NULL;
	pthread_mutex_lock(&l->lock);
	for (struct list *at = l->closing.next; !found && at != &l->closing; at = at->next) {
		struct lease *lease = container_of(at, struct lease, node);
		if (all || atomic_load(&lease->closed))
			found = lease;
	}
	if (found)
		list_remove(&found->node);
	pthread_mutex_unlock(&l->lock);
	return found;
}

/* Of those that are closed, or all of them. */
static void closing_join(struct leases_zookeeper *l, bool all)
{
	struct lease *lease;
	while ((lease = closing_pop(l, all))) {
		pthread_join(lease->closer, NULL);
		free(lease);
	}
}

static void *close_run(void *arg)
{
	struct lease *lease = arg;
	zk_session_free(lease->session);
	atomic_store(&lease->closed, true);
	return NULL;
}

/* Frees it, sooner or later. */
static void lease_close(struct leases_zookeeper *l, struct lease *lease)
{
	closing_join(l, false);
	if (!lease->session || thread_start(&lease->closer, "lease-close", close_run, lease, NULL) < 0) {
		zk_session_free(lease->session);
		free(lease);
		return;
	}
	pthread_mutex_lock(&l->lock);
	list_push(&l->closing, &lease->node);
	pthread_mutex_unlock(&l->lock);
}

/* Taking */

/* The nodes above the leases; they stay. */
static int path_make(const struct leases_zookeeper *l, struct zk_session *s, const struct timespec *until)
{
	char part[PATH_BYTES];
	int code = ZOK;
	for (size_t i = 1; code == ZOK && i <= strlen(l->path); i++) {
		if (l->path[i] != '/' && l->path[i] != '\0')
			continue;
		memcpy(part, l->path, i);
		part[i] = '\0';
		code = zk_session_create(s, part, "", ZOO_PERSISTENT, until);
		if (code == ZNODEEXISTS)
			code = ZOK;
	}
	return code;
}

/* Whose node is it? An earlier try of ours may have made it. */
static int node_recognise(const struct lease *lease, const char *token, const struct timespec *until)
{
	struct zk_session *s = lease->session;
	int code = zk_session_read(s, lease->path, until);
	if (code != ZOK)
		return code;
	return s->data_len == TOKEN_TEXT_BYTES - 1 && memcmp(s->data, token, TOKEN_TEXT_BYTES - 1) == 0
	           ? ZOK
	           : ZNODEEXISTS;
}

/* With ZOK the session's `stat` is the node's. */
static int node_create(const struct leases_zookeeper *l, const struct lease *lease, const char *token,
                       const struct timespec *until)
{
	struct zk_session *s = lease->session;
	int code = zk_session_create(s, lease->path, token, ZOO_EPHEMERAL, until);
	if (code == ZNONODE && (code = path_make(l, s, until)) == ZOK)
		code = zk_session_create(s, lease->path, token, ZOO_EPHEMERAL, until);
	return code == ZNODEEXISTS ? node_recognise(lease, token, until) : code;
}

/* The attempts of one session: ZOK, ZNODEEXISTS if another process has it, or an error. */
static int node_take(const struct leases_zookeeper *l, struct lease *lease, const struct timespec *until)
{
	uint8_t random[TOKEN_BYTES];
	char token[TOKEN_TEXT_BYTES];
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(token, sizeof(token), random, sizeof(random));
	int code = ZCONNECTIONLOSS;
	bool again = true; /* also when it worked, but the connection broke on the way */
	for (int i = 0; i < TRIES && again; i++) {
		if (!zk_session_await(lease->session, until))
			return ZCONNECTIONLOSS;
		atomic_store(&lease->proven_ms, clock_mono_ms());
		code = node_create(l, lease, token, until);
		again = code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT ||
		        (code == ZOK && atomic_load(&lease->session->was_disconnected));
	}
	if (code == ZOK)
		lease->fence = (uint64_t)lease->session->stat.czxid;
	return code;
}

static int zk_take(struct leases *base, struct str name, uint64_t life_ms, struct lease **ret)
{
	struct leases_zookeeper *l = container_of(base, struct leases_zookeeper, base);
	struct lease *lease = calloc(1, sizeof(*lease));
	if (!lease)
		return ERR_NOMEM;
	ASSERT(name.len > 0 && name.len <= NAME_BYTES_MAX);
	snprintf(lease->path, sizeof(lease->path), "%s/%.*s", l->path, STR_ARG(name));
	int code = ZCONNECTIONLOSS;
	const struct timespec until = clock_mono_after(TAKE_MS);
	lease->session = session_get(l, life_ms, &until);
	if (lease->session)
		code = node_take(l, lease, &until);
	if (code == ZOK) {
		/* The server bounds the session timeout. */
		uint64_t granted_ms = (uint64_t)zoo_recv_timeout(lease->session->vendor);
		uint64_t span_ms = MIN(life_ms, granted_ms);
		lease->span_ms = span_ms - span_ms / 10;
		lease->owner = l;
		pthread_mutex_lock(&l->lock);
		l->silent = false;
		lease->due_ms = atomic_load(&lease->proven_ms) + (int64_t)(span_ms / 3);
		list_push(&l->leases, &lease->node);
		pthread_mutex_unlock(&l->lock);
		task_wake(&l->beater);
		*ret = lease;
		return 0;
	}
	if (code == ZNODEEXISTS)
		session_put(l, steal(lease->session));
	lease_close(l, lease);
	return code == ZNODEEXISTS ? ERR_BUSY : ERR_UNAVAILABLE;
}

/* Holding */

static bool zk_is_held(const struct lease *const_lease)
{
	struct lease *lease = (struct lease *)const_lease; /* `lost` is set */
	if (atomic_load(&lease->lost))
		return false;
	int64_t proof_ends_ms = atomic_load(&lease->proven_ms) + (int64_t)lease->span_ms;
	if (!atomic_load(&lease->session->was_disconnected) && clock_mono_ms() < proof_ends_ms)
		return true;
	atomic_store(&lease->lost, true);
	return false;
}

static uint64_t zk_fence(const struct lease *lease)
{
	return lease->fence;
}

/* On the library's thread; the lease lives at least as long as its session. */
static void beat_done(int code, const struct Stat *stat, const void *ctx)
{
	struct lease *lease = (struct lease *)ctx;
	struct leases_zookeeper *l = lease->owner;
	pthread_mutex_lock(&l->lock);
	lease->beat_pending = false;
	if (code == ZOK && (uint64_t)stat->czxid == lease->fence)
		atomic_store(&lease->proven_ms, lease->sent_ms);
	else
		atomic_store(&lease->lost, true);
	pthread_mutex_unlock(&l->lock);
}

static int64_t beater_run(struct task *t)
{
	struct leases_zookeeper *l = container_of(t, struct leases_zookeeper, beater);
	pthread_mutex_lock(&l->lock);
	int64_t now_ms = clock_mono_ms();
	int64_t next_ms = now_ms + IDLE_MS;
	for (struct list *at = l->leases.next; at != &l->leases; at = at->next) {
		struct lease *lease = container_of(at, struct lease, node);
		bool due = lease->due_ms <= now_ms;
		if (due)
			lease->due_ms = now_ms + (int64_t)(lease->span_ms / 3);
		if (due && !lease->beat_pending) {
			lease->beat_pending = true;
			lease->sent_ms = now_ms;
			if (zoo_aexists(lease->session->vendor, lease->path, 0, beat_done, lease) != ZOK) {
				lease->beat_pending = false;
				atomic_store(&lease->lost, true);
			}
		}
		next_ms = MIN(next_ms, lease->due_ms);
	}
	pthread_mutex_unlock(&l->lock);
	return next_ms - now_ms;
}

static void zk_release(struct leases *base, struct lease *lease)
{
	struct leases_zookeeper *l = container_of(base, struct leases_zookeeper, base);
	pthread_mutex_lock(&l->lock);
	list_remove(&lease->node);
	const struct timespec until = clock_mono_after(l->silent ? 0 : RELEASE_MS);
	pthread_mutex_unlock(&l->lock);
	if (zk_is_held(lease)) { /* closing also deletes it, but does not wait */
		int code = zk_session_delete(lease->session, lease->path, &until);
		if (code == ZOK) /* then closing is immediate */
			zk_session_free(steal(lease->session));
		pthread_mutex_lock(&l->lock);
		l->silent = code == ZOPERATIONTIMEOUT;
		pthread_mutex_unlock(&l->lock);
	}
	lease_close(l, lease);
}

/* Opening */

static int zk_ping(struct leases *base, struct err *e)
{
	struct leases_zookeeper *l = container_of(base, struct leases_zookeeper, base);
	const struct timespec until = clock_mono_after(TAKE_MS);
	struct zk_session *s = session_get(l, PING_SESSION_MS, &until);
	if (!s)
		return err_set(e, ERR_UNAVAILABLE,
		               "ZooKeeper at %.300s does not answer; start it, or correct lease.url",
		               l->hosts);
	int code = zk_session_look(s, "/", &until);
	zk_session_free(s);
	return code == ZOK
	           ? 0
	           : err_set(e, ERR_UNAVAILABLE, "ZooKeeper at %.300s failed: %s", l->hosts, zerror(code));
}

static void zk_free(struct leases *base)
{
	struct leases_zookeeper *l = container_of(base, struct leases_zookeeper, base);
	task_stop(&l->beater);
	ASSERT(list_empty(&l->leases));
	closing_join(l, true);
	zk_session_free(l->spare);
	pthread_mutex_destroy(&l->lock);
	free(l->hosts);
	free(l);
}

static const struct leases_ops zk_ops = {
    .free = zk_free,
    .take = zk_take,
    .is_held = zk_is_held,
    .fence = zk_fence,
    .release = zk_release,
    .ping = zk_ping,
};

static int url_parse(struct leases_zookeeper *l, const char *url, struct err *e)
{
	struct str rest = str_of(url), scheme = STR("zookeeper://");
	bool known = str_starts(rest, scheme);
	if (known)
		rest = str_n(rest.ptr + scheme.len, rest.len - scheme.len);
	struct str hosts = str_cut(&rest, '/');
	while (rest.len > 0 && rest.ptr[rest.len - 1] == '/')
		rest.len--;
	bool fits = rest.len > 0 && rest.len < PATH_BYTES - 1;
	if (!known || hosts.len == 0 || !fits || memmem(rest.ptr, rest.len, "//", 2))
		return err_set(
		    e, ERR_INVALID,
		    "lease.url is not a ZooKeeper URL; write zookeeper://HOST:PORT[,HOST:PORT]/PATH");
	snprintf(l->path, sizeof(l->path), "/%.*s", STR_ARG(rest));
	l->hosts = strndup(hosts.ptr, hosts.len);
	return l->hosts ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

int leases_zookeeper_open(const char *url, struct leases **ret, struct err *e)
{
	struct leases_zookeeper *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	l->base.ops = &zk_ops;
	list_init(&l->leases);
	list_init(&l->closing);
	pthread_mutex_init(&l->lock, NULL);
	zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
	int r = url_parse(l, url, e);
	if (r == 0)
		r = task_start(&l->beater, &(struct task_config){.name = "lease-beat", .run = beater_run}, e);
	if (r < 0) {
		zk_free(&l->base);
		return r;
	}
	*ret = &l->base;
	return 0;
}
