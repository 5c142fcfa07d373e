/*
 * How a subcommand does its work: by asking a server. In this order: the one named by --server or CURT_URL
 * (with --api-key or CURT_API_KEY); the one that works in the data folder; or, when none does, one of our own
 * inside this process, straight on the data folder, for as long as the command takes. So every rule holds in
 * all three ways, because it is the same code.
 */
#pragma once

#include "base/buf.h"
#include "server/server.h"

struct client {
	char url[256];
	char *key;
	int call_seconds;
	struct server *own; /* NULL: somebody else's */
};

struct client_options {
	const char *server;  /* --server */
	const char *api_key; /* --api-key */
	char **settings;     /* the arguments that are settings */
	int setting_count;
};

int client_open(struct client *c, const struct client_options *options, struct err *e);
void client_close(struct client *c);

/* `body` may be STR_NULL. 0 and the status for every answer, whatever the status; ERR_UNAVAILABLE when there
 * was none. */
int client_call(struct client *c, const char *method, const char *path, struct str body, struct buf *response,
                int *ret_status, struct err *e);
