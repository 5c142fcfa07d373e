#include "lib/test.h"
#include "obs/metrics.h"

#define SUM(name) metrics_sum(offsetof(struct metrics, name))

TEST(a_new_set_is_zero_and_does_not_share_cache_lines)
{
	struct metrics *a = metrics_register(), *b = metrics_register();
	assert_int_equal((uintptr_t)a % CACHE_LINE_BYTES, 0);
	assert_int_equal((uintptr_t)b % CACHE_LINE_BYTES, 0);
	assert_ptr_not_equal(a, b);
	assert_int_equal(atomic_load(&a->redirects), 0);
	assert_int_equal(atomic_load(&a->loop_turns), 0);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		assert_int_equal(atomic_load(&a->store_commit_us.buckets[i]), 0);
}

enum { THREADS = 4, COUNTS = 100000 };

static void *count(void *arg)
{
	(void)arg;
	struct metrics *m = metrics_register();
	for (int i = 0; i < COUNTS; i++) {
		metric_add(&m->redirects, 1);
		metric_add(&m->http_3xx, 2);
		histogram_record(&m->store_commit_us, 100);
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

static unsigned only_bucket(uint64_t value)
{
	struct histogram h = {0};
	unsigned found = HISTOGRAM_BUCKETS;
	histogram_record(&h, value);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t n = atomic_load(&h.buckets[i]);
		assert_in_range(n, 0, found == HISTOGRAM_BUCKETS ? 1 : 0);
		if (n)
			found = i;
	}
	assert_in_range(found, 0, HISTOGRAM_BUCKETS - 1);
	assert_true(atomic_load(&h.sum) == value);
	return found;
}

TEST(larger_values_never_fall_into_lower_buckets)
{
	unsigned last = 0;
	for (uint64_t value = 0; value < 100000; value++) {
		unsigned bucket = only_bucket(value);
		assert_in_range(bucket, last, last + 1); /* and none is left out */
		last = bucket;
	}
}

TEST(a_bucket_is_no_wider_than_a_quarter_of_its_values)
{
	uint64_t first = 0;
	unsigned last = 0;
	for (uint64_t value = 1; value < 1000000; value++) {
		unsigned bucket = only_bucket(value);
		if (bucket != last)
			first = value;
		last = bucket;
		assert_true((value - first) * 4 <= first);
	}
}

TEST(values_beyond_the_last_bucket_fall_into_it)
{
	assert_int_equal(only_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
	assert_int_equal(only_bucket(1ULL << 63), HISTOGRAM_BUCKETS - 1);
	assert_int_equal(only_bucket((1ULL << 33) - 1), HISTOGRAM_BUCKETS - 1);
	assert_int_equal(only_bucket((1ULL << 33) - (1ULL << 30) - 1), HISTOGRAM_BUCKETS - 2);
}

/* ---- a reader of Prometheus text, as strict as its description ---- */

struct sample {
	char name[80];
	char labels[80];
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
		assert_true(!strcmp(rest, "counter") || !strcmp(rest, "histogram"));
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
		char label[40], value[40];
		int used = 0;
		assert_int_equal(sscanf(line, "{%39[a-z_]=\"%39[^\"\\\n]\"}%n", label, value, &used), 2);
		assert_true(used > 0);
		snprintf(s->labels, sizeof(s->labels), "%.*s", used, line);
		line += used;
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

static void render_and_parse(struct text *t)
{
	CLEANUP(buf_release) struct buf b = {0};
	metrics_render(&b);
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
#define X(field, prometheus, labels, help) metric_add(&m->field, n++);
	METRICS_COUNTERS(X)
#undef X
	render_and_parse(&t);
#define X(field, prometheus, labels, help) \
	assert_true(sample_value(&t, prometheus, labels) == (double)SUM(field));
	METRICS_COUNTERS(X)
#undef X
#define X(field, prometheus, help) (void)sample_value(&t, prometheus "_count", "");
	METRICS_HISTOGRAMS(X)
#undef X
}

/* How many values a scraper would say are at most `bound`; 0 below the first bucket. */
static double at_most(const struct text *t, double bound)
{
	double count = 0;
	for (size_t i = 0; i < t->sample_count; i++) {
		double le;
		if (!strcmp(t->samples[i].name, "curt_store_lookup_microseconds_bucket") &&
		    sscanf(t->samples[i].labels, "{le=\"%lf\"}", &le) == 1 && le <= bound)
			count = t->samples[i].value;
	}
	return count;
}

TEST(a_histogram_is_cumulative_and_ends_in_infinity)
{
	static struct text t;
	struct metrics *a = metrics_register(), *b = metrics_register();
	render_and_parse(&t);
	assert_true(at_most(&t, 1e300) == 0); /* unused: +Inf alone */
	assert_true(sample_value(&t, "curt_store_lookup_microseconds_bucket", "{le=\"+Inf\"}") == 0);

	static const uint64_t values[] = {0, 1, 3, 4, 5, 1000};
	uint64_t sum = 0;
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		histogram_record(i % 2 ? &a->store_lookup_us : &b->store_lookup_us, values[i]);
		sum += values[i];
	}
	render_and_parse(&t);
	assert_true(at_most(&t, -1) == 0);
	assert_true(at_most(&t, 0) == 1);
	assert_true(at_most(&t, 2) == 2);
	assert_true(at_most(&t, 3) == 3);
	assert_true(at_most(&t, 4) == 4);
	assert_true(at_most(&t, 767) == 5);
	assert_true(at_most(&t, 1023) == 6); /* the bucket from 896 to 1023 */
	assert_true(sample_value(&t, "curt_store_lookup_microseconds_bucket", "{le=\"1023\"}") == 6);
	assert_true(sample_value(&t, "curt_store_lookup_microseconds_sum", "") == (double)sum);
	assert_true(sample_value(&t, "curt_store_lookup_microseconds_count", "") == 6);

	double last_le = -1, last = 0, highest = 0;
	for (size_t i = 0; i < t.sample_count; i++) {
		double le;
		if (strcmp(t.samples[i].name, "curt_store_lookup_microseconds_bucket") != 0)
			continue;
		assert_int_equal(sscanf(t.samples[i].labels, "{le=\"%lf\"}", &le), 1);
		assert_true(le > last_le && t.samples[i].value >= last);
		last_le = le;
		last = t.samples[i].value;
		if (le < 1e300)
			highest = le;
	}
	assert_true(last_le > 1e300 && last == 6);
	assert_true(highest == 1023); /* nothing above the highest bucket in use */

	histogram_record(&a->store_lookup_us, UINT64_MAX / 2);
	render_and_parse(&t);
	assert_true(sample_value(&t, "curt_store_lookup_microseconds_bucket", "{le=\"+Inf\"}") == 7);
	assert_true(sample_value(&t, "curt_store_lookup_microseconds_count", "") == 7);
	assert_true(at_most(&t, 1e300) == 6);
}

TEST_MAIN()
