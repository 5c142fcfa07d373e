/* What a PostgreSQL store is made of. For its own files and for store_shards.c: store_postgres.c has the
 * role's operations, postgres_apply.c its changes, postgres_slots.h what it takes to be one of several. */
#pragma once

#include "store/decide.h"
#include "store/postgres_layout.h"
#include "store/postgres_slots.h"
#include "store/postgres_txn.h"
#include "store/rules.h"

enum { WRITE_PATIENCE_MS = 5000 }; /* for an answer to a change */

struct store_postgres {
	struct store base;
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

static inline struct store_postgres *store_postgres_of(struct store *base)
{
	return container_of(base, struct store_postgres, base);
}

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

/* A transaction with a mark. ERR_CONFLICT and ERR_NOT_FOUND are the work's own; the rest is after
 * postgres_error. */
int postgres_write(struct store_postgres *s, const struct postgres_work *work, struct err *e);

/* Keys can be locked many at once, and versions can be held: it may be one of several. */
static inline bool postgres_can_be_shard(const struct store_postgres *s)
{
	return s->kind.has_advisory_locks && !s->kind.is_distributed;
}

/*
 * The role's operations in a database that goes by `row`, and sees nothing under slots that it does not own.
 * ERR_CONFLICT: it goes by another row by now. NULL: nothing is checked. Names that are looked up or changed
 * are the row's; a change of a slot that is frozen is the caller's to put off. With `is_shard` changes ask
 * nothing that the registry alone can know: whether the user of a PERMIT exists, and which ids
 * STORE_LINK_COUNTER has passed.
 */
int postgres_lookup_at(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                       size_t n);
int postgres_apply_at(struct store_postgres *s, const struct slot_row *row, bool is_shard,
                      struct store_write *writes, size_t n);
int postgres_list_at(struct store_postgres *s, const struct slot_row *row, struct store_list *page);
int postgres_permitted_at(struct store_postgres *s, const struct slot_row *row, uint64_t link,
                          struct arena *arena, uint64_t **ret, size_t *ret_count);
int postgres_set_clicks_at(struct store_postgres *s, const struct slot_row *row, uint64_t node,
                           const struct store_count *counts, size_t n); /* ERR_BUSY: one is frozen */
int postgres_claim_at(struct store_postgres *s, const struct slot_row *row, int64_t now_ms, uint64_t rest_ms,
                      size_t max, uint64_t *ret_ids, size_t *ret_count);

/* Ids with what orders them, so that several databases' can be merged. */
struct ranked_id {
	int64_t rank;
	uint64_t id;
};
int postgres_tagged_at(struct store_postgres *s, const struct slot_row *row, struct str tag, size_t max,
                       struct ranked_id *ret, size_t *ret_count);
int postgres_over_at(struct store_postgres *s, const struct slot_row *row, const struct store_over *over,
                     struct ranked_id *ret, size_t *ret_count, uint64_t *ret_total);
