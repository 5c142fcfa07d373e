/*
 * The slots of a PostgreSQL database: its row (store/slots.h), what lies under names that move, and what the
 * registry keeps for all databases. For the PostgreSQL store and for store_shards.c only.
 *
 * Functions take the row that the caller goes by. ERR_CONFLICT: the database has another version by now.
 */
#pragma once

#include "base/arena.h"
#include "store/slot_map.h"
#include "store/store.h"

struct pg_conn;
struct postgres_txn;
struct store_postgres;

/* --- the row --- */

/* From the primary. A database that cannot be one of several has none: it owns all slots, under version 0,
 * and nothing is checked. */
int postgres_slots_get(struct store_postgres *s, struct slot_row *ret);

/* Waits for all writers, then changes the row by the rule (ERR_CONFLICT is its own); *ret is as it is now. */
int postgres_slots_change(struct store_postgres *s, slot_rule_fn *rule, const struct slot_attempt *a,
                          struct slot_row *ret);

/* Inside a transaction: the row does not change until it ends. When it is another one, all that comes later
 * in the transaction fails with ERR_NOT_FOUND. */
void postgres_slots_hold(struct postgres_txn *t, const struct slot_row *row);

/* After reads: 0 when the row was the same all the time. Confirm asks by itself; the others are for a
 * pipeline that the reads are in, too. */
int postgres_slots_confirm(struct pg_conn *c, const struct slot_row *row);
void postgres_version_send(struct pg_conn *c, const struct slot_row *row);
int postgres_version_check(struct pg_conn *c, const struct slot_row *row);

/* ERR_CONFLICT when it failed for that reason; otherwise what the failure means to a caller. */
int postgres_slots_error(int r);

static inline bool slot_row_owns(const struct slot_row *row, struct str name)
{
	return slots_have(&row->owned, slot_of(name));
}

/* --- the map, in the registry --- */

/* Version 0: there is none. */
int postgres_map_get(struct store_postgres *s, struct slot_map *ret);
/* Under the next version. ERR_CONFLICT when there is another one than that of map->version by now. */
int postgres_map_set(struct store_postgres *s, const struct slot_map *map);

/* --- rows that move --- */

/* Up to `max` names above `after` that something lies under (STR_NULL: from the first). */
int postgres_names_after(struct store_postgres *s, struct str after, size_t max, struct arena *arena,
                         struct str *ret, size_t *ret_count);

/* Copies what lies under the names to `to`, and removes there what is not in `from` any more. */
int postgres_names_copy(struct store_postgres *from, struct store_postgres *to, const struct slot_row *to_row,
                        const struct str *names, size_t n, struct err *e);
int postgres_names_remove(struct store_postgres *s, const struct slot_row *row, const struct str *names,
                          size_t n);

/* Names that were changed by transactions behind `*cursor` and before `until`, up to `max` transactions at a
 * time: some may come twice. *ret_more: there are further ones. ERR_NOT_FOUND: the feed was pruned. */
int postgres_names_changed(struct store_postgres *s, struct feed_cursor *cursor, uint64_t until, size_t max,
                           struct arena *arena, struct str **ret, size_t *ret_count, bool *ret_more);

int postgres_is_used(struct store_postgres *s, bool *ret); /* it holds links or accounts */

/* The highest id of a link here; 0: there is none. */
int postgres_link_id_last(struct store_postgres *s, uint64_t *ret);

/* --- what only the registry knows --- */

/* Which key a create with an idempotency key was going to have. A retry would choose another key, which may
 * lie in another database than the first try's record; so the first choice is written down where retries
 * find it. Remembered for 24 h. */
struct store_route {
	uint64_t owner; /* in: with idempotency_key, whose create it is */
	struct str idempotency_key;
	int64_t now_ms;
	struct arena *arena;
	struct link_ref ref; /* in: what it would be; out: what it was the first time */
	uint64_t link_id;    /* in and out: likewise, link_record.id */
	bool is_alias;       /* in and out */
};

/* 0, with the first choice in each of the `routes`, durably. Two of them may be the same. `drop` forgets one,
 * as the create failed, unless it is another choice by now. */
int postgres_routes_get(struct store_postgres *s, struct store_route *routes, size_t n);
int postgres_route_drop(struct store_postgres *s, const struct store_route *route);

/* What is remembered of creates becomes routes, in a transaction (slot_attempt.makes_routes). Most of them
 * are made before it, as nobody can change anything meanwhile. */
void postgres_routes_fill(struct postgres_txn *t);
int postgres_routes_prepare(struct store_postgres *s);
