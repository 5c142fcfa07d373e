/*
 * The composition root: opens the backends that the settings name, connects the parts, starts pools and workers,
 * and stops everything in the opposite order.
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
	bool is_private;          /* in: for one command only: any loopback port, one worker, not published */
	struct folder folder;     /* in, or opened by server_start */
	/* in, unless private: called when one is made, before it is stored; when it fails, the start does */
	int (*show_admin_key)(const char *key, struct err *e);

	struct store *store;
	struct cluster cluster;
	struct budgets *budgets;
	struct links *links;
	struct links_follower *follower; /* NULL: only this process writes to the store */
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
	char listen_text[NET_ADDR_TEXT_BYTES]; /* the listening address */
	/* The workers: threads that serve requests, each with its own listener and event writer. */
	struct api_worker *api_workers[SERVER_WORKERS_MAX];
	struct listener *listeners[SERVER_WORKERS_MAX];
	int listen_fds[SERVER_WORKERS_MAX];
	unsigned worker_count;
	struct folder_server local; /* for the command line of the same user */
};

int server_start(struct server *s, struct err *e);

/* Also after a start that failed. The settings stay. */
void server_stop(struct server *s);
