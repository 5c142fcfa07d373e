/*
 * A session with ZooKeeper, for lease_zookeeper.c only.
 *
 * The vendor's calls that wait do so for most of a session's timeout when the server is stopped. So questions
 * are asked without waiting, and their answers are awaited until a moment that the caller names (monotonic).
 * One thread asks at a time. Codes are the vendor's; ZOPERATIONTIMEOUT also when there was no answer by then,
 * and from then on for every question: the session is of no more use but to be freed.
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
	_Atomic bool doubted; /* it was not connected at some moment since zk_session_await */

	/* The question that was asked last, and what came back; under the lock while `asked`. */
	bool asked; /* there is no answer yet */
	int code;
	struct Stat stat;
	char data[ZK_DATA_BYTES_MAX];
	int data_len; /* may be more */
};

/* Begins to connect. NULL: it cannot. */
struct zk_session *zk_session_new(const char *hosts, uint64_t life_ms);
void zk_session_free(struct zk_session *s); /* NULL is fine; its nodes go at once if it is connected */

bool zk_session_is_over(struct zk_session *s);

/* Waits until it is connected, and begins to watch for doubt. */
bool zk_session_await(struct zk_session *s, const struct timespec *until);

/* After ZOK `stat`, and for the second `data`, are the node's. */
int zk_session_create(struct zk_session *s, const char *path, const char *data, int flags,
                      const struct timespec *until);
int zk_session_read(struct zk_session *s, const char *path, const struct timespec *until);
int zk_session_look(struct zk_session *s, const char *path, const struct timespec *until);
int zk_session_delete(struct zk_session *s, const char *path, const struct timespec *until);
