/*
 * The server that a command asks. In this order:
 *
 * 1. the one named by --server or CURT_URL, with --api-key or CURT_API_KEY;
 * 2. the one that holds the data folder;
 * 3. one inside this process, on the data folder, for as long as the command takes.
 *
 * All three run the same code, so every rule holds in each of them.
 */
#pragma once

#include "cmd/command.h"
#include "server/server.h"

struct client {
	char url[256];
	char *key;
	int call_seconds;
	struct server *own;            /* case 3; otherwise NULL */
	const struct command *command; /* errors name its options */
	const char *about; /* of several arguments, the one that an error is about; NULL: the only one */
};

/* Does --server or CURT_URL name a server? */
bool client_is_remote(const struct args *a);

/* Checks --server and --api-key before anything is asked. ERR_INVALID with a sentence. */
int client_check(const struct args *a, struct err *e);

int client_open(struct client *c, const struct args *a, struct err *e);
void client_close(struct client *c);

/* `body` may be STR_NULL. 0 for every answer, of any status; ERR_UNAVAILABLE when there was none. */
int client_call(struct client *c, const char *method, const char *path, struct str body, struct buf *response,
                int *ret_status, struct err *e);
