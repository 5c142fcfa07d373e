/*
 * Changes of users, their sessions and API keys. They take turns: each raises the version of the accounts,
 * which is one row, and so waits for whoever did so before. Then what it looks at stays as it is.
 */
#include "store/postgres_change.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

static const struct pg_statement version_raise = {
    "version_raise", "UPDATE account_version SET version = version + 1 WHERE id = 1"};

static void accounts_lock(struct postgres_txn *t)
{
	if (t->accounts_are_locked)
		return;
	struct pg_query q = txn_query(t, &version_raise);
	txn_put(t, &q);
	t->accounts_are_locked = true;
}

/* Does the question have an answer? `ret_id` (may be NULL) is the first row's first column. */
static int exists_ask(struct postgres_txn *t, struct pg_query *q, bool *ret, uint64_t *ret_id)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = txn_ask(t, q, &rows);
	*ret = r == 0 && rows.rows > 0;
	if (*ret && ret_id)
		*ret_id = (uint64_t)pg_get_int(&rows, 0, 0);
	return r;
}

/* --- users --- */

static const struct pg_statement email_holder = {"email_holder", "SELECT id FROM users WHERE email = $1"};
static const struct pg_statement user_get = {"user_get", "SELECT " USER_COLUMNS " FROM users WHERE id = $1"};
static const struct pg_statement user_insert = {
    "user_insert", "INSERT INTO users (email, first_name, middle_name, last_name, role, enabled, password,"
                   " generation, created_ms, updated_ms)"
                   " VALUES ($1, $2, $3, $4, $5::bigint, $6, $7, $8, $9, $10) RETURNING id"};
static const struct pg_statement user_update = {
    "user_update", "UPDATE users SET email = $1, first_name = $2, middle_name = $3, last_name = $4,"
                   " role = $5::bigint, enabled = $6, password = $7, generation = $8, created_ms = $9,"
                   " updated_ms = $10 WHERE id = $11"};

/* For the insert and the update alike. */
static void user_bind(struct pg_query *q, const struct user_record *user)
{
	pg_text(q, user->email);
	pg_text(q, user->first_name);
	pg_text(q, user->middle_name);
	pg_text(q, user->last_name);
	pg_int(q, user->role);
	pg_bool(q, user->enabled);
	pg_text(q, user->password);
	pg_int(q, (int64_t)user->generation);
	pg_int(q, user->created_ms);
	pg_int(q, user->updated_ms);
}

/* Does somebody other than the user `id` have the address? */
static int email_is_taken(struct postgres_txn *t, struct str email, uint64_t id, bool *ret)
{
	uint64_t holder = 0;
	*ret = false;
	if (!email.ptr)
		return 0;
	struct pg_query q = txn_query(t, &email_holder);
	pg_text(&q, email);
	int r = exists_ask(t, &q, ret, &holder);
	*ret = *ret && holder != id;
	return r;
}

static int user_create(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	bool taken, made;
	user_check_role(w->user.role);
	int r = email_is_taken(t, w->user.email, 0, &taken);
	out->result = taken ? ERR_CONFLICT : 0;
	if (r != 0 || taken)
		return r;
	out->back |= BACK_USER;
	out->user = w->user;
	out->user.generation = USER_GENERATION_FIRST;
	struct pg_query q = txn_query(t, &user_insert);
	user_bind(&q, &out->user);
	return exists_ask(t, &q, &made, &out->user.id);
}

#define KEY_FOR_ADMINS "revoked_ms = 0 AND (k.expires_ms = 0 OR k.expires_ms > $1) AND (rights & 16) <> 0"
#define ADMINS_KEYS \
	"api_key k JOIN users u ON u.id = k.user_id WHERE u.role = 3 AND u.enabled AND " KEY_FOR_ADMINS
_Static_assert(RIGHT_ADMIN == 16 && ROLE_ADMIN == 3, "the statements say so");

static const struct pg_statement admin_key_of = {
    "admin_key_of", "SELECT 1 FROM api_key k WHERE " KEY_FOR_ADMINS " AND user_id = $2 LIMIT 1"};
static const struct pg_statement other_admin = {
    "other_admin", "SELECT 1 WHERE EXISTS (SELECT 1 FROM users WHERE id <> $2 AND role = 3 AND enabled"
                   " AND email IS NOT NULL AND password IS NOT NULL)"
                   " OR EXISTS (SELECT 1 FROM " ADMINS_KEYS " AND u.id <> $2)"};

static int admin_ask(struct postgres_txn *t, const struct pg_statement *statement, uint64_t user,
                     int64_t now_ms, bool *ret)
{
	struct pg_query q = txn_query(t, statement);
	pg_int(&q, now_ms);
	pg_int(&q, (int64_t)user);
	return exists_ask(t, &q, ret, NULL);
}

/* Would nobody be left who can get in as an admin, when the user becomes `after`? */
static int last_admin_check(struct postgres_txn *t, const struct user_record *before,
                            const struct user_record *after, int64_t now_ms, bool *ret)
{
	bool has_key, others;
	*ret = false;
	if (!user_is_admin(before))
		return 0;
	int r = admin_ask(t, &admin_key_of, before->id, now_ms, &has_key);
	if (r != 0 || !admin_is_shut_out(before, after, has_key))
		return r;
	r = admin_ask(t, &other_admin, before->id, now_ms, &others);
	*ret = !others;
	return r;
}

/* May the user become what out->user is? out->result says so. */
static int user_check(struct postgres_txn *t, const struct user_record *before, int64_t now_ms,
                      struct store_outcome *out)
{
	bool taken, last = false;
	int r = email_is_taken(t, out->user.email, before->id, &taken);
	if (r == 0 && !taken)
		r = last_admin_check(t, before, &out->user, now_ms, &last);
	out->result = taken ? ERR_CONFLICT : last ? ERR_BUSY : 0;
	return r;
}

static int user_find(struct postgres_txn *t, const struct store_write *w, int *ret_result,
                     struct user_record *ret)
{
	*ret_result = ERR_NOT_FOUND;
	if (!id_is_valid(w->user.id))
		return 0;
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = txn_query(t, &user_get);
	pg_int(&q, (int64_t)w->user.id);
	int r = txn_ask(t, &q, &rows);
	if (r == 0 && rows.rows > 0)
		*ret_result = postgres_row_user(&rows, 0, w->arena, ret);
	return r;
}

static int user_change(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	struct user_record before;
	int r = user_find(t, w, &out->result, &before);
	if (r != 0 || out->result != 0)
		return r;
	out->back = BACK_USER;
	out->user = before;
	user_fields_take(w, &out->user);
	r = user_check(t, &before, w->now_ms, out);
	if (r == 0 && out->result == 0)
		out->result = user_own(w->arena, &out->user);
	if (r != 0 || out->result != 0)
		return r;
	struct pg_query q = txn_query(t, &user_update);
	user_bind(&q, &out->user);
	pg_int(&q, (int64_t)before.id);
	txn_put(t, &q);
	return 0;
}

/* --- sessions --- */

static const struct pg_statement session_put = {
    "session_put", "INSERT INTO ended_session (id, expires_ms) VALUES ($1, $2) ON CONFLICT (id)"
                   " DO UPDATE SET expires_ms = greatest(ended_session.expires_ms, excluded.expires_ms)"};

static int session_end(struct postgres_txn *t, const struct store_write *w)
{
	struct pg_query q = txn_query(t, &session_put);
	pg_bytes(&q, w->session.id, SESSION_ID_BYTES);
	pg_int(&q, w->session.expires_ms);
	txn_put(t, &q);
	return 0;
}

/* --- API keys --- */

static const struct pg_statement digest_there = {"digest_there", "SELECT 1 FROM api_key WHERE digest = $1"};
static const struct pg_statement user_there = {"user_there", "SELECT 1 FROM users WHERE id = $1"};
static const struct pg_statement key_insert = {
    "key_insert",
    "INSERT INTO api_key (user_id, name, digest, rights, created_ms, expires_ms, revoked_ms, used_ms,"
    " creates_max, redirects_max, period_ms)"
    " VALUES ($1, $2, $3, $4::bigint, $5, $6, $7, $8, $9, $10, $11) RETURNING id"};
static const struct pg_statement key_get = {"key_get", "SELECT " KEY_COLUMNS " FROM api_key WHERE id = $1"};
static const struct pg_statement admin_keys = {"admin_keys", /* two will do */
                                               "SELECT k.id FROM " ADMINS_KEYS " LIMIT 2"};
static const struct pg_statement key_set_revoked = {"key_set_revoked",
                                                    "UPDATE api_key SET revoked_ms = $2 WHERE id = $1"};
static const struct pg_statement key_set_used = {
    "key_set_used", "WITH u AS (UPDATE api_key SET used_ms = $2 WHERE id = $1 AND used_ms < $2)"
                    " SELECT 1 FROM api_key WHERE id = $1"};

static int key_owner_check(struct postgres_txn *t, const struct store_write *w, int *ret_result)
{
	bool taken, known = true;
	struct pg_query q = txn_query(t, &digest_there);
	pg_bytes(&q, w->key.digest, KEY_DIGEST_BYTES);
	int r = exists_ask(t, &q, &taken, NULL);
	if (r == 0 && w->key.user != 0) {
		q = txn_query(t, &user_there);
		pg_int(&q, (int64_t)MIN(w->key.user, INT64_MAX));
		r = exists_ask(t, &q, &known, NULL);
	}
	*ret_result = taken ? ERR_CONFLICT : known ? 0 : ERR_INVALID;
	return r;
}

static int key_create(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	bool made;
	int r = key_owner_check(t, w, &out->result);
	if (r == 0 && out->result == 0 && w->key.user == 0)
		r = user_create(t, w, out);
	if (r != 0 || out->result != 0)
		return r;
	out->back |= BACK_KEY;
	out->key = w->key;
	if (w->key.user == 0)
		out->key.user = out->user.id;
	struct pg_query q = txn_query(t, &key_insert);
	pg_int(&q, (int64_t)out->key.user);
	pg_text(&q, w->key.name);
	pg_bytes(&q, w->key.digest, KEY_DIGEST_BYTES);
	pg_int(&q, w->key.rights);
	pg_int(&q, w->key.created_ms);
	pg_int(&q, w->key.expires_ms);
	pg_int(&q, w->key.revoked_ms);
	pg_int(&q, w->key.used_ms);
	pg_int(&q, (int64_t)w->key.creates_max);
	pg_int(&q, (int64_t)w->key.redirects_max);
	pg_int(&q, (int64_t)w->key.period_ms);
	return exists_ask(t, &q, &made, &out->key.id);
}

static int key_find(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = txn_query(t, &key_get);
	pg_int(&q, (int64_t)MIN(w->key.id, INT64_MAX));
	int r = txn_ask(t, &q, &rows);
	if (r != 0)
		return r;
	out->back = BACK_KEY;
	out->result = rows.rows > 0 ? postgres_row_key(&rows, 0, w->arena, &out->key) : ERR_NOT_FOUND;
	if (out->result == 0 && !key_is_of(&out->key, w->key.user))
		out->result = ERR_NOT_FOUND;
	return 0;
}

/* Is it the only key with which an admin could act? */
static int key_is_last(struct postgres_txn *t, const struct store_write *w, bool *ret)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = txn_query(t, &admin_keys);
	pg_int(&q, w->now_ms);
	int r = txn_ask(t, &q, &rows);
	*ret = r == 0 && rows.rows == 1 && (uint64_t)pg_get_int(&rows, 0, 0) == w->key.id;
	return r;
}

static int key_revoke(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	bool last;
	int r = key_find(t, w, out);
	if (r != 0 || out->result != 0 || out->key.revoked_ms != 0)
		return r;
	r = key_is_last(t, w, &last);
	if (r != 0 || last) {
		out->result = ERR_CONFLICT;
		return r;
	}
	out->key.revoked_ms = w->now_ms;
	struct pg_query q = txn_query(t, &key_set_revoked);
	pg_int(&q, (int64_t)w->key.id);
	pg_int(&q, w->now_ms);
	txn_put(t, &q);
	return 0;
}

/* When a key was last used is no change of the accounts: nobody need read them again for it. */
static int key_used(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	bool found;
	struct pg_query q = txn_query(t, &key_set_used);
	pg_int(&q, (int64_t)MIN(w->key.id, INT64_MAX));
	pg_int(&q, w->key.used_ms);
	int r = exists_ask(t, &q, &found, NULL);
	out->result = found ? 0 : ERR_NOT_FOUND;
	return r;
}

int postgres_account_change(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out)
{
	if (w->kind == STORE_KEY_USED)
		return key_used(t, w, out);
	accounts_lock(t);
	switch (w->kind) {
	case STORE_USER_CREATE: return user_create(t, w, out);
	case STORE_USER_UPDATE: return user_change(t, w, out);
	case STORE_SESSION_END: return session_end(t, w);
	case STORE_KEY_CREATE: return key_create(t, w, out);
	case STORE_KEY_REVOKE: return key_revoke(t, w, out);
	default: ASSERT(false);
	}
}
