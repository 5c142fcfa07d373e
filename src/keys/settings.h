/* Settings of the key pipeline, for `serve`, `keygen` and `keysync`. */
#pragma once

#include "config/config.h"

struct keys_settings {
	char *url;          /* the Redis shards */
	char *db_url;       /* the keys databases */
	uint64_t low, high; /* marks of a Redis shard */
	uint64_t db_low, db_high;
	uint64_t batch;       /* keys per fetch of the pool */
	uint64_t sync_shards; /* most shards of one keysync */
	uint64_t gen_dbs;     /* most keys databases of one keygen */
	uint64_t lease_ms;    /* lease time of both */
};

extern const struct conf_row keys_rows[];
extern const size_t keys_row_count;

/* ERR_INVALID with a sentence: a low mark is above its high mark. */
int keys_settings_check(const struct keys_settings *s, struct err *e);
