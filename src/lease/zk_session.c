#include "lease/zk_session.h"

#include "obs/log.h"
#include "os/thread.h"

#include <stdlib.h>
#include <string.h>

static void session_watch(zhandle_t *vendor, int type, int state, const char *path, void *ctx)
{
	(void)vendor;
	(void)path;
	struct zk_session *s = ctx;
	if (type != ZOO_SESSION_EVENT)
		return;
	if (state != ZOO_CONNECTED_STATE)
		atomic_store(&s->was_disconnected, true);
	pthread_mutex_lock(&s->lock);
	s->state = state;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void vendor_log(const char *message)
{
	log_debug("lease", "zookeeper: %.400s", message);
}

void zk_session_free(struct zk_session *s)
{
	if (!s)
		return;
	if (s->vendor)
		zookeeper_close(
		    s->vendor); /* ends the library's threads; nodes disappear at once if connected */
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

struct zk_session *zk_session_new(const char *hosts, uint64_t life_ms)
{
	struct zk_session *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	cond_init_mono(&s->changed);
	pthread_mutex_init(&s->lock, NULL);
	s->life_ms = life_ms;
	s->vendor = zookeeper_init2(hosts, session_watch, (int)life_ms, NULL, s, ZOO_NO_LOG_CLIENTENV,
	                            vendor_log);
	if (!s->vendor) {
		zk_session_free(s);
		return NULL;
	}
	return s;
}

static bool state_is_final(int state)
{
	return state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE;
}

bool zk_session_is_over(struct zk_session *s)
{
	pthread_mutex_lock(&s->lock);
	bool over = state_is_final(s->state);
	pthread_mutex_unlock(&s->lock);
	return over;
}

bool zk_session_await(struct zk_session *s, const struct timespec *until)
{
	pthread_mutex_lock(&s->lock);
	while (s->state != ZOO_CONNECTED_STATE && !state_is_final(s->state) &&
	       cond_wait_until(&s->changed, &s->lock, until))
		;
	bool connected = s->state == ZOO_CONNECTED_STATE;
	if (connected)
		atomic_store(&s->was_disconnected, false);
	pthread_mutex_unlock(&s->lock);
	return connected;
}

/* Requests; answers arrive on the library's thread. */

static void answered(struct zk_session *s, int code, const struct Stat *stat, const char *data, int data_len)
{
	pthread_mutex_lock(&s->lock);
	s->is_waiting = false;
	s->code = code;
	if (code == ZOK && stat)
		s->stat = *stat;
	s->data_len = code == ZOK && data_len > 0 ? data_len : 0;
	if (s->data_len > 0)
		memcpy(s->data, data, MIN((size_t)s->data_len, sizeof(s->data)));
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void created(int code, const char *path, const struct Stat *stat, const void *ctx)
{
	(void)path;
	answered((struct zk_session *)ctx, code, stat, NULL, 0);
}

static void got(int code, const char *data, int len, const struct Stat *stat, const void *ctx)
{
	answered((struct zk_session *)ctx, code, stat, data, len);
}

static void looked(int code, const struct Stat *stat, const void *ctx)
{
	answered((struct zk_session *)ctx, code, stat, NULL, 0);
}

static void deleted(int code, const void *ctx)
{
	answered((struct zk_session *)ctx, code, NULL, NULL, 0);
}

/* False: the last request has no answer, and will have none in time. */
static bool may_ask(struct zk_session *s)
{
	pthread_mutex_lock(&s->lock);
	bool may = !s->is_waiting;
	s->is_waiting = true;
	pthread_mutex_unlock(&s->lock);
	return may;
}

/* `sent` is the library's code for the request. ZOPERATIONTIMEOUT: no answer in time. */
static int answer_await(struct zk_session *s, int sent, const struct timespec *until)
{
	pthread_mutex_lock(&s->lock);
	if (sent != ZOK) {
		s->is_waiting = false;
		s->code = sent;
	}
	while (s->is_waiting && cond_wait_until(&s->changed, &s->lock, until))
		;
	int code = s->is_waiting ? ZOPERATIONTIMEOUT : s->code;
	pthread_mutex_unlock(&s->lock);
	return code;
}

int zk_session_create(struct zk_session *s, const char *path, const char *data, int flags,
                      const struct timespec *until)
{
	if (!may_ask(s))
		return ZOPERATIONTIMEOUT;
	int sent = zoo_acreate2(s->vendor, path, data, (int)strlen(data), &ZOO_OPEN_ACL_UNSAFE, flags,
	                        created, s);
	return answer_await(s, sent, until);
}

int zk_session_read(struct zk_session *s, const char *path, const struct timespec *until)
{
	return may_ask(s) ? answer_await(s, zoo_aget(s->vendor, path, 0, got, s), until) : ZOPERATIONTIMEOUT;
}

int zk_session_look(struct zk_session *s, const char *path, const struct timespec *until)
{
	return may_ask(s) ? answer_await(s, zoo_aexists(s->vendor, path, 0, looked, s), until)
	                  : ZOPERATIONTIMEOUT;
}

int zk_session_delete(struct zk_session *s, const char *path, const struct timespec *until)
{
	return may_ask(s) ? answer_await(s, zoo_adelete(s->vendor, path, -1, deleted, s), until)
	                  : ZOPERATIONTIMEOUT;
}
