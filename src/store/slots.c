#include "store/slots.h"

const struct slot_set slots_all = {{[0 ... SLOT_SET_BYTES - 1] = 0xff}};
const struct slot_set slots_none = {{0}};

void slots_join(struct slot_set *to, const struct slot_set *more)
{
	for (size_t i = 0; i < SLOT_SET_BYTES; i++)
		to->bits[i] |= more->bits[i];
}

void slots_drop(struct slot_set *from, const struct slot_set *these)
{
	for (size_t i = 0; i < SLOT_SET_BYTES; i++)
		from->bits[i] &= (uint8_t)~these->bits[i];
}

bool slots_meet(const struct slot_set *a, const struct slot_set *b)
{
	uint8_t common = 0;
	for (size_t i = 0; i < SLOT_SET_BYTES; i++)
		common |= a->bits[i] & b->bits[i];
	return common != 0;
}

bool slots_include(const struct slot_set *all, const struct slot_set *some)
{
	uint8_t missing = 0;
	for (size_t i = 0; i < SLOT_SET_BYTES; i++)
		missing |= some->bits[i] & (uint8_t)~all->bits[i];
	return missing == 0;
}

size_t slots_count(const struct slot_set *s)
{
	size_t count = 0;
	for (size_t i = 0; i < SLOT_SET_BYTES; i++)
		count += (size_t)__builtin_popcount(s->bits[i]);
	return count;
}

/* --- the source --- */

static bool is_out(const struct slot_row *row, enum slot_move move, const struct slot_attempt *a)
{
	return row->move == move && row->out_token == a->token;
}

static void out_end(struct slot_row *row)
{
	row->move = MOVE_NONE;
	row->out = slots_none;
	row->out_token = 0;
}

int slot_row_begin(struct slot_row *row, const struct slot_attempt *a)
{
	if (row->move != MOVE_NONE || !slots_include(&row->owned, a->slots))
		return ERR_CONFLICT;
	row->move = MOVE_COPY;
	row->out = *a->slots;
	row->out_token = a->token;
	memcpy(row->out_to, a->to, SHARD_NAME_BYTES);
	return 0;
}

int slot_row_touch(struct slot_row *row, const struct slot_attempt *a)
{
	return is_out(row, MOVE_COPY, a) ? 0 : ERR_CONFLICT;
}

int slot_row_freeze(struct slot_row *row, const struct slot_attempt *a)
{
	if (!is_out(row, MOVE_COPY, a))
		return ERR_CONFLICT;
	row->move = MOVE_FREEZE;
	row->until_ms = row->now_ms + a->freeze_ms;
	return 0;
}

int slot_row_give(struct slot_row *row, const struct slot_attempt *a)
{
	if (!is_out(row, MOVE_FREEZE, a) || row->now_ms >= row->until_ms)
		return ERR_CONFLICT;
	row->move = MOVE_GIVEN;
	slots_drop(&row->owned, &row->out);
	slots_join(&row->garbage, &row->out);
	return 0;
}

int slot_row_finish(struct slot_row *row, const struct slot_attempt *a)
{
	if (!is_out(row, MOVE_GIVEN, a))
		return ERR_CONFLICT;
	out_end(row);
	return 0;
}

int slot_row_thaw(struct slot_row *row, const struct slot_attempt *a)
{
	(void)a;
	if (row->move != MOVE_FREEZE || row->now_ms < row->until_ms)
		return ERR_CONFLICT;
	row->move = MOVE_COPY;
	return 0;
}

int slot_row_abandon(struct slot_row *row, const struct slot_attempt *a)
{
	(void)a;
	if (row->move != MOVE_COPY && row->move != MOVE_FREEZE)
		return ERR_CONFLICT;
	out_end(row);
	return 0;
}

int slot_row_reclaim(struct slot_row *row, const struct slot_attempt *a)
{
	if (!is_out(row, MOVE_GIVEN, a))
		return ERR_CONFLICT;
	slots_join(&row->owned, &row->out);
	slots_drop(&row->garbage, &row->out);
	out_end(row);
	return 0;
}

/* --- the target --- */

int slot_row_expect(struct slot_row *row, const struct slot_attempt *a)
{
	if (row->in_token != 0 || slots_meet(&row->owned, a->slots) || slots_meet(&row->garbage, a->slots))
		return ERR_CONFLICT;
	row->in = *a->slots;
	row->in_token = a->token;
	return 0;
}

int slot_row_take(struct slot_row *row, const struct slot_attempt *a)
{
	if (row->in_token == 0 || row->in_token != a->token)
		return ERR_CONFLICT;
	slots_join(&row->owned, &row->in);
	row->in = slots_none;
	row->in_token = 0;
	return 0;
}

int slot_row_refuse(struct slot_row *row, const struct slot_attempt *a)
{
	(void)a;
	if (row->in_token == 0)
		return ERR_CONFLICT;
	slots_join(&row->garbage, &row->in);
	row->in = slots_none;
	row->in_token = 0;
	return 0;
}

/* --- either --- */

int slot_row_clean(struct slot_row *row, const struct slot_attempt *a)
{
	slots_drop(&row->garbage, a->slots);
	return 0;
}

int slot_row_enroll(struct slot_row *row, const struct slot_attempt *a)
{
	if (row->registry[0] || !slot_row_owns_all(row) || a->registry.len >= SHARD_ADDRESS_MAX)
		return ERR_CONFLICT;
	row->owned = *a->slots;
	memcpy(row->registry, a->registry.ptr, a->registry.len);
	row->registry[a->registry.len] = '\0';
	return 0;
}

int slot_row_adopt(struct slot_row *row, const struct slot_attempt *a)
{
	if (slots_meet(&row->garbage, a->slots) || slots_meet(&row->in, a->slots))
		return ERR_CONFLICT;
	slots_join(&row->owned, a->slots);
	return 0;
}

int slot_row_disown(struct slot_row *row, const struct slot_attempt *a)
{
	if (row->version != a->token)
		return ERR_CONFLICT;
	struct slot_set theirs = row->owned;
	slots_drop(&row->owned, a->slots);
	slots_drop(&theirs, &row->owned);
	slots_join(&row->garbage, &theirs);
	return 0;
}
