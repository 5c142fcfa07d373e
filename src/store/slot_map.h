/*
 * The map: which slots belong to which database, as the registry keeps it, in JSON:
 *
 *	{"databases":[{"name":"HEX","address":"HOST:PORT/DATABASE"},...],"slots":"0010...","target":["HEX",...]}
 *
 * A name is the database's own, random, and stays with its data; an address is how people know it. "slots"
 * has a character for each slot: '0' and the number of its database. "target" is there while slots move: the
 * databases that will have them all.
 */
#pragma once

#include "base/arena.h"
#include "store/slots.h"

enum { SHARD_NAME_TEXT = 2 * SHARD_NAME_BYTES };

struct map_shard {
	uint8_t name[SHARD_NAME_BYTES];
	char address[SHARD_ADDRESS_MAX];
};

struct map_shards {
	struct map_shard at[SHARDS_MAX];
	size_t count;
};

struct slot_map {
	uint64_t version; /* not in the text; 0: there is none */
	struct map_shards shards;
	uint8_t owner[SLOT_COUNT]; /* number in `shards` */
	uint8_t target[SHARDS_MAX][SHARD_NAME_BYTES];
	size_t target_count; /* 0: nothing moves */
};

/* ERR_CORRUPT when this is no such text. */
int slot_map_read(struct str text, uint64_t version, struct slot_map *ret);
struct str slot_map_write(const struct slot_map *map, struct arena *arena); /* STR_NULL: memory ran out */

/* Where it stands; shards->count when it does not. */
size_t map_shards_find(const struct map_shards *shards, const uint8_t *name);
/* True when there is room, and the address is not too long. */
bool map_shards_add(struct map_shards *shards, const uint8_t *name, struct str address);

/* Where slots should be, by consistent hashing over the names. False: memory ran out. */
bool slots_place(const uint8_t (*names)[SHARD_NAME_BYTES], size_t n, uint8_t ret[SLOT_COUNT]);
