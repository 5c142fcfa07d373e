/* The backends of the role `store`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "store/store.h"

/* A SQLite file, created when it is not there. ERR_INVALID with a sentence when the file is not ours
 * or was written by a newer version. */
int store_sqlite_open(const char *path, struct store **ret, struct err *e);

/* A PostgreSQL database, or one that speaks its language; docs/postgres.md says which. */
struct store_postgres_config {
	struct str url;             /* of the primary */
	const struct str *replicas; /* URLs of databases that follow it: they answer lookups */
	size_t replica_count;
	size_t readers, writers; /* connections at most; 0: a usual number */
};

/* Makes the tables where there are none. ERR_INVALID with a sentence when a URL is wrong or a newer version
 * was here, ERR_UNAVAILABLE when the primary does not answer. */
int store_postgres_open(const struct store_postgres_config *config, struct store **ret, struct err *e);

/* In this process's memory, gone with it. */
int store_memory_open(struct store **ret, struct err *e);

/* A part of a ring. It and `ctx` (from malloc) are the ring's own once that is open. */
struct store_ring_part {
	struct store *store; /* has ops->part; NULL: it is away, and `open` is tried until it is there */
	struct str address;  /* what people know it by, without secrets */
	int (*open)(void *ctx, struct store **ret, struct err *e);
	void *ctx;
};

/*
 * Several stores as one, by the hash of a link's key (store_ring.c); they are of one kind. Whoever is in the
 * ring already must be among them; those who are not in it wait for store_reshard. When nobody is, and `make`
 * is true, all are from now on, or the one that has been a store of its own. Without `make` it is for
 * store/reshard.h alone: it is ERR_NOT_FOUND when there is no ring, and opens also when parts of it are lost.
 */
int store_ring_open(const struct store_ring_part *parts, size_t n, bool make, struct store **ret,
                    struct err *e);

/* A store that has ops->part, and is not to be taken for the whole when it is one of several. ERR_INVALID and
 * a sentence when it is in a ring with others; if that happens later, calls are ERR_UNAVAILABLE and `ping`
 * says the sentence. It is the new one's own, unless opening fails. */
int store_alone_open(struct store *inner, struct store **ret, struct err *e);

/*
 * Wraps `inner` (and owns it, unless opening fails) and fails calls on request, to see what callers do.
 * `spec` is a comma-separated list of OP=ERROR[@N]: calls of OP (lookup, apply, list, tagged, clicks,
 * permitted, over, users, user, sessions, keys, lease, constant, ping, version, claim) fail with ERROR
 * (unavailable, uncertain, corrupt, busy, no-memory), all of them or from the N-th on; OP=ERROR@N! only the
 * N-th. "apply=uncertain" does the work and then says so; "lookup=slow" does it and then takes 300 ms to
 * answer.
 */
int store_fault_open(const char *spec, struct store *inner, struct store **ret, struct err *e);
