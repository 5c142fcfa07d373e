/*
 * The role `sink` on a PostgreSQL database.
 *
 * The committing thread has its own connection. Queries share a few others, and each runs in one snapshot.
 * Memory caches the ids of names, which never change, and which days have partitions.
 */
#include "sink/sink_postgres.h"
#include "os/retry.h"
#include "sink/postgres_sink.h"
#include "sink/tallies.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	READERS = 4,
	TIMEOUT_MS = 30000,   /* for a large batch or an expensive query */
	DAYS_BACK = 3,        /* late visits up to this old still get a partition */
	DAYS = DAYS_BACK + 2, /* today and tomorrow included */
};

struct sink_postgres {
	struct sink base;
	struct sink_settings settings;
	struct postgres_layout layout;
	struct pg_pool *writers, *readers;

	/* Owned by the committing thread. */
	struct postgres_names *names;
	struct postgres_retention retention;
	int64_t days_from;              /* the first day of has_day */
	bool has_day[ROW_TABLES][DAYS]; /* the partition exists */
	struct {
		bool is_uncertain; /* whether that commit happened; retrying its batch will tell */
		uint64_t hash;
		uint64_t duplicates;
	} last;

	pthread_mutex_t trouble_lock; /* guards trouble_text */
	struct err trouble_text;      /* why the last write failed */
	atomic_bool troubled;         /* the last write failed; read without the lock */
};

static struct sink_postgres *self(struct sink *base)
{
	return container_of(base, struct sink_postgres, base);
}

/* Maps to the codes of the role. */
static int outcome_of(int r)
{
	switch (r) {
	case 0:
	case ERR_NOMEM:
	case ERR_CORRUPT:
	case ERR_LIMIT:
	case ERR_UNCERTAIN: return r;
	default: return ERR_UNAVAILABLE;
	}
}

struct write_call {
	struct sink_postgres *sink;
	struct pg_conn *conn;
	struct err why;
};

/* Returns the connection, and records a failure for `ping`. */
static int write_end(struct write_call *w, int r)
{
	struct sink_postgres *s = w->sink;
	pg_return(w->conn);
	if (r >= 0) {
		atomic_store(&s->troubled, false);
		return r;
	}
	if (r != ERR_UNCERTAIN) {
		pthread_mutex_lock(&s->trouble_lock);
		s->trouble_text = w->why;
		pthread_mutex_unlock(&s->trouble_lock);
		atomic_store(&s->troubled, true);
	}
	return outcome_of(r);
}

/* False: no connection, which is recorded. */
static bool write_begin(struct write_call *w, struct sink *base)
{
	*w = (struct write_call){.sink = self(base)};
	w->conn = pg_take(w->sink->writers, &w->why);
	if (!w->conn)
		write_end(w, ERR_UNAVAILABLE);
	return w->conn != NULL;
}

/* --- queries --- */

static const struct pg_statement snapshot_begin = {"sink_snapshot",
                                                   "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"};

/* The state of IN_SNAPSHOT. */
struct snapshot {
	struct sink_postgres *sink;
	struct pg_conn *conn;
	int r; /* of the last attempt; in the end a code of the role */
	int tries;
};

static bool snapshot_next(struct snapshot *n)
{
	if (n->conn)
		n->r = postgres_txn_end(n->conn, n->r, NULL);
	while (!n->conn || (pg_conn_failed(n->conn) && n->tries < 2)) {
		pg_return(n->conn);
		n->conn = pg_take(n->sink->readers, NULL);
		if (!n->conn) {
			n->r = ERR_UNAVAILABLE;
			return false;
		}
		n->tries++;
		struct pg_query begin = pg_query(n->conn, &snapshot_begin);
		n->r = postgres_exec(&begin, NULL);
		if (n->r == 0)
			return true;
	}
	pg_return(n->conn);
	n->r = outcome_of(n->r);
	return false;
}

/* `call` reads over the connection `c`, in a snapshot. It runs once more if the connection was lost, as another
 * one may work. */
#define IN_SNAPSHOT(base, call)                                   \
	({                                                        \
		struct snapshot snapshot_ = {.sink = self(base)}; \
		while (snapshot_next(&snapshot_)) {               \
			struct pg_conn *c = snapshot_.conn;       \
			snapshot_.r = (call);                     \
		}                                                 \
		snapshot_.r;                                      \
	})

static int postgres_stats(struct sink *base, struct stats_query *q)
{
	return tallies_check(q) ?: IN_SNAPSHOT(base, postgres_stats_get(c, q));
}

static int postgres_visits(struct sink *base, struct visits_query *q)
{
	const uint8_t *key = self(base)->layout.key;
	struct page_cursor from;
	return page_cursor_parse(q, key, &from) ?: IN_SNAPSHOT(base, postgres_visits_get(c, q, key, &from));
}

static int postgres_window(struct sink *base, struct window_query *q)
{
	return IN_SNAPSHOT(base, postgres_window_get(c, q));
}

static int postgres_top_links(struct sink *base, struct top_links_query *q)
{
	return IN_SNAPSHOT(base, postgres_top_links_get(c, q));
}

static int postgres_clicks(struct sink *base, struct sink_total *links, size_t count)
{
	ASSERT(count <= SINK_CLICKS_MAX);
	return IN_SNAPSHOT(base, postgres_clicks_get(c, links, count));
}

static int postgres_reconciliation(struct sink *base, uint64_t node, bool deep, struct reconciliation *ret)
{
	return IN_SNAPSHOT(base, postgres_reconciliation_get(c, node, deep, ret));
}

/* --- commit --- */

/* Creates the partition for a time close to the present. If locks are taken, the default partition gets the
 * rows. */
static int day_ensure(struct sink_postgres *s, struct pg_conn *c, enum row_table table, int64_t time_ms,
                      struct err *e)
{
	int64_t at = day_of(time_ms) - s->days_from;
	if (at < 0 || at >= DAYS || s->has_day[table][at])
		return 0;
	int r = postgres_day_make(c, &s->layout, table, day_of(time_ms), e);
	s->has_day[table][at] = r == 0 || r == ERR_BUSY;
	return r == ERR_BUSY ? 0 : r;
}

static int batch_take(struct sink_postgres *s, struct pg_conn *c, const struct sink_batch *batch,
                      uint64_t *ret_duplicates, struct err *e)
{
	struct postgres_intake in = {.conn = c, .batch = batch, .window_ms = s->settings.seen_ms};
	int r = 0;
	if (s->days_from != day_of(batch->now_ms) - DAYS_BACK) {
		s->days_from = day_of(batch->now_ms) - DAYS_BACK;
		memset(s->has_day, 0, sizeof(s->has_day));
	}
	for (size_t i = 0; r == 0 && i < batch->visit_count; i++)
		r = day_ensure(s, c, ROWS_VISITS, batch->visits[i].time_ms, e);
	for (size_t i = 0; r == 0 && i < batch->impression_count; i++)
		r = day_ensure(s, c, ROWS_IMPRESSIONS, batch->impressions[i].received_ms, e);
	if (r == 0)
		r = postgres_names_get(s->names, c, batch, &in.sets, &in.ads, e);
	if (r == 0)
		r = postgres_intake_run(&in, e);
	uint64_t hash = in.at_commit || in.was_done ? keyed_batch_hash(s->layout.key, batch) : 0;
	if (in.at_commit) {
		s->last.is_uncertain = true;
		s->last.hash = hash;
		s->last.duplicates = in.duplicates;
	}
	if (r != 0)
		return r;
	/* The duplicates of a batch committed before are known only if this process has committed it. */
	if (in.was_done)
		*ret_duplicates = s->last.is_uncertain && s->last.hash == hash ? s->last.duplicates : 0;
	else
		*ret_duplicates = in.duplicates;
	s->last.is_uncertain = false;
	return 0;
}

static const struct retry_policy commit_retry = {.min_ms = 10, .max_ms = 50, .tries_max = 5};

static int postgres_commit(struct sink *base, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	struct write_call w;
	struct retry retry = {0};
	int r;
	bool again;
	if (!write_begin(&w, base))
		return ERR_UNAVAILABLE;
	do {
		r = batch_take(w.sink, w.conn, batch, ret_duplicates, &w.why);
		/* A conflict with other workers, such as a deadlock; not a lock held for long. */
		again = (r == ERR_BUSY || r == ERR_CONFLICT) && !pg_conn_failed(w.conn) &&
		        !pg_lock_timed_out(w.conn);
	} while (again && retry_wait(&retry, &commit_retry));
	return write_end(&w, r);
}

/* --- positions --- */

static const struct pg_statement positions_get = {
    "sink_positions_get",
    "SELECT stream, position FROM stats_position WHERE source = $1::bigint ORDER BY stream"};
static const struct pg_statement positions_forget = {
    "sink_positions_forget",
    "DELETE FROM stats_position WHERE source = $1::bigint AND stream = ANY($2::bigint[])"};

static int postgres_resume(struct sink *base, uint64_t source, struct arena *arena, struct position **ret,
                           size_t *ret_count)
{
	struct write_call w;
	if (!write_begin(&w, base))
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(w.conn, &positions_get);
	pg_int(&q, (int64_t)source);
	return write_end(&w, postgres_rows(&q, 2, arena, ret, ret_count, &w.why));
}

static int postgres_forget(struct sink *base, uint64_t source, const uint64_t *streams, size_t count)
{
	struct write_call w;
	if (!write_begin(&w, base))
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(w.conn, &positions_forget);
	pg_int(&q, (int64_t)source);
	pg_ints(&q, (const int64_t *)streams, count);
	return write_end(&w, postgres_exec(&q, &w.why));
}

static int postgres_retention(struct sink *base, int64_t now_ms)
{
	struct sink_postgres *s = self(base);
	struct write_call w;
	if (!write_begin(&w, base))
		return ERR_UNAVAILABLE;
	int r = postgres_retention_step(&s->retention, w.conn, &s->layout, &s->settings, now_ms, &w.why);
	return write_end(&w, r == ERR_BUSY ? 0 : r); /* busy: try again later */
}

/* --- totals --- */

static const struct pg_statement totals_get = {
    "sink_totals_get",
    "SELECT link, clicks FROM stats_total WHERE NOT flushed ORDER BY link LIMIT $1::bigint"};
static const struct pg_statement totals_mark = {
    "sink_totals_mark", "UPDATE stats_total t SET flushed = true FROM unnest($1::bigint[], $2::bigint[]) AS"
                        " n(link, clicks) WHERE t.link = n.link AND t.clicks = n.clicks AND NOT t.flushed"};

static int postgres_totals(struct sink *base, size_t max, struct arena *arena, struct sink_total **ret,
                           size_t *ret_count)
{
	struct write_call w;
	if (!write_begin(&w, base))
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(w.conn, &totals_get);
	pg_int(&q, (int64_t)MIN(max, (size_t)1 << 20));
	return write_end(&w, postgres_rows(&q, 2, arena, ret, ret_count, &w.why));
}

static int postgres_totals_flushed(struct sink *base, const struct sink_total *totals, size_t count)
{
	struct write_call w;
	if (!write_begin(&w, base))
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(w.conn, &totals_mark);
	PG_FIELDS(&q, pg_ints, totals, count, link);
	PG_FIELDS(&q, pg_ints, totals, count, clicks);
	return write_end(&w, postgres_exec(&q, &w.why));
}

/* --- life cycle --- */

static const struct pg_statement ping_get = {"sink_ping", "SELECT now_ms FROM stats_clock WHERE id = 1"};

static int postgres_ping(struct sink *base, struct err *e)
{
	struct sink_postgres *s = self(base);
	struct pg_conn *c = pg_take(s->readers, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(c, &ping_get);
	int r = outcome_of(postgres_exec(&q, e));
	pg_return(c);
	if (r != 0 || !atomic_load(&s->troubled))
		return r;
	struct str address = pg_pool_address(s->writers);
	pthread_mutex_lock(&s->trouble_lock);
	r = err_set(e, ERR_UNAVAILABLE,
	            "%.*s: the last write of statistics failed (%s); the worker retries it", STR_ARG(address),
	            s->trouble_text.text);
	pthread_mutex_unlock(&s->trouble_lock);
	return r;
}

static void postgres_free(struct sink *base)
{
	struct sink_postgres *s = self(base);
	pg_pool_free(s->readers);
	pg_pool_free(s->writers);
	postgres_names_free(s->names);
	pthread_mutex_destroy(&s->trouble_lock);
	free(s);
}

static const struct sink_ops postgres_ops = {
    .free = postgres_free,
    .resume = postgres_resume,
    .commit = postgres_commit,
    .forget = postgres_forget,
    .retention = postgres_retention,
    .totals = postgres_totals,
    .totals_flushed = postgres_totals_flushed,
    .stats = postgres_stats,
    .visits = postgres_visits,
    .window = postgres_window,
    .top_links = postgres_top_links,
    .clicks = postgres_clicks,
    .reconciliation = postgres_reconciliation,
    .ping = postgres_ping,
};

static int tables_make(struct sink_postgres *s, struct err *e)
{
	struct pg_conn *c = pg_take(s->writers, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct str address = pg_pool_address(s->writers);
	struct err why = {""};
	int r = pg_is_standby(c) ? err_set(&why, ERR_UNAVAILABLE,
	                                   "this server is a standby; name the primary in sink.url, or all "
	                                   "servers with target_session_attrs=read-write")
	                         : postgres_tables_make(c, &s->layout, &why);
	pg_return(c);
	return r ? err_set(e, r == ERR_INVALID ? r : outcome_of(r), "%.*s: %s", STR_ARG(address), why.text)
	         : 0;
}

static int parts_open(struct sink_postgres *s, const char *url, struct err *e)
{
	int r = pg_pool_new(str_of(url), 1, NULL, NULL, &s->writers, e)
	            ?: pg_pool_new(str_of(url), READERS, NULL, NULL, &s->readers, e);
	if (r != 0)
		return r;
	pg_pool_timeout(s->writers, TIMEOUT_MS);
	pg_pool_timeout(s->readers, TIMEOUT_MS);
	r = tables_make(s, e);
	if (r == 0 && postgres_names_new(s->layout.key, &s->names) < 0)
		r = err_set(e, ERR_NOMEM, "out of memory");
	return r;
}

int sink_postgres_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                       struct err *e)
{
	struct sink_postgres *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->base.ops = &postgres_ops;
	s->settings = sink_settings_normalize(settings);
	pthread_mutex_init(&s->trouble_lock, NULL);
	int r = parts_open(s, url, e);
	if (r != 0) {
		postgres_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
