/*
 * The slot map: which database owns which slot. The registry stores it.
 *
 * A database's name is random and stays with its data; its address is for people. While slots move, the
 * databases that will own all of them are targets.
 */
#pragma once

#include "store/slots.h"

/* Stored as these bytes: no padding, no byte order. Unused parts are zero. */
struct map_shard {
	uint8_t name[SHARD_NAME_BYTES];
	uint8_t is_target;
	char address[SHARD_ADDRESS_MAX];
};

struct slot_map {
	uint64_t version; /* stored separately; 0: no map */
	uint8_t count;
	struct map_shard shards[SHARDS_MAX];
	uint8_t owner[SLOT_COUNT]; /* index into `shards` */
};

/* Decodes and validates a map. ERR_CORRUPT. */
int slot_map_read(struct str text, uint64_t version, struct slot_map *ret);
struct str slot_map_text(const struct slot_map *map); /* borrows from the map */

/* The index of a database; map->count: not found. */
size_t slot_map_find(const struct slot_map *map, const uint8_t *name);
static inline bool slot_map_has(const struct slot_map *map, const uint8_t *name)
{
	return slot_map_find(map, name) < map->count;
}
bool slot_map_is_target(const struct slot_map *map, const uint8_t *name);
bool slot_map_moves(const struct slot_map *map); /* a reshard is unfinished */

/* False: no room, or the address is too long. */
bool slot_map_add(struct slot_map *map, const uint8_t *name, struct str address);
void slot_map_remove(struct slot_map *map, size_t at); /* it must own no slots */

/* Assigns every slot to one of `names` (by index; NULL: skipped), by consistent hashing. False: out of
 * memory. */
bool slots_place(const uint8_t *const names[SHARDS_MAX], uint8_t ret[SLOT_COUNT]);
