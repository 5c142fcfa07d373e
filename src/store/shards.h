/*
 * Internals of the store over PostgreSQL databases. slots.h explains why it is correct.
 *
 *	store_shards.c     opening and closing; how databases become one store
 *	shards_view.c      what is known about the slots of each database
 *	shards_call.c      parallel calls and retries
 *	shards_read.c      lookups, lists and other reads
 *	shards_write.c     changes of links
 *	shards_move.c      moving slots from one database to another
 *	shards_reshard.c   `curt reshard`
 *	shards_forget.c    `curt reshard --status` and `--forget`
 *
 * Lock order: `refreshing`, then `view_lock`.
 */
#pragma once

#include "os/task.h"
#include "store/backends.h"
#include "store/fanout.h"
#include "store/postgres_store.h"

enum {
	SHARD_UNREACHABLE = SHARDS_MAX, /* as a slot's owner: a database that cannot be reached */
	SHARD_NONE, /* as a slot's owner: none; a move is unfinished, or a database was restored */
	SHARD_OWNERS
};

#define SHARDS_ALL (((uint64_t)1 << SHARDS_MAX) - 1) /* the set of all databases */

enum { ORPHAN_TRIES_MAX = 5 };

struct shard {
	struct str address;
	struct store_postgres *db;
	atomic_bool is_open; /* false: not connected since the store was opened */
};

/* An immutable snapshot of what is known about slots. Reference-counted. */
struct shards_view {
	atomic_uint refs;
	struct slot_map map;
	bool is_known[SHARDS_MAX]; /* its row has been read */
	struct slot_row rows[SHARDS_MAX];
	uint8_t owner[SLOT_COUNT]; /* a shard's number, SHARD_UNREACHABLE or SHARD_NONE */
	uint64_t owners;           /* bit set of the owners of at least one slot */
	bool is_unsharded;         /* the registry owns all slots */
};

struct store_shards {
	struct store base;
	atomic_uint calls; /* running calls */
	size_t count;
	struct shard shards[SHARDS_MAX];
	bool is_admin;  /* opened for `curt reshard` */
	bool is_single; /* one URL, and not is_admin */
	size_t registry;
	struct fanout *fanout;
	pthread_mutex_t refreshing; /* held while rows are read or changed */
	pthread_mutex_t view_lock;  /* guards `view` */
	struct shards_view *view;
	atomic_uint orphan_tries; /* failed refreshes in a row while a slot had no owner */
	atomic_uint turn;         /* round robin of claims */
	struct task reconnector;  /* connects to missing databases, looks for owners */
};

static inline struct store_shards *shards_of(struct store *base)
{
	return container_of(base, struct store_shards, base);
}

/* NULL: not connected since the store was opened. */
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

#define STALE_ALL ((uint64_t)1 << SHARD_NONE) /* in a set of stale shards: a slot has no owner */

struct shards_view *shards_view_get(struct store_shards *s);
void shards_view_unref(struct shards_view *v);
static inline void shards_view_unrefp(struct shards_view **v)
{
	shards_view_unref(*v);
}

/* --- asking; sets of databases are bits by number --- */

/* `row` is NULL if the database has just been connected and its row is unknown. Slots are not read or
 * written then. */
typedef int shards_call_fn(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number);

/* Calls `call` for each database of the set, in parallel. results[number] is its return value,
 * ERR_UNAVAILABLE for databases that are not connected, and 0 outside the set. */
void shards_each(struct store_shards *s, const struct shards_view *v, uint64_t set, shards_call_fn *call,
                 void *ctx, int results[SHARD_OWNERS]);

/* Runs `once` with the current view. On ERR_CONFLICT it reads the rows of the shards in *stale again, and
 * retries with the new view. ERR_UNAVAILABLE after TRY_MS. */
typedef int shards_attempt_fn(struct store_shards *s, const struct shards_view *v, uint64_t *stale,
                              void *ctx);
int shards_retry(struct store_shards *s, shards_attempt_fn *once, void *ctx);

/* The result of a call that needs all databases. Those with ERR_CONFLICT go into *stale; another error
 * takes precedence over ERR_CONFLICT. */
int shards_result(const int results[SHARD_OWNERS], uint64_t *stale);

/* The operations of a batch of reads or changes. */
struct shards_batch_kind {
	size_t bytes;    /* size of an item */
	size_t arena_at; /* offset of its arena pointer */
	/* The databases of the item. The item waits while one of *ret_stale is stale. */
	uint64_t (*shards)(void *item, const struct shards_view *v, uint64_t *ret_stale);
	int (*call)(struct store_postgres *db, const struct slot_row *row, void *items, size_t n);
	/* Takes the result of one database: the item's copy or, if there is none, `error`. */
	void (*take)(void *item, const void *copy, int error);
};

struct shards_batch {
	const struct shards_batch_kind *kind;
	void *items;
	size_t n;
	bool *pending;     /* per item: no final result yet */
	bool is_unsharded; /* out: one database owns all slots, and did the batch */
};

/* If one database owns all slots, it does the whole batch, without copies. Otherwise does nothing. */
int shards_batch_unsharded(struct store_shards *s, struct shards_batch *b);

/* Sends each database its items. Afterwards no item is pending. */
void shards_batch_sharded(struct store_shards *s, struct shards_batch *b);

/* --- learning --- */

/* Reads the rows of the stale shards (STALE_ALL: all rows, and the map), thaws expired freezes, completes
 * moves that were given, and publishes a new view. Does nothing if `v` is not the current view any more. */
void shards_refresh(struct store_shards *s, const struct shards_view *v, uint64_t stale);
/*
 * The same for all shards. A shard that does not answer keeps its old row. Returns the set that answered.
 */
uint64_t shards_refresh_all(struct store_shards *s);

/* The configured shard with this name, or the unread one at the map's address for it; SHARD_UNREACHABLE if
 * none. */
size_t view_shard_find(const struct store_shards *s, const struct shards_view *v, const uint8_t *name);

static inline bool view_is_member(const struct shards_view *v, size_t number)
{
	return slot_map_has(&v->map, v->rows[number].name);
}

/* 0, or an error with a sentence if slots have no owner or a database is missing. */
int shards_check(struct store_shards *s, const struct shards_view *v, struct err *e);

/* Changes the row of a shard, and the view. */
int shards_change(struct store_shards *s, size_t number, slot_rule_fn *rule, const struct slot_attempt *a,
                  struct slot_row *ret);

/* Completes a move that was given: the target takes the slots, the map follows, the source finishes. */
int shards_complete(struct store_shards *s, size_t source);

/* Refreshes, changes the map and writes it; retries if another process changed it meanwhile. The owners in
 * the map follow the rows. */
typedef void map_change_fn(struct slot_map *map, const struct shards_view *v, void *ctx);
int shards_map_change(struct store_shards *s, map_change_fn *change, void *ctx, struct err *e);

/* Sets an error about one database. */
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
