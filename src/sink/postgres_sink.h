/*
 * The parts of the PostgreSQL sink, for its own files only.
 *
 * All tables are in the first schema of the search path, and their names begin with `stats_`.
 * postgres_tables.c describes them.
 */
#pragma once

#include "client/postgres.h"
#include "sink/calendar.h"
#include "sink/keyed.h"
#include "sink/page.h"
#include "sink/settings.h"
#include "sink/sink.h"

/* --- tables --- */

enum row_table { ROWS_VISITS, ROWS_IMPRESSIONS, ROW_TABLES };

/* What was found or created when the database was opened. Must not move: `chunks_drop` points into it. */
struct postgres_layout {
	uint8_t key[SINK_KEY_BYTES];
	bool is_hyper;             /* TimescaleDB partitions the tables of rows: */
	char chunks_drop_sql[256]; /* its functions may be in any schema */
	struct pg_statement chunks_drop;
};

/* Any number of processes may call it at once. ERR_INVALID when a newer version has set the tables up. */
int postgres_tables_make(struct pg_conn *c, struct postgres_layout *ret, struct err *e);

/* Creates the day's partition if needed, and moves the day's rows there from the default partition. ERR_BUSY
 * when locks are taken: rows go to the default partition until it exists. */
int postgres_day_make(struct pg_conn *c, const struct postgres_layout *l, enum row_table table, int64_t day,
                      struct err *e);

/* Drops the oldest partition (or chunks) that ends at or before `before_ms`, the start of a day. *ret_did:
 * there was one. */
int postgres_day_drop(struct pg_conn *c, const struct postgres_layout *l, enum row_table table,
                      int64_t before_ms, bool *ret_did, struct err *e);

/* --- names --- */

/*
 * A cache of the ids of dimension sets and ads. New ids are assigned in a transaction before the batch's own,
 * one process at a time. Ids that a failed batch does not use do no harm. Owned by the committing thread.
 */
struct postgres_names;

int postgres_names_new(const uint8_t key[SINK_KEY_BYTES], struct postgres_names **ret);
void postgres_names_free(struct postgres_names *n);

/* The ids of the batch's dimension sets, and of the ad of each impression. Valid until the next call. */
int postgres_names_get(struct postgres_names *n, struct pg_conn *c, const struct sink_batch *batch,
                       const uint32_t **ret_sets, const uint32_t **ret_ads, struct err *e);

/* --- rollups --- */

/* Sends the batch's counters into the transaction's pipeline. Each table's rows are sent in the order of
 * their keys, so that batches of several workers cannot deadlock. */
int postgres_rollups_put(struct pg_conn *c, const struct sink_batch *batch, const uint32_t *sets,
                         struct err *e);

/* Counts the impressions with kept[i]. Those before `kept_ms` are counted by the hour and day only. */
int postgres_ads_put(struct pg_conn *c, const struct sink_batch *batch, const uint32_t *ads, const bool *kept,
                     int64_t kept_ms);

/* Adds to the tallies of all nodes whose events are in the batch. */
int postgres_reconciliation_put(struct pg_conn *c, const struct sink_batch *batch, const bool *kept);

/* --- intake --- */

struct postgres_intake {
	struct pg_conn *conn;
	const struct sink_batch *batch;
	const uint32_t *sets, *ads;
	uint64_t window_ms;  /* of `seen` */
	uint64_t duplicates; /* out */
	bool was_done;       /* out: an earlier attempt, whose answer got lost, has committed this batch */
	bool at_commit;      /* out: the COMMIT failed; it may have happened */
};

/* Writes the whole batch in one transaction. ERR_BUSY: nothing happened because of a conflict with other
 * workers. ERR_UNCERTAIN: the streams are not where the batch begins. */
int postgres_intake_run(struct postgres_intake *in, struct err *e);

/* --- queries, each in a snapshot that the caller has begun --- */

int postgres_stats_get(struct pg_conn *c, struct stats_query *q);
int postgres_visits_get(struct pg_conn *c, struct visits_query *q, const uint8_t *key,
                        const struct page_cursor *from);
int postgres_window_get(struct pg_conn *c, struct window_query *q);
int postgres_top_links_get(struct pg_conn *c, struct top_links_query *q);
int postgres_clicks_get(struct pg_conn *c, struct sink_total *links, size_t n);
int postgres_reconciliation_get(struct pg_conn *c, uint64_t node, bool deep, struct reconciliation *ret);

/* Dimension sets by their ids, in that order; strings in the arena. ERR_CORRUPT when one is missing. */
int postgres_sets_get(struct pg_conn *c, const int64_t *ids, size_t count, struct arena *arena,
                      struct dimension_set *ret);

/* --- retention --- */

struct postgres_retention {
	size_t next; /* the kind of step to try first, so that all kinds take turns */
	int64_t ads_day, ads_upto;
};

/* One step. >0: it did something. */
int postgres_retention_step(struct postgres_retention *t, struct pg_conn *c, const struct postgres_layout *l,
                            const struct sink_settings *s, int64_t now_ms, struct err *e);

/* --- statements --- */

/* Integers, as the two last arguments of a function; and binding the next parameters to them. */
#define INT_ARGS(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)
#define INTS(q, ...)  postgres_ints(q, INT_ARGS(__VA_ARGS__))
static inline void postgres_ints(struct pg_query *q, const int64_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pg_int(q, values[i]);
}

/* Runs a query, alone in the pipeline, that returns one row of integers; takes the first `count`. NULL leaves
 * `ret` unchanged. ERR_CORRUPT without a row. */
int postgres_find(struct pg_query *q, int64_t *ret, int count, struct err *e);

/* Likewise for any number of rows. *ret_items is set to an array of structs of `columns` 64-bit integers. */
int postgres_rows(struct pg_query *q, int columns, struct arena *arena, void *ret_items, size_t *ret_count,
                  struct err *e);

/* Runs one statement, alone in the pipeline, and ignores its rows. */
int postgres_exec(struct pg_query *q, struct err *e);

/* Begins a transaction with its first query, in one round trip. Commits with everything sent before. */
int postgres_txn_begin(struct pg_query *first, struct pg_result *ret, struct err *e);
int postgres_txn_commit(struct pg_conn *c, struct err *e);
void postgres_txn_undo(struct pg_conn *c);
int postgres_txn_end(struct pg_conn *c, int r, struct err *e); /* commits if r is 0, else rolls back */
