/*
 * Each step is a transaction and preserves all counts: a cell moves to the next level as a whole, so every
 * visit is counted once before and after. Visits that leave the last rollup are added to book.retired_*, so
 * reconciliation still balances.
 *
 * The kinds of steps take turns, so that none can starve the others.
 */
#include "sink/sqlite_sink.h"

enum {
	CELLS_PER_STEP = 200,
	ROWS_PER_STEP = 200,
	BLOCKS_PER_STEP = 100,
	NAMES_PER_STEP = 1000,
};

struct retention_step {
	struct retention *retention;
	struct sqlite_conn *c;
	const struct sink_settings *s;
	int64_t now_ms;
	struct book_row book;
	bool did;
};

/* Runs a DELETE, and notes whether it deleted anything. */
static int delete_some(struct retention_step *t, unsigned sql, const int64_t *args, size_t count)
{
	int rc = db_run(t->c, sql, args, count);
	t->did |= rc == SQLITE_OK && sqlite3_changes(t->c->db) > 0;
	return rc;
}
#define DELETE(t, sql, ...) delete_some(t, sql, DB_ARGS(__VA_ARGS__))

/* --- cells --- */

struct old_cell {
	bool found;
	int64_t start_ms, link, visits;
	struct counts sets;
	struct runs runs;
};

static void old_cell_release(struct old_cell *o)
{
	counts_release(&o->sets);
	runs_release(&o->runs);
}

/* The level's oldest cell, if the unit of the next level that it is in ended at least `age_ms` ago. */
static int oldest_cell(const struct retention_step *t, int64_t level_key, int64_t unit_ms, int64_t age_ms,
                       struct old_cell *ret)
{
	CLEANUP(query_end) struct query q = QUERY(t->c, SQL_CELL_OLDEST, level_key);
	int rc = query_find(&q, &ret->found);
	if (rc != SQLITE_OK || !ret->found)
		return rc;
	ret->start_ms = sqlite3_column_int64(q.stmt, 0);
	ret->link = sqlite3_column_int64(q.stmt, 1);
	ret->visits = sqlite3_column_int64(q.stmt, 2);
	ret->found = time_floor(ret->start_ms, unit_ms) + unit_ms <= t->now_ms - age_ms;
	if (!ret->found)
		return SQLITE_OK;
	uint64_t minutes = (uint64_t)((ret->start_ms - time_floor(ret->start_ms, unit_ms)) / MINUTE_MS);
	return db_code(counts_add_blob(&ret->sets, column_blob(&q, 3))
	                   ?: runs_add_blob(&ret->runs, column_blob(&q, 4), minutes));
}

/* Moves the oldest cell of a level to the next level, or retires it. *ret_did: one was due. */
static int move_cell(const struct retention_step *t, enum cell_level level, int64_t together, int64_t age_ms,
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
		rc = compaction_cell_add(t->c, key + 1, time_floor(o.start_ms, unit_ms), o.link, &o.sets,
		                         &o.runs, first_visit, scratch);
	else
		rc = RUN(t->c, SQL_BOOK_RETIRE, o.link == LINK_ALL ? o.visits : 0,
		         o.link == LINK_ORPHANS ? o.visits : 0, 0, o.link > 0 ? o.visits : 0);
	return rc == SQLITE_OK ? RUN(t->c, SQL_CELL_DELETE, key, o.start_ms, o.link) : rc;
}

static int move_cells(struct retention_step *t, enum cell_level level, int64_t together, uint64_t age_ms)
{
	CLEANUP(buf_release) struct buf scratch = {0};
	int64_t first_visit = INT64_MAX;
	int rc = FIND(t->c, SQL_VISIT_FIRST, &first_visit, 1);
	bool did = true;
	for (int i = 0; rc == SQLITE_OK && did && i < CELLS_PER_STEP; i++) {
		rc = move_cell(t, level, together, (int64_t)age_ms, (uint64_t)first_visit, &scratch, &did);
		t->did |= did;
	}
	return rc;
}

/* Cells of all links together first. */
static int move_level(struct retention_step *t, enum cell_level level, uint64_t age_ms)
{
	int rc = move_cells(t, level, CELL_TOGETHER, age_ms);
	return rc == SQLITE_OK && !t->did ? move_cells(t, level, 0, age_ms) : rc;
}

static int step_fold_minutes(struct retention_step *t)
{
	return move_level(t, CELL_MINUTE, t->s->minutes_ms);
}

static int step_fold_hours(struct retention_step *t)
{
	return move_level(t, CELL_HOUR, t->s->hours_ms);
}

static int step_drop_days(struct retention_step *t)
{
	return t->s->days_ms > 0 ? move_level(t, CELL_DAY, t->s->days_ms) : SQLITE_OK;
}

static int step_drop_day_links(struct retention_step *t)
{
	if (t->s->days_ms == 0)
		return SQLITE_OK;
	int64_t day = day_of(t->now_ms - (int64_t)t->s->days_ms); /* has not expired completely */
	return DELETE(t, SQL_DAY_LINK_DELETE, day, ROWS_PER_STEP);
}

/* --- rows of visits --- */

/* Drops blocks whose newest visit has expired. Blocks with visits of the future, recorded while the clock was
 * wrong, are dropped with the blocks after them, since only the oldest blocks may be missing. */
static int step_drop_visits(struct retention_step *t)
{
	int rc = SQLITE_OK;
	for (int dropped = 0, last = 1; rc == SQLITE_OK && last > 0 && dropped < BLOCKS_PER_STEP;
	     dropped += last) {
		int64_t block[2] = {0, INT64_MAX}; /* its first visit, and its newest time */
		rc = FIND(t->c, SQL_VISIT_PAST, block, 2, t->now_ms);
		if (rc != SQLITE_OK || block[1] >= t->now_ms - (int64_t)t->s->visits_ms)
			break;
		rc = DELETE(t, SQL_VISIT_DELETE, 0, block[0] + 1, ROWS_PER_STEP);
		last = sqlite3_changes(t->c->db); /* 0 only if the file is damaged */
	}
	return rc;
}

/* --- dictionaries --- */

/* Deletes entries last used before `day`. */
static int dictionary_sweep(struct retention_step *t, struct dictionary_sweep *s, unsigned sql_after,
                            unsigned sql_sweep, int64_t day, int *ret_deleted)
{
	int64_t last = 0;
	*ret_deleted = 0;
	int rc = FIND(t->c, sql_after, &last, 1, s->upto, NAMES_PER_STEP);
	if (rc != SQLITE_OK)
		return rc;
	if (last == 0) {
		*s = (struct dictionary_sweep){.day = day_of(t->now_ms)};
		return SQLITE_OK;
	}
	rc = RUN(t->c, sql_sweep, s->upto, last, day);
	s->upto = last;
	t->did = true;
	*ret_deleted = rc == SQLITE_OK ? sqlite3_changes(t->c->db) : 0;
	return rc;
}

static int step_sweep_texts(struct retention_step *t)
{
	int ignored;
	if (t->retention->texts.day == day_of(t->now_ms))
		return SQLITE_OK;
	return dictionary_sweep(t, &t->retention->texts, SQL_TEXT_AFTER, SQL_TEXT_SWEEP,
	                        day_of(t->now_ms - (int64_t)t->s->visits_ms) - 1, &ignored);
}

/* --- impressions --- */

/* {at, count}; if there is none, {INT64_MAX, 0}. */
static int oldest_ad_cell(struct sqlite_conn *c, enum ad_level level, int64_t ret[2])
{
	ret[0] = INT64_MAX;
	ret[1] = 0;
	return FIND(c, SQL_AD_CELL_OLDEST, ret, 2, ad_cell_key(level, 0));
}

/* Advances kept_ms: from then on, queries use no seconds, minutes and rows before it, and they can be
 * dropped. If it is too far ahead (the clock was wrong, or the setting has changed), it goes back to where
 * all data is still present: minutes are dropped no later than seconds and rows, so nothing is missing after
 * the oldest. */
static int move_kept(struct retention_step *t)
{
	int64_t due_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->impressions_ms, HOUR_MS), 0);
	int64_t kept_ms = MAX(t->book.kept_ms, due_ms);
	int rc = SQLITE_OK;
	if (kept_ms > due_ms) {
		int64_t cell[2];
		rc = oldest_ad_cell(t->c, AD_MINUTE, cell);
		if (cell[0] < ad_cell_key(AD_HOUR, 0))
			kept_ms = MIN(kept_ms, time_ceil(cell[0] - ad_cell_key(AD_MINUTE, 0), HOUR_MS));
		kept_ms = MAX(MIN(kept_ms, time_floor(t->now_ms, HOUR_MS)), due_ms);
	}
	if (rc != SQLITE_OK || kept_ms == t->book.kept_ms)
		return rc;
	t->did = true;
	return RUN(t->c, SQL_BOOK_KEPT, kept_ms);
}

static int step_drop_impressions(struct retention_step *t)
{
	int64_t kept_ms = t->book.kept_ms;
	int rc = DELETE(t, SQL_IMPRESSION_DELETE, 0, impression_key(kept_ms, 0), ROWS_PER_STEP);
	for (enum ad_level level = AD_SECOND; rc == SQLITE_OK && level < AD_HOUR; level++)
		rc = DELETE(t, SQL_AD_CELL_DELETE, ad_cell_key(level, 0), ad_cell_key(level, kept_ms),
		            ROWS_PER_STEP);
	return rc;
}

/* Drops a day with its hours, and retires its count. */
static int step_drop_ad_days(struct retention_step *t)
{
	if (t->s->days_ms == 0)
		return SQLITE_OK;
	int64_t before_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->days_ms, DAY_MS), 0);
	int64_t cell[2];
	int rc = oldest_ad_cell(t->c, AD_DAY, cell);
	if (rc != SQLITE_OK || cell[0] >= ad_cell_key(AD_DAY, before_ms))
		return rc;
	int64_t day_ms = cell[0] - ad_cell_key(AD_DAY, 0);
	rc = RUN(t->c, SQL_BOOK_RETIRE, 0, 0, cell[1], 0);
	if (rc == SQLITE_OK)
		rc = DELETE(t, SQL_AD_CELL_DELETE, cell[0], cell[0] + 1, ROWS_PER_STEP);
	if (rc == SQLITE_OK)
		rc = DELETE(t, SQL_AD_CELL_DELETE, ad_cell_key(AD_HOUR, day_ms),
		            ad_cell_key(AD_HOUR, day_ms + DAY_MS), ROWS_PER_STEP);
	return rc;
}

/* Every impression is counted in its day's cell: no count refers to a name last used before the oldest
 * day. */
static int step_sweep_ads(struct retention_step *t)
{
	int64_t cell[2];
	if (t->retention->ads.day == day_of(t->now_ms))
		return SQLITE_OK;
	int rc = oldest_ad_cell(t->c, AD_DAY, cell);
	if (rc != SQLITE_OK)
		return rc;
	int64_t day = day_of(MIN(cell[0] - ad_cell_key(AD_DAY, 0), t->now_ms));
	if (t->book.ads >= ADS_CROWDED)
		day = MAX(day, day_of(t->now_ms - (int64_t)t->s->impressions_ms));
	int deleted;
	rc = dictionary_sweep(t, &t->retention->ads, SQL_AD_AFTER, SQL_AD_SWEEP, day, &deleted);
	return rc == SQLITE_OK && deleted > 0 ? RUN(t->c, SQL_BOOK_ADS_DROPPED, deleted) : rc;
}

int retention_step(struct retention *retention, struct sqlite_conn *c, const struct sink_settings *s,
                   int64_t now_ms, bool *ret_more)
{
	static int (*const steps[])(struct retention_step *) = {
	    step_drop_impressions, step_fold_minutes, step_fold_hours,  step_drop_visits, step_drop_days,
	    step_drop_day_links,   step_drop_ad_days, step_sweep_texts, step_sweep_ads,
	};
	struct retention_step t = {.retention = retention, .c = c, .s = s};
	int rc = book_get(c, &t.book);
	*ret_more = false;
	if (rc != SQLITE_OK || t.book.now_ms == 0) /* nothing was ever committed */
		return rc;
	t.now_ms = MIN(now_ms, t.book.now_ms + HOUR_MS);
	rc = move_kept(&t);
	for (size_t i = 0; rc == SQLITE_OK && !t.did && i < ARRAY_LEN(steps); i++) {
		size_t at = retention->next % ARRAY_LEN(steps);
		retention->next = at + 1;
		rc = steps[at](&t);
	}
	*ret_more = t.did;
	return rc;
}
