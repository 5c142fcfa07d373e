/*
 * Replicas of a PostgreSQL store: standbys that answer lookups.
 *
 * A replica is used while its lag is below REPLICA_LAG_MAX_MS. One thread per replica measures it: twice a
 * second it asks the primary for its WAL position; a replica that has replayed this position has all
 * changes up to then. A replica that hangs blocks only its own thread, and for REPLICA_TIMEOUT_MS the
 * lookups that were sent to it. A standby of another primary is not used; the random constant "part-name"
 * tells them apart.
 *
 * A replica whose slot row has another version than the caller's is not used: it has not replayed a switch
 * yet, or is ahead.
 *
 * Keys that this process has just changed are read from the primary, so a client sees its own changes.
 * Other processes see them after the lag at the latest.
 */
#pragma once

#include "client/postgres.h"
#include "store/slots.h"
#include "store/store.h"

enum {
	REPLICA_LAG_MAX_MS = 1500,
	REPLICA_RECENT_MS = 3000,
	REPLICA_POLL_MS = 500,
	REPLICA_TIMEOUT_MS = 1000
};

struct postgres_replicas;

/* The constant that identifies a primary and its replicas. */
#define REPLICA_NAME STR("part-name")

/* `primary` is polled for its position. `name` is the primary's; it is read when polling starts.
 * ERR_INVALID: a URL is wrong; 0 even if no replica answers yet. */
int postgres_replicas_new(const struct str *urls, size_t n, const uint8_t *name, struct pg_pool *primary,
                          size_t connections_max, struct postgres_replicas **ret, struct err *e);
int postgres_replicas_start(struct postgres_replicas *rs, struct err *e);
void postgres_replicas_free(struct postgres_replicas *rs);

/* Records changes of this process. */
void postgres_replicas_changed(struct postgres_replicas *rs, const struct store_write *writes, size_t n);

/*
 * Asks a replica with little lag or, with `any` (the primary is down), any replica. False: none answered.
 * Otherwise `reads` and `n` are the reads that are left: those that a replica must not answer, and those
 * that it did not find, because they may be too recent.
 *
 * Replicas are not asked for fresh reads, recently changed links, or reads by row id; for recently created
 * links only with `any`: if the replica has such a link, it is complete.
 */
bool postgres_replicas_lookup(struct postgres_replicas *rs, bool any, const struct slot_row *row,
                              struct store_lookup **reads, size_t *n, struct arena *arena);
