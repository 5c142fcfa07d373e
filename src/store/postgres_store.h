/*
 * A PostgreSQL database with links. One or more of them form a store (shards.h).
 *
 *	postgres_store.c      opening, ping
 *	postgres_layout.c     tables and migrations
 *	postgres_lookup.c     lookups of links, also on replicas (postgres_replica.c)
 *	postgres_read.c       lists
 *	postgres_apply.c      batches of changes: fetch (postgres_fetch.c), decide.h, write (postgres_links.c)
 *	postgres_clicks.c     click totals, claims
 *	postgres_registry.c   the registry interface; changes of accounts: postgres_accounts.c
 *	postgres_slots.c      the slot row and the slot map
 *	postgres_copy.c       copying names to another database
 *	postgres_routes.c     routes of creates with an idempotency key
 */
#pragma once

#include "store/decide.h"
#include "store/postgres_rows.h"
#include "store/postgres_slots.h"
#include "store/postgres_txn.h"
#include "store/rules.h"

enum { WRITE_TIMEOUT_MS = 5000 }; /* for the answer to a statement of a change */

/* What the server supports. */
struct postgres_features {
	bool has_advisory_locks; /* false: CockroachDB */
	bool is_distributed;     /* by Citus */
};

/* Applies all missing migrations. Any number of servers may do so at once. ERR_INVALID with a sentence: a
 * newer version has migrated the tables. */
int postgres_layout_make(struct pg_conn *c, struct postgres_features *ret, struct err *e);

struct postgres_config {
	struct str url;             /* of the primary */
	const struct str *replicas; /* URLs of standbys that answer lookups */
	size_t replica_count;
	size_t readers, writers; /* most connections; 0: the default */
};

struct store_postgres {
	struct registry registry;
	atomic_uint calls; /* running calls */
	struct pg_pool *writers, *readers;
	struct postgres_replicas *replicas; /* NULL: none */
	struct postgres_marks *marks;
	struct postgres_features kind;
	uint8_t name[SHARD_NAME_BYTES]; /* the constant "part-name": random, stays with the data */
	struct store_rules rules;
	_Atomic int64_t blocked_ms; /* when a change last ran into a lock timeout; 0: never */
	atomic_bool write_failed;   /* ping must try a write */
};

extern const struct registry_ops postgres_registry_ops;

static inline struct store_postgres *registry_postgres(struct registry *r)
{
	return container_of(r, struct store_postgres, registry);
}

/* Of the registry; postgres_accounts.c. */
int postgres_page(struct registry *r, struct registry_page *page);
int postgres_accounts(struct registry *r, struct registry_account *reads, size_t n, struct arena *arena);
int postgres_accounts_apply(struct registry *r, struct registry_write *writes, size_t n);

/* Does not connect yet. ERR_INVALID with a sentence: a URL is wrong. */
int postgres_new(const struct postgres_config *config, struct store_postgres **ret, struct err *e);
void postgres_close(struct store_postgres *s); /* waits for running calls; takes NULL */

/* Must come first. Applies migrations. ERR_INVALID with a sentence: a newer version has migrated the
 * tables. ERR_UNAVAILABLE: the primary does not answer; may be retried. */
int postgres_connect(struct store_postgres *s, struct err *e);

int postgres_ping(struct store_postgres *s, struct err *e);

/* `call` reads over the connection `c`. It is repeated once if the connection turns out to be broken: the
 * server may have restarted since its last use. */
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

/* Records a failed write for ping. Takes and returns a result of postgres_error. */
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

/* Runs a transaction with a mark. ERR_CONFLICT and ERR_NOT_FOUND come from the work; other errors are
 * mapped by postgres_error. */
int postgres_write(struct store_postgres *s, const struct postgres_work *work, struct err *e);

/* It can lock many keys at once, and has advisory locks for the slot row. */
static inline bool postgres_can_be_shard(const struct store_postgres *s)
{
	return s->kind.has_advisory_locks && !s->kind.is_distributed;
}

/* The store operations in one database. They see nothing of slots that `row` does not own. ERR_CONFLICT:
 * the database has another version. The caller passes only names of owned slots, and delays changes of
 * frozen slots. */
int postgres_lookup(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                    size_t n);
int postgres_apply(struct store_postgres *s, const struct slot_row *row, struct store_write *writes,
                   size_t n);
/* Reads over one connection, of the primary or a replica. Reorders `reads`. */
int postgres_read_links(struct pg_conn *c, const struct slot_row *row, struct store_lookup **reads, size_t n,
                        struct arena *arena);
int postgres_permitted(struct store_postgres *s, const struct slot_row *row, uint64_t link,
                       struct arena *arena, uint64_t **ret, size_t *ret_count);
int postgres_set_clicks(struct store_postgres *s, const struct slot_row *row, uint64_t node,
                        const struct store_count *counts, size_t n); /* ERR_BUSY: a slot is frozen */
int postgres_claim(struct store_postgres *s, const struct slot_row *row, int64_t now_ms,
                   uint64_t quarantine_ms, size_t max, uint64_t *ret_ids, size_t *ret_count);

/* An id with its sort key, so that results of several databases can be merged. */
struct ranked_id {
	int64_t rank;
	uint64_t id;
};

/* A page after `from` (rank: created_ms). Sets *ret_more instead of page->next. */
int postgres_list(struct store_postgres *s, const struct slot_row *row, struct ranked_id from,
                  struct store_list *page, bool *ret_more);

/* The first links with a tag, newest first, or the first expired links, earliest expiry first. */
struct postgres_ids {
	struct str tag; /* STR_NULL: links expired at now_ms */
	int64_t now_ms;
	size_t max;
	bool count_all;        /* of expired links */
	struct ranked_id *ids; /* array of `max` */
	size_t count;          /* out */
	uint64_t total;        /* out, if count_all */
};
int postgres_ids(struct store_postgres *s, const struct slot_row *row, struct postgres_ids *ids);
