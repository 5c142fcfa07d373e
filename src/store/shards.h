/*
 * What the store over PostgreSQL databases is made of. For its own files: store_shards.c has its life,
 * shards_view.c what is known of the databases' slots, shards_ask.c asks them, shards_read.c and
 * shards_write.c are the operations on links, shards_reshard.c moves slots. slots.h says why it is right.
 *
 * Locks: `refreshing`, then `view_lock`.
 */
#pragma once

#include "os/task.h"
#include "store/backends.h"
#include "store/fan.h"
#include "store/postgres_store.h"

enum {
	SHARD_AWAY = SHARDS_MAX, /* as the owner of a slot: a database that is not to be reached */
	SHARD_NOBODY,            /* a move is not finished, or a database was restored */
	SHARD_KINDS
};

#define SHARDS_REAL (((uint64_t)1 << SHARDS_MAX) - 1) /* as a set: all but those two */

enum { ORPHAN_TRIES_MAX = 5 };

struct shard {
	struct str address;
	struct store_postgres *db;
	atomic_bool is_open; /* otherwise it could not be connected to yet */
};

/* What is known of slots; never changes. */
struct shards_view {
	atomic_uint refs;
	struct slot_map map;
	bool is_known[SHARDS_MAX]; /* its row is */
	struct slot_row rows[SHARDS_MAX];
	uint8_t owner[SLOT_COUNT]; /* a shard's number, or of SHARD_KINDS */
	uint64_t owners;           /* bits: who owns at least one */
	bool is_whole;             /* the registry is the whole store */
};

struct store_shards {
	struct store base;
	atomic_uint calls; /* under way */
	size_t count;
	struct shard shards[SHARDS_MAX];
	bool is_admin;  /* for `curt reshard` */
	bool is_single; /* one URL, and not for it */
	size_t registry;
	struct fan *fan;
	pthread_mutex_t refreshing; /* one at a time asks for rows */
	pthread_mutex_t view_lock;  /* guards the pointer */
	struct shards_view *view;
	atomic_uint orphan_tries; /* how often all was asked in vain who owns a slot */
	atomic_uint turn;         /* whose turn it is to give keys back */
	struct task opener;       /* opens what was away, and looks for owners */
};

static inline struct store_shards *shards_of(struct store *base)
{
	return container_of(base, struct store_shards, base);
}

/* NULL: it is away since the store was opened. */
static inline struct store_postgres *shard_db(struct store_shards *s, size_t number)
{
	bool is_open = number < s->count &&
	               atomic_load_explicit(&s->shards[number].is_open, memory_order_acquire);
	return is_open ? s->shards[number].db : NULL; /* pairs with shard_open */
}

static inline struct store_postgres *shards_registry(struct store_shards *s)
{
	return shard_db(s, s->registry);
}

static inline bool shards_has(uint64_t set, size_t number)
{
	return set >> number & 1;
}

/* --- views --- */

#define STALE_ALL ((uint64_t)1 << SHARD_NOBODY) /* beside the bits of shards: nobody owns a slot */

struct shards_view *shards_view_get(struct store_shards *s);
void shards_view_unref(struct shards_view *v);
static inline void shards_view_unrefp(struct shards_view **v)
{
	shards_view_unref(*v);
}

/* --- asking; sets of databases are bits by number --- */

/* Row NULL: it has just been opened, and its row is not known yet; it is not asked for what has slots. */
typedef int shards_call_fn(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number);

/* Calls it for each of the set, side by side. results[number] is what it returned; ERR_UNAVAILABLE for those
 * that are away, and 0 for all others. */
void shards_each(struct store_shards *s, const struct shards_view *v, uint64_t set, shards_call_fn *call,
                 void *ctx, int results[SHARD_KINDS]);

/*
 * Does it by what is known of the slots, and again by what is known then whenever it returns ERR_CONFLICT:
 * the rows of the shards in *stale are read again. ERR_UNAVAILABLE when that does not end within seconds.
 */
typedef int shards_once_fn(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx);
int shards_try(struct store_shards *s, shards_once_fn *once, void *ctx);

/* What the results come to for a call that needs all of them: those with ERR_CONFLICT go to *stale, and it is
 * ERR_CONFLICT unless another failure says more. */
int shards_result(const int results[SHARD_KINDS], uint64_t *stale);

/* Reads or changes, many at a time. */
struct shards_batch_kind {
	size_t bytes;    /* of an item */
	size_t arena_at; /* where in it the pointer to its arena is */
	/* Which databases the item is for. It waits as long as one of *ret_stale has another row. */
	uint64_t (*shards)(void *item, const struct shards_view *v, uint64_t *ret_stale);
	int (*call)(struct store_postgres *db, const struct slot_row *row, void *items, size_t n);
	/* Hears what a database said of the item's copy there, unless `error`. */
	void (*take)(void *item, const void *copy, int error);
};

struct shards_batch {
	const struct shards_batch_kind *kind;
	void *items;
	size_t n;
	bool *pending; /* for each item: it has not been answered for good */
	bool is_whole; /* out: one database has everything, and was asked */
};

/* When one database has everything it is asked, and nothing is copied. Otherwise nothing is done. */
int shards_batch_whole(struct store_shards *s, struct shards_batch *b);

/* Asks each database for its items; afterwards none is pending. */
void shards_batch_spread(struct store_shards *s, struct shards_batch *b);

/* --- learning --- */

/* Reads rows again (STALE_ALL: of all, and the map), thaws freezes that are past their time, finishes moves
 * that were given, and makes what it learned the view. Unless `v` is not the current view any more. */
void shards_refresh(struct store_shards *s, const struct shards_view *v, uint64_t stale);
/* The same whatever is known; who does not answer stays as it was. Bits: who answered. */
uint64_t shards_refresh_all(struct store_shards *s);

/* The number of the configured shard that has this name, or has not been reached yet and stands at the map's
 * address for it; SHARD_AWAY. */
size_t view_shard_find(const struct store_shards *s, const struct shards_view *v, const uint8_t *name);

static inline bool view_is_member(const struct shards_view *v, size_t number)
{
	return slot_map_has(&v->map, v->rows[number].name);
}

/* Says what is wrong with the slots, if anything is. */
int shards_check(struct store_shards *s, const struct shards_view *v, struct err *e);

/* Changes the row of a shard and the view with it. */
int shards_change(struct store_shards *s, size_t number, slot_rule_fn *rule, const struct slot_attempt *a,
                  struct slot_row *ret);

/* Of a move that was given: the target takes it, the map follows, the source finishes it. */
int shards_complete(struct store_shards *s, size_t source);

/* Reads all, changes the map by `change` and writes it, until nobody else changed it meanwhile. The slots
 * follow the rows. */
typedef void map_change_fn(struct slot_map *map, const struct shards_view *v, void *ctx);
int shards_map_change(struct store_shards *s, map_change_fn *change, void *ctx, struct err *e);

/* A sentence about a database that failed. */
int shard_fail(const struct store_shards *s, size_t number, int r, const char *what, struct err *e);

/* --- the role's operations on links --- */

int shards_lookup(struct store *base, struct store_lookup *reads, size_t n);
int shards_apply(struct store *base, struct store_write *writes, size_t n);
int shards_list(struct store *base, struct store_list *page);
int shards_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count);
int shards_expired(struct store *base, struct store_expired *expired);
int shards_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                     size_t *ret_count);
int shards_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n);
int shards_claim(struct store *base, int64_t now_ms, uint64_t quarantine_ms, size_t max, uint64_t *ret_ids,
                 size_t *ret_count);
