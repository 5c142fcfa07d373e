/*
 * The interned ids of the strings of one stream, by position. For queues that keep texts apart from events.
 * Ids are valid for one generation: a lookup in a later one finds nothing. Owned by the stats worker's
 * thread.
 */
#pragma once

#include "queue/queue.h"

/* `position` is not 0. */
bool string_map_find(struct queue_stream *stream, uint32_t generation, uint32_t position, uint32_t *ret_id);

/* Best effort: without memory, the string is read again. */
void string_map_put(struct queue_stream *stream, uint32_t generation, uint32_t position, uint32_t id);
