/*
 * A commit writes new dimension sets and texts to their dictionaries, visits to the buffer (the table
 * `fresh`), impressions not seen before with their counts, positions, and the row `book`.
 *
 * Values that visitors and clients choose are bounded per day: further dimension sets and ads become
 * "(other)", further texts are not stored.
 */
#include "sink/dimension_set.h"
#include "sink/sqlite_seen.h"
#include "sink/sqlite_sink.h"

#include <stdlib.h>

enum {
	NEW_TEXTS_PER_DAY = 200000,
	BUFFER_VISITS_MAX = 8192, /* in one row */
};

/* --- dimension sets --- */

static bool column_is(const struct query *q, int column, struct str value)
{
	bool null = sqlite3_column_type(q->stmt, column) == SQLITE_NULL;
	if (null || !value.ptr)
		return null && !value.ptr;
	const char *text = (const char *)sqlite3_column_text(q->stmt, column);
	return text && str_eq(str_n(text, (size_t)sqlite3_column_bytes(q->stmt, column)), value);
}

static int set_insert(struct intake *in, uint64_t hash, const struct dimension_set *set, int64_t *ret_id)
{
	CLEANUP(query_end) struct query q = QUERY(in->c, SQL_SET_INSERT, hash, set->kind);
	for (int i = 0; i < DIM_COUNT; i++)
		query_str(&q, set->dims[i]);
	int rc = query_run(&q);
	*ret_id = sqlite3_last_insert_rowid(in->c->db);
	in->book.new_sets++;
	in->set_last = (uint64_t)*ret_id;
	return rc;
}

/* *ret_id: 0 if the file does not have it. */
static int set_find(struct intake *in, const struct dimension_set *set, uint64_t *ret_hash, int64_t *ret_id)
{
	dimension_set_pack(&in->scratch, set);
	if (in->scratch.failed)
		return SQLITE_NOMEM;
	*ret_hash = keyed_hash(in->key, in->scratch.data, in->scratch.len);
	CLEANUP(query_end) struct query q = QUERY(in->c, SQL_SET_BY_HASH, *ret_hash);
	*ret_id = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		bool same = sqlite3_column_int(q.stmt, 1) == (int)set->kind;
		for (int i = 0; same && i < DIM_COUNT; i++)
			same = column_is(&q, 2 + i, set->dims[i]);
		if (!same)
			continue;
		*ret_id = sqlite3_column_int64(q.stmt, 0);
		return SQLITE_OK;
	}
	return db_done(rc);
}

static int set_id(struct intake *in, struct dimension_set set, int64_t *ret_id)
{
	uint64_t hash;
	size_t stage = 0;
	int rc;
	do
		rc = set_find(in, &set, &hash, ret_id);
	while (rc == SQLITE_OK && *ret_id == 0 &&
	       dimension_set_simplify(&set, stage++, in->book.new_sets, in->set_last));
	if (rc == SQLITE_OK && *ret_id == 0)
		rc = set_insert(in, hash, &set, ret_id);
	return rc;
}

static int write_sets(struct intake *in)
{
	size_t count = in->batch->set_count;
	in->sets = calloc(count + 1, sizeof(*in->sets));
	in->clicks = calloc(count + 1, sizeof(*in->clicks));
	int rc = in->sets && in->clicks ? db_last_id(in->c, SQL_SET_LAST, &in->set_last) : SQLITE_NOMEM;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
		int64_t id = 0;
		rc = set_id(in, in->batch->sets[i], &id);
		in->sets[i] = (uint32_t)id;
		in->clicks[i] = in->batch->sets[i].kind == VISIT_CLICK;
	}
	return rc;
}

/* --- texts --- */

enum { TEXT_NOT_KEPT = -1 };

static int text_find(struct intake *in, uint64_t hash, struct str text, int64_t *ret_id, bool *ret_old)
{
	CLEANUP(query_end) struct query q = QUERY(in->c, SQL_TEXT_BY_HASH, hash);
	*ret_id = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		if (!column_is(&q, 1, text))
			continue;
		*ret_id = sqlite3_column_int64(q.stmt, 0);
		*ret_old = sqlite3_column_int64(q.stmt, 2) < day_of(in->batch->now_ms);
		return SQLITE_OK;
	}
	return db_done(rc);
}

/* The id of the batch's text `index`, looked up when it is first used. */
static int text_id(struct intake *in, uint32_t index, uint64_t *ret)
{
	*ret = 0;
	if (index == SINK_NO_TEXT)
		return SQLITE_OK;
	ASSERT(index < in->batch->text_count);
	struct str text = in->batch->texts[index];
	int rc = SQLITE_OK;
	if (in->texts[index] == 0 && text.ptr) {
		uint64_t hash = keyed_hash(in->key, text.ptr, text.len);
		int64_t id;
		bool old = false;
		rc = text_find(in, hash, text, &id, &old);
		if (rc == SQLITE_OK && id == 0 && in->book.new_texts >= NEW_TEXTS_PER_DAY) {
			id = TEXT_NOT_KEPT;
		} else if (rc == SQLITE_OK && id == 0) {
			CLEANUP(query_end) struct query q = QUERY(in->c, SQL_TEXT_INSERT, hash);
			query_str(&q, text);
			query_int(&q, day_of(in->batch->now_ms));
			rc = query_run(&q);
			id = sqlite3_last_insert_rowid(in->c->db);
			in->book.new_texts++;
		} else if (rc == SQLITE_OK && old) {
			rc = RUN(in->c, SQL_TEXT_TOUCH, id, day_of(in->batch->now_ms));
		}
		in->texts[index] = id;
	}
	*ret = in->texts[index] == TEXT_NOT_KEPT ? 0 : (uint64_t)in->texts[index];
	return rc;
}

/* --- visits --- */

struct buffer {
	struct buf keys, visitors, details;
	uint64_t visits, orphans;
	struct keys_state state;
};

static void buffer_release(struct buffer *f)
{
	buf_release(&f->keys);
	buf_release(&f->visitors);
	buf_release(&f->details);
}

static int buffer_write(struct intake *in, struct buffer *f)
{
	if (f->keys.failed || f->visitors.failed || f->details.failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end)
	struct query q = QUERY(in->c, SQL_BUFFER_INSERT, in->batch->now_ms, f->visits, f->orphans);
	query_blob(&q, f->keys.data, f->keys.len);
	query_blob(&q, f->visitors.data, f->visitors.len);
	query_blob(&q, f->details.data, f->details.len);
	int rc = query_run(&q);
	f->keys.len = f->visitors.len = f->details.len = 0;
	f->visits = f->orphans = 0;
	f->state = (struct keys_state){0};
	return rc;
}

static int write_visits(struct intake *in)
{
	CLEANUP(buffer_release) struct buffer f = {0};
	in->texts = calloc(in->batch->text_count + 1, sizeof(*in->texts));
	int rc = in->texts ? SQLITE_OK : SQLITE_NOMEM;
	for (size_t i = 0; rc == SQLITE_OK && i < in->batch->visit_count; i++) {
		const struct sink_visit *v = &in->batch->visits[i];
		ASSERT(v->set < in->batch->set_count && v->link <= INT64_MAX);
		ASSERT((v->link == 0) == visit_is_orphan(in->batch->sets[v->set].kind));
		ASSERT(v->address_len <= ADDRESS_BYTES_MAX);
		struct visit_details details = {.address_len = v->address_len};
		memcpy(details.address, v->address, v->address_len);
		rc = text_id(in, v->agent, &details.agent)
		     ?: text_id(in, v->referrer, &details.referrer)
		     ?: text_id(in, v->place, &details.place)
		     ?: text_id(in, v->path, &details.path);
		uint8_t *key = (uint8_t *)buf_reserve(&f.keys, KEY_BYTES_MAX);
		uint8_t *more = (uint8_t *)buf_reserve(&f.details, DETAILS_BYTES_MAX);
		if (rc != SQLITE_OK || !key || !more)
			return rc == SQLITE_OK ? SQLITE_NOMEM : rc;
		struct visit_key k = {.time_ms = v->time_ms,
		                      .link = v->link,
		                      .set = in->sets[v->set],
		                      .click = in->clicks[v->set]};
		f.keys.len += (size_t)(visit_key_put(key, &f.state, &k) - key);
		f.details.len += (size_t)(visit_details_put(more, &details) - more);
		uint32_t visitor = v->link != 0 && in->clicks[v->set] ? dimension_set_visitor_hash(v->visitor)
		                                                      : 0;
		buf_append(&f.visitors, &visitor, sizeof(visitor));
		f.visits++;
		f.orphans += v->link == 0;
		if (f.visits == BUFFER_VISITS_MAX)
			rc = buffer_write(in, &f);
	}
	if (rc == SQLITE_OK && f.visits > 0)
		rc = buffer_write(in, &f);
	return rc;
}

/* --- impressions --- */

/* Puts the impressions that were not seen before into `kept`. */
static int filter_seen(struct intake *in, bool *seen, const struct sink_impression **kept, size_t *ret_count)
{
	size_t count = in->batch->impression_count, left = 0;
	for (size_t i = 0; i < count; i++)
		in->entries[i] = seen_entry_of(&in->batch->impressions[i]);
	int rc = seen_check(in->seen, in->c, in->entries, count, seen);
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
		if (seen[i])
			continue;
		const struct sink_impression *impression = &in->batch->impressions[i];
		in->entries[left] = in->entries[i];
		kept[left++] = impression;
		in->book.received_ms = MAX(in->book.received_ms, impression->received_ms);
	}
	in->duplicates = count - left;
	*ret_count = left;
	return rc;
}

static int write_impressions(struct intake *in)
{
	size_t count = in->batch->impression_count, left;
	if (count == 0)
		return SQLITE_OK;
	in->entries = malloc(count * sizeof(*in->entries));
	bool *seen = malloc(count * sizeof(*seen));
	const struct sink_impression **kept = malloc(count * sizeof(struct sink_impression *));
	int rc = (in->entries && seen && kept ? filter_seen(in, seen, kept, &left) : SQLITE_NOMEM)
	             ?: seen_add(in->seen, in->c, in->entries, left);
	if (rc == SQLITE_OK && left > 0)
		rc = impressions_write(in->c, &in->book, kept, left);
	free(seen);
	free(kept);
	return rc;
}

int intake_run(struct intake *in)
{
	int rc = book_get(in->c, &in->book);
	if (rc != SQLITE_OK)
		return rc;
	in->book.serial++;
	if (in->book.new_day != day_of(in->batch->now_ms)) {
		in->book.new_day = day_of(in->batch->now_ms);
		in->book.new_sets = in->book.new_ads = in->book.new_texts = 0;
	}
	/* It is in the future after the clock was wrong; retention will move it back. */
	in->book.kept_ms = MIN(in->book.kept_ms, MAX(time_floor(in->batch->now_ms, HOUR_MS), 0));
	rc = write_sets(in) ?: write_visits(in) ?: write_impressions(in);
	for (size_t i = 0; rc == SQLITE_OK && i < in->batch->advance_count; i++)
		rc = RUN(in->c, SQL_POSITION_PUT, in->batch->advances[i].stream, in->batch->advances[i].to);
	if (rc == SQLITE_OK) {
		const struct sink_tally *t = &in->batch->tally;
		const struct book_row *b = &in->book;
		rc = RUN(in->c, SQL_BOOK_ADD, t->clicks, t->orphans, t->impressions, t->duplicates,
		         t->unusable_clicks, t->unusable_impressions, t->rejected, t->dropped_clicks,
		         in->duplicates, b->serial, b->new_day, b->new_sets, b->new_ads, b->received_ms,
		         in->batch->now_ms, b->new_texts, b->ads, b->last_ad);
	}
	return rc;
}

void intake_release(struct intake *in)
{
	free(in->sets);
	free(in->clicks);
	free(in->texts);
	free(in->entries);
	buf_release(&in->scratch);
}
