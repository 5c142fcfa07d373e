#include "store/ring_core.h"

#include <time.h>

enum { MOVE_TRIES = 5, MOVE_PAUSE_MS = 20 };

static int move_finish(struct store *from, struct store *to, struct part_move *move)
{
	int put = to->ops->part->move_put(to, move);
	int end = from->ops->part->move_end(from, move, put == 0);
	return put ? put : end;
}

static int move_once(struct store *from, struct store *to, uint64_t epoch, const struct str *keys, size_t n)
{
	struct part_move *move;
	int r = from->ops->part->move_begin(from, epoch, keys, n, &move);
	if (r != 0)
		return r;
	return move_finish(from, to, move);
}

/* Locks that stood in each other's way are free the next time. */
int ring_move_keys(struct store_ring *s, uint64_t epoch, size_t from, size_t to, const struct str *keys,
                   size_t n)
{
	struct store *source = from == PART_MISSING ? NULL : ring_store(s, from);
	struct store *target = to == PART_MISSING ? NULL : ring_store(s, to);
	if (!source || !target)
		return ERR_UNAVAILABLE;
	int r = move_once(source, target, epoch, keys, n);
	for (int tries = 1; r == ERR_BUSY && tries < MOVE_TRIES; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = MOVE_PAUSE_MS * 1000000L}, NULL);
		r = move_once(source, target, epoch, keys, n);
	}
	if (r == 0 || r == ERR_CONFLICT || r == ERR_CORRUPT || r == ERR_NOMEM)
		return r;
	return ERR_UNAVAILABLE; /* whatever it was, the change that wanted it has not begun */
}
