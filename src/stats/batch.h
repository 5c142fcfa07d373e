/*
 * From events of the queue to a batch for the sink: validated, enriched, without duplicates among
 * themselves. Where the sink has to be asked which of two events that are in doubt was counted, both stay. A
 * builder is used again and again; its memory stays.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "queue/queue.h"
#include "sink/sink.h"
#include "stats/dead_letters.h"
#include "stats/intern.h"
#include "stats/news.h"
#include "stats/place.h"

enum dedup_key { DEDUP_ID, DEDUP_TUPLE };
enum { DEDUP_SECRET_BYTES = 16, BATCH_RECENT_MAX = 50 };

struct batch_config {
	size_t events_max;
	int dedup_key;       /* enum dedup_key */
	uint64_t seen_ms;    /* received further apart than this, two of the same fingerprint both count */
	bool keeps_doubtful; /* see above: the sink has `recall` */
	uint8_t dedup_secret[DEDUP_SECRET_BYTES];
	struct agents *agents;
	struct places *places;             /* NULL: none */
	struct dead_letters *dead_letters; /* NULL: none */
};

struct batch;

int batch_new(const struct batch_config *config, struct batch **ret);
void batch_free(struct batch *b);

/* Empties it for the next round. */
void batch_begin(struct batch *b, int64_t now_ms);
bool batch_is_full(const struct batch *b);

/* Takes one event. Otherwise it was not taken: ERR_NOMEM; ERR_LIMIT: this batch must be committed first, and
 * says that it is full. The streams' notes are the batch's own. */
int batch_add(struct batch *b, struct queue *queue, const struct queue_event *ev);

/* The keys of the first visits. */
const struct stats_recent *batch_recent(const struct batch *b, size_t *ret_count);

/* What the sink gets, all but the positions; good until batch_begin. */
const struct sink_batch *batch_result(struct batch *b);
