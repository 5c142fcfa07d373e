/*
 * Which impressions were counted before. The table `seen` is sorted by fingerprint; all that it has about
 * those asked for is fetched, and judged here: it is little, as hardly anybody repeats himself.
 */
#include "sink/clickhouse_sink.h"

#include <stdlib.h>

enum { RECALL_PIECE = 10000 };

static int print_compare(const void *a, const void *b)
{
	struct sink_recall *const *x = a, *const *y = b;
	return memcmp((*x)->fingerprint, (*y)->fingerprint, SINK_FINGERPRINT_BYTES);
}

static int print_find(const void *key, const void *item)
{
	struct sink_recall *const *y = item;
	return memcmp(key, (*y)->fingerprint, SINK_FINGERPRINT_BYTES);
}

/* What the answer says about one of them. */
struct verdict {
	bool is_itself, is_other;
};

static int judge_all(const struct sink_clickhouse *s, struct sink_recall **asked, size_t count,
                     const struct buf *answer, struct verdict *verdicts)
{
	struct row_reader rows = row_reader_of(answer);
	int64_t window_ms = (int64_t)s->settings.seen_ms;
	while (row_more(&rows)) {
		const char *print = row_take(&rows, SINK_FINGERPRINT_BYTES);
		int64_t received_ms = row_i64(&rows);
		struct event_id id = {.node = row_u64(&rows)};
		id.segment = row_u64(&rows);
		id.position = row_u64(&rows);
		row_end(&rows);
		struct sink_recall **found =
		    rows.bad ? NULL : bsearch(print, asked, count, sizeof(struct sink_recall *), print_find);
		while (found && found > asked && print_compare(found - 1, found) == 0)
			found--;
		for (; found && found < asked + count && print_find(print, found) == 0; found++) {
			struct verdict *v = &verdicts[found - asked];
			int64_t apart_ms = received_ms - (*found)->received_ms;
			if (event_id_equals(id, (*found)->event))
				v->is_itself = true;
			else if (apart_ms < window_ms && -apart_ms < window_ms)
				v->is_other = true;
		}
	}
	return ch_end(&rows);
}

static int recall_piece(struct sink_clickhouse *s, struct sink_recall **asked, size_t count)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	qsort(asked, count, sizeof(struct sink_recall *), print_compare);
	int64_t first_ms = INT64_MAX, last_ms = INT64_MIN, window_ms = (int64_t)s->settings.seen_ms;
	for (size_t i = 0; i < count; i++) {
		first_ms = MIN(first_ms, asked[i]->received_ms);
		last_ms = MAX(last_ms, asked[i]->received_ms);
	}
	buf_printf(&sql,
	           "SELECT fingerprint, received, node, segment, position, toUInt8(0) FROM seen"
	           " WHERE day >= toDate(%u) AND day <= toDate(%u) AND fingerprint IN (",
	           ch_day(ch_clamp(first_ms) - window_ms), ch_day(ch_clamp(last_ms) + window_ms));
	for (size_t i = 0; i < count; i++) {
		buf_char(&sql, i ? ',' : ' ');
		ch_quote(&sql, str_n((const char *)asked[i]->fingerprint, SINK_FINGERPRINT_BYTES));
	}
	buf_char(&sql, ')');
	int r = ch_ask(s, &sql, &answer);
	struct verdict *verdicts = r == 0 ? calloc(count, sizeof(*verdicts)) : NULL;
	if (r == 0)
		r = verdicts ? judge_all(s, asked, count, &answer, verdicts) : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < count; i++) {
		asked[i]->is_duplicate = verdicts[i].is_other && !verdicts[i].is_itself;
		asked[i]->is_itself = verdicts[i].is_itself;
	}
	free(verdicts);
	return r;
}

int ch_recall(struct sink *base, struct sink_recall *asked, size_t count)
{
	struct sink_clickhouse *s = ch_self(base);
	struct sink_recall **piece = malloc(RECALL_PIECE * sizeof(struct sink_recall *));
	int r = piece ? 0 : ERR_NOMEM;
	for (size_t at = 0; r == 0 && at < count; at += RECALL_PIECE) {
		size_t n = MIN(count - at, RECALL_PIECE);
		for (size_t i = 0; i < n; i++)
			piece[i] = &asked[at + i];
		r = recall_piece(s, piece, n);
	}
	free(piece);
	return r;
}

int ch_recalls_any(struct sink *base)
{
	struct sink_clickhouse *s = ch_self(base);
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(&sql, "SELECT toUInt8(0) FROM seen LIMIT 1");
	int r = ch_ask(s, &sql, &answer);
	return r < 0 ? r : answer.len > 0;
}
