/*
 * The composition root: opens the backends that the settings name, wires the parts together, starts the pools
 * and the workers, and takes it all down in the opposite order.
 */
#pragma once

#include "server/cluster.h"
#include "server/folder.h"
#include "server/identity.h"
#include "server/listener.h"
#include "server/pipeline.h"
#include "server/settings.h"

enum { SERVER_WORKERS_MAX = 256 };

/* Zeroed members have not been made. */
struct server {
	struct settings settings; /* in: loaded */
	bool is_private; /* in: for this process's own use: any loopback port, one worker, not published */
	struct folder folder; /* in, or opened by server_start */
	void (*show_admin_key)(
	    const char *key); /* in, unless private: called when one is made, before it is kept */

	struct store *store;
	struct cluster cluster;
	struct budgets *budgets;
	struct links *links;
	struct links_follower *follower; /* NULL: nobody else writes to the store */
	struct accounts *accounts;
	struct throttle *throttle;
	struct housekeeper *housekeeper; /* not of a private server */
	struct pipeline pipeline;
	struct event_log *event_log;
	struct salts *salts;
	struct proxies *proxies;
	struct capture_rules capture_rules;
	struct api api;
	struct live *live;
	struct identity identity;
	char listen_text[NET_ADDR_TEXT_BYTES]; /* what is listened on */
	/* The workers: threads that answer requests, each with a listener and an event writer of its own. */
	struct api_worker *api_workers[SERVER_WORKERS_MAX];
	struct listener *listeners[SERVER_WORKERS_MAX];
	int listen_fds[SERVER_WORKERS_MAX];
	unsigned worker_count;
	struct folder_server local; /* how this user's command line gets in */
};

int server_start(struct server *s, struct err *e);

/* Also after a start that failed. The settings stay. */
void server_stop(struct server *s);
