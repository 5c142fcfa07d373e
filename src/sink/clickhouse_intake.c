/*
 * A commit is one INSERT for each table that gets rows. `seen` comes before `impression`: clickhouse_tables.c
 * says why.
 *
 * The rows of a failed commit are kept. If the next commit has the same rows, it is a retry: it skips tables
 * that have theirs, and uses the same query ids, so that the server rejects it while the first INSERT runs.
 *
 * The outcome of an INSERT that timed out is unknown, so it is sent again. Its timeout is twice the time
 * since the first attempt, at most ten minutes: a server that needs minutes for a block accepts it at the
 * second or third attempt. The queue's reader must be allowed to be busy for three times as long
 * (kafka_consumer.c).
 */
#include "os/clock.h"
#include "sink/clickhouse_sink.h"
#include "sink/dimension_set.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	INSERT_TIMEOUT_MS_MAX = 600000,
	VISIT_FIXED_BYTES = 2 + 8 + 8 + 24 + 1 + 4,
	IMPRESSION_FIXED_BYTES = 2 + 4 + 24 + 8 + 8 + 1 + SINK_FINGERPRINT_BYTES,
	SEEN_BYTES = 2 + SINK_FINGERPRINT_BYTES + 8 + 24,
	NOTE_BYTES = 2 + 24 + 1 + 8 + 8,
	QUERY_ID_BYTES = 96,
};

/* --- values --- */

static size_t text_room(struct str s)
{
	return s.len + 1 + ROW_TEXT_LENGTH_BYTES_MAX;
}

static char *put_text(char *out, struct str s)
{
	bool mark = ch_text_needs_mark(s);
	out = row_put_length(out, s.len + mark);
	if (mark)
		*out++ = '\0';
	return row_put_bytes(out, s.ptr, s.len);
}

static char *put_id(char *out, struct event_id id)
{
	out = row_put_u64(out, id.node);
	out = row_put_u64(out, id.segment);
	return row_put_u64(out, id.position);
}

/* --- dimension sets: encoded once, copied into every row --- */

struct packed_sets {
	struct buf bytes;
	uint32_t *ends; /* of each set; the first begins at 0 */
};

static void packed_sets_release(struct packed_sets *p)
{
	buf_release(&p->bytes);
	free(p->ends);
}

static int sets_pack(const struct sink_batch *b, struct packed_sets *ret)
{
	ret->ends = malloc((b->set_count + 1) * sizeof(*ret->ends));
	if (!ret->ends)
		return ERR_NOMEM;
	for (size_t i = 0; i < b->set_count; i++) {
		for (int dim = 0; dim < DIM_COUNT; dim++) {
			struct str text = b->sets[i].dims[dim];
			char *out = buf_reserve(&ret->bytes, text_room(text));
			if (!out)
				return ERR_NOMEM;
			ret->bytes.len += (size_t)(put_text(out, text) - out);
		}
		ret->ends[i] = (uint32_t)ret->bytes.len;
	}
	return 0;
}

/* --- rows --- */

static struct str text_at(const struct sink_batch *b, uint32_t index)
{
	ASSERT(index == SINK_NO_TEXT || index < b->text_count);
	return index == SINK_NO_TEXT ? STR_NULL : b->texts[index];
}

static int write_visit(struct clickhouse_rows *rows, const struct sink_batch *b,
                       const struct packed_sets *sets, const struct sink_visit *v)
{
	ASSERT(v->set < b->set_count && v->address_len <= ADDRESS_BYTES_MAX);
	enum visit_kind kind = b->sets[v->set].kind;
	ASSERT((v->link == 0) == visit_is_orphan(kind));
	size_t from = v->set ? sets->ends[v->set - 1] : 0;
	struct str dims = str_n(sets->bytes.data + from, sets->ends[v->set] - from);
	struct str texts[] = {text_at(b, v->agent), text_at(b, v->referrer), text_at(b, v->place),
	                      text_at(b, v->path)};
	size_t room = VISIT_FIXED_BYTES + dims.len + 1 + ADDRESS_BYTES_MAX + 1;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		room += text_room(texts[i]);
	char *begin = buf_reserve(&rows->raw, room);
	if (!begin)
		return ERR_NOMEM;
	char *out = row_put_u16(begin, ch_day(v->time_ms));
	out = row_put_u64(out, v->link);
	out = row_put_i64(out, v->time_ms);
	out = put_id(out, v->event);
	out = row_put_u8(out, (uint8_t)kind);
	out = row_put_u32(out, kind == VISIT_CLICK ? dimension_set_visitor_hash(v->visitor) : 0);
	out = row_put_bytes(out, dims.ptr, dims.len);
	out = row_put_u8(out, 1);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		out = put_text(out, texts[i]);
	out = row_put_length(out, v->address_len);
	out = row_put_bytes(out, v->address, v->address_len);
	rows->raw.len += (size_t)(out - begin);
	clickhouse_rows_step(rows);
	return 0;
}

static int write_visits(struct clickhouse_rows *rows, const struct sink_batch *b)
{
	if (b->visit_count == 0)
		return 0;
	CLEANUP(packed_sets_release) struct packed_sets sets = {0};
	int r = sets_pack(b, &sets);
	for (size_t i = 0; r == 0 && i < b->visit_count; i++)
		r = write_visit(rows, b, &sets, &b->visits[i]);
	return r;
}

static int write_impressions(struct clickhouse_rows *rows, const struct sink_batch *b)
{
	for (size_t n = 0; n < b->impression_count; n++) {
		const struct sink_impression *i = &b->impressions[n];
		char *begin = buf_reserve(&rows->raw, IMPRESSION_FIXED_BYTES + text_room(i->ad) +
		                                          text_room(i->id) + text_room(i->user));
		if (!begin)
			return ERR_NOMEM;
		char *out = row_put_u16(begin, ch_day(i->received_ms));
		out = row_put_u32(out, (uint32_t)MAX(MIN(i->time_ms / MINUTE_MS, UINT32_MAX), 0));
		out = put_text(out, i->ad);
		out = put_id(out, i->event);
		out = row_put_i64(out, i->time_ms);
		out = row_put_i64(out, i->received_ms);
		out = row_put_u8(out, 1);
		out = row_put_bytes(out, i->fingerprint, SINK_FINGERPRINT_BYTES);
		out = put_text(out, i->id);
		out = put_text(out, i->user);
		rows->raw.len += (size_t)(out - begin);
		clickhouse_rows_step(rows);
	}
	return 0;
}

static int write_seen(struct clickhouse_rows *rows, const struct sink_batch *b)
{
	for (size_t n = 0; n < b->impression_count; n++) {
		const struct sink_impression *i = &b->impressions[n];
		char *out = buf_reserve(&rows->raw, SEEN_BYTES);
		if (!out)
			return ERR_NOMEM;
		out = row_put_u16(out, ch_day(i->received_ms));
		out = row_put_bytes(out, i->fingerprint, SINK_FINGERPRINT_BYTES);
		out = row_put_i64(out, i->received_ms);
		put_id(out, i->event);
		rows->raw.len += SEEN_BYTES;
		clickhouse_rows_step(rows);
	}
	return 0;
}

static int write_notes(struct clickhouse_rows *rows, const struct sink_batch *b)
{
	for (size_t i = 0; i < b->note_count; i++) {
		const struct sink_note *n = &b->notes[i];
		char *out = buf_reserve(&rows->raw, NOTE_BYTES);
		if (!out)
			return ERR_NOMEM;
		out = row_put_u16(out, ch_day(n->time_ms));
		out = put_id(out, n->event);
		out = row_put_u8(out, (uint8_t)n->kind);
		out = row_put_i64(out, n->time_ms);
		row_put_u64(out, n->count);
		rows->raw.len += NOTE_BYTES;
		clickhouse_rows_step(rows);
	}
	return 0;
}

static int (*const writers[CH_INSERTED])(struct clickhouse_rows *, const struct sink_batch *) = {
    [CH_VISIT] = write_visits,
    [CH_IMPRESSION] = write_impressions,
    [CH_SEEN] = write_seen,
    [CH_NOTE] = write_notes,
};

static int intake_fill(struct sink_clickhouse *s, const struct sink_batch *b)
{
	for (size_t i = 0; i < CH_INSERTED; i++) {
		struct clickhouse_rows *rows = &s->now.rows[i];
		clickhouse_rows_begin(s->client, rows);
		int r = writers[i](rows, b) ?: clickhouse_rows_end(rows);
		if (r < 0)
			return r;
		s->now.is_inserted[i] = false;
	}
	return 0;
}

/* --- inserting --- */

static int insert(struct sink_clickhouse *s, enum ch_table table)
{
	const struct buf *rows = &s->now.rows[table].done;
	char sql[64], id[QUERY_ID_BYTES];
	if (rows->len == 0 || s->now.is_inserted[table])
		return 0;
	snprintf(sql, sizeof(sql), "INSERT INTO %s FORMAT RowBinary", ch_table_names[table]);
	snprintf(id, sizeof(id), "%s-%llu-%s", s->base_id, (unsigned long long)s->serial,
	         ch_table_names[table]);
	int64_t begun_ms = clock_mono_ms(), slow_ms = s->slow_since_ms ? begun_ms - s->slow_since_ms : 0;
	struct clickhouse_call call = {
	    .sql = str_of(sql),
	    .rows = rows,
	    .settings = s->insert_settings,
	    .query_id = id,
	    .timeout_ms = MAX(MIN(2 * slow_ms, INSERT_TIMEOUT_MS_MAX), s->insert_timeout_ms)};
	int r = clickhouse_run(s->client, &call, NULL, NULL);
	bool is_late = r == ERR_BUSY || clock_mono_ms() - begun_ms >= call.timeout_ms;
	if (r < 0 && is_late && s->slow_since_ms == 0)
		s->slow_since_ms = begun_ms;
	s->now.is_inserted[table] = r == 0;
	return r;
}

static const enum ch_table order[CH_INSERTED] = {CH_VISIT, CH_SEEN, CH_IMPRESSION, CH_NOTE};

int ch_commit(struct sink_clickhouse *s, const struct sink_batch *b)
{
	int r = intake_fill(s, b);
	if (r < 0)
		return r;
	bool is_retry = s->has_failed;
	for (size_t i = 0; is_retry && i < CH_INSERTED; i++)
		is_retry = str_eq(buf_view(&s->now.rows[i].done), buf_view(&s->failed.rows[i].done));
	if (is_retry) {
		memcpy(s->now.is_inserted, s->failed.is_inserted, sizeof(s->now.is_inserted));
	} else {
		s->serial++;
		s->slow_since_ms = 0;
	}
	for (size_t i = 0; r == 0 && i < CH_INSERTED; i++)
		r = insert(s, order[i]);
	s->has_failed = r < 0;
	if (r < 0) {
		struct ch_intake swap = s->now;
		s->now = s->failed;
		s->failed = swap;
	} else {
		s->now_ms = b->now_ms;
	}
	return r == 0 || r == ERR_LIMIT || r == ERR_NOMEM ? r : ERR_UNAVAILABLE;
}

void ch_intake_release(struct ch_intake *in)
{
	for (size_t i = 0; i < CH_INSERTED; i++)
		clickhouse_rows_release(&in->rows[i]);
}
