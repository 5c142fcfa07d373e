/*
 * The parts of the PostgreSQL sink. For src/sink/postgres_*.c and sink_postgres.c only.
 *
 * Everything lies in the first schema of the search path, with `stats_` before its name; postgres_tables.c
 * says what there is.
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

/* What was found or made when the database was opened. It stays where it is: a statement points into it. */
struct postgres_layout {
	uint8_t key[SINK_KEY_BYTES];
	bool is_hyper;             /* TimescaleDB cuts the tables of rows: */
	char chunks_drop_sql[256]; /* its functions may lie in any schema */
	struct pg_statement chunks_drop;
};

/* Any number of processes may do it at once. ERR_INVALID with a sentence when a newer version was here. */
int postgres_tables_make(struct pg_conn *c, struct postgres_layout *ret, struct err *e);

/* Makes the partition for that day, unless there is one; rows of it that lie in the rest move there. ERR_BUSY
 * when others are in the way: until it is there, the rest takes the rows. */
int postgres_day_make(struct pg_conn *c, const struct postgres_layout *l, enum row_table table, int64_t day,
                      struct err *e);

/* Drops the oldest partition (or chunks) that end at `before_ms`, a day's beginning, or earlier. *ret_did:
 * there was one. */
int postgres_day_drop(struct pg_conn *c, const struct postgres_layout *l, enum row_table table,
                      int64_t before_ms, bool *ret_did, struct err *e);

/* --- names --- */

/*
 * The numbers of shapes and ads, remembered. New ones are given out in a transaction of its own before the
 * batch's, in which only one process at a time can be: a number that a failed batch does not use is no harm.
 * Owned by the thread that commits.
 */
struct postgres_names;

int postgres_names_new(const uint8_t key[SINK_KEY_BYTES], struct postgres_names **ret);
void postgres_names_free(struct postgres_names *n);

/* Numbers for each of the batch's shapes and for the ad of each impression; the arrays are the names' own,
 * good until the next call. */
int postgres_names_get(struct postgres_names *n, struct pg_conn *c, const struct sink_batch *batch,
                       const uint32_t **ret_sets, const uint32_t **ret_ads, struct err *e);

/* --- rollups --- */

/* What of a batch is added to counters: sent into the transaction's pipeline, each table's rows in the order
 * of their keys, so that batches of several workers never wait for each other in a circle. */
int postgres_rollups_put(struct pg_conn *c, const struct sink_batch *batch, const uint32_t *sets,
                         struct err *e);

/* The impressions that count: `kept[i]` says which. Before `kept_ms` they are counted by the hour only. */
int postgres_ads_put(struct pg_conn *c, const struct sink_batch *batch, const uint32_t *ads, const bool *kept,
                     int64_t kept_ms);

/* The books of all nodes whose events are in the batch. */
int postgres_reconciliation_put(struct pg_conn *c, const struct sink_batch *batch, const bool *kept);

/* --- intake --- */

struct postgres_intake {
	struct pg_conn *conn;
	const struct sink_batch *batch;
	const uint32_t *sets, *ads;
	uint64_t window_ms;  /* of `seen` */
	uint64_t duplicates; /* out */
	bool was_done;       /* out: the batch is there already, from an attempt whose answer got lost */
	bool at_commit;      /* out: it failed at the COMMIT: it may have happened */
};

/* The whole batch, in one transaction. ERR_BUSY: others were in the way, nothing happened; ERR_UNCERTAIN: the
 * streams are not where it begins. */
int postgres_intake_run(struct postgres_intake *in, struct err *e);

/* --- questions --- */

/* Each within a snapshot that the caller has begun. */
int postgres_stats_get(struct pg_conn *c, struct stats_query *q);
int postgres_visits_get(struct pg_conn *c, struct visits_query *q, const uint8_t *key,
                        const struct page_from *from);
int postgres_window_get(struct pg_conn *c, struct window_query *q);
int postgres_top_links_get(struct pg_conn *c, struct top_links_query *q);
int postgres_clicks_get(struct pg_conn *c, struct sink_total *links, size_t n);
int postgres_reconciliation_get(struct pg_conn *c, uint64_t node, bool deep, struct reconciliation *ret);

/* Shapes by their numbers, in that order; strings in the arena. ERR_CORRUPT when one is missing. */
int postgres_sets_get(struct pg_conn *c, const int64_t *ids, size_t count, struct arena *arena,
                      struct dimension_set *ret);

/* --- tidying --- */

struct postgres_retention {
	size_t next; /* the kind of step to begin with, so that each has its turn */
	int64_t ads_day, ads_upto;
};

/* One step. >0: it did something. */
int postgres_retention_step(struct postgres_retention *t, struct pg_conn *c, const struct postgres_layout *l,
                            const struct sink_settings *s, int64_t now_ms, struct err *e);

/* --- statements --- */

/* The next parameters are these integers. */
#define INTS(q, ...)                                     \
	postgres_ints(q, (const int64_t[]){__VA_ARGS__}, \
	              sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
static inline void postgres_ints(struct pg_query *q, const int64_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pg_int(q, values[i]);
}

/* A question alone in the pipeline whose answer is one row of integers, the first `count` of which are
 * wanted. NULL leaves `ret` as it is. ERR_CORRUPT: there is no row. */
int postgres_find(struct pg_query *q, int64_t *ret, int count, struct err *e);

/* Likewise, of any number of rows: *ret_items, a pointer, is to an array of structs of so many 64-bit
 * integers and nothing else. */
int postgres_rows(struct pg_query *q, int columns, struct arena *arena, void *ret_items, size_t *ret_count,
                  struct err *e);

/* One statement with nothing else in the pipeline, whose answer nobody needs. */
int postgres_do(struct pg_query *q, struct err *e);

/* A transaction: its beginning and its first question, in one go; its end, with what was sent before. */
int postgres_txn_begin(struct pg_query *first, struct pg_result *ret, struct err *e);
int postgres_txn_commit(struct pg_conn *c, struct err *e);
void postgres_txn_undo(struct pg_conn *c);
int postgres_txn_end(struct pg_conn *c, int r, struct err *e); /* by what became of it */
