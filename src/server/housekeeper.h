/*
 * Background work of a running server, in two tasks. One writes the last uses of API keys, removes old API
 * keys, prunes the change feed and fetches the next day's salt. The other removes expired links, only when the
 * machine is idle (link/sweep.h).
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

/* `salts` (NULL: not shared with other servers) outlive it. */
int housekeeper_start(struct api *api, const struct housekeeper_settings *settings, struct salts *salts,
                      struct housekeeper **ret, struct err *e);
void housekeeper_stop(struct housekeeper *h); /* finishes the current step; NULL is fine */
