/*
 * What a store offers so that it can be one of several in a ring (store_ring.c). For rings and for backends.
 *
 * Placement. Everything that belongs to a key (its link, who is permitted, a name that rests, a key that is
 * spent) lies in the part to which the ring assigns the key's text. Users, API keys, sessions, counters and
 * constants lie in one part, the home.
 *
 * The epoch. Who is in the ring changes over time. Every part keeps the ring's description under a number,
 * the epoch, which grows with each change. Lookups and changes say under which epoch they chose the part, and
 * the part refuses them with ERR_CONFLICT when it knows another: then the caller learns the new ring and
 * chooses again. A part checks that inside the transaction, and `ring_set` waits for those that it let in
 * under the old one, so once it has returned, nobody writes by the old ring any more. 0 is never refused;
 * PART_ALONE is, once the part has been in a ring.
 */
#pragma once

#include "store/store.h"

#define PART_ALONE UINT64_MAX

/* As the part keeps it. */
static inline uint64_t part_epoch_number(uint64_t epoch)
{
	return epoch == PART_ALONE ? 0 : epoch;
}

/* A batch of keys on its way from one part to another; made by move_begin, ended by move_end. */
struct part_move;

/* Which key a create with an idempotency key was going to have. A retry would choose another key, which may
 * lie in another part than the first try's record; so the first choice is written down where retries find
 * it. Remembered for 24 h. */
struct part_route {
	uint64_t owner; /* in: with idempotency_key, whose create it is */
	struct str idempotency_key;
	int64_t now_ms;
	struct arena *arena;
	struct link_ref ref; /* in: what it would be; out: what it was the first time */
	uint64_t link_id;    /* in and out: likewise, link_record.id */
	bool is_alias;       /* in and out */
};

struct store_part_ops {
	/*
	 * store_lookup and store_apply under an epoch; ERR_CONFLICT: the part has another. `apply` waits for
	 * rows that are being moved away. It asks nothing that the home alone can know, as the ring has asked
	 * there before: whether the user of a PERMIT exists, and which ids STORE_LINK_COUNTER has passed.
	 */
	int (*lookup)(struct store *, uint64_t epoch, struct store_lookup *reads, size_t n);
	int (*apply)(struct store *, uint64_t epoch, struct store_write *writes, size_t n);
	/* `apply` in a part that is the whole store (store_alone.c): it asks itself all of that. */
	int (*apply_whole)(struct store *, uint64_t epoch, struct store_write *writes, size_t n);

	/* The ring as this part knows it: epoch 0 and STR_NULL when it was never in one. */
	int (*ring_get)(struct store *, struct arena *arena, uint64_t *ret_epoch, struct str *ret_text);
	/* ERR_CONFLICT when the part's epoch is `epoch` or later already. */
	int (*ring_set)(struct store *, uint64_t epoch, struct str text);
	/* The same in a part that has been the whole store, and shall not be any more: in the same
	 * transaction, what it remembers of creates with an idempotency key becomes routes. */
	int (*ring_set_whole)(struct store *, uint64_t epoch, struct str text);

	/* What a counter would give out next, and the highest id of a link here (0: there is none). */
	int (*counter)(struct store *, struct str counter, uint64_t *ret_next);
	int (*link_id_last)(struct store *, uint64_t *ret);

	/* 0, with the first choice in each of the `routes`, durably; see above. Two of them may be the same.
	 * `route_drop` forgets one, as the create failed, unless it is another choice by now. */
	int (*route)(struct store *, struct part_route *routes, size_t n);
	int (*route_drop)(struct store *, const struct part_route *route);

	/* Of a page that ended with this link; what store_list takes. Pages of all parts are in the same
	 * order: `before` says whether a link stands before another. Their links have the texts of generated
	 * keys, too. */
	struct str (*cursor)(struct arena *arena, const struct link_record *last);
	bool (*before)(const struct link_record *a, const struct link_record *b);

	/* Up to `max` keys that something lies under, above `after` in an order of the part's own (STR_NULL:
	 * from the first). The texts of generated keys too. */
	int (*keys_after)(struct store *, struct str after, size_t max, struct arena *arena, struct str *ret,
	                  size_t *ret_count);

	/*
	 * Moving. move_begin locks all that lies under the keys (which differ from each other) in `from`, so
	 * that changes and other moves of it wait, and reads it: links first, since a change that it waited
	 * for may have put other things in their place. ERR_CONFLICT: the part has another epoch; ring_set
	 * waits until the move has ended. move_put writes it to `to` durably. What was put there before under
	 * the same epoch is left out, whatever became of it since; otherwise what lies there under a key
	 * gives way to what comes. ERR_CONFLICT: `to` has another epoch; ERR_CORRUPT: a link there has the id
	 * of one that comes, but another key. move_end removes it from `from` (`done`) or leaves it, lets go,
	 * and frees `move` whatever it says. All of one kind of backend. Lookups never wait: they see it in
	 * `from`, then in both, then in `to`.
	 */
	int (*move_begin)(struct store *from, uint64_t epoch, const struct str *keys, size_t n,
	                  struct part_move **ret);
	int (*move_put)(struct store *to, struct part_move *move);
	int (*move_end)(struct store *from, struct part_move *move, bool done);
};
