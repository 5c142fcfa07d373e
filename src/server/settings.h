/* All settings, and how every subcommand reads them. */
#pragma once

#include "handler/api.h"
#include "http/conn.h"
#include "keys/settings.h"
#include "link/links.h"
#include "obs/log.h"
#include "queue/settings.h"
#include "server/folder.h"
#include "server/housekeeper.h"
#include "sink/settings.h"

enum serve_role { ROLE_ALL, ROLE_STATS };

struct serve_settings {
	char *listen;
	char *base_url;
	char *data;
	uint64_t workers;
	uint64_t drain_ms;
	char *trusted_proxies;
	char *store_url;
	char *store_replicas;
	char *cache_url;
	char *limits_url;
	char *sink_url;
	char *seen_url;
	char *worker_listen;
	uint64_t worker_threads;
	int role; /* enum serve_role */
	char *lease_url;
};

struct settings {
	struct serve_settings serve;
	struct links_settings links;
	struct http_settings http;
	struct api_settings api;
	struct housekeeper_settings housekeeper;
	struct event_settings events;
	struct stats_settings stats;
	struct sink_settings sink;
	struct log_settings log;
	struct keys_settings keys;
	struct queue_settings queue;
};

/* Reads everything: `args` is what stands behind the subcommand, --config included. */
int settings_load(struct settings *s, char *const *args, int arg_count, struct err *e);
int settings_reload(struct settings *s, char *const *args, int arg_count, struct err *e);
void settings_release(struct settings *s);
void settings_help(struct buf *out);
void settings_markdown(struct buf *out);
