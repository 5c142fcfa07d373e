/* The registry in a link file. Accounts are fetched for the rules (decide_accounts.h), and written as
 * decided. */
#include "store/decide_accounts.h"
#include "store/sqlite_store.h"

#include <stdlib.h>

static struct store_sqlite *self(struct registry *r)
{
	return container_of(r, struct store_sqlite, registry);
}

/* --- reading --- */

static int account_find(struct sqlite_conn *c, struct registry_account *read, struct arena *arena)
{
	static const unsigned statements[] = {[BY_USER] = SQL_USER_BY_ID,
	                                      [BY_EMAIL] = SQL_USER_BY_EMAIL,
	                                      [BY_KEY] = SQL_KEY_BY_ID,
	                                      [BY_DIGEST] = SQL_KEY_BY_DIGEST,
	                                      [BY_SESSION] = SQL_SESSION_BY_ID};
	CLEANUP(query_end) struct query q = query_begin(c, statements[read->by]);
	if (read->by == BY_USER || read->by == BY_KEY)
		query_int(&q, id_is_valid(read->id) ? (int64_t)read->id : 0);
	else if (read->by == BY_EMAIL)
		query_str(&q, read->text); /* NULL matches no row */
	else
		query_blob(&q, read->text.ptr, read->text.len);
	bool found;
	int rc = query_find(&q, &found);
	read->result = found ? 0 : ERR_NOT_FOUND;
	if (!found)
		return rc;
	if (read->by == BY_SESSION) {
		read->session = (struct session_record){
		    .user = (uint64_t)sqlite3_column_int64(q.stmt, 0),
		    .generation = (uint64_t)sqlite3_column_int64(q.stmt, 1),
		    .created_ms = sqlite3_column_int64(q.stmt, 2),
		    .expires_ms = sqlite3_column_int64(q.stmt, 3),
		};
		memcpy(read->session.id, read->text.ptr, MIN(read->text.len, SESSION_ID_BYTES));
	} else if (read->by == BY_USER || read->by == BY_EMAIL) {
		read->result = sqlite_row_read(q.stmt, &user_fields, arena, &read->user, sizeof(read->user));
	} else {
		read->result = sqlite_row_read(q.stmt, &key_fields, arena, &read->key, sizeof(read->key));
	}
	return rc;
}

static int accounts(struct registry *r, struct registry_account *reads, size_t n, struct arena *arena)
{
	SQLITE_READER(self(r), read);
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		rc = account_find(read.conn, &reads[i], arena);
	return sqlite_error(rc);
}

static int page(struct registry *r, struct registry_page *to)
{
	const struct fields *fields = to->of_keys ? &key_fields : &user_fields;
	size_t row_bytes = to->of_keys ? sizeof(*to->keys) : sizeof(*to->users);
	bool of_user = to->of_keys && to->user != 0;
	if (to->limit == 0)
		return ERR_INVALID;
	SQLITE_READER(self(r), read);
	CLEANUP(query_end)
	struct query q = query_begin(read.conn, of_user       ? SQL_KEYS_OF_USER
	                                        : to->of_keys ? SQL_KEYS_OF_ALL
	                                                      : SQL_USERS);
	query_int(&q, (int64_t)MIN(to->after, INT64_MAX));
	query_int(&q,
	          (int64_t)MIN(to->limit, INT32_MAX) + 1); /* one more tells whether another page follows */
	if (of_user)
		query_int(&q, (int64_t)MIN(to->user, INT64_MAX));
	char *rows = NULL;
	size_t count = 0, cap = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW && count < to->limit) {
		rows = array_room(to->arena, rows, count, &cap, row_bytes);
		char *row = rows ? rows + count++ * row_bytes : NULL;
		int result = row ? sqlite_row_read(q.stmt, fields, to->arena, row, row_bytes) : ERR_NOMEM;
		if (result != 0)
			return result;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return sqlite_error(rc);
	to->rows = rows;
	to->count = count;
	to->more = rc == SQLITE_ROW;
	return 0;
}

/* --- fetching for the rules --- */

static int admins_fetch(struct sqlite_conn *c, const struct registry_write *w, struct account_rows *rows)
{
	return QUERY_FIND(c, SQL_ADMIN_KEY_OF, &rows->has_admin_key, NULL, 0, Q_INT(w->now_ms),
	                  Q_INT(w->user.id))
	           ?: QUERY_FIND(c, SQL_OTHER_ADMIN, &rows->has_other_admin, NULL, 0, Q_INT(w->now_ms),
	                         Q_INT(w->user.id));
}

static int admin_keys_fetch(struct sqlite_conn *c, const struct registry_write *w, struct account_rows *rows)
{
	CLEANUP(query_end) struct query q = QUERY_VALUES(c, SQL_ADMIN_KEYS, Q_INT(w->now_ms));
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW && rows->admin_key_count < ARRAY_LEN(rows->admin_keys))
		rows->admin_keys[rows->admin_key_count++] = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int live_keys_fetch(struct sqlite_conn *c, const struct registry_write *w, size_t *ret)
{
	int64_t count = 0;
	bool found;
	int rc = QUERY_FIND(c, SQL_KEYS_LIVE, &found, &count, 1, Q_INT(w->key.user), Q_INT(w->now_ms),
	                    Q_INT(ACCOUNT_KEYS_MAX));
	*ret = (size_t)count;
	return rc;
}

static int rows_fetch(struct sqlite_conn *c, const struct registry_write *w, struct arena *arena,
                      struct account_fetch *f)
{
	int rc = SQLITE_OK;
	account_fetch_init(f, w);
	for (size_t i = 0; rc == SQLITE_OK && i < ACCOUNT_READS; i++) {
		if (f->is_wanted[i])
			rc = account_find(c, &f->reads[i], arena);
	}
	if (rc == SQLITE_OK)
		rc = sqlite_of_error(account_fetch_take(f));
	if (rc == SQLITE_OK && f->needs & NEEDS_ADMINS)
		rc = admins_fetch(c, w, &f->rows);
	if (rc == SQLITE_OK && f->needs & NEEDS_ADMIN_KEYS)
		rc = admin_keys_fetch(c, w, &f->rows);
	if (rc == SQLITE_OK && f->needs & NEEDS_LIVE_KEYS)
		rc = live_keys_fetch(c, w, &f->rows.live_keys);
	return rc;
}

/* --- writing --- */

/* *ret_id is the record's own id field. */
static int record_insert(struct sqlite_conn *c, unsigned sql, const struct fields *fields, const void *record,
                         uint64_t *ret_id)
{
	CLEANUP(query_end) struct query q = query_begin(c, sql);
	*ret_id = 0;
	sqlite_bind_record(&q, fields, FIELDS_ALL, record);
	int rc = query_run(&q);
	*ret_id = (uint64_t)sqlite3_last_insert_rowid(c->db);
	return rc;
}

static int user_write(struct sqlite_conn *c, const struct user_record *user)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USER_UPDATE);
	sqlite_bind_record(&q, &user_fields, FIELDS_CHANGING, user);
	query_int(&q, (int64_t)user->id);
	return query_run(&q);
}

static int session_insert(struct sqlite_conn *c, const struct session_record *session, int64_t now_ms)
{
	return QUERY_RUN(c, SQL_SESSION_INSERT, Q_BLOB(session->id, SESSION_ID_BYTES), Q_INT(session->user),
	                 Q_INT(session->generation), Q_INT(session->created_ms), Q_INT(session->expires_ms),
	                 Q_STR(session->address), Q_STR(session->agent))
	           ?: QUERY_RUN(c, SQL_SESSION_PURGE, Q_INT(now_ms), Q_INT(SESSION_PURGE_PER_CREATE));
}

static int account_write(struct sqlite_conn *c, unsigned edits, const struct registry_write *w,
                         struct account_outcome *out)
{
	int rc = SQLITE_OK;
	if (edits & EDIT_USER_INSERT) {
		rc = record_insert(c, SQL_USER_INSERT, &user_fields, &out->user, &out->user.id);
		out->key.user = out->user.id;
	}
	if (rc == SQLITE_OK && edits & EDIT_USER_UPDATE)
		rc = user_write(c, &out->user);
	if (rc == SQLITE_OK && edits & EDIT_KEY_INSERT)
		rc = record_insert(c, SQL_KEY_INSERT, &key_fields, &out->key, &out->key.id);
	if (rc == SQLITE_OK && edits & EDIT_KEY_REVOKE)
		rc = QUERY_RUN(c, SQL_KEY_REVOKE, Q_INT(out->key.id), Q_INT(out->key.revoked_ms));
	if (rc == SQLITE_OK && edits & EDIT_KEY_USED)
		rc = QUERY_RUN(c, SQL_KEY_USED, Q_INT(out->key.id), Q_INT(out->key.used_ms));
	if (rc == SQLITE_OK && edits & EDIT_SESSION_INSERT)
		rc = session_insert(c, &out->session, w->now_ms);
	if (rc == SQLITE_OK && edits & EDIT_SESSION_DELETE)
		rc = QUERY_RUN(c, SQL_SESSION_DELETE, Q_BLOB(w->session.id, SESSION_ID_BYTES));
	if (rc == SQLITE_OK && edits & EDIT_KEY_PURGE)
		rc = sqlite_purge(c, SQL_KEY_PURGE_REVOKED, &w->purge)
		         ?: sqlite_purge(c, SQL_KEY_PURGE_EXPIRED, &w->purge);
	return rc;
}

static int account_change(struct sqlite_conn *c, const struct registry_write *w, struct account_outcome *out,
                          struct buf *feed)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct account_fetch fetched;
	int rc = rows_fetch(c, w, &arena, &fetched);
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

static int apply(struct registry *r, struct registry_write *writes, size_t n)
{
	struct sqlite_file *f = self(r)->file;
	struct sqlite_conn *c;
	CLEANUP(buf_release) struct buf feed = {0};
	struct account_outcome *outcomes = calloc(n + 1, sizeof(*outcomes));
	int result = outcomes ? 0 : ERR_NOMEM;
	if (result == 0 && n > 0)
		result = sqlite_file_write_begin(f, &c);
	if (result != 0 || n == 0) {
		free(outcomes);
		return result;
	}
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		rc = account_change(c, &writes[i], &outcomes[i], &feed);
	if (rc == SQLITE_OK)
		rc = sqlite_feed_add(c, SQL_ACCOUNT_FEED, writes[n - 1].now_ms, buf_view(&feed));
	result = sqlite_file_write_end(f, rc);
	for (size_t i = 0; result == 0 && i < n; i++)
		account_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return result;
}

/* --- counters and constants --- */

static int counter_next(struct sqlite_conn *c, struct str name, int64_t *ret)
{
	bool found;
	*ret = COUNTER_FIRST;
	return QUERY_FIND(c, SQL_COUNTER_GET, &found, ret, 1, Q_STR(name));
}

static int lease(struct registry *r, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct sqlite_file *f = self(r)->file;
	struct sqlite_conn *c;
	if (counter.len == 0 || count == 0)
		return ERR_INVALID;
	if (count > INT64_MAX)
		return ERR_LIMIT;
	int result = sqlite_file_write_begin(f, &c);
	if (result != 0)
		return result;
	int64_t first, next;
	int rc = counter_next(c, counter, &first);
	bool fits = rc == SQLITE_OK && !__builtin_add_overflow(first, (int64_t)count, &next);
	if (fits)
		rc = QUERY_RUN(c, SQL_COUNTER_SET, Q_STR(counter), Q_INT(next));
	result = sqlite_file_write_end(f, rc);
	if (result == 0 && fits)
		*ret_first = (uint64_t)first;
	return result ? result : fits ? 0 : ERR_LIMIT;
}

static int counter(struct registry *r, struct str name, uint64_t *ret_next)
{
	SQLITE_READER(self(r), read);
	int64_t next;
	int rc = counter_next(read.conn, name, &next);
	if (rc == SQLITE_OK)
		*ret_next = (uint64_t)next;
	return sqlite_error(rc);
}

/* *ret_result is ERR_NOT_FOUND if the name is new. */
static int constant_get(struct sqlite_conn *c, struct str name, void *value, size_t len, int *ret_result)
{
	CLEANUP(query_end) struct query q = QUERY_VALUES(c, SQL_CONSTANT_GET, Q_STR(name));
	bool found;
	int rc = query_find(&q, &found);
	*ret_result = found ? ERR_CORRUPT : ERR_NOT_FOUND;
	if (!found)
		return rc;
	if ((size_t)sqlite3_column_bytes(q.stmt, 0) != len)
		return SQLITE_OK;
	const void *stored = sqlite3_column_blob(q.stmt, 0);
	if (!stored && len > 0)
		return SQLITE_NOMEM;
	if (len > 0)
		memcpy(value, stored, len);
	*ret_result = 0;
	return SQLITE_OK;
}

static int constant(struct registry *r, struct str name, void *value, size_t len)
{
	struct sqlite_file *f = self(r)->file;
	struct sqlite_conn *c;
	int result, end = sqlite_file_write_begin(f, &c);
	if (end != 0)
		return end;
	int rc = constant_get(c, name, value, len, &result);
	if (rc == SQLITE_OK && result == ERR_NOT_FOUND) {
		rc = QUERY_RUN(c, SQL_CONSTANT_PUT, Q_STR(name), Q_BLOB(value, len));
		result = 0;
	}
	end = sqlite_file_write_end(f, rc);
	return end ? end : result;
}

static int forget(struct registry *r, struct str from, struct str before)
{
	struct sqlite_file *f = self(r)->file;
	struct sqlite_conn *c;
	int result = sqlite_file_write_begin(f, &c);
	if (result != 0)
		return result;
	return sqlite_file_write_end(f, QUERY_RUN(c, SQL_CONSTANTS_DROP, Q_STR(from), Q_STR(before)));
}

/* --- the feed --- */

static int feed(struct registry *r, struct feed_page *page)
{
	return sqlite_feed_read(self(r)->file, SQL_ACCOUNT_FEED, page);
}

static int feed_prune(struct registry *r, int64_t until_ms, size_t *ret)
{
	return sqlite_feed_prune(self(r)->file, SQL_ACCOUNT_FEED, until_ms, ret);
}

const struct registry_ops sqlite_registry_ops = {
    .apply = apply,
    .page = page,
    .accounts = accounts,
    .lease = lease,
    .counter = counter,
    .constant = constant,
    .forget = forget,
    .feed = feed,
    .feed_prune = feed_prune,
};
