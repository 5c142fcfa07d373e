/*
 * A PostgreSQL database with links, one of those that store_shards.c makes a store of. For its own files and
 * those of the store: postgres_store.c opens it, postgres_lookup.c and postgres_read.c read links,
 * postgres_apply.c changes them, postgres_registry.c is the role `registry`, postgres_slots.h what it takes
 * to be one of several.
 */
#pragma once

#include "store/decide.h"
#include "store/postgres_layout.h"
#include "store/postgres_slots.h"
#include "store/postgres_txn.h"
#include "store/rules.h"

enum { WRITE_PATIENCE_MS = 5000 }; /* for an answer to a change */

struct postgres_config {
	struct str url;             /* of the primary */
	const struct str *replicas; /* URLs of databases that follow it: they answer lookups */
	size_t replica_count;
	size_t readers, writers; /* connections at most; 0: a usual number */
};

struct store_postgres {
	struct registry registry;
	atomic_uint calls; /* under way */
	struct pg_pool *writers, *readers;
	struct postgres_replicas *replicas; /* NULL: there are none */
	struct postgres_marks *marks;
	struct postgres_kind kind;
	uint8_t name[SHARD_NAME_BYTES]; /* the constant "part-name": random, and stays with the data */
	struct store_rules rules;
	_Atomic int64_t held_ms; /* when a change last waited in vain for what somebody holds; 0: never */
	atomic_bool is_troubled; /* a write failed: ping tries one until it works */
};

extern const struct registry_ops postgres_registry_ops;

/* Connects to nobody yet. ERR_INVALID with a sentence when a URL is wrong. */
int postgres_new(const struct postgres_config *config, struct store_postgres **ret, struct err *e);
void postgres_close(struct store_postgres *s); /* waits for calls under way to end; NULL is content */

/* Before anything else is called. Makes the tables where there are none. ERR_INVALID with a sentence when a
 * newer version was here; ERR_UNAVAILABLE when the primary does not answer: it may be tried again. */
int postgres_connect(struct store_postgres *s, struct err *e);

int postgres_ping(struct store_postgres *s, struct err *e);

/* `call` reads over the connection `c`, and is done again when that turns out to be broken: the server may
 * have been restarted since it was used last. */
#define POSTGRES_READ(s, call)                                                         \
	({                                                                             \
		int result_ = ERR_UNAVAILABLE;                                         \
		bool again_ = true;                                                    \
		calls_enter(&(s)->calls);                                              \
		for (int try_ = 0; again_ && try_ < 2; try_++) {                       \
			struct pg_conn *c = pg_take((s)->readers, NULL);               \
			result_ = c ? (call) : ERR_UNAVAILABLE;                        \
			again_ = c && result_ == ERR_UNAVAILABLE && pg_conn_failed(c); \
			pg_return(c);                                                  \
		}                                                                      \
		calls_leave(&(s)->calls);                                              \
		result_;                                                               \
	})

/* Keeps in mind that writing failed, after postgres_error. */
int postgres_write_note(struct store_postgres *s, int r);

#define POSTGRES_WRITE(s, call)                               \
	({                                                    \
		calls_enter(&(s)->calls);                     \
		int result_ = postgres_write_note(s, (call)); \
		calls_leave(&(s)->calls);                     \
		result_;                                      \
	})

/* `call` writes over the connection `c`. */
#define POSTGRES_WRITE_ON(s, call)                                              \
	POSTGRES_WRITE(s, ({                                                    \
		               struct pg_conn *c = pg_take((s)->writers, NULL); \
		               int on_ = c ? (call) : ERR_UNAVAILABLE;          \
		               pg_return(c);                                    \
		               on_;                                             \
	               }))

static inline struct postgres_work postgres_work(const struct store_postgres *s,
                                                 int (*run)(struct postgres_txn *t, void *ctx), void *ctx)
{
	return (struct postgres_work){.run = run,
	                              .ctx = ctx,
	                              .is_distributed = s->kind.is_distributed,
	                              .is_postgres = s->kind.has_advisory_locks};
}

/* A transaction with a mark. ERR_CONFLICT and ERR_NOT_FOUND are the work's own; the rest is after
 * postgres_error. */
int postgres_write(struct store_postgres *s, const struct postgres_work *work, struct err *e);

/* Keys can be locked many at once, and versions can be held: it may be one of several. */
static inline bool postgres_can_be_shard(const struct store_postgres *s)
{
	return s->kind.has_advisory_locks && !s->kind.is_distributed;
}

/*
 * The store's operations in a database that goes by `row`, and sees nothing under slots that it does not own.
 * ERR_CONFLICT: it goes by another row by now. Names that are looked up or changed are the row's; a change of
 * a slot that is frozen is the caller's to put off.
 */
int postgres_lookup(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                    size_t n);
int postgres_apply(struct store_postgres *s, const struct slot_row *row, struct store_write *writes,
                   size_t n);
/* Over one connection, the primary's or a replica's. The reads change places. */
int postgres_read_links(struct pg_conn *c, const struct slot_row *row, struct store_lookup **reads, size_t n,
                        struct arena *arena);
int postgres_permitted(struct store_postgres *s, const struct slot_row *row, uint64_t link,
                       struct arena *arena, uint64_t **ret, size_t *ret_count);
int postgres_set_clicks(struct store_postgres *s, const struct slot_row *row, uint64_t node,
                        const struct store_count *counts, size_t n); /* ERR_BUSY: one is frozen */
int postgres_claim(struct store_postgres *s, const struct slot_row *row, int64_t now_ms,
                   uint64_t quarantine_ms, size_t max, uint64_t *ret_ids, size_t *ret_count);

/* An id with what orders it, so that several databases' can be merged. */
struct ranked_id {
	int64_t rank;
	uint64_t id;
};

/* A page behind `from`, which is by created_ms. *ret_more, and not page->next: there are further ones. */
int postgres_list(struct store_postgres *s, const struct slot_row *row, struct ranked_id from,
                  struct store_list *page, bool *ret_more);

/* The first of those links that carry a tag, by their making backwards, or of those that are over, by when
 * they were. */
struct postgres_ids {
	struct str tag; /* STR_NULL: those that are over at now_ms */
	int64_t now_ms;
	size_t max;
	bool count_all;        /* of those that are over */
	struct ranked_id *ids; /* room for `max` */
	size_t count;          /* out */
	uint64_t total;        /* out, when count_all */
};
int postgres_ids(struct store_postgres *s, const struct slot_row *row, struct postgres_ids *ids);
