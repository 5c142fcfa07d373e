#include "server/settings.h"

#include "base/utf8.h"
#include "http/chars.h"
#include "http/forwarded.h"
#include "link/key_format.h"
#include "queue/topics.h"
#include "server/backends.h"
#include "server/identity.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SETTING(...) CONF_ROW(struct serve_settings, __VA_ARGS__)

static const char *const role_names[] = {"all", "stats", NULL};

static const struct conf_row serve_rows[] = {
    SETTING("serve", "listen", CONF_STRING, listen, "127.0.0.1:8080",
            "Where the server listens: an address and a port, such as 127.0.0.1:8080. Port 0 lets the system "
            "choose one."),
    SETTING("serve", "workers", CONF_UINT, workers, "0",
            "How many threads serve requests. 0: one for each core that the process may use.", .max = 256),
    SETTING(
        "serve", "base_url", CONF_STRING, base_url, "",
        "What short links begin with, such as https://s.example. Empty: http:// and the listening address."),
    SETTING("serve", "data", CONF_STRING, data, "",
            "The data folder, created when it is missing. Empty: $STATE_DIRECTORY, else "
            "$XDG_STATE_HOME/curt, else ~/.local/state/curt."),
    SETTING("serve", "trusted_proxies", CONF_STRING, trusted_proxies, "",
            "Proxies whose X-Forwarded-For and country headers the server believes: addresses and networks "
            "(10.0.0.0/8) separated by commas; the word loopback stands for this machine."),
    SETTING("serve", "drain_time", CONF_DURATION, drain_ms, "10s",
            "How long a stopping server waits for open requests. New connections have a tenth of it to send "
            "the first byte.",
            .max = 600000),
    SETTING("store", "url", CONF_STRING, store_url, "sqlite:",
            "Where links, users and API keys are stored. sqlite: is links.db in the data folder, "
            "sqlite:/PATH another file. postgres://USER:PASSWORD@HOST/DATABASE can be shared by several "
            "servers; links are sharded over several of them, separated by commas. On a shared store, "
            "max_clicks is exact for each server only.",
            .flags = CONF_SECRET),
    SETTING("store", "replicas", CONF_STRING, store_replicas, "",
            "Read replicas of the databases in store.url: postgres:// URLs separated by commas.",
            .flags = CONF_SECRET),
    SETTING(
        "cache", "url", CONF_STRING, cache_url, "",
        "The Redis cache that servers share, and through which they announce changes: redis://HOST:PORT or "
        "redis+sentinel://HOST:PORT,HOST:PORT/NAME, several separated by commas. Empty: no shared cache.",
        .flags = CONF_SECRET),
    SETTING("limits", "url", CONF_STRING, limits_url, "",
            "The Redis, as in cache.url, through which servers share the limits of API keys and users. "
            "Empty: each server applies them by itself.",
            .flags = CONF_SECRET),
    SETTING("lease", "url", CONF_STRING, lease_url, "",
            "The lease service for work that only one process may do: redis://HOST:PORT, "
            "redis+sentinel://HOST:PORT,HOST:PORT/NAME, zookeeper://HOST:PORT,HOST:PORT/PATH, or "
            "file:/FOLDER for the processes of one machine. Servers use it for sweeps (sweep.interval). "
            "Empty: every server sweeps.",
            .flags = CONF_SECRET),
    SETTING("sink", "url", CONF_STRING, sink_url, "sqlite:",
            "Where statistics are stored. sqlite: is stats.db in the data folder, sqlite:/PATH another file. "
            "clickhouse://USER:PASSWORD@HOST:8123/DATABASE and postgres://USER:PASSWORD@HOST/DATABASE can be "
            "shared by servers and workers.",
            .flags = CONF_SECRET),
    SETTING("seen", "url", CONF_STRING, seen_url, "",
            "The Redis, as in cache.url, that remembers counted impressions, so that ClickHouse is seldom "
            "asked. With queue.url it also holds live click counts. Empty: the sink alone finds duplicates.",
            .flags = CONF_SECRET),
    SETTING(
        "worker", "listen", CONF_STRING, worker_listen, "",
        "Where 'curt worker' serves /healthz, /readyz and /metrics: an address and a port. Empty: nowhere."),
    SETTING(
        "worker", "threads", CONF_UINT, worker_threads, "2",
        "How many threads of 'curt worker' read the queue. While one waits for the sink, the others work.",
        .min = 1, .max = 64),
    SETTING("serve", "role", CONF_ENUM, role, "all",
            "What the server does. all: everything. stats: it only answers queries, from a sink that other "
            "processes fill, so that heavy queries slow no redirects.",
            .choices = role_names),
};

/* CURT_ variables that are not settings. */
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

static const char config_flag[] = "--config";

/* Takes --config out of the arguments: it names the file that the other settings come from. */
static void source_of(char *const *args, int arg_count, char **rest, struct conf_source *ret)
{
	const size_t len = strlen(config_flag);
	*ret = (struct conf_source){
	    .file = getenv("CURT_CONFIG"),
	    .env = environ,
	    .env_ignored = env_ignored,
	    .args = rest,
	};
	for (int i = 0; i < arg_count; i++) {
		if (strncmp(args[i], config_flag, len) != 0 || (args[i][len] && args[i][len] != '='))
			rest[ret->arg_count++] = args[i];
		else if (args[i][len] == '=')
			ret->file = args[i] + len + 1;
		else if (i + 1 < arg_count)
			ret->file = args[++i];
	}
	if (!ret->file && access(SETTINGS_FILE, F_OK) == 0)
		ret->file = SETTINGS_FILE;
}

static int find_data(struct settings *s, struct err *e)
{
	const char *systemd = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME"),
	           *home = getenv("HOME");
	const struct passwd *user = home ? NULL : getpwuid(getuid());
	int r;
	if (s->serve.data[0])
		r = asprintf(&s->data, "%s", s->serve.data);
	else if (systemd && systemd[0])
		r = asprintf(&s->data, "%.*s", (int)strcspn(systemd, ":"), systemd);
	else if (xdg && xdg[0] == '/')
		r = asprintf(&s->data, "%s/curt", xdg);
	else if (home || user)
		r = asprintf(&s->data, "%s/.local/state/curt", home ? home : user->pw_dir);
	else
		return err_set(
		    e, ERR_INVALID,
		    "the data folder is unknown, because HOME is not set; name it with --data DIR");
	if (r < 0)
		s->data = NULL;
	return r < 0 ? err_set(e, ERR_NOMEM, "out of memory") : 0;
}

static int check_listen(const struct serve_settings *s, struct err *e)
{
	struct net_addr addr;
	struct identity id;
	int r = s->worker_listen[0] ? net_addr_parse(str_of(s->worker_listen), &addr, e) : 0;
	if (r < 0)
		return err_about(e, r, "worker.listen");
	r = err_about(e, net_addr_parse(str_of(s->listen), &addr, e), "serve.listen");
	if (r < 0)
		return r;
	r = identity_init(&id, s->base_url, &addr, e);
	identity_release(&id);
	return r;
}

static int check_proxies(const char *list, struct err *e)
{
	struct proxies *proxies = NULL;
	int r = proxies_parse(str_of(list), &proxies, e);
	proxies_free(proxies);
	return err_about(e, r, "serve.trusted_proxies");
}

static int check_events(const struct event_settings *s, struct err *e)
{
	struct echo shown;
	if (http_chars_are(str_of(s->country_header), HTTP_CHAR_TOKEN))
		return 0;
	return err_set(
	    e, ERR_INVALID,
	    "events.country_header: '%s' is not the name of a header; write one such as CF-IPCountry",
	    echo(&shown, str_of(s->country_header)));
}

/* What a table of rows cannot check. Here, because a start must not fail after it has created something. */
static int check(const struct settings *s, struct err *e)
{
	struct topics topics;
	return check_listen(&s->serve, e)
	       ?: check_proxies(s->serve.trusted_proxies, e)
	       ?: check_events(&s->events, e)
	       ?: key_length_check(s->links.key_length, e)
	       ?: keys_settings_check(&s->keys, e)
	       ?: topics_init(&topics, &s->queue, e)
	       ?: backend_check(s, e);
}

static void needs_restart(const char *section, const char *name)
{
	log_warn("config", "setting changed, restart to apply it setting=%s.%s", section, name);
}

static int load(struct settings *s, char *const *args, int arg_count, bool again, struct err *e)
{
	struct conf_group groups[GROUPS];
	struct conf_source from;
	char **rest = calloc((size_t)arg_count + 1, sizeof(*rest));
	if (!rest)
		return err_set(e, ERR_NOMEM, "out of memory");
	groups_of(s, groups);
	source_of(args, arg_count, rest, &from);
	int r = again ? conf_reload(groups, GROUPS, &from, needs_restart, e)
	              : conf_load(groups, GROUPS, &from, e);
	free(rest);
	return r;
}

int settings_load(struct settings *s, char *const *args, int arg_count, struct err *e)
{
	s->data = NULL;
	int r = load(s, args, arg_count, false, e);
	if (r < 0)
		return r;
	r = find_data(s, e) ?: check(s, e);
	if (r < 0)
		settings_release(s);
	return r;
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
	free(steal(s->data));
}

int settings_check_flag(char *const *args, int arg_count, int *index, struct suggestion *nearest,
                        struct err *e)
{
	struct settings s = {0};
	struct conf_group groups[GROUPS];
	const char *arg = args[*index];
	groups_of(&s, groups);
	if (strncmp(arg, "--config=", strlen("--config=")) == 0)
		return 0;
	if (strcmp(arg, config_flag) != 0) {
		int r = conf_check_flag(groups, GROUPS, args, arg_count, index, nearest, e);
		if (r == ERR_NOT_FOUND)
			suggest_offer(nearest, config_flag);
		return r;
	}
	if (++*index == arg_count)
		return err_set(e, ERR_INVALID, "--config needs a file name: write '--config FILE'");
	return 0;
}

void settings_put(settings_format *format, struct buf *out)
{
	struct conf_group groups[GROUPS];
	groups_of(NULL, groups);
	format(groups, GROUPS, out);
}
