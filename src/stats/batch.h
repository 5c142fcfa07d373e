/*
 * Builds a sink's batch from events of the queue: validated, enriched, and without duplicates within the
 * batch. If only the sink can tell which of two events in doubt was counted, both stay. A builder is reused,
 * and keeps its memory.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "queue/queue.h"
#include "sink/sink.h"
#include "stats/dead_letters.h"
#include "stats/intern.h"
#include "stats/live_batch.h"
#include "stats/place.h"

enum dedup_key { DEDUP_ID, DEDUP_TUPLE };
enum { DEDUP_SECRET_BYTES = 16, BATCH_RECENT_MAX = 50 };

struct batch_config {
	size_t events_max;
	int dedup_key;       /* enum dedup_key */
	uint64_t seen_ms;    /* impressions received further apart are no duplicates */
	bool keeps_in_doubt; /* see above; for sinks with `find_duplicates` */
	uint8_t dedup_secret[DEDUP_SECRET_BYTES];
	struct agents *agents;
	struct places *places;             /* NULL: none */
	struct dead_letters *dead_letters; /* NULL: none */
};

struct batch;

int batch_new(const struct batch_config *config, struct batch **ret);
void batch_free(struct batch *b);

/* Empties it for the next batch. */
void batch_begin(struct batch *b, int64_t now_ms);
bool batch_is_full(const struct batch *b);

/* Adds one event. On failure it is not in the batch. ERR_NOMEM; ERR_LIMIT: this batch must be committed
 * first, and is full now. The batch owns the reader_data of the streams. */
int batch_add(struct batch *b, struct queue *queue, const struct queue_event *ev);

/* The first visits, with their keys. */
const struct live_visit *batch_recent(const struct batch *b, size_t *ret_count);

/* The sink's batch without positions; valid until batch_begin. */
const struct sink_batch *batch_result(struct batch *b);
