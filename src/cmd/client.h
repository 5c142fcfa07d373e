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
	struct server *own; /* case 3; otherwise NULL */
};

int client_open(struct client *c, const struct args *a, struct err *e);
void client_close(struct client *c);
bool client_is_remote(const struct args *a); /* case 1 */

/* `body` may be STR_NULL. 0 for every answer, of any status; ERR_UNAVAILABLE when there was none. */
int client_call(struct client *c, const char *method, const char *path, struct str body, struct buf *response,
                int *ret_status, struct err *e);
