/*
 * Chores of a running server that nobody waits for: telling the store when API keys were last used, removing
 * those that are dead for long, having the next day's salt from it and pruning its change feed; and removing
 * links that are over. A task for each: the second runs only in idle time (link/sweep.h).
 */
#pragma once

#include "event/salt.h"
#include "handler/api.h"

struct housekeeper;

struct housekeeper_settings {
	uint64_t sweep_ms;         /* between two sweeps; 0: none */
	uint64_t feed_ms;          /* how long the change feed is kept */
	uint64_t key_retention_ms; /* of API keys that are revoked or have expired */
};
extern const struct conf_row housekeeper_rows[];
extern const size_t housekeeper_row_count;

/* `salts` are shared with other servers; NULL: they are not. They outlive it. */
int housekeeper_start(struct api *api, const struct housekeeper_settings *settings, struct salts *salts,
                      struct housekeeper **ret, struct err *e);
void housekeeper_stop(struct housekeeper *h); /* finishes the step under way; NULL is fine */
