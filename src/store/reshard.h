/*
 * Changing which databases links are spread over (slots.h), while others serve from them. Only what must move
 * does. Stopped at any point, also by a kill or a database that goes away, nothing is lost, servers go on,
 * and doing it again goes on from there.
 */
#pragma once

#include "store/slots.h"
#include "store/store.h"

struct reshard_progress {
	struct str from, to; /* addresses */
	uint64_t copied;     /* keys, by this move */
	uint64_t caught_up;  /* of those, because they were changed meanwhile */
	size_t switched;     /* slots, in all moves */
	size_t slots;        /* that must move */
	int64_t waits_ms;    /* for a database that does not answer; 0: it does not wait */
};

struct reshard {
	/* Links shall be spread over those configured, but these, by address. */
	const struct str *leave;
	size_t leave_count;
	bool dry_run; /* counts what would move, and changes nothing */
	/* How long to wait for a database that goes away, before it is ERR_UNAVAILABLE. */
	int64_t patience_ms;
	/* After every page of keys; false: stop here (ERR_BUSY). May be NULL. */
	bool (*progress)(void *ctx, const struct reshard_progress *progress);
	void *ctx;

	/* out */
	bool is_settled;                        /* there was nothing to do */
	bool was_begun;                         /* it went on with what another one had left */
	size_t slots;                           /* that moved, or would */
	uint64_t keys;                          /* likewise; some may count twice when it was interrupted */
	uint64_t all;                           /* with dry_run: keys in all databases */
	uint64_t removed;                       /* keys that lay where they do not belong any more */
	uint64_t flows[SHARDS_MAX][SHARDS_MAX]; /* of those keys: from one to another */
	struct str addresses[SHARDS_MAX];       /* theirs; good as long as the store */
	size_t count;                           /* of databases */
};

/* `store` is what store_shards_open gave with is_admin. */
int store_reshard(struct store *store, struct reshard *r, struct err *e);

struct shard_status {
	char address[SHARD_ADDRESS_MAX];
	size_t slots;
	bool is_registry, is_member, is_target, is_configured, answers;
	bool is_lost; /* the database that is configured there is another one */
};

struct shards_status {
	uint64_t version; /* of the map */
	bool moves;
	size_t orphans; /* slots without an owner */
	struct shard_status shards[2 * SHARDS_MAX];
	size_t count;
};

/* Asks all databases now. */
void store_shards_status(struct store *store, struct shards_status *ret);

/* Gives the slots of a database that is lost to the others, empty: all that lies there is lost with it. Not
 * the registry's. One that was restored from an older backup gets those back that it has lost so. Unless
 * `sure` it only says what that means (ERR_INVALID). */
int store_shards_forget(struct store *store, struct str address, bool sure, struct err *e);
