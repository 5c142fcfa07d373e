#include "cmd/service.h"
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int show_admin_key(const char *key, struct err *e)
{
	printf("admin key, shown this once: %s\n", key);
	return cmd_flush() == 0 ? 0 : err_set(e, ERR_UNAVAILABLE, "the admin key cannot be shown");
}

static int start(void *ctx, const struct settings *settings, struct err *e)
{
	struct server *s = ctx;
	int r = server_start(s, e);
	if (r < 0)
		return r;
	printf("curt %s, data in %s\n", CURT_VERSION, settings->data);
	printf("open %.*s/ in a browser\n", STR_ARG(s->identity.base_url));
	printf("listening on http://%s\n", s->listen_text);
	return 0;
}

static void stop(void *ctx)
{
	server_stop(ctx);
}

static void reload(void *ctx, const struct args *a)
{
	struct server *s = ctx;
	struct err e;
	if (settings_reload(&s->settings, a->settings, a->setting_count, &e) < 0) {
		log_error("cmd", "reload failed, the settings are unchanged: %s", e.text);
		return;
	}
	log_level_set(s->settings.log.level);
	log_info("cmd", "settings reloaded");
}

static int run(struct args *a)
{
	struct server *s = calloc(1, sizeof(*s));
	if (!s)
		return cmd_fail("out of memory");
	s->folder.lock_fd = -1;
	s->show_admin_key = show_admin_key;
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a write that fails, like a full disk */
	const struct service service = {
	    .settings = &s->settings,
	    .start = start,
	    .stop = stop,
	    .reload = reload,
	    .ctx = s,
	};
	int r = service_run(&service, a);
	free(s);
	return r;
}

const struct command serve_command = {
    .name = "serve",
    .summary = "Serve redirects and the API",
    .details = "The first start creates the data folder and prints the admin's API key. SIGHUP rereads the "
               "settings and reopens the log file; SIGTERM finishes open requests and stops.",
    .examples = "curt serve --data /srv/curt --listen 127.0.0.1:8080\n"
                "curt serve --config curt.conf --log-level debug",
    .takes_settings = true,
    .run = run,
};
