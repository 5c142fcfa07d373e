/*
 * All settings of curt, and where they come from.
 *
 * The configuration file is --config FILE, else CURT_CONFIG, else /etc/curt/curt.conf when it exists.
 *
 * The data folder is serve.data (--data DIR, CURT_DATA, or the file). When that is empty, it is the state
 * folder of the system: $STATE_DIRECTORY, which systemd sets, else $XDG_STATE_HOME/curt, else
 * ~/.local/state/curt.
 */
#pragma once

#include "config/config.h"
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
	char *data; /* the data folder: serve.data, or the default */
};

#define SETTINGS_FILE "/etc/curt/curt.conf"

/* `args` are flags and their values, --config included. Checks every value, but connects to nothing and creates
 * nothing. */
int settings_load(struct settings *s, char *const *args, int arg_count, struct err *e);
int settings_reload(struct settings *s, char *const *args, int arg_count, struct err *e);
void settings_release(struct settings *s);

/* As conf_check_flag, and for --config too. */
int settings_check_flag(char *const *args, int arg_count, int *index, struct suggestion *nearest,
                        struct err *e);

/* Appends all settings in a format of config.h: conf_help, conf_markdown or conf_flags. */
typedef void settings_format(const struct conf_group *groups, size_t group_count, struct buf *out);
void settings_put(settings_format *format, struct buf *out);
