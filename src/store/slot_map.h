/*
 * The map: which slots belong to which database, as the registry keeps it.
 *
 * A name is the database's own, random, and stays with its data; an address is how people know it. While
 * slots move, the databases that will have them all are targets.
 */
#pragma once

#include "store/slots.h"

/* Stored as it lies here: only bytes, so that there is no padding and no order of bytes. What is not used is
 * zero. */
struct map_shard {
	uint8_t name[SHARD_NAME_BYTES];
	uint8_t is_target;
	char address[SHARD_ADDRESS_MAX];
};

struct slot_map {
	uint64_t version; /* not in the text; 0: there is none */
	uint8_t count;
	struct map_shard shards[SHARDS_MAX];
	uint8_t owner[SLOT_COUNT]; /* number in `shards` */
};

/* ERR_CORRUPT when this is no such text. */
int slot_map_read(struct str text, uint64_t version, struct slot_map *ret);
struct str slot_map_text(const struct slot_map *map); /* good as long as the map */

/* Where it stands; map->count when it does not. */
size_t slot_map_find(const struct slot_map *map, const uint8_t *name);
static inline bool slot_map_has(const struct slot_map *map, const uint8_t *name)
{
	return slot_map_find(map, name) < map->count;
}
bool slot_map_moves(const struct slot_map *map); /* there are targets */

/* False when there is no room, or the address is too long. */
bool slot_map_add(struct slot_map *map, const uint8_t *name, struct str address);
void slot_map_remove(struct slot_map *map, size_t at); /* one without slots */

/* Where slots should be, by consistent hashing over the names; NULL: that one gets none. Each is a number in
 * `names`. False: memory ran out. */
bool slots_place(const uint8_t *const names[SHARDS_MAX], uint8_t ret[SLOT_COUNT]);
