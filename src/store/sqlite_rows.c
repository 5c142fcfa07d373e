#include "store/sqlite_rows.h"

#include "store/rules.h"

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

static uint64_t column_u64(sqlite3_stmt *row, int column)
{
	return (uint64_t)sqlite3_column_int64(row, column);
}

static bool link_strings(sqlite3_stmt *row, struct arena *arena, struct link_record *link)
{
	return column_str(row, LINK_COLUMN_ALIAS, arena, &link->key) &&
	       column_str(row, LINK_COLUMN_USER_NAME, arena, &link->user_name) &&
	       column_str(row, LINK_COLUMN_URL, arena, &link->url) &&
	       column_str(row, LINK_COLUMN_EXPIRED_URL, arena, &link->expired_url) &&
	       column_str(row, LINK_COLUMN_PASSWORD, arena, &link->password) &&
	       column_str(row, LINK_COLUMN_TITLE, arena, &link->title) &&
	       column_str(row, LINK_COLUMN_NOTE, arena, &link->note) &&
	       column_str(row, LINK_COLUMN_TAGS, arena, &link->tags);
}

int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret)
{
	int64_t id = sqlite3_column_int64(row, LINK_COLUMN_ID);
	int64_t status = sqlite3_column_int64(row, LINK_COLUMN_STATUS);
	if (id <= 0 || status < 0 || status > UINT16_MAX ||
	    sqlite3_column_type(row, LINK_COLUMN_URL) != SQLITE_TEXT)
		return ERR_CORRUPT;
	struct link_record link = {
	    .id = (uint64_t)id,
	    .is_alias = sqlite3_column_type(row, LINK_COLUMN_ALIAS) != SQLITE_NULL,
	    .owner = column_u64(row, LINK_COLUMN_OWNER),
	    .api_key = column_u64(row, LINK_COLUMN_API_KEY),
	    .created_ms = sqlite3_column_int64(row, LINK_COLUMN_CREATED),
	    .updated_ms = sqlite3_column_int64(row, LINK_COLUMN_UPDATED),
	    .not_before_ms = sqlite3_column_int64(row, LINK_COLUMN_NOT_BEFORE),
	    .expires_ms = sqlite3_column_int64(row, LINK_COLUMN_EXPIRES),
	    .max_clicks = column_u64(row, LINK_COLUMN_MAX_CLICKS),
	    .redirect_status = (uint16_t)status,
	    .enabled = sqlite3_column_int64(row, LINK_COLUMN_ENABLED) != 0,
	    .is_private = sqlite3_column_int64(row, LINK_COLUMN_PRIVATE) != 0,
	    .clicks = column_u64(row, LINK_COLUMN_CLICKS),
	};
	if (!link_strings(row, arena, &link))
		return ERR_NOMEM;
	*ret = link;
	return 0;
}

int sqlite_row_user(sqlite3_stmt *row, struct arena *arena, struct user_record *ret)
{
	int64_t role = sqlite3_column_int64(row, USER_COLUMN_ROLE);
	if (role < ROLE_VIEWER || role > ROLE_ADMIN)
		return ERR_CORRUPT;
	struct user_record user = {
	    .id = column_u64(row, USER_COLUMN_ID),
	    .role = (enum user_role)role,
	    .enabled = sqlite3_column_int64(row, USER_COLUMN_ENABLED) != 0,
	    .generation = column_u64(row, USER_COLUMN_GENERATION),
	    .created_ms = sqlite3_column_int64(row, USER_COLUMN_CREATED),
	    .updated_ms = sqlite3_column_int64(row, USER_COLUMN_UPDATED),
	};
	if (!column_str(row, USER_COLUMN_EMAIL, arena, &user.email) ||
	    !column_str(row, USER_COLUMN_FIRST_NAME, arena, &user.first_name) ||
	    !column_str(row, USER_COLUMN_MIDDLE_NAME, arena, &user.middle_name) ||
	    !column_str(row, USER_COLUMN_LAST_NAME, arena, &user.last_name) ||
	    !column_str(row, USER_COLUMN_PASSWORD, arena, &user.password))
		return ERR_NOMEM;
	*ret = user;
	return 0;
}

int sqlite_row_key(sqlite3_stmt *row, struct arena *arena, struct key_record *ret)
{
	struct key_record key = {
	    .id = column_u64(row, KEY_COLUMN_ID),
	    .user = column_u64(row, KEY_COLUMN_USER),
	    .rights = (unsigned)sqlite3_column_int64(row, KEY_COLUMN_RIGHTS),
	    .created_ms = sqlite3_column_int64(row, KEY_COLUMN_CREATED),
	    .expires_ms = sqlite3_column_int64(row, KEY_COLUMN_EXPIRES),
	    .revoked_ms = sqlite3_column_int64(row, KEY_COLUMN_REVOKED),
	    .used_ms = sqlite3_column_int64(row, KEY_COLUMN_USED),
	    .creates_max = column_u64(row, KEY_COLUMN_CREATES_MAX),
	    .redirects_max = column_u64(row, KEY_COLUMN_REDIRECTS_MAX),
	    .period_ms = column_u64(row, KEY_COLUMN_PERIOD),
	};
	const void *digest = sqlite3_column_blob(row, KEY_COLUMN_DIGEST);
	if (!digest || sqlite3_column_bytes(row, KEY_COLUMN_DIGEST) != KEY_DIGEST_BYTES)
		return ERR_CORRUPT;
	memcpy(key.digest, digest, KEY_DIGEST_BYTES);
	if (!column_str(row, KEY_COLUMN_NAME, arena, &key.name))
		return ERR_NOMEM;
	*ret = key;
	return 0;
}

int sqlite_link_by_id(struct sqlite_conn *c, uint64_t id, struct arena *arena, int *ret_result,
                      struct link_record *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_BY_ID);
	query_int(&q, (int64_t)id);
	bool found;
	int rc = query_find(&q, &found);
	*ret_result = found ? sqlite_row_link(q.stmt, arena, ret) : ERR_NOT_FOUND;
	return rc;
}

/* The row's id, or 0 when nobody has that name. */
static int alias_by_name(struct sqlite_conn *c, struct str name, uint64_t *ret_id)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ALIAS_BY_NAME);
	query_str(&q, name);
	bool found;
	int rc = query_find(&q, &found);
	*ret_id = found ? column_u64(q.stmt, 0) : 0;
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
		*ret_result = ERR_NOT_FOUND; /* no such row, or one that goes by another name */
	}
	uint64_t id;
	if (!ref.key.ptr)
		return SQLITE_OK;
	int rc = alias_by_name(c, ref.key, &id);
	if (rc != SQLITE_OK || id == 0)
		return rc;
	rc = sqlite_link_by_id(c, id, arena, ret_result, &link);
	if (*ret_result == ERR_NOT_FOUND)
		*ret_result = ERR_CORRUPT; /* a name of nothing */
	if (rc == SQLITE_OK && *ret_result == 0)
		*ret = link;
	return rc;
}

int sqlite_user_find(struct sqlite_conn *c, uint64_t id, struct str email, struct arena *arena,
                     int *ret_result, struct user_record *ret)
{
	*ret_result = ERR_NOT_FOUND;
	if (!email.ptr && !id_is_valid(id))
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, email.ptr ? SQL_USER_BY_EMAIL : SQL_USER_BY_ID);
	if (email.ptr)
		query_str(&q, email);
	else
		query_int(&q, (int64_t)id);
	bool found;
	int rc = query_find(&q, &found);
	if (found)
		*ret_result = sqlite_row_user(q.stmt, arena, ret);
	return rc;
}

int sqlite_permission_find(struct sqlite_conn *c, uint64_t link, uint64_t user, bool *ret)
{
	*ret = false;
	if (!id_is_valid(user))
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_PERMISSION_GET);
	query_int(&q, (int64_t)link);
	query_int(&q, (int64_t)user);
	return query_find(&q, ret);
}

int sqlite_user_exists(struct sqlite_conn *c, uint64_t id, bool *ret)
{
	*ret = false;
	if (!id_is_valid(id))
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_BY_ID);
	query_int(&q, (int64_t)id);
	return query_find(&q, ret);
}

int sqlite_counter_next(struct sqlite_conn *c, struct str name, int64_t *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_COUNTER_GET);
	query_str(&q, name);
	bool found;
	int rc = query_find(&q, &found);
	*ret = found ? sqlite3_column_int64(q.stmt, 0) : COUNTER_FIRST;
	return rc;
}
