/* What must hold between the rows of a stats file, beyond what SQLite can check: blobs can be decoded, sums
 * agree with what they sum up, and texts with their hashes. */
#include "client/sqlite_check.h"
#include "sink/dimension_set.h"
#include "sink/keyed.h"
#include "sink/sink_sqlite.h"
#include "sink/sqlite_codec.h"
#include "sink/sqlite_sink.h"

struct verifier {
	uint8_t key[SINK_KEY_BYTES];
	struct buf scratch;
};

static bool counts_are(struct str blob, int64_t sum)
{
	struct counts_reader r = {.blob = blob_reader_of(blob)};
	struct count item;
	uint64_t n = 0;
	while (counts_next(&r, &item))
		n += item.n;
	return !r.blob.bad && n == (uint64_t)sum;
}

static bool cell_is_valid(struct verifier *v, const struct query *q)
{
	struct runs runs = {0};
	(void)v;
	bool valid = counts_are(column_blob(q, 1), sqlite3_column_int64(q->stmt, 0)) &&
	             runs_add_blob(&runs, column_blob(q, 2), 0) == 0;
	runs_release(&runs);
	return valid;
}

static bool ad_cell_is_valid(struct verifier *v, const struct query *q)
{
	(void)v;
	return counts_are(column_blob(q, 1), sqlite3_column_int64(q->stmt, 0));
}

static bool visits_are_valid(struct verifier *v, const struct query *q)
{
	struct blob_reader keys = blob_reader_of(column_blob(q, 1)),
	                   details = blob_reader_of(column_blob(q, 2));
	struct keys_state state = {0};
	(void)v;
	for (int64_t i = sqlite3_column_int64(q->stmt, 0); i > 0 && !keys.bad && !details.bad; i--) {
		struct visit_key key;
		visit_key_get(&keys, &state, &key);
		visit_details_skip(&details);
	}
	return !keys.bad && !details.bad && keys.at == keys.end && details.at == details.end;
}

static bool text_is_valid(struct verifier *v, const struct query *q)
{
	struct str text = column_blob(q, 1);
	return (uint64_t)sqlite3_column_int64(q->stmt, 0) == keyed_hash(v->key, text.ptr, text.len);
}

static bool set_is_valid(struct verifier *v, const struct query *q)
{
	struct dimension_set set = {.kind = (uint8_t)sqlite3_column_int(q->stmt, 1)};
	for (int i = 0; i < DIM_COUNT; i++)
		if (sqlite3_column_type(q->stmt, 2 + i) != SQLITE_NULL)
			set.dims[i] = str_n((const char *)sqlite3_column_text(q->stmt, 2 + i),
			                    (size_t)sqlite3_column_bytes(q->stmt, 2 + i));
	dimension_set_pack(&v->scratch, &set);
	return (uint64_t)sqlite3_column_int64(q->stmt, 0) ==
	       keyed_hash(v->key, v->scratch.data, v->scratch.len);
}

static const struct {
	unsigned sql;
	const char *name;
	bool (*is_valid)(struct verifier *v, const struct query *q);
} row_kinds[] = {
    {SQL_CELLS, "the counts of a link", cell_is_valid},
    {SQL_AD_CELLS, "the counts of ads", ad_cell_is_valid},
    {SQL_VISITS, "visits", visits_are_valid},
    {SQL_BUFFER_VISITS, "visits", visits_are_valid},
    {SQL_TEXTS, "a text", text_is_valid},
    {SQL_SETS, "a dimension set", set_is_valid},
};

static int verify_rows(struct sqlite_conn *c, size_t kind, struct verifier *v, struct buf *report)
{
	CLEANUP(query_end) struct query q = query_begin(c, row_kinds[kind].sql);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		if (!row_kinds[kind].is_valid(v, &q)) {
			buf_printf(report, "a row with %s contradicts itself", row_kinds[kind].name);
			return SQLITE_OK;
		}
	}
	return db_done(rc);
}

static int verify_key(struct sqlite_conn *c, struct verifier *v)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_KEY);
	bool found;
	int rc = query_find(&q, &found);
	struct str key = found ? column_blob(&q, 0) : STR_NULL;
	if (rc == SQLITE_OK && key.len == sizeof(v->key))
		memcpy(v->key, key.ptr, key.len);
	return rc == SQLITE_OK && key.len != sizeof(v->key) ? SQLITE_CORRUPT : rc;
}

static int verify_sums(struct sqlite_conn *c, struct buf *report)
{
	struct reconciliation sums = {0};
	int rc = sqlite_reconciliation_get(c, true, &sums);
	const struct sink_tally *read = &sums.tally;
	if (rc == SQLITE_OK &&
	    (read->clicks != sums.clicks_in_rollups + read->unusable_clicks ||
	     read->impressions != sums.impressions_counted + sums.duplicates + read->unusable_impressions))
		buf_printf(report, "the counts do not add up to what was read from the event log");
	return rc;
}

static int verify(struct sqlite_verify *base, struct sqlite_conn *c, struct buf *report)
{
	(void)base;
	struct verifier v = {0};
	int rc = verify_key(c, &v);
	for (size_t i = 0; i < ARRAY_LEN(row_kinds) && rc == SQLITE_OK && report->len == 0; i++)
		rc = verify_rows(c, i, &v, report);
	buf_release(&v.scratch);
	return rc == SQLITE_OK && report->len == 0 ? verify_sums(c, report) : rc;
}

void sink_sqlite_check(const char *path, bool is_deep, bool is_in_use, struct findings *f)
{
	struct sqlite_verify rows = {verify};
	const struct sqlite_check check = {
	    .layout = &stats_file_layout, .verify = &rows, .is_deep = is_deep, .is_in_use = is_in_use};
	sqlite_check(path, &check, f);
}
