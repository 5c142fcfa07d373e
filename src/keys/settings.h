/* The key pipeline's settings, for `serve`, `keygen` and `keysync` alike. */
#pragma once

#include "config/config.h"

struct keys_settings {
	char *url;          /* the Redis shards */
	char *db_url;       /* the keys databases */
	uint64_t low, high; /* marks of a shard */
	uint64_t db_low, db_high;
	uint64_t batch;       /* what the pool takes at once */
	uint64_t sync_shards; /* most shards that one keysync looks after */
	uint64_t gen_stocks;  /* most stocks that one keygen looks after */
	uint64_t lease_ms;    /* life of the leases of both */
};

extern const struct conf_row keys_rows[];
extern const size_t keys_row_count;

/* ERR_INVALID with a sentence when a low mark is above its high one. */
int keys_settings_check(const struct keys_settings *s, struct err *e);
