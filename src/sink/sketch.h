/*
 * How many different ones, in at most 3 KB: HyperLogLog. Up to SKETCH_LIST_MAX hashes are kept as they are,
 * and the count is exact; beyond that 4,096 registers remember, for the hashes that fall to each, the longest
 * run of leading zeros seen (plus one), and the error is about 1.6 %. The order of adding does not matter,
 * nor does adding twice.
 *
 * Stored: the sorted hashes, four bytes each (little end first), or the registers, six bits each. The length
 * tells which.
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
bool sketch_add(struct sketch *s, uint32_t hash); /* whether that changed it */
uint64_t sketch_estimate(const struct sketch *s);

bool sketch_read(struct sketch *ret, const void *data, size_t len); /* false: these are no such bytes */
size_t sketch_write(const struct sketch *s, uint8_t out[SKETCH_BYTES_MAX]);
