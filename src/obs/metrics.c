#include "obs/metrics.h"

#include "obs/process.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNTER(field, name, labels, help, worry) \
	{name, "counter", labels, help, worry, offsetof(struct metrics, field)},
#define HISTOGRAM(field, name, labels, help, worry) \
	{name, "histogram", labels, help, worry, offsetof(struct metrics, field)},

static const struct metric counted[] = {METRICS_COUNTERS(COUNTER) METRICS_HISTOGRAMS(HISTOGRAM)};

const struct metric metrics_http_request_duration = {
    "curt_http_request_duration_seconds",
    "histogram",
    "route",
    "Time from a whole request to its response, by the path of the API",
    "The upper quantiles of `/{key}` grow",
    offsetof(struct metrics, http_request_duration)};
const struct metric metrics_queue_lag = {"curt_queue_lag_messages", "gauge", "topic,partition",
                                         "Messages that wait to be counted",
                                         "It grows for long: start more workers, or raise `worker.threads`"};

static const uint64_t bounds_ns[HISTOGRAM_BOUNDS] = {
    10000,     25000,      50000,      100000,     250000,     500000,    1000000,
    2500000,   5000000,    10000000,   25000000,   50000000,   100000000, 250000000,
    500000000, 1000000000, 2500000000, 5000000000, 10000000000};

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

void histogram_add(struct histogram *h, uint64_t duration_ns, uint64_t n)
{
	size_t i = 0;
	while (i < HISTOGRAM_BOUNDS && duration_ns > bounds_ns[i])
		i++;
	metric_add(&h->buckets[i], n);
	metric_add(&h->sum_ns, duration_ns * n);
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

void metrics_write_family(struct buf *out, const struct metric *row)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, row->type);
}

/* All of a sample but its value. */
static void write_name(struct buf *out, const char *name, const char *suffix, const char *labels)
{
	buf_printf(out, *labels ? "%s%s{%s} " : "%s%s%s ", name, suffix, labels);
}

static void write_seconds(struct buf *out, uint64_t ns)
{
	buf_printf(out, "%ju.%09ju\n", (uintmax_t)(ns / 1000000000), (uintmax_t)(ns % 1000000000));
}

static void write_histogram(struct buf *out, const char *name, const char *labels, size_t offset)
{
	const char *comma = *labels ? "," : "";
	uint64_t count = 0;
	for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
		count += metrics_sum(offset + offsetof(struct histogram, buckets[i]));
		buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %ju\n", name, labels, comma,
		           (double)bounds_ns[i] / 1e9, (uintmax_t)count);
	}
	count += metrics_sum(offset + offsetof(struct histogram, buckets[HISTOGRAM_BOUNDS]));
	buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %ju\n", name, labels, comma, (uintmax_t)count);
	write_name(out, name, "_sum", labels);
	write_seconds(out, metrics_sum(offset + offsetof(struct histogram, sum_ns)));
	write_name(out, name, "_count", labels);
	buf_printf(out, "%ju\n", (uintmax_t)count);
}

void metrics_write(struct buf *out, const struct metric *rows, size_t n, const void *values)
{
	for (const struct metric *row = rows; row < rows + n; row++) {
		if (*row->help)
			metrics_write_family(out, row);
		if (strcmp(row->type, "histogram") == 0) {
			write_histogram(out, row->name, row->labels, row->offset);
			continue;
		}
		uint64_t value = values ? *(const uint64_t *)((const char *)values + row->offset)
		                        : metrics_sum(row->offset);
		write_name(out, row->name, "", row->labels);
		if (strstr(row->name, "_seconds"))
			write_seconds(out, value);
		else
			buf_printf(out, "%ju\n", (uintmax_t)value);
	}
}

void metrics_write_routes(struct buf *out, const char *(*route_name)(size_t number))
{
	const struct metric *row = &metrics_http_request_duration;
	metrics_write_family(out, row);
	const char *name;
	for (size_t i = 0; (name = route_name(i)); i++) {
		char labels[128];
		snprintf(labels, sizeof(labels), "route=\"%s\"", name);
		size_t offset = row->offset + i * sizeof(struct histogram);
		uint64_t requests = 0;
		for (size_t k = 0; k <= HISTOGRAM_BOUNDS; k++)
			requests += metrics_sum(offset + offsetof(struct histogram, buckets[k]));
		if (requests > 0)
			write_histogram(out, row->name, labels, offset);
	}
}

void metrics_write_common(struct buf *out)
{
	const struct process_stats process = process_read_stats();
	metrics_write(out, counted, ARRAY_LEN(counted), NULL);
	metrics_write(out, process_metrics, ARRAY_LEN(process_metrics), &process);
}

/* A family of one row has labels whose values vary: only their names are written. */
static void markdown_labels(struct buf *out, const struct metric *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct str rest = str_of(rows[i].labels);
		while (rest.len > 0) {
			struct str label = str_cut(&rest, ',');
			if (n == 1)
				label = str_cut(&label, '=');
			buf_printf(out, "%s`%.*s`", i > 0 || label.ptr > rows[i].labels ? ", " : "",
			           STR_ARG(label));
		}
	}
}

void metrics_markdown(struct buf *out, const struct metric *rows, size_t n)
{
	for (size_t i = 0; i < n;) {
		const struct metric *row = &rows[i];
		size_t family = 1;
		while (i + family < n && !*row[family].help)
			family++;
		buf_printf(out, "| `%s` | %s | ", row->name, row->type);
		markdown_labels(out, row, family);
		buf_printf(out, " | %s | %s |\n", row->help, row->worry);
		i += family;
	}
}

void metrics_markdown_common(struct buf *out)
{
	metrics_markdown(out, counted, ARRAY_LEN(counted));
	metrics_markdown(out, process_metrics, ARRAY_LEN(process_metrics));
}
