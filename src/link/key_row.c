#include "link/key_row.h"

size_t key_row_put(struct key_row *row, const struct source_key *keys, size_t n)
{
	size_t count = MIN(n, row->room - row->count);
	for (size_t i = 0; i < count; i++)
		row->keys[(row->first + row->count++) % row->room] = keys[i];
	return count;
}

size_t key_row_take(struct key_row *row, struct source_key *ret, size_t n)
{
	size_t count = MIN(n, row->count);
	for (size_t i = 0; i < count; i++) {
		ret[i] = row->keys[row->first];
		row->first = (row->first + 1) % row->room;
	}
	row->count -= count;
	return count;
}
