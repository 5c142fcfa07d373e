/*
 * A ZooKeeper session, for lease_zookeeper.c only.
 *
 * The library's synchronous calls wait for most of the session timeout if the server is stopped. So
 * requests are asynchronous, and the caller waits until a deadline that it names (monotonic). One thread at
 * a time. Codes are the library's; ZOPERATIONTIMEOUT also if there was no answer in time. After that the
 * session can only be freed: every request returns it.
 */
#pragma once

#include "base/def.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

enum { ZK_DATA_BYTES_MAX = 64 };

struct zk_session {
	zhandle_t *vendor;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int state; /* under the lock; ZOO_..._STATE, 0 before the first */
	uint64_t life_ms;
	_Atomic bool was_disconnected; /* it was disconnected since zk_session_await */

	/* The last request and its answer; under the lock while is_waiting. */
	bool is_waiting; /* no answer yet */
	int code;
	struct Stat stat;
	char data[ZK_DATA_BYTES_MAX];
	int data_len; /* may be larger than the buffer */
};

/* Starts connecting. NULL: failed. */
struct zk_session *zk_session_new(const char *hosts, uint64_t life_ms);
void zk_session_free(struct zk_session *s); /* takes NULL; its nodes disappear at once if connected */

bool zk_session_is_over(struct zk_session *s);

/* Waits until it is connected, and starts watching for disconnects. */
bool zk_session_await(struct zk_session *s, const struct timespec *until);

/* After ZOK `stat` is the node's, and for the second call `data`. */
int zk_session_create(struct zk_session *s, const char *path, const char *data, int flags,
                      const struct timespec *until);
int zk_session_read(struct zk_session *s, const char *path, const struct timespec *until);
int zk_session_look(struct zk_session *s, const char *path, const struct timespec *until);
int zk_session_delete(struct zk_session *s, const char *path, const struct timespec *until);
