/*
 * Lists single visits of a link: newest minute first, and within a minute the largest event id first, so that
 * the last recorded visit of a node comes first. New events do not change the order of others. A cursor is
 * the minute and the id of the last visit returned.
 */
#include "sink/clickhouse_sink.h"
#include "sink/keyed.h"
#include "sink/page.h"

#include <sodium.h>

struct visit_cursor {
	uint64_t minute;
	struct event_id id;
	uint64_t
	    check; /* over the above and the link: invalid cursors are refused. Not a security measure. */
};
enum {
	CURSOR_TEXT_BYTES = 2 * sizeof(struct visit_cursor),
	VISIT_BYTES_MIN = 8 + 1 + 24 + DIM_COUNT + 5 + 1, /* of a row: all texts are empty */
};

static const uint8_t cursor_key[SINK_KEY_BYTES] = "curt: a page on";

static struct visit_cursor cursor_make(uint64_t link, uint64_t minute, struct event_id id)
{
	struct visit_cursor c = {.minute = minute, .id = id};
	uint64_t what[] = {link, minute, id.node, id.segment, id.position};
	c.check = keyed_hash(cursor_key, what, sizeof(what));
	return c;
}

static struct str cursor_text(struct arena *arena, struct visit_cursor c)
{
	char *text = arena_alloc(arena, CURSOR_TEXT_BYTES + 1);
	if (!text)
		return STR_NULL;
	sodium_bin2hex(text, CURSOR_TEXT_BYTES + 1, (const unsigned char *)&c, sizeof(c));
	return str_n(text, CURSOR_TEXT_BYTES);
}

/* Checks it by encoding it again. */
static bool cursor_read(struct str text, uint64_t link, struct visit_cursor *ret)
{
	char again[CURSOR_TEXT_BYTES + 1];
	if (text.len != CURSOR_TEXT_BYTES ||
	    sodium_hex2bin((unsigned char *)ret, sizeof(*ret), text.ptr, text.len, NULL, NULL, NULL) != 0)
		return false;
	struct visit_cursor c = cursor_make(link, ret->minute, ret->id);
	sodium_bin2hex(again, sizeof(again), (const unsigned char *)&c, sizeof(c));
	return str_eq(text, str_n(again, CURSOR_TEXT_BYTES));
}

/* The range that a page is read from; span_find narrows it to the page's visits. */
struct span {
	int64_t from_ms, to_ms;
	bool has_more; /* after the page */
};

static void write_query(const struct visits_query *q, const struct visit_cursor *from,
                        const struct span *span, bool with_texts, struct buf *sql)
{
	buf_printf(sql, "SELECT time");
	if (with_texts) {
		buf_printf(sql, ", kind, node, segment, position");
		for (int dim = 0; dim < DIM_COUNT; dim++)
			buf_printf(sql, ", %s", visit_dim_names[dim]);
		buf_printf(sql, ", agent, referrer_url, place, path, address");
	}
	buf_printf(sql, ", toUInt8(0) FROM visit FINAL");
	ch_where_time(sql, span->from_ms, span->to_ms);
	buf_printf(sql, " AND link = %llu AND details = 1", (unsigned long long)q->link);
	if (q->cursor.ptr)
		buf_printf(sql, " AND (time < %llu OR (node, segment, position) < (%llu, %llu, %llu))",
		           (unsigned long long)from->minute * MINUTE_MS, (unsigned long long)from->id.node,
		           (unsigned long long)from->id.segment, (unsigned long long)from->id.position);
	buf_printf(sql,
	           " ORDER BY intDiv(time, %lld) DESC, node DESC, segment DESC, position DESC LIMIT %llu",
	           MINUTE_MS, (unsigned long long)q->limit + 1);
}

/* Narrows the span by reading times only, so that texts are read only for the page. */
static int span_find(struct sink_clickhouse *s, const struct visits_query *q, const struct visit_cursor *from,
                     struct span *span)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	write_query(q, from, span, false, &sql);
	int r = ch_select(s, &sql, &answer);
	struct row_reader rows = row_reader_of(&answer);
	*span = (struct span){.from_ms = INT64_MAX, .to_ms = INT64_MIN};
	for (size_t i = 0; r == 0 && row_more(&rows); i++) {
		int64_t time_ms = row_i64(&rows);
		row_end(&rows);
		if (i == q->limit) {
			span->has_more = true;
			break;
		}
		span->from_ms = MIN(span->from_ms, time_ms);
		span->to_ms = MAX(span->to_ms, time_ms + 1);
	}
	return r ? r : ch_rows_status(&rows);
}

/* Reads a visit, and makes its cursor. */
static int take_visit(struct row_reader *rows, const struct visits_query *q, struct stats_visit *v,
                      struct visit_cursor *ret)
{
	*v = (struct stats_visit){.time_ms = row_i64(rows), .link = q->link};
	uint8_t kind = row_u8(rows);
	struct event_id id = {.node = row_u64(rows)};
	id.segment = row_u64(rows);
	id.position = row_u64(rows);
	struct str place = STR_NULL;
	bool good = true;
	for (int dim = 0; dim < DIM_COUNT; dim++)
		good &= ch_text_get(rows, q->arena, &v->set.dims[dim]);
	good &= ch_text_get(rows, q->arena, &v->agent);
	good &= ch_text_get(rows, q->arena, &v->referrer);
	good &= ch_text_get(rows, q->arena, &place);
	good &= ch_text_get(rows, q->arena, &v->path);
	struct str address = row_text(rows);
	row_end(rows);
	if (rows->bad || kind >= VISIT_KINDS)
		return ERR_CORRUPT;
	page_place(place, v);
	v->set.kind = kind;
	v->address = page_address(q->arena, (const uint8_t *)address.ptr, address.len);
	good &= address.len == 0 || v->address.ptr;
	*ret = cursor_make(q->link, (uint64_t)(v->time_ms / MINUTE_MS), id);
	return good ? 0 : ERR_NOMEM;
}

int ch_visits(struct sink *base, struct visits_query *q)
{
	struct sink_clickhouse *s = ch_self(base);
	struct visit_cursor from = {0};
	if (q->limit == 0 || q->link > INT64_MAX ||
	    (q->cursor.ptr && !cursor_read(q->cursor, q->link, &from)))
		return ERR_INVALID;
	struct span span = {.from_ms = ch_clamp(q->from_ms), .to_ms = ch_clamp(q->to_ms)};
	if (q->cursor.ptr)
		span.to_ms = MIN(span.to_ms, (int64_t)(from.minute + 1) * MINUTE_MS);
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	int r = span_find(s, q, &from, &span);
	if (r == 0 && span.from_ms < span.to_ms) {
		write_query(q, &from, &span, true, &sql);
		r = ch_select(s, &sql, &answer);
	}
	struct row_reader rows = row_reader_of(&answer);
	if (r)
		return r;
	struct visit_cursor last = {0};
	size_t room = MIN(q->limit, (size_t)(rows.end - rows.at) / VISIT_BYTES_MIN), count = 0;
	struct stats_visit *visits = arena_alloc(q->arena, MAX(room, 1) * sizeof(*visits));
	r = visits ? 0 : ERR_NOMEM;
	while (r == 0 && row_more(&rows) && count < room)
		r = take_visit(&rows, q, &visits[count++], &last);
	if (r < 0)
		return r;
	bool has_more = (span.has_more || row_more(&rows)) && count > 0;
	struct str next = has_more ? cursor_text(q->arena, last) : STR_NULL;
	if (has_more && !next.ptr)
		return ERR_NOMEM;
	q->visits = visits;
	q->count = count;
	q->next = next;
	return 0;
}
