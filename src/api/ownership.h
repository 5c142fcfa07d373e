/*
 * Is a link still somebody's? Asked of the store now and then, in the background, for what goes on for long
 * by that right, where other servers change links and nobody tells of it. Loop threads.
 */
#pragma once

#include "handler/api.h"

struct ownership;

/* NULL when memory ran out. */
struct ownership *ownership_new(struct api *api, struct str key, uint64_t link, uint64_t owner);
void ownership_free(struct ownership *o); /* NULL is fine */

/* As far as is known; asks again when the last answer is older than OWNERSHIP_MS. A store that does not
 * answer changes nothing. */
enum { OWNERSHIP_MS = 1500 };
bool ownership_holds(struct ownership *o, int64_t mono_ms);
