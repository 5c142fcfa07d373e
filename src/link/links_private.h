/* What the files behind links.h share; nobody else includes it. */
#pragma once

#include "link/links.h"
#include "link/tier2.h"

#include <stdatomic.h>

enum { SHARDS_MAX = 64, STASH_IDS = 256 };

struct links {
	struct store *store;
	_Atomic uint64_t counter_seen; /* STORE_LINK_COUNTER is at least this */
	struct budgets *budgets;
	struct cache *cache;
	struct click_limits *click_limits;
	struct tier2 tier2;
	struct key_source *source; /* NULL: the cipher */
	struct key_cipher cipher;
	struct ids ids;
	pthread_mutex_t stash_lock;
	struct id_stash { /* ids whose keys lie in that database, left over from looking for those of another
		           */
		uint64_t ids[STASH_IDS];
		size_t count;
	} stashes[SHARDS_MAX];
	links_render_fn *render;
	uint64_t negative_ms;
	bool is_shared;   /* others write to the store too */
	uint64_t life_ms; /* of what is cached; 0: for ever */
	uint64_t quarantine_ms;
	pthread_mutex_t sweep_lock;  /* held from looking for links that are over until they are gone, or
	                                several  sweepers would look at the same ones */
	pthread_mutex_t source_lock; /* guards source_why */
	struct err source_why;
	_Atomic unsigned dark; /* see links_note_shards */
};

/* Stores keep a generated key as its id alone. */
int links_key_fill(const struct links *l, struct link_record *link, struct arena *arena);

/* What a batch of creations took from the source and has no use for. */
struct leftovers {
	struct leftover {
		struct source_key key;
		bool of_shard; /* it would lie in a part of the store that is away */
	} * all;
	size_t count, room;
};

/* naming.c. Gives each new link of the batch its id, key and ref; those of the cipher lie in the shard, if
 * that can be had. One that cannot be named has that as its result: ERR_LIMIT when the keys of this length
 * are used up, ERR_BUSY when the source has none now (links_source_trouble), or the store's failure. */
void links_name(struct links *l, size_t shard, struct store_write *writes, size_t n, struct leftovers *left,
                struct metrics *m);

/* What a creation was to be called, for the store may say otherwise. */
struct link_name {
	struct link_ref ref; /* STR_NULL: the source has no part in it */
	bool reuse;
};
struct link_name links_name_of(const struct links *l, const struct store_write *w);

/* The store has judged the creation, or the whole batch failed (`away`): notes the name when it was certainly
 * not used. */
void leftovers_note(struct leftovers *left, const struct store_write *w, const struct link_name *name,
                    bool away);
void leftovers_return(struct leftovers *left, struct links *l); /* and frees them */

/* Was it refused because its key, which nobody chose, is somebody's? */
bool links_met_another(const struct store_write *w);

/* Was it refused, and nothing done, because the part of the store where it would lie is away? With another
 * key it may lie in another part. Not one with an idempotency key: whoever repeats it means the same link. */
bool links_may_lie_elsewhere(const struct store_write *w);

/*
 * Notes what became of a batch's creations in the end. After some batches in a row of which the parts of the
 * store that were asked have answered none, it is dark: the store is taken to be away as a whole, until one
 * is answered. Then other keys are not tried, and keys are as good as ever, as soon as it is back.
 */
void links_note_shards(struct links *l, const struct store_write *writes, size_t n);
bool links_is_dark(const struct links *l);
