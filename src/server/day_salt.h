/*
 * The salt of the day (event/salt.h) for servers that share a link store. The store holds it as a constant with
 * the day in its name, so a visitor has the same id on all servers. Servers fetch it before the day begins; the
 * first server of the next day deletes it.
 */
#pragma once

#include "event/salt.h"
#include "store/store.h"

/* Fetches the salts of today and tomorrow, unless they are known; deletes older ones. Does nothing for a store
 * that is not shared. When the store does not answer, the next call tries again; a server without a salt makes
 * its own. Blocks as the store does. */
void day_salt_keep(struct salts *salts, struct store *store, int64_t now_ms);
