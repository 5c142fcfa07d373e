/*
 * Finds impressions that were counted before. The table `seen` is sorted by fingerprint. Its rows with the
 * wanted fingerprints are fetched and compared here: they are few, as duplicates are rare.
 */
#include "sink/clickhouse_sink.h"

#include <stdlib.h>

enum { QUERY_MAX = 10000 };

static int print_compare(const void *a, const void *b)
{
	struct duplicate_query *const *x = a, *const *y = b;
	return memcmp((*x)->fingerprint, (*y)->fingerprint, SINK_FINGERPRINT_BYTES);
}

static int print_find(const void *key, const void *item)
{
	struct duplicate_query *const *y = item;
	return memcmp(key, (*y)->fingerprint, SINK_FINGERPRINT_BYTES);
}

/* Sets is_replay, and is_duplicate also for replays. */
static int answer_read(const struct sink_clickhouse *s, struct duplicate_query **queries, size_t count,
                       const struct buf *answer)
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
		struct duplicate_query **found = rows.bad
		                                     ? NULL
		                                     : bsearch(print, queries, count,
		                                               sizeof(struct duplicate_query *), print_find);
		while (found && found > queries && print_compare(found - 1, found) == 0)
			found--;
		for (; found && found < queries + count && print_find(print, found) == 0; found++) {
			int64_t apart_ms = received_ms - (*found)->received_ms;
			if (event_id_equals(id, (*found)->event))
				(*found)->is_replay = true;
			else if (apart_ms < window_ms && -apart_ms < window_ms)
				(*found)->is_duplicate = true;
		}
	}
	return ch_rows_status(&rows);
}

static int query_some(struct sink_clickhouse *s, struct duplicate_query **queries, size_t count)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	qsort(queries, count, sizeof(struct duplicate_query *), print_compare);
	int64_t first_ms = INT64_MAX, last_ms = INT64_MIN, window_ms = (int64_t)s->settings.seen_ms;
	for (size_t i = 0; i < count; i++) {
		first_ms = MIN(first_ms, queries[i]->received_ms);
		last_ms = MAX(last_ms, queries[i]->received_ms);
		queries[i]->is_duplicate = queries[i]->is_replay = false;
	}
	buf_printf(&sql,
	           "SELECT fingerprint, received, node, segment, position, toUInt8(0) FROM seen"
	           " WHERE day >= toDate(%u) AND day <= toDate(%u) AND fingerprint IN (",
	           ch_day(ch_clamp(first_ms) - window_ms), ch_day(ch_clamp(last_ms) + window_ms));
	for (size_t i = 0; i < count; i++) {
		buf_char(&sql, i ? ',' : ' ');
		ch_quote(&sql, str_n((const char *)queries[i]->fingerprint, SINK_FINGERPRINT_BYTES));
	}
	buf_char(&sql, ')');
	int r = ch_select(s, &sql, &answer) ?: answer_read(s, queries, count, &answer);
	for (size_t i = 0; i < count; i++)
		queries[i]->is_duplicate &= !queries[i]->is_replay;
	return r;
}

int ch_find_duplicates(struct sink *base, struct duplicate_query *queries, size_t count)
{
	struct sink_clickhouse *s = ch_self(base);
	struct duplicate_query **some = malloc(QUERY_MAX * sizeof(struct duplicate_query *));
	int r = some ? 0 : ERR_NOMEM;
	for (size_t at = 0; r == 0 && at < count; at += QUERY_MAX) {
		size_t n = MIN(count - at, QUERY_MAX);
		for (size_t i = 0; i < n; i++)
			some[i] = &queries[at + i];
		r = query_some(s, some, n);
	}
	free(some);
	return r;
}

int ch_has_fingerprints(struct sink *base)
{
	struct sink_clickhouse *s = ch_self(base);
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(&sql, "SELECT toUInt8(0) FROM seen LIMIT 1");
	int r = ch_select(s, &sql, &answer);
	return r < 0 ? r : answer.len > 0;
}
