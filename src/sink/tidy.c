/*
 * Each step is a transaction of its own and leaves everything right: a cell moves from its level to the next
 * in one piece, so every visit is counted once before, in between and after. What leaves the last rollup is
 * added to what the book says has retired, so the books still balance.
 *
 * Steps of all kinds take turns: one that always finds something to do holds up none of the others.
 */
#include "sink/tidy.h"
#include "sink/digest.h"
#include "sink/impressions.h"

enum {
	CELLS_PER_STEP = 200,
	ROWS_PER_STEP = 200,
	BLOCKS_PER_STEP = 100,
	NAMES_PER_STEP = 1000,
};

struct step {
	struct tidy *tidy;
	struct sqlite_conn *c;
	const struct sink_settings *s;
	int64_t now_ms;
	struct book book;
	bool did;
};

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

static int visit_first(struct sqlite_conn *c, uint64_t *ret_first)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_VISIT_FIRST);
	bool found;
	int rc = query_find(&q, &found);
	*ret_first = found ? (uint64_t)sqlite3_column_int64(q.stmt, 0) : INT64_MAX;
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

struct retiring {
	int64_t clicks, orphans, impressions, link_clicks;
};

static int retire(struct sqlite_conn *c, struct retiring r)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_RETIRE);
	query_int(&q, r.clicks);
	query_int(&q, r.orphans);
	query_int(&q, r.impressions);
	query_int(&q, r.link_clicks);
	return query_run(&q);
}

static int retire_cell(struct sqlite_conn *c, const struct old_cell *o)
{
	switch (o->link) {
	case LINK_ALL: return retire(c, (struct retiring){.clicks = o->visits});
	case LINK_ORPHANS: return retire(c, (struct retiring){.orphans = o->visits});
	default: return retire(c, (struct retiring){.link_clicks = o->visits});
	}
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
	else
		rc = retire_cell(t->c, &o);
	return rc == SQLITE_OK ? cell_delete(t->c, key, &o) : rc;
}

static int move_cells(struct step *t, enum cell_level level, int64_t together, uint64_t age_ms)
{
	CLEANUP(buf_release) struct buf scratch = {0};
	uint64_t first_visit;
	int rc = visit_first(t->c, &first_visit);
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

/* The first block that is past its time, 0: none. Blocks with visits of the future, recorded while the clock
 * was wrong, do not hold it up: they go with those after them, as only the oldest blocks may be missing. */
static int block_past(const struct step *t, int64_t *ret_first)
{
	CLEANUP(query_end) struct query q = query_begin(t->c, SQL_VISIT_PAST);
	query_int(&q, t->now_ms);
	bool found;
	int rc = query_find(&q, &found);
	found = found && sqlite3_column_int64(q.stmt, 1) < t->now_ms - (int64_t)t->s->visits_ms;
	*ret_first = found ? sqlite3_column_int64(q.stmt, 0) : 0;
	return rc;
}

static int step_drop_visits(struct step *t)
{
	int rc = SQLITE_OK;
	for (int gone = 0, last = 1; rc == SQLITE_OK && last > 0 && gone < BLOCKS_PER_STEP; gone += last) {
		int64_t first;
		rc = block_past(t, &first);
		if (rc != SQLITE_OK || first == 0)
			break;
		rc = delete_below(t, SQL_VISIT_DELETE, 0, first + 1);
		last = sqlite3_changes(t->c->db); /* none, if the file is damaged */
	}
	return rc;
}

/* --- names --- */

static int names_after(struct sqlite_conn *c, unsigned sql, int64_t after, int64_t *ret_last)
{
	CLEANUP(query_end) struct query q = query_begin(c, sql);
	query_int(&q, after);
	query_int(&q, NAMES_PER_STEP);
	bool found;
	int rc = query_find(&q, &found);
	*ret_last = found ? sqlite3_column_int64(q.stmt, 0) : 0; /* NULL is 0 */
	return rc;
}

/* Those last used before `day`. */
static int names_sweep(struct step *t, struct sweep *s, unsigned sql_after, unsigned sql_sweep, int64_t day,
                       int *ret_gone)
{
	int64_t last;
	*ret_gone = 0;
	int rc = names_after(t->c, sql_after, s->upto, &last);
	if (rc != SQLITE_OK)
		return rc;
	if (last == 0) {
		*s = (struct sweep){.day = day_of(t->now_ms)};
		return SQLITE_OK;
	}
	CLEANUP(query_end) struct query q = query_begin(t->c, sql_sweep);
	query_int(&q, s->upto);
	query_int(&q, last);
	query_int(&q, day);
	s->upto = last;
	t->did = true;
	rc = query_run(&q);
	*ret_gone = rc == SQLITE_OK ? sqlite3_changes(t->c->db) : 0;
	return rc;
}

static int step_sweep_texts(struct step *t)
{
	int ignored;
	if (t->tidy->texts.day == day_of(t->now_ms))
		return SQLITE_OK;
	return names_sweep(t, &t->tidy->texts, SQL_TEXT_AFTER, SQL_TEXT_SWEEP,
	                   day_of(t->now_ms - (int64_t)t->s->visits_ms) - 1, &ignored);
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

/* Where it lies too far ahead (the clock was wrong, or the setting is new), back to where everything is still
 * there. Minutes go at least as fast as seconds and rows: there is nothing missing behind the oldest. */
static int kept_back(const struct step *t, int64_t due_ms, int64_t *ret_kept_ms)
{
	int64_t at, ignored;
	int rc = oldest_ad_cell(t->c, AD_MINUTE, &at, &ignored);
	if (at < ad_cell_key(AD_HOUR, 0))
		*ret_kept_ms = MIN(*ret_kept_ms, time_ceil(at - ad_cell_key(AD_MINUTE, 0), HOUR_MS));
	*ret_kept_ms = MAX(MIN(*ret_kept_ms, time_floor(t->now_ms, HOUR_MS)), due_ms);
	return rc;
}

/* From here on nobody asks for seconds, minutes and rows before; then they can go. */
static int move_kept(struct step *t)
{
	int64_t due_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->impressions_ms, HOUR_MS), 0);
	int64_t kept_ms = MAX(t->book.kept_ms, due_ms);
	int rc = kept_ms > due_ms ? kept_back(t, due_ms, &kept_ms) : SQLITE_OK;
	if (rc != SQLITE_OK || kept_ms == t->book.kept_ms)
		return rc;
	t->did = true;
	CLEANUP(query_end) struct query q = query_begin(t->c, SQL_BOOK_KEPT);
	query_int(&q, kept_ms);
	return query_run(&q);
}

static int step_drop_impressions(struct step *t)
{
	int64_t kept_ms = t->book.kept_ms;
	int rc = delete_below(t, SQL_IMPRESSION_DELETE, 0, impression_key(kept_ms, 0));
	for (enum ad_level level = AD_SECOND; rc == SQLITE_OK && level < AD_HOUR; level++)
		rc = delete_below(t, SQL_AD_CELL_DELETE, ad_cell_key(level, 0), ad_cell_key(level, kept_ms));
	return rc;
}

/* A day goes with its hours, and its count retires. */
static int step_drop_ad_days(struct step *t)
{
	if (t->s->days_ms == 0)
		return SQLITE_OK;
	int64_t before_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->days_ms, DAY_MS), 0);
	int64_t at, count;
	int rc = oldest_ad_cell(t->c, AD_DAY, &at, &count);
	if (rc != SQLITE_OK || at >= ad_cell_key(AD_DAY, before_ms))
		return rc;
	int64_t day_ms = at - ad_cell_key(AD_DAY, 0);
	rc = retire(t->c, (struct retiring){.impressions = count});
	if (rc == SQLITE_OK)
		rc = delete_below(t, SQL_AD_CELL_DELETE, at, at + 1);
	if (rc == SQLITE_OK)
		rc = delete_below(t, SQL_AD_CELL_DELETE, ad_cell_key(AD_HOUR, day_ms),
		                  ad_cell_key(AD_HOUR, day_ms + DAY_MS));
	return rc;
}

static int ads_gone(struct sqlite_conn *c, int count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_ADS_GONE);
	query_int(&q, count);
	return query_run(&q);
}

/* Every impression is in its day's cell: before the oldest one nobody counts anything. */
static int step_sweep_ads(struct step *t)
{
	int64_t at, ignored;
	if (t->tidy->ads.day == day_of(t->now_ms))
		return SQLITE_OK;
	int rc = oldest_ad_cell(t->c, AD_DAY, &at, &ignored);
	if (rc != SQLITE_OK)
		return rc;
	int64_t day = day_of(MIN(at - ad_cell_key(AD_DAY, 0), t->now_ms));
	if (t->book.ads >= ADS_CROWDED)
		day = MAX(day, day_of(t->now_ms - (int64_t)t->s->impressions_ms));
	int gone;
	rc = names_sweep(t, &t->tidy->ads, SQL_AD_AFTER, SQL_AD_SWEEP, day, &gone);
	return rc == SQLITE_OK && gone > 0 ? ads_gone(t->c, gone) : rc;
}

static int take_turns(struct step *t)
{
	static int (*const steps[])(struct step *) = {
	    step_drop_impressions, step_fold_minutes, step_fold_hours,  step_drop_visits, step_drop_days,
	    step_drop_day_links,   step_drop_ad_days, step_sweep_texts, step_sweep_ads,
	};
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && !t->did && i < ARRAY_LEN(steps); i++) {
		size_t at = t->tidy->next % ARRAY_LEN(steps);
		t->tidy->next = at + 1;
		rc = steps[at](t);
	}
	return rc;
}

int tidy_step(struct tidy *tidy, struct sqlite_conn *c, const struct sink_settings *s, int64_t now_ms,
              bool *ret_more)
{
	struct step t = {.tidy = tidy, .c = c, .s = s};
	int rc = layout_book_get(c, &t.book);
	*ret_more = false;
	if (rc != SQLITE_OK || t.book.now_ms == 0) /* nothing was ever committed */
		return rc;
	t.now_ms = MIN(now_ms, t.book.now_ms + HOUR_MS);
	rc = move_kept(&t);
	if (rc == SQLITE_OK && !t.did)
		rc = take_turns(&t);
	*ret_more = t.did;
	return rc;
}
