/*
 * The role `sink` on a PostgreSQL database.
 *
 * The thread that commits has a connection of its own. Questions have a few others; each is one snapshot.
 * What memory holds beside the database are numbers of names, which never mean anything else, and which days
 * have partitions, which saves asking.
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
	TIMEOUT_MS = 30000,   /* a large batch, a question about much */
	DAYS_BACK = 3,        /* so old may what comes late be, and still get a partition */
	DAYS = DAYS_BACK + 2, /* with today and tomorrow */
};

struct sink_postgres {
	struct sink base;
	struct sink_settings settings;
	struct postgres_layout layout;
	struct pg_pool *writers, *readers;

	/* the committing thread's */
	struct postgres_names *names;
	struct postgres_tidy tidy;
	int64_t days_from;              /* the first of the days that the next is about */
	bool has_day[ROW_TABLES][DAYS]; /* there is a partition */
	struct {
		bool unknown; /* whether that commit happened; its batch, when it comes again, will tell */
		uint64_t hash;
		uint64_t duplicates;
	} last;

	pthread_mutex_t trouble_lock; /* guards the text */
	struct err trouble_text;      /* why the last write failed */
	atomic_bool troubled;         /* may be peeked at */
};

static struct sink_postgres *self(struct sink *base)
{
	return container_of(base, struct sink_postgres, base);
}

/* What callers of the role know. */
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

static void trouble_note(struct sink_postgres *s, const struct err *why)
{
	pthread_mutex_lock(&s->trouble_lock);
	s->trouble_text = *why;
	pthread_mutex_unlock(&s->trouble_lock);
	atomic_store(&s->troubled, true);
}

/* Ends a write: says how it went, and gives the connection back. */
static int written(struct sink_postgres *s, struct pg_conn *c, int r, const struct err *why)
{
	pg_return(c);
	if (r >= 0)
		atomic_store(&s->troubled, false);
	else if (r != ERR_UNCERTAIN)
		trouble_note(s, why);
	return r >= 0 ? r : outcome_of(r);
}

/* --- questions --- */

static const struct pg_statement snapshot_begin = {"sink_snapshot",
                                                   "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"};
static const struct pg_statement snapshot_end = {"sink_snapshot_end", "COMMIT"};

typedef int ask_fn(struct sink_postgres *s, struct pg_conn *c, void *arg);

static int snapshot_run(struct sink_postgres *s, struct pg_conn *c, ask_fn *ask, void *arg)
{
	struct pg_query begin = pg_query(c, &snapshot_begin), end = pg_query(c, &snapshot_end);
	int r = postgres_do(&begin, NULL);
	if (r != 0)
		return r;
	r = ask(s, c, arg);
	if (r == 0)
		return postgres_do(&end, NULL);
	if (!pg_conn_failed(c))
		pg_run(c, "ROLLBACK", NULL);
	return r;
}

/* Once more, if the connection was lost: another one may work. */
static int question(struct sink_postgres *s, ask_fn *ask, void *arg)
{
	int r = ERR_UNAVAILABLE;
	bool lost = true;
	for (int try = 0; lost && try < 2; try++) {
		struct pg_conn *c = pg_take(s->readers, NULL);
		if (!c)
			return ERR_UNAVAILABLE;
		r = snapshot_run(s, c, ask, arg);
		lost = pg_conn_failed(c);
		pg_return(c);
	}
	return outcome_of(r);
}

static int ask_stats(struct sink_postgres *s, struct pg_conn *c, void *arg)
{
	(void)s;
	return postgres_stats_get(c, arg);
}

static int postgres_stats(struct sink *base, struct stats_query *q)
{
	int r = tallies_check(q);
	return r ? r : question(self(base), ask_stats, q);
}

struct visits_question {
	struct visits_query *q;
	struct page_from from;
};

static int ask_visits(struct sink_postgres *s, struct pg_conn *c, void *arg)
{
	struct visits_question *v = arg;
	return postgres_visits_get(c, v->q, s->layout.key, &v->from);
}

static int postgres_visits(struct sink *base, struct visits_query *q)
{
	struct visits_question v = {.q = q};
	int r = page_check(q, self(base)->layout.key, &v.from);
	return r ? r : question(self(base), ask_visits, &v);
}

static int ask_window(struct sink_postgres *s, struct pg_conn *c, void *arg)
{
	(void)s;
	return postgres_window_get(c, arg);
}

static int postgres_window(struct sink *base, struct window_query *q)
{
	return question(self(base), ask_window, q);
}

static int ask_top_links(struct sink_postgres *s, struct pg_conn *c, void *arg)
{
	(void)s;
	return postgres_top_links_get(c, arg);
}

static int postgres_top_links(struct sink *base, struct top_links_query *q)
{
	return question(self(base), ask_top_links, q);
}

struct clicks_question {
	struct sink_total *links;
	size_t n;
};

static int ask_clicks(struct sink_postgres *s, struct pg_conn *c, void *arg)
{
	(void)s;
	const struct clicks_question *q = arg;
	return postgres_clicks_get(c, q->links, q->n);
}

static int postgres_clicks(struct sink *base, struct sink_total *links, size_t n)
{
	ASSERT(n <= SINK_CLICKS_MAX);
	return question(self(base), ask_clicks, &(struct clicks_question){.links = links, .n = n});
}

struct books_question {
	uint64_t node;
	bool deep;
	struct sink_books *ret;
};

static int ask_books(struct sink_postgres *s, struct pg_conn *c, void *arg)
{
	(void)s;
	const struct books_question *b = arg;
	return postgres_books_get(c, b->node, b->deep, b->ret);
}

static int postgres_books(struct sink *base, uint64_t node, bool deep, struct sink_books *ret)
{
	struct sink_books books = {0};
	int r = question(self(base), ask_books,
	                 &(struct books_question){.node = node, .deep = deep, .ret = &books});
	if (r == 0)
		*ret = books;
	return r;
}

/* --- commit --- */

static bool day_note(struct sink_postgres *s, enum row_table table, int64_t day)
{
	int64_t at = day - s->days_from;
	if (at < 0 || at >= DAYS || s->has_day[table][at])
		return false;
	s->has_day[table][at] = true;
	return true;
}

/* A partition for that time, if it is near the present. Where others are in the way the rest takes the rows.
 */
static int day_ensure(struct sink_postgres *s, struct pg_conn *c, enum row_table table, int64_t time_ms,
                      struct err *e)
{
	if (!day_note(s, table, day_of(time_ms)))
		return 0;
	int r = postgres_day_make(c, &s->layout, table, day_of(time_ms), e);
	if (r == ERR_BUSY)
		return 0;
	s->has_day[table][day_of(time_ms) - s->days_from] = r == 0;
	return r;
}

static int days_ensure(struct sink_postgres *s, struct pg_conn *c, const struct sink_batch *b, struct err *e)
{
	int r = 0;
	if (s->days_from != day_of(b->now_ms) - DAYS_BACK) {
		s->days_from = day_of(b->now_ms) - DAYS_BACK;
		memset(s->has_day, 0, sizeof(s->has_day));
	}
	for (size_t i = 0; r == 0 && i < b->visit_count; i++)
		r = day_ensure(s, c, ROWS_VISITS, b->visits[i].time_ms, e);
	for (size_t i = 0; r == 0 && i < b->impression_count; i++)
		r = day_ensure(s, c, ROWS_IMPRESSIONS, b->impressions[i].received_ms, e);
	return r;
}

/* It is there already. How many were duplicates is known if it was this process that put it there. */
static uint64_t last_duplicates(const struct sink_postgres *s, const struct sink_batch *b)
{
	bool is_last = s->last.unknown && s->last.hash == keyed_batch_hash(s->layout.key, b);
	return is_last ? s->last.duplicates : 0;
}

static void last_note(struct sink_postgres *s, const struct postgres_intake *in)
{
	s->last.unknown = true;
	s->last.hash = keyed_batch_hash(s->layout.key, in->batch);
	s->last.duplicates = in->duplicates;
}

static int batch_take(struct sink_postgres *s, struct pg_conn *c, const struct sink_batch *batch,
                      uint64_t *ret_duplicates, struct err *e)
{
	struct postgres_intake in = {.conn = c, .batch = batch, .window_ms = s->settings.seen_ms};
	int r = days_ensure(s, c, batch, e);
	if (r == 0)
		r = postgres_names_get(s->names, c, batch, &in.shapes, &in.ads, e);
	if (r == 0)
		r = postgres_intake_run(&in, e);
	if (in.at_commit)
		last_note(s, &in);
	if (r != 0)
		return r;
	*ret_duplicates = in.was_done ? last_duplicates(s, batch) : in.duplicates;
	s->last.unknown = false;
	return 0;
}

/* Others were in the way: a deadlock, a row that appeared meanwhile. Not if they held a lock for long. */
static bool is_tried_again(const struct pg_conn *c, int r)
{
	return (r == ERR_BUSY || r == ERR_CONFLICT) && !pg_conn_failed(c) && !pg_waited_in_vain(c);
}

static const struct retry_policy commit_retry = {.min_ms = 10, .max_ms = 50, .tries_max = 5};

static int postgres_commit(struct sink *base, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	struct sink_postgres *s = self(base);
	struct err why = {""};
	struct retry retry = {0};
	struct pg_conn *c = pg_take(s->writers, &why);
	int r;
	do
		r = c ? batch_take(s, c, batch, ret_duplicates, &why) : ERR_UNAVAILABLE;
	while (c && is_tried_again(c, r) && retry_wait(&retry, &commit_retry));
	return written(s, c, r, &why);
}

/* --- positions --- */

static int postgres_resume(struct sink *base, uint64_t source, struct arena *arena, struct position **ret,
                           size_t *ret_count)
{
	struct sink_postgres *s = self(base);
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, &why);
	int r = c ? postgres_positions_get(c, source, arena, ret, ret_count, &why) : ERR_UNAVAILABLE;
	return written(s, c, r, &why);
}

static int postgres_forget(struct sink *base, uint64_t source, const uint64_t *streams, size_t count)
{
	struct sink_postgres *s = self(base);
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, &why);
	int r = c ? postgres_positions_forget(c, source, streams, count, &why) : ERR_UNAVAILABLE;
	return written(s, c, r, &why);
}

/* A COMMIT that was answered is on the disk. */
static int postgres_settle(struct sink *base)
{
	(void)base;
	return 0;
}

static int postgres_tidy(struct sink *base, int64_t now_ms)
{
	struct sink_postgres *s = self(base);
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, &why);
	int r = c ? postgres_tidy_step(&s->tidy, c, &s->layout, &s->settings, now_ms, &why) : ERR_UNAVAILABLE;
	return written(s, c, r == ERR_BUSY ? 0 : r, &why); /* others are in the way: later */
}

/* --- totals --- */

static int postgres_totals(struct sink *base, size_t max, struct arena *arena, struct sink_total **ret,
                           size_t *ret_count)
{
	struct sink_postgres *s = self(base);
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, &why);
	int r = c ? postgres_totals_get(c, max, arena, ret, ret_count, &why) : ERR_UNAVAILABLE;
	return written(s, c, r, &why);
}

static int postgres_totals_flushed(struct sink *base, const struct sink_total *totals, size_t count)
{
	struct sink_postgres *s = self(base);
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, &why);
	int r = c ? postgres_totals_mark(c, totals, count, &why) : ERR_UNAVAILABLE;
	return written(s, c, r, &why);
}

/* --- health and life --- */

static const struct pg_statement ping_get = {"sink_ping", "SELECT now_ms FROM stats_clock WHERE id = 1"};

static int ping_read(struct sink_postgres *s, struct err *e)
{
	struct pg_conn *c = pg_take(s->readers, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(c, &ping_get);
	int r = postgres_do(&q, e);
	pg_return(c);
	return outcome_of(r);
}

static int postgres_ping(struct sink *base, struct err *e)
{
	struct sink_postgres *s = self(base);
	int r = ping_read(s, e);
	if (r != 0 || !atomic_load(&s->troubled))
		return r;
	struct str address = pg_pool_address(s->writers);
	pthread_mutex_lock(
	    &s->trouble_lock); /* the worker tries again by itself: this only says how it went */
	r = err_set(e, ERR_UNAVAILABLE, "%.*s: the last write of statistics failed: %s", STR_ARG(address),
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
    .settle = postgres_settle,
    .forget = postgres_forget,
    .tidy = postgres_tidy,
    .totals = postgres_totals,
    .totals_flushed = postgres_totals_flushed,
    .stats = postgres_stats,
    .visits = postgres_visits,
    .window = postgres_window,
    .top_links = postgres_top_links,
    .clicks = postgres_clicks,
    .books = postgres_books,
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
	                                   "this server only follows another one; name that one, or all of "
	                                   "them with target_session_attrs=read-write")
	                         : postgres_tables_make(c, &s->layout, &why);
	pg_return(c);
	return r ? err_set(e, r == ERR_INVALID ? r : outcome_of(r), "%.*s: %s", STR_ARG(address), why.text)
	         : 0;
}

static int parts_open(struct sink_postgres *s, const char *url, struct err *e)
{
	int r = pg_pool_new(str_of(url), 1, NULL, NULL, &s->writers, e);
	if (r == 0)
		r = pg_pool_new(str_of(url), READERS, NULL, NULL, &s->readers, e);
	if (r != 0)
		return r;
	pg_pool_timeout(s->writers, TIMEOUT_MS);
	pg_pool_timeout(s->readers, TIMEOUT_MS);
	r = tables_make(s, e);
	if (r == 0 && postgres_names_new(s->layout.key, &s->names) < 0)
		r = err_set(e, ERR_NOMEM, "memory ran out");
	return r;
}

int sink_postgres_open(const char *url, const struct sink_settings *settings, struct sink **ret,
                       struct err *e)
{
	struct sink_postgres *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "memory ran out");
	s->base.ops = &postgres_ops;
	s->settings = sink_settings_settle(settings);
	pthread_mutex_init(&s->trouble_lock, NULL);
	int r = parts_open(s, url, e);
	if (r != 0) {
		postgres_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
