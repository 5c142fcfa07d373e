/*
 * The links: what may be done with them, in batches, by threads that may block. The event loops reach it
 * through the offload pools (src/api/jobs.c), the command line calls it directly.
 */
#pragma once

#include "config/config.h"
#include "link/cache.h"
#include "link/ids.h"
#include "link/key.h"
#include "obs/metrics.h"
#include "store/store.h"

struct links;

struct links_settings {
	int alphabet;        /* enum key_alphabet */
	uint64_t key_length; /* 0: the alphabet's own */
	uint64_t cache_bytes;
	uint64_t negative_ms;
};
extern const struct conf_row links_rows[];
extern const size_t links_row_count;

/* Makes the response that sends a visitor on: the bytes, and where in them the date stands. */
typedef int links_render_fn(const struct link_record *link, struct buf *out, uint16_t *ret_date_at);

struct links_config {
	struct store *store;     /* outlives the links */
	struct budgets *budgets; /* likewise */
	struct links_settings settings;
	uint64_t id_block; /* how many ids to lease at once */
	uint64_t cache_seed;
	links_render_fn *render; /* NULL: nothing is resolved here, and there is no cache */
};

/*
 * Fixes the key's shape and secret on a fresh store. ERR_INVALID with a sentence when the store was made
 * with another alphabet or length: its keys would stop working.
 */
int links_new(const struct links_config *config, struct links **ret, struct err *e);
void links_free(struct links *l);

const struct key_cipher *links_cipher(const struct links *l);
struct cache *links_cache(struct links *l);

/* How a folded key (key_fold) is looked up. */
struct link_ref links_ref(const struct links *l, struct str key);

/* Where a key leads. */
struct link_resolve {
	struct str key;      /* in: folded; lives until the outcome is taken */
	struct arena *arena; /* in: where the response goes */
	int result; /* out: 0; ERR_NOT_FOUND for unknown, disabled and expired alike; or the store's failure
	             */
	struct str response; /* out */
	uint16_t response_date_at;
	uint64_t link;         /* out: row id */
	struct budget *budget; /* out: of the link's owner */
	bool ended;            /* out: it is there, but its time is over: the caller has it reaped */
};

/* Resolves and fills the cache. Pool threads. */
void links_resolve(struct links *l, struct link_resolve **wanted, size_t n, int64_t now_ms,
                   struct metrics *m);

/* The records themselves, expired or not. `ref.key` is folded. The result is 0 or what holds for all of them.
 */
int links_get(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m);
int links_list(struct links *l, struct store_list *page);

/*
 * Creates, updates, deletes, in one transaction; also API keys. For CREATE the caller gives `link` with
 * is_alias and, for an alias, `key` (folded and checked); id, key and ref are filled here. For the others
 * `ref` comes from links_ref. Records come back with their key. Each write's `result` is final; there is no
 * return value beyond it.
 */
void links_apply(struct links *l, struct store_write *writes, size_t n, struct metrics *m);
