/* What a PostgreSQL store is made of. For its own files only: store_postgres.c has the role's operations,
 * postgres_apply.c its changes, postgres_part.c and postgres_move.c what it takes to be part of a ring. */
#pragma once

#include "store/decide.h"
#include "store/part.h"
#include "store/postgres_layout.h"
#include "store/postgres_txn.h"
#include "store/rules.h"

enum { WRITE_PATIENCE_MS = 5000 }; /* for an answer to a change */

struct store_postgres {
	struct store base;
	struct store_ops ops; /* without what Citus cannot do */
	atomic_uint calls;    /* under way */
	struct pg_pool *writers, *readers;
	struct pg_pool *movers;             /* a move holds its connection until it ends */
	struct postgres_replicas *replicas; /* NULL: there are none */
	struct postgres_marks *marks;
	struct postgres_kind kind;
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

/* Lookups and changes under an epoch (part.h); 0: whatever it is. */
int postgres_lookup_at(struct store_postgres *s, uint64_t epoch, struct store_lookup *reads, size_t n);
int postgres_apply_at(struct store_postgres *s, uint64_t epoch, bool in_ring, struct store_write *writes,
                      size_t n);

/* Inside a transaction: the ring does not change until it ends. When the part's epoch is another one, all
 * that comes later in the transaction fails, with ERR_NOT_FOUND. */
void postgres_epoch_hold(struct postgres_txn *t, uint64_t epoch);

/* ERR_CONFLICT when it failed for that reason; otherwise what the failure means to a caller. */
int postgres_epoch_error(int r);

/* Of struct store_part_ops: postgres_move.c. */
int postgres_move_begin(struct store *from, uint64_t epoch, const struct str *keys, size_t n,
                        struct part_move **ret);
int postgres_move_put(struct store *to, struct part_move *move);
int postgres_move_end(struct store *from, struct part_move *move, bool done);

extern const struct store_part_ops postgres_part_ops;
