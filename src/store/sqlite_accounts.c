/* Users, their sessions and API keys in a link file: fetched for the rules (decide.h), and written as they
 * have decided. */
#include "store/rules.h"
#include "store/sqlite_change.h"
#include "store/sqlite_rows.h"

/* --- fetching --- */

static int email_fetch(struct sqlite_conn *c, struct str email, uint64_t *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_BY_EMAIL);
	query_str(&q, email); /* NULL finds nobody */
	bool found;
	int rc = query_find(&q, &found);
	*ret = found ? (uint64_t)sqlite3_column_int64(q.stmt, USER_COLUMN_ID) : 0;
	return rc;
}

static int user_fetch(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct user_record *user,
                      struct account_rows *rows)
{
	int result;
	int rc = sqlite_user_find(c, id, STR_NULL, arena, &result, user);
	if (rc != SQLITE_OK || result == ERR_NOMEM)
		return rc != SQLITE_OK ? rc : SQLITE_NOMEM;
	rows->user = result == 0 ? user : NULL;
	rows->is_damaged |= result == ERR_CORRUPT;
	return SQLITE_OK;
}

static int key_fetch(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct key_record *key,
                     struct account_rows *rows)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_BY_ID);
	query_int(&q, (int64_t)id);
	bool found;
	int rc = query_find(&q, &found);
	int result = found ? sqlite_row_key(q.stmt, arena, key) : ERR_NOT_FOUND;
	rows->key = result == 0 ? key : NULL;
	rows->is_damaged |= result == ERR_CORRUPT;
	return result == ERR_NOMEM ? SQLITE_NOMEM : rc;
}

static int digest_fetch(struct sqlite_conn *c, const uint8_t *digest, bool *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_BY_DIGEST);
	query_blob(&q, digest, KEY_DIGEST_BYTES);
	return query_find(&q, ret);
}

/* Of a statement about admins at a time: ?1 now, ?2 the user. */
static struct query admin_query(struct sqlite_conn *c, unsigned sql, const struct store_write *w)
{
	struct query q = query_begin(c, sql);
	query_int(&q, w->now_ms);
	if (sql != SQL_ADMIN_KEYS)
		query_int(&q, (int64_t)w->user.id);
	return q;
}

static int admins_fetch(struct sqlite_conn *c, const struct store_write *w, struct account_rows *rows)
{
	CLEANUP(query_end) struct query key = admin_query(c, SQL_ADMIN_KEY_OF, w);
	int rc = query_find(&key, &rows->has_admin_key);
	if (rc != SQLITE_OK)
		return rc;
	CLEANUP(query_end) struct query other = admin_query(c, SQL_OTHER_ADMIN, w);
	return query_find(&other, &rows->has_other_admin);
}

static int admin_keys_fetch(struct sqlite_conn *c, const struct store_write *w, struct account_rows *rows)
{
	CLEANUP(query_end) struct query q = admin_query(c, SQL_ADMIN_KEYS, w);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW && rows->admin_key_count < ARRAY_LEN(rows->admin_keys))
		rows->admin_keys[rows->admin_key_count++] = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int live_keys_fetch(struct sqlite_conn *c, const struct store_write *w, size_t *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEYS_LIVE);
	query_int(&q, (int64_t)w->key.user);
	query_int(&q, w->now_ms);
	query_int(&q, ACCOUNT_KEYS_MAX);
	bool found;
	int rc = query_find(&q, &found);
	*ret = found ? (size_t)sqlite3_column_int64(q.stmt, 0) : 0;
	return rc;
}

/* What a change is about, and where it is read to. */
struct fetched {
	struct account_rows rows;
	struct user_record user;
	struct key_record key;
};

static int account_fetch(struct sqlite_conn *c, const struct store_write *w, struct arena *arena,
                         struct fetched *to)
{
	unsigned needs = account_needs(w);
	uint64_t user = w->kind == STORE_KEY_CREATE ? w->key.user : w->user.id;
	int rc = SQLITE_OK;
	if (needs & NEEDS_USER)
		rc = user_fetch(c, user, arena, &to->user, &to->rows);
	if (rc == SQLITE_OK && needs & NEEDS_EMAIL)
		rc = email_fetch(c, w->user.email, &to->rows.email_holder);
	if (rc == SQLITE_OK && needs & NEEDS_KEY)
		rc = key_fetch(c, w->key.id, arena, &to->key, &to->rows);
	if (rc == SQLITE_OK && needs & NEEDS_DIGEST)
		rc = digest_fetch(c, w->key.digest, &to->rows.digest_exists);
	if (rc == SQLITE_OK && needs & NEEDS_ADMINS)
		rc = admins_fetch(c, w, &to->rows);
	if (rc == SQLITE_OK && needs & NEEDS_ADMIN_KEYS)
		rc = admin_keys_fetch(c, w, &to->rows);
	if (rc == SQLITE_OK && needs & NEEDS_LIVE_KEYS)
		rc = live_keys_fetch(c, w, &to->rows.live_keys);
	return rc;
}

/* --- writing --- */

/* Its id comes back in *user. */
static int user_insert(struct sqlite_conn *c, struct user_record *user)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_INSERT);
	user->id = 0;
	sqlite_bind_record(&q, &user_fields, FIELDS_ALL, user);
	int rc = query_run(&q);
	user->id = (uint64_t)sqlite3_last_insert_rowid(c->db);
	return rc;
}

static int user_write(struct sqlite_conn *c, const struct user_record *user)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_UPDATE);
	sqlite_bind_record(&q, &user_fields, FIELDS_CHANGING, user);
	query_int(&q, (int64_t)user->id);
	return query_run(&q);
}

static int session_insert(struct sqlite_conn *c, const struct session_record *session)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_SESSION_INSERT);
	query_blob(&q, session->id, SESSION_ID_BYTES);
	query_int(&q, (int64_t)session->user);
	query_int(&q, (int64_t)session->generation);
	query_int(&q, session->created_ms);
	query_int(&q, session->expires_ms);
	query_str(&q, session->address);
	query_str(&q, session->agent);
	return query_run(&q);
}

static int session_delete(struct sqlite_conn *c, const uint8_t *id)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_SESSION_DELETE);
	query_blob(&q, id, SESSION_ID_BYTES);
	return query_run(&q);
}

/* Its id comes back in *key. */
static int key_insert(struct sqlite_conn *c, struct key_record *key)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_INSERT);
	key->id = 0;
	sqlite_bind_record(&q, &key_fields, FIELDS_ALL, key);
	int rc = query_run(&q);
	key->id = (uint64_t)sqlite3_last_insert_rowid(c->db);
	return rc;
}

static int key_time_set(struct sqlite_conn *c, unsigned sql, uint64_t id, int64_t at_ms)
{
	CLEANUP(query_end) struct query q = query_begin(c, sql);
	query_int(&q, (int64_t)id);
	query_int(&q, at_ms);
	return query_run(&q);
}

static int account_write(struct sqlite_conn *c, unsigned edits, const struct store_write *w,
                         struct store_outcome *out)
{
	int rc = SQLITE_OK;
	if (edits & EDIT_USER_INSERT) {
		rc = user_insert(c, &out->user);
		out->key.user = out->user.id;
	}
	if (rc == SQLITE_OK && edits & EDIT_USER_UPDATE)
		rc = user_write(c, &out->user);
	if (rc == SQLITE_OK && edits & EDIT_KEY_INSERT)
		rc = key_insert(c, &out->key);
	if (rc == SQLITE_OK && edits & EDIT_KEY_REVOKE)
		rc = key_time_set(c, SQL_KEY_REVOKE, out->key.id, out->key.revoked_ms);
	if (rc == SQLITE_OK && edits & EDIT_KEY_USED)
		rc = key_time_set(c, SQL_KEY_USED, out->key.id, out->key.used_ms);
	if (rc == SQLITE_OK && edits & EDIT_SESSION_INSERT) {
		rc = session_insert(c, &out->session);
		if (rc == SQLITE_OK)
			rc = sqlite_purge(c, SQL_SESSION_PURGE,
			                  &(struct purge){w->now_ms, SESSION_PURGE_PER_CREATE});
	}
	if (rc == SQLITE_OK && edits & EDIT_SESSION_DELETE)
		rc = session_delete(c, w->session.id);
	if (rc == SQLITE_OK && edits & EDIT_KEY_PURGE)
		rc = sqlite_purge(c, SQL_KEY_PURGE_REVOKED, &w->purge);
	if (rc == SQLITE_OK && edits & EDIT_KEY_PURGE)
		rc = sqlite_purge(c, SQL_KEY_PURGE_EXPIRED, &w->purge);
	return rc;
}

int sqlite_change_account(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out,
                          struct buf *feed)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct fetched fetched = {0};
	int rc = account_fetch(c, w, &arena, &fetched);
	if (rc != SQLITE_OK)
		return rc;
	int edits = decide_account(&fetched.rows, w, out);
	if (edits < 0)
		return sqlite_of_error(edits);
	rc = account_write(c, (unsigned)edits, w, out);
	if (rc == SQLITE_OK && !account_feed((unsigned)edits, &fetched.rows, w, out, feed))
		rc = SQLITE_NOMEM;
	return rc;
}
