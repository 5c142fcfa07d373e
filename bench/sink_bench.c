/*
 * What the embedded sink costs, on one core. Prints a line for each figure:
 *
 *	sink_bench FOLDER [million impressions, 10 unless told]
 *
 * FOLDER is made if need be and must hold no stats.db.
 */
#include "os/clock.h"
#include "sink/sink_sqlite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { LINKS = 20000, SHAPES = 300, AGENTS = 200, ADS = 1000 };

static const int64_t day_ms = 86400000, hour_ms = 3600000;
static const int64_t start_ms = 1790000000000 / 86400000 * 86400000;

static struct visit_shape shapes[SHAPES];
static struct str texts[AGENTS];
static char ads[ADS][16];
static uint64_t made; /* impressions, so that no two are the same */
static uint64_t random_state = 88172645463325252;

static uint64_t random_below(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 11) % below;
}

static double seconds_now(void)
{
	return (double)clock_mono_ns() / 1e9;
}

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sink_bench: %s: %s\n", what, err_name(r));
	exit(1);
}

static long rss_kb(void)
{
	long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (f && fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * 4;
}

static void *must_alloc(size_t count, size_t bytes)
{
	void *p = calloc(count, bytes);
	must(p ? 0 : ERR_NOMEM, "memory");
	return p;
}

static void prepare(struct arena *arena)
{
	static const char *const browsers[] = {"Firefox", "Chrome", "Safari", "Edge"};
	for (unsigned i = 0; i < SHAPES; i++) {
		shapes[i].dims[DIM_REFERRER] = arena_printf(arena, "site%u.example", i % 25);
		shapes[i].dims[DIM_COUNTRY] = arena_printf(arena, "%c%c", 'A' + i % 20, 'A' + i % 7);
		shapes[i].dims[DIM_BROWSER] = str_of(browsers[i % 4]);
		shapes[i].dims[DIM_LANGUAGE] = arena_printf(arena, "l%u", i / 4);
		shapes[i].dims[DIM_BOT] = i % 10 ? STR_NULL : STR("crawler");
	}
	for (unsigned i = 0; i < AGENTS; i++)
		texts[i] = arena_printf(
		    arena, "Mozilla/5.0 (X11; Linux x86_64; rv:%u.0) Gecko/20100101 Firefox/%u.0", i, i);
	for (unsigned i = 0; i < ADS; i++)
		snprintf(ads[i], sizeof(ads[i]), "ad-%u", i);
}

static uint64_t skewed_link(void)
{
	return 1 + (random_below(5) ? random_below(LINKS / 5) : random_below(LINKS));
}

/* Visits of one second and more, as a worker would hand them in. */
static void bench_visits(struct sink *s, size_t batch_size, size_t batches, int64_t from_ms)
{
	struct sink_visit *visits = must_alloc(batch_size, sizeof(*visits));
	double spent = 0, slowest = 0;
	for (size_t b = 0; b < batches; b++) {
		int64_t now_ms = from_ms + (int64_t)(b * batch_size / 500);
		for (size_t i = 0; i < batch_size; i++)
			visits[i] = (struct sink_visit){.time_ms = now_ms + (int64_t)(i / 500),
			                                .link = skewed_link(),
			                                .visitor = random_below(1000000) + 1,
			                                .shape = (uint32_t)random_below(SHAPES),
			                                .agent = (uint32_t)random_below(AGENTS),
			                                .referrer = (uint32_t)random_below(AGENTS),
			                                .place = SINK_NO_TEXT,
			                                .path = SINK_NO_TEXT,
			                                .address_len = 3,
			                                .address = {192, 0, 2}};
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = batch_size,
		                           .shapes = shapes,
		                           .shape_count = SHAPES,
		                           .texts = texts,
		                           .text_count = AGENTS,
		                           .now_ms = now_ms,
		                           .tally = {.clicks = batch_size}};
		uint64_t duplicates;
		double began = seconds_now();
		must(s->ops->commit(s, &batch, &duplicates), "commit");
		double took = seconds_now() - began;
		spent += took;
		slowest = MAX(slowest, took);
	}
	printf("visits, batches of %zu: %.0f a second (slowest commit %.0f ms)\n", batch_size,
	       (double)(batch_size * batches) / spent, slowest * 1e3);
	free(visits);
}

static void make_impressions(struct sink_impression *out, size_t count, uint64_t first, int64_t from_ms,
                             int64_t span_ms)
{
	for (size_t i = 0; i < count; i++) {
		int64_t time_ms = from_ms + (int64_t)(i * (uint64_t)span_ms / count);
		uint64_t number = (first + i) * 0x9e3779b97f4a7c15u, more = (first + i) ^ number >> 29;
		out[i] = (struct sink_impression){.time_ms = time_ms,
		                                  .received_ms = time_ms + 20,
		                                  .id = STR("0123456789abcdef"),
		                                  .user = STR("user-12345"),
		                                  .ad = str_of(ads[random_below(ADS)])};
		memcpy(out[i].fingerprint, &number, 8);
		memcpy(out[i].fingerprint + 8, &more, 4);
	}
}

static double commit_impressions(struct sink *s, struct sink_impression *impressions, size_t count,
                                 int64_t now_ms)
{
	struct sink_batch batch = {.impressions = impressions,
	                           .impression_count = count,
	                           .now_ms = now_ms,
	                           .tally = {.impressions = count}};
	uint64_t duplicates;
	double began = seconds_now();
	must(s->ops->commit(s, &batch, &duplicates), "commit");
	if (duplicates)
		fprintf(stderr, "sink_bench: %llu of ours were taken for duplicates\n",
		        (unsigned long long)duplicates);
	return seconds_now() - began;
}

static void bench_impressions(struct sink *s, size_t total, int64_t from_ms, int64_t span_ms)
{
	enum { BATCH = 20000 };
	struct sink_impression *impressions = must_alloc(BATCH, sizeof(*impressions));
	double spent = 0, last = 0;
	size_t batches = total / BATCH;
	for (size_t b = 0; b < batches; b++) {
		int64_t at_ms = from_ms + (int64_t)b * span_ms / (int64_t)batches;
		make_impressions(impressions, BATCH, made, at_ms, span_ms / (int64_t)batches);
		made += BATCH;
		double took = commit_impressions(s, impressions, BATCH, at_ms);
		spent += took;
		if (b >= batches * 9 / 10)
			last += took;
	}
	printf("impressions, batches of %d: %.0f a second; the last tenth %.0f a second\n", BATCH,
	       (double)(batches * BATCH) / spent, (double)((batches - batches * 9 / 10) * BATCH) / last);
	free(impressions);
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static void print_times(const char *what, double *times, size_t count)
{
	qsort(times, count, sizeof(*times), by_size);
	printf("%s: median %.2f ms, p99 %.2f ms, most %.2f ms\n", what, times[count / 2] * 1e3,
	       times[count * 99 / 100] * 1e3, times[count - 1] * 1e3);
}

struct asker {
	struct sink *s;
	int64_t from_ms, to_ms;
	double times[2000], cpu_times[2000];
	size_t count;
	atomic_bool stop;
};

static double cpu_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double ask_window(struct sink *s, int64_t from_ms, int64_t to_ms)
{
	struct arena arena = {0};
	struct window_query q = {.from_ms = from_ms, .to_ms = to_ms, .arena = &arena};
	double began = seconds_now();
	must(s->ops->window(s, &q), "window");
	double took = seconds_now() - began;
	arena_release(&arena);
	return took;
}

static void *ask_windows(void *arg)
{
	struct asker *a = arg;
	while (!atomic_load(&a->stop) && a->count < ARRAY_LEN(a->times)) {
		int64_t by_ms = (int64_t)a->count * 137 % 60000;
		double cpu = cpu_now();
		a->times[a->count] = ask_window(a->s, a->from_ms + by_ms, a->to_ms + by_ms);
		a->cpu_times[a->count++] = cpu_now() - cpu;
	}
	return NULL;
}

static void bench_window(struct sink *s, int64_t from_ms, int64_t to_ms)
{
	static struct asker a;
	a = (struct asker){.s = s, .from_ms = from_ms, .to_ms = to_ms};
	for (; a.count < 300; a.count++)
		a.times[a.count] = ask_window(s, from_ms + (int64_t)a.count * 137,
		                              to_ms + (int64_t)a.count * 137);
	print_times("window of an hour, nobody writing", a.times, a.count);
	a.count = 0;
	pthread_t thread;
	pthread_create(&thread, NULL, ask_windows, &a);
	bench_impressions(s, 1000000, to_ms, 60000);
	atomic_store(&a.stop, true);
	pthread_join(thread, NULL);
	print_times("window of an hour, commits going on", a.times, a.count);
	print_times("    of that, CPU time", a.cpu_times, a.count);
}

static void bench_stats(struct sink *s, uint64_t link, int64_t now_ms, const char *what)
{
	double times[50];
	uint64_t clicks = 0;
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		struct arena arena = {0};
		struct stats_query q = {.link = link,
		                        .from_ms = now_ms - 30 * day_ms + 12345,
		                        .to_ms = now_ms,
		                        .step = STEP_DAY,
		                        .series_wanted = true,
		                        .dims_wanted = 0xff,
		                        .shares_max = 20,
		                        .arena = &arena};
		double began = seconds_now();
		must(s->ops->stats(s, &q), "stats");
		times[i] = seconds_now() - began;
		clicks = q.clicks;
		arena_release(&arena);
	}
	printf("%s (%llu clicks)\n", what, (unsigned long long)clicks);
	print_times("    30 days", times, ARRAY_LEN(times));
}

/* A month of visits in which link 1 has some every minute and all shapes. */
static void fill_month(struct sink *s, int64_t now_ms)
{
	enum { BATCH = 60000 };
	struct sink_visit *visits = must_alloc(BATCH, sizeof(*visits));
	uint64_t duplicates;
	for (int64_t at_ms = now_ms - 30 * day_ms; at_ms < now_ms; at_ms += 2 * hour_ms) {
		for (size_t i = 0; i < BATCH; i++) {
			visits[i] = (struct sink_visit){.time_ms = at_ms + (int64_t)i * 2 * hour_ms / BATCH,
			                                .link = i % 3 ? 1 : skewed_link(),
			                                .visitor = random_below(1000000) + 1,
			                                .shape = (uint32_t)random_below(SHAPES),
			                                .agent = (uint32_t)random_below(AGENTS),
			                                .referrer = SINK_NO_TEXT,
			                                .place = SINK_NO_TEXT,
			                                .path = SINK_NO_TEXT};
		}
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = BATCH,
		                           .shapes = shapes,
		                           .shape_count = SHAPES,
		                           .texts = texts,
		                           .text_count = AGENTS,
		                           .now_ms = at_ms + 2 * hour_ms,
		                           .tally = {.clicks = BATCH}};
		must(s->ops->commit(s, &batch, &duplicates), "commit");
	}
	free(visits);
}

static void bench_tidy(struct sink *s, int64_t now_ms)
{
	double slowest = 0, began = seconds_now();
	size_t steps = 0;
	for (int more = 1; more > 0; steps++) {
		double step = seconds_now();
		more = s->ops->tidy(s, now_ms);
		must(more, "tidy");
		slowest = MAX(slowest, seconds_now() - step);
	}
	printf("tidy: %zu steps in %.2f s, the longest %.1f ms\n", steps, seconds_now() - began,
	       slowest * 1e3);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: sink_bench FOLDER [MILLION IMPRESSIONS]\n");
		return 2;
	}
	struct sink_settings settings = {.minutes_ms = 2 * 86400000ULL,
	                                 .hours_ms = 60 * 86400000ULL,
	                                 .visits_ms = 90 * 86400000ULL,
	                                 .impressions_ms = 35 * 86400000ULL,
	                                 .seen_ms = 86400000ULL};
	struct arena arena = {0};
	char path[512];
	struct err e = {""};
	struct sink *s;
	size_t impressions = (argc > 2 ? strtoul(argv[2], NULL, 10) : 10) * 1000000;
	mkdir(argv[1], 0700);
	snprintf(path, sizeof(path), "%s/stats.db", argv[1]);
	prepare(&arena);
	for (int i = 0; i < 2; i++) { /* makes the file; then opens it */
		long before_kb = rss_kb();
		double began = seconds_now();
		if (sink_sqlite_open(path, &settings, &s, &e) != 0) {
			fprintf(stderr, "sink_bench: %s\n", e.text);
			return 1;
		}
		printf("open: %.1f ms, %ld KB\n", (seconds_now() - began) * 1e3, rss_kb() - before_kb);
		if (i == 0)
			s->ops->free(s);
	}
	bench_visits(s, 20000, 100, start_ms);
	bench_visits(s, 100000, 20, start_ms + hour_ms);
	int64_t now_ms = start_ms + 40 * day_ms;
	fill_month(s, now_ms);
	bench_tidy(s, now_ms);
	bench_stats(s, 1, now_ms, "stats of the busiest link");
	bench_stats(s, 777, now_ms, "stats of another link");
	bench_stats(s, 0, now_ms, "stats of all links");
	bench_impressions(s, impressions, now_ms, hour_ms);
	bench_window(s, now_ms, now_ms + hour_ms);
	double began = seconds_now();
	must(s->ops->settle(s), "settle");
	printf("settle: %.1f ms\n", (seconds_now() - began) * 1e3);
	struct sink_books books;
	for (int deep = 0; deep < 2; deep++) {
		began = seconds_now();
		must(s->ops->books(s, deep, &books), "books");
		printf("books%s: %.1f ms\n", deep ? ", deep" : "", (seconds_now() - began) * 1e3);
	}
	printf("memory: %ld KB\n", rss_kb());
	s->ops->free(s);
	began = seconds_now();
	must(sink_sqlite_open(path, &settings, &s, &e), "open");
	printf("open with all that: %.1f ms\n", (seconds_now() - began) * 1e3);
	s->ops->free(s);
	arena_release(&arena);
	return 0;
}
