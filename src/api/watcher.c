#include "api/watcher.h"

#include "obs/log.h"
#include "os/task.h"

#include <stdlib.h>

enum { LOOK_EVERY_MS = 1000 };

struct watcher {
	struct accounts *accounts;
	struct task task;
	bool failing;
};

static int64_t watch(struct task *t)
{
	struct watcher *w = container_of(t, struct watcher, task);
	int r = accounts_follow(w->accounts);
	if (r < 0 && !w->failing)
		log_warn(
		    "api",
		    "the store does not say whether accounts have changed (%s); API keys and sessions are "
		    "honoured from memory for accounts.stale_time",
		    err_name(r));
	if (r == 0 && w->failing)
		log_info("api", "the store says again whether accounts have changed");
	w->failing = r < 0;
	return LOOK_EVERY_MS;
}

int watcher_start(struct accounts *a, struct watcher **ret, struct err *e)
{
	struct watcher *w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory");
	w->accounts = a;
	const struct task_config config = {.name = "watcher", .run = watch, .first_ms = LOOK_EVERY_MS};
	int r = task_start(&w->task, &config, e);
	if (r < 0)
		free(w);
	else
		*ret = w;
	return r;
}

void watcher_stop(struct watcher *w)
{
	if (w)
		task_stop(&w->task);
	free(w);
}

void watcher_wake(struct watcher *w)
{
	task_wake(&w->task);
}
