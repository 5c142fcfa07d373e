#include "store/sqlite_store.h"

static bool column_str(sqlite3_stmt *row, int column, struct arena *arena, struct str *ret)
{
	*ret = STR_NULL;
	if (sqlite3_column_type(row, column) == SQLITE_NULL)
		return true;
	const char *text = (const char *)sqlite3_column_text(row, column);
	if (text)
		*ret = arena_str(arena, str_n(text, (size_t)sqlite3_column_bytes(row, column)));
	return ret->ptr != NULL;
}

void sqlite_bind_record(struct query *q, const struct fields *s, enum fields_which which, const void *record)
{
	for (const struct field *f = s->rows, *end = f + s->count; f < end; f++) {
		if (!field_is_stored(f, which))
			continue;
		if (field_is_str(f))
			query_str(q, *field_str(f, record));
		else if (f->type == FIELD_DIGEST)
			query_blob(q, (const char *)record + f->offset, f->size);
		else if (f->type == FIELD_ID && field_int(f, record) == 0)
			query_str(q, STR_NULL); /* SQLite assigns one */
		else
			query_int(q, field_stored_int(f, record));
	}
}

static int column_read(sqlite3_stmt *row, int column, const struct field *f, struct arena *arena,
                       void *record)
{
	if (field_is_str(f)) {
		bool there = column_str(row, column, arena, field_str_in(f, record));
		bool wanted = f->flags & FIELD_REQUIRED && !(f->flags & FIELD_NULL);
		return !there ? ERR_NOMEM : wanted && !field_str(f, record)->ptr ? ERR_CORRUPT : 0;
	}
	if (f->type != FIELD_DIGEST)
		return field_set_int(f, record, sqlite3_column_int64(row, column)) ? 0 : ERR_CORRUPT;
	const void *digest = sqlite3_column_blob(row, column);
	if (!digest || sqlite3_column_bytes(row, column) != (int)f->size)
		return ERR_CORRUPT;
	memcpy((char *)record + f->offset, digest, f->size);
	return 0;
}

static int record_read(sqlite3_stmt *row, int column, const struct fields *s, struct arena *arena,
                       void *record)
{
	int r = 0;
	for (const struct field *f = s->rows, *end = f + s->count; r == 0 && f < end; f++) {
		if (f->column)
			r = column_read(row, column++, f, arena, record);
	}
	return r;
}

int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret)
{
	struct link_record link = {.is_alias = sqlite3_column_type(row, 0) != SQLITE_NULL};
	if (!column_str(row, 0, arena, &link.key))
		return ERR_NOMEM;
	int r = record_read(row, 1, &link_fields, arena, &link);
	if (r == 0)
		*ret = link;
	return r;
}

int sqlite_row_read(sqlite3_stmt *row, const struct fields *s, struct arena *arena, void *record, size_t size)
{
	memset(record, 0, size);
	return record_read(row, 0, s, arena, record);
}

int sqlite_link_by_id(struct sqlite_conn *c, uint64_t id, struct arena *arena, int *ret_result,
                      struct link_record *ret)
{
	CLEANUP(query_end) struct query q = QUERY_VALUES(c, SQL_LINK_BY_ID, Q_INT(id));
	bool found;
	int rc = query_find(&q, &found);
	*ret_result = found ? sqlite_row_link(q.stmt, arena, ret) : ERR_NOT_FOUND;
	return rc;
}

int sqlite_link_find(struct sqlite_conn *c, struct link_ref ref, struct arena *arena, int *ret_result,
                     struct link_record *ret)
{
	struct link_record link;
	*ret_result = ERR_NOT_FOUND;
	if (id_is_valid(ref.id)) {
		int rc = sqlite_link_by_id(c, ref.id, arena, ret_result, &link);
		if (rc != SQLITE_OK || (*ret_result != 0 && *ret_result != ERR_NOT_FOUND))
			return rc;
		if (*ret_result == 0 && (!link.is_alias || !ref.key.ptr)) {
			*ret = link;
			return SQLITE_OK;
		}
		*ret_result = ERR_NOT_FOUND; /* no such row, or its name is an alias */
	}
	int64_t id;
	bool found;
	if (!ref.key.ptr)
		return SQLITE_OK;
	int rc = QUERY_FIND(c, SQL_ALIAS_BY_NAME, &found, &id, 1, Q_STR(ref.key));
	if (rc != SQLITE_OK || !found)
		return rc;
	rc = sqlite_link_by_id(c, (uint64_t)id, arena, ret_result, &link);
	if (*ret_result == ERR_NOT_FOUND)
		*ret_result = ERR_CORRUPT; /* an alias without a link */
	if (rc == SQLITE_OK && *ret_result == 0)
		*ret = link;
	return rc;
}

int sqlite_permission_find(struct sqlite_conn *c, uint64_t link, uint64_t user, bool *ret)
{
	*ret = false;
	if (!id_is_valid(user))
		return SQLITE_OK;
	return QUERY_FIND(c, SQL_PERMISSION_GET, ret, NULL, 0, Q_INT(link), Q_INT(user));
}
