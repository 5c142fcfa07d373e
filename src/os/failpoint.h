/*
 * Places where a test can kill the process. CURT_FAILPOINT=NAME[@N] in the environment kills it, as kill -9
 * does, when it passes that place for the Nth time (default: the first). Failpoints are between two steps
 * where a crash must do no harm, and never on a path that is taken more often than once a batch.
 */
#pragma once

#include "base/def.h"

extern bool failpoint_is_set; /* by failpoint_init alone */

/* Reads the environment. Call it before threads start. */
void failpoint_init(void);
void failpoint_pass(const char *name);

static inline void failpoint(const char *name)
{
	if (UNLIKELY(failpoint_is_set))
		failpoint_pass(name);
}
