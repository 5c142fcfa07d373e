/*
 * Slots: how links are spread over several databases, the shards.
 *
 * A name belongs to one of SLOT_COUNT slots by a hash of its bytes, which never changes. A slot belongs to
 * one database. The ring (base/ring.h) says which database should own a slot; `curt reshard` moves it
 * there.
 *
 * Each database has one row that says which slots it owns. This row is the authority. Every change of the
 * row raises its version. A server caches the rows and sends the version with every statement, read or
 * write. A database refuses a statement with another version; the server then reads the row again and
 * retries. So no server acts on outdated ownership, and a slot that moved away is never mistaken for a link
 * that does not exist. A change of the row waits for all writers that were admitted under the version
 * before. When the change is committed, none of them is left.
 *
 * The slot map in the registry also says which database owns which slot. It follows the rows. Servers need
 * it for databases that do not answer.
 *
 * Moving the slots M from S to T. Each line is one change of a row, committed before the next begins:
 *
 *	S: begin    M is being copied. Every change under M appends its name to S's feed.
 *	T: expect   Rows under M may be stored here, but are invisible.
 *	            Copy every name of M. Then copy the names in the feed again, until few are left.
 *	S: freeze   Changes of M wait, until a deadline on S's clock. Reads continue.
 *	            Copy the last names of the feed: nobody changes M now.
 *	S: give     S no longer owns M; only if the freeze still holds. This is the moment of the switch.
 *	T: take     T owns M.
 *	            The map follows.
 *	S: finish   S forgets the move. Its rows under M are garbage: delete them.
 *	S: clean    No garbage is left.
 *
 * Killed after any line, nothing is lost. Before `give`, S owns M: any server thaws a freeze whose deadline
 * has passed, and the next `curt reshard` abandons the copy and starts again. After `give`, M has no owner
 * until T takes it: any server that finds this completes the move, because S's row names T. A token
 * identifies the attempt. An attempt that was paused and resumes too late is refused by S and by T, and its
 * copies are refused by T's version.
 *
 * The code here is pure: rows, and the rules that change them. A rule returns 0, or ERR_CONFLICT if the row
 * does not allow it.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum {
	SLOT_COUNT = 4096,
	SLOT_SET_BYTES = SLOT_COUNT / 8,
	SHARD_NAME_BYTES = 16,
	SHARD_ADDRESS_MAX = 300,
	SHARDS_MAX = 32,
};

/* FNV-1a, then the finalizer of MurmurHash3; the upper 12 bits. Stored data depends on it. */
static inline unsigned slot_of(struct str name)
{
	uint64_t h = 0xcbf29ce484222325ULL;
	for (size_t i = 0; i < name.len; i++)
		h = (h ^ (unsigned char)name.ptr[i]) * 0x100000001b3ULL;
	h = (h ^ h >> 33) * 0xff51afd7ed558ccdULL;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return (unsigned)((h ^ h >> 33) >> 52);
}

struct slot_set {
	uint8_t bits[SLOT_SET_BYTES];
};

static inline bool slots_have(const struct slot_set *s, unsigned slot)
{
	return s->bits[slot / 8] >> slot % 8 & 1;
}

static inline void slots_add(struct slot_set *s, unsigned slot)
{
	s->bits[slot / 8] |= (uint8_t)(1 << slot % 8);
}

void slots_join(struct slot_set *to, const struct slot_set *more);
void slots_drop(struct slot_set *from, const struct slot_set *these);
bool slots_meet(const struct slot_set *a, const struct slot_set *b);
bool slots_include(const struct slot_set *all, const struct slot_set *some);
size_t slots_count(const struct slot_set *s);
extern const struct slot_set slots_all, slots_none;

enum slot_move { MOVE_NONE, MOVE_COPY, MOVE_FREEZE, MOVE_GIVEN };

struct slot_row {
	uint8_t name[SHARD_NAME_BYTES]; /* random, the identity of the database */
	uint64_t version;
	struct slot_set owned;
	struct slot_set out; /* moving away; owned until given */
	enum slot_move move;
	uint64_t out_token;
	uint8_t out_to[SHARD_NAME_BYTES];
	int64_t until_ms;   /* deadline of a freeze, on the database's clock */
	struct slot_set in; /* moving here */
	uint64_t in_token;  /* 0: nothing moves here */
	struct slot_set garbage;
	char registry[SHARD_ADDRESS_MAX]; /* address of the registry, for people; empty: never a shard */

	int64_t now_ms;       /* the database's clock when the row was read */
	uint64_t transaction; /* that wrote the row; 0: it was only read */
};

/* Must changes of the slot wait? */
static inline bool slot_is_frozen(const struct slot_row *row, unsigned slot)
{
	return row->move == MOVE_FREEZE && slots_have(&row->out, slot);
}

/* The database stores rows that must stay invisible. */
static inline bool slot_row_has_hidden(const struct slot_row *row)
{
	return row->in_token != 0 || slots_count(&row->garbage) > 0 || row->move == MOVE_GIVEN;
}

/* The database owns all slots, and nothing moves. */
static inline bool slot_row_owns_all(const struct slot_row *row)
{
	return row->move == MOVE_NONE && slots_include(&row->owned, &slots_all);
}

/* The arguments of a rule; most rules use a few of them. */
struct slot_attempt {
	uint64_t token;
	const struct slot_set *slots;
	const uint8_t *to;
	int64_t freeze_ms;
	struct str registry;
	/* Checked and done in the same transaction: the database has no links and accounts (ERR_CONFLICT);
	 * its idempotency keys become routes. */
	bool if_empty, makes_routes;
};

typedef int slot_rule_fn(struct slot_row *row, const struct slot_attempt *a);

/* The steps above, in order. `touch` changes only the version, which waits for all earlier writers. */
slot_rule_fn slot_row_begin, slot_row_expect, slot_row_touch, slot_row_freeze, slot_row_give, slot_row_take,
    slot_row_finish, slot_row_clean;

/* Cleaning up after attempts that died. */
slot_rule_fn slot_row_thaw;    /* S: the freeze has expired */
slot_rule_fn slot_row_abandon; /* S: before `give` */
slot_rule_fn slot_row_reclaim; /* S: the database that M was given to is lost */
slot_rule_fn slot_row_refuse;  /* T: the copies become garbage */

/* Ownership without a move. `enroll`: an empty database becomes a shard, with its share of slots. `adopt`:
 * after a loss or a restore, a database takes slots without an owner. `disown`: it drops slots that another
 * owns; the token is the version that the decision was based on. */
slot_rule_fn slot_row_enroll, slot_row_adopt, slot_row_disown;
