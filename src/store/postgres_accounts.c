/*
 * Users, sessions and API keys: read by index and in pages, and changed by the rules (decide_accounts.h).
 *
 * A change locks the single row of account_version, so changes take turns and see consistent rows. If it
 * counts a user's keys, it also locks that user.
 */
#include "store/decide_accounts.h"
#include "store/postgres_feed.h"
#include "store/postgres_store.h"

#include <pthread.h>
#include <stdlib.h>

/* --- reading --- */

static int64_t id_of(uint64_t id)
{
	return id_is_valid(id) ? (int64_t)id : 0;
}

static const struct pg_statement users_after = {
    "users_after", "SELECT " USER_COLUMNS " FROM users WHERE id > $1 ORDER BY id LIMIT $2"};
static const struct pg_statement keys_of_all = {
    "keys_of_all", "SELECT " KEY_COLUMNS " FROM api_key WHERE id > $1 ORDER BY id LIMIT $2"};
static const struct pg_statement keys_of_user = {
    "keys_of_user",
    "SELECT " KEY_COLUMNS " FROM api_key WHERE id > $1 AND user_id = $3 ORDER BY id LIMIT $2"};

static int page_read(struct pg_conn *c, struct registry_page *to)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	const struct fields *fields = to->of_keys ? &key_fields : &user_fields;
	size_t row_bytes = to->of_keys ? sizeof(*to->keys) : sizeof(*to->users);
	bool of_user = to->of_keys && to->user != 0;
	if (to->limit == 0)
		return ERR_INVALID;
	struct pg_query q = pg_query(c, of_user ? &keys_of_user : to->of_keys ? &keys_of_all : &users_after);
	pg_int(&q, (int64_t)MIN(to->after, INT64_MAX));
	pg_int(&q, (int64_t)MIN(to->limit, INT32_MAX) + 1); /* one more tells whether another page follows */
	if (of_user)
		pg_int(&q, (int64_t)MIN(to->user, INT64_MAX));
	int r = pg_ask(&q, &result, NULL);
	if (r != 0)
		return postgres_error(r);
	size_t count = MIN((size_t)result.rows, to->limit);
	char *rows = arena_zalloc(to->arena, (count + 1) * row_bytes);
	r = rows ? 0 : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = postgres_read_record(&result, (int)i, 0, fields, to->arena, rows + i * row_bytes);
	if (r != 0)
		return r;
	to->rows = rows;
	to->count = count;
	to->more = (size_t)result.rows > count;
	return 0;
}

int postgres_page(struct registry *r, struct registry_page *to)
{
	return POSTGRES_READ(registry_postgres(r), page_read(c, to));
}

static const struct pg_statement account_statements[] = {
    [BY_USER] = {"account_by_user", "SELECT " USER_COLUMNS " FROM users WHERE id = $1"},
    [BY_EMAIL] = {"account_by_email", "SELECT " USER_COLUMNS " FROM users WHERE email = $1"},
    [BY_KEY] = {"account_by_key", "SELECT " KEY_COLUMNS " FROM api_key WHERE id = $1"},
    [BY_DIGEST] = {"account_by_digest", "SELECT " KEY_COLUMNS " FROM api_key WHERE digest = $1"},
    [BY_SESSION] = {"account_by_session",
                    "SELECT user_id, generation, created_ms, expires_ms FROM session WHERE id = $1"},
};

/* The value by which an account is looked up. */
static struct pg_value account_value(const struct registry_account *read)
{
	return read->by == BY_USER || read->by == BY_KEY ? PG_INT(id_of(read->id)) : PG_TEXT(read->text);
}

static void account_take(const struct pg_result *result, struct arena *arena, struct registry_account *read)
{
	read->result = result->rows > 0 ? 0 : ERR_NOT_FOUND;
	if (read->result != 0)
		return;
	if (read->by == BY_SESSION) {
		read->session = (struct session_record){
		    .user = (uint64_t)pg_get_int(result, 0, 0),
		    .generation = (uint64_t)pg_get_int(result, 0, 1),
		    .created_ms = pg_get_int(result, 0, 2),
		    .expires_ms = pg_get_int(result, 0, 3),
		};
		memcpy(read->session.id, read->text.ptr, MIN(read->text.len, SESSION_ID_BYTES));
	} else if (read->by == BY_USER || read->by == BY_EMAIL) {
		read->user = (struct user_record){0};
		read->result = postgres_read_record(result, 0, 0, &user_fields, arena, &read->user);
	} else {
		read->key = (struct key_record){0};
		read->result = postgres_read_record(result, 0, 0, &key_fields, arena, &read->key);
	}
}

/* All reads in one round trip. */
static int accounts_read(struct pg_conn *c, struct registry_account *reads, size_t n, struct arena *arena)
{
	for (size_t i = 0; i < n; i++)
		PG_SEND(c, &account_statements[reads[i].by], account_value(&reads[i]));
	pg_flush(c);
	for (size_t i = 0; i < n; i++) {
		CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
		if (pg_next(c, &result, NULL) == 0)
			account_take(&result, arena, &reads[i]);
	}
	return postgres_error(pg_sync(c, NULL));
}

int postgres_accounts(struct registry *r, struct registry_account *reads, size_t n, struct arena *arena)
{
	return POSTGRES_READ(registry_postgres(r), accounts_read(c, reads, n, arena));
}

/* --- fetching for the rules --- */

static const struct pg_statement accounts_lock = {"accounts_lock",
                                                  "SELECT 1 FROM account_version WHERE id = 1 FOR UPDATE"};
static const struct pg_statement user_lock = {"user_lock", "SELECT 1 FROM users WHERE id = $1 FOR UPDATE"};

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

/* Locks come before reads: a transaction that waited must see what the holder committed. */
static void locks_put(struct postgres_txn *t, const struct registry_write *w, const struct account_fetch *f)
{
	if (w->kind != REGISTRY_KEY_USED && !t->accounts_are_locked) {
		TXN_PUT(t, &accounts_lock);
		t->accounts_are_locked = true;
	}
	if (f->is_wanted[READ_USER])
		TXN_PUT(t, &user_lock, PG_INT(id_of(f->reads[READ_USER].id)));
}

/* In the order in which rows_fetch reads the results. */
static void rows_ask(struct postgres_txn *t, const struct registry_write *w, const struct account_fetch *f)
{
	for (size_t i = 0; i < ACCOUNT_READS; i++)
		if (f->is_wanted[i])
			TXN_ASK_ADD(t, &account_statements[f->reads[i].by], account_value(&f->reads[i]));
	if (f->needs & NEEDS_ADMINS)
		TXN_ASK_ADD(t, &admins_get, PG_INT(w->now_ms), PG_INT(id_of(w->user.id)));
	if (f->needs & NEEDS_ADMIN_KEYS)
		TXN_ASK_ADD(t, &admin_keys, PG_INT(w->now_ms));
	if (f->needs & NEEDS_LIVE_KEYS)
		TXN_ASK_ADD(t, &live_keys, PG_INT(id_of(w->key.user)), PG_INT(w->now_ms),
		            PG_INT(ACCOUNT_KEYS_MAX));
}

static void sets_take(unsigned need, const struct pg_result *rows, struct account_rows *to)
{
	switch (need) {
	case NEEDS_ADMINS:
		to->has_admin_key = pg_get_int(rows, 0, 0);
		to->has_other_admin = pg_get_int(rows, 0, 1);
		break;
	case NEEDS_ADMIN_KEYS:
		for (int row = 0; row < rows->rows; row++)
			to->admin_keys[to->admin_key_count++] = (uint64_t)pg_get_int(rows, row, 0);
		break;
	default: to->live_keys = (size_t)pg_get_int(rows, 0, 0);
	}
}

static int rows_fetch(struct postgres_txn *t, const struct registry_write *w, struct account_fetch *f)
{
	account_fetch_init(f, w);
	if (f->needs == 0)
		return 0;
	locks_put(t, w, f);
	rows_ask(t, w, f);
	int r = txn_ask_send(t);
	for (size_t i = 0; i < ACCOUNT_READS; i++) {
		CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
		if (f->is_wanted[i] && txn_ask_next(t, &result) == 0 && r == 0)
			account_take(&result, &t->scratch, &f->reads[i]);
	}
	for (unsigned need = NEEDS_ADMINS; need <= NEEDS_LIVE_KEYS; need <<= 1) {
		CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
		if (f->needs & need && txn_ask_next(t, &result) == 0 && r == 0)
			sets_take(need, &result, &f->rows);
	}
	int end = txn_ask_end(t);
	return r ?: end ?: account_fetch_take(f);
}

/* --- writing --- */

static struct pg_statement user_insert = {"user_insert", NULL}, user_update = {"user_update", NULL},
                           key_insert = {"key_insert", NULL};
static pthread_once_t texts_once = PTHREAD_ONCE_INIT;

static const char *insert_text(const char *table, const struct fields *fields)
{
	struct buf b = {0};
	buf_printf(&b, "INSERT INTO %s (", table);
	fields_sql(&b, fields, FIELDS_BUT_ID, &postgres_names, 0);
	buf_str(&b, STR(") VALUES ("));
	fields_sql(&b, fields, FIELDS_BUT_ID, &postgres_params, 1);
	buf_str(&b, STR(") RETURNING id"));
	buf_char(&b, '\0');
	ASSERT(!b.failed);
	return b.data;
}

static void texts_make(void)
{
	struct buf b = {0};
	user_insert.sql = insert_text("users", &user_fields);
	key_insert.sql = insert_text("api_key", &key_fields);
	buf_str(&b, STR("UPDATE users SET "));
	int next = fields_sql(&b, &user_fields, FIELDS_CHANGING, &postgres_set_params, 1);
	buf_printf(&b, " WHERE id = $%d", next);
	buf_char(&b, '\0');
	ASSERT(!b.failed);
	user_update.sql = b.data;
}

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
static const struct pg_statement key_set_revoked = {"key_set_revoked",
                                                    "UPDATE api_key SET revoked_ms = $2 WHERE id = $1"};
static const struct pg_statement key_set_used = {
    "key_set_used", "UPDATE api_key SET used_ms = $2 WHERE id = $1 AND used_ms < $2"};

static int record_insert(struct postgres_txn *t, const struct pg_statement *statement,
                         const struct fields *fields, const void *record, uint64_t *ret_id)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = txn_query(t, statement);
	postgres_bind_record(&q, fields, FIELDS_BUT_ID, record);
	int r = txn_ask(t, &q, &rows);
	if (r == 0)
		*ret_id = (uint64_t)pg_get_int(&rows, 0, 0);
	return r;
}

static void session_write(struct postgres_txn *t, const struct session_record *session, int64_t now_ms)
{
	TXN_PUT(t, &session_insert, PG_BYTES(session->id, SESSION_ID_BYTES), PG_INT(session->user),
	        PG_INT(session->generation), PG_INT(session->created_ms), PG_INT(session->expires_ms),
	        PG_TEXT(session->address), PG_TEXT(session->agent));
	TXN_PUT(t, &session_purge, PG_INT(now_ms), PG_INT(SESSION_PURGE_PER_CREATE));
}

static int account_write(struct postgres_txn *t, unsigned edits, const struct registry_write *w,
                         struct account_outcome *out)
{
	int r = 0;
	pthread_once(&texts_once, texts_make);
	if (edits & EDIT_USER_INSERT) {
		r = record_insert(t, &user_insert, &user_fields, &out->user, &out->user.id);
		out->key.user = out->user.id;
	}
	if (edits & EDIT_USER_UPDATE) {
		struct pg_query q = txn_query(t, &user_update);
		postgres_bind_record(&q, &user_fields, FIELDS_CHANGING, &out->user);
		pg_int(&q, (int64_t)out->user.id);
		txn_put(t, &q);
	}
	if (r == 0 && edits & EDIT_KEY_INSERT)
		r = record_insert(t, &key_insert, &key_fields, &out->key, &out->key.id);
	if (edits & EDIT_KEY_REVOKE)
		TXN_PUT(t, &key_set_revoked, PG_INT(out->key.id), PG_INT(out->key.revoked_ms));
	if (edits & EDIT_KEY_USED)
		TXN_PUT(t, &key_set_used, PG_INT(out->key.id), PG_INT(out->key.used_ms));
	if (edits & EDIT_SESSION_INSERT)
		session_write(t, &out->session, w->now_ms);
	if (edits & EDIT_SESSION_DELETE)
		TXN_PUT(t, &session_delete, PG_BYTES(w->session.id, SESSION_ID_BYTES));
	if (edits & EDIT_KEY_PURGE) {
		TXN_PUT(t, &key_purge_revoked, PG_INT(w->purge.until_ms), PG_INT(w->purge.max));
		TXN_PUT(t, &key_purge_expired, PG_INT(w->purge.until_ms), PG_INT(w->purge.max));
	}
	return r;
}

static int account_change(struct postgres_txn *t, const struct registry_write *w, struct account_outcome *out,
                          struct buf *feed)
{
	struct account_fetch fetched;
	int r = rows_fetch(t, w, &fetched);
	if (r != 0)
		return r;
	int edits = decide_account(&fetched.rows, w, out);
	if (edits < 0)
		return edits;
	r = account_write(t, (unsigned)edits, w, out);
	return r == 0 && !account_feed((unsigned)edits, &fetched.rows, w, out, feed) ? txn_no_memory(t) : r;
}

struct accounts_work {
	const struct registry_write *writes;
	size_t n;
	struct account_outcome *outcomes;
};

static int apply_run(struct postgres_txn *t, void *ctx)
{
	const struct accounts_work *work = ctx;
	CLEANUP(buf_release) struct buf feed = {0};
	int r = 0;
	memset(work->outcomes, 0, work->n * sizeof(*work->outcomes)); /* it may be a retry */
	for (size_t i = 0; r == 0 && i < work->n; i++)
		r = account_change(t, &work->writes[i], &work->outcomes[i], &feed);
	if (r == 0)
		postgres_feed_put(t, true, work->writes[work->n - 1].now_ms, buf_view(&feed));
	return r;
}

int postgres_accounts_apply(struct registry *r, struct registry_write *writes, size_t n)
{
	struct store_postgres *s = registry_postgres(r);
	struct account_outcome *outcomes = calloc(n + 1, sizeof(*outcomes));
	struct accounts_work apply = {.writes = writes, .n = n, .outcomes = outcomes};
	struct postgres_work work = postgres_work(s, apply_run, &apply);
	int result = !outcomes ? ERR_NOMEM
	             : n > 0   ? POSTGRES_WRITE(s, postgres_error(postgres_write(s, &work, NULL)))
	                       : 0;
	for (size_t i = 0; result == 0 && i < n; i++)
		account_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return result;
}
