#include "cmd/service.h"

#include "cmd/command.h"

#include <signal.h>
#include <stdio.h>

int service_help(const char *usage)
{
	struct buf CLEANUP(buf_release) text = {0};
	settings_help(&text);
	printf("%s%.*s", usage, STR_ARG(buf_view(&text)));
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

static void wait_for_stop(const struct service *service, const sigset_t *signals, int argc, char **argv)
{
	for (;;) {
		int number;
		if (sigwait(signals, &number) != 0)
			continue;
		if (number != SIGHUP)
			return;
		log_reopen(); /* for log rotation */
		if (service->reload)
			service->reload(service->ctx, argc, argv);
	}
}

int service_run(const struct service *service, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return service_help(service->usage);
	}
	struct err e;
	sigset_t signals;
	if (settings_load(service->settings, argv, argc, &e) < 0)
		return cmd_fail("%s", e.text);
	signals_hold(&signals);
	int r = log_start(&service->settings->log, &e);
	if (r == 0)
		r = service->start(service->ctx, service->settings, &e);
	if (r == 0) {
		wait_for_stop(service, &signals, argc, argv);
		log_info("cmd", "stopping");
	}
	service->stop(service->ctx);
	log_stop();
	settings_release(service->settings);
	return r < 0 ? cmd_fail("%s", e.text) : 0;
}
