/*
 * A real redis-server of a test's own, on a free loopback port, without persistence unless asked for. It ends
 * with the test, however that ends. However busy the machine is, its answers are awaited; only while one is
 * stopped by a test are all given up as soon as in life.
 */
#pragma once

#include "lib/temp.h"

#include <signal.h>

struct redis_server {
	struct temp folder;
	pid_t pid; /* 0: it does not run */
	unsigned port;
	bool is_sentinel;
	char url[64]; /* redis://127.0.0.1:PORT */
};

/* Is redis-server there to be started? */
bool redis_server_exists(void);

/* Starts it and waits until it answers; fails the test when it does not. `args`: further arguments of
 * redis-server up to a NULL, or NULL. */
void redis_server_start(struct redis_server *s, const char *const *args);

/* A sentinel that watches a server under the name "main"; the second one where both want a password. */
void redis_server_start_sentinel(struct redis_server *s, unsigned primary_port);
void redis_server_start_guarded_sentinel(struct redis_server *s, unsigned primary_port, const char *password);

/* Once more on the same port, after redis_server_kill. */
void redis_server_restart(struct redis_server *s, const char *const *args);

void redis_server_kill(struct redis_server *s);             /* -9 */
void redis_server_signal(struct redis_server *s, int what); /* SIGSTOP, SIGCONT */
void redis_server_stop(struct redis_server *s);             /* and removes its folder; twice is fine */
