/*
 * Slots: how the names of links are spread over several databases, the shards.
 *
 * A name belongs to one of SLOT_COUNT slots by a hash of its bytes, for ever. A slot belongs to one database.
 * The ring (base/ring.h) says which database a slot should belong to; `curt reshard` moves it there.
 *
 * The truth. Each database keeps one row that says which slots it owns. The row has a version that grows with
 * every change. A server knows the row of each database and sends the version with every statement, read or
 * write; the database refuses a statement that comes with another version. Then the server reads the row
 * again and chooses again. So nobody works by what was true before, and a slot that is not ours is never
 * taken for a link that is not there. Whoever changes the row waits for the writers that were let in under
 * the version before: when the change is committed, none of them is left.
 *
 * The map says which slot belongs to which database, too. It lies in one of them, the registry, and follows
 * the rows. Servers need it for the slots of a database that does not answer.
 *
 * Moving the slots M from S to T. Each line is one change of a row, and is committed before the next begins:
 *
 *	S: begin    M is being copied. Who changes something under M appends its name to S's feed.
 *	T: expect   Rows under M may lie here, but are not ours yet: nobody sees them.
 *	            Copy every name of M. Then copy again the names that the feed has, until few are left.
 *	S: freeze   Changes of M wait, until a deadline on the database's clock. Reads go on.
 *	            Copy the last names of the feed: as of now nobody changes M.
 *	S: give     S owns M no more; only if the freeze still holds. This is the moment of the move.
 *	T: take     T owns M.
 *	            The map follows.
 *	S: finish   S forgets the move. What lies there under M is garbage: delete it, then
 *	S: clean    nothing is left.
 *
 * Killed after any line, nothing is lost. Before `give`, S owns M: a freeze whose deadline has passed is
 * thawed by anybody who meets it, and the next `curt reshard` abandons the copy and begins again. After
 * `give`, M has no owner until T takes it: anybody who meets that finishes the move, as S's row says to whom
 * M was given. A token names the attempt, so that one that was paused and wakes up late is refused by S and
 * by T, and its copies by T's version.
 *
 * What follows here is pure: rows and what may become of them. Functions that change a row return 0, or
 * ERR_CONFLICT when that is not possible any more.
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

/* FNV-1a over the bytes and the last step of MurmurHash3; the upper 12 bits. Stored data relies on it. */
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
	uint8_t name[SHARD_NAME_BYTES]; /* the database's own, random: its identity */
	uint64_t version;
	struct slot_set owned;
	struct slot_set out; /* what is moving away; owned until it was given */
	enum slot_move move;
	uint64_t out_token;
	uint8_t out_to[SHARD_NAME_BYTES];
	int64_t until_ms;   /* of a freeze, on the database's clock */
	struct slot_set in; /* what is moving here */
	uint64_t in_token;  /* 0: nothing is */
	struct slot_set garbage;
	char registry[SHARD_ADDRESS_MAX]; /* where the map is, for people; empty: it was never one of several
	                                   */

	int64_t now_ms;       /* the database's clock when this was read */
	uint64_t transaction; /* that made this row; 0: it was only read */
};

/* May a change of the slot be made now? */
static inline bool slot_is_frozen(const struct slot_row *row, unsigned slot)
{
	return row->move == MOVE_FREEZE && slots_have(&row->out, slot);
}

/* Rows that nobody may see lie here. */
static inline bool slot_row_has_hidden(const struct slot_row *row)
{
	return row->in_token != 0 || slots_count(&row->garbage) > 0 || row->move == MOVE_GIVEN;
}

/* The database is the whole store: it need ask nobody else for anything. */
static inline bool slot_row_is_whole(const struct slot_row *row)
{
	return row->move == MOVE_NONE && slots_include(&row->owned, &slots_all);
}

/* An attempt to move slots. */
struct slot_attempt {
	uint64_t token;
	const struct slot_set *slots;
	const uint8_t *to;
	int64_t freeze_ms;
	struct str registry;
	/* What the database sees to in the same transaction: that it holds no links or accounts (otherwise
	 * ERR_CONFLICT); that what it remembers of creates with an idempotency key becomes routes. */
	bool if_empty, makes_routes;
};

typedef int slot_rule_fn(struct slot_row *row, const struct slot_attempt *a);

/* In the order above; `touch` changes nothing but the version, so that all writers before it have ended. */
slot_rule_fn slot_row_begin, slot_row_expect, slot_row_touch, slot_row_freeze, slot_row_give, slot_row_take,
    slot_row_finish, slot_row_clean;

/* What is left of attempts that died. */
slot_rule_fn slot_row_thaw;    /* of a freeze that is past its time */
slot_rule_fn slot_row_abandon; /* of S: it was not given */
slot_rule_fn slot_row_reclaim; /* of S: who it was given to is lost */
slot_rule_fn slot_row_refuse;  /* of T: what came is garbage */

/* Who owns what, without a move. An empty database that was never one of several is enrolled with its share;
 * after a loss, or a restore of a backup, a database adopts slots that have no owner, or disowns some, as
 * was decided by the row whose version is the token. */
slot_rule_fn slot_row_enroll, slot_row_adopt, slot_row_disown;
