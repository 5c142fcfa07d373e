#include "store/slot_map.h"

#include "base/ring.h"

#include <stdio.h>

enum { TEXT_AT = offsetof(struct slot_map, count) };
_Static_assert(sizeof(struct map_shard) == SHARD_NAME_BYTES + 1 + SHARD_ADDRESS_MAX, "stored as it is");

struct str slot_map_text(const struct slot_map *map)
{
	return str_n((const char *)map + TEXT_AT, 1 + sizeof(map->shards) + sizeof(map->owner));
}

int slot_map_read(struct str text, uint64_t version, struct slot_map *ret)
{
	*ret = (struct slot_map){.version = version};
	if (text.len != slot_map_text(ret).len)
		return ERR_CORRUPT;
	memcpy((char *)ret + TEXT_AT, text.ptr, text.len);
	bool is_right = ret->count > 0 && ret->count <= SHARDS_MAX;
	for (size_t i = 0; is_right && i < ret->count; i++)
		is_right = slot_map_find(ret, ret->shards[i].name) == i &&
		           memchr(ret->shards[i].address, '\0', SHARD_ADDRESS_MAX);
	for (unsigned slot = 0; is_right && slot < SLOT_COUNT; slot++)
		is_right = ret->owner[slot] < ret->count;
	return is_right ? 0 : ERR_CORRUPT;
}

size_t slot_map_find(const struct slot_map *map, const uint8_t *name)
{
	size_t at = 0;
	while (at < map->count && memcmp(map->shards[at].name, name, SHARD_NAME_BYTES) != 0)
		at++;
	return at;
}

bool slot_map_is_target(const struct slot_map *map, const uint8_t *name)
{
	size_t at = slot_map_find(map, name);
	return at < map->count && map->shards[at].is_target;
}

bool slot_map_moves(const struct slot_map *map)
{
	bool moves = false;
	for (size_t i = 0; i < map->count; i++)
		moves |= map->shards[i].is_target;
	return moves;
}

bool slot_map_add(struct slot_map *map, const uint8_t *name, struct str address)
{
	if (map->count == SHARDS_MAX || address.len >= SHARD_ADDRESS_MAX)
		return false;
	struct map_shard *shard = &map->shards[map->count++];
	memcpy(shard->name, name, SHARD_NAME_BYTES);
	memcpy(shard->address, address.ptr, address.len);
	return true;
}

void slot_map_remove(struct slot_map *map, size_t at)
{
	map->count--;
	memmove(&map->shards[at], &map->shards[at + 1], (map->count - at) * sizeof(map->shards[0]));
	memset(&map->shards[map->count], 0, sizeof(map->shards[0]));
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		map->owner[slot] -= map->owner[slot] > at;
}

bool slots_place(const uint8_t *const names[SHARDS_MAX], uint8_t ret[SLOT_COUNT])
{
	struct str strs[SHARDS_MAX];
	uint8_t numbers[SHARDS_MAX];
	size_t n = 0;
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		if (!names[i])
			continue;
		numbers[n] = (uint8_t)i;
		strs[n++] = str_n((const char *)names[i], SHARD_NAME_BYTES);
	}
	struct ring *ring = ring_new(strs, n);
	for (unsigned slot = 0; ring && slot < SLOT_COUNT; slot++) {
		char text[16];
		int len = snprintf(text, sizeof(text), "slot-%u", slot);
		ret[slot] = numbers[ring_find(ring, str_n(text, (size_t)len))];
	}
	bool done = ring != NULL;
	ring_free(ring);
	return done;
}
