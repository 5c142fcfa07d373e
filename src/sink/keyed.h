/* Hashes keyed with the sink's secret, so that collisions cannot be prepared. They are stored. */
#pragma once

#include "sink/sink.h"

#include <sodium.h>

enum { SINK_KEY_BYTES = 16 };

static inline uint64_t keyed_hash(const uint8_t key[SINK_KEY_BYTES], const void *data, size_t len)
{
	uint64_t hash;
	_Static_assert(sizeof(hash) == crypto_shorthash_BYTES && SINK_KEY_BYTES == crypto_shorthash_KEYBYTES,
	               "as libsodium has it");
	crypto_shorthash((unsigned char *)&hash, data, len, key);
	return hash;
}

/* Identifies a batch: no two batches begin and end at the same positions. */
static inline uint64_t keyed_batch_hash(const uint8_t key[SINK_KEY_BYTES], const struct sink_batch *b)
{
	uint64_t sums[3] = {b->visit_count, b->impression_count, (uint64_t)b->now_ms};
	sums[0] ^= keyed_hash(key, b->advances, b->advance_count * sizeof(*b->advances));
	sums[1] ^= keyed_hash(key, &b->tally, sizeof(b->tally));
	return keyed_hash(key, sums, sizeof(sums));
}
