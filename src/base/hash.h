/*
 * A keyed 64-bit hash for in-memory tables. Input is hostile, so every table takes a secret seed
 * from the process (collisions cannot be prepared from outside). Not for storage, not for crypto.
 */
#pragma once

#include "base/str.h"

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
	__uint128_t product = (__uint128_t)a * b;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_u64(uint64_t value, uint64_t seed)
{
	return hash_mix(value ^ seed, 0x9e3779b97f4a7c15ULL ^ (seed << 1));
}

static inline uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
	const unsigned char *p = data;
	uint64_t h = seed ^ hash_mix(len + 0x8bb84b93962eacc9ULL, 0x2d358dccaa6c78a5ULL);
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t word;
		__builtin_memcpy(&word, p, 8);
		h = hash_mix(h ^ word, 0x9e3779b97f4a7c15ULL ^ seed);
	}
	if (len) {
		uint64_t word = 0;
		__builtin_memcpy(&word, p, len);
		h = hash_mix(h ^ word, 0xbf58476d1ce4e5b9ULL ^ seed);
	}
	return hash_mix(h, 0x94d049bb133111ebULL);
}

static inline uint64_t hash_str(struct str s, uint64_t seed)
{
	return hash_bytes(s.ptr, s.len, seed);
}
