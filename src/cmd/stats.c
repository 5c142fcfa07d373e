#include "cmd/ask.h"
#include "os/clock.h"

#include <stdlib.h>
#include <time.h>

enum { BAR_WIDTH = 40, VALUE_WIDTH = 28, CATCH_UP_MS = 30000, LOOK_MS = 50 };

static const char *const tables[] = {"referrer", "country", "browser", "os", "device",
                                     "language", "source",  "bot",     NULL};
static const char *const steps[] = {"minute", "hour", "day", "week", "month", NULL};
static const char *const bots[] = {"include", "exclude", "only", NULL};

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* Eighths of a cell, so that small numbers show too. */
static void print_bar(long long value, long long largest)
{
	static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	long long eighths = largest > 0 ? value * BAR_WIDTH * 8 / largest : 0;
	if (value > 0 && eighths == 0)
		eighths = 1;
	for (long long i = 0; i < eighths / 8; i++)
		fputs("█", stdout);
	puts(parts[eighths % 8]);
}

/* "2026-01-02T03:04:05Z": as much of it as the step needs. */
static int time_width(const char *step)
{
	if (strcmp(step, "minute") == 0 || strcmp(step, "hour") == 0)
		return 16;
	return strcmp(step, "month") == 0 ? 7 : 10;
}

static void print_series(const json_t *answer)
{
	json_t *series = json_object_get(answer, "series");
	const char *step = ask_text(answer, "step");
	long long largest = 0;
	size_t count = json_array_size(series), first = 0;
	for (size_t i = 0; i < count; i++)
		largest = MAX(largest, number(json_array_get(series, i), "clicks"));
	if (largest == 0)
		return;
	while (number(json_array_get(series, first), "clicks") == 0)
		first++;
	printf("\nclicks by %s\n", step);
	for (size_t i = first; i < count; i++) {
		const json_t *point = json_array_get(series, i);
		printf("  %-*.*s %10lld  ", time_width(step), time_width(step), ask_text(point, "t"),
		       number(point, "clicks"));
		print_bar(number(point, "clicks"), largest);
	}
}

static void print_table(const json_t *answer, const char *name)
{
	const json_t *rows = json_object_get(json_object_get(answer, "by"), name);
	long long clicks = MAX(number(answer, "clicks"), 1);
	if (json_array_size(rows) == 0)
		return;
	printf("\n%s\n", name);
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);
		fputs("  ", stdout);
		ask_column(ask_text(row, "value"), VALUE_WIDTH, true);
		printf(" %10lld %5.1f %%  ", number(row, "clicks"),
		       100.0 * (double)number(row, "clicks") / (double)clicks);
		print_bar(number(row, "clicks"), clicks);
	}
}

static void print_top(const json_t *answer)
{
	const json_t *links = json_object_get(answer, "top_links"), *ads = json_object_get(answer, "top_ads");
	if (json_array_size(links) > 0)
		puts("\nlinks");
	for (size_t i = 0; i < json_array_size(links); i++) {
		const json_t *link = json_array_get(links, i);
		printf("  %-40s %10lld\n", ask_text(link, "short_url"), number(link, "clicks"));
	}
	if (json_array_size(ads) > 0)
		printf("\n%-30s %12s %10s %8s\n", "ads", "impressions", "clicks", "ratio");
	for (size_t i = 0; i < json_array_size(ads); i++) {
		const json_t *ad = json_array_get(ads, i);
		fputs("  ", stdout);
		ask_column(ask_text(ad, "ad"), VALUE_WIDTH, true);
		printf(" %12lld", number(ad, "impressions"));
		if (json_is_null(json_object_get(ad, "clicks")))
			printf(" %10s %8s\n", "-", "-");
		else
			printf(" %10lld %6.2f %%\n", number(ad, "clicks"),
			       100.0 * json_number_value(json_object_get(ad, "click_through")));
	}
}

static void print_answer(const json_t *answer, const char *key)
{
	if (key)
		printf("%-16s %s\n", "link", ask_text(answer, "key"));
	printf("%-16s %s to %s\n", "range", ask_text(answer, "from"), ask_text(answer, "to"));
	printf("%-16s %lld, of them %lld by bots\n", "clicks", number(answer, "clicks"),
	       number(answer, "bots"));
	if (json_is_integer(json_object_get(answer, "unique_visitors")))
		printf("%-16s about %lld\n", "visitors", number(answer, "unique_visitors"));
	else
		printf("%-16s not known with this filter\n", "visitors");
	printf("%-16s %lld HEAD, %lld prefetch\n", "not counted", number(answer, "heads"),
	       number(answer, "prefetches"));
	if (!key) {
		const json_t *orphans = json_object_get(answer, "orphans");
		printf("%-16s %lld at unknown keys, %lld at the root\n", "orphan visits",
		       number(orphans, "unknown"), number(orphans, "root"));
		printf("%-16s %lld\n", "impressions", number(answer, "impressions"));
	}
	print_top(answer);
	print_series(answer);
	for (size_t i = 0; tables[i]; i++)
		print_table(answer, tables[i]);
}

static void put_param(struct buf *path, struct str name, const char *value)
{
	if (!value)
		return;
	char *escaped CLEANUP(freep) = ask_segment(value);
	buf_char(path, memchr(path->data, '?', path->len) ? '&' : '?');
	buf_printf(path, "%.*s=%s", STR_ARG(name), escaped);
}

static void path_of(const struct args *a, const char *key, struct buf *path)
{
	static const char *const params[] = {"--from", "--to", "--bots", "--limit"};
	const char *step = args_value(a, "--step");
	if (key) {
		char *segment CLEANUP(freep) = ask_segment(key);
		buf_printf(path, "/api/v1/links/%s/stats", segment);
	} else {
		buf_str(path, STR("/api/v1/stats"));
	}
	for (size_t i = 0; i < ARRAY_LEN(params); i++)
		put_param(path, str_of(params[i] + 2), args_value(a, params[i]));
	if (step) {
		char by[256];
		snprintf(by, sizeof(by), "%.32s,referrer,country,browser,os,device,language,source,bot",
		         step);
		put_param(path, STR("by"), by);
	}
	for (size_t i = 0; i < a->given_count; i++) {
		struct str value = str_of(a->given[i].value ? a->given[i].value : "");
		struct str name = str_cut(&value, '=');
		if (str_eq(a->given[i].name, STR("--where")))
			put_param(path, name, value.ptr);
	}
	buf_char(path, '\0');
}

static int check_where(const struct args *a)
{
	struct str seen[ARRAY_LEN(tables)];
	size_t count = 0;
	for (size_t i = 0; i < a->given_count; i++) {
		struct str value = str_of(a->given[i].value);
		struct str name = str_cut(&value, '=');
		if (!str_eq(a->given[i].name, STR("--where")))
			continue;
		if (!value.ptr)
			return cmd_usage("--where takes NAME=VALUE, such as browser=Firefox, not '%s'",
			                 a->given[i].value);
		int r = cmd_check_word(STR("the NAME of --where"), name, tables);
		if (r != 0)
			return r;
		for (size_t k = 0; k < count; k++) {
			if (str_eq(seen[k], name))
				return cmd_usage(
				    "--where %.*s is given twice, and no visit has two values of it; "
				    "give one of them",
				    STR_ARG(name));
		}
		seen[count++] = name;
	}
	return 0;
}

static int prepare(struct args *a)
{
	const char *step = args_value(a, "--step"), *which = args_value(a, "--bots");
	int r = check_where(a);
	if (r == 0 && step)
		r = cmd_check_word(STR("--step"), str_of(step), steps);
	if (r == 0 && which)
		r = cmd_check_word(STR("--bots"), str_of(which), bots);
	return r;
}

/* A server inside this process first reads what a killed server left in the event log. */
static int catch_up(struct client *c)
{
	int64_t until_ms = clock_mono_ms() + CATCH_UP_MS;
	for (;;) {
		json_t *reconciliation;
		int r = ask(c, "GET", "/api/v1/reconcile", NULL, false, &reconciliation);
		long long pending = number(reconciliation, "clicks_pending") +
		                    number(reconciliation, "impressions_pending");
		json_decref(reconciliation);
		if (r != 0 || pending == 0)
			return r;
		if (clock_mono_ms() > until_ms)
			return cmd_fail("%lld events are not analysed yet; run 'curt serve' and try again",
			                pending);
		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
	}
}

static int stats(struct client *c, struct args *a)
{
	struct buf CLEANUP(buf_release) path = {0};
	const char *key = a->word_count > 0 ? a->words[0] : NULL;
	json_t *answer = NULL;
	path_of(a, key, &path);
	int r = c->own ? catch_up(c) : 0;
	if (r == 0)
		r = ask(c, "GET", path.data, NULL, args_has(a, "--json"), &answer);
	if (answer)
		print_answer(answer, key);
	json_decref(answer);
	return r;
}

const struct command stats_command = {
    .name = "stats",
    .arguments = "[KEY]",
    .summary = "Show clicks and impressions, of one link or of all links together",
    .examples = "curt stats offer --from 2030-01-01 --step day\n"
                "curt stats --where browser=Firefox --bots exclude",
    .options =
        (const struct command_option[]){
            {"--from TIME",
             "2026-01-31, 2026-01-31T12:00:00Z, or seconds since 1970; 30 days ago by default."},
            {"--to TIME", "The end of the range, likewise; now by default."},
            {"--step STEP", "minute, hour, day, week or month; fits the range by default."},
            {"--where NAME=VALUE", "Count only these visits. NAME is referrer, country, browser, os, device, "
                                   "language, source or bot. May be repeated; all must hold."},
            {"--bots WHICH", "include (the default), exclude or only."},
            {"--limit N", "Rows of each table; 10 by default."},
            {NULL, NULL}},
    .prepare = prepare,
    .ask = stats,
};
