/*
 * The salt of the day (event/salt.h) for servers that share a link store: it lies there, as a constant with
 * the day in its name, so that a visitor is the same one on all of them. It is fetched before the day begins,
 * and whoever comes first on the next one has the store forget it.
 */
#pragma once

#include "event/salt.h"
#include "store/store.h"

/* Fetches those of today and tomorrow, unless they are known; removes older ones. For a store that nobody
 * shares it does nothing. A store that does not answer is asked again the next time; a server that has no
 * salt by then makes its own. Blocks as the store does. */
void day_salt_keep(struct salts *salts, struct store *store, int64_t now_ms);
