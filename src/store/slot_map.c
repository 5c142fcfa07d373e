#include "store/slot_map.h"

#include "base/buf.h"
#include "base/json_out.h"
#include "base/ring.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>

static bool name_get(const json_t *value, uint8_t ret[SHARD_NAME_BYTES])
{
	size_t len = 0;
	return json_string_length(value) == SHARD_NAME_TEXT &&
	       sodium_hex2bin(ret, SHARD_NAME_BYTES, json_string_value(value), SHARD_NAME_TEXT, NULL, &len,
	                      NULL) == 0 &&
	       len == SHARD_NAME_BYTES;
}

static bool shards_get(const json_t *array, struct map_shards *ret)
{
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *address = json_object_get(json_array_get(array, i), "address");
		uint8_t name[SHARD_NAME_BYTES];
		if (!name_get(json_object_get(json_array_get(array, i), "name"), name) ||
		    json_string_length(address) == 0 || map_shards_find(ret, name) < ret->count ||
		    !map_shards_add(ret, name,
		                    str_n(json_string_value(address), json_string_length(address))))
			return false;
	}
	return ret->count > 0;
}

static bool slots_get(const json_t *value, struct slot_map *map)
{
	const char *text = json_string_value(value);
	bool is_right = json_string_length(value) == SLOT_COUNT;
	for (size_t i = 0; is_right && i < SLOT_COUNT; i++) {
		map->owner[i] = (uint8_t)(text[i] - '0');
		is_right = map->owner[i] < map->shards.count;
	}
	return is_right;
}

static bool target_get(const json_t *array, struct slot_map *map)
{
	map->target_count = json_array_size(array);
	bool is_right = map->target_count <= SHARDS_MAX;
	for (size_t i = 0; is_right && i < map->target_count; i++)
		is_right = name_get(json_array_get(array, i), map->target[i]);
	return is_right;
}

int slot_map_read(struct str text, uint64_t version, struct slot_map *ret)
{
	*ret = (struct slot_map){.version = version};
	json_t *root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
	bool done = shards_get(json_object_get(root, "databases"), &ret->shards) &&
	            slots_get(json_object_get(root, "slots"), ret) &&
	            target_get(json_object_get(root, "target"), ret);
	json_decref(root);
	return done ? 0 : ERR_CORRUPT;
}

static void name_put(struct buf *out, const uint8_t *name)
{
	char text[SHARD_NAME_TEXT + 1];
	buf_printf(out, "\"%s\"", sodium_bin2hex(text, sizeof(text), name, SHARD_NAME_BYTES));
}

struct str slot_map_write(const struct slot_map *map, struct arena *arena)
{
	CLEANUP(buf_release) struct buf out = {0};
	buf_str(&out, STR("{\"databases\":["));
	for (size_t i = 0; i < map->shards.count; i++) {
		buf_str(&out, i ? STR(",{\"name\":") : STR("{\"name\":"));
		name_put(&out, map->shards.at[i].name);
		buf_str(&out, STR(",\"address\":"));
		json_out_str(&out, str_of(map->shards.at[i].address));
		buf_char(&out, '}');
	}
	buf_str(&out, STR("],\"slots\":\""));
	for (size_t i = 0; i < SLOT_COUNT; i++)
		buf_char(&out, (char)('0' + map->owner[i]));
	buf_str(&out, STR("\",\"target\":["));
	for (size_t i = 0; i < map->target_count; i++) {
		buf_str(&out, i ? STR(",") : STR(""));
		name_put(&out, map->target[i]);
	}
	buf_str(&out, STR("]}"));
	return out.failed ? STR_NULL : arena_str(arena, buf_view(&out));
}

size_t map_shards_find(const struct map_shards *shards, const uint8_t *name)
{
	size_t at = 0;
	while (at < shards->count && memcmp(shards->at[at].name, name, SHARD_NAME_BYTES) != 0)
		at++;
	return at;
}

bool map_shards_add(struct map_shards *shards, const uint8_t *name, struct str address)
{
	if (shards->count == SHARDS_MAX || address.len >= SHARD_ADDRESS_MAX)
		return false;
	struct map_shard *shard = &shards->at[shards->count++];
	memcpy(shard->name, name, SHARD_NAME_BYTES);
	memcpy(shard->address, address.ptr, address.len);
	shard->address[address.len] = '\0';
	return true;
}

bool slots_place(const uint8_t (*names)[SHARD_NAME_BYTES], size_t n, uint8_t ret[SLOT_COUNT])
{
	struct str strs[SHARDS_MAX];
	for (size_t i = 0; i < n; i++)
		strs[i] = str_n((const char *)names[i], SHARD_NAME_BYTES);
	struct ring *ring = ring_new(strs, n);
	for (unsigned slot = 0; ring && slot < SLOT_COUNT; slot++) {
		char text[16];
		int len = snprintf(text, sizeof(text), "slot-%u", slot);
		ret[slot] = (uint8_t)ring_find(ring, str_n(text, (size_t)len));
	}
	bool done = ring != NULL;
	ring_free(ring);
	return done;
}
