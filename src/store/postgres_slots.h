/*
 * The slots of a PostgreSQL database: its slot row (slots.h), copying the rows of names that move, and what
 * the registry keeps for all databases.
 *
 * Functions take the slot row that the caller knows. ERR_CONFLICT: the database has another version.
 */
#pragma once

#include "base/arena.h"
#include "store/slot_map.h"
#include "store/store.h"

struct pg_conn;
struct postgres_txn;
struct store_postgres;

/* --- the row --- */

/* Reads the row from the primary. A database that cannot be a shard has none: it owns all slots under
 * version 0, which is never checked. */
int postgres_slots_get(struct store_postgres *s, struct slot_row *ret);

/* Waits for all writers, then changes the row by the rule (which may return ERR_CONFLICT); *ret is the new
 * row. */
int postgres_slots_change(struct store_postgres *s, slot_rule_fn *rule, const struct slot_attempt *a,
                          struct slot_row *ret);

/* In a transaction: keeps the row unchanged until the end. If its version differs, the next result is
 * ERR_NOT_FOUND. */
void postgres_slots_hold(struct postgres_txn *t, const struct slot_row *row);

/* After reads: 0 if the version has not changed. `confirm` makes its own round trip; `send` and `check` are
 * for the pipeline of the reads. */
int postgres_slots_confirm(struct pg_conn *c, const struct slot_row *row);
void postgres_version_send(struct pg_conn *c, const struct slot_row *row);
int postgres_version_check(struct pg_conn *c, const struct slot_row *row);

/* ERR_CONFLICT if the version differed; otherwise postgres_error. */
int postgres_slots_error(int r);

static inline bool slot_row_owns(const struct slot_row *row, struct str name)
{
	return slots_have(&row->owned, slot_of(name));
}

/* --- the map, in the registry --- */

/* Version 0: there is no map. */
int postgres_map_get(struct store_postgres *s, struct slot_map *ret);
/* Stores the map under the next version. ERR_CONFLICT: the stored version is not map->version. */
int postgres_map_set(struct store_postgres *s, const struct slot_map *map);

/* --- names that move --- */

/* Up to `max` names above `after` that have any row (STR_NULL: from the first). */
int postgres_names_after(struct store_postgres *s, struct str after, size_t max, struct arena *arena,
                         struct str *ret, size_t *ret_count);

/* Copies the rows of the names to `to`, and deletes those that `from` does not have. */
int postgres_names_copy(struct store_postgres *from, struct store_postgres *to, const struct slot_row *to_row,
                        const struct str *names, size_t n, struct err *e);
int postgres_names_remove(struct store_postgres *s, const struct slot_row *row, const struct str *names,
                          size_t n);

/* Names changed by transactions after `*cursor` and before `until`, of up to `max` transactions; with
 * duplicates. *ret_more: more follow. ERR_NOT_FOUND: the feed was pruned. */
int postgres_names_changed(struct store_postgres *s, struct feed_cursor *cursor, uint64_t until, size_t max,
                           struct arena *arena, struct str **ret, size_t *ret_count, bool *ret_more);

int postgres_is_used(struct store_postgres *s, bool *ret); /* it has links or accounts */

/* The highest link id; 0: no links. */
int postgres_link_id_last(struct store_postgres *s, uint64_t *ret);

/* --- what only the registry knows --- */

/* The key that a create with an idempotency key chose. A retry would choose another key, which may belong
 * to another database than the first attempt's link. So the first choice is stored here for 24 h. */
struct store_route {
	uint64_t owner; /* in: with idempotency_key, identifies the create */
	struct str idempotency_key;
	int64_t now_ms;
	struct arena *arena;
	struct link_ref ref; /* in: this attempt's choice; out: the first choice */
	uint64_t link_id;    /* in and out: link_record.id */
	bool is_alias;       /* in and out */
};

/* Replaces each of `routes` by the first choice, durably. Two may be the same. `drop` deletes a route after
 * the create failed, unless it has been replaced. */
int postgres_routes_get(struct store_postgres *s, struct store_route *routes, size_t n);
int postgres_route_drop(struct store_postgres *s, const struct store_route *route);

/* Turns remembered creates into routes, in a transaction that blocks all writers
 * (slot_attempt.makes_routes). `prepare` does most of them before, without blocking. */
void postgres_routes_fill(struct postgres_txn *t);
int postgres_routes_prepare(struct store_postgres *s);
