/*
 * Single visits of a link, newest first: by the minute; within one by their ids, the largest first, so that
 * of one node's log what was recorded last comes first. That order never changes, whatever comes in between.
 * A cursor is the minute and the id of the last one given.
 */
#include "sink/clickhouse_sink.h"
#include "sink/keyed.h"
#include "sink/page.h"

#include <sodium.h>

struct cursor {
	uint64_t minute;
	struct event_id id;
	uint64_t
	    check; /* of all that, and of the link: a cursor that never was is refused. It guards nothing. */
};
enum {
	CURSOR_TEXT_BYTES = 2 * sizeof(struct cursor),
	VISIT_BYTES_MIN = 8 + 1 + 24 + DIM_COUNT + 5 + 1, /* of a row: all texts are empty */
};

static const uint8_t cursor_key[SINK_KEY_BYTES] = "curt: a page on";

static struct cursor cursor_make(uint64_t link, uint64_t minute, struct event_id id)
{
	struct cursor c = {.minute = minute, .id = id};
	uint64_t what[] = {link, minute, id.node, id.segment, id.position};
	c.check = keyed_hash(cursor_key, what, sizeof(what));
	return c;
}

static struct str cursor_text(struct arena *arena, struct cursor c)
{
	char *text = arena_alloc(arena, CURSOR_TEXT_BYTES + 1);
	if (!text)
		return STR_NULL;
	sodium_bin2hex(text, CURSOR_TEXT_BYTES + 1, (const unsigned char *)&c, sizeof(c));
	return str_n(text, CURSOR_TEXT_BYTES);
}

/* By making it again. */
static bool cursor_read(struct str text, uint64_t link, struct cursor *ret)
{
	char again[CURSOR_TEXT_BYTES + 1];
	if (text.len != CURSOR_TEXT_BYTES ||
	    sodium_hex2bin((unsigned char *)ret, sizeof(*ret), text.ptr, text.len, NULL, NULL, NULL) != 0)
		return false;
	struct cursor c = cursor_make(link, ret->minute, ret->id);
	sodium_bin2hex(again, sizeof(again), (const unsigned char *)&c, sizeof(c));
	return str_eq(text, str_n(again, CURSOR_TEXT_BYTES));
}

/* What a page is taken from; it shrinks to where the page's visits are. */
struct span {
	int64_t from_ms, to_ms;
	bool goes_on; /* behind the page */
};

static void write_question(const struct visits_query *q, const struct cursor *from, const struct span *span,
                           bool merged, struct buf *sql)
{
	buf_printf(sql, "SELECT time");
	if (merged) {
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

/* Finds out where the page's visits are, by little that is read: so that of all else only that is read whole.
 */
static int span_find(struct sink_clickhouse *s, const struct visits_query *q, const struct cursor *from,
                     struct span *span)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	write_question(q, from, span, false, &sql);
	int r = ch_ask(s, &sql, &answer);
	struct row_reader rows = row_reader_of(&answer);
	*span = (struct span){.from_ms = INT64_MAX, .to_ms = INT64_MIN};
	for (size_t i = 0; r == 0 && row_more(&rows); i++) {
		int64_t time_ms = row_i64(&rows);
		row_end(&rows);
		if (i == q->limit) {
			span->goes_on = true;
			break;
		}
		span->from_ms = MIN(span->from_ms, time_ms);
		span->to_ms = MAX(span->to_ms, time_ms + 1);
	}
	return r ? r : ch_end(&rows);
}

/* A visit, and the cursor behind it. */
static int take_visit(struct row_reader *rows, const struct visits_query *q, struct stats_visit *v,
                      struct cursor *ret)
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
	struct cursor from = {0};
	if (q->limit == 0 || q->link > INT64_MAX ||
	    (q->cursor.ptr && !cursor_read(q->cursor, q->link, &from)))
		return ERR_INVALID;
	struct span span = {.from_ms = ch_clamp(q->from_ms), .to_ms = ch_clamp(q->to_ms)};
	if (q->cursor.ptr)
		span.to_ms = MIN(span.to_ms, (int64_t)(from.minute + 1) * MINUTE_MS);
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	int r = span_find(s, q, &from, &span);
	if (r == 0 && span.from_ms < span.to_ms) {
		write_question(q, &from, &span, true, &sql);
		r = ch_ask(s, &sql, &answer);
	}
	struct row_reader rows = row_reader_of(&answer);
	if (r)
		return r;
	struct cursor last = {0};
	size_t room = MIN(q->limit, (size_t)(rows.end - rows.at) / VISIT_BYTES_MIN), count = 0;
	struct stats_visit *visits = arena_alloc(q->arena, MAX(room, 1) * sizeof(*visits));
	r = visits ? 0 : ERR_NOMEM;
	while (r == 0 && row_more(&rows) && count < room)
		r = take_visit(&rows, q, &visits[count++], &last);
	if (r < 0)
		return r;
	bool goes_on = (span.goes_on || row_more(&rows)) && count > 0;
	struct str next = goes_on ? cursor_text(q->arena, last) : STR_NULL;
	if (goes_on && !next.ptr)
		return ERR_NOMEM;
	q->visits = visits;
	q->count = count;
	q->next = next;
	return 0;
}
