#include "store/ring_core.h"

static int move_finish(struct store *from, struct store *to, struct part_move *move)
{
	int put = to->ops->part->move_put(to, move);
	int end = from->ops->part->move_end(from, move, put == 0);
	return put ? put : end;
}

int ring_move_keys(struct store_ring *s, uint64_t epoch, size_t from, size_t to, const struct str *keys,
                   size_t n)
{
	struct part_move *move;
	struct store *source = from == PART_MISSING ? NULL : ring_store(s, from);
	struct store *target = to == PART_MISSING ? NULL : ring_store(s, to);
	if (!source || !target)
		return ERR_UNAVAILABLE;
	int r = source->ops->part->move_begin(source, epoch, keys, n, &move);
	if (r != 0)
		return r;
	r = move_finish(source, target, move);
	return r == 0 || r == ERR_NOMEM
	           ? r
	           : ERR_UNAVAILABLE; /* whatever it was, the key's change did not begin */
}
