/* Changes of users, their sessions and API keys in a link file. */
#include "store/rules.h"
#include "store/sqlite_change.h"
#include "store/sqlite_rows.h"

/* --- users --- */

/* Does somebody other than the user `id` have the address? */
static int email_is_taken(struct sqlite_conn *c, struct str email, uint64_t id, bool *ret)
{
	*ret = false;
	if (!email.ptr)
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_BY_EMAIL);
	query_str(&q, email);
	bool found;
	int rc = query_find(&q, &found);
	*ret = found && (uint64_t)sqlite3_column_int64(q.stmt, USER_COLUMN_ID) != id;
	return rc;
}

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

static int user_create(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	bool taken;
	user_check_role(w->user.role);
	int rc = email_is_taken(c, w->user.email, 0, &taken);
	out->result = taken ? ERR_CONFLICT : 0;
	if (rc != SQLITE_OK || taken)
		return rc;
	out->back |= BACK_USER;
	out->user = w->user;
	out->user.generation = USER_GENERATION_FIRST;
	return user_insert(c, &out->user);
}

static int admin_key_find(struct sqlite_conn *c, uint64_t user, int64_t now_ms, bool *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ADMIN_KEY_OF);
	query_int(&q, now_ms);
	query_int(&q, RIGHT_ADMIN);
	query_int(&q, (int64_t)user);
	return query_find(&q, ret);
}

/* One who can get in. */
static int other_admin_find(struct sqlite_conn *c, uint64_t id, int64_t now_ms, bool *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_OTHER_ADMIN);
	query_int(&q, now_ms);
	query_int(&q, RIGHT_ADMIN);
	query_int(&q, ROLE_ADMIN);
	query_int(&q, (int64_t)id);
	return query_find(&q, ret);
}

/* Would nobody be left who can get in as an admin, when the user becomes `after`? */
static int last_admin_check(struct sqlite_conn *c, const struct user_record *before,
                            const struct user_record *after, int64_t now_ms, bool *ret)
{
	bool has_key, others;
	*ret = false;
	if (!user_is_admin(before))
		return SQLITE_OK;
	int rc = admin_key_find(c, before->id, now_ms, &has_key);
	if (rc != SQLITE_OK || !admin_is_shut_out(before, after, has_key))
		return rc;
	rc = other_admin_find(c, before->id, now_ms, &others);
	*ret = !others;
	return rc;
}

/* May the user become what out->user is? out->result says so. */
static int user_check(struct sqlite_conn *c, const struct user_record *before, int64_t now_ms,
                      struct store_outcome *out)
{
	bool taken, last = false;
	int rc = email_is_taken(c, out->user.email, before->id, &taken);
	if (rc == SQLITE_OK && !taken)
		rc = last_admin_check(c, before, &out->user, now_ms, &last);
	out->result = taken ? ERR_CONFLICT : last ? ERR_BUSY : 0;
	return rc;
}

static int user_write(struct sqlite_conn *c, const struct user_record *user)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_UPDATE);
	sqlite_bind_record(&q, &user_fields, FIELDS_CHANGING, user);
	query_int(&q, (int64_t)user->id);
	return query_run(&q);
}

static int user_update(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	struct user_record before;
	int rc = sqlite_user_find(c, w->user.id, STR_NULL, w->arena, &out->result, &before);
	if (rc != SQLITE_OK || out->result != 0)
		return rc;
	out->back = BACK_USER;
	out->user = before;
	user_fields_take(w, &out->user);
	rc = user_check(c, &before, w->now_ms, out);
	if (rc == SQLITE_OK && out->result == 0)
		out->result = user_own(w->arena, &out->user);
	return rc == SQLITE_OK && out->result == 0 ? user_write(c, &out->user) : rc;
}

static int session_end(struct sqlite_conn *c, const struct store_write *w)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_SESSION_PUT);
	query_blob(&q, w->session.id, SESSION_ID_BYTES);
	query_int(&q, w->session.expires_ms);
	return query_run(&q);
}

/* --- API keys --- */

static int digest_exists(struct sqlite_conn *c, const uint8_t *digest, bool *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_BY_DIGEST);
	query_blob(&q, digest, KEY_DIGEST_BYTES);
	return query_find(&q, ret);
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

static int key_create(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	bool taken, known = true;
	int rc = digest_exists(c, w->key.digest, &taken);
	if (rc == SQLITE_OK && w->key.user != 0)
		rc = sqlite_user_exists(c, w->key.user, &known);
	out->result = taken ? ERR_CONFLICT : known ? 0 : ERR_INVALID;
	if (rc == SQLITE_OK && out->result == 0 && w->key.user == 0)
		rc = user_create(c, w, out);
	if (rc != SQLITE_OK || out->result != 0)
		return rc;
	out->back |= BACK_KEY;
	out->key = w->key;
	if (w->key.user == 0)
		out->key.user = out->user.id;
	return key_insert(c, &out->key);
}

static int key_find(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_BY_ID);
	query_int(&q, (int64_t)w->key.id);
	bool found;
	int rc = query_find(&q, &found);
	out->result = found ? sqlite_row_key(q.stmt, w->arena, &out->key) : ERR_NOT_FOUND;
	if (out->result == 0 && !key_is_of(&out->key, w->key.user))
		out->result = ERR_NOT_FOUND;
	return rc;
}

/* Is it the only key with which an admin could act? */
static int key_is_last(struct sqlite_conn *c, const struct store_write *w, bool *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ADMIN_KEYS);
	query_int(&q, w->now_ms);
	query_int(&q, RIGHT_ADMIN);
	query_int(&q, ROLE_ADMIN);
	bool one, two = false;
	int rc = query_find(&q, &one);
	*ret = one && (uint64_t)sqlite3_column_int64(q.stmt, 0) == w->key.id;
	if (*ret)
		rc = query_find(&q, &two);
	*ret = *ret && !two;
	return rc;
}

static int key_revoke(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	int rc = key_find(c, w, out);
	out->back = BACK_KEY;
	if (rc != SQLITE_OK || out->result != 0 || out->key.revoked_ms != 0)
		return rc;
	bool last;
	rc = key_is_last(c, w, &last);
	if (rc != SQLITE_OK || last) {
		out->result = ERR_CONFLICT;
		return rc;
	}
	out->key.revoked_ms = w->now_ms;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_REVOKE);
	query_int(&q, (int64_t)w->key.id);
	query_int(&q, w->now_ms);
	return query_run(&q);
}

static int key_used_get(struct sqlite_conn *c, uint64_t id, bool *ret_found, int64_t *ret_used_ms)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_USED_GET);
	query_int(&q, (int64_t)id);
	int rc = query_find(&q, ret_found);
	*ret_used_ms = *ret_found ? sqlite3_column_int64(q.stmt, 0) : 0;
	return rc;
}

static int key_used(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	bool found;
	int64_t used_ms;
	int rc = key_used_get(c, w->key.id, &found, &used_ms);
	out->result = found ? 0 : ERR_NOT_FOUND;
	if (rc != SQLITE_OK || !found || used_ms >= w->key.used_ms)
		return rc;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_USED);
	query_int(&q, (int64_t)w->key.id);
	query_int(&q, w->key.used_ms);
	return query_run(&q);
}

int sqlite_change_account(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	switch (w->kind) {
	case STORE_USER_CREATE: return user_create(c, w, out);
	case STORE_USER_UPDATE: return user_update(c, w, out);
	case STORE_SESSION_END: return session_end(c, w);
	case STORE_KEY_CREATE: return key_create(c, w, out);
	case STORE_KEY_REVOKE: return key_revoke(c, w, out);
	case STORE_KEY_USED: return key_used(c, w, out);
	default: ASSERT(false);
	}
}
