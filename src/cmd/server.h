/*
 * The composition root: opens the backends that the settings name, wires the parts together, starts the pools
 * and the workers, and takes it all down in the opposite order.
 */
#pragma once

#include "cmd/folder.h"
#include "cmd/settings.h"
#include "cmd/worker.h"

enum { SERVER_WORKERS_MAX = 256, SERVER_OWN_NAMES_MAX = 4 };

/* Zeroed members have not been made. */
struct server {
	struct settings settings; /* in: loaded */
	bool is_private; /* in: for this process's own use: any loopback port, one worker, not published */
	struct folder folder; /* in, or opened by server_start */

	struct store *store;
	struct budgets *budgets;
	struct links *links;
	struct keyring *keyring;
	struct api api;
	struct buf base_url;
	bool is_wildcard;
	char listen_text[NET_ADDR_TEXT_BYTES];    /* what is listened on */
	char own_text[NET_ADDR_TEXT_BYTES];       /* what the settings say, with the port that it became */
	char localhost_text[NET_ADDR_TEXT_BYTES]; /* the same by another name */
	struct str own_names[SERVER_OWN_NAMES_MAX];
	struct worker *workers[SERVER_WORKERS_MAX];
	int listen_fds[SERVER_WORKERS_MAX];
	unsigned worker_count;
	struct folder_server local;         /* how this user's command line gets in */
	char admin_key[API_KEY_TEXT_BYTES]; /* made at this start, to be shown; otherwise empty */
};

int server_start(struct server *s, struct err *e);

/* Also after a start that failed. The settings stay. */
void server_stop(struct server *s);
