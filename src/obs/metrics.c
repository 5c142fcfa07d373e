#include "obs/metrics.h"

#include <stdlib.h>

struct row {
	size_t offset;
	const char *name;
	const char *help;
	const char *labels; /* of counters */
};

static const struct row counter_rows[] = {
#define X(field, prometheus, labels, help) {offsetof(struct metrics, field), prometheus, help, labels},
    METRICS_COUNTERS(X)
#undef X
};

static const struct row histogram_rows[] = {
#define X(field, prometheus, help) {offsetof(struct metrics, field), prometheus, help},
    METRICS_HISTOGRAMS(X)
#undef X
};

/* Sets are only ever added, so a reader that holds one may follow the chain without a lock. */
static struct metrics *_Atomic registered; /* pushed with release, read with acquire */

struct metrics *metrics_register(void)
{
	/* Whole cache lines of its own: two threads never count in the same one. */
	size_t bytes = (sizeof(struct metrics) + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
	struct metrics *m = aligned_alloc(CACHE_LINE_BYTES, bytes);
	if (!m)
		return NULL;
	memset(m, 0, bytes);
	m->next = atomic_load_explicit(&registered, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&registered, &m->next, m, memory_order_release,
	                                              memory_order_relaxed))
		;
	return m;
}

/*
 * Buckets 0 to 3 hold the values 0 to 3. From there on, the two bits below a value's highest one choose
 * among four buckets of its power of two. The last bucket also takes everything beyond it.
 */
static unsigned bucket_of(uint64_t value)
{
	if (value < 4)
		return (unsigned)value;
	unsigned exponent = 63 - (unsigned)__builtin_clzll(value);
	unsigned step = (unsigned)(value >> (exponent - 2)) & 3;
	return MIN((exponent - 1) * 4 + step, (unsigned)HISTOGRAM_BUCKETS - 1);
}

static uint64_t bucket_top(unsigned bucket) /* the largest value in it */
{
	if (bucket < 4)
		return bucket;
	unsigned shift = bucket / 4 - 1;
	return ((uint64_t)(4 + bucket % 4 + 1) << shift) - 1;
}

void histogram_record(struct histogram *h, uint64_t value)
{
	metric_add(&h->buckets[bucket_of(value)], 1);
	metric_add(&h->sum, value);
}

uint64_t metrics_sum(size_t counter_offset)
{
	uint64_t sum = 0;
	const struct metrics *m = atomic_load_explicit(&registered, memory_order_acquire);
	for (; m; m = m->next) {
		const _Atomic uint64_t *counter = (const void *)((const char *)m + counter_offset);
		sum += atomic_load_explicit(counter, memory_order_relaxed);
	}
	return sum;
}

static void render_family(struct buf *out, const char *name, const char *help, const char *type)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void render_histogram(struct buf *out, const struct row *row)
{
	uint64_t counts[HISTOGRAM_BUCKETS];
	unsigned used = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		counts[i] = metrics_sum(row->offset + offsetof(struct histogram, buckets) +
		                        i * sizeof(uint64_t));
		if (counts[i] > 0)
			used = i + 1;
	}
	render_family(out, row->name, row->help, "histogram");
	uint64_t below = 0;
	for (unsigned i = 0; i < used; i++) {
		below += counts[i];
		if (i < HISTOGRAM_BUCKETS - 1) /* the last one has no upper end but +Inf */
			buf_printf(out, "%s_bucket{le=\"%llu\"} %llu\n", row->name,
			           (unsigned long long)bucket_top(i), (unsigned long long)below);
	}
	buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %llu\n%s_count %llu\n", row->name,
	           (unsigned long long)below, row->name,
	           (unsigned long long)metrics_sum(row->offset + offsetof(struct histogram, sum)), row->name,
	           (unsigned long long)below);
}

void metrics_render(struct buf *out)
{
	const char *family = "";
	for (size_t i = 0; i < ARRAY_LEN(counter_rows); i++) {
		const struct row *row = &counter_rows[i];
		if (strcmp(row->name, family) != 0)
			render_family(out, row->name, row->help, "counter");
		family = row->name;
		buf_printf(out, "%s%s %llu\n", row->name, row->labels,
		           (unsigned long long)metrics_sum(row->offset));
	}
	for (size_t i = 0; i < ARRAY_LEN(histogram_rows); i++)
		render_histogram(out, &histogram_rows[i]);
}
