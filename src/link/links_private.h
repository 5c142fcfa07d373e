/* Internals of links.h. */
#pragma once

#include "link/links.h"
#include "link/tier2.h"

#include <stdatomic.h>

enum { SPARE_SHARDS_MAX = 64, SPARE_IDS_MAX = 256 };

struct links {
	struct store *store;
	_Atomic uint64_t counter_seen; /* lower bound of STORE_LINK_COUNTER */
	struct budgets *budgets;
	struct cache *cache;
	struct click_limits *click_limits;
	struct tier2 tier2;
	struct key_source *source; /* NULL: the cipher */
	struct key_cipher cipher;
	struct ids ids;
	pthread_mutex_t spare_lock;
	/* By shard: ids that were leased while looking for a key of another shard. */
	struct spare_ids {
		uint64_t ids[SPARE_IDS_MAX];
		size_t count;
	} spare[SPARE_SHARDS_MAX];
	links_render_fn *render;
	uint64_t negative_ms;
	bool is_shared;   /* other processes write to the store */
	uint64_t life_ms; /* of cached links; 0: unlimited */
	uint64_t quarantine_ms;
	/* held from finding expired links until they are removed, so that sweepers do not work on the same
	 * ones */
	pthread_mutex_t sweep_lock;
	pthread_mutex_t source_lock; /* guards source_why */
	struct err source_why;
	_Atomic unsigned failed_batches; /* in a row, see links_note_outage */
};

/* Stores keep a generated key only as its id. */
int links_key_fill(const struct links *l, struct link_record *link, struct arena *arena);

/* Keys that a batch took from the source but did not use. */
struct unused_keys {
	struct unused_key {
		struct source_key key;
		bool of_shard; /* its shard is down */
	} * all;
	size_t count, room;
};

/* naming.c. Assigns each new link its id, key and ref; keys of the cipher are of the given shard if
 * possible. A failure is the write's result: ERR_LIMIT (all keys of this length are used up), ERR_BUSY (the
 * key source has none: links_source_trouble), or an error of the store. */
void links_name(struct links *l, size_t shard, struct store_write *writes, size_t n, struct unused_keys *left,
                struct metrics *m);

/* The name that a create was given; the store may have answered with another. */
struct link_name {
	struct link_ref ref; /* STR_NULL: not from the source */
	bool reuse;
};
struct link_name links_name_of(const struct links *l, const struct store_write *w);

/* Records the name if it is certainly unused, after the store has answered, or the whole batch failed
 * (`away`). */
void unused_keys_note(struct unused_keys *left, const struct store_write *w, const struct link_name *name,
                      bool away);
void unused_keys_return(struct unused_keys *left, struct links *l); /* also frees */

/* Was its generated key taken? */
bool links_key_was_taken(const struct store_write *w);

/* Was it refused because its shard is down? Another key may be of another shard. Not for creates with an
 * idempotency key: a retry must mean the same link. */
bool links_shard_was_down(const struct store_write *w);

/* Records whether the store answered the creates of a batch. After DOWN_BATCHES unanswered batches in a row
 * the whole store is considered down, until one is answered. Then no other keys are tried, and unused keys
 * are not deferred, since they are usable once it is back. */
void links_note_outage(struct links *l, const struct store_write *writes, size_t n);
bool links_store_is_down(const struct links *l);
