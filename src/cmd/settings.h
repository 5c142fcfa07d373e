/* All settings, and how every subcommand reads them. */
#pragma once

#include "api/api.h"
#include "cmd/folder.h"
#include "http/conn.h"
#include "link/links.h"
#include "obs/log.h"

struct serve_settings {
	char *listen;
	char *base_url;
	char *data;
	uint64_t workers;
	uint64_t drain_ms;
	char *store_url;
};

struct settings {
	struct serve_settings serve;
	struct links_settings links;
	struct http_settings http;
	struct api_settings api;
	struct log_settings log;
};

/* Reads everything: `args` is what stands behind the subcommand, --config included. */
int settings_load(struct settings *s, char *const *args, int arg_count, struct err *e);
int settings_reload(struct settings *s, char *const *args, int arg_count, struct err *e);
void settings_release(struct settings *s);
void settings_help(struct buf *out);
void settings_markdown(struct buf *out);
