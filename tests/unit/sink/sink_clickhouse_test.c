/* What is the ClickHouse sink's alone: replays, commits that are cut, days that go while others look. */
#include "client/rowbinary.h"
#include "lib/clickhouse_kit.h"
#include "lib/relay.h"
#include "lib/test.h"
#include "sink/ads.h"
#include "sink/clickhouse_sink.h"
#include "sink/sink_clickhouse.h"

static const int64_t minute_ms = 60000, hour_ms = 3600000, day_ms = 86400000;
static const int64_t start_ms = 1790000000000 / 86400000 * 86400000;

static struct sink_settings settings;
static char url[CLICKHOUSE_KIT_BYTES];
static struct sink *sink;
static struct arena arena;

static struct sink *open_at(const char *at)
{
	struct sink *s = NULL;
	MUST(sink_clickhouse_open(at, &settings, &s, &why));
	return s;
}

static int setup(void **state)
{
	settings = (struct sink_settings){.minutes_ms = 2 * 86400000ULL,
	                                  .hours_ms = 60 * 86400000ULL,
	                                  .visits_ms = 90 * 86400000ULL,
	                                  .impressions_ms = 35 * 86400000ULL,
	                                  .seen_ms = 86400000ULL};
	clickhouse_kit_url(url);
	sink = open_at(url);
	return 0;
}

static int teardown(void **state)
{
	sink->ops->free(sink);
	clickhouse_kit_drop();
	arena_release(&arena);
	return 0;
}

static void reopen(void)
{
	sink->ops->free(sink);
	sink = open_at(url);
}

/* --- a batch with something of everything --- */

enum { VISITS = 60, IMPRESSIONS = 40, NOTES = 12, SHAPES = 6 };

struct given {
	struct dimension_set sets[SHAPES];
	struct str texts[2];
	struct sink_visit visits[VISITS];
	struct sink_impression impressions[IMPRESSIONS];
	struct sink_note notes[NOTES];
	struct sink_batch batch;
};

static void make(struct given *g, uint64_t node)
{
	static const enum visit_kind kinds[SHAPES] = {VISIT_CLICK,    VISIT_CLICK,   VISIT_HEAD,
	                                              VISIT_PREFETCH, VISIT_UNKNOWN, VISIT_ROOT};
	uint64_t position = 0;
	*g = (struct given){.texts = {STR("an agent"), STR("Hesse\nKassel")}};
	for (size_t i = 0; i < SHAPES; i++) {
		g->sets[i].kind = kinds[i];
		g->sets[i].dims[DIM_COUNTRY] = i % 2 ? STR("DE") : STR_NULL;
		g->sets[i].dims[DIM_BOT] = i == 1 ? STR("crawler") : STR_NULL;
	}
	for (size_t i = 0; i < VISITS; i++)
		g->visits[i] = (struct sink_visit){.event = {node, 1 + i % 3, ++position},
		                                   .time_ms = start_ms + (int64_t)i * 3 * hour_ms / 2,
		                                   .link = i % SHAPES < 4 ? 1 + i % 5 : 0,
		                                   .visitor = 1 + i % 20,
		                                   .set = (uint32_t)(i % SHAPES),
		                                   .agent = 0,
		                                   .referrer = SINK_NO_TEXT,
		                                   .place = 1,
		                                   .path = SINK_NO_TEXT};
	for (size_t i = 0; i < IMPRESSIONS; i++) {
		g->impressions[i] = (struct sink_impression){.event = {node, 9, ++position},
		                                             .time_ms = start_ms + (int64_t)i * 7 * minute_ms,
		                                             .received_ms = start_ms + (int64_t)i * hour_ms,
		                                             .id = STR("i"),
		                                             .user = STR("u"),
		                                             .ad = i % 3 ? STR("ad") : STR("other")};
		memcpy(g->impressions[i].fingerprint, &g->impressions[i].event.position, 8);
		memcpy(g->impressions[i].fingerprint + 8, &node, 4);
	}
	for (size_t i = 0; i < NOTES; i++)
		g->notes[i] = (struct sink_note){.event = {node, 9, ++position},
		                                 .kind = (enum sink_note_kind)(i % NOTE_KINDS),
		                                 .time_ms = start_ms + (int64_t)i * 9 * hour_ms,
		                                 .count = i % NOTE_KINDS < NOTE_REJECTED ? 1 : 5};
	g->batch = (struct sink_batch){.visits = g->visits,
	                               .visit_count = VISITS,
	                               .impressions = g->impressions,
	                               .impression_count = IMPRESSIONS,
	                               .sets = g->sets,
	                               .set_count = SHAPES,
	                               .texts = g->texts,
	                               .text_count = 2,
	                               .notes = g->notes,
	                               .note_count = NOTES,
	                               .now_ms = start_ms + 5 * day_ms};
}

static int give(struct sink *s, const struct sink_batch *b)
{
	uint64_t duplicates = 1;
	int r = s->ops->commit(s, b, &duplicates);
	if (r == 0)
		assert_int_equal(duplicates, 0);
	return r;
}

static void give_all(const struct sink_batch *b)
{
	assert_int_equal(give(sink, b), 0);
}

/* --- everything that it answers, as a text --- */

static void write_stats(struct buf *out, struct sink *s, uint64_t link)
{
	struct stats_query q = {.link = link,
	                        .from_ms = start_ms,
	                        .to_ms = start_ms + 5 * day_ms,
	                        .step = STEP_HOUR,
	                        .series_wanted = true,
	                        .dims_wanted = 1U << DIM_COUNTRY | 1U << DIM_BOT,
	                        .shares_max = 5,
	                        .arena = &arena};
	assert_int_equal(s->ops->stats(s, &q), 0);
	buf_printf(out, "link %d: %d %d %d %d %d %d %d;", (int)link, (int)q.clicks, (int)q.bot_clicks,
	           (int)q.heads, (int)q.prefetches, (int)q.unknowns, (int)q.roots, (int)q.visitors);
	for (size_t i = 0; i < q.series_count; i++)
		buf_printf(out, " %d", (int)q.series[i].clicks);
	for (int dim = 0; dim < DIM_COUNT; dim++)
		for (size_t i = 0; i < q.share_count[dim]; i++)
			buf_printf(out, " %s=%d", q.shares[dim][i].value.ptr, (int)q.shares[dim][i].clicks);
}

static void write_visits(struct buf *out, struct sink *s, uint64_t link)
{
	struct visits_query q = {
	    .link = link, .from_ms = start_ms, .to_ms = start_ms + 5 * day_ms, .limit = 4, .arena = &arena};
	do {
		assert_int_equal(s->ops->visits(s, &q), 0);
		for (size_t i = 0; i < q.count; i++)
			buf_printf(out, " %lld/%s", (long long)(q.visits[i].time_ms - start_ms),
			           q.visits[i].city.ptr);
		q.cursor = q.next;
	} while (q.next.ptr);
}

static void write_counts(struct buf *out, struct sink *s)
{
	struct sink_total totals[5];
	for (size_t i = 0; i < ARRAY_LEN(totals); i++)
		totals[i].link = i + 1;
	assert_int_equal(s->ops->clicks(s, totals, ARRAY_LEN(totals)), 0);
	for (size_t i = 0; i < ARRAY_LEN(totals); i++)
		buf_printf(out, " %d", (int)totals[i].clicks);
	for (uint64_t node = 0; node < 3; node++) {
		struct reconciliation b;
		assert_int_equal(s->ops->reconciliation(s, node, false, &b), 0);
		buf_printf(out, " node %d: %d %d %d %d %d %d %d %d; %d %d %d %d", (int)node,
		           (int)b.tally.clicks, (int)b.tally.orphans, (int)b.tally.impressions,
		           (int)b.tally.duplicates, (int)b.tally.unusable_clicks,
		           (int)b.tally.unusable_impressions, (int)b.tally.rejected,
		           (int)b.tally.dropped_clicks, (int)b.clicks_in_rollups, (int)b.orphans_in_rollups,
		           (int)b.impressions_counted, (int)b.duplicates);
	}
}

/* Clicks and books only: what stays when days go. */
static struct str counts_of(struct sink *s)
{
	struct buf out = {0};
	write_counts(&out, s);
	struct str text = arena_str(&arena, buf_view(&out));
	buf_release(&out);
	return text;
}

static struct str answers_of(struct sink *s)
{
	struct buf out = {0};
	struct window_query w = {.from_ms = start_ms, .to_ms = start_ms + day_ms, .arena = &arena};
	struct top_links_query t = {
	    .from_ms = start_ms, .to_ms = start_ms + 5 * day_ms, .limit = 10, .arena = &arena};
	struct reconciliation deep;
	for (uint64_t link = 0; link < 3; link++) {
		write_stats(&out, s, link);
		write_visits(&out, s, link);
	}
	assert_int_equal(s->ops->window(s, &w), 0);
	for (size_t i = 0; i < w.count; i++)
		buf_printf(&out, " %s=%d", w.ads[i].ad.ptr, (int)w.ads[i].count);
	assert_int_equal(s->ops->top_links(s, &t), 0);
	for (size_t i = 0; i < t.count; i++)
		buf_printf(&out, " %d=%d", (int)t.links[i].link, (int)t.links[i].clicks);
	assert_int_equal(s->ops->reconciliation(s, 0, true, &deep), 0);
	buf_printf(&out, " rows %d %d", (int)deep.visit_rows, (int)deep.impression_rows);
	write_counts(&out, s);
	struct str text = arena_str(&arena, buf_view(&out));
	buf_release(&out);
	return text;
}

static void assert_answers(struct str expected)
{
	assert_string_equal(answers_of(sink).ptr, expected.ptr);
}

/* --- replays --- */

TEST(what_is_given_again_is_counted_once)
{
	struct given g;
	make(&g, 1);
	give_all(&g.batch);
	struct str expected = answers_of(sink);
	assert_non_null(strstr(expected.ptr, "rows 60 40"));
	give_all(&g.batch);
	assert_answers(expected);
	reopen();
	give_all(&g.batch);
	assert_answers(expected);
	clickhouse_kit_run("OPTIMIZE TABLE visit", NULL);
	clickhouse_kit_run("OPTIMIZE TABLE impression", NULL);
	clickhouse_kit_run("OPTIMIZE TABLE note", NULL);
	assert_answers(expected);
}

TEST(what_is_given_again_in_other_pieces_is_counted_once)
{
	struct given g;
	make(&g, 1);
	give_all(&g.batch);
	struct str expected = answers_of(sink);
	for (size_t at = 0; at < VISITS; at += 13) {
		struct sink_batch piece = g.batch;
		piece.visits += at;
		piece.visit_count = MIN(VISITS - at, 25); /* they overlap */
		piece.impressions += MIN(at, IMPRESSIONS);
		piece.impression_count = MIN(IMPRESSIONS - MIN(at, IMPRESSIONS), 25);
		piece.notes += MIN(at, NOTES);
		piece.note_count = NOTES - MIN(at, NOTES);
		give_all(&piece);
	}
	assert_answers(expected);
}

/* What is found out about a visit may differ when it is read again: rules and places are brought up to date.
 */
TEST(a_visit_that_looks_otherwise_the_second_time_is_counted_once)
{
	struct given g;
	make(&g, 1);
	give_all(&g.batch);
	for (size_t i = 0; i < SHAPES; i++) {
		g.sets[i].dims[DIM_COUNTRY] = STR("FR");
		g.sets[i].dims[DIM_BOT] = STR("checker");
	}
	give_all(&g.batch);
	struct stats_query q = {.from_ms = start_ms,
	                        .to_ms = start_ms + 5 * day_ms,
	                        .dims_wanted = 1U << DIM_COUNTRY,
	                        .shares_max = 5,
	                        .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, VISITS / SHAPES * 2);
	assert_int_equal(q.clicks + q.heads + q.prefetches + q.unknowns + q.roots, VISITS);
	assert_int_equal(q.share_count[DIM_COUNTRY], 1);
}

/* --- commits that fail --- */

static const char *const inserts[] = {"INTO%20visit", "INTO%20impression", "INTO%20seen", "INTO%20note"};

/* Before the server has it, and when it has it but the answer is lost; at each table. */
TEST(a_commit_that_was_cut_is_made_whole_by_the_next)
{
	char through[CLICKHOUSE_KIT_BYTES];
	struct relay *relay = relay_start(getenv("CURT_TEST_CLICKHOUSE"));
	assert_non_null(relay);
	snprintf(through, sizeof(through), "clickhouse://%s%s", relay_address(relay), strrchr(url, '/'));
	struct sink *cut = open_at(through);
	for (size_t i = 0; i < 2 * ARRAY_LEN(inserts); i++) {
		struct given g;
		make(&g, 10 + i);
		relay_cut_at(relay, inserts[i / 2], i % 2, true);
		assert_int_equal(give(cut, &g.batch), ERR_UNAVAILABLE);
		relay_set(relay, RELAY_PASS);
		UNTIL(give(cut, &g.batch) == 0); /* the first may still be at it */
		struct reconciliation b;
		assert_int_equal(cut->ops->reconciliation(cut, 10 + i, true, &b), 0);
		assert_int_equal(b.visit_rows, VISITS);
		assert_int_equal(b.impressions_counted, IMPRESSIONS);
		assert_int_equal(b.tally.rejected + b.tally.dropped_clicks, 20);
	}
	struct buf answer = {0};
	clickhouse_kit_run("SELECT count(), toUInt8(0) FROM seen FINAL FORMAT RowBinary", &answer);
	struct row_reader rows = row_reader_of(&answer);
	assert_int_equal(row_u64(&rows), IMPRESSIONS * 2 * ARRAY_LEN(inserts));
	buf_release(&answer);
	cut->ops->free(cut);
	relay_stop(relay);
}

/* Another batch may come instead: nothing of the one before is taken for it. */
TEST(a_batch_after_one_that_failed_is_inserted_whole)
{
	char through[CLICKHOUSE_KIT_BYTES];
	struct relay *relay = relay_start(getenv("CURT_TEST_CLICKHOUSE"));
	snprintf(through, sizeof(through), "clickhouse://%s%s", relay_address(relay), strrchr(url, '/'));
	struct sink *cut = open_at(through);
	struct given first, second;
	make(&first, 1);
	make(&second, 2);
	relay_cut_at(relay, inserts[3], false, true);
	assert_int_equal(give(cut, &first.batch), ERR_UNAVAILABLE);
	relay_set(relay, RELAY_PASS);
	UNTIL(give(cut, &second.batch) == 0);
	UNTIL(give(cut, &first.batch) == 0);
	struct reconciliation b;
	for (uint64_t node = 1; node <= 2; node++) {
		assert_int_equal(cut->ops->reconciliation(cut, node, true, &b), 0);
		assert_int_equal(b.visit_rows + b.impression_rows, VISITS + IMPRESSIONS);
		assert_int_equal(b.tally.rejected + b.tally.dropped_clicks, 20);
	}
	cut->ops->free(cut);
	relay_stop(relay);
}

TEST(too_many_parts_ask_for_patience)
{
	struct sink_note note = {.event = {1, 1, 1}, .kind = NOTE_REJECTED, .time_ms = start_ms, .count = 3};
	struct sink_batch batch = {.notes = &note, .note_count = 1, .now_ms = start_ms};
	clickhouse_kit_run("DROP TABLE note", NULL);
	clickhouse_kit_run(
	    "CREATE TABLE note (day Date, node UInt64, segment UInt64, position UInt64,"
	    " kind UInt8, time Int64, count UInt64) ENGINE = ReplacingMergeTree PARTITION BY day"
	    " ORDER BY (node, segment, position, kind)"
	    " SETTINGS parts_to_delay_insert = 1, parts_to_throw_insert = 1",
	    NULL);
	give_all(&batch);
	note.event.position = 2;
	assert_int_equal(give(sink, &batch), ERR_LIMIT);
	assert_int_equal(give(sink, &batch), ERR_LIMIT);
	clickhouse_kit_run("ALTER TABLE note DROP PARTITION '2026-09-21'", NULL);
	give_all(&batch);
	struct reconciliation b;
	assert_int_equal(sink->ops->reconciliation(sink, 0, false, &b), 0);
	assert_int_equal(b.tally.rejected, 3);
}

/* Its server needs a second for every row, and is given a tenth. */
TEST(a_block_that_takes_longer_than_it_may_is_given_longer)
{
	struct sink_note note = {.event = {1, 1, 1}, .kind = NOTE_REJECTED, .time_ms = start_ms, .count = 3};
	struct sink_batch batch = {.notes = &note, .note_count = 1, .now_ms = start_ms};
	clickhouse_kit_run("DROP TABLE note", NULL);
	clickhouse_kit_run(
	    "CREATE TABLE note (day Date, node UInt64, segment UInt64, position UInt64, kind UInt8, time "
	    "Int64,"
	    " count UInt64, pause UInt8 MATERIALIZED sleepEachRow(1.0)) ENGINE = ReplacingMergeTree"
	    " PARTITION BY day ORDER BY (node, segment, position, kind)",
	    NULL);
	container_of(sink, struct sink_clickhouse, base)->insert_timeout_ms = 100;
	assert_int_equal(give(sink, &batch), ERR_UNAVAILABLE);
	UNTIL(give(sink, &batch) == 0);
	struct reconciliation b;
	assert_int_equal(sink->ops->reconciliation(sink, 0, false, &b), 0);
	assert_int_equal(b.tally.rejected, 3);
}

TEST(a_server_that_goes_away_is_an_error_and_comes_back)
{
	char through[CLICKHOUSE_KIT_BYTES];
	struct relay *relay = relay_start(getenv("CURT_TEST_CLICKHOUSE"));
	snprintf(through, sizeof(through), "clickhouse://%s%s", relay_address(relay), strrchr(url, '/'));
	struct sink *s = open_at(through), *none = NULL;
	struct err e = {""};
	assert_int_equal(s->ops->ping(s, &e), 0);
	relay_set(relay, RELAY_CUT);
	assert_int_equal(s->ops->ping(s, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "ClickHouse at "));
	struct window_query w = {.from_ms = start_ms, .to_ms = start_ms + 1, .arena = &arena};
	assert_int_equal(s->ops->window(s, &w), ERR_UNAVAILABLE);
	assert_int_equal(sink_clickhouse_open(through, &settings, &none, &e), ERR_UNAVAILABLE);
	assert_null(none);
	relay_set(relay, RELAY_PASS);
	assert_int_equal(s->ops->ping(s, &e), 0);
	assert_int_equal(s->ops->window(s, &w), 0);
	s->ops->free(s);
	relay_stop(relay);
}

TEST(a_refused_sign_in_says_what_to_do)
{
	char at[CLICKHOUSE_KIT_BYTES];
	struct sink *none = NULL;
	struct err e = {""};
	snprintf(at, sizeof(at), "clickhouse://nobody:hidden@%s/curt", getenv("CURT_TEST_CLICKHOUSE"));
	assert_int_equal(sink_clickhouse_open(at, &settings, &none, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "put the right user and password"));
	assert_null(strstr(e.text, "hidden"));
	assert_null(none);
}

/* --- recall --- */

TEST(an_impression_that_is_read_again_is_no_duplicate)
{
	struct given g;
	make(&g, 1);
	give_all(&g.batch);
	struct duplicate_query asked[4];
	const struct sink_impression *i = &g.impressions[5];
	for (size_t k = 0; k < ARRAY_LEN(asked); k++) {
		asked[k] = (struct duplicate_query){
		    .event = {7, 7, k}, .received_ms = i->received_ms, .is_duplicate = k % 2};
		memcpy(asked[k].fingerprint, g.impressions[5 + k].fingerprint, SINK_FINGERPRINT_BYTES);
	}
	asked[0].event = i->event;                                        /* itself */
	asked[2].received_ms = g.impressions[7].received_ms + day_ms;     /* just outside */
	asked[3].received_ms = g.impressions[8].received_ms - day_ms + 1; /* just inside */
	assert_int_equal(sink->ops->find_duplicates(sink, asked, ARRAY_LEN(asked)), 0);
	assert_false(asked[0].is_duplicate);
	assert_true(asked[1].is_duplicate);
	assert_false(asked[2].is_duplicate);
	assert_true(asked[3].is_duplicate);
	for (size_t k = 0; k < ARRAY_LEN(asked); k++)
		assert_int_equal(asked[k].is_replay, k == 0);
}

TEST(of_several_that_are_the_same_it_knows_which_was_counted)
{
	struct given g;
	make(&g, 1);
	assert_int_equal(sink->ops->has_fingerprints(sink), 0);
	give_all(&g.batch);
	assert_int_equal(sink->ops->has_fingerprints(sink), 1);
	struct duplicate_query asked[6];
	const struct sink_impression *i = &g.impressions[5];
	for (size_t k = 0; k < ARRAY_LEN(asked); k++) {
		asked[k] = (struct duplicate_query){.event = {7, 7, k}, .received_ms = i->received_ms + 1};
		memcpy(asked[k].fingerprint, i->fingerprint, SINK_FINGERPRINT_BYTES);
	}
	asked[3].event = i->event;
	asked[4] = (struct duplicate_query){.event = {7, 7, 4}, .received_ms = i->received_ms};
	assert_int_equal(sink->ops->find_duplicates(sink, asked, ARRAY_LEN(asked)), 0);
	for (size_t k = 0; k < ARRAY_LEN(asked); k++) {
		assert_int_equal(asked[k].is_replay, k == 3);
		assert_int_equal(asked[k].is_duplicate, k != 3 && k != 4);
	}
}

TEST(many_are_recalled_at_once)
{
	enum { MANY = 23000 };
	struct sink_impression *impressions = calloc(MANY, sizeof(*impressions));
	struct duplicate_query *asked = calloc(MANY, sizeof(*asked));
	for (uint64_t i = 0; i < MANY; i++) {
		impressions[i] = (struct sink_impression){
		    .event = {1, 1, i}, .time_ms = start_ms, .received_ms = start_ms, .ad = STR("ad")};
		uint64_t spread = (i / 2) * 0x9e3779b97f4a7c15u;
		memcpy(impressions[i].fingerprint, &spread, 8);
		memcpy(impressions[i].fingerprint + 8, &(uint32_t){i % 2}, 4);
		asked[i] = (struct duplicate_query){.event = {2, 2, i}, .received_ms = start_ms + 1};
		memcpy(asked[i].fingerprint, impressions[i].fingerprint, SINK_FINGERPRINT_BYTES);
	}
	struct sink_batch batch = {
	    .impressions = impressions, .impression_count = MANY / 2, .now_ms = start_ms};
	give_all(&batch);
	assert_int_equal(sink->ops->find_duplicates(sink, asked, MANY), 0);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(asked[i].is_duplicate, i < MANY / 2);
	free(impressions);
	free(asked);
}

/* --- time --- */

static uint64_t number(const char *sql)
{
	struct buf answer = {0};
	clickhouse_kit_run(sql, &answer);
	struct row_reader rows = row_reader_of(&answer);
	uint64_t n = row_u64(&rows);
	buf_release(&answer);
	return n;
}

TEST(times_that_cannot_be_share_two_days)
{
	enum { MANY = 400 };
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit visits[MANY];
	for (size_t i = 0; i < MANY; i++)
		visits[i] = (struct sink_visit){.event = {1, 1, i},
		                                .time_ms = i % 2 ? 253402300799999 - (int64_t)i * day_ms
		                                                 : (int64_t)i * day_ms + 1,
		                                .link = 1,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	struct sink_batch batch = {
	    .visits = visits, .visit_count = MANY, .sets = &set, .set_count = 1, .now_ms = start_ms};
	give_all(&batch);
	assert_int_equal(number("SELECT uniqExact(day), toUInt8(0) FROM visit FORMAT RowBinary"), 2);
	struct stats_query q = {.from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, MANY);
	q.to_ms = 10 * day_ms; /* the first ones, exactly */
	assert_int_equal(sink->ops->stats(sink, &q), 0);
	assert_int_equal(q.clicks, 5);
}

TEST(more_days_than_the_server_likes_are_taken_at_once)
{
	enum { DAYS = 130 };
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit visits[DAYS];
	for (size_t i = 0; i < DAYS; i++)
		visits[i] = (struct sink_visit){.event = {1, 1, i},
		                                .time_ms = start_ms - (int64_t)i * day_ms,
		                                .link = 1,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	struct sink_batch batch = {
	    .visits = visits, .visit_count = DAYS, .sets = &set, .set_count = 1, .now_ms = start_ms};
	give_all(&batch);
	struct sink_total total = {.link = 1};
	assert_int_equal(sink->ops->clicks(sink, &total, 1), 0);
	assert_int_equal(total.clicks, DAYS);
}

static void tidy_up(struct sink *s, int64_t now_ms)
{
	struct sink_batch batch = {.now_ms = now_ms};
	assert_int_equal(give(s, &batch), 0);
	int r = 1;
	for (int i = 0; i < 200 && r > 0; i++)
		r = s->ops->retention(s, now_ms);
	assert_int_equal(r, 0);
}

static uint64_t parts_unmerged(void)
{
	return number("SELECT count(), toUInt8(0) FROM system.parts WHERE active AND database ="
	              " currentDatabase() AND table IN ('visit', 'impression', 'note') AND level = 0"
	              " FORMAT RowBinary");
}

TEST(details_are_gone_from_the_disk_when_they_are_past)
{
	struct given g;
	make(&g, 1);
	give_all(&g.batch);
	struct str before = counts_of(sink);
	tidy_up(sink, start_ms + 200 * day_ms);
	assert_int_equal(
	    number("SELECT toUInt64(sum(length(agent) + length(place) + length(address))), toUInt8(0)"
	           " FROM visit FORMAT RowBinary"),
	    0);
	assert_int_equal(number("SELECT toUInt64(sum(length(id) + length(user))), toUInt8(0) FROM impression"
	                        " FORMAT RowBinary"),
	                 0);
	assert_int_equal(number("SELECT toUInt64(count()), toUInt8(0) FROM seen WHERE day < '2026-09-22'"
	                        " FORMAT RowBinary"),
	                 24); /* the newest are of that day and the next: within the slack */
	assert_string_equal(counts_of(sink).ptr, before.ptr);
	give_all(&g.batch); /* read again, with details */
	assert_string_equal(counts_of(sink).ptr, before.ptr);
	tidy_up(sink, start_ms + 200 * day_ms);
	assert_int_equal(number("SELECT toUInt64(sum(details)), toUInt8(0) FROM visit FORMAT RowBinary"), 0);
}

/* Read without FINAL, until something comes for them. */
TEST(days_that_were_made_one_part_count_the_same)
{
	struct given a, b;
	make(&a, 1);
	make(&b, 2);
	give_all(&a.batch);
	give_all(&b.batch);
	struct str expected = answers_of(sink);
	give_all(&a.batch);
	container_of(sink, struct sink_clickhouse, base)->quiet_s = 0;
	for (int round = 0; round < 2; round++) {
		UNTIL((tidy_up(sink, start_ms + 20 * day_ms), parts_unmerged() == 0));
		assert_answers(expected);
		give_all(&b.batch);
		assert_answers(expected);
	}
}

/* --- days that go --- */

static void set_days(uint64_t days)
{
	settings.days_ms = days * 86400000ULL;
	reopen();
}

TEST(what_counts_stays_when_the_days_go)
{
	struct given a, b;
	make(&a, 1);
	make(&b, 2);
	give_all(&a.batch);
	give_all(&b.batch);
	give_all(&a.batch);
	struct str before = counts_of(sink);
	set_days(100);
	assert_string_equal(counts_of(sink).ptr, before.ptr);
	tidy_up(sink, start_ms + 102 * day_ms); /* some of them */
	assert_string_equal(counts_of(sink).ptr, before.ptr);
	tidy_up(sink, start_ms + 150 * day_ms);
	assert_string_equal(counts_of(sink).ptr, before.ptr);
	assert_int_equal(
	    number("SELECT count(), toUInt8(0) FROM (SELECT node FROM visit UNION ALL SELECT node FROM"
	           " impression UNION ALL SELECT node FROM note) FORMAT RowBinary"),
	    0);
	/* One that comes late counts, too, and goes again. */
	struct sink_batch late = a.batch;
	struct sink_visit visit = a.visits[0];
	visit.event.position = 1000;
	late.visits = &visit;
	late.visit_count = 1;
	late.impression_count = late.note_count = 0;
	late.now_ms = start_ms + 150 * day_ms;
	give_all(&late);
	struct sink_total total = {.link = visit.link};
	assert_int_equal(sink->ops->clicks(sink, &total, 1), 0);
	struct str with_late = counts_of(sink);
	assert_string_not_equal(with_late.ptr, before.ptr);
	tidy_up(sink, start_ms + 150 * day_ms);
	assert_string_equal(counts_of(sink).ptr, with_late.ptr);
	assert_int_equal(number("SELECT count(), toUInt8(0) FROM visit FORMAT RowBinary"), 0);
}

/* What a worker leaves behind when it dies before any of its statements. */
TEST(a_worker_that_dies_while_days_go_leaves_all_counts_right)
{
	static const char *const statements[] = {
	    "INSERT INTO day_gone SELECT toUInt8(0), toDate('2026-09-21'), toUInt32(0), toUInt8(0)",
	    "INSERT INTO day_total SELECT toUInt8(0), link, day, toUInt32(0), node, countIf(kind = 0),"
	    " count() FROM visit FINAL WHERE day = '2026-09-21' AND link IN (1, 2) GROUP BY day, node, link",
	    "INSERT INTO day_total SELECT toUInt8(0), link, day, toUInt32(0), node, countIf(kind = 0),"
	    " count() FROM visit FINAL WHERE day = '2026-09-21' GROUP BY day, node, link",
	    "INSERT INTO day_gone SELECT toUInt8(0), toDate('2026-09-21'), toUInt32(0), toUInt8(1)",
	    "INSERT INTO day_total SELECT toUInt8(0), link, day, toUInt32(0), node, countIf(kind = 0),"
	    " count() FROM visit FINAL WHERE day = '2026-09-21' GROUP BY day, node, link",
	    "ALTER TABLE visit DROP PARTITION '2026-09-21'",
	    "INSERT INTO day_gone SELECT toUInt8(0), toDate('2026-09-21'), toUInt32(0), toUInt8(2)",
	};
	struct given g;
	make(&g, 1);
	set_days(100);
	for (size_t dies = 0; dies <= ARRAY_LEN(statements); dies++) {
		give_all(&g.batch);
		struct str before = counts_of(sink);
		for (size_t i = 0; i < dies; i++)
			clickhouse_kit_run(statements[i], NULL);
		assert_string_equal(counts_of(sink).ptr, before.ptr);
		reopen();
		tidy_up(sink, start_ms + 101 * day_ms);
		assert_string_equal(counts_of(sink).ptr, before.ptr);
		teardown(NULL);
		setup(NULL);
		set_days(100);
	}
}

TEST(a_day_that_a_dead_worker_dropped_takes_what_comes_late)
{
	static const char *const statements[] = {
	    "INSERT INTO day_total SELECT toUInt8(0), link, day, toUInt32(0), node, countIf(kind = 0),"
	    " count() FROM visit FINAL WHERE day = '2026-09-21' GROUP BY day, node, link",
	    "INSERT INTO day_gone SELECT toUInt8(0), toDate('2026-09-21'), toUInt32(0), toUInt8(1)",
	    "ALTER TABLE visit DROP PARTITION '2026-09-21'",
	};
	struct given g;
	make(&g, 1);
	set_days(100);
	give_all(&g.batch);
	struct sink_total before = {.link = g.visits[0].link}, now = before;
	assert_int_equal(sink->ops->clicks(sink, &before, 1), 0);
	for (size_t i = 0; i < ARRAY_LEN(statements); i++)
		clickhouse_kit_run(statements[i], NULL);
	tidy_up(sink, start_ms + 101 * day_ms);
	struct sink_visit late = g.visits[0];
	late.event.position = 1000;
	struct sink_batch batch = g.batch;
	batch.visits = &late;
	batch.visit_count = 1;
	batch.impression_count = batch.note_count = 0;
	give_all(&batch);
	assert_int_equal(sink->ops->clicks(sink, &now, 1), 0);
	assert_int_equal(now.clicks, before.clicks + 1);
	tidy_up(sink, start_ms + 101 * day_ms);
	assert_int_equal(number("SELECT count(), toUInt8(0) FROM visit WHERE day = '2026-09-21'"
	                        " FORMAT RowBinary"),
	                 0);
	assert_int_equal(sink->ops->clicks(sink, &now, 1), 0);
	assert_int_equal(now.clicks, before.clicks + 1);
}

/* As with the other sinks: what counts by the hour needs the days. */
TEST(days_stay_as_long_as_hours_would)
{
	struct given g;
	make(&g, 1);
	set_days(10);
	give_all(&g.batch);
	tidy_up(sink, start_ms + 50 * day_ms);
	assert_int_equal(number("SELECT count(), toUInt8(0) FROM visit FORMAT RowBinary"), VISITS);
	tidy_up(sink, start_ms + 70 * day_ms);
	assert_int_equal(number("SELECT count(), toUInt8(0) FROM visit FORMAT RowBinary"), 0);
}

static void *tidy_on(void *arg)
{
	struct sink *s = arg;
	struct sink_batch batch = {.now_ms = start_ms + 150 * day_ms};
	uint64_t duplicates;
	int r = s->ops->commit(s, &batch, &duplicates);
	for (int i = 0; i < 200 && (r == 0 || r > 0); i++) {
		r = s->ops->retention(s, start_ms + 150 * day_ms);
		if (r == 0)
			break;
	}
	return (void *)(intptr_t)r;
}

TEST(several_workers_apply_retention_at_once)
{
	struct given a, b;
	make(&a, 1);
	make(&b, 2);
	give_all(&a.batch);
	give_all(&b.batch);
	struct str before = counts_of(sink);
	set_days(100);
	struct sink *workers[3];
	pthread_t threads[ARRAY_LEN(workers)];
	for (size_t i = 0; i < ARRAY_LEN(workers); i++)
		workers[i] = open_at(url);
	for (size_t i = 0; i < ARRAY_LEN(workers); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, tidy_on, workers[i]), 0);
	assert_string_equal(counts_of(sink).ptr, before.ptr);
	for (size_t i = 0; i < ARRAY_LEN(workers); i++) {
		void *r;
		pthread_join(threads[i], &r);
		assert_int_equal((intptr_t)r, 0);
		workers[i]->ops->free(workers[i]);
	}
	assert_string_equal(counts_of(sink).ptr, before.ptr);
}

/* --- names that anybody makes up --- */

TEST(ads_beyond_the_bound_are_reported_together)
{
	enum { TOO_MANY = 10 };
	clickhouse_kit_run(
	    "INSERT INTO impression (day, minute, ad, node, segment, position, time, received)"
	    " SELECT toDate(intDiv(1790000000000, 86400000)), toUInt32(intDiv(1790000000000, 60000)),"
	    " concat('ad', toString(number)), 1, 1, number, 1790000000000, 1790000000000 FROM system.numbers"
	    " LIMIT 50010",
	    NULL);
	struct sink_impression twice[2];
	for (size_t i = 0; i < ARRAY_LEN(twice); i++)
		twice[i] = (struct sink_impression){.event = {1, 2, i},
		                                    .time_ms = 1790000000000,
		                                    .received_ms = 1790000000000,
		                                    .fingerprint = {(uint8_t)i},
		                                    .ad = STR("zz")};
	struct sink_batch batch = {.impressions = twice, .impression_count = 2, .now_ms = start_ms};
	give_all(&batch);
	struct window_query w = {.from_ms = start_ms, .to_ms = start_ms + day_ms, .arena = &arena};
	assert_int_equal(sink->ops->window(sink, &w), 0);
	assert_int_equal(w.count, ADS_MAX + 1);
	assert_string_equal(w.ads[0].ad.ptr, ADS_OTHER);
	assert_int_equal(w.ads[0].count, TOO_MANY + 1);
	assert_string_equal(w.ads[w.count - 1].ad.ptr, "zz");
	assert_int_equal(w.ads[w.count - 1].count, 2);
}

/* --- several nodes --- */

TEST(visits_of_one_minute_have_one_order_for_all_recorders)
{
	enum { MANY = 30 };
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit visits[MANY];
	for (size_t i = 0; i < MANY; i++)
		visits[i] = (struct sink_visit){.event = {1 + i % 3, 5 + i % 2, UINT64_MAX - i},
		                                .time_ms = start_ms + (int64_t)i,
		                                .link = 1,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	struct sink_batch batch = {
	    .visits = visits, .visit_count = MANY, .sets = &set, .set_count = 1, .now_ms = start_ms};
	give_all(&batch);
	int64_t order[MANY], again[MANY];
	for (size_t limit = 1; limit <= MANY; limit += 7) {
		struct visits_query q = {
		    .link = 1, .from_ms = 0, .to_ms = INT64_MAX, .limit = limit, .arena = &arena};
		size_t met = 0;
		do {
			assert_int_equal(sink->ops->visits(sink, &q), 0);
			for (size_t i = 0; i < q.count; i++)
				again[met++] = q.visits[i].time_ms - start_ms;
			q.cursor = q.next;
			give_all(&batch);
		} while (q.next.ptr && met < MANY);
		assert_int_equal(met, MANY);
		assert_null(q.next.ptr);
		if (limit == 1)
			memcpy(order, again, sizeof(order));
		assert_memory_equal(order, again, sizeof(order));
	}
	/* Of one node and segment, the last recorded first. */
	for (size_t i = 1; i < MANY; i++) {
		struct event_id x = visits[order[i - 1]].event, y = visits[order[i]].event;
		assert_true(x.node > y.node || (x.node == y.node && x.segment > y.segment) ||
		            (x.node == y.node && x.segment == y.segment && x.position > y.position));
	}
}

int main(void)
{
	if (!clickhouse_kit_is_there())
		return 0;
	return RUN_TESTS(.setup = setup, .teardown = teardown);
}
