#include "lib/sink_suite.h"
#include "lib/sink_model.h"
#include "lib/test.h"

static const int64_t minute_ms = 60000, hour_ms = 3600000, day_ms = 86400000;
static const int64_t start_ms = 1790000000000 / 86400000 * 86400000; /* midnight, in September 2026 */

static const struct sink_backend *backend;
static struct sink *sink;
static struct model model;
static struct arena arena;
static struct sink_settings settings;
static uint64_t seed; /* another one for each test */

/* One that no other event has. The model's have another node. */
static struct event_id fresh_event(void)
{
	static uint64_t position;
	return (struct event_id){.node = 2, .segment = 1, .position = ++position};
}

static int setup(void **state)
{
	settings = (struct sink_settings){.minutes_ms = 2 * 86400000ULL,
	                                  .hours_ms = 60 * 86400000ULL,
	                                  .visits_ms = 90 * 86400000ULL,
	                                  .impressions_ms = 35 * 86400000ULL,
	                                  .seen_ms = 86400000ULL};
	model_init(&model, ++seed, (int64_t)settings.seen_ms);
	model.page_min = MIN(backend->effort_divisor, 20);
	sink = backend->open(&settings);
	return sink ? 0 : -1;
}

static int teardown(void **state)
{
	if (sink)
		backend->close(sink);
	model_release(&model);
	arena_release(&arena);
	return 0;
}

static bool has(enum sink_ability ability)
{
	return backend->abilities & ability;
}

static unsigned effort(unsigned rounds)
{
	unsigned divisor = MAX(backend->effort_divisor, 1);
	return (rounds + divisor - 1) / divisor;
}

static void check_all(int64_t from_ms, int64_t to_ms, enum stats_step finest, unsigned rounds)
{
	model_check_all(&model, sink, from_ms, to_ms, finest, effort(rounds));
}

static void check_totals(void)
{
	if (has(SINK_TOTALS))
		model_check_totals(&model, sink);
}

static void reopen(void)
{
	sink = backend->reopen(sink, &settings);
	assert_non_null(sink);
}

/* The sink believes the time of commits only. */
static void pass_time(int64_t now_ms)
{
	struct sink_batch batch = {.now_ms = now_ms};
	uint64_t duplicates;
	assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
}

/* Until nothing is due. */
static unsigned tidy_up(int64_t now_ms)
{
	pass_time(now_ms);
	for (unsigned steps = 0;; steps++) {
		int r = sink->ops->retention(sink, now_ms);
		assert_true(r >= 0);
		if (r == 0)
			return steps;
		assert_true(steps < 100000);
	}
}

/* --- nothing --- */

static void an_empty_sink_answers_everything_with_nothing(void **state)
{
	struct position *positions;
	size_t count = 0;
	if (has(SINK_POSITIONS))
		assert_int_equal(sink->ops->resume(sink, 0, &arena, &positions, &count), 0);
	assert_int_equal(count, 0);
	check_all(start_ms, start_ms + day_ms, STEP_MINUTE, 10);
	check_totals();
	model_check_books(&model, sink, true);
	assert_int_equal(sink->ops->retention(sink, start_ms), 0);
	assert_int_equal(sink->ops->sync ? sink->ops->sync(sink) : 0, 0);
	assert_int_equal(sink->ops->ping(sink, NULL), 0);
}

static void an_empty_batch_moves_positions_and_books_only(void **state)
{
	model_commit(&model, sink, 0, 0, start_ms, start_ms + 1, start_ms);
	check_all(start_ms, start_ms + day_ms, STEP_MINUTE, 3);
	model_check_books(&model, sink, true);
}

/* --- positions --- */

static void commit_advance(uint64_t stream, uint64_t from, uint64_t to)
{
	struct advance a = {stream, from, to};
	struct sink_batch batch = {.advances = &a, .advance_count = 1, .now_ms = start_ms};
	uint64_t duplicates;
	assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
}

static uint64_t position_of(uint64_t segment, size_t expected_count)
{
	struct position *positions;
	size_t count;
	uint64_t offset = UINT64_MAX;
	assert_int_equal(sink->ops->resume(sink, 0, &arena, &positions, &count), 0);
	assert_int_equal(count, expected_count);
	for (size_t i = 0; i < count; i++)
		if (positions[i].stream == segment)
			offset = positions[i].offset;
	return offset;
}

static void reading_goes_on_where_the_last_commit_was(void **state)
{
	commit_advance(1, 0, 100);
	commit_advance(UINT64_MAX, 0, 7);
	commit_advance(1, 100, 250);
	assert_int_equal(position_of(1, 2), 250);
	reopen();
	assert_int_equal(position_of(1, 2), 250);
	assert_int_equal(position_of(UINT64_MAX, 2), 7);
}

static void many_segments_are_remembered(void **state)
{
	for (uint64_t i = 0; i < 50; i++)
		commit_advance(i << 32, 0, i + 1);
	for (uint64_t i = 0; i < 50; i++)
		assert_int_equal(position_of(i << 32, 50), i + 1);
}

static void a_segment_that_is_gone_is_forgotten(void **state)
{
	commit_advance(1, 0, 100);
	commit_advance(UINT64_MAX - 1, 0, 7);
	assert_int_equal(sink->ops->forget(sink, 0, (uint64_t[]){UINT64_MAX - 1, 99}, 2), 0);
	assert_int_equal(position_of(1, 1), 100);
	reopen();
	assert_int_equal(position_of(1, 1), 100);
}

/* --- against the model --- */

static void answers_are_those_of_the_model_after_every_commit(void **state)
{
	for (int i = 0; i < 8; i++) {
		int64_t now_ms = start_ms + (i + 1) * 20 * minute_ms;
		model_commit(&model, sink, 150, 60, start_ms, now_ms, now_ms);
		check_all(start_ms, now_ms + minute_ms, STEP_MINUTE, 60);
		model_check_books(&model, sink, true);
	}
}

static void digesting_in_between_changes_no_answer(void **state)
{
	for (int i = 0; i < 8; i++) {
		int64_t now_ms = start_ms + (i + 1) * 5 * hour_ms;
		model_commit(&model, sink, 150, 60, start_ms, now_ms, now_ms);
		if (i % 2)
			check_totals();
		if (i % 3 == 0)
			tidy_up(now_ms + 2 * minute_ms);
		check_all(start_ms, now_ms + minute_ms, STEP_MINUTE, 40);
		model_check_books(&model, sink, true);
	}
}

static void everything_is_there_after_reopening(void **state)
{
	for (int i = 0; i < 6; i++) {
		int64_t now_ms = start_ms + (i + 1) * 5 * hour_ms;
		model_commit(&model, sink, 100, 100, start_ms, now_ms, now_ms);
		if (i == 3)
			tidy_up(now_ms + hour_ms);
		reopen();
		check_all(start_ms, now_ms + minute_ms, STEP_MINUTE, 40);
		model_check_books(&model, sink, true);
	}
}

static void folding_to_hours_changes_no_answer(void **state)
{
	int64_t end_ms = start_ms + 3 * day_ms;
	for (int i = 0; i < 5; i++)
		model_commit(&model, sink, 200, 50, start_ms, end_ms, end_ms + i * hour_ms);
	assert_true(tidy_up(end_ms + 30 * hour_ms) > 1 || !has(SINK_FOLDING)); /* a part of them */
	check_all(start_ms, end_ms, STEP_HOUR, 150);
	model_commit(&model, sink, 200, 0, start_ms, end_ms, end_ms + day_ms); /* late ones */
	check_all(start_ms, end_ms, STEP_HOUR, 50);
	tidy_up(end_ms + 3 * day_ms);
	check_all(start_ms, end_ms, STEP_HOUR, 150);
	model_check_books(&model, sink, true);
	check_totals();
}

static void folding_to_days_changes_no_answer(void **state)
{
	int64_t end_ms = start_ms + 9 * day_ms, now_ms = end_ms + 61 * day_ms;
	settings.impressions_ms = 365 * 86400000ULL;
	reopen();
	for (int i = 0; i < 4; i++)
		model_commit(&model, sink, 300, 50, start_ms, end_ms, end_ms + i * hour_ms);
	tidy_up(now_ms);
	check_all(start_ms, end_ms, STEP_DAY, 150);
	model_commit(&model, sink, 300, 0, start_ms, end_ms, now_ms);
	check_all(start_ms, end_ms, STEP_DAY, 50);
	tidy_up(now_ms + 2 * day_ms);
	reopen();
	check_all(start_ms, end_ms, STEP_DAY, 150);
	model_check_books(&model, sink, true);
}

static void every_step_of_folding_leaves_all_answers_right(void **state)
{
	int64_t end_ms = start_ms + day_ms, now_ms = end_ms + 70 * day_ms;
	settings.impressions_ms = 365 * 86400000ULL;
	reopen();
	model_commit(&model, sink, 600, 200, start_ms, end_ms, end_ms);
	unsigned steps = 0;
	pass_time(now_ms);
	while (sink->ops->retention(sink, now_ms) > 0) {
		if (steps++ % 3 == 0)
			reopen();
		check_all(start_ms, end_ms, STEP_DAY, 15);
		model_check_books(&model, sink, true);
	}
	assert_true(steps > 10);
}

/* --- retention --- */

static void counts_stay_when_the_rows_have_gone(void **state)
{
	int64_t end_ms = start_ms + 2 * day_ms, now_ms = end_ms + 91 * day_ms;
	model_commit(&model, sink, 400, 300, start_ms, end_ms, end_ms);
	tidy_up(now_ms);
	struct reconciliation reconciliation;
	assert_int_equal(sink->ops->reconciliation(sink, 0, true, &reconciliation), 0);
	assert_int_equal(reconciliation.visit_rows, 0);
	assert_int_equal(reconciliation.impression_rows, 0);
	model_check_books(&model, sink, false);
	for (uint64_t link = 0; link < 2; link++) {
		struct stats_query q = {.link = link,
		                        .from_ms = start_ms,
		                        .to_ms = end_ms,
		                        .step = STEP_DAY,
		                        .series_wanted = true,
		                        .dims_wanted = ~0U,
		                        .shares_max = 10};
		model_check_stats(&model, sink, &q);
	}
	model_check_window(&model, sink, start_ms - 1, end_ms);
	struct visits_query v = {.link = 1, .from_ms = 0, .to_ms = end_ms, .limit = 10, .arena = &arena};
	assert_int_equal(sink->ops->visits(sink, &v), 0);
	assert_int_equal(v.count, 0);
	assert_null(v.next.ptr);
}

static void without_rows_a_cell_counts_where_it_starts(void **state)
{
	int64_t now_ms = start_ms + 100 * day_ms;
	model_commit(&model, sink, 300, 100, start_ms, start_ms + day_ms, start_ms + day_ms);
	tidy_up(now_ms);
	struct stats_query all = {.from_ms = start_ms, .to_ms = start_ms + 1, .arena = &arena};
	struct stats_query none = {.from_ms = start_ms + 1, .to_ms = start_ms + day_ms, .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &all), 0);
	assert_int_equal(sink->ops->stats(sink, &none), 0);
	assert_int_equal(all.clicks + all.heads + all.prefetches, model.tally.clicks);
	assert_int_equal(all.unknowns + all.roots, model.tally.orphans);
	assert_int_equal(none.clicks + none.heads + none.prefetches + none.unknowns + none.roots, 0);
}

static void books_balance_when_days_are_dropped(void **state)
{
	settings.days_ms = 70 * 86400000ULL;
	reopen();
	model_commit(&model, sink, 300, 200, start_ms, start_ms + 4 * day_ms, start_ms + 4 * day_ms);
	for (int64_t day = 60; day < 80; day += 2) {
		tidy_up(start_ms + day * day_ms);
		model_check_books(&model, sink, false);
		model_check_clicks(&model, sink);
	}
	struct stats_query q = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, 0);
	struct window_query w = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->window(sink, &w), 0);
	assert_int_equal(w.count, 0);
	struct top_links_query t = {.from_ms = 0, .to_ms = INT64_MAX, .limit = 5, .arena = &arena};
	assert_int_equal(sink->ops->top_links(sink, &t), 0);
	assert_int_equal(t.count, 0);
}

static void books_balance_after_every_step_of_dropping_days(void **state)
{
	int64_t end_ms = start_ms + 40 * day_ms, now_ms = end_ms + 71 * day_ms;
	settings.days_ms = 70 * 86400000ULL;
	reopen();
	model_commit(&model, sink, 900, 700, start_ms, end_ms, end_ms);
	pass_time(now_ms);
	for (unsigned steps = 0; sink->ops->retention(sink, now_ms) > 0; steps++) {
		model_check_books(&model, sink, false);
		if (steps % MIN(MAX(backend->effort_divisor, 1), 5) == 0)
			model_check_clicks(&model, sink);
		assert_true(steps < 1000);
	}
	struct stats_query q = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, 0);
}

/* --- clocks --- */

static void a_clock_that_runs_ahead_of_the_commits_drops_nothing(void **state)
{
	int64_t now_ms = start_ms + day_ms;
	settings.days_ms = 70 * 86400000ULL;
	reopen();
	model_commit(&model, sink, 300, 200, start_ms, now_ms, now_ms);
	for (unsigned steps = 0; sink->ops->retention(sink, now_ms + 365 * day_ms) > 0; steps++)
		assert_true(steps < 1000);
	model_commit(&model, sink, 300, 200, start_ms, now_ms, now_ms);
	tidy_up(now_ms);
	check_all(start_ms, now_ms, STEP_MINUTE, 60);
	model_check_books(&model, sink, true);
}

static void impressions_are_exact_again_after_the_clock_was_wrong(void **state)
{
	int64_t now_ms = start_ms + 10 * hour_ms + 20 * minute_ms;
	model_commit(&model, sink, 0, 300, start_ms, now_ms, now_ms);
	tidy_up(now_ms + 365 * day_ms);
	model_commit(&model, sink, 0, 300, now_ms, now_ms + minute_ms, now_ms + minute_ms);
	tidy_up(now_ms + minute_ms);
	model_commit(&model, sink, 0, 300, now_ms, now_ms + 2 * minute_ms, now_ms + 2 * minute_ms);
	tidy_up(now_ms + 2 * minute_ms);
	for (int64_t ms = 0; ms < 2 * minute_ms; ms += 777)
		model_check_window(&model, sink, now_ms + ms, now_ms + 2 * minute_ms);
	model_check_window(&model, sink, start_ms - 1, now_ms + hour_ms);
	model_check_books(&model, sink, false);
}

static void visits_of_the_future_hold_up_nothing(void **state)
{
	int64_t now_ms = start_ms + day_ms, future_ms = now_ms + 400 * day_ms;
	model_commit(&model, sink, 50, 0, future_ms, future_ms + day_ms, now_ms);
	tidy_up(now_ms + 2 * minute_ms);
	model_commit(&model, sink, 300, 0, start_ms, now_ms, now_ms);
	tidy_up(now_ms + 91 * day_ms);
	struct reconciliation reconciliation;
	assert_int_equal(sink->ops->reconciliation(sink, 0, true, &reconciliation), 0);
	assert_int_equal(reconciliation.visit_rows, 0);
	model_check_books(&model, sink, false);
	struct visits_query v = {.link = 1, .from_ms = 0, .to_ms = INT64_MAX, .limit = 10, .arena = &arena};
	assert_int_equal(sink->ops->visits(sink, &v), 0);
	assert_int_equal(v.count, 0);
}

static void tidying_comes_to_an_end(void **state)
{
	model_commit(&model, sink, 100, 100, start_ms, start_ms + day_ms, start_ms + day_ms);
	tidy_up(start_ms + 200 * day_ms);
	assert_int_equal(sink->ops->retention(sink, start_ms + 200 * day_ms), 0);
}

/* --- duplicates --- */

static void an_impression_counts_once_within_the_window(void **state)
{
	int64_t window_ms = (int64_t)settings.seen_ms;
	assert_true(model_impress(&model, sink, 5, start_ms));
	assert_false(model_impress(&model, sink, 5, start_ms));
	assert_false(model_impress(&model, sink, 5, start_ms + window_ms - 1));
	assert_false(model_impress(&model, sink, 5, start_ms - window_ms + 1));
	assert_true(model_impress(&model, sink, 6, start_ms));
	assert_true(model_impress(&model, sink, 5, start_ms + window_ms));
	assert_false(model_impress(&model, sink, 5, start_ms + 2 * window_ms - 1));
	model_check_books(&model, sink, true);
}

static void what_was_seen_is_remembered_after_reopening(void **state)
{
	for (uint64_t i = 0; i < 100; i++)
		assert_true(model_impress(&model, sink, i, start_ms + (int64_t)i * 20 * minute_ms));
	reopen();
	for (uint64_t i = 40; i < 100; i++)
		assert_false(model_impress(&model, sink, i, start_ms + 100 * 20 * minute_ms));
	assert_true(model_impress(&model, sink, 0, start_ms + 100 * 20 * minute_ms));
}

/* A server was cut off from the queue for days; the others went on. */
static void what_comes_days_late_is_still_known(void **state)
{
	assert_true(model_impress(&model, sink, 5, start_ms));
	for (int day = 1; day <= 6; day++)
		assert_true(model_impress(&model, sink, 100 + (uint64_t)day, start_ms + day * day_ms));
	tidy_up(start_ms + 6 * day_ms);
	assert_false(model_impress(&model, sink, 5, start_ms + 1));
	model_check_books(&model, sink, true);
}

static void duplicates_are_those_of_the_model_over_days(void **state)
{
	for (int hour = 0; hour < 80; hour++) {
		int64_t now_ms = start_ms + hour * hour_ms;
		model_commit(&model, sink, 0, 40, now_ms - hour_ms, now_ms, now_ms);
		if (hour % 10 == 9)
			tidy_up(now_ms);
		if (hour % 17 == 16)
			reopen();
	}
	model_check_books(&model, sink, true);
	assert_true(model.duplicates > 100);
	check_all(start_ms - hour_ms, start_ms + 80 * hour_ms, STEP_MINUTE, 20);
}

/* --- edges and refusals --- */

static void a_window_is_exact_to_the_millisecond(void **state)
{
	static const int64_t at_ms[] = {-1,    0,       1,       999,      1000,    59999,
	                                60000, 3599999, 3600000, 86399999, 86400000};
	for (size_t i = 0; i < ARRAY_LEN(at_ms); i++)
		assert_true(model_impress(&model, sink, i, start_ms + at_ms[i]));
	for (size_t i = 0; i < ARRAY_LEN(at_ms); i++)
		for (size_t k = 0; k < ARRAY_LEN(at_ms); k++)
			for (int64_t d = -1; d <= 1; d++)
				model_check_window(&model, sink, start_ms + at_ms[i] + d,
				                   start_ms + at_ms[k]);
	model_check_window(&model, sink, INT64_MIN, INT64_MAX);
}

static void a_series_that_is_too_long_is_refused(void **state)
{
	struct stats_query q = {.from_ms = start_ms,
	                        .to_ms = start_ms + SINK_SERIES_MAX * minute_ms,
	                        .series_wanted = true,
	                        .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.series_count, SINK_SERIES_MAX);
	q.to_ms++;
	assert_int_equal(sink->ops->stats(sink, &q), ERR_LIMIT);
	q.step = STEP_MONTH;
	q.from_ms = INT64_MIN;
	q.to_ms = INT64_MAX;
	assert_int_equal(sink->ops->stats(sink, &q), ERR_LIMIT);
}

static void a_cursor_that_never_was_is_refused(void **state)
{
	model_commit(&model, sink, 200, 0, start_ms, start_ms + hour_ms, start_ms + hour_ms);
	struct visits_query q = {.link = 1, .from_ms = 0, .to_ms = INT64_MAX, .limit = 5, .arena = &arena};
	assert_int_equal(sink->ops->visits(sink, &q), 0);
	assert_non_null(q.next.ptr);
	char text[128];
	assert_true(q.next.len < sizeof(text));
	struct str right = q.next;
	for (size_t i = 0; i < right.len; i++) {
		memcpy(text, right.ptr, right.len);
		text[i] = text[i] == '0' ? '1' : '0';
		q.cursor = str_n(text, right.len);
		assert_int_equal(sink->ops->visits(sink, &q), ERR_INVALID);
	}
	q.cursor = str_n(right.ptr, right.len - 1);
	assert_int_equal(sink->ops->visits(sink, &q), ERR_INVALID);
	q.cursor = STR("");
	assert_int_equal(sink->ops->visits(sink, &q), ERR_INVALID);
	q.cursor = right;
	assert_int_equal(sink->ops->visits(sink, &q), 0);
	q.link = 0; /* it is another link's */
	assert_int_equal(sink->ops->visits(sink, &q), ERR_INVALID);
}

static void a_page_without_room_is_refused(void **state)
{
	struct visits_query q = {.link = 1, .from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->visits(sink, &q), ERR_INVALID);
}

/* New visits come, and what is fresh is digested and folded, while somebody reads page after page. */
static void a_walk_meets_every_visit_once_whatever_happens_meanwhile(void **state)
{
	int64_t end_ms = start_ms + 6 * hour_ms;
	model_commit(&model, sink, 800, 0, start_ms, end_ms, end_ms);
	uint64_t expected = 0, met = 0;
	for (size_t i = 0; i < model.visit_count; i++)
		expected += model.visits[i].v.link == 1;
	struct str cursor = STR_NULL;
	int64_t last_minute = INT64_MAX;
	for (int page = 0;; page++) {
		struct visits_query q = {
		    .link = 1, .from_ms = 0, .to_ms = end_ms, .cursor = cursor, .limit = 7, .arena = &arena};
		assert_int_equal(sink->ops->visits(sink, &q), 0);
		for (size_t i = 0; i < q.count; i++) {
			assert_true(q.visits[i].time_ms / minute_ms <= last_minute);
			last_minute = q.visits[i].time_ms / minute_ms;
		}
		met += q.count;
		cursor = q.next;
		if (!cursor.ptr)
			break;
		model_commit(&model, sink, 20, 0, end_ms - 1, end_ms, end_ms + page);
		if (page == 2)
			check_totals();
		else if (page == 4)
			tidy_up(end_ms + 3 * day_ms);
	}
	assert_true(expected > 50);
	assert_int_equal(met, expected);
}

/* Twenty visits of link 1 in the first minute; one before, and perhaps one ten days later. */
static void commit_minute(bool later)
{
	enum { COUNT = 20 };
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit visits[COUNT + 2];
	uint64_t duplicates;
	for (size_t i = 0; i < ARRAY_LEN(visits); i++)
		visits[i] = (struct sink_visit){.event = fresh_event(),
		                                .time_ms = start_ms,
		                                .link = 1,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	visits[0].time_ms -= minute_ms;
	visits[COUNT + 1].time_ms += 10 * day_ms;
	struct sink_batch batch = {.visits = visits,
	                           .visit_count = COUNT + 1 + later,
	                           .sets = &set,
	                           .set_count = 1,
	                           .now_ms = start_ms};
	assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
}

/* The older half of a minute's rows is dropped, and the cells are folded, between two pages. */
static void a_walk_repeats_nothing_when_rows_are_dropped_meanwhile(void **state)
{
	settings.hours_ms = 95 * 86400000ULL;
	reopen();
	commit_minute(false);
	tidy_up(start_ms + 2 * minute_ms);
	commit_minute(true);
	tidy_up(start_ms + 91 * day_ms);
	struct visits_query q = {
	    .link = 1, .from_ms = start_ms, .to_ms = start_ms + minute_ms, .limit = 15, .arena = &arena};
	assert_int_equal(sink->ops->visits(sink, &q), 0);
	assert_int_equal(q.count, 15);
	tidy_up(start_ms + 97 * day_ms);
	q.cursor = q.next;
	assert_non_null(q.cursor.ptr);
	assert_int_equal(sink->ops->visits(sink, &q), 0);
	assert_int_equal(q.count, 5);
	assert_null(q.next.ptr);
}

/* --- totals --- */

static void a_total_that_moved_on_is_not_marked(void **state)
{
	struct sink_total *totals, *again;
	size_t count, again_count;
	model_commit(&model, sink, 200, 0, start_ms, start_ms + hour_ms, start_ms);
	assert_int_equal(sink->ops->totals(sink, 100, &arena, &totals, &count), 0);
	assert_int_equal(count, MODEL_LINKS);
	model_commit(&model, sink, 200, 0, start_ms, start_ms + hour_ms, start_ms);
	assert_int_equal(sink->ops->totals(sink, 100, &arena, &again, &again_count), 0);
	assert_int_equal(sink->ops->totals_flushed(sink, totals, count), 0);
	assert_int_equal(sink->ops->totals(sink, 100, &arena, &again, &again_count), 0);
	assert_int_equal(again_count, MODEL_LINKS); /* all have moved on */
	check_totals();
	reopen();
	assert_int_equal(sink->ops->totals(sink, 100, &arena, &again, &again_count), 0);
	assert_int_equal(again_count, 0);
}

/* --- clicks, ever --- */

static void clicks_are_whole_right_after_every_commit(void **state)
{
	for (int i = 0; i < 12; i++) {
		int64_t now_ms = start_ms + i * minute_ms;
		model_commit(&model, sink, 120, 0, start_ms - day_ms, now_ms + 1, now_ms);
		model_check_clicks(&model, sink);
		if (i % 5 == 4)
			tidy_up(now_ms + 2 * minute_ms);
		if (i % 4 == 3)
			reopen();
		model_check_clicks(&model, sink);
	}
}

static void clicks_stay_when_days_are_dropped(void **state)
{
	settings.days_ms = 70 * 86400000ULL;
	reopen();
	model_commit(&model, sink, 400, 0, start_ms, start_ms + day_ms, start_ms + day_ms);
	tidy_up(start_ms + 100 * day_ms);
	struct stats_query q = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, 0);
	model_check_clicks(&model, sink);
	model_commit(&model, sink, 100, 0, start_ms + 100 * day_ms, start_ms + 101 * day_ms,
	             start_ms + 101 * day_ms);
	model_check_clicks(&model, sink);
	reopen();
	model_check_clicks(&model, sink);
}

static void as_many_links_as_are_allowed_are_asked_about_at_once(void **state)
{
	enum { LINKS = SINK_CLICKS_MAX };
	struct dimension_set set = {.kind = VISIT_CLICK, .dims[DIM_BOT] = STR("crawler")};
	struct sink_visit visits[LINKS];
	struct sink_total links[LINKS];
	uint64_t duplicates;
	for (int round = 1; round <= 3; round++) {
		for (size_t i = 0; i < LINKS; i++)
			visits[i] = (struct sink_visit){.event = fresh_event(),
			                                .time_ms = start_ms,
			                                .link = 1 + i * 2,
			                                .agent = SINK_NO_TEXT,
			                                .referrer = SINK_NO_TEXT,
			                                .place = SINK_NO_TEXT,
			                                .path = SINK_NO_TEXT};
		struct sink_batch batch = {
		    .visits = visits, .visit_count = LINKS, .sets = &set, .set_count = 1, .now_ms = start_ms};
		assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
		for (size_t i = 0; i < LINKS; i++)
			links[i] = (struct sink_total){.link = 1 + i};
		assert_int_equal(sink->ops->clicks(sink, links, LINKS), 0);
		for (size_t i = 0; i < LINKS; i++)
			assert_int_equal(links[i].clicks, i % 2 ? 0 : round);
		if (round == 1)
			tidy_up(start_ms + 2 * minute_ms);
	}
	assert_int_equal(sink->ops->clicks(sink, NULL, 0), 0);
}

/* --- bounds --- */

/* A flood of made-up headers: the counts stay right, the number of different ones does not grow for ever.
 */
static void made_up_referrers_and_languages_are_bounded(void **state)
{
	enum { SHAPES = 6000, ROUNDS = 5 };
	struct dimension_set *sets = calloc(SHAPES, sizeof(*sets));
	struct sink_visit *visits = calloc(SHAPES, sizeof(*visits));
	uint64_t duplicates;
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < SHAPES; i++) {
			sets[i].dims[DIM_REFERRER] = arena_printf(&arena, "r%u.example", round * SHAPES + i);
			sets[i].dims[DIM_LANGUAGE] = arena_printf(&arena, "l%u", round * SHAPES + i);
			visits[i] = (struct sink_visit){.event = fresh_event(),
			                                .time_ms = start_ms,
			                                .link = 1,
			                                .set = i,
			                                .agent = SINK_NO_TEXT,
			                                .referrer = SINK_NO_TEXT,
			                                .place = SINK_NO_TEXT,
			                                .path = SINK_NO_TEXT};
		}
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = SHAPES,
		                           .sets = sets,
		                           .set_count = SHAPES,
		                           .now_ms = start_ms};
		assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
	}
	struct stats_query q = {.link = 1,
	                        .from_ms = start_ms,
	                        .to_ms = start_ms + 1,
	                        .dims_wanted = 1U << DIM_REFERRER | 1U << DIM_LANGUAGE,
	                        .shares_max = ROUNDS * SHAPES,
	                        .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, ROUNDS * SHAPES);
	assert_true(q.share_count[DIM_REFERRER] < ROUNDS * SHAPES);
	assert_true(str_eq(q.shares[DIM_REFERRER][0].value, STR("(other)")));
	assert_true(q.share_count[DIM_LANGUAGE] < ROUNDS * SHAPES);
	assert_true(str_eq(q.shares[DIM_LANGUAGE][0].value, STR("(other)")));
	free(sets);
	free(visits);
}

static void many_visitors_are_estimated(void **state)
{
	enum { VISITS = 30000 };
	/* A fifth of the visitors are bots; some visitors are both, as after an update of the rules. */
	const struct dimension_set sets[] = {{.kind = VISIT_CLICK},
	                                     {.kind = VISIT_CLICK, .dims[DIM_BOT] = STR("crawler")}};
	static const uint64_t expected[] = {
	    [BOTS_INCLUDED] = 10000, [BOTS_EXCLUDED] = 9000, [BOTS_ONLY] = 2000};
	struct sink_visit *visits = calloc(VISITS, sizeof(*visits));
	uint64_t duplicates;
	for (unsigned i = 0; i < VISITS; i++)
		visits[i] = (struct sink_visit){.event = fresh_event(),
		                                .time_ms = start_ms + i,
		                                .link = 9,
		                                .visitor = (i / 3 + 1) * 0x9e3779b97f4a7c15ULL,
		                                .set = i / 3 % 5 == 0 && (i / 3 % 2 == 0 || i % 3 == 0),
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	for (int half = 0; half < 2; half++) {
		struct sink_batch batch = {.visits = visits + half * (VISITS / 2),
		                           .visit_count = VISITS / 2,
		                           .sets = sets,
		                           .set_count = ARRAY_LEN(sets),
		                           .now_ms = start_ms};
		assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
		if (half == 0)
			tidy_up(start_ms + hour_ms); /* one half in the file's sketches, one still fresh */
	}
	for (uint64_t link = 0; link <= 9; link += 9)
		for (enum stats_bots bots = BOTS_INCLUDED; bots <= BOTS_ONLY; bots++) {
			struct stats_query q = {.link = link,
			                        .from_ms = start_ms,
			                        .to_ms = start_ms + 1,
			                        .bots = bots,
			                        .arena = &arena};
			assert_int_equal(sink->ops->stats(sink, &q), 0);
			assert_true(q.has_visitors);
			assert_in_range(q.visitors, expected[bots] * 94 / 100, expected[bots] * 106 / 100);
		}
	free(visits);
}

/* --- threads --- */

static atomic_bool stop_asking;

/* Whatever moment a question sees, it is one between two commits: 7 clicks at a time. */
static void *ask_on(void *arg)
{
	(void)arg;
	uint64_t *bad = calloc(1, sizeof(*bad)), before = 0;
	while (!atomic_load(&stop_asking)) {
		struct arena a = {0};
		struct stats_query q = {
		    .link = 3, .from_ms = start_ms, .to_ms = start_ms + day_ms, .arena = &a};
		struct window_query w = {.from_ms = start_ms - 1, .to_ms = start_ms + day_ms, .arena = &a};
		struct visits_query v = {
		    .link = 3, .from_ms = 0, .to_ms = INT64_MAX, .limit = 20, .arena = &a};
		struct reconciliation reconciliation;
		struct sink_total total = {.link = 3};
		*bad += sink->ops->clicks(sink, &total, 1) != 0 || total.clicks % 7 != 0 ||
		        total.clicks < before;
		before = total.clicks;
		*bad += sink->ops->stats(sink, &q) != 0 || q.clicks % 7 != 0;
		*bad += sink->ops->window(sink, &w) != 0 || (w.count > 0 && w.ads[0].count % 7 != 0);
		*bad += sink->ops->visits(sink, &v) != 0;
		*bad += sink->ops->reconciliation(sink, 0, false, &reconciliation) != 0 ||
		        reconciliation.clicks_in_rollups % 7 != 0 ||
		        reconciliation.tally.clicks != reconciliation.clicks_in_rollups;
		arena_release(&a);
	}
	return bad;
}

static void commit_seven(unsigned round)
{
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit visits[7];
	struct sink_impression impressions[7];
	for (unsigned i = 0; i < 7; i++) {
		int64_t time_ms = start_ms + (round * 7 + i) * 1000;
		uint64_t number = round * 7 + i;
		visits[i] = (struct sink_visit){.event = fresh_event(),
		                                .time_ms = time_ms,
		                                .link = 3,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
		impressions[i] = (struct sink_impression){
		    .event = fresh_event(), .time_ms = time_ms, .received_ms = time_ms};
		impressions[i].id = impressions[i].user = impressions[i].ad = STR("x");
		memcpy(impressions[i].fingerprint, &number, sizeof(number));
	}
	struct sink_batch batch = {.visits = visits,
	                           .visit_count = 7,
	                           .impressions = impressions,
	                           .impression_count = 7,
	                           .sets = &set,
	                           .set_count = 1,
	                           .now_ms = start_ms + round * 7000,
	                           .tally = {.clicks = 7, .impressions = 7}};
	uint64_t duplicates = 1;
	assert_int_equal(sink->ops->commit(sink, &batch, &duplicates), 0);
	assert_int_equal(duplicates, 0);
}

static void threads_see_whole_commits_while_the_writer_goes_on(void **state)
{
	pthread_t threads[3];
	atomic_store(&stop_asking, false);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_on, NULL), 0);
	for (unsigned round = 0; round < effort(400); round++) {
		commit_seven(round);
		if (round % 20 == 19)
			assert_true(sink->ops->retention(sink, start_ms + round * 7000 + 61000) >= 0);
		if (round % 100 == 99)
			tidy_up(start_ms + 4 * day_ms);
	}
	atomic_store(&stop_asking, true);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		void *bad;
		pthread_join(threads[i], &bad);
		assert_int_equal(*(uint64_t *)bad, 0);
		free(bad);
	}
}

#define ROW(name_, needs_)                                                      \
	{                                                                       \
		cmocka_unit_test_setup_teardown(name_, setup, teardown), needs_ \
	}

static const struct {
	struct CMUnitTest test;
	unsigned needs; /* bits of enum sink_ability */
} all_tests[] = {
    ROW(an_empty_sink_answers_everything_with_nothing, 0),
    ROW(an_empty_batch_moves_positions_and_books_only, 0),
    ROW(reading_goes_on_where_the_last_commit_was, SINK_POSITIONS),
    ROW(many_segments_are_remembered, SINK_POSITIONS),
    ROW(a_segment_that_is_gone_is_forgotten, SINK_POSITIONS),
    ROW(answers_are_those_of_the_model_after_every_commit, 0),
    ROW(digesting_in_between_changes_no_answer, 0),
    ROW(everything_is_there_after_reopening, 0),
    ROW(folding_to_hours_changes_no_answer, 0),
    ROW(folding_to_days_changes_no_answer, 0),
    ROW(every_step_of_folding_leaves_all_answers_right, SINK_FOLDING),
    ROW(counts_stay_when_the_rows_have_gone, 0),
    ROW(without_rows_a_cell_counts_where_it_starts, SINK_FOLDING),
    ROW(books_balance_when_days_are_dropped, 0),
    ROW(books_balance_after_every_step_of_dropping_days, 0),
    ROW(a_clock_that_runs_ahead_of_the_commits_drops_nothing, 0),
    ROW(impressions_are_exact_again_after_the_clock_was_wrong, 0),
    ROW(visits_of_the_future_hold_up_nothing, 0),
    ROW(tidying_comes_to_an_end, 0),
    ROW(an_impression_counts_once_within_the_window, 0),
    ROW(what_was_seen_is_remembered_after_reopening, 0),
    ROW(what_comes_days_late_is_still_known, SINK_SHARED),
    ROW(duplicates_are_those_of_the_model_over_days, 0),
    ROW(a_window_is_exact_to_the_millisecond, 0),
    ROW(a_series_that_is_too_long_is_refused, 0),
    ROW(a_cursor_that_never_was_is_refused, 0),
    ROW(a_page_without_room_is_refused, 0),
    ROW(a_walk_meets_every_visit_once_whatever_happens_meanwhile, 0),
    ROW(a_walk_repeats_nothing_when_rows_are_dropped_meanwhile, SINK_BLOCKS),
    ROW(a_total_that_moved_on_is_not_marked, SINK_TOTALS),
    ROW(clicks_are_whole_right_after_every_commit, 0),
    ROW(clicks_stay_when_days_are_dropped, 0),
    ROW(as_many_links_as_are_allowed_are_asked_about_at_once, 0),
    ROW(made_up_referrers_and_languages_are_bounded, SINK_BOUNDS),
    ROW(many_visitors_are_estimated, 0),
    ROW(threads_see_whole_commits_while_the_writer_goes_on, 0),
};

int sink_suite_run(const struct sink_backend *of)
{
	struct CMUnitTest tests[ARRAY_LEN(all_tests)];
	size_t count = 0;
	for (size_t i = 0; i < ARRAY_LEN(all_tests); i++) {
		if ((all_tests[i].needs & ~of->abilities) == 0)
			tests[count++] = all_tests[i].test;
		else
			print_message("%s: %s is not for it\n", of->name, all_tests[i].test.name);
	}
	backend = of;
	return _cmocka_run_group_tests(of->name, tests, count, NULL, NULL);
}
