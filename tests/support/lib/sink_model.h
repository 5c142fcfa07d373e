/*
 * What a sink must answer, found the slow way: all events in arrays, every question a loop over them. Batches
 * are made of random events that collide often: few links, few shapes, times at the edges of minutes, hours
 * and days.
 */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

enum { MODEL_SHAPES = 24, MODEL_TEXTS = 12, MODEL_ADS = 9, MODEL_LINKS = 7 };

struct model_visit {
	struct sink_visit v;
	uint32_t set; /* of the model */
};

struct model_impression {
	int64_t time_ms, received_ms;
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	unsigned ad;
};

struct model {
	uint64_t random; /* state; not 0 */
	size_t page_min; /* of the pages of visits that are asked for; 0 is 1 */
	int64_t window_ms;
	struct dimension_set sets[MODEL_SHAPES];
	struct str texts[MODEL_TEXTS];
	char ads[MODEL_ADS][16];

	struct model_visit *visits; /* in the order of recording */
	size_t visit_count, visit_cap;
	struct model_impression *impressions; /* those that count */
	size_t impression_count, impression_cap;
	struct sink_tally tally;
	uint64_t events;     /* made, for their ids */
	uint64_t committed;  /* how far the stream was read */
	uint64_t duplicates; /* that the sink must have found */
};

void model_init(struct model *m, uint64_t seed, int64_t window_ms);
void model_release(struct model *m);

uint64_t model_random(struct model *m, uint64_t below);

/* Commits `visits` and `impressions` random events of from <= time < to, received at now_ms, to both, and
 * asserts that the sink finds the duplicates. */
void model_commit(struct model *m, struct sink *s, size_t visits, size_t impressions, int64_t from_ms,
                  int64_t to_ms, int64_t now_ms);

/* The same, but the sink may fail: then `failed` mends what is wrong, and the same batch must be taken. */
void model_commit_again(struct model *m, struct sink *s, size_t visits, size_t impressions, int64_t from_ms,
                        int64_t to_ms, int64_t now_ms, void (*failed)(int r));

/* One impression of that fingerprint; whether it counted, by the sink. The model records it. */
bool model_impress(struct model *m, struct sink *s, uint64_t fingerprint, int64_t received_ms);

/* Each asks both and asserts that they agree. */
void model_check_stats(struct model *m, struct sink *s, const struct stats_query *q);
void model_check_window(struct model *m, struct sink *s, int64_t from_ms, int64_t to_ms);
void model_check_visits(struct model *m, struct sink *s, uint64_t link, int64_t from_ms, int64_t to_ms,
                        size_t limit);
void model_check_top_links(struct model *m, struct sink *s, int64_t from_ms, int64_t to_ms, size_t limit);
void model_check_clicks(struct model *m, struct sink *s); /* of all links, and of one without any */
void model_check_totals(struct model *m, struct sink *s);
void model_check_books(struct model *m, struct sink *s, bool rows_kept);

/* Random questions of every kind about from .. to; `finest` is the finest series that is still exact. */
void model_check_all(struct model *m, struct sink *s, int64_t from_ms, int64_t to_ms, enum stats_step finest,
                     unsigned rounds);
