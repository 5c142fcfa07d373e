/*
 * Users, their sessions and API keys in a PostgreSQL store, fetched for the rules and written as they have
 * decided. Changes take turns: each locks the row with the version of the accounts, so what it looks at stays
 * as it is. Those that change an account which was there before raise the version. A user whose keys are
 * counted is locked besides.
 */
#include "store/postgres_change.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

static const struct pg_statement version_raise = {
    "version_raise", "UPDATE account_version SET version = version + 1 WHERE id = 1"};
static const struct pg_statement version_lock = {"version_lock",
                                                 "SELECT 1 FROM account_version WHERE id = 1 FOR UPDATE"};

static void accounts_lock(struct postgres_txn *t, enum store_write_kind kind)
{
	bool raises = kind == STORE_USER_UPDATE || kind == STORE_KEY_REVOKE || kind == STORE_SESSION_END;
	bool locks = kind == STORE_USER_CREATE || kind == STORE_KEY_CREATE;
	if (raises ? t->accounts_are_raised : !locks || t->accounts_are_locked)
		return;
	struct pg_query q = txn_query(t, raises ? &version_raise : &version_lock);
	txn_put(t, &q);
	t->accounts_are_locked = true;
	t->accounts_are_raised |= raises;
}

/* --- fetching --- */

static const struct pg_statement email_holder = {"email_holder", "SELECT id FROM users WHERE email = $1"};
static const struct pg_statement user_get = {"user_get",
                                             "SELECT " USER_COLUMNS " FROM users WHERE id = $1 FOR UPDATE"};
static const struct pg_statement key_get = {"key_get", "SELECT " KEY_COLUMNS " FROM api_key WHERE id = $1"};
static const struct pg_statement digest_get = {"digest_get", "SELECT 1 FROM api_key WHERE digest = $1"};

#define KEY_FOR_ADMINS "revoked_ms = 0 AND (k.expires_ms = 0 OR k.expires_ms > $1) AND (rights & 16) <> 0"
#define ADMINS_KEYS \
	"api_key k JOIN users u ON u.id = k.user_id WHERE u.role = 3 AND u.enabled AND " KEY_FOR_ADMINS
_Static_assert(RIGHT_ADMIN == 16 && ROLE_ADMIN == 3, "the statements say so");

static const struct pg_statement admins_get = {
    "admins_get", "SELECT EXISTS (SELECT 1 FROM api_key k WHERE " KEY_FOR_ADMINS " AND user_id = $2),"
                  " EXISTS (SELECT 1 FROM users WHERE id <> $2 AND role = 3 AND enabled"
                  " AND email IS NOT NULL AND password IS NOT NULL)"
                  " OR EXISTS (SELECT 1 FROM " ADMINS_KEYS " AND u.id <> $2)"};
static const struct pg_statement admin_keys = {"admin_keys", "SELECT k.id FROM " ADMINS_KEYS " LIMIT 2"};
static const struct pg_statement live_keys = {
    "live_keys", "SELECT count(*) FROM (SELECT 1 FROM api_key"
                 " WHERE user_id = $1 AND revoked_ms = 0 AND expires_ms = 0"
                 " UNION ALL SELECT 1 FROM api_key"
                 " WHERE user_id = $1 AND revoked_ms = 0 AND expires_ms > greatest(0, $2::bigint)"
                 " LIMIT $3::bigint) live"};

/* What a change is about, and where it is read to. */
struct fetched {
	struct account_rows rows;
	struct user_record user;
	struct key_record key;
};

static void number_ask(struct postgres_txn *t, const struct pg_statement *statement, uint64_t id)
{
	struct pg_query q = txn_query(t, statement);
	pg_int(&q, id_is_valid(id) ? (int64_t)id : 0);
	txn_ask_add(t, &q);
}

/* In the order in which account_answers reads. */
static void account_ask(struct postgres_txn *t, const struct store_write *w, unsigned needs)
{
	struct pg_query q;
	if (needs & NEEDS_USER)
		number_ask(t, &user_get, w->kind == STORE_KEY_CREATE ? w->key.user : w->user.id);
	if (needs & NEEDS_EMAIL) {
		q = txn_query(t, &email_holder);
		pg_text(&q, w->user.email);
		txn_ask_add(t, &q);
	}
	if (needs & NEEDS_KEY)
		number_ask(t, &key_get, w->key.id);
	if (needs & NEEDS_DIGEST) {
		q = txn_query(t, &digest_get);
		pg_bytes(&q, w->key.digest, KEY_DIGEST_BYTES);
		txn_ask_add(t, &q);
	}
	if (needs & (NEEDS_ADMINS | NEEDS_ADMIN_KEYS)) {
		q = txn_query(t, needs & NEEDS_ADMINS ? &admins_get : &admin_keys);
		pg_int(&q, w->now_ms);
		if (needs & NEEDS_ADMINS)
			pg_int(&q, id_is_valid(w->user.id) ? (int64_t)w->user.id : 0);
		txn_ask_add(t, &q);
	}
	if (needs & NEEDS_LIVE_KEYS) {
		q = txn_query(t, &live_keys);
		pg_int(&q, id_is_valid(w->key.user) ? (int64_t)w->key.user : 0);
		pg_int(&q, w->now_ms);
		pg_int(&q, ACCOUNT_KEYS_MAX);
		txn_ask_add(t, &q);
	}
}

static int answer_take(struct postgres_txn *t, unsigned need, const struct pg_result *rows,
                       struct fetched *to)
{
	int r = 0;
	switch (need) {
	case NEEDS_USER:
		r = rows->rows > 0 ? postgres_row_user(rows, 0, &t->scratch, &to->user) : 0;
		to->rows.user = rows->rows > 0 ? &to->user : NULL;
		return r;
	case NEEDS_KEY:
		r = rows->rows > 0 ? postgres_row_key(rows, 0, &t->scratch, &to->key) : 0;
		to->rows.key = rows->rows > 0 ? &to->key : NULL;
		return r;
	case NEEDS_EMAIL:
		to->rows.email_holder = rows->rows > 0 ? (uint64_t)pg_get_int(rows, 0, 0) : 0;
		return 0;
	case NEEDS_LIVE_KEYS: to->rows.live_keys = (size_t)pg_get_int(rows, 0, 0); return 0;
	case NEEDS_DIGEST: to->rows.digest_exists = rows->rows > 0; return 0;
	case NEEDS_ADMINS:
		to->rows.has_admin_key = pg_get_int(rows, 0, 0);
		to->rows.has_other_admin = pg_get_int(rows, 0, 1);
		return 0;
	default:
		for (int row = 0; row < rows->rows; row++)
			to->rows.admin_keys[to->rows.admin_key_count++] = (uint64_t)pg_get_int(rows, row, 0);
		return 0;
	}
}

static int account_fetch(struct postgres_txn *t, const struct store_write *w, struct fetched *to)
{
	unsigned needs = account_needs(w);
	if (needs == 0)
		return 0;
	account_ask(t, w, needs);
	int r = txn_ask_send(t);
	for (unsigned need = NEEDS_USER; need <= NEEDS_LIVE_KEYS; need <<= 1) {
		CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
		if (needs & need && txn_ask_next(t, &rows) == 0 && r == 0)
			r = answer_take(t, need, &rows, to);
		if (r == ERR_CORRUPT) {
			to->rows.is_damaged = true;
			r = 0;
		}
	}
	int end = txn_ask_end(t);
	return r ? r : end;
}

/* --- writing --- */

static const struct pg_statement user_insert = {
    "user_insert", "INSERT INTO users (email, first_name, middle_name, last_name, role, enabled, password,"
                   " generation, created_ms, updated_ms)"
                   " VALUES ($1, $2, $3, $4, $5::bigint, $6, $7, $8, $9, $10) RETURNING id"};
static const struct pg_statement user_update = {
    "user_update", "UPDATE users SET email = $1, first_name = $2, middle_name = $3, last_name = $4,"
                   " role = $5::bigint, enabled = $6, password = $7, generation = $8, created_ms = $9,"
                   " updated_ms = $10 WHERE id = $11"};

static const struct pg_statement session_insert = {
    "session_insert", "INSERT INTO session (id, user_id, generation, created_ms, expires_ms, address, agent)"
                      " VALUES ($1, $2, $3, $4, $5, $6, $7)"};
static const struct pg_statement session_delete = {"session_delete", "DELETE FROM session WHERE id = $1"};
static const struct pg_statement session_purge = {
    "session_purge", "DELETE FROM session WHERE id IN (SELECT id FROM session"
                     " WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"};
static const struct pg_statement key_purge_revoked = {
    "key_purge_revoked", "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE revoked_ms > 0"
                         " AND revoked_ms <= $1 ORDER BY revoked_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"};
static const struct pg_statement key_purge_expired = {
    "key_purge_expired", "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE expires_ms > 0"
                         " AND expires_ms <= $1 ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"};
static const struct pg_statement key_insert = {
    "key_insert",
    "INSERT INTO api_key (user_id, name, digest, rights, created_ms, expires_ms, revoked_ms, used_ms,"
    " creates_max, redirects_max, period_ms)"
    " VALUES ($1, $2, $3, $4::bigint, $5, $6, $7, $8, $9, $10, $11) RETURNING id"};
static const struct pg_statement key_set_revoked = {"key_set_revoked",
                                                    "UPDATE api_key SET revoked_ms = $2 WHERE id = $1"};
static const struct pg_statement key_set_used = {
    "key_set_used", "UPDATE api_key SET used_ms = $2 WHERE id = $1 AND used_ms < $2"};

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

static int id_ask(struct postgres_txn *t, struct pg_query *q, uint64_t *ret)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = txn_ask(t, q, &rows);
	if (r == 0)
		*ret = (uint64_t)pg_get_int(&rows, 0, 0);
	return r;
}

static int user_make(struct postgres_txn *t, struct store_outcome *out)
{
	struct pg_query q = txn_query(t, &user_insert);
	user_bind(&q, &out->user);
	int r = id_ask(t, &q, &out->user.id);
	out->key.user = out->user.id;
	return r;
}

static void user_write(struct postgres_txn *t, const struct user_record *user)
{
	struct pg_query q = txn_query(t, &user_update);
	user_bind(&q, user);
	pg_int(&q, (int64_t)user->id);
	txn_put(t, &q);
}

static int key_make(struct postgres_txn *t, struct key_record *key)
{
	struct pg_query q = txn_query(t, &key_insert);
	pg_int(&q, (int64_t)key->user);
	pg_text(&q, key->name);
	pg_bytes(&q, key->digest, KEY_DIGEST_BYTES);
	pg_int(&q, key->rights);
	pg_int(&q, key->created_ms);
	pg_int(&q, key->expires_ms);
	pg_int(&q, key->revoked_ms);
	pg_int(&q, key->used_ms);
	pg_int(&q, (int64_t)key->creates_max);
	pg_int(&q, (int64_t)key->redirects_max);
	pg_int(&q, (int64_t)key->period_ms);
	return id_ask(t, &q, &key->id);
}

static void numbers_put(struct postgres_txn *t, const struct pg_statement *statement, int64_t a, int64_t b)
{
	struct pg_query q = txn_query(t, statement);
	pg_int(&q, a);
	pg_int(&q, b);
	txn_put(t, &q);
}

static void session_write(struct postgres_txn *t, const struct session_record *session, int64_t now_ms)
{
	struct pg_query q = txn_query(t, &session_insert);
	pg_bytes(&q, session->id, SESSION_ID_BYTES);
	pg_int(&q, (int64_t)session->user);
	pg_int(&q, (int64_t)session->generation);
	pg_int(&q, session->created_ms);
	pg_int(&q, session->expires_ms);
	pg_text(&q, session->address);
	pg_text(&q, session->agent);
	txn_put(t, &q);
	numbers_put(t, &session_purge, now_ms, SESSION_PURGE_PER_CREATE);
}

static int account_write(struct postgres_txn *t, unsigned edits, const struct store_write *w,
                         struct store_outcome *out)
{
	int r = edits & EDIT_USER_INSERT ? user_make(t, out) : 0;
	if (edits & EDIT_USER_UPDATE)
		user_write(t, &out->user);
	if (r == 0 && edits & EDIT_KEY_INSERT)
		r = key_make(t, &out->key);
	if (edits & EDIT_KEY_REVOKE)
		numbers_put(t, &key_set_revoked, (int64_t)out->key.id, out->key.revoked_ms);
	if (edits & EDIT_KEY_USED)
		numbers_put(t, &key_set_used, (int64_t)out->key.id, out->key.used_ms);
	if (edits & EDIT_SESSION_INSERT)
		session_write(t, &out->session, w->now_ms);
	if (edits & EDIT_SESSION_DELETE) {
		struct pg_query q = txn_query(t, &session_delete);
		pg_bytes(&q, w->session.id, SESSION_ID_BYTES);
		txn_put(t, &q);
	}
	if (edits & EDIT_KEY_PURGE) {
		numbers_put(t, &key_purge_revoked, w->purge.until_ms, w->purge.max);
		numbers_put(t, &key_purge_expired, w->purge.until_ms, w->purge.max);
	}
	return r;
}

int postgres_account_change(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out,
                            struct buf *feed)
{
	struct fetched fetched = {0};
	accounts_lock(t, w->kind);
	int r = account_fetch(t, w, &fetched);
	if (r != 0)
		return r;
	int edits = decide_account(&fetched.rows, w, out);
	if (edits < 0)
		return edits;
	r = account_write(t, (unsigned)edits, w, out);
	return r == 0 && !account_feed((unsigned)edits, &fetched.rows, w, out, feed) ? txn_no_memory(t) : r;
}
