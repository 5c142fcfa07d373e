/*
 * Cached links that are due to be read again (link/cache.h: Age), because others write to the store too.
 *
 * Whoever follows one is answered at once with what is there, while one job reads it again beside the
 * requests. An entry that nobody has asked for during a further life is asked for first. When the store does
 * not answer, what the cache has is served on, until the link's own end, and tried again a second later: a
 * store that is away ends no link that is in use. None of this holds for "no such link", nor for links with a
 * click limit: those are always asked for first.
 */
#pragma once

#include "handler/api.h"

/* The entry is due. True: it may be served; its next reading is under way. Loop threads. */
bool refresh_may_serve(struct api_worker *w, struct cache_entry *e);

/* The store has failed with `err` to say where the key leads: an entry to be served all the same, or NULL. */
struct cache_entry *refresh_rescue(struct api_worker *w, struct str key, int err);
