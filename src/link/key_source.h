/* A source of keys for new links, instead of the cipher over leased ids: a pool of keys on Redis
 * (keys/pool.c), or keys of expired links (link/claim.c). All calls may block. */
#pragma once

#include "base/err.h"
#include "link/key.h"

struct source_key {
	char text[KEY_LENGTH_MAX];
	uint8_t len;
	bool used_before; /* it was another link's key: store_write.reuse */
};

struct source_stats {
	uint64_t available; /* available keys, as far as known */
	uint64_t deferred;  /* keys put back as deferred, as far as known */
	uint64_t taken;     /* since the start, without those put back */
	uint64_t refilled;  /* added to the pool since the start, for all servers */
	uint64_t lost;      /* upper bound of keys taken that did not arrive, or could not be put back */
	uint64_t shards, shards_unhealthy;
};

struct key_source {
	const struct key_source_ops *ops;
};

struct key_source_ops {
	void (*free)(struct key_source *); /* returns unused keys to where they came from */
	/* Takes 1 to `n` keys. ERR_LIMIT: none now; ERR_UNAVAILABLE: no answer; with a sentence. */
	int (*take)(struct key_source *, struct source_key *ret, size_t n, size_t *ret_count, struct err *e);
	/* Returns keys that were taken and are certainly unused. `deferred`: they are of a shard that is
	 * down, and must not block others. Keys without room are lost, and counted. Does not block. */
	void (*put_back)(struct key_source *, const struct source_key *keys, size_t n, bool deferred);
	struct source_stats (*stats)(struct key_source *);
};
