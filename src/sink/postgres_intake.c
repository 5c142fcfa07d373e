/*
 * A batch is one transaction:
 *
 *	1. Locks the positions of its streams, and compares them with where the batch begins. If all are where
 *	   it ends, an earlier attempt committed it and the answer got lost. If they are elsewhere, another
 *	   worker reads the streams.
 *	2. Inserts the fingerprints. A unique key decides which worker counts an impression: the second one
 *	   waits until the first has committed or rolled back.
 *	3. Inserts the rows.
 *	4. Updates the counters, whose rows other workers may wait for.
 *	5. COMMIT. If its answer is lost, step 1 of the next attempt finds out.
 */
#include "sink/postgres_sink.h"

#include <stdio.h>
#include <stdlib.h>

enum { NUMBER_BITS = 20 }; /* visits in one batch */

struct intake_run {
	struct postgres_intake *in;
	struct pg_conn *conn;
	const struct sink_batch *batch;
	struct arena arena;
	bool *kept;      /* per impression: it counts */
	int64_t kept_ms; /* see stats_ad_cell */
	int64_t batch_number;
	struct err *e;
};

static int no_memory(struct intake_run *r)
{
	return err_set(r->e, ERR_NOMEM, "out of memory");
}

/* --- positions --- */

static const struct pg_statement positions_lock = {
    "sink_positions_lock", "SELECT stream, position FROM stats_position WHERE source = $1::bigint"
                           " AND stream = ANY($2::bigint[]) ORDER BY stream FOR UPDATE"};
static const struct pg_statement positions_new = {
    "sink_positions_new", "INSERT INTO stats_position (source, stream, position)"
                          " SELECT $1::bigint, n.* FROM unnest($2::bigint[], $3::bigint[]) AS n"
                          " ON CONFLICT DO NOTHING RETURNING stream"};
static const struct pg_statement positions_move = {
    "sink_positions_move", "UPDATE stats_position p SET position = n.position FROM unnest($2::bigint[],"
                           " $3::bigint[]) AS n(stream, position) WHERE p.source = $1::bigint"
                           " AND p.stream = n.stream"};

static int advance_compare(const void *a, const void *b)
{
	int64_t x = (int64_t)((const struct advance *)a)->stream,
	        y = (int64_t)((const struct advance *)b)->stream;
	return x < y ? -1 : x > y;
}

/* Sorted by stream, as signed: those with a position in the database, and the others. */
struct stream_advances {
	struct advance *known, *new;
	size_t known_count, new_count;
};

static int positions_check(struct intake_run *r, struct stream_advances *ret)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	const struct sink_batch *b = r->batch;
	size_t count = b->advance_count, done = 0;
	struct advance *advances = arena_alloc(&r->arena, (3 * count + 1) * sizeof(*advances));
	if (!advances)
		return no_memory(r);
	if (count > 0) {
		memcpy(advances, b->advances, count * sizeof(*advances));
		qsort(advances, count, sizeof(*advances), advance_compare);
	}
	struct pg_query lock = pg_query(r->conn, &positions_lock);
	pg_int(&lock, (int64_t)b->source);
	PG_FIELDS(&lock, pg_ints, advances, count, stream);
	int result = postgres_txn_begin(&lock, &rows, r->e);
	if (result)
		return result;
	*ret = (struct stream_advances){.known = advances + count, .new = advances + 2 * count};
	/* The rows have the same order. */
	const struct advance *wrong = NULL;
	uint64_t wrong_at = 0;
	for (size_t i = 0, row = 0; i < count; i++) {
		const struct advance *a = &advances[i];
		bool found = row < (size_t)rows.rows && (uint64_t)pg_get_int(&rows, (int)row, 0) == a->stream;
		uint64_t at = found ? (uint64_t)pg_get_int(&rows, (int)row++, 1) : 0;
		*(found ? &ret->known[ret->known_count++] : &ret->new[ret->new_count++]) = *a;
		done += found && at == a->to;
		if (at != a->from) {
			wrong = a;
			wrong_at = at;
		}
	}
	r->in->was_done = wrong && done == count;
	if (!wrong || r->in->was_done)
		return 0;
	return err_set(r->e, ERR_UNCERTAIN,
	               "stream %llx is at position %llu instead of %llu; another worker reads it too",
	               (unsigned long long)wrong->stream, (unsigned long long)wrong_at,
	               (unsigned long long)wrong->from);
}

static void positions_send(struct intake_run *r, const struct pg_statement *statement,
                           const struct advance *advances, size_t count)
{
	struct pg_query q = pg_query(r->conn, statement);
	pg_int(&q, (int64_t)r->batch->source);
	PG_FIELDS(&q, pg_ints, advances, count, stream);
	PG_FIELDS(&q, pg_ints, advances, count, to);
	pg_send(&q);
}

/* --- impressions --- */

static const struct pg_statement clock_get = {
    "sink_clock_get", "SELECT kept_ms, nextval('stats_batch') FROM stats_clock WHERE id = 1"};

/* Returns the fingerprints that count. If one was counted before the window, all times of receipt are kept
 * that a later impression may be compared with. */
static const struct pg_statement seen_add = {
    "sink_seen_add",
    "INSERT INTO stats_seen AS s (fingerprint, received_ms)"
    " SELECT * FROM unnest($1::bytea[], $2::bigint[])"
    " ON CONFLICT (fingerprint) DO UPDATE SET received_ms = excluded.received_ms,"
    " before_ms = ARRAY(SELECT t FROM unnest(s.before_ms || s.received_ms) t"
    " WHERE t > excluded.received_ms - 3 * $3::bigint)"
    " WHERE abs(s.received_ms - excluded.received_ms) >= $3::bigint AND (s.before_ms IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM unnest(s.before_ms) t WHERE abs(t - excluded.received_ms) < $3::bigint))"
    " RETURNING fingerprint"};

struct seen_row {
	struct str print;
	int64_t received_ms;
	size_t index; /* of the impression */
};

static int print_compare(const void *a, const void *b)
{
	const struct seen_row *x = a, *y = b;
	return memcmp(x->print.ptr, y->print.ptr, SINK_FINGERPRINT_BYTES);
}

/* The batch's impressions sorted by fingerprint. */
static struct seen_row *seen_order(struct intake_run *r)
{
	size_t n = r->batch->impression_count;
	struct seen_row *order = arena_alloc(&r->arena, (n + 1) * sizeof(*order));
	if (!order)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		const struct sink_impression *m = &r->batch->impressions[i];
		order[i] = (struct seen_row){
		    .print = str_n((const char *)m->fingerprint, SINK_FINGERPRINT_BYTES),
		    .received_ms = m->received_ms,
		    .index = i};
	}
	if (n > 0)
		qsort(order, n, sizeof(*order), print_compare);
	return order;
}

/* The result has some of the rows sent, in the same order. */
static int seen_read(struct intake_run *r, const struct seen_row *order, const struct pg_result *rows)
{
	size_t n = r->batch->impression_count, at = 0;
	for (int row = 0; row < rows->rows; row++) {
		struct str print = pg_get_text(rows, row, 0);
		while (at < n &&
		       memcmp(order[at].print.ptr, print.ptr, MIN(print.len, SINK_FINGERPRINT_BYTES)) != 0)
			at++;
		if (at == n)
			return err_set(r->e, ERR_CORRUPT,
			               "the database returned a fingerprint that was not sent");
		r->kept[order[at++].index] = true;
	}
	r->in->duplicates = n - (size_t)rows->rows;
	return 0;
}

/* Writes positions and fingerprints, and reads the clock, in one round trip. */
static int claim(struct intake_run *r, const struct stream_advances *s)
{
	CLEANUP(pg_result_end) struct pg_result added = {NULL, 0}, clock = {NULL, 0}, seen = {NULL, 0};
	size_t n = r->batch->impression_count;
	const struct seen_row *order = seen_order(r);
	if (!order || !r->kept)
		return no_memory(r);
	positions_send(r, &positions_new, s->new, s->new_count);
	struct pg_query q = pg_query(r->conn, &clock_get);
	pg_send(&q);
	if (n > 0) {
		q = pg_query(r->conn, &seen_add);
		PG_FIELDS(&q, pg_blobs, order, n, print);
		PG_FIELDS(&q, pg_ints, order, n, received_ms);
		pg_int(&q, (int64_t)r->in->window_ms);
		pg_send(&q);
	}
	positions_send(r, &positions_move, s->known, s->known_count);
	pg_flush(r->conn);
	pg_next(r->conn, &added, NULL);
	pg_next(r->conn, &clock, NULL);
	if (n > 0)
		pg_next(r->conn, &seen, NULL);
	int result = pg_sync(r->conn, r->e);
	if (result != 0)
		return result;
	if ((size_t)added.rows != s->new_count)
		return err_set(r->e, ERR_BUSY, "another worker has just begun to read the same streams");
	if (clock.rows != 1)
		return err_set(r->e, ERR_CORRUPT, "the table stats_clock is empty");
	/* It is in the future after the clock was wrong; retention will move it back. */
	r->kept_ms = MIN(pg_get_int(&clock, 0, 0), MAX(time_floor(r->batch->now_ms, HOUR_MS), 0));
	r->batch_number = pg_get_int(&clock, 0, 1);
	return n > 0 ? seen_read(r, order, &seen) : 0;
}

/* --- rows --- */

static void text_put(struct pg_copy *copy, const struct sink_batch *b, uint32_t index)
{
	struct str text = index == SINK_NO_TEXT ? STR_NULL : b->texts[index];
	pg_copy_bytes(copy, text.ptr, text.len);
}

static int visits_copy(struct intake_run *r)
{
	const struct sink_batch *b = r->batch;
	struct pg_copy copy;
	if (b->visit_count == 0)
		return 0;
	ASSERT(b->visit_count <= 1U << NUMBER_BITS);
	int result = pg_copy_begin(&copy, r->conn,
	                           "COPY stats_visit (time_ms, link, number, recorded_ms, node, segment,"
	                           " position, shape, agent, referrer, place, path, address)"
	                           " FROM STDIN (FORMAT binary)",
	                           r->e);
	for (size_t i = 0; result == 0 && i < b->visit_count; i++) {
		const struct sink_visit *v = &b->visits[i];
		ASSERT(v->set < b->set_count && v->link <= INT64_MAX && v->time_ms >= 0);
		ASSERT((v->link == 0) == visit_is_orphan(b->sets[v->set].kind));
		pg_copy_row(&copy, 13);
		pg_copy_int(&copy, v->time_ms);
		pg_copy_int(&copy, (int64_t)v->link);
		pg_copy_int(&copy, r->batch_number << NUMBER_BITS | (int64_t)i);
		pg_copy_int(&copy, b->now_ms);
		pg_copy_int(&copy, (int64_t)v->event.node);
		pg_copy_int(&copy, (int64_t)v->event.segment);
		pg_copy_int(&copy, (int64_t)v->event.position);
		pg_copy_int32(&copy, (int32_t)r->in->sets[v->set]);
		text_put(&copy, b, v->agent);
		text_put(&copy, b, v->referrer);
		text_put(&copy, b, v->place);
		text_put(&copy, b, v->path);
		pg_copy_bytes(&copy, v->address_len ? v->address : NULL, v->address_len);
	}
	return pg_copy_end(&copy, r->e);
}

static int impressions_copy(struct intake_run *r)
{
	const struct sink_batch *b = r->batch;
	struct pg_copy copy;
	if (b->impression_count == r->in->duplicates)
		return 0;
	int result = pg_copy_begin(&copy, r->conn,
	                           "COPY stats_impression (received_ms, time_ms, node, segment, position, ad,"
	                           " fingerprint, id, user_id) FROM STDIN (FORMAT binary)",
	                           r->e);
	for (size_t i = 0; result == 0 && i < b->impression_count; i++) {
		const struct sink_impression *m = &b->impressions[i];
		if (!r->kept[i])
			continue;
		ASSERT(m->time_ms >= 0 && m->time_ms < 1LL << 48);
		pg_copy_row(&copy, 9);
		pg_copy_int(&copy, m->received_ms);
		pg_copy_int(&copy, m->time_ms);
		pg_copy_int(&copy, (int64_t)m->event.node);
		pg_copy_int(&copy, (int64_t)m->event.segment);
		pg_copy_int(&copy, (int64_t)m->event.position);
		pg_copy_int32(&copy, (int32_t)r->in->ads[i]);
		pg_copy_bytes(&copy, m->fingerprint, SINK_FINGERPRINT_BYTES);
		pg_copy_bytes(&copy, m->id.ptr, m->id.len);
		pg_copy_bytes(&copy, m->user.ptr, m->user.len);
	}
	return pg_copy_end(&copy, r->e);
}

/* --- the transaction --- */

static const struct pg_statement clock_set = {
    "sink_clock_set", "UPDATE stats_clock SET now_ms = $1, received_ms = greatest(received_ms, $2),"
                      " kept_ms = least(kept_ms, $3) WHERE id = 1"};

static int run(struct intake_run *r)
{
	struct stream_advances s = {0};
	int result = positions_check(r, &s);
	if (result != 0 || r->in->was_done)
		return result;
	result = claim(r, &s) ?: visits_copy(r) ?: impressions_copy(r);
	if (result)
		return result;
	/* The counters are sent with the COMMIT, which the server skips if one of them fails. */
	result = postgres_rollups_put(r->conn, r->batch, r->in->sets, r->e);
	if (result == 0 && r->batch->impression_count > 0)
		result = postgres_ads_put(r->conn, r->batch, r->in->ads, r->kept, r->kept_ms);
	if (result == 0)
		result = postgres_reconciliation_put(r->conn, r->batch, r->kept);
	if (result != 0)
		return result;
	int64_t received_ms = 0;
	for (size_t i = 0; i < r->batch->impression_count; i++)
		if (r->kept[i])
			received_ms = MAX(received_ms, r->batch->impressions[i].received_ms);
	struct pg_query q = pg_query(r->conn, &clock_set);
	INTS(&q, r->batch->now_ms, received_ms, r->kept_ms);
	pg_send(&q);
	result = postgres_txn_commit(r->conn, r->e);
	r->in->at_commit = result != 0 && pg_conn_failed(r->conn);
	return result;
}

int postgres_intake_run(struct postgres_intake *in, struct err *e)
{
	struct intake_run r = {.in = in, .conn = in->conn, .batch = in->batch, .e = e};
	r.kept = arena_zalloc(&r.arena, in->batch->impression_count + 1);
	int result = run(&r);
	/* When memory ran out, statements may be under way: then the connection is closed, which rolls
	 * back. */
	if ((result != 0 || in->was_done) && result != ERR_NOMEM)
		postgres_txn_undo(in->conn);
	arena_release(&r.arena);
	return result;
}
