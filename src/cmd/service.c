#include "cmd/service.h"

#include <signal.h>
#include <stdio.h>

/* Threads inherit the mask: signals reach this thread alone. */
static void block_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGHUP);
	pthread_sigmask(SIG_BLOCK, ret, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void wait_for_stop(const struct service *service, const sigset_t *signals, const struct args *a)
{
	for (;;) {
		int number;
		if (sigwait(signals, &number) != 0)
			continue;
		if (number != SIGHUP)
			return;
		log_reopen(); /* for log rotation */
		if (service->reload)
			service->reload(service->ctx, a);
	}
}

int service_run(const struct service *service, const struct args *a)
{
	struct err e;
	sigset_t signals;
	struct settings own = {0}, *settings = service->settings ? service->settings : &own;
	if (settings_load(settings, a->settings, a->setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	block_signals(&signals);
	int r = log_start(&settings->log, &e), status = 0;
	if (r == 0)
		r = service->start(service->ctx, settings, &e);
	if (r == 0 && (status = cmd_flush()) == 0) {
		wait_for_stop(service, &signals, a);
		log_info("cmd", "stopping");
	}
	service->stop(service->ctx);
	log_stop();
	settings_release(settings);
	return r < 0 ? cmd_fail("%s", e.text) : status;
}
