/* Moves links between databases (slots.h) while servers keep serving. Only slots whose owner changes move.
 * If it stops at any point (killed, or a database fails), no link is lost and servers keep working; the
 * next run resumes. */
#pragma once

#include "store/slots.h"
#include "store/store.h"

struct reshard_progress {
	struct str from, to; /* addresses */
	uint64_t copied;     /* keys copied by this move */
	uint64_t caught_up;  /* of those, copied again because they changed meanwhile */
	size_t switched;     /* slots switched by all moves */
	size_t slots;        /* slots that must move */
	int64_t waits_ms;    /* waiting so long for a database that does not answer; 0: not waiting */
};

struct reshard {
	/* Addresses of configured databases that shall own no slots afterwards. */
	const struct str *leave;
	size_t leave_count;
	bool dry_run; /* only counts what would move */
	/* How long to wait for a database that does not answer. Then ERR_UNAVAILABLE. */
	int64_t patience_ms;
	/* Called after every page of keys. False: stop (ERR_BUSY). May be NULL. */
	bool (*progress)(void *ctx, const struct reshard_progress *progress);
	void *ctx;

	/* out */
	bool is_settled;                        /* nothing had to move */
	bool was_begun;                         /* it resumed an earlier run */
	size_t slots;                           /* that moved, or would with dry_run */
	uint64_t keys;                          /* likewise; after an interruption some count twice */
	uint64_t all;                           /* with dry_run: all keys */
	uint64_t removed;                       /* keys removed from databases that no longer own them */
	uint64_t flows[SHARDS_MAX][SHARDS_MAX]; /* keys by source and target database */
	struct str addresses[SHARDS_MAX];       /* valid as long as the store */
	size_t count;                           /* number of databases */
};

/* `store` was opened by store_shards_open with is_admin. */
int store_reshard(struct store *store, struct reshard *r, struct err *e);

struct shard_status {
	char address[SHARD_ADDRESS_MAX];
	size_t slots;
	bool is_registry, is_member, is_target, is_configured, answers;
	bool is_lost; /* another database answers at its address */
};

struct shards_status {
	uint64_t version; /* of the map */
	bool moves;
	size_t orphans; /* slots that no database owns */
	struct shard_status shards[2 * SHARDS_MAX];
	size_t count;
};

/* Reads the rows of all databases now. */
void store_shards_status(struct store *store, struct shards_status *ret);

/* Gives up a lost database: its slots go to the others, empty, and its links are lost. The registry cannot
 * be given up. A database restored from an older backup gets back the slots that it has lost. Without
 * `sure` it only explains this (ERR_INVALID). */
int store_shards_forget(struct store *store, struct str address, bool sure, struct err *e);
