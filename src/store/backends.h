/* The backends of the role `store`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "store/store.h"

/* A SQLite file, created when it is not there. ERR_INVALID with a sentence when the file is not ours
 * or was written by a newer version. */
int store_sqlite_open(const char *path, struct store **ret, struct err *e);

/*
 * PostgreSQL databases, or one that speaks its language; docs/postgres.md says which. Tables are made where
 * there are none. ERR_INVALID with a sentence when a URL is wrong or a newer version was here,
 * ERR_UNAVAILABLE when a database that is needed does not answer. With `is_admin` it is for store/reshard.h:
 * nothing is made (ERR_NOT_FOUND when they are not one store yet), and it opens also when databases of it are
 * lost.
 */
struct store_shards_config {
	const struct str *urls;
	size_t count;
	const struct str *replicas; /* of any of them */
	size_t replica_count;
	size_t readers, writers; /* connections to each at most; 0: a usual number */
	bool is_admin;
};
int store_shards_open(const struct store_shards_config *config, struct store **ret, struct err *e);

/*
 * Makes calls of a store fail on request, to see what callers do: *ret is the same store, and the rules end
 * with it. `spec` is a comma-separated list of OP=ERROR[@N]: calls of OP (lookup, apply, list, tagged,
 * clicks, permitted, over, users, keys, accounts, lease, counter, constant, ping, claim) fail with ERROR
 * (unavailable, uncertain, corrupt, busy, no-memory), all of them or from the N-th on; OP=ERROR@N! only the
 * N-th. "apply=uncertain" does the work and then says so; "lookup=slow" does it and then takes 300 ms to
 * answer.
 */
int store_fault_open(const char *spec, struct store *store, struct store **ret, struct err *e);
