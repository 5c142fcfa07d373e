#include "cmd/command.h"
#include "cmd/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void show_admin_key(const char *key)
{
	printf("admin key, shown this once: %s\n", key);
	fflush(stdout);
}

static void announce(const struct server *s)
{
	printf("curt %s, data in %s\n", CURT_VERSION, s->settings.serve.data);
	printf("open %.*s/ in a browser\n", STR_ARG(s->identity.base_url));
	printf("listening on http://%s\n", s->listen_text);
	fflush(stdout);
}

static void reload(struct server *s, int argc, char **argv)
{
	struct err e;
	log_reopen();
	if (settings_reload(&s->settings, argv, argc, &e) < 0) {
		log_error("cmd", "the settings stay as they were: %s", e.text);
		return;
	}
	log_level_set(s->settings.log.level);
	log_info("cmd", "the settings were read again");
}

static void wait_for_stop(struct server *s, const sigset_t *signals, int argc, char **argv)
{
	for (;;) {
		int signal_number;
		if (sigwait(signals, &signal_number) != 0)
			continue;
		if (signal_number != SIGHUP)
			return;
		reload(s, argc, argv);
	}
}

static int print_help(void)
{
	struct buf CLEANUP(buf_release) text = {0};
	buf_str(&text, STR("usage: curt serve [--config FILE] [--SETTING VALUE]...\n\n"
	                   "Serves redirects and the API. Settings come from the file, then the environment, "
	                   "then flags.\n\n"));
	settings_help(&text);
	printf("%.*s", STR_ARG(buf_view(&text)));
	return 0;
}

static int print_markdown(void)
{
	struct buf CLEANUP(buf_release) text = {0};
	settings_markdown(&text);
	printf("%.*s", STR_ARG(buf_view(&text)));
	return 0;
}

int cmd_serve(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return print_help();
		if (strcmp(argv[i], "--help-markdown") == 0)
			return print_markdown();
	}

	struct err e;
	struct server *s = calloc(1, sizeof(*s));
	if (!s)
		return cmd_fail("out of memory");
	s->folder.lock_fd = -1;
	s->show_admin_key = show_admin_key;
	if (settings_load(&s->settings, argv, argc, &e) < 0) {
		free(s);
		return cmd_fail("%s", e.text);
	}

	/* Threads inherit the mask: signals reach this thread alone, in wait_for_stop. */
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a write that fails, like a full disk */

	int r = log_start(&s->settings.log, &e);
	if (r == 0)
		r = server_start(s, &e);
	if (r == 0) {
		announce(s);
		wait_for_stop(s, &signals, argc, argv);
		log_info("cmd", "stopping");
	}
	server_stop(s);
	log_stop();
	settings_release(&s->settings);
	free(s);
	return r < 0 ? cmd_fail("%s", e.text) : 0;
}
