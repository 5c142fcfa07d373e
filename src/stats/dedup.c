#include "stats/dedup.h"

#include "base/grow.h"

struct dedup {
	struct sink *sink;
	struct seen *filter;
	struct seen_batch batch; /* for the filter */
	struct advance *partitions;
	size_t partition_cap;
	size_t cap; /* of the next four, which have one entry per impression */
	struct seen_item *items;
	uint8_t *known; /* flags KNOWN_… */
	struct duplicate_query *queries;
	struct sink_impression *impressions;
	struct sink_note *notes;
	size_t note_cap;
};

/*
 *	flag           set for                                       meaning
 *	KNOWN_COUNTED  any impression                                this very event was counted before
 *	KNOWN_TAKEN    the first impression with a fingerprint       one with this fingerprint stays
 */
enum { KNOWN_COUNTED = 1, KNOWN_TAKEN = 2 };

_Static_assert((int)SEEN_FINGERPRINT_BYTES == (int)SINK_FINGERPRINT_BYTES, "the same fingerprints");

int dedup_new(struct sink *sink, struct seen *filter, struct dedup **ret)
{
	struct dedup *d = calloc(1, sizeof(*d));
	if (!d)
		return ERR_NOMEM;
	d->sink = sink;
	d->filter = filter;
	*ret = d;
	return 0;
}

void dedup_free(struct dedup *d)
{
	if (!d)
		return;
	free(d->items);
	free(d->known);
	free(d->partitions);
	free(d->queries);
	free(d->impressions);
	free(d->notes);
	free(d);
}

/* The four arrays grow together, so they share one capacity. */
static int make_room(struct dedup *d, const struct sink_batch *b, size_t partitions)
{
	size_t n = MAX(b->impression_count, 1), cap = d->cap, of_known = cap, of_queries = cap, of_kept = cap;
	if (!ARRAY_ROOM(d->items, cap, n) || !ARRAY_ROOM(d->known, of_known, n) ||
	    !ARRAY_ROOM(d->queries, of_queries, n) || !ARRAY_ROOM(d->impressions, of_kept, n) ||
	    !ARRAY_ROOM(d->notes, d->note_cap, b->note_count + n) ||
	    !ARRAY_ROOM(d->partitions, d->partition_cap, MAX(partitions, 1)))
		return ERR_NOMEM;
	d->cap = cap;
	return 0;
}

/* Asks the sink about impressions that the filter does not know. */
static int query_sink(struct dedup *d, size_t count)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		const struct seen_item *item = &d->items[i];
		if (item->verdict != SEEN_UNKNOWN)
			continue;
		struct duplicate_query *q = &d->queries[n++];
		*q = (struct duplicate_query){.event = item->event, .received_ms = item->received_ms};
		memcpy(q->fingerprint, item->fingerprint, SINK_FINGERPRINT_BYTES);
	}
	int r = n > 0 ? d->sink->ops->find_duplicates(d->sink, d->queries, n) : 0;
	if (r < 0)
		return r;
	for (size_t i = 0, k = 0; i < count; i++) {
		struct seen_item *item = &d->items[i];
		d->known[i] = item->verdict == SEEN_REPLAY ? KNOWN_COUNTED : 0;
		if (item->verdict != SEEN_UNKNOWN)
			continue;
		const struct duplicate_query *q = &d->queries[k++];
		if (q->is_replay)
			d->known[i] = KNOWN_COUNTED; /* the verdict stays, so that the filter records it */
		else if (q->is_duplicate)
			item->verdict = SEEN_DUPLICATE;
	}
	return 0;
}

/* Of impressions with the same fingerprint, the counted one stays, or else the first. */
static void choose(struct dedup *d, const struct sink_batch *b)
{
	for (size_t i = 0; i < b->impression_count; i++) {
		uint32_t same_as = b->impressions[i].same_as;
		if (d->known[i] & KNOWN_COUNTED)
			d->known[same_as ? same_as - 1 : i] |= KNOWN_TAKEN;
	}
	for (size_t i = 0; i < b->impression_count; i++) {
		uint32_t same_as = b->impressions[i].same_as;
		uint8_t *first = &d->known[same_as ? same_as - 1 : i];
		if ((d->known[i] & KNOWN_COUNTED) || d->items[i].verdict == SEEN_DUPLICATE)
			continue;
		if (*first & KNOWN_TAKEN)
			d->items[i].verdict = SEEN_DUPLICATE;
		*first |= KNOWN_TAKEN;
	}
}

static void remove_duplicates(struct dedup *d, struct sink_batch *b)
{
	size_t kept = 0, notes = b->note_count;
	if (notes > 0)
		memcpy(d->notes, b->notes, notes * sizeof(*d->notes));
	for (size_t i = 0; i < b->impression_count; i++) {
		if (d->items[i].verdict != SEEN_DUPLICATE)
			d->impressions[kept++] = b->impressions[i];
		else
			d->notes[notes++] = (struct sink_note){.event = b->impressions[i].event,
			                                       .kind = NOTE_DUPLICATE,
			                                       .time_ms = b->impressions[i].received_ms,
			                                       .count = 1};
	}
	b->tally.duplicates += b->impression_count - kept;
	b->impressions = d->impressions;
	b->impression_count = kept;
	b->notes = d->notes;
	b->note_count = notes;
}

int dedup_filter(struct dedup *d, struct sink_batch *b, const struct advance *partitions,
                 size_t partition_count)
{
	d->batch.count = d->batch.partition_count = 0;
	if (!d->sink->ops->find_duplicates)
		return 0;
	if (make_room(d, b, partition_count) < 0)
		return ERR_NOMEM;
	for (size_t i = 0; i < b->impression_count; i++) {
		const struct sink_impression *from = &b->impressions[i];
		d->items[i] = (struct seen_item){
		    .event = from->event, .received_ms = from->received_ms, .partition = from->partition};
		memcpy(d->items[i].fingerprint, from->fingerprint, SEEN_FINGERPRINT_BYTES);
	}
	if (partition_count > 0)
		memcpy(d->partitions, partitions, partition_count * sizeof(*partitions));
	d->batch = (struct seen_batch){.items = d->items,
	                               .count = b->impression_count,
	                               .source = b->source,
	                               .partitions = d->partitions,
	                               .partition_count = partition_count,
	                               .now_ms = b->now_ms};
	if (d->filter)
		d->filter->ops->check(d->filter, &d->batch);
	/* A killed process may not have recorded all that it had counted. */
	for (size_t i = 0; i < b->impression_count; i++)
		if (b->impressions[i].in_doubt && d->items[i].verdict == SEEN_NEVER)
			d->items[i].verdict = SEEN_UNKNOWN;
	int r = query_sink(d, b->impression_count);
	if (r < 0)
		return r;
	choose(d, b);
	remove_duplicates(d, b);
	return 0;
}

void dedup_record(struct dedup *d)
{
	if (d->filter && d->batch.partition_count > 0)
		d->filter->ops->record(d->filter, &d->batch);
}
