/*
 * Each step is a transaction of its own and leaves everything right: a cell moves from its level to the next
 * in one piece, so every visit is counted once before, in between and after. What leaves the last rollup is
 * added to what the book says has retired, so the books still balance.
 */
#include "sink/tidy.h"
#include "sink/digest.h"

enum {
	CELLS_PER_STEP = 200,
	ROWS_PER_STEP = 200,
	BLOCKS_PER_STEP = 100,
	TEXTS_PER_STEP = 1000,
};

struct step {
	struct sqlite_conn *c;
	const struct sink_settings *s;
	int64_t now_ms;
	bool did;
};

/* --- cells --- */

struct old_cell {
	bool found;
	int64_t start_ms, link, visits;
	struct counts shapes;
	struct runs runs;
};

static void old_cell_release(struct old_cell *o)
{
	counts_release(&o->shapes);
	runs_release(&o->runs);
}

static int visit_first(struct sqlite_conn *c, uint64_t *ret_first, int64_t *ret_newest_ms)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_VISIT_FIRST);
	bool found;
	int rc = query_find(&q, &found);
	*ret_first = found ? (uint64_t)sqlite3_column_int64(q.stmt, 0) : INT64_MAX;
	*ret_newest_ms = found ? sqlite3_column_int64(q.stmt, 1) : INT64_MAX;
	return rc;
}

/* The level's oldest, when it ended (with the whole of the next level's unit) at least `age_ms` ago. */
static int oldest_cell(const struct step *t, int64_t level_key, int64_t unit_ms, int64_t age_ms,
                       struct old_cell *ret)
{
	CLEANUP(query_end) struct query q = query_begin(t->c, SQL_CELL_OLDEST);
	query_int(&q, level_key);
	int rc = query_find(&q, &ret->found);
	if (rc != SQLITE_OK || !ret->found)
		return rc;
	ret->start_ms = sqlite3_column_int64(q.stmt, 0);
	ret->link = sqlite3_column_int64(q.stmt, 1);
	ret->visits = sqlite3_column_int64(q.stmt, 2);
	ret->found = time_floor(ret->start_ms, unit_ms) + unit_ms <= t->now_ms - age_ms;
	if (!ret->found)
		return SQLITE_OK;
	struct str shapes = column_blob(&q, 3), runs = column_blob(&q, 4);
	uint64_t minutes = (uint64_t)((ret->start_ms - time_floor(ret->start_ms, unit_ms)) / MINUTE_MS);
	int r = counts_add_blob(&ret->shapes, shapes.ptr, shapes.len);
	return layout_sql_code(r ? r : runs_add_blob(&ret->runs, runs.ptr, runs.len, minutes));
}

static int cell_delete(struct sqlite_conn *c, int64_t level_key, const struct old_cell *o)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CELL_DELETE);
	query_int(&q, level_key);
	query_int(&q, o->start_ms);
	query_int(&q, o->link);
	return query_run(&q);
}

static int retire(struct sqlite_conn *c, int64_t clicks, int64_t orphans, int64_t impressions)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_RETIRE);
	query_int(&q, clicks);
	query_int(&q, orphans);
	query_int(&q, impressions);
	return query_run(&q);
}

/* The oldest cell of a level: into the next one, or out. *ret_did is false when none is due. */
static int move_cell(const struct step *t, enum cell_level level, int64_t together, int64_t age_ms,
                     uint64_t first_visit, struct buf *scratch, bool *ret_did)
{
	CLEANUP(old_cell_release) struct old_cell o = {0};
	bool last = level == CELL_DAY;
	int64_t unit_ms = cell_level_ms[last ? CELL_DAY : level + 1];
	int64_t key = level + together;
	int rc = oldest_cell(t, key, unit_ms, age_ms, &o);
	*ret_did = o.found;
	if (rc != SQLITE_OK || !o.found)
		return rc;
	if (!last)
		rc = digest_cell_add(t->c, key + 1, time_floor(o.start_ms, unit_ms), o.link, &o.shapes,
		                     &o.runs, first_visit, scratch);
	else if (together)
		rc = retire(t->c, o.link == LINK_ALL ? o.visits : 0, o.link == LINK_ORPHANS ? o.visits : 0,
		            0);
	return rc == SQLITE_OK ? cell_delete(t->c, key, &o) : rc;
}

static int move_cells(struct step *t, enum cell_level level, int64_t together, uint64_t age_ms)
{
	CLEANUP(buf_release) struct buf scratch = {0};
	uint64_t first_visit;
	int64_t ignored;
	int rc = visit_first(t->c, &first_visit, &ignored);
	bool did = true;
	for (int i = 0; rc == SQLITE_OK && did && i < CELLS_PER_STEP; i++) {
		rc = move_cell(t, level, together, (int64_t)age_ms, first_visit, &scratch, &did);
		t->did |= did;
	}
	return rc;
}

static int step_fold_minutes(struct step *t)
{
	int rc = move_cells(t, CELL_MINUTE, CELL_TOGETHER, t->s->minutes_ms);
	return rc == SQLITE_OK && !t->did ? move_cells(t, CELL_MINUTE, 0, t->s->minutes_ms) : rc;
}

static int step_fold_hours(struct step *t)
{
	int rc = move_cells(t, CELL_HOUR, CELL_TOGETHER, t->s->hours_ms);
	return rc == SQLITE_OK && !t->did ? move_cells(t, CELL_HOUR, 0, t->s->hours_ms) : rc;
}

static int step_drop_days(struct step *t)
{
	if (t->s->days_ms == 0)
		return SQLITE_OK;
	int rc = move_cells(t, CELL_DAY, CELL_TOGETHER, t->s->days_ms);
	return rc == SQLITE_OK && !t->did ? move_cells(t, CELL_DAY, 0, t->s->days_ms) : rc;
}

static int step_drop_day_links(struct step *t)
{
	if (t->s->days_ms == 0)
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(t->c, SQL_DAY_LINK_DELETE);
	query_int(&q, day_of(t->now_ms - (int64_t)t->s->days_ms)); /* that day is not over by then */
	query_int(&q, ROWS_PER_STEP);
	int rc = query_run(&q);
	t->did |= rc == SQLITE_OK && sqlite3_changes(t->c->db) > 0;
	return rc;
}

/* --- rows of visits --- */

static int block_delete(struct sqlite_conn *c, uint64_t first)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_VISIT_DELETE);
	query_int(&q, (int64_t)first);
	return query_run(&q);
}

static int step_drop_visits(struct step *t)
{
	int rc = SQLITE_OK;
	for (int i = 0; rc == SQLITE_OK && i < BLOCKS_PER_STEP; i++) {
		uint64_t first;
		int64_t newest_ms;
		rc = visit_first(t->c, &first, &newest_ms);
		if (rc != SQLITE_OK || newest_ms >= t->now_ms - (int64_t)t->s->visits_ms)
			break;
		t->did = true;
		rc = block_delete(t->c, first);
	}
	return rc;
}

static int text_after(struct sqlite_conn *c, int64_t after, int64_t *ret_last)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_TEXT_AFTER);
	query_int(&q, after);
	query_int(&q, TEXTS_PER_STEP);
	bool found;
	int rc = query_find(&q, &found);
	*ret_last = found ? sqlite3_column_int64(q.stmt, 0) : 0; /* NULL is 0 */
	return rc;
}

/* Once a day, all of them, some at a time. */
static int sweep_texts(struct tidy *tidy, struct step *t)
{
	if (tidy->swept_day == day_of(t->now_ms))
		return SQLITE_OK;
	int64_t last;
	int rc = text_after(t->c, tidy->swept_text, &last);
	if (rc != SQLITE_OK)
		return rc;
	if (last == 0) {
		tidy->swept_day = day_of(t->now_ms);
		tidy->swept_text = 0;
		return SQLITE_OK;
	}
	CLEANUP(query_end) struct query q = query_begin(t->c, SQL_TEXT_SWEEP);
	query_int(&q, tidy->swept_text);
	query_int(&q, last);
	query_int(&q, day_of(t->now_ms - (int64_t)t->s->visits_ms) - 1);
	tidy->swept_text = last;
	t->did = true;
	return query_run(&q);
}

/* --- impressions --- */

static int oldest_ad_cell(struct sqlite_conn *c, enum ad_level level, int64_t *ret_at, int64_t *ret_count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_AD_CELL_OLDEST);
	query_int(&q, ad_cell_key(level, 0));
	bool found;
	int rc = query_find(&q, &found);
	*ret_at = found ? sqlite3_column_int64(q.stmt, 0) : INT64_MAX;
	*ret_count = found ? sqlite3_column_int64(q.stmt, 1) : 0;
	return rc;
}

/* From here on nobody asks for seconds, minutes and rows before; then they can go. */
static int step_move_kept(struct step *t)
{
	int64_t kept_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->impressions_ms, HOUR_MS), 0);
	int64_t oldest, ignored;
	int rc = oldest_ad_cell(t->c, AD_SECOND, &oldest, &ignored);
	struct book book;
	if (rc == SQLITE_OK)
		rc = layout_book_get(t->c, &book);
	if (rc != SQLITE_OK || oldest >= ad_cell_key(AD_SECOND, kept_ms) || kept_ms <= book.kept_ms)
		return rc;
	t->did = true;
	CLEANUP(query_end) struct query q = query_begin(t->c, SQL_BOOK_KEPT);
	query_int(&q, kept_ms);
	return query_run(&q);
}

static int delete_below(struct step *t, unsigned sql, int64_t from, int64_t to)
{
	CLEANUP(query_end) struct query q = query_begin(t->c, sql);
	query_int(&q, from);
	query_int(&q, to);
	query_int(&q, ROWS_PER_STEP);
	int rc = query_run(&q);
	t->did |= rc == SQLITE_OK && sqlite3_changes(t->c->db) > 0;
	return rc;
}

static int step_drop_impressions(struct step *t)
{
	struct book book;
	int rc = layout_book_get(t->c, &book);
	if (rc == SQLITE_OK)
		rc = delete_below(t, SQL_IMPRESSION_DELETE, 0, impression_key(book.kept_ms, 0));
	for (enum ad_level level = AD_SECOND; rc == SQLITE_OK && level < AD_HOUR; level++)
		rc = delete_below(t, SQL_AD_CELL_DELETE, ad_cell_key(level, 0),
		                  ad_cell_key(level, book.kept_ms));
	return rc;
}

/* The day's count retires with it. */
static int drop_ad_day(struct step *t, int64_t before_ms)
{
	int64_t at, count;
	int rc = oldest_ad_cell(t->c, AD_DAY, &at, &count);
	if (rc != SQLITE_OK)
		return rc;
	if (at >= ad_cell_key(AD_DAY, before_ms))
		return SQLITE_OK;
	rc = retire(t->c, 0, 0, count);
	return rc == SQLITE_OK ? delete_below(t, SQL_AD_CELL_DELETE, at, at + 1) : rc;
}

static int step_drop_ad_days(struct step *t)
{
	if (t->s->days_ms == 0)
		return SQLITE_OK;
	int64_t before_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->days_ms, DAY_MS), 0);
	int rc = drop_ad_day(t, before_ms);
	if (rc == SQLITE_OK)
		rc = delete_below(t, SQL_AD_CELL_DELETE, ad_cell_key(AD_HOUR, 0),
		                  ad_cell_key(AD_HOUR, before_ms));
	return rc;
}

int tidy_step(struct tidy *tidy, struct sqlite_conn *c, const struct sink_settings *s, int64_t now_ms,
              bool *ret_more)
{
	static int (*const steps[])(struct step *) = {
	    step_move_kept,   step_drop_impressions, step_fold_minutes,   step_fold_hours,
	    step_drop_visits, step_drop_days,        step_drop_day_links, step_drop_ad_days,
	};
	struct step t = {.c = c, .s = s, .now_ms = now_ms};
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && !t.did && i < ARRAY_LEN(steps); i++)
		rc = steps[i](&t);
	if (rc == SQLITE_OK && !t.did)
		rc = sweep_texts(tidy, &t);
	*ret_more = t.did;
	return rc;
}
