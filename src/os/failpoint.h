/*
 * Places where a test can have the process die: CURT_FAILPOINT=NAME[@N] in the environment kills it (as kill
 * -9 does) when it comes to that place for the Nth time, the first by default. Between two steps that must be
 * right whichever of them was the last; never on a path that is taken more often than once a batch.
 */
#pragma once

#include "base/def.h"

extern bool failpoint_is_set; /* by failpoint_init alone */

/* Reads the environment: before threads. */
void failpoint_init(void);
void failpoint_pass(const char *name);

static inline void failpoint(const char *name)
{
	if (UNLIKELY(failpoint_is_set))
		failpoint_pass(name);
}
