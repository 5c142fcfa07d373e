/*
 * Cached links that are due for another read (link/cache.h: Age), because other servers write to the store.
 *
 * Stale while revalidate: a visitor is served at once from the cache, while one job reads the link again. An
 * entry without a visitor for a further life is read first. Stale if error: while the store fails, the entry
 * is served until the link expires, with a new attempt every second. So a store that is down ends no link in
 * use. Neither applies to unknown keys or to links with a click limit: those are always read first.
 */
#pragma once

#include "handler/api.h"

/* The entry is due. True: serve it; its next read is under way. Loop threads. */
bool refresh_stale_while_revalidate(struct api_worker *w, struct cache_entry *e);

/* The store failed with `err`: an entry to serve nevertheless, or NULL. Loop threads. */
struct cache_entry *refresh_stale_if_error(struct api_worker *w, struct str key, int err);
