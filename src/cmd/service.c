#include "cmd/service.h"

#include "cmd/command.h"

#include <signal.h>
#include <stdio.h>

static int print_help(const struct service *service)
{
	struct buf CLEANUP(buf_release) text = {0};
	buf_str(&text, str_of(service->usage));
	settings_help(&text);
	printf("%.*s", STR_ARG(buf_view(&text)));
	return 0;
}

/* Threads inherit the mask: signals reach this thread alone. */
static void signals_hold(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGHUP);
	pthread_sigmask(SIG_BLOCK, ret, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void wait_for_stop(const sigset_t *signals)
{
	int number = SIGHUP;
	while (sigwait(signals, &number) != 0 || number == SIGHUP)
		log_reopen(); /* for log rotation; other settings take a restart */
}

int service_run(const struct service *service, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return print_help(service);
	}
	struct err e;
	struct settings settings = {0};
	sigset_t signals;
	if (settings_load(&settings, argv, argc, &e) < 0)
		return cmd_fail("%s", e.text);
	signals_hold(&signals);
	int r = log_start(&settings.log, &e);
	if (r == 0)
		r = service->start(service->ctx, &settings, &e);
	if (r == 0) {
		wait_for_stop(&signals);
		log_info("cmd", "stopping");
		service->stop(service->ctx);
	}
	log_stop();
	settings_release(&settings);
	return r < 0 ? cmd_fail("%s", e.text) : 0;
}
