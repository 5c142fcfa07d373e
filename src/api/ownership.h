/*
 * Does a link still belong to a user? Polls the store in the background, for watchers of the live feed whose
 * link another server may give away without an announcement. Loop threads.
 */
#pragma once

#include "handler/api.h"

struct ownership;

/* NULL: out of memory. */
struct ownership *ownership_new(struct api *api, struct str key, uint64_t link, uint64_t owner);
void ownership_free(struct ownership *o); /* NULL is fine */

/* The last known answer; submits a new check if it is older than OWNERSHIP_CHECK_MS. A store that does not
 * answer changes nothing. */
enum { OWNERSHIP_CHECK_MS = 1500 };
bool ownership_is_held(struct ownership *o, int64_t mono_ms);
