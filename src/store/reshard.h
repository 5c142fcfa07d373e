/*
 * Changing who is in a ring (store_ring.c), while others serve from it. Only what must move does. Stopped at
 * any point, also by a kill or a part that goes away, nothing is lost, servers go on, and doing it again goes
 * on from there.
 */
#pragma once

#include "store/ring_plan.h"
#include "store/store.h"

struct reshard_progress {
	uint64_t looked_at; /* keys, in this walk */
	uint64_t moved;     /* in all walks */
	unsigned walk;      /* 0: nothing moves yet; the last one finds nothing to move */
	struct str part;    /* the address of the part that it walks through */
	int64_t waits_ms;   /* for that one, and for how long already; 0: it does not wait */
};

struct reshard_flow {
	struct str from, to; /* addresses; good as long as the store */
	uint64_t keys;
};

struct reshard {
	/* Those configured shall be the members, but these, by address. */
	const struct str *leave;
	size_t leave_count;
	bool dry_run; /* counts what would move, and changes nothing */
	/* How long to wait for a part that goes away, before it is ERR_UNAVAILABLE. */
	int64_t patience_ms;
	/* After every few hundred keys; false: stop here (ERR_BUSY). May be NULL. */
	bool (*progress)(void *ctx, const struct reshard_progress *progress);
	void *ctx;

	/* out */
	bool is_settled;    /* there was nothing to do */
	bool was_begun;     /* it went on with what another one had left */
	uint64_t looked_at; /* keys in all members, when it began */
	uint64_t moved;     /* or would be */
	uint64_t strays;    /* keys that lay in parts that were not theirs, and were removed, or would be */
	struct reshard_flow flows[RING_PARTS_MAX * RING_PARTS_MAX];
	size_t flow_count;
};

/* `ring` is what store_ring_open gave. */
int store_reshard(struct store *ring, struct reshard *r, struct err *e);

struct ring_status_part {
	struct str address; /* good as long as the store; of a part that is not configured: the arena's */
	bool is_home, is_member, is_target, is_configured, answers;
	bool is_lost;   /* the database that is configured there is another one */
	bool is_behind; /* it has not taken the ring's description yet */
};

struct ring_status {
	uint64_t epoch;
	bool moves;
	struct ring_status_part parts[3 * RING_PARTS_MAX];
	size_t part_count;
};

/* Takes a part that is lost out of the ring, and all that lies there is lost with it; not the home, and none
 * that answers. Unless `sure` it only says so (ERR_INVALID). */
int store_ring_forget(struct store *ring, struct str address, bool sure, struct err *e);

/* Asks all parts now. */
int store_ring_status(struct store *ring, struct arena *arena, struct ring_status *ret, struct err *e);
