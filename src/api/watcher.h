/*
 * Follows what other servers do to the accounts: a task that asks the store every second, and at once when
 * it is told, whether users, API keys or sessions have changed, and reads them again if so. Only for stores
 * that others write to as well.
 */
#pragma once

#include "api/accounts.h"

struct watcher;

int watcher_start(struct accounts *a, struct watcher **ret, struct err *e);
void watcher_stop(struct watcher *w); /* NULL is fine */

/* Looks at once. Any thread. */
void watcher_wake(struct watcher *w);
