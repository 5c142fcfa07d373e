/* Reading the buffer: visits that are committed and not compacted yet. Queries add them to the rollups. */
#include "sink/sqlite_sink.h"

int buffer_each(struct sqlite_conn *c, buffer_each_fn *each, void *arg)
{
	struct book_row book;
	uint64_t ordinal = 0;
	int rc = book_get(c, &book);
	if (rc != SQLITE_OK)
		return rc;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BUFFER_KEYS);
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		bool is_partly_done = sqlite3_column_int64(q.stmt, 3) <= book.compaction.row;
		uint64_t from_link = is_partly_done ? (uint64_t)book.compaction.link : 0;
		size_t count = (size_t)sqlite3_column_int64(q.stmt, 0);
		struct str visitors = column_blob(&q, 2);
		struct blob_reader k = blob_reader_of(column_blob(&q, 1));
		struct keys_state state = {0};
		if (visitors.len != count * sizeof(uint32_t))
			return SQLITE_CORRUPT;
		for (size_t i = 0; i < count; i++) {
			struct buffered v = {.ordinal = ordinal++};
			visit_key_get(&k, &state, &v.key);
			memcpy(&v.visitor, visitors.ptr + i * sizeof(v.visitor), sizeof(v.visitor));
			int code = k.bad ? SQLITE_CORRUPT : SQLITE_OK;
			if (code == SQLITE_OK && v.key.link >= from_link)
				code = each(arg, &v);
			if (code != SQLITE_OK)
				return code;
		}
	}
	return db_done(rc);
}
