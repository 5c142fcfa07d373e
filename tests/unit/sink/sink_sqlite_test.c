/* What the SQLite sink promises beyond the role; the role itself is in tests/conformance/sink_test.c, and
 * what holds for every SQLite file in tests/unit/client/sqlite_file*_test.c. */
#include "base/buf.h"
#include "lib/sink_model.h"
#include "lib/test.h"
#include "os/file.h"
#include "sink/sink_sqlite.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

static const int64_t start_ms = 1790000000000 / 86400000 * 86400000, day_ms = 86400000;
static const struct sink_settings settings = {.minutes_ms = 2 * 86400000ULL,
                                              .hours_ms = 60 * 86400000ULL,
                                              .visits_ms = 90 * 86400000ULL,
                                              .impressions_ms = 35 * 86400000ULL,
                                              .seen_ms = 86400000ULL};
static struct temp folder;
static char path[TEMP_PATH_BYTES];
static struct err error;

static int setup(void **state)
{
	temp_init(&folder);
	temp_path(&folder, "stats.db", path);
	error.text[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	temp_release(&folder);
	return 0;
}

static struct sink *open_sink(void)
{
	struct sink *s = NULL;
	assert_int_equal(sink_sqlite_open(path, &settings, &s, &error), 0);
	return s;
}

static void set_version(const char *value)
{
	sqlite3 *db;
	char sql[64];
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %s", value);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Pages of random bytes where the tables were: answers may be errors, never a crash. */
TEST(a_damaged_file_gives_errors)
{
	struct model m;
	model_init(&m, 3, day_ms);
	struct sink *s = open_sink();
	for (int i = 0; i < 3; i++)
		model_commit(&m, s, 700, 300, start_ms, start_ms + day_ms, start_ms + day_ms);
	while (s->ops->retention(s, start_ms + 10 * day_ms) > 0)
		;
	s->ops->free(s);
	CLEANUP(buf_release) struct buf whole = {0};
	assert_int_equal(file_read(path, 64 << 20, &whole, NULL), 0);
	for (int round = 0; round < 40; round++) {
		CLEANUP(buf_release) struct buf bad = {0};
		struct arena arena = {0};
		buf_append(&bad, whole.data, whole.len);
		for (int k = 0; k < 40; k++)
			bad.data[4096 + model_random(&m, bad.len - 4096)] = (char)model_random(&m, 256);
		assert_int_equal(file_write_atomic(path, buf_view(&bad), 0600, NULL), 0);
		if (sink_sqlite_open(path, &settings, &s, &error) != 0)
			continue;
		struct stats_query q = {.link = round % 2,
		                        .from_ms = start_ms + 5,
		                        .to_ms = start_ms + day_ms - 5,
		                        .dims_wanted = 0xff,
		                        .shares_max = 5,
		                        .arena = &arena};
		struct window_query w = {
		    .from_ms = start_ms + 7, .to_ms = start_ms + day_ms - 7, .arena = &arena};
		struct visits_query v = {
		    .link = round % 2, .from_ms = 0, .to_ms = INT64_MAX, .limit = 500, .arena = &arena};
		struct reconciliation reconciliation;
		s->ops->stats(s, &q);
		s->ops->window(s, &w);
		s->ops->visits(s, &v);
		s->ops->reconciliation(s, 0, true, &reconciliation);
		for (int k = 0; k < 20 && s->ops->retention(s, start_ms + 100 * day_ms) > 0; k++)
			;
		s->ops->free(s);
		arena_release(&arena);
	}
	model_release(&m);
}

static struct sink_visit *many_visits(size_t count)
{
	struct sink_visit *visits = calloc(count, sizeof(*visits));
	assert_non_null(visits);
	for (size_t i = 0; i < count; i++)
		visits[i] = (struct sink_visit){.time_ms = start_ms + (int64_t)(i % 7000) * 20,
		                                .link = 1 + i % 3000,
		                                .visitor = 1 + i % 50,
		                                .address_len = 6,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	return visits;
}

/* So many fresh ones gather that a commit digests them by itself. */
TEST(commits_alone_keep_the_fresh_part_bounded)
{
	enum { BATCH = 50000, BATCHES = 24 };
	struct sink *s = open_sink();
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit *visits = many_visits(BATCH);
	struct arena arena = {0};
	uint64_t duplicates;
	for (int i = 0; i < BATCHES; i++) {
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = BATCH,
		                           .sets = &set,
		                           .set_count = 1,
		                           .now_ms = start_ms,
		                           .tally = {.clicks = BATCH}};
		assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	}
	struct stats_query q = {.link = 5, .from_ms = start_ms, .to_ms = start_ms + day_ms, .arena = &arena};
	struct reconciliation reconciliation;
	struct top_links_query t = {.from_ms = 0, .to_ms = INT64_MAX, .limit = 5000, .arena = &arena};
	assert_int_equal(s->ops->top_links(s, &t), 0);
	assert_int_equal(t.count, 3000);
	assert_int_equal(t.links[0].clicks, BATCHES * (BATCH / 3000 + 1));
	assert_int_equal(s->ops->stats(s, &q), 0);
	assert_int_equal(q.clicks, BATCHES * ((BATCH + 2995) / 3000));
	assert_int_equal(s->ops->reconciliation(s, 0, true, &reconciliation), 0);
	assert_int_equal(reconciliation.clicks_in_rollups, BATCH * BATCHES);
	assert_int_equal(reconciliation.visit_rows, BATCH * BATCHES);
	char wal[TEMP_PATH_BYTES];
	struct stat st;
	assert_int_equal(stat(temp_path(&folder, "stats.db-wal", wal), &st), 0);
	assert_in_range(st.st_size, 1, 100 << 20); /* the log is moved into the file as it grows */
	s->ops->free(s);
	sqlite3 *db;
	sqlite3_stmt *stmt;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT sum(visits) FROM fresh", -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_in_range(sqlite3_column_int64(stmt, 0), BATCH, (262144 + BATCH) * 3 / 2);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	free(visits);
	arena_release(&arena);
}

/* The first column of the first row, asked while nobody else has the file. */
static int64_t sql(const char *text)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, text, -1, &stmt, NULL), SQLITE_OK);
	int rc = sqlite3_step(stmt);
	assert_true(rc == SQLITE_ROW || rc == SQLITE_DONE);
	int64_t value = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_finalize(stmt);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return value;
}

enum { PIECES_VISITS = 120000, PIECES_LINKS = 3000 };

/* Of link 0 are the orphans, every tenth visit; the walk has small pages. */
static void assert_pieces_are_whole(struct sink *s, uint64_t link)
{
	struct arena arena = {0};
	size_t expected = 0, met = 0;
	for (size_t i = 0; i < PIECES_VISITS; i++)
		expected += (i % 10 == 0 ? 0 : 1 + i % PIECES_LINKS) == link;
	struct visits_query v = {
	    .link = link, .from_ms = 0, .to_ms = INT64_MAX, .limit = link ? 7 : 5000, .arena = &arena};
	do {
		assert_int_equal(s->ops->visits(s, &v), 0);
		met += v.count;
		v.cursor = v.next;
	} while (v.cursor.ptr);
	assert_int_equal(met, expected);
	struct stats_query q = {.link = link, .from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(s->ops->stats(s, &q), 0);
	assert_int_equal(q.clicks, link ? expected : PIECES_VISITS - expected);
	assert_int_equal(q.unknowns, link ? 0 : expected);
	struct sink_total total = {.link = link, .clicks = 99};
	assert_int_equal(s->ops->clicks(s, &total, 1), 0);
	assert_int_equal(total.clicks, link ? expected : 0);
	assert_true(q.has_visitors);
	if (link)
		assert_in_range(q.visitors, 1, 50);
	else
		assert_int_equal(q.visitors, 45); /* the others are orphans only */
	for (int deep = 0; deep < 2; deep++) {
		struct reconciliation reconciliation;
		assert_int_equal(s->ops->reconciliation(s, 0, deep, &reconciliation), 0);
		assert_int_equal(reconciliation.clicks_in_rollups, reconciliation.tally.clicks);
		assert_int_equal(reconciliation.orphans_in_rollups, reconciliation.tally.orphans);
		assert_int_equal(reconciliation.visit_rows, deep ? PIECES_VISITS : 0);
	}
	arena_release(&arena);
}

TEST(every_piece_of_a_digest_leaves_all_answers_right)
{
	struct sink *s = open_sink();
	const struct dimension_set sets[] = {{.kind = VISIT_CLICK}, {.kind = VISIT_UNKNOWN}};
	struct sink_visit *visits = many_visits(PIECES_VISITS);
	uint64_t duplicates;
	for (size_t i = 0; i < PIECES_VISITS; i += 10) {
		visits[i].link = 0;
		visits[i].set = 1;
	}
	struct sink_batch batch = {
	    .visits = visits,
	    .visit_count = PIECES_VISITS / 2,
	    .sets = sets,
	    .set_count = 2,
	    .now_ms = start_ms,
	    .tally = {.clicks = PIECES_VISITS / 20 * 9, .orphans = PIECES_VISITS / 20}};
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	assert_int_equal(s->ops->retention(s, start_ms + 61000), 1); /* begins with the first half */
	batch.visits += PIECES_VISITS / 2;
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	unsigned steps = 0;
	do {
		static const uint64_t links[] = {0, 2, 1500, 2999, 3000};
		for (size_t i = 0; i < ARRAY_LEN(links); i++)
			assert_pieces_are_whole(s, links[i]);
		if (steps++ == 1) {
			s->ops->free(s);
			s = open_sink();
		}
	} while (s->ops->retention(s, start_ms + 61000) > 0);
	assert_in_range(steps, 4, 20);
	struct arena arena = {0};
	struct sink_total *totals;
	size_t count;
	assert_int_equal(s->ops->totals(s, 10000, &arena, &totals, &count), 0);
	assert_int_equal(count, PIECES_LINKS / 10 * 9);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(totals[i].clicks, PIECES_VISITS / PIECES_LINKS);
	s->ops->free(s);
	assert_int_equal(sql("SELECT count(*) FROM fresh"), 0);
	arena_release(&arena);
	free(visits);
}

/* --- made-up names --- */

/* `count` impressions of ads "first", "first + 1", ... */
static void impress(struct sink *s, uint64_t first, size_t count, int64_t time_ms, int64_t now_ms)
{
	static uint64_t fingerprint;
	struct arena arena = {0};
	struct sink_impression *impressions = calloc(count, sizeof(*impressions));
	uint64_t duplicates;
	assert_non_null(impressions);
	for (size_t i = 0; i < count; i++) {
		struct sink_impression *at = &impressions[i];
		*at = (struct sink_impression){.time_ms = time_ms, .received_ms = now_ms};
		at->ad = arena_printf(&arena, "ad %llu", (unsigned long long)(first + i));
		at->id = at->user = STR("x");
		fingerprint++;
		memcpy(at->fingerprint, &fingerprint, sizeof(fingerprint));
	}
	struct sink_batch batch = {.impressions = impressions, .impression_count = count, .now_ms = now_ms};
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	assert_int_equal(duplicates, 0);
	free(impressions);
	arena_release(&arena);
}

/* How many ads from < time <= to has, and how many impressions of them; how many are of `ad`. */
static size_t window_ads(struct sink *s, int64_t from_ms, int64_t to_ms, struct str ad, uint64_t *ret_sum,
                         uint64_t *ret_of)
{
	struct arena arena = {0};
	struct window_query w = {.from_ms = from_ms, .to_ms = to_ms, .arena = &arena};
	assert_int_equal(s->ops->window(s, &w), 0);
	*ret_sum = *ret_of = 0;
	for (size_t i = 0; i < w.count; i++) {
		*ret_sum += w.ads[i].count;
		*ret_of += str_eq(w.ads[i].ad, ad) ? w.ads[i].count : 0;
		if (i > 0) /* no name is there twice */
			assert_false(str_eq(w.ads[i - 1].ad, w.ads[i].ad));
	}
	arena_release(&arena);
	return w.count;
}

static void tidy_until_done(struct sink *s, int64_t now_ms)
{
	struct sink_batch batch = {.now_ms = now_ms};
	uint64_t duplicates;
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	while (s->ops->retention(s, now_ms) > 0)
		;
}

TEST(made_up_ads_are_bounded)
{
	enum { A_DAY = 11000, DAYS = 6 };
	struct sink *s = open_sink();
	uint64_t sum, others;
	for (unsigned day = 0; day < DAYS; day++) {
		int64_t now_ms = start_ms + day * day_ms;
		impress(s, day * A_DAY, A_DAY, now_ms, now_ms);
		assert_int_equal(window_ads(s, now_ms - 1, now_ms, STR("(other)"), &sum, &others),
		                 day < 4    ? 10001
		                 : day == 4 ? 10000
		                            : 1);
		assert_int_equal(sum, A_DAY);
	}
	size_t count = window_ads(s, start_ms - 1, start_ms + DAYS * day_ms, STR("(other)"), &sum, &others);
	assert_int_equal(count, 50000);
	assert_int_equal(sum, A_DAY * DAYS);
	assert_int_equal(others, sum - (count - 1));
	s->ops->free(s);
}

TEST(names_that_run_short_go_to_new_ads_and_no_count_is_lost)
{
	struct sink *s = open_sink();
	uint64_t sum, of;
	for (unsigned day = 0; day < 6; day++)
		impress(s, day * 10000, 10000, start_ms + day * day_ms, start_ms + day * day_ms);
	int64_t now_ms = start_ms + 37 * day_ms;
	impress(s, 20000, 1, now_ms, now_ms);
	tidy_until_done(s, now_ms);
	impress(s, 900000, 1, now_ms, now_ms);
	window_ads(s, now_ms - 1, now_ms, STR("ad 900000"), &sum, &of);
	assert_int_equal(of, 1);
	window_ads(s, start_ms - 1, now_ms, STR("ad 20000"), &sum, &of);
	assert_int_equal(of, 2); /* it is in use, so it kept its name */
	window_ads(s, start_ms - 1, now_ms, STR("ad 5"), &sum, &of);
	assert_int_equal(of, 0);
	assert_int_equal(sum, 60002);
	s->ops->free(s);
	assert_int_equal(sql("SELECT count(*) = (SELECT ads FROM book) FROM ad"), 1);
	assert_in_range(sql("SELECT count(*) FROM ad"), 1, 49999);
}

TEST(ads_that_nothing_counts_any_more_lose_their_names)
{
	struct sink *s = NULL;
	struct sink_settings brief = settings;
	brief.days_ms = 70 * 86400000ULL;
	assert_int_equal(sink_sqlite_open(path, &brief, &s, &error), 0);
	impress(s, 0, 50, start_ms, start_ms);
	impress(s, 50, 50, start_ms + 20 * day_ms, start_ms + 20 * day_ms);
	tidy_until_done(s, start_ms + 80 * day_ms);
	uint64_t sum, of;
	assert_int_equal(window_ads(s, 0, INT64_MAX, STR("ad 77"), &sum, &of), 50);
	assert_int_equal(of, 1);
	tidy_until_done(s, start_ms + 82 * day_ms); /* names are looked at once a day */
	s->ops->free(s);
	assert_int_equal(sql("SELECT count(*) FROM ad"), 50);
	assert_int_equal(sql("SELECT ads FROM book"), 50);
}

/* Visits that all differ in everything; every third is a bot's. */
static void visit_sets(struct sink *s, uint64_t first, size_t count)
{
	struct arena arena = {0};
	struct dimension_set *sets = calloc(count, sizeof(*sets));
	struct sink_visit *visits = many_visits(count);
	uint64_t duplicates;
	assert_non_null(sets);
	for (size_t i = 0; i < count; i++) {
		visits[i].set = (uint32_t)i;
		visits[i].link = 1;
		for (int dim = 0; dim < DIM_COUNT; dim++)
			if (dim == DIM_BOT ? i % 3 == 0 : (i >> dim & 7) != 0)
				sets[i].dims[dim] = arena_printf(&arena, "%llu",
				                                 (unsigned long long)(first + i));
	}
	struct sink_batch batch = {
	    .visits = visits, .visit_count = count, .sets = sets, .set_count = count, .now_ms = start_ms};
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	free(sets);
	free(visits);
	arena_release(&arena);
}

static void assert_clicks(struct sink *s, uint64_t clicks, uint64_t bots)
{
	struct arena arena = {0};
	struct stats_query q = {.link = 1, .from_ms = 0, .to_ms = INT64_MAX, .arena = &arena};
	assert_int_equal(s->ops->stats(s, &q), 0);
	assert_int_equal(q.clicks, clicks);
	assert_int_equal(q.bot_clicks, bots);
	arena_release(&arena);
}

TEST(made_up_shapes_are_bounded_by_the_day_whatever_is_made_up)
{
	struct sink *s = open_sink();
	visit_sets(s, 0, 15000);
	visit_sets(s, 15000, 15000);
	assert_clicks(s, 30000, 10000);
	s->ops->free(s);
	assert_in_range(sql("SELECT count(*) FROM shape"), 19000, 20000);
}

TEST(made_up_shapes_are_bounded_for_ever)
{
	struct sink *s = open_sink();
	s->ops->free(s);
	sql("INSERT INTO shape (id, hash, kind) VALUES (199900, 1, 0)");
	s = open_sink();
	visit_sets(s, 0, 3000);
	assert_clicks(s, 3000, 1000);
	s->ops->free(s);
	assert_in_range(sql("SELECT max(id) FROM shape"), 199980, 200000);
}

TEST(new_texts_are_bounded_by_the_day)
{
	struct sink *s = open_sink();
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit *visits = many_visits(3);
	const struct str texts[] = {STR("one"), STR("two"), STR("three")};
	uint64_t duplicates;
	struct arena arena = {0};
	struct sink_batch batch = {.visits = visits,
	                           .visit_count = 3,
	                           .sets = &set,
	                           .set_count = 1,
	                           .texts = texts,
	                           .text_count = 3,
	                           .now_ms = start_ms};
	for (uint32_t i = 0; i < 3; i++) {
		visits[i].link = 1;
		visits[i].agent = i;
	}
	struct sink_batch empty = {.now_ms = start_ms};
	assert_int_equal(s->ops->commit(s, &empty, &duplicates), 0);
	s->ops->free(s);
	sql("UPDATE book SET new_texts = 199999");
	s = open_sink();
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	batch.now_ms += day_ms;
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	struct visits_query v = {.link = 1, .from_ms = 0, .to_ms = INT64_MAX, .limit = 9, .arena = &arena};
	assert_int_equal(s->ops->visits(s, &v), 0);
	assert_int_equal(v.count, 6); /* the newest first */
	assert_true(str_eq(v.visits[0].agent, STR("three")));
	assert_true(str_eq(v.visits[1].agent, STR("two")));
	assert_null(v.visits[3].agent.ptr);
	assert_null(v.visits[4].agent.ptr);
	assert_true(str_eq(v.visits[5].agent, STR("one")));
	s->ops->free(s);
	free(visits);
	arena_release(&arena);
}

/* --- the ends of things --- */

TEST(a_second_without_parts_left_takes_impressions_still)
{
	enum { BEFORE = 20, AFTER = 40 };
	struct sink *s = open_sink();
	impress(s, 1, 200, start_ms + 1000, start_ms);
	for (unsigned i = 0; i < BEFORE; i++)
		impress(s, 1, 300, start_ms, start_ms); /* numbers of more than one byte */
	s->ops->free(s);
	sql("UPDATE impression SET at = at | 16777215 WHERE at = (SELECT min(at) FROM impression)");
	sql("UPDATE book SET serial = 0"); /* so that parts are met that are taken, and some that are not */
	s = open_sink();
	for (unsigned i = 0; i < AFTER; i++)
		impress(s, 1, 300, start_ms + i, start_ms);
	uint64_t sum, of;
	assert_int_equal(window_ads(s, start_ms, start_ms + 19, STR("ad 7"), &sum, &of), 300);
	assert_int_equal(sum, 19 * 300);
	assert_int_equal(of, 19);
	window_ads(s, start_ms + 999, start_ms + 1000, STR("ad 7"), &sum, &of);
	assert_int_equal(sum, 200);
	struct reconciliation reconciliation;
	assert_int_equal(s->ops->reconciliation(s, 0, true, &reconciliation), 0);
	assert_int_equal(reconciliation.impression_rows, (BEFORE + AFTER) * 300 + 200);
	s->ops->free(s);
	assert_in_range(sql("SELECT count(*) FROM impression"), BEFORE + AFTER / 3, AFTER + 3);
}

TEST(rows_are_dropped_while_there_is_much_to_fold)
{
	struct model m;
	model_init(&m, 3, day_ms);
	struct sink *s = open_sink();
	int64_t now_ms = start_ms + 92 * day_ms;
	model_commit(&m, s, 6000, 0, start_ms, start_ms + day_ms, start_ms + day_ms);
	model_commit(&m, s, 0, 0, now_ms, now_ms + 1, now_ms);
	struct reconciliation reconciliation;
	for (int steps = 0; steps < 16; steps++)
		assert_true(s->ops->retention(s, now_ms) > 0);
	assert_int_equal(s->ops->reconciliation(s, 0, true, &reconciliation), 0);
	assert_int_equal(reconciliation.visit_rows, 0);
	s->ops->free(s);
	assert_true(sql("SELECT count(*) FROM cell WHERE level = 0") > 0);
	model_release(&m);
}

/* Visitors of link 5 as the query sees them; -1: it does not say. */
static int64_t visitors_of(struct sink *s, enum stats_bots bots)
{
	struct arena arena = {0};
	struct stats_query q = {
	    .link = 5, .from_ms = start_ms, .to_ms = start_ms + day_ms, .bots = bots, .arena = &arena};
	assert_int_equal(s->ops->stats(s, &q), 0);
	arena_release(&arena);
	return q.has_visitors ? (int64_t)q.visitors : -1;
}

/* Two visits of link 5 on that day: by a person, and by the bot `bot`. */
static void visit(struct sink *s, int64_t time_ms, uint64_t bot)
{
	const struct dimension_set sets[] = {{.kind = VISIT_CLICK},
	                                     {.kind = VISIT_CLICK, .dims[DIM_BOT] = STR("crawler")}};
	struct sink_visit visits[2];
	uint64_t duplicates;
	for (unsigned i = 0; i < 2; i++)
		visits[i] = (struct sink_visit){.time_ms = time_ms,
		                                .link = 5,
		                                .visitor = i == 0 ? 1 : bot,
		                                .set = i,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	const struct sink_batch batch = {.visits = visits,
	                                 .visit_count = 2,
	                                 .sets = sets,
	                                 .set_count = 2,
	                                 .now_ms = time_ms,
	                                 .tally = {.clicks = 2}};
	assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	while (s->ops->retention(s, time_ms + 120000) > 0)
		;
}

TEST(a_file_of_the_first_version_is_brought_up_to_date)
{
	struct sink *s = open_sink();
	impress(s, 0, 5, start_ms, start_ms);
	visit(s, start_ms, 2);
	s->ops->free(s);
	static const char *const columns[] = {"book DROP COLUMN now_ms",
	                                      "book DROP COLUMN new_texts",
	                                      "book DROP COLUMN ads",
	                                      "book DROP COLUMN last_ad",
	                                      "book DROP COLUMN retired_link_clicks",
	                                      "book DROP COLUMN digest_row",
	                                      "book DROP COLUMN digest_link",
	                                      "book DROP COLUMN digest_visits",
	                                      "book DROP COLUMN digest_orphans",
	                                      "ad DROP COLUMN last_day",
	                                      "day_link DROP COLUMN bots"};
	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		char text[100];
		snprintf(text, sizeof(text), "ALTER TABLE %s", columns[i]);
		sql(text);
	}
	set_version("1");
	s = open_sink();
	impress(s, 4, 5, start_ms, start_ms);
	uint64_t sum, of;
	assert_int_equal(window_ads(s, start_ms - 1, start_ms, STR("ad 4"), &sum, &of), 9);
	assert_int_equal(of, 2);
	/* The day from before has one sketch for people and bots, and keeps it. The next one has two. */
	visit(s, start_ms, 3);
	assert_int_equal(visitors_of(s, BOTS_INCLUDED), 2); /* the first bot went with the column */
	assert_int_equal(visitors_of(s, BOTS_EXCLUDED), -1);
	assert_int_equal(visitors_of(s, BOTS_ONLY), -1);
	s->ops->free(s);
	assert_int_equal(sql("SELECT count(*) FROM day_link WHERE link = 5 AND bots IS NULL"), 1);
	sql("DELETE FROM day_link WHERE link = 5");
	s = open_sink();
	visit(s, start_ms, 4);
	assert_int_equal(visitors_of(s, BOTS_INCLUDED), 2);
	assert_int_equal(visitors_of(s, BOTS_EXCLUDED), 1);
	assert_int_equal(visitors_of(s, BOTS_ONLY), 1);
	s->ops->free(s);
	assert_int_equal(sql("SELECT ads FROM book"), 9);
	assert_int_equal(sql("SELECT min(last_day) FROM ad"), start_ms / day_ms);
}

/* Commits one visit after the other, and says so, until it is killed. */
static void commit_until_killed(int out)
{
	struct sink *s = open_sink();
	struct dimension_set set = {.kind = VISIT_CLICK};
	struct sink_visit *visits = many_visits(100);
	uint64_t duplicates;
	for (uint64_t n = 1;; n++) {
		struct advance advance = {.stream = 1, .from = (n - 1) * 100, .to = n * 100};
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = 100,
		                           .sets = &set,
		                           .set_count = 1,
		                           .advances = &advance,
		                           .advance_count = 1,
		                           .now_ms = start_ms,
		                           .tally = {.clicks = 100}};
		if (s->ops->commit(s, &batch, &duplicates) != 0 || write(out, &n, sizeof(n)) != sizeof(n))
			_exit(1);
		if (n % 20 == 0)
			s->ops->retention(s, start_ms + 120000 + (int64_t)n * 1000000);
	}
}

TEST(a_killed_process_loses_nothing_that_was_committed)
{
	for (unsigned round = 0; round < 6; round++) {
		const uint64_t wanted = 30 + 23 * round; /* commits, then it is killed in one of the next */
		int ends[2];
		assert_int_equal(pipe(ends), 0);
		unlink(path);
		char wal[TEMP_PATH_BYTES];
		unlink(temp_path(&folder, "stats.db-wal", wal));
		unlink(temp_path(&folder, "stats.db-shm", wal));
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0)
			commit_until_killed(ends[1]);
		close(ends[1]);
		uint64_t said = 0, n;
		while (said < wanted && read(ends[0], &n, sizeof(n)) == sizeof(n))
			said = n;
		kill(child, SIGKILL);
		int status;
		waitpid(child, &status, 0);
		assert_true(WIFSIGNALED(status));
		assert_true(said >= wanted);
		while (read(ends[0], &n, sizeof(n)) == sizeof(n))
			said = n;
		close(ends[0]);
		struct sink *s = open_sink();
		struct arena arena = {0};
		struct position *positions;
		size_t count;
		struct reconciliation reconciliation;
		assert_int_equal(s->ops->resume(s, 0, &arena, &positions, &count), 0);
		assert_int_equal(count, 1);
		assert_in_range(positions[0].offset, said * 100, (said + 1) * 100);
		assert_int_equal(s->ops->reconciliation(s, 0, true, &reconciliation), 0);
		assert_int_equal(reconciliation.tally.clicks, positions[0].offset);
		assert_int_equal(reconciliation.clicks_in_rollups, positions[0].offset);
		s->ops->free(s);
		arena_release(&arena);
	}
}

TEST_MAIN(.setup = setup, .teardown = teardown)
