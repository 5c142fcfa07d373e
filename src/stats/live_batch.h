/* A committed batch for the live feed. */
#pragma once

#include "event/format.h"
#include "sink/sink.h"

/* A visit of the batch, with the requested key. */
struct live_visit {
	uint32_t visit; /* index */
	uint8_t key_len;
	char key[EVENT_KEY_BYTES_MAX];
};

/* Valid during the callback only. */
struct live_batch {
	const struct sink_batch *batch;
	const struct live_visit *recent; /* the first few visits */
	size_t recent_count;
	uint64_t duplicates; /* impressions in it that the sink found to be duplicates */
};
