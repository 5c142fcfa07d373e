/*
 * A HyperLogLog sketch: counts distinct 32-bit hashes in at most 3 KB. Up to SKETCH_LIST_MAX hashes are kept
 * as they are, and the count is exact. Beyond that, each of 4,096 registers keeps the longest run of leading
 * zeros (plus one) among its hashes, and the error is about 1.6 %. The order of insertion does not matter.
 *
 * Stored form; the length says which:
 *
 *	list        the sorted hashes, 4 bytes each, little-endian
 *	registers   6 bits each, SKETCH_BYTES_MAX in all
 */
#pragma once

#include "base/def.h"

enum { SKETCH_LIST_MAX = 64, SKETCH_REGISTERS = 4096, SKETCH_BYTES_MAX = SKETCH_REGISTERS * 6 / 8 };

struct sketch {
	bool dense;
	unsigned count; /* of the list */
	union {
		uint32_t list[SKETCH_LIST_MAX]; /* sorted */
		uint8_t registers[SKETCH_REGISTERS];
	};
};

void sketch_init(struct sketch *s);
bool sketch_add(struct sketch *s, uint32_t hash); /* true if that changed the sketch */
void sketch_merge(struct sketch *s,
                  const struct sketch *from); /* as if the hashes of `from` had been added */
uint64_t sketch_estimate(const struct sketch *s);

bool sketch_read(struct sketch *ret, const void *data, size_t len); /* false: not a valid stored form */
size_t sketch_write(const struct sketch *s, uint8_t out[SKETCH_BYTES_MAX]);
