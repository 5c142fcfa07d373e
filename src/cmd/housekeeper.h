/*
 * Chores of a running server that nobody waits for: telling the store when API keys were last used, and
 * removing links that are over. A thread for each: the second runs only in idle time (link/sweep.h).
 */
#pragma once

#include "api/api.h"

struct housekeeper;

struct housekeeper_settings {
	uint64_t sweep_ms; /* between two sweeps; 0: none */
};
extern const struct conf_row housekeeper_rows[];
extern const size_t housekeeper_row_count;

int housekeeper_start(struct api *api, const struct housekeeper_settings *settings, struct housekeeper **ret,
                      struct err *e);
void housekeeper_stop(struct housekeeper *h); /* finishes the step under way; NULL is fine */
