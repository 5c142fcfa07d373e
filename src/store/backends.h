/* The backends of the role `store`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "store/store.h"

/* A SQLite file, created when it is not there. ERR_INVALID with a sentence when the file is not ours
 * or was written by a newer version. */
int store_sqlite_open(const char *path, struct store **ret, struct err *e);

/* In this process's memory, gone with it. */
int store_memory_open(struct store **ret, struct err *e);

/*
 * Wraps `inner` (and owns it, unless opening fails) and fails calls on request, to see what callers do.
 * `spec` is a comma-separated list of OP=ERROR[@N]: calls of OP (lookup, apply, list, tagged, clicks,
 * permitted, over, users, user, sessions, keys, lease, constant, ping) fail with ERROR (unavailable,
 * uncertain, corrupt, busy, no-memory), all of them or from the N-th on; OP=ERROR@N! only the N-th.
 * "apply=uncertain" does the work and then says so; "lookup=slow" does it and then takes 300 ms to answer.
 */
int store_fault_open(const char *spec, struct store *inner, struct store **ret, struct err *e);
