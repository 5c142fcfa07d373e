/*
 * Each step is a transaction and preserves all counts: cells that leave a level are added to the next level,
 * or to stats_retired. The kinds of steps take turns, so that none can starve the others. One worker runs
 * retention at a time; for the others nothing is due meanwhile.
 */
#include "sink/ads.h"
#include "sink/postgres_sink.h"

enum {
	CELLS_PER_STEP = 250,
	SEEN_PER_STEP = 5000,
	ROWS_PER_STEP = 5000,
	NAMES_PER_STEP = 1000,
};

struct postgres_step {
	struct postgres_retention *retention;
	struct pg_conn *conn;
	const struct postgres_layout *layout;
	const struct sink_settings *s;
	int64_t now_ms, received_ms, kept_ms;
	bool did;
	struct err *e;
};

/* Runs a statement that returns the number of affected rows, with integers as parameters. */
static int run(struct postgres_step *t, const struct pg_statement *statement, const int64_t *args,
               size_t arg_count)
{
	int64_t count = 0;
	struct pg_query q = pg_query(t->conn, statement);
	postgres_ints(&q, args, arg_count);
	int r = postgres_find(&q, &count, 1, t->e);
	t->did |= count > 0;
	return r;
}
#define RUN(t, statement, ...) run(t, statement, INT_ARGS(__VA_ARGS__))

/* --- visits --- */

#define OLD_CELLS                                                                                  \
	"ANY(ARRAY(SELECT ctid FROM stats_cell WHERE level = $1::bigint AND start_ms < $2::bigint" \
	" ORDER BY start_ms LIMIT $3::bigint))"

static const struct pg_statement cells_fold = {
    "sink_cells_fold",
    "WITH old AS (DELETE FROM stats_cell WHERE ctid = " OLD_CELLS " RETURNING link, start_ms, shape, count),"
    " added AS (INSERT INTO stats_cell (link, start_ms, shape, count, level) SELECT link, start_ms -"
    " start_ms % $4::bigint, shape, sum(count), $1::bigint + 1 FROM old GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    " ON CONFLICT (link, level, start_ms, shape) DO UPDATE SET count = stats_cell.count + excluded.count)"
    " SELECT count(*) FROM old"};
static const struct pg_statement cells_retire = {
    "sink_cells_retire",
    "WITH old AS (DELETE FROM stats_cell WHERE ctid = " OLD_CELLS " RETURNING link, count), retired AS ("
    "UPDATE stats_retired r SET clicks = r.clicks + n.clicks, orphans = r.orphans + n.orphans, link_clicks ="
    " r.link_clicks + n.link_clicks FROM (SELECT coalesce(sum(count) FILTER (WHERE link = 0), 0) AS clicks,"
    " coalesce(sum(count) FILTER (WHERE link < 0), 0) AS orphans,"
    " coalesce(sum(count) FILTER (WHERE link > 0), 0) AS link_clicks FROM old) n WHERE id = 1)"
    " SELECT count(*) FROM old"};
static const struct pg_statement days_drop = {
    "sink_days_drop", "WITH old AS (DELETE FROM stats_day WHERE ctid = ANY(ARRAY(SELECT ctid FROM stats_day"
                      " WHERE day < $1::bigint LIMIT $2::bigint)) RETURNING 1) SELECT count(*) FROM old"};

/* Moves cells of a level if the unit of the next level that they are in ended at least `age_ms` ago. */
static int cells_move(struct postgres_step *t, enum cell_level level, uint64_t age_ms)
{
	bool last = level == CELL_DAY;
	int64_t unit_ms = cell_level_ms[last ? CELL_DAY : level + 1];
	int64_t before_ms = time_floor(t->now_ms - (int64_t)age_ms, unit_ms);
	return last ? RUN(t, &cells_retire, level, before_ms, CELLS_PER_STEP)
	            : RUN(t, &cells_fold, level, before_ms, CELLS_PER_STEP, unit_ms);
}

static int step_fold_minutes(struct postgres_step *t)
{
	return cells_move(t, CELL_MINUTE, t->s->minutes_ms);
}

static int step_fold_hours(struct postgres_step *t)
{
	return cells_move(t, CELL_HOUR, t->s->hours_ms);
}

static int step_drop_cells(struct postgres_step *t)
{
	return t->s->days_ms > 0 ? cells_move(t, CELL_DAY, t->s->days_ms) : 0;
}

static int step_drop_days(struct postgres_step *t)
{
	if (t->s->days_ms == 0)
		return 0;
	int64_t day = day_of(t->now_ms - (int64_t)t->s->days_ms); /* has not expired completely */
	return RUN(t, &days_drop, day, ROWS_PER_STEP);
}

/* --- rows --- */

/* Deletes rows of days without a partition, and rows of the future that were recorded long ago. */
static const struct pg_statement visits_drop = {
    "sink_visits_drop",
    "WITH old AS (DELETE FROM stats_visit_rest WHERE ctid = ANY(ARRAY(SELECT ctid FROM stats_visit_rest WHERE"
    " time_ms < $1::bigint OR (time_ms >= $2::bigint AND recorded_ms < $1::bigint) LIMIT $3::bigint))"
    " RETURNING 1) SELECT count(*) FROM old"};
static const struct pg_statement visits_drop_hyper = {
    "sink_visits_drop_hyper",
    "WITH old AS (DELETE FROM stats_visit WHERE time_ms >= $2::bigint AND recorded_ms < $1::bigint"
    " RETURNING 1) SELECT count(*) FROM old"};
static const struct pg_statement impressions_drop = {
    "sink_impressions_drop",
    "WITH old AS (DELETE FROM stats_impression_rest WHERE ctid = ANY(ARRAY(SELECT ctid FROM"
    " stats_impression_rest WHERE received_ms < $1::bigint LIMIT $2::bigint)) RETURNING 1)"
    " SELECT count(*) FROM old"};

static int step_drop_visits(struct postgres_step *t)
{
	int64_t before_ms = time_floor(t->now_ms - (int64_t)t->s->visits_ms, DAY_MS);
	int r = postgres_day_drop(t->conn, t->layout, ROWS_VISITS, before_ms, &t->did, t->e);
	if (r != 0 || t->did)
		return r;
	int64_t future_ms = time_floor(t->now_ms, DAY_MS) + 2 * DAY_MS;
	return t->layout->is_hyper ? RUN(t, &visits_drop_hyper, before_ms, future_ms)
	                           : RUN(t, &visits_drop, before_ms, future_ms, ROWS_PER_STEP);
}

/* --- impressions --- */

static const struct pg_statement kept_oldest = {"sink_kept_oldest",
                                                "SELECT min(start_ms) FROM stats_ad_cell WHERE level = 1"};
static const struct pg_statement kept_set = {
    "sink_kept_set", "WITH moved AS (UPDATE stats_clock SET kept_ms = $1::bigint WHERE id = 1 AND kept_ms ="
                     " $2::bigint RETURNING 1) SELECT count(*) FROM moved"};
static const struct pg_statement ad_cells_drop = {
    "sink_ad_cells_drop",
    "WITH old AS (DELETE FROM stats_ad_cell WHERE ctid = ANY(ARRAY(SELECT ctid FROM stats_ad_cell WHERE"
    " level IN (0, 1) AND start_ms < $1::bigint LIMIT $2::bigint)) RETURNING 1) SELECT count(*) FROM old"};
static const struct pg_statement ad_days_retire = {
    "sink_ad_days_retire",
    "WITH old AS (DELETE FROM stats_ad_cell WHERE level IN (2, 3) AND start_ms >= $1::bigint AND start_ms <"
    " $1::bigint + 86400000 RETURNING level, count), retired AS (UPDATE stats_retired SET impressions ="
    " impressions + (SELECT coalesce(sum(count), 0) FROM old WHERE level = 3) WHERE id = 1)"
    " SELECT count(*) FROM old"};
static const struct pg_statement ad_day_oldest = {"sink_ad_day_oldest",
                                                  "SELECT min(start_ms) FROM stats_ad_cell WHERE level = 3"};

/* INT64_MAX: none. */
static int oldest_ask(struct postgres_step *t, const struct pg_statement *statement, int64_t *ret_ms)
{
	struct pg_query q = pg_query(t->conn, statement);
	*ret_ms = INT64_MAX;
	return postgres_find(&q, ret_ms, 1, t->e);
}

/* Advances kept_ms: from then on, queries use no seconds, minutes and rows before it, and they can be
 * dropped. If it is too far ahead (the clock was wrong, or the setting has changed), it goes back to where
 * all data is still present: nothing is missing after the oldest minute. */
static int step_move_kept(struct postgres_step *t)
{
	int64_t due_ms = MAX(time_floor(t->now_ms - (int64_t)t->s->impressions_ms, HOUR_MS), 0);
	int64_t kept_ms = MAX(t->kept_ms, due_ms), oldest_ms = INT64_MAX;
	int r = 0;
	if (kept_ms > due_ms) {
		r = oldest_ask(t, &kept_oldest, &oldest_ms);
		if (oldest_ms != INT64_MAX)
			kept_ms = MIN(kept_ms, time_ceil(oldest_ms, HOUR_MS));
		kept_ms = MAX(MIN(kept_ms, time_floor(t->now_ms, HOUR_MS)), due_ms);
	}
	if (r != 0 || kept_ms == t->kept_ms)
		return r;
	return RUN(t, &kept_set, kept_ms, t->kept_ms);
}

static int step_drop_impressions(struct postgres_step *t)
{
	int64_t before_ms = time_floor(t->kept_ms, DAY_MS);
	int r = postgres_day_drop(t->conn, t->layout, ROWS_IMPRESSIONS, before_ms, &t->did, t->e);
	if (r != 0 || t->did || t->layout->is_hyper)
		return r;
	return RUN(t, &impressions_drop, before_ms, ROWS_PER_STEP);
}

static int step_drop_ad_cells(struct postgres_step *t)
{
	return RUN(t, &ad_cells_drop, t->kept_ms, ROWS_PER_STEP);
}

/* Drops a day with its hours, and retires its count. */
static int step_drop_ad_days(struct postgres_step *t)
{
	int64_t oldest_ms;
	if (t->s->days_ms == 0)
		return 0;
	int r = oldest_ask(t, &ad_day_oldest, &oldest_ms);
	if (r != 0 || oldest_ms >= time_floor(t->now_ms - (int64_t)t->s->days_ms, DAY_MS))
		return r;
	return RUN(t, &ad_days_retire, oldest_ms);
}

/* --- names and fingerprints --- */

/* Sweeps some ads by rising id: returns how many were examined, and the last one. */
static const struct pg_statement ads_sweep = {
    "sink_ads_sweep",
    "WITH few AS (SELECT id FROM stats_ad WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint), gone AS ("
    "DELETE FROM stats_ad WHERE id IN (SELECT id FROM few) AND last_day < CASE WHEN (SELECT ads FROM"
    " stats_names WHERE id = 1) >= $5::bigint THEN $4::bigint ELSE $3::bigint END RETURNING 1),"
    " counted AS (UPDATE stats_names SET ads = ads - (SELECT count(*) FROM gone) WHERE id = 1 AND"
    " EXISTS (SELECT 1 FROM gone))"
    " SELECT count(*), coalesce(max(id), 0)::bigint FROM few"};
static const struct pg_statement seen_drop = {
    "sink_seen_drop", "WITH old AS (DELETE FROM stats_seen WHERE ctid = ANY(ARRAY(SELECT ctid FROM stats_seen"
                      " WHERE received_ms <= $1::bigint LIMIT $2::bigint)) RETURNING 1)"
                      " SELECT count(*) FROM old"};

/* Once a day. Every impression is counted in its day's cell: no count refers to a name last used before the
 * oldest day. */
static int step_sweep_ads(struct postgres_step *t)
{
	struct postgres_retention *retention = t->retention;
	int64_t oldest_ms, few[2] = {0}; /* how many were examined, and the last one */
	if (retention->ads_day == day_of(t->now_ms))
		return 0;
	int r = oldest_ask(t, &ad_day_oldest, &oldest_ms);
	if (r != 0)
		return r;
	int64_t day = day_of(MIN(oldest_ms, t->now_ms));
	struct pg_query q = pg_query(t->conn, &ads_sweep);
	INTS(&q, retention->ads_upto, NAMES_PER_STEP, day,
	     MAX(day, day_of(t->now_ms - (int64_t)t->s->impressions_ms)), ADS_CROWDED);
	r = postgres_find(&q, few, 2, t->e);
	if (r != 0)
		return r;
	t->did |= few[0] > 0;
	retention->ads_upto = t->did ? few[1] : 0;
	if (!t->did)
		retention->ads_day = day_of(t->now_ms);
	return 0;
}

static int step_drop_seen(struct postgres_step *t)
{
	int64_t newest_ms = MIN(t->received_ms, t->now_ms);
	return RUN(t, &seen_drop, newest_ms - SINK_SEEN_SLACK_MS - (int64_t)t->s->seen_ms, SEEN_PER_STEP);
}

/* --- turns --- */

static int (*const steps[])(struct postgres_step *) = {
    step_move_kept,    step_drop_impressions, step_drop_ad_cells, step_fold_minutes,
    step_fold_hours,   step_drop_visits,      step_drop_cells,    step_drop_days,
    step_drop_ad_days, step_sweep_ads,        step_drop_seen,
};

/* The number is "curT". */
static const struct pg_statement retention_lock = {
    "sink_retention_lock",
    "SELECT pg_try_advisory_xact_lock(1668641364, n.oid::int), c.now_ms, c.received_ms,"
    " c.kept_ms FROM pg_namespace n, stats_clock c WHERE n.nspname = current_schema()"
    " AND c.id = 1"};

/* *ret_turn: this worker has the lock, and there was a commit. */
static int turn_begin(struct postgres_step *t, int64_t now_ms, bool *ret_turn)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query lock = pg_query(t->conn, &retention_lock);
	int r = postgres_txn_begin(&lock, &result, t->e);
	if (r != 0)
		return r;
	*ret_turn = result.rows == 1 && pg_get_int(&result, 0, 0) && pg_get_int(&result, 0, 1) > 0;
	if (!*ret_turn)
		return 0;
	t->now_ms = MIN(now_ms, pg_get_int(&result, 0, 1) + HOUR_MS);
	t->received_ms = pg_get_int(&result, 0, 2);
	t->kept_ms = pg_get_int(&result, 0, 3);
	return 0;
}

/* Creates the partitions of today and tomorrow. */
static int days_ahead(const struct postgres_step *t)
{
	int64_t today = day_of(t->now_ms);
	int r = 0;
	for (int table = 0; table < ROW_TABLES; table++)
		for (int64_t day = today; r == 0 && day <= today + 1; day++)
			r = postgres_day_make(t->conn, t->layout, (enum row_table)table, day, t->e);
	return r == ERR_BUSY ? 0 : r; /* busy: try again later */
}

int postgres_retention_step(struct postgres_retention *retention, struct pg_conn *c,
                            const struct postgres_layout *l, const struct sink_settings *s, int64_t now_ms,
                            struct err *e)
{
	struct postgres_step t = {.retention = retention, .conn = c, .layout = l, .s = s, .e = e};
	bool turn = false;
	int r = turn_begin(&t, now_ms, &turn);
	for (size_t i = 0; r == 0 && turn && !t.did && i < ARRAY_LEN(steps); i++) {
		size_t at = retention->next % ARRAY_LEN(steps);
		retention->next = at + 1;
		r = steps[at](&t);
	}
	r = postgres_txn_end(c, r, e);
	if (r == 0 && turn && !t.did)
		r = days_ahead(&t);
	return r ? r : t.did;
}
