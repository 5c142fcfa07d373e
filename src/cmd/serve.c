#include "api/metrics_page.h"
#include "cmd/command.h"
#include "cmd/service.h"
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: curt serve [--config FILE] [--SETTING VALUE]...\n"
    "\n"
    "Serves redirects and the API. Settings come from the file, then the environment, then flags.\n"
    "\n";

static void show_admin_key(const char *key)
{
	printf("admin key, shown this once: %s\n", key);
	fflush(stdout);
}

static int start(void *ctx, const struct settings *settings, struct err *e)
{
	struct server *s = ctx;
	int r = server_start(s, e);
	if (r < 0)
		return r;
	printf("curt %s, data in %s\n", CURT_VERSION, settings->serve.data);
	printf("open %.*s/ in a browser\n", STR_ARG(s->identity.base_url));
	printf("listening on http://%s\n", s->listen_text);
	fflush(stdout);
	return 0;
}

static void stop(void *ctx)
{
	server_stop(ctx);
}

static void reload(void *ctx, int argc, char **argv)
{
	struct server *s = ctx;
	struct err e;
	if (settings_reload(&s->settings, argv, argc, &e) < 0) {
		log_error("cmd", "the settings stay as they were: %s", e.text);
		return;
	}
	log_level_set(s->settings.log.level);
	log_info("cmd", "the settings were read again");
}

static int print_markdown(void (*write)(struct buf *))
{
	struct buf CLEANUP(buf_release) text = {0};
	write(&text);
	printf("%.*s", STR_ARG(buf_view(&text)));
	return 0;
}

int cmd_serve(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help-markdown") == 0)
			return print_markdown(settings_markdown);
		if (strcmp(argv[i], "--metrics-markdown") == 0)
			return print_markdown(metrics_markdown_page);
	}
	struct server *s = calloc(1, sizeof(*s));
	if (!s)
		return cmd_fail("out of memory");
	s->folder.lock_fd = -1;
	s->show_admin_key = show_admin_key;
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a write that fails, like a full disk */
	const struct service service = {
	    .usage = usage,
	    .settings = &s->settings,
	    .start = start,
	    .stop = stop,
	    .reload = reload,
	    .ctx = s,
	};
	int r = service_run(&service, argc, argv);
	free(s);
	return r;
}
