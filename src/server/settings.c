#include "server/settings.h"

#include <stdlib.h>
#include <unistd.h>

#define SETTING(...) CONF_ROW(struct serve_settings, __VA_ARGS__)

static const char *const role_names[] = {"all", "stats", NULL};

static const struct conf_row serve_rows[] = {
    SETTING("serve", "listen", CONF_STRING, listen, "127.0.0.1:8080",
            "Address and port to listen on; port 0 lets the system choose."),
    SETTING("serve", "workers", CONF_UINT, workers, "0",
            "Worker threads; 0 is one for each core that the process may use.", .max = 256),
    SETTING("serve", "base_url", CONF_STRING, base_url, "",
            "What short links begin with, such as https://s.example; empty is http:// and the listening "
            "address."),
    SETTING("serve", "data", CONF_STRING, data, "data", "The data folder; made when it is missing."),
    SETTING(
        "serve", "trusted_proxies", CONF_STRING, trusted_proxies, "",
        "Proxies whose X-Forwarded-For and country header are believed: addresses and networks (10.0.0.0/8) "
        "separated by commas, and the word loopback."),
    SETTING("serve", "drain_time", CONF_DURATION, drain_ms, "10s",
            "How long a stopping server lets requests under way finish.", .max = 600000),
    SETTING(
        "store", "url", CONF_STRING, store_url, "sqlite:",
        "Where links and keys are kept: sqlite: is links.db in the data folder, sqlite:/path another file; "
        "postgres://USER:PASSWORD@HOST/DATABASE, which several servers may share, and several of "
        "them separated by commas, over which the links are spread. Click limits (max_clicks) are then "
        "exact on each server only.",
        .flags = CONF_SECRET),
    SETTING("store", "replicas", CONF_STRING, store_replicas, "",
            "Replicas of the databases in store.url that answer lookups, as postgres:// URLs separated by "
            "commas.",
            .flags = CONF_SECRET),
    SETTING("cache", "url", CONF_STRING, cache_url, "",
            "The cache that servers share, through which they tell each other of changes: redis://HOST:PORT "
            "or redis+sentinel://HOST:PORT,HOST:PORT/NAME; several are separated by commas. Empty: none.",
            .flags = CONF_SECRET),
    SETTING("limits", "url", CONF_STRING, limits_url, "",
            "Through which Redis (as in cache.url) servers keep the limits of API keys and users together; "
            "empty: each server for itself.",
            .flags = CONF_SECRET),
    SETTING(
        "lease", "url", CONF_STRING, lease_url, "",
        "Who says which of several processes does what only one may do: redis://HOST:PORT, "
        "redis+sentinel://HOST:PORT,HOST:PORT/NAME, zookeeper://HOST:PORT,HOST:PORT/PATH, or file:/FOLDER "
        "for processes of one machine. A server needs it only to be the one that sweeps (sweep.interval); "
        "empty: every server does.",
        .flags = CONF_SECRET),
    SETTING("sink", "url", CONF_STRING, sink_url, "sqlite:",
            "Where statistics are kept: sqlite: is stats.db in the data folder, sqlite:/path another file; "
            "clickhouse://USER:PASSWORD@HOST:8123/DATABASE or postgres://USER:PASSWORD@HOST/DATABASE, which "
            "several servers and workers may share.",
            .flags = CONF_SECRET),
    SETTING(
        "seen", "url", CONF_STRING, seen_url, "",
        "The Redis (as in cache.url) that remembers which impressions were counted, so that ClickHouse is "
        "seldom asked, and that holds live click counts when there is a queue.url. Empty: the sink alone "
        "tells duplicates.",
        .flags = CONF_SECRET),
    SETTING("worker", "listen", CONF_STRING, worker_listen, "",
            "Address and port where 'curt worker' answers /healthz, /readyz and /metrics; empty: nowhere."),
    SETTING(
        "worker", "threads", CONF_UINT, worker_threads, "2",
        "Threads of 'curt worker' that take events from the queue, each for itself: while one waits for the "
        "sink, another works.",
        .min = 1, .max = 64),
    SETTING(
        "serve", "role", CONF_ENUM, role, "all",
        "all: the server does everything; stats: it answers questions only, from a sink that others fill, "
        "so that heavy ones are in nobody's way.",
        .choices = role_names),
};

/* CURT_ names in the environment that are not settings. */
static const char *const env_ignored[] = {"CURT_ADMIN_KEY", "CURT_API_KEY", "CURT_CONFIG",
                                          "CURT_FAILPOINT", "CURT_URL",     NULL};

enum { GROUPS = 11 };

static void groups_of(struct settings *s, struct conf_group groups[GROUPS])
{
	groups[0] = (struct conf_group){serve_rows, ARRAY_LEN(serve_rows), s ? &s->serve : NULL};
	groups[1] = (struct conf_group){links_rows, links_row_count, s ? &s->links : NULL};
	groups[2] = (struct conf_group){api_rows, api_row_count, s ? &s->api : NULL};
	groups[3] = (struct conf_group){http_rows, http_row_count, s ? &s->http : NULL};
	groups[4] = (struct conf_group){event_rows, event_row_count, s ? &s->events : NULL};
	groups[5] = (struct conf_group){stats_rows, stats_row_count, s ? &s->stats : NULL};
	groups[6] = (struct conf_group){sink_rows, sink_row_count, s ? &s->sink : NULL};
	groups[7] = (struct conf_group){housekeeper_rows, housekeeper_row_count, s ? &s->housekeeper : NULL};
	groups[8] = (struct conf_group){log_rows, log_row_count, s ? &s->log : NULL};
	groups[9] = (struct conf_group){keys_rows, keys_row_count, s ? &s->keys : NULL};
	groups[10] = (struct conf_group){queue_rows, queue_row_count, s ? &s->queue : NULL};
}

/* Takes --config out of the arguments: it says where the others come from. */
static int source_of(char *const *args, int arg_count, char **rest, struct conf_source *ret, struct err *e)
{
	*ret = (struct conf_source){
	    .file = getenv("CURT_CONFIG"),
	    .env = environ,
	    .env_ignored = env_ignored,
	    .args = rest,
	};
	for (int i = 0; i < arg_count; i++) {
		if (strncmp(args[i], "--config=", 9) == 0) {
			ret->file = args[i] + 9;
		} else if (strcmp(args[i], "--config") == 0) {
			if (++i == arg_count)
				return err_set(e, ERR_INVALID, "--config needs a file name behind it");
			ret->file = args[i];
		} else {
			rest[ret->arg_count++] = args[i];
		}
	}
	return 0;
}

static void needs_restart(const char *section, const char *name)
{
	log_warn("config", "%s.%s has changed; it takes effect at the next start", section, name);
}

static int load(struct settings *s, char *const *args, int arg_count, bool again, struct err *e)
{
	struct conf_group groups[GROUPS];
	struct conf_source from;
	char **rest = calloc((size_t)arg_count + 1, sizeof(*rest));
	if (!rest)
		return err_set(e, ERR_NOMEM, "out of memory");
	groups_of(s, groups);
	int r = source_of(args, arg_count, rest, &from, e);
	if (r == 0)
		r = again ? conf_reload(groups, GROUPS, &from, needs_restart, e)
		          : conf_load(groups, GROUPS, &from, e);
	free(rest);
	return r;
}

int settings_load(struct settings *s, char *const *args, int arg_count, struct err *e)
{
	return load(s, args, arg_count, false, e);
}

int settings_reload(struct settings *s, char *const *args, int arg_count, struct err *e)
{
	return load(s, args, arg_count, true, e);
}

void settings_release(struct settings *s)
{
	struct conf_group groups[GROUPS];
	groups_of(s, groups);
	conf_release(groups, GROUPS);
}

void settings_help(struct buf *out)
{
	struct conf_group groups[GROUPS];
	groups_of(NULL, groups);
	conf_help(groups, GROUPS, out);
}

void settings_markdown(struct buf *out)
{
	struct conf_group groups[GROUPS];
	groups_of(NULL, groups);
	conf_markdown(groups, GROUPS, out);
}
