/*
 * Where the names of new links come from, when it is not the leased cipher: a pool of keys on Redis
 * (keys/pool.c) or keys of links that are over (link/claim.c). Threads that may block.
 */
#pragma once

#include "base/err.h"
#include "link/key.h"

struct source_key {
	char text[KEY_LENGTH_MAX];
	uint8_t len;
	bool used_before; /* it was another link's: see store_write.reuse */
};

struct source_stats {
	uint64_t available; /* keys that can be had now, as far as is known */
	uint64_t aside;     /* keys that were given back for later, likewise */
	uint64_t taken;     /* since the start, and not given back */
	uint64_t refilled;  /* brought to where they are taken from since the start, for all servers */
	uint64_t lost; /* at most so many were taken and did not arrive, or found no room to go back to */
	uint64_t shards, shards_unhealthy;
};

struct key_source {
	const struct key_source_ops *ops;
};

struct key_source_ops {
	void (*free)(struct key_source *); /* gives back what was taken from elsewhere and not handed out */
	/* One to `n` keys. ERR_LIMIT: there are none at the moment; ERR_UNAVAILABLE: nobody answers. The
	 * sentence says which, for people. */
	int (*take)(struct key_source *, struct source_key *ret, size_t n, size_t *ret_count, struct err *e);
	/* Keys that were taken and certainly name nothing: they may be taken again, here or elsewhere.
	 * `later`: they can name nothing at the moment either, since the part of the store where they would
	 * lie is away, and must not keep others from being taken. What there is no room for is lost, and
	 * counted. Does not wait for anybody. */
	void (*give_back)(struct key_source *, const struct source_key *keys, size_t n, bool later);
	struct source_stats (*stats)(struct key_source *);
};
