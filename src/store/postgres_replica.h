/*
 * The replicas of a PostgreSQL store: databases that follow the primary, and answer lookups in its place. For
 * the files of the PostgreSQL store only.
 *
 * A replica is used while it is known to lag by less than REPLICA_LAG_MAX_MS. A thread for each finds that
 * out: twice a second it asks the primary how far it has written; a replica that has come as far knows all
 * that had happened by then. A replica that hangs disturbs nobody but its own thread, and those who ask it
 * before that is found out, for REPLICA_PATIENCE_MS. A database that follows another primary is passed over:
 * the constant "part-name", which is random, tells them apart.
 *
 * A replica that has another version of the row of slots than the server goes by is not asked: it has not
 * replayed a switch yet, or is ahead of us.
 *
 * Who changed a link must see the change: for a while the keys that this process changed are asked at the
 * primary. Others see it after the lag at the latest.
 */
#pragma once

#include "client/postgres.h"
#include "store/slots.h"
#include "store/store.h"

enum {
	REPLICA_LAG_MAX_MS = 1500,
	REPLICA_RECENT_MS = 3000,
	REPLICA_POLL_MS = 500,
	REPLICA_PATIENCE_MS = 1000
};

struct postgres_replicas;

/* The constant that the primary and its replicas share, and others do not. */
#define REPLICA_NAME STR("part-name")

/* `primary` is asked for its progress. `name` is the primary's, which is known when they start. ERR_INVALID
 * when a URL is wrong; 0 also when no replica answers yet. */
int postgres_replicas_new(const struct str *urls, size_t n, const uint8_t *name, struct pg_pool *primary,
                          size_t connections_max, struct postgres_replicas **ret, struct err *e);
int postgres_replicas_start(struct postgres_replicas *rs, struct err *e);
void postgres_replicas_free(struct postgres_replicas *rs);

/* The process has changed links. */
void postgres_replicas_changed(struct postgres_replicas *rs, const struct store_write *writes, size_t n);

/*
 * Asks a replica that lags little, or with `any` (the primary is away) whoever answers. False: nobody did.
 * Otherwise `reads` are those that are left: what a replica was not asked for, and what it does not know,
 * which may be too young for it.
 *
 * A replica is not asked for what must be fresh, nor for what was changed just now, nor for rows without a
 * name; for a link that was made just now only with `any`: if the replica has it, it has all there is.
 */
bool postgres_replicas_lookup(struct postgres_replicas *rs, bool any, const struct slot_row *row,
                              struct store_lookup **reads, size_t *n, struct arena *arena);
