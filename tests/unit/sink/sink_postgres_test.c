/*
 * What the conformance suite cannot see of the PostgreSQL sink: connections that are lost in the middle,
 * several workers, partitions, and a database that others use as well.
 */
#include "lib/database_kit.h"
#include "lib/sink_model.h"
#include "lib/test.h"
#include "sink/sink_postgres.h"

static const int64_t minute_ms = 60000, hour_ms = 3600000, day_ms = 86400000;
static const int64_t start_ms = 1790000000000 / 86400000 * 86400000; /* midnight of 2026-09-21 */

static const char *const url = database_kit_urls[0];
static const struct sink_settings settings = {.minutes_ms = 2 * 86400000ULL,
                                              .hours_ms = 60 * 86400000ULL,
                                              .visits_ms = 90 * 86400000ULL,
                                              .impressions_ms = 35 * 86400000ULL,
                                              .seen_ms = 86400000ULL};
static struct relay *relay;
static struct sink *sink; /* through the relay */
static struct model model;
static struct arena arena;

static struct sink *open_at(const char *at)
{
	struct sink *s = NULL;
	MUST(sink_postgres_open(at, &settings, &s, &why));
	return s;
}

static int setup(void **state)
{
	if (!url[0])
		return 0;
	char through[2 * POSTGRES_KIT_URL_BYTES];
	database_kit_renew(NULL);
	relay = database_kit_relay(url, through);
	sink = open_at(through);
	model_init(&model, 7, (int64_t)settings.seen_ms);
	return 0;
}

static int teardown(void **state)
{
	database_kit_let_go();
	if (sink)
		sink->ops->free(steal(sink));
	relay_stop(steal(relay));
	model_release(&model);
	arena_release(&arena);
	return 0;
}

/* --- batches --- */

static _Atomic int64_t print_number;

/* Visits of link 3 and impressions of ad "x", one a second. */
struct events {
	struct dimension_set set;
	struct sink_visit visits[50];
	struct sink_impression impressions[50];
	struct advance advance;
	struct sink_batch batch;
};

static void events_fill(struct events *ev, uint64_t node, uint64_t stream, uint64_t from, int64_t time_ms)
{
	*ev = (struct events){.set = {.kind = VISIT_CLICK}, .advance = {stream, from, from + 100}};
	for (unsigned i = 0; i < 50; i++) {
		int64_t at_ms = time_ms + i * 1000;
		ev->visits[i] = (struct sink_visit){.event = {node, stream, from + i},
		                                    .time_ms = at_ms,
		                                    .link = 3,
		                                    .visitor = i + 1,
		                                    .agent = SINK_NO_TEXT,
		                                    .referrer = SINK_NO_TEXT,
		                                    .place = SINK_NO_TEXT,
		                                    .path = SINK_NO_TEXT};
		ev->impressions[i] = (struct sink_impression){.event = {node, stream, from + 50 + i},
		                                              .time_ms = at_ms,
		                                              .received_ms = at_ms,
		                                              .id = STR("i"),
		                                              .user = STR("u"),
		                                              .ad = STR("x")};
		int64_t print = atomic_fetch_add(&print_number, 1);
		memcpy(ev->impressions[i].fingerprint, &print, sizeof(print));
	}
	ev->batch = (struct sink_batch){.visits = ev->visits,
	                                .visit_count = 50,
	                                .impressions = ev->impressions,
	                                .impression_count = 50,
	                                .sets = &ev->set,
	                                .set_count = 1,
	                                .source = 9,
	                                .advances = &ev->advance,
	                                .advance_count = 1,
	                                .now_ms = time_ms,
	                                .tally = {.clicks = 50, .impressions = 50}};
}

static int give(struct sink *s, const struct events *ev, uint64_t *ret_duplicates)
{
	*ret_duplicates = 0;
	return s->ops->commit(s, &ev->batch, ret_duplicates);
}

static void give_well(struct sink *s, const struct events *ev)
{
	uint64_t duplicates;
	assert_int_equal(give(s, ev, &duplicates), 0);
	assert_int_equal(duplicates, 0);
}

static uint64_t position_of(struct sink *s, uint64_t stream)
{
	struct position *positions;
	size_t count;
	assert_int_equal(s->ops->resume(s, 9, &arena, &positions, &count), 0);
	for (size_t i = 0; i < count; i++)
		if (positions[i].stream == stream)
			return positions[i].offset;
	return 0;
}

static uint64_t clicks_of(uint64_t link)
{
	struct sink_total total = {.link = link};
	assert_int_equal(sink->ops->clicks(sink, &total, 1), 0);
	return total.clicks;
}

static struct reconciliation books_of(uint64_t node)
{
	struct reconciliation b;
	assert_int_equal(sink->ops->reconciliation(sink, node, true, &b), 0);
	return b;
}

/* --- connections --- */

static unsigned failures;

static void failed(int r)
{
	assert_int_equal(r, ERR_UNAVAILABLE);
	failures++;
}

/* The name of a statement travels with each use of it. */
static const char *const moments[] = {
    "sink_table_exists", "sink_names_lock",   "sink_names_commit",     "sink_positions_lock",
    "sink_seen_add",     "COPY stats_visit",  "COPY stats_impression", "sink_cells_add",
    "sink_days_add",     "sink_visitors_put", "sink_ad_cells_add",     "sink_reconcile_add",
    "sink_commit",
};

TEST(a_commit_that_is_cut_off_at_any_step_is_counted_once)
{
	database_kit_need();
	int64_t now_ms = start_ms;
	for (size_t i = 0; i < ARRAY_LEN(moments); i++) {
		for (int after = 0; after < 2; after++) {
			now_ms += 4 * hour_ms; /* now and then a day needs a partition, and an ad its name */
			unsigned before = failures;
			relay_cut_at(relay, moments[i], after, false);
			model_commit_again(&model, sink, 60, 40, now_ms - hour_ms, now_ms, now_ms, failed);
			relay_cut_at(relay, NULL, false, false);
			if (i >= 3) /* names and days are not always asked for */
				assert_int_equal(failures, before + 1);
		}
		model_check_books(&model, sink, true);
	}
	assert_true(failures >= 2 * (ARRAY_LEN(moments) - 3));
	model_check_all(&model, sink, start_ms, now_ms, STEP_HOUR, 10);
}

TEST(a_batch_whose_commit_was_not_answered_is_there_for_another_process)
{
	database_kit_need();
	struct events ev;
	uint64_t duplicates;
	events_fill(&ev, 1, 5, 0, start_ms);
	relay_cut_at(relay, "sink_commit", true, false);
	assert_int_equal(give(sink, &ev, &duplicates), ERR_UNAVAILABLE);
	struct sink *other = open_at(url);
	int r = give(other, &ev, &duplicates);
	uint64_t position = position_of(other, 5);
	other->ops->free(other);
	assert_int_equal(r, 0);
	assert_int_equal(position, 100);
	assert_int_equal(clicks_of(3), 50);
	assert_int_equal(books_of(0).impressions_counted, 50);
}

TEST(questions_go_on_when_their_connections_were_cut)
{
	database_kit_need();
	model_commit(&model, sink, 50, 50, start_ms, start_ms + hour_ms, start_ms + hour_ms);
	for (int i = 0; i < 3; i++) {
		model_check_books(&model, sink, true);
		relay_set(relay, RELAY_CUT);
		relay_set(relay, RELAY_PASS);
	}
	model_check_all(&model, sink, start_ms, start_ms + hour_ms, STEP_MINUTE, 5);
}

TEST(a_server_that_is_down_is_reported)
{
	database_kit_need();
	struct events ev;
	struct err e = {""};
	struct reconciliation b;
	uint64_t duplicates;
	events_fill(&ev, 1, 5, 0, start_ms);
	relay_set(relay, RELAY_CUT);
	assert_int_equal(give(sink, &ev, &duplicates), ERR_UNAVAILABLE);
	assert_int_equal(sink->ops->reconciliation(sink, 0, false, &b), ERR_UNAVAILABLE);
	assert_int_equal(sink->ops->retention(sink, start_ms), ERR_UNAVAILABLE);
	assert_int_equal(sink->ops->ping(sink, &e), ERR_UNAVAILABLE);
	assert_true(strlen(e.text) > 10);
}

TEST(a_write_that_fails_is_reported_until_one_works)
{
	database_kit_need();
	struct events ev;
	struct err e = {""};
	uint64_t duplicates;
	events_fill(&ev, 1, 5, 0, start_ms);
	postgres_kit_run(url, "ALTER TABLE stats_book RENAME TO elsewhere");
	assert_int_equal(give(sink, &ev, &duplicates), ERR_UNAVAILABLE);
	assert_int_equal(sink->ops->ping(sink, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "stats_book"));
	assert_int_equal(clicks_of(3), 0);
	postgres_kit_run(url, "ALTER TABLE elsewhere RENAME TO stats_book");
	give_well(sink, &ev);
	assert_int_equal(sink->ops->ping(sink, &e), 0);
	assert_int_equal(clicks_of(3), 50);
}

/* --- several workers --- */

TEST(a_second_worker_of_the_same_stream_is_refused)
{
	database_kit_need();
	struct events ev;
	uint64_t duplicates;
	struct sink *other = open_at(url);
	events_fill(&ev, 1, 5, 0, start_ms);
	give_well(sink, &ev);
	events_fill(&ev, 1, 5, 0, start_ms);
	ev.advance.to = 70;
	int r = give(other, &ev, &duplicates);
	uint64_t position = position_of(other, 5);
	events_fill(&ev, 1, 5, 100, start_ms);
	int next = give(other, &ev, &duplicates);
	events_fill(&ev, 1, 5, 100, start_ms);
	ev.advance.to = 150;
	other->ops->free(other);
	assert_int_equal(r, ERR_UNCERTAIN);
	assert_int_equal(position, 100);
	assert_int_equal(next, 0);
	assert_int_equal(give(sink, &ev, &duplicates), ERR_UNCERTAIN);
	assert_int_equal(position_of(sink, 5), 200);
	assert_int_equal(clicks_of(3), 100);
	assert_int_equal(books_of(0).tally.clicks, 100);
	assert_int_equal(sink->ops->ping(sink, NULL), 0); /* that is nobody's trouble */
}

/* One of several streams is wrong: nothing of the batch is taken. */
TEST(all_streams_of_a_batch_move_or_none)
{
	database_kit_need();
	struct events ev;
	uint64_t duplicates;
	struct advance both[2] = {{UINT64_MAX, 0, 10}, {4, 0, 20}};
	events_fill(&ev, 1, 5, 0, start_ms);
	ev.batch.advances = both;
	ev.batch.advance_count = 2;
	give_well(sink, &ev);
	events_fill(&ev, 1, 5, 0, start_ms);
	both[0] = (struct advance){UINT64_MAX, 10, 30};
	both[1] = (struct advance){4, 19, 40};
	ev.batch.advances = both;
	ev.batch.advance_count = 2;
	assert_int_equal(give(sink, &ev, &duplicates), ERR_UNCERTAIN);
	assert_int_equal(position_of(sink, UINT64_MAX), 10);
	assert_int_equal(position_of(sink, 4), 20);
	both[1].from = 20;
	give_well(sink, &ev);
	assert_int_equal(position_of(sink, UINT64_MAX), 30);
	assert_int_equal(clicks_of(3), 100);
}

enum { WORKERS = 3, BATCHES = 12 };

struct worker {
	pthread_t thread;
	struct sink *sink;
	uint64_t stream;
	uint64_t duplicates;
	int errors;
};

/* The same links, minutes, ads and names as the others, and the same fingerprints. */
static void *worker_run(void *arg)
{
	struct worker *w = arg;
	for (unsigned i = 0; i < BATCHES; i++) {
		struct events ev;
		uint64_t duplicates;
		events_fill(&ev, w->stream, w->stream, i * 100ULL, start_ms + i * minute_ms);
		for (unsigned k = 0; k < 50; k++) {
			uint64_t print = (i * 50 + (k + w->stream * 17) % 50) * 0x9e3779b97f4a7c15ULL;
			memcpy(ev.impressions[k].fingerprint, &print, sizeof(print));
		}
		w->errors += give(w->sink, &ev, &duplicates) != 0;
		w->duplicates += duplicates;
		w->errors += w->sink->ops->retention(w->sink, start_ms + 4 * day_ms) < 0;
	}
	return NULL;
}

TEST(several_workers_at_once_lose_nothing_and_count_nothing_twice)
{
	database_kit_need();
	struct worker workers[WORKERS] = {0};
	uint64_t duplicates = 0;
	int errors = 0;
	for (size_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.sink = open_at(url), .stream = i + 1};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
	}
	for (size_t i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		workers[i].sink->ops->free(workers[i].sink);
		duplicates += workers[i].duplicates;
		errors += workers[i].errors;
	}
	assert_int_equal(errors, 0);
	assert_int_equal(duplicates, (WORKERS - 1) * BATCHES * 50);
	struct reconciliation b = books_of(0);
	assert_int_equal(b.clicks_in_rollups, WORKERS * BATCHES * 50);
	assert_int_equal(b.visit_rows, WORKERS * BATCHES * 50);
	assert_int_equal(b.impressions_counted, BATCHES * 50);
	assert_int_equal(b.impression_rows, BATCHES * 50);
	assert_int_equal(clicks_of(3), WORKERS * BATCHES * 50);
	struct stats_query q = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, WORKERS * BATCHES * 50);
	assert_int_equal(q.visitors, 50);
	struct window_query w = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->window(sink, &w), 0);
	assert_int_equal(w.ads[0].count, BATCHES * 50);
	for (uint64_t node = 1; node <= WORKERS; node++) {
		b = books_of(node);
		assert_int_equal(b.tally.clicks, BATCHES * 50);
		assert_int_equal(b.clicks_in_rollups, BATCHES * 50);
		assert_int_equal(b.tally.impressions, b.impressions_counted + b.duplicates);
	}
}

static void *open_one(void *arg)
{
	return sink_postgres_open(url, &settings, arg, NULL) == 0 ? arg : NULL;
}

TEST(several_processes_may_make_the_tables_at_once)
{
	database_kit_need();
	pthread_t threads[4];
	struct sink *sinks[4] = {NULL};
	bool opened = true;
	sink->ops->free(steal(sink));
	database_kit_renew(NULL);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_one, &sinks[i]), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		void *done;
		pthread_join(threads[i], &done);
		opened &= done != NULL;
		if (sinks[i])
			sinks[i]->ops->free(sinks[i]);
	}
	assert_true(opened);
	assert_int_equal(postgres_kit_ask(url, "SELECT version FROM stats_layout"), 2);
}

TEST(while_one_worker_applies_retention_the_others_have_nothing_to_do)
{
	database_kit_need();
	struct events ev;
	events_fill(&ev, 1, 5, 0, start_ms);
	give_well(sink, &ev);
	events_fill(&ev, 1, 5, 100, start_ms + 4 * day_ms);
	give_well(sink, &ev);
	database_kit_hold(url,
	                  "BEGIN; SELECT pg_advisory_xact_lock(1668641364, oid::int) FROM pg_namespace WHERE"
	                  " nspname = current_schema()");
	assert_int_equal(sink->ops->retention(sink, start_ms + 4 * day_ms), 0);
	database_kit_let_go();
	assert_true(sink->ops->retention(sink, start_ms + 4 * day_ms) > 0);
}

/* --- days --- */

static int64_t rows_in(const char *table)
{
	char sql[128];
	snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", table);
	return postgres_kit_ask(url, sql);
}

static void need_partitions(void)
{
	database_kit_need();
	if (postgres_kit_has_timescale())
		skip();
}

TEST(rows_lie_in_partitions_by_day_and_the_next_day_is_there_before_it_comes)
{
	need_partitions();
	struct events ev;
	events_fill(&ev, 1, 5, 0, start_ms);
	ev.visits[0].time_ms = start_ms - 1;
	give_well(sink, &ev);
	assert_int_equal(rows_in("stats_visit_20260921"), 49);
	assert_int_equal(rows_in("stats_visit_20260920"), 1);
	assert_int_equal(rows_in("stats_impression_20260921"), 50);
	while (sink->ops->retention(sink, start_ms) > 0)
		;
	assert_int_equal(rows_in("stats_visit_20260922"), 0);
	assert_int_equal(rows_in("stats_impression_20260922"), 0);
}

/* Visits of long ago, and of a clock that runs ahead. */
TEST(what_is_of_another_time_makes_no_partitions)
{
	need_partitions();
	struct events ev;
	events_fill(&ev, 1, 5, 0, start_ms);
	for (unsigned i = 0; i < 50; i++)
		ev.visits[i].time_ms = start_ms + (int64_t)(i % 2 ? i + 1 : -(i + 4)) * day_ms;
	give_well(sink, &ev);
	assert_int_equal(rows_in("stats_visit_rest"), 50);
	assert_int_equal(clicks_of(3), 50);
	/* When such a day comes, its rows are where they belong. */
	events_fill(&ev, 1, 5, 100, start_ms + 10 * day_ms);
	give_well(sink, &ev);
	assert_int_equal(rows_in("stats_visit_20261001"), 51);
	assert_int_equal(rows_in("stats_visit_rest"), 49);
	assert_int_equal(rows_in("stats_visit"), 100);
}

/* Somebody reads the table for long, so that no partition can be added: rows are not held up. */
TEST(a_partition_that_cannot_be_made_now_is_made_later)
{
	need_partitions();
	struct events ev;
	events_fill(&ev, 1, 5, 0, start_ms);
	database_kit_hold(url, "BEGIN; SELECT count(*) FROM stats_visit_rest");
	give_well(sink, &ev);
	assert_int_equal(rows_in("stats_visit_rest"), 50);
	database_kit_let_go();
	while (sink->ops->retention(sink, start_ms) > 0)
		;
	assert_int_equal(rows_in("stats_visit_rest"), 0);
	assert_int_equal(rows_in("stats_visit_20260921"), 50);
}

TEST(days_past_their_time_are_dropped_whole)
{
	need_partitions();
	struct events ev;
	for (unsigned day = 0; day < 3; day++) {
		events_fill(&ev, 1, 5, day * 100, start_ms + day * day_ms);
		give_well(sink, &ev);
	}
	events_fill(&ev, 1, 5, 300, start_ms + 91 * day_ms);
	give_well(sink, &ev);
	while (sink->ops->retention(sink, start_ms + 91 * day_ms) > 0)
		;
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM pg_class WHERE relname ="
	                                       " 'stats_visit_20260921'"),
	                 0);
	assert_int_equal(rows_in("stats_visit_20260922"), 50);
	assert_int_equal(rows_in("stats_visit"), 150);
	assert_int_equal(rows_in("stats_impression"), 50);
	assert_int_equal(clicks_of(3), 200);
}

/* --- the database --- */

TEST(the_link_store_may_live_in_the_same_database)
{
	database_kit_need();
	struct store *store = database_kit_store(url);
	struct events ev;
	events_fill(&ev, 1, 5, 0, start_ms);
	give_well(sink, &ev);
	store_free(store);
	struct sink *again = open_at(url);
	again->ops->free(again);
	assert_int_equal(clicks_of(3), 50);
}

/* Visitors of link 3 on the day as the query sees them; -1: it does not say. */
static int64_t visitors_of(struct sink *s, int64_t day_start_ms, enum stats_bots bots)
{
	struct stats_query q = {.link = 3,
	                        .from_ms = day_start_ms,
	                        .to_ms = day_start_ms + day_ms,
	                        .bots = bots,
	                        .arena = &arena};
	assert_int_equal(s->ops->stats(s, &q), 0);
	return q.has_visitors ? (int64_t)q.visitors : -1;
}

TEST(days_from_before_bots_had_a_sketch_of_their_own_keep_one_for_all_visitors)
{
	database_kit_need();
	struct events ev;
	int64_t today_ms = start_ms / day_ms * day_ms;
	events_fill(&ev, 1, 5, 0, today_ms);
	give_well(sink, &ev);
	sink->ops->free(steal(sink));
	postgres_kit_run(url, "ALTER TABLE stats_day DROP COLUMN bots; UPDATE stats_layout SET version = 1");
	sink = open_at(url);
	for (int day = 0; day < 2; day++) {
		events_fill(&ev, 1, 5, 100 + 100 * (uint64_t)day, today_ms + day * day_ms);
		ev.set.dims[DIM_BOT] = STR("crawler");
		for (size_t i = 0; i < ARRAY_LEN(ev.visits); i++)
			ev.visits[i].visitor += 10;
		give_well(sink, &ev);
	}
	assert_int_equal(visitors_of(sink, today_ms, BOTS_INCLUDED), 60);
	assert_int_equal(visitors_of(sink, today_ms, BOTS_EXCLUDED), -1);
	assert_int_equal(visitors_of(sink, today_ms, BOTS_ONLY), -1);
	assert_int_equal(visitors_of(sink, today_ms + day_ms, BOTS_INCLUDED), 50);
	assert_int_equal(visitors_of(sink, today_ms + day_ms, BOTS_EXCLUDED), 0);
	assert_int_equal(visitors_of(sink, today_ms + day_ms, BOTS_ONLY), 50);
}

TEST(tables_of_a_newer_version_are_left_alone)
{
	database_kit_need();
	struct sink *s = NULL;
	struct err e = {""};
	postgres_kit_run(url, "UPDATE stats_layout SET version = 99");
	assert_int_equal(sink_postgres_open(url, &settings, &s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "newer"));
}

TEST(what_cannot_be_opened_is_said_without_the_password)
{
	static const char *const bad[] = {"postgres://u:geheim@127.0.0.1:1/d",
	                                  "postgres://u:geheim@h/d?no=1"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct sink *s = NULL;
		struct err e = {""};
		assert_true(sink_postgres_open(bad[i], &settings, &s, &e) < 0);
		assert_null(s);
		assert_true(strlen(e.text) > 10);
		assert_null(strstr(e.text, "geheim"));
	}
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
