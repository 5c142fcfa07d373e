#include "lib/test.h"
#include "obs/metrics.h"
#include "obs/process.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SUM(name) metrics_sum(offsetof(struct metrics, name))

TEST(a_new_set_is_zero_and_does_not_share_cache_lines)
{
	struct metrics *a = metrics_register(), *b = metrics_register();
	assert_int_equal((uintptr_t)a % CACHE_LINE_BYTES, 0);
	assert_int_equal((uintptr_t)b % CACHE_LINE_BYTES, 0);
	assert_ptr_not_equal(a, b);
	assert_int_equal(atomic_load(&a->redirects), 0);
	assert_int_equal(atomic_load(&a->loop_turns), 0);
	for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
		assert_int_equal(atomic_load(&a->store_commit_duration.buckets[i]), 0);
}

enum { THREADS = 4, COUNTS = 100000 };

static void *count(void *arg)
{
	(void)arg;
	struct metrics *m = metrics_register();
	for (int i = 0; i < COUNTS; i++) {
		metric_add(&m->redirects, 1);
		metric_add(&m->http_3xx, 2);
		histogram_add(&m->store_commit_duration, 100, 1);
	}
	return NULL;
}

TEST(counts_are_summed_over_all_threads_even_ended_ones)
{
	pthread_t threads[THREADS];
	uint64_t redirects = SUM(redirects), responses = SUM(http_3xx), other = SUM(http_4xx);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
	uint64_t last = redirects;
	while (last < redirects + COUNTS / 10) { /* a reader never sees a count go back */
		uint64_t now = SUM(redirects);
		assert_true(now >= last);
		last = now;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(SUM(redirects) - redirects, THREADS * COUNTS);
	assert_int_equal(SUM(http_3xx) - responses, THREADS * COUNTS * 2);
	assert_int_equal(SUM(http_4xx), other);
}

static unsigned only_bucket(uint64_t duration_ns)
{
	struct histogram h = {0};
	unsigned found = HISTOGRAM_BOUNDS + 1;
	histogram_add(&h, duration_ns, 3);
	for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		uint64_t n = atomic_load(&h.buckets[i]);
		assert_true(n == 0 || (n == 3 && found == HISTOGRAM_BOUNDS + 1));
		if (n)
			found = i;
	}
	assert_in_range(found, 0, HISTOGRAM_BOUNDS);
	assert_true(atomic_load(&h.sum_ns) == duration_ns * 3);
	return found;
}

TEST(a_bucket_ends_with_its_bound)
{
	unsigned bucket = 0;
	for (uint64_t decade_ns = 10000; decade_ns < 10000000000; decade_ns *= 10) {
		const uint64_t bounds_ns[] = {decade_ns, decade_ns / 10 * 25, decade_ns * 5};
		for (size_t i = 0; i < ARRAY_LEN(bounds_ns); i++, bucket++) {
			assert_int_equal(only_bucket(bounds_ns[i]), bucket);
			assert_int_equal(only_bucket(bounds_ns[i] + 1), bucket + 1);
		}
	}
	assert_int_equal(bucket, HISTOGRAM_BOUNDS - 1);
	assert_int_equal(only_bucket(0), 0);
	assert_int_equal(only_bucket(10000000000), HISTOGRAM_BOUNDS - 1);
	assert_int_equal(only_bucket(10000000001), HISTOGRAM_BOUNDS);
	assert_int_equal(only_bucket(1ULL << 60), HISTOGRAM_BOUNDS);
}

/* ---- a reader of Prometheus text, as strict as its description ---- */

struct sample {
	char name[80];
	char labels[120];
	double value;
};

struct family {
	char name[80];
	char type[16];
};

struct text {
	struct family families[64];
	size_t family_count;
	struct sample samples[1024];
	size_t sample_count;
};

static bool is_name(const char *s)
{
	if (!*s || strspn(s, "0123456789"))
		return false;
	return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:")] == '\0';
}

static bool belongs(const char *sample, const struct family *f)
{
	size_t len = strlen(f->name);
	if (strncmp(sample, f->name, len) != 0)
		return false;
	const char *rest = sample + len;
	if (strcmp(f->type, "histogram") != 0)
		return !*rest;
	return !strcmp(rest, "_bucket") || !strcmp(rest, "_sum") || !strcmp(rest, "_count");
}

static void parse_comment(struct text *t, const char *line)
{
	char name[80], rest[256];
	if (sscanf(line, "# HELP %79s %255[^\n]", name, rest) == 2) {
		for (size_t i = 0; i < t->family_count; i++)
			assert_string_not_equal(t->families[i].name, name);
		assert_true(is_name(name));
		assert_true(t->family_count < ARRAY_LEN(t->families));
		snprintf(t->families[t->family_count].name, sizeof(name), "%s", name);
		t->families[t->family_count++].type[0] = '\0';
	} else {
		assert_int_equal(sscanf(line, "# TYPE %79s %15s", name, rest), 2);
		struct family *f = &t->families[t->family_count - 1];
		assert_string_equal(f->name, name); /* right behind its HELP */
		assert_string_equal(f->type, "");
		assert_true(!strcmp(rest, "counter") || !strcmp(rest, "histogram") || !strcmp(rest, "gauge"));
		snprintf(f->type, sizeof(f->type), "%.15s", rest);
	}
}

static void parse_sample(struct text *t, const char *line)
{
	struct sample *s = &t->samples[t->sample_count];
	size_t name_len = strcspn(line, "{ ");
	assert_true(t->sample_count < ARRAY_LEN(t->samples) && name_len < sizeof(s->name));
	snprintf(s->name, sizeof(s->name), "%.*s", (int)name_len, line);
	assert_true(is_name(s->name));
	line += name_len;
	s->labels[0] = '\0';
	if (*line == '{') {
		const char *at = line;
		do { /* a name in lower case, then what quotes hold, perhaps nothing */
			size_t label_len = strspn(++at, "abcdefghijklmnopqrstuvwxyz_");
			assert_true(label_len > 0 && !strncmp(at + label_len, "=\"", 2));
			at += label_len + 2;
			at += strcspn(at, "\"\\\n");
			assert_int_equal(*at++, '"');
		} while (*at == ',');
		assert_int_equal(*at++, '}');
		assert_true((size_t)(at - line) < sizeof(s->labels));
		snprintf(s->labels, sizeof(s->labels), "%.*s", (int)(at - line), line);
		line = at;
	}
	assert_int_equal(*line++, ' ');
	char *end;
	s->value = strtod(line, &end);
	assert_true(end != line && *end == '\0');
	assert_true(belongs(s->name, &t->families[t->family_count - 1])); /* families stand together */
	for (size_t i = 0; i < t->sample_count; i++)
		assert_false(!strcmp(t->samples[i].name, s->name) &&
		             !strcmp(t->samples[i].labels, s->labels));
	t->sample_count++;
}

static const char *route_name(size_t number)
{
	static const char *const names[] = {"other", "/{key}", "/api", "/api"};
	return number < ARRAY_LEN(names) ? names[number] : NULL;
}

static void render_and_parse(struct text *t)
{
	CLEANUP(buf_release) struct buf b = {0};
	metrics_write_common(&b);
	metrics_write_routes(&b, route_name);
	assert_false(b.failed);
	assert_int_equal(b.data[b.len - 1], '\n');
	t->family_count = t->sample_count = 0;
	struct str rest = buf_view(&b);
	while (rest.len > 0) {
		char line[512];
		struct str one = str_cut(&rest, '\n');
		assert_in_range(one.len, 1, sizeof(line) - 1);
		snprintf(line, sizeof(line), "%.*s", STR_ARG(one));
		if (line[0] == '#')
			parse_comment(t, line);
		else
			parse_sample(t, line);
	}
}

static double sample_value(const struct text *t, const char *name, const char *labels)
{
	for (size_t i = 0; i < t->sample_count; i++) {
		if (!strcmp(t->samples[i].name, name) && !strcmp(t->samples[i].labels, labels))
			return t->samples[i].value;
	}
	fail_msg("there is no %s%s", name, labels);
	return 0;
}

TEST(every_declared_metric_is_rendered_with_its_sum)
{
	static struct text t;
	struct metrics *m = metrics_register();
	uint64_t n = 1;
#define X(field, ...) metric_add(&m->field, n++);
	METRICS_COUNTERS(X)
#undef X
	render_and_parse(&t);
#define X(field, name, labels, ...) \
	assert_true(sample_value(&t, name, *labels ? "{" labels "}" : "") == (double)SUM(field));
	METRICS_COUNTERS(X)
#undef X
#define X(field, name, ...) (void)sample_value(&t, name "_count", "");
	METRICS_HISTOGRAMS(X)
#undef X
}

TEST(a_histogram_is_cumulative_and_in_seconds)
{
	static struct text t;
	static const char bucket[] = "curt_store_lookup_duration_seconds_bucket";
	struct metrics *a = metrics_register(), *b = metrics_register();
	render_and_parse(&t);
	assert_true(sample_value(&t, bucket, "{le=\"1e-05\"}") == 0); /* unused: all of its buckets at 0 */
	assert_true(sample_value(&t, bucket, "{le=\"+Inf\"}") == 0);
	assert_true(sample_value(&t, "curt_store_lookup_duration_seconds_sum", "") == 0);

	histogram_add(&a->store_lookup_duration, 10000, 2);
	histogram_add(&b->store_lookup_duration, 10001, 1);
	histogram_add(&a->store_lookup_duration, 1500000000, 1);
	histogram_add(&b->store_lookup_duration, 20000000000, 1);
	render_and_parse(&t);
	assert_true(sample_value(&t, bucket, "{le=\"1e-05\"}") == 2);
	assert_true(sample_value(&t, bucket, "{le=\"2.5e-05\"}") == 3);
	assert_true(sample_value(&t, bucket, "{le=\"1\"}") == 3);
	assert_true(sample_value(&t, bucket, "{le=\"2.5\"}") == 4);
	assert_true(sample_value(&t, bucket, "{le=\"10\"}") == 4);
	assert_true(sample_value(&t, bucket, "{le=\"+Inf\"}") == 5);
	assert_true(sample_value(&t, "curt_store_lookup_duration_seconds_sum", "") == 21.500030001);
	assert_true(sample_value(&t, "curt_store_lookup_duration_seconds_count", "") == 5);

	double last_le = -1, last = 0;
	size_t buckets = 0;
	for (size_t i = 0; i < t.sample_count; i++) {
		double le;
		if (strcmp(t.samples[i].name, bucket) != 0)
			continue;
		assert_int_equal(sscanf(t.samples[i].labels, "{le=\"%lf\"}", &le), 1);
		assert_true(le > last_le && t.samples[i].value >= last);
		last_le = le;
		last = t.samples[i].value;
		buckets++;
	}
	assert_int_equal(buckets, HISTOGRAM_BOUNDS + 1);
}

TEST(a_route_appears_with_its_first_request)
{
	static struct text t;
	static const char count[] = "curt_http_request_duration_seconds_count";
	struct metrics *m = metrics_register();
	render_and_parse(&t);
	for (size_t i = 0; i < t.sample_count; i++)
		assert_string_not_equal(t.samples[i].name, count);
	histogram_add(&m->http_request_duration[1], 20000, 7);
	histogram_add(&m->http_request_duration[2], 20000, 1);
	render_and_parse(&t);
	assert_true(sample_value(&t, count, "{route=\"/{key}\"}") == 7);
	assert_true(sample_value(&t, count, "{route=\"/api\"}") == 1);
	assert_true(sample_value(&t, "curt_http_request_duration_seconds_bucket",
	                         "{route=\"/{key}\",le=\"2.5e-05\"}") == 7);
}

TEST(the_rows_of_a_family_are_one_row_of_markdown)
{
	static const struct metric rows[] = {
	    {"a_total", "counter", "kind=\"x\"", "Things", "It grows"},
	    {"a_total", "counter", "kind=\"y\"", "", ""},
	    {"b_info", "gauge", "version=\"1.0\",commit=\"\"", "A build", ""},
	    {"c_messages", "gauge", "topic,partition", "Messages", ""},
	    {"d", "gauge", "", "Plain", ""},
	};
	CLEANUP(buf_release) struct buf b = {0};
	metrics_markdown(&b, rows, ARRAY_LEN(rows));
	buf_char(&b, '\0');
	assert_string_equal(b.data,
	                    "| `a_total` | counter | `kind=\"x\"`, `kind=\"y\"` | Things | It grows |\n"
	                    "| `b_info` | gauge | `version`, `commit` | A build |  |\n"
	                    "| `c_messages` | gauge | `topic`, `partition` | Messages |  |\n"
	                    "| `d` | gauge |  | Plain |  |\n");
}

TEST(the_process_says_what_the_system_knows_of_it)
{
	const struct process_stats before = process_read_stats();
	int fd = dup(STDIN_FILENO);
	const struct process_stats s = process_read_stats();
	close(fd);
	assert_int_equal(s.build, 1);
	assert_int_equal(s.open_fds, before.open_fds + 1);
	assert_true(s.max_fds >= s.open_fds && s.threads >= 1);
	assert_true(s.resident_bytes > 100000 && s.virtual_bytes > s.resident_bytes);
	assert_true(s.start_ns == before.start_ns && s.start_ns <= (uint64_t)clock_real_ms() * 1000000);
	assert_true(s.start_ns > (uint64_t)(clock_real_ms() - 3600000) * 1000000);
}

TEST_MAIN()
