/* What the stats worker tells whoever watches. */
#pragma once

#include "event/format.h"
#include "sink/sink.h"

/* A visit of the batch, and the key that it asked for. */
struct stats_recent {
	uint32_t visit; /* index */
	uint8_t key_len;
	char key[EVENT_KEY_BYTES_MAX];
};

/* A committed batch, for whoever watches. Good until the call returns. */
struct stats_news {
	const struct sink_batch *batch;
	const struct stats_recent *recent; /* the first few */
	size_t recent_count;
	uint64_t duplicates; /* impressions in it that the sink had already */
};
