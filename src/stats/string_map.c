#include "stats/string_map.h"

#include "base/hash.h"

#include <stdlib.h>

struct string_slot {
	uint32_t position; /* 0: empty */
	uint32_t id;
};

/* The stream's reader_data. */
struct string_map {
	uint32_t generation;
	size_t count, slot_count;
	struct string_slot *slots; /* open addressing, at most half full */
};

static void string_map_free(void *arg)
{
	struct string_map *m = arg;
	free(m->slots);
	free(m);
}

/* NULL when memory ran out. Emptied if it is of an earlier generation. */
static struct string_map *map_of(struct queue_stream *stream, uint32_t generation)
{
	if (UNLIKELY(!stream->reader_data)) {
		stream->reader_data = calloc(1, sizeof(struct string_map));
		stream->reader_data_free = string_map_free;
	}
	struct string_map *m = stream->reader_data;
	if (UNLIKELY(m && m->generation != generation)) {
		m->generation = generation;
		m->count = 0;
		if (m->slot_count > 0)
			memset(m->slots, 0, m->slot_count * sizeof(*m->slots));
	}
	return m;
}

static struct string_slot *slot_of(const struct string_map *m, uint32_t position)
{
	size_t i = hash_u64(position, 0) & (m->slot_count - 1);
	while (m->slots[i].position != 0 && m->slots[i].position != position)
		i = (i + 1) & (m->slot_count - 1);
	return &m->slots[i];
}

static bool map_grow(struct string_map *m)
{
	struct string_map larger = {.slot_count = MAX(m->slot_count * 2, (size_t)256)};
	larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
	if (!larger.slots)
		return false;
	for (size_t i = 0; i < m->slot_count; i++)
		if (m->slots[i].position != 0)
			*slot_of(&larger, m->slots[i].position) = m->slots[i];
	free(m->slots);
	m->slots = larger.slots;
	m->slot_count = larger.slot_count;
	return true;
}

bool string_map_find(struct queue_stream *stream, uint32_t generation, uint32_t position, uint32_t *ret_id)
{
	const struct string_map *m = map_of(stream, generation);
	const struct string_slot *slot = LIKELY(m && m->slot_count > 0) ? slot_of(m, position) : NULL;
	if (UNLIKELY(!slot || slot->position == 0))
		return false;
	*ret_id = slot->id;
	return true;
}

void string_map_put(struct queue_stream *stream, uint32_t generation, uint32_t position, uint32_t id)
{
	struct string_map *m = map_of(stream, generation);
	if (!m || (2 * (m->count + 1) > m->slot_count && !map_grow(m)))
		return;
	struct string_slot *slot = slot_of(m, position);
	m->count += slot->position == 0;
	*slot = (struct string_slot){position, id};
}
