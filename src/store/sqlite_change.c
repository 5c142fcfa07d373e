#include "store/sqlite_change.h"

#include "store/rules.h"
#include "store/tags.h"

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

/* The columns are LINK_COLUMNS of sqlite_layout.c. */
int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret)
{
	int64_t id = sqlite3_column_int64(row, 0);
	int64_t status = sqlite3_column_int64(row, 8);
	if (id <= 0 || status < 0 || status > UINT16_MAX || sqlite3_column_type(row, 4) != SQLITE_TEXT)
		return ERR_CORRUPT;
	struct link_record link = {
	    .id = (uint64_t)id,
	    .is_alias = sqlite3_column_type(row, 1) != SQLITE_NULL,
	    .owner = (uint64_t)sqlite3_column_int64(row, 2),
	    .created_ms = sqlite3_column_int64(row, 5),
	    .updated_ms = sqlite3_column_int64(row, 6),
	    .expires_ms = sqlite3_column_int64(row, 7),
	    .redirect_status = (uint16_t)status,
	    .enabled = sqlite3_column_int64(row, 9) != 0,
	    .clicks = (uint64_t)sqlite3_column_int64(row, 13),
	};
	if (!column_str(row, 1, arena, &link.key) || !column_str(row, 3, arena, &link.user_name) ||
	    !column_str(row, 4, arena, &link.url) || !column_str(row, 10, arena, &link.title) ||
	    !column_str(row, 11, arena, &link.note) || !column_str(row, 12, arena, &link.tags))
		return ERR_NOMEM;
	*ret = link;
	return 0;
}

/* The columns are KEY_COLUMNS. */
int sqlite_row_key(sqlite3_stmt *row, struct arena *arena, struct key_record *ret)
{
	struct key_record key = {
	    .id = (uint64_t)sqlite3_column_int64(row, 0),
	    .admin = sqlite3_column_int64(row, 3) != 0,
	    .created_ms = sqlite3_column_int64(row, 4),
	    .revoked_ms = sqlite3_column_int64(row, 5),
	    .creates_max = (uint64_t)sqlite3_column_int64(row, 6),
	    .redirects_max = (uint64_t)sqlite3_column_int64(row, 7),
	    .period_ms = (uint64_t)sqlite3_column_int64(row, 8),
	};
	const void *digest = sqlite3_column_blob(row, 2);
	if (!digest || sqlite3_column_bytes(row, 2) != KEY_DIGEST_BYTES)
		return ERR_CORRUPT;
	memcpy(key.digest, digest, KEY_DIGEST_BYTES);
	if (!column_str(row, 1, arena, &key.name))
		return ERR_NOMEM;
	*ret = key;
	return 0;
}

static int link_by_id(struct sqlite_conn *c, uint64_t id, struct arena *arena, int *ret_result,
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
	*ret_id = found ? (uint64_t)sqlite3_column_int64(q.stmt, 0) : 0;
	return rc;
}

int sqlite_link_find(struct sqlite_conn *c, struct link_ref ref, struct arena *arena, int *ret_result,
                     struct link_record *ret)
{
	struct link_record link;
	*ret_result = ERR_NOT_FOUND;
	if (id_is_valid(ref.id)) {
		int rc = link_by_id(c, ref.id, arena, ret_result, &link);
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
	rc = link_by_id(c, id, arena, ret_result, &link);
	if (*ret_result == ERR_NOT_FOUND)
		*ret_result = ERR_CORRUPT; /* a name of nothing */
	if (rc == SQLITE_OK && *ret_result == 0)
		*ret = link;
	return rc;
}

/* The link that an earlier use of the idempotency key made, or 0 in *ret_id. */
static int replay_find(struct sqlite_conn *c, const struct store_write *w, uint64_t *ret_id, bool *ret_same)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_REPLAY_GET);
	query_int(&q, (int64_t)w->link.owner);
	query_str(&q, w->idempotency_key);
	bool found;
	int rc = query_find(&q, &found);
	*ret_id = 0;
	if (!found || replay_is_dead(sqlite3_column_int64(q.stmt, 2), w->now_ms))
		return rc;
	*ret_id = (uint64_t)sqlite3_column_int64(q.stmt, 1);
	const void *fingerprint = sqlite3_column_blob(q.stmt, 0);
	*ret_same = fingerprint && sqlite3_column_bytes(q.stmt, 0) == FINGERPRINT_BYTES &&
	            memcmp(fingerprint, w->fingerprint, FINGERPRINT_BYTES) == 0;
	return rc;
}

static int replay_put(struct sqlite_conn *c, const struct store_write *w)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_REPLAY_PUT);
	query_int(&q, (int64_t)w->link.owner);
	query_str(&q, w->idempotency_key);
	query_blob(&q, w->fingerprint, FINGERPRINT_BYTES);
	query_int(&q, (int64_t)w->link.id);
	query_int(&q, w->now_ms);
	return query_run(&q);
}

int sqlite_replays_purge(struct sqlite_conn *c, const struct store_write *writes, size_t n)
{
	int64_t creates = 0, now_ms = 0;
	for (size_t i = 0; i < n; i++) {
		if (writes[i].kind == STORE_LINK_CREATE) {
			creates++;
			now_ms = writes[i].now_ms;
		}
	}
	if (creates == 0)
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_REPLAY_PURGE);
	query_int(&q, now_ms - REPLAY_MS);
	query_int(&q, REPLAY_PURGE_PER_CREATE * creates);
	return query_run(&q);
}

static int alias_delete(struct sqlite_conn *c, struct str name)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ALIAS_DELETE);
	query_str(&q, name);
	return query_run(&q);
}

struct tag_run {
	struct sqlite_conn *c;
	unsigned sql;
	uint64_t link_id;
};

static int tag_run(void *ctx, struct str name)
{
	const struct tag_run *run = ctx;
	CLEANUP(query_end) struct query q = query_begin(run->c, run->sql);
	query_str(&q, name);
	query_int(&q, (int64_t)run->link_id);
	return query_run(&q);
}

static int tags_run(struct sqlite_conn *c, unsigned sql, uint64_t link_id, struct str tags)
{
	struct tag_run run = {.c = c, .sql = sql, .link_id = link_id};
	int rc = tags_each(tags, tag_run, &run);
	return rc == ERR_NOMEM ? SQLITE_NOMEM : rc;
}

static int tags_change(struct sqlite_conn *c, uint64_t link_id, struct str from, struct str to)
{
	if (str_eq(from, to))
		return SQLITE_OK;
	int rc = tags_run(c, SQL_TAG_DROP, link_id, from);
	return rc == SQLITE_OK ? tags_run(c, SQL_TAG_ADD, link_id, to) : rc;
}

static int link_remove(struct sqlite_conn *c, const struct link_record *link)
{
	int rc = link->is_alias ? alias_delete(c, link->key) : SQLITE_OK;
	if (rc == SQLITE_OK)
		rc = tags_run(c, SQL_TAG_DROP, link->id, link->tags);
	if (rc != SQLITE_OK)
		return rc;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_DELETE);
	query_int(&q, (int64_t)link->id);
	return query_run(&q);
}

/* Does the link in row `id` hold the name? One that has ended is removed; an alias's row never goes by its
 * id. */
static int holder_check(struct sqlite_conn *c, const struct store_write *w, uint64_t id, bool is_alias,
                        bool *ret_holds)
{
	struct link_record link;
	int result;
	int rc = link_by_id(c, id, w->arena, &result, &link);
	*ret_holds = rc == SQLITE_OK && result != ERR_NOT_FOUND;
	if (rc != SQLITE_OK || result != 0)
		return rc;
	*ret_holds = link.is_alias == is_alias && !link_has_ended(&link, w->now_ms);
	return link.is_alias == is_alias && !*ret_holds ? link_remove(c, &link) : SQLITE_OK;
}

static int name_is_taken(struct sqlite_conn *c, const struct store_write *w, bool *ret)
{
	uint64_t id;
	int rc = alias_by_name(c, w->ref.key, &id);
	*ret = false;
	if (rc == SQLITE_OK && id != 0)
		rc = holder_check(c, w, id, true, ret);
	if (rc != SQLITE_OK || *ret || !w->link.is_alias || !id_is_valid(w->ref.id))
		return rc; /* a generated key's own row is looked at by the insert */
	return holder_check(c, w, w->ref.id, false, ret);
}

/* Does nothing when the id is taken. */
static int link_insert(struct sqlite_conn *c, const struct link_record *link, bool *ret_done)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_INSERT);
	query_int(&q, (int64_t)link->id);
	query_str(&q, link->is_alias ? link->key : STR_NULL);
	query_int(&q, (int64_t)link->owner);
	query_str(&q, link->user_name);
	query_str(&q, link->url);
	query_int(&q, link->created_ms);
	query_int(&q, link->updated_ms);
	query_int(&q, link->expires_ms);
	query_int(&q, link->redirect_status);
	query_int(&q, link->enabled);
	query_str(&q, link->title);
	query_str(&q, link->note);
	query_str(&q, link->tags);
	int rc = query_run(&q);
	*ret_done = rc == SQLITE_OK && sqlite3_changes(c->db) == 1;
	return rc;
}

static int alias_insert(struct sqlite_conn *c, struct str name, uint64_t id)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ALIAS_INSERT);
	query_str(&q, name);
	query_int(&q, (int64_t)id);
	return query_run(&q);
}

static int link_create_new(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	bool taken, done;
	int rc = name_is_taken(c, w, &taken);
	out->result = ERR_CONFLICT;
	if (rc != SQLITE_OK || taken)
		return rc;
	rc = link_insert(c, &w->link, &done);
	if (rc != SQLITE_OK || !done)
		return rc;
	out->result = 0;
	if (w->link.is_alias)
		rc = alias_insert(c, w->link.key, w->link.id);
	if (rc == SQLITE_OK)
		rc = tags_run(c, SQL_TAG_ADD, w->link.id, w->link.tags);
	if (rc == SQLITE_OK && w->idempotency_key.ptr)
		rc = replay_put(c, w);
	return rc;
}

static int link_create(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	create_check(w);
	if (w->idempotency_key.ptr) {
		uint64_t id;
		bool same = false;
		int rc = replay_find(c, w, &id, &same);
		if (rc != SQLITE_OK)
			return rc;
		if (id != 0 && !same) {
			out->result = ERR_INVALID;
			return SQLITE_OK;
		}
		if (id != 0) {
			out->replayed = true;
			out->back = BACK_LINK;
			return link_by_id(c, id, w->arena, &out->result, &out->link);
		}
	}
	if (w->replay_only) {
		out->result = ERR_LIMIT;
		return SQLITE_OK;
	}
	return link_create_new(c, w, out);
}

/* The link that the change is about goes to out->link, unless out->result says why not. */
static int target_find(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	int rc = sqlite_link_find(c, w->ref, w->arena, &out->result, &out->link);
	if (rc == SQLITE_OK && out->result == 0)
		out->result = target_check(w, &out->link);
	out->back = BACK_LINK;
	return rc;
}

static int link_update(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	int rc = target_find(c, w, out);
	if (rc != SQLITE_OK || out->result != 0)
		return rc;
	struct str tags = out->link.tags;
	fields_take(w, &out->link);
	out->result = link_own(w->arena, &out->link);
	if (out->result != 0)
		return SQLITE_OK;
	rc = tags_change(c, out->link.id, tags, out->link.tags);
	if (rc != SQLITE_OK)
		return rc;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_UPDATE);
	query_str(&q, out->link.url);
	query_int(&q, out->link.updated_ms);
	query_int(&q, out->link.expires_ms);
	query_int(&q, out->link.redirect_status);
	query_int(&q, out->link.enabled);
	query_str(&q, out->link.title);
	query_str(&q, out->link.note);
	query_str(&q, out->link.tags);
	query_int(&q, (int64_t)out->link.id);
	return query_run(&q);
}

static int link_delete(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	int rc = target_find(c, w, out);
	if (rc != SQLITE_OK || out->result != 0)
		return rc;
	return link_remove(c, &out->link);
}

static int digest_exists(struct sqlite_conn *c, const uint8_t *digest, bool *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_BY_DIGEST);
	query_blob(&q, digest, KEY_DIGEST_BYTES);
	return query_find(&q, ret);
}

static int key_create(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	bool taken;
	int rc = digest_exists(c, w->key.digest, &taken);
	out->result = ERR_CONFLICT;
	if (rc != SQLITE_OK || taken)
		return rc;
	out->result = 0;
	out->back = BACK_KEY;
	out->key = w->key;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_INSERT);
	query_str(&q, w->key.name);
	query_blob(&q, w->key.digest, KEY_DIGEST_BYTES);
	query_int(&q, w->key.admin);
	query_int(&q, w->key.created_ms);
	query_int(&q, w->key.revoked_ms);
	query_int(&q, (int64_t)w->key.creates_max);
	query_int(&q, (int64_t)w->key.redirects_max);
	query_int(&q, (int64_t)w->key.period_ms);
	rc = query_run(&q);
	out->key.id = (uint64_t)sqlite3_last_insert_rowid(c->db);
	return rc;
}

static int key_find(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_BY_ID);
	query_int(&q, (int64_t)w->key.id);
	bool found;
	int rc = query_find(&q, &found);
	out->result = found ? sqlite_row_key(q.stmt, w->arena, &out->key) : ERR_NOT_FOUND;
	return rc;
}

static int admins_in_force(struct sqlite_conn *c, int64_t *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ADMINS_IN_FORCE);
	bool found;
	int rc = query_find(&q, &found);
	*ret = found ? sqlite3_column_int64(q.stmt, 0) : 0;
	return rc;
}

static int key_revoke(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	int rc = key_find(c, w, out);
	out->back = BACK_KEY;
	if (rc != SQLITE_OK || out->result != 0 || out->key.revoked_ms != 0)
		return rc;
	if (out->key.admin) {
		int64_t admins;
		rc = admins_in_force(c, &admins);
		if (rc != SQLITE_OK || admins == 1) {
			out->result = ERR_CONFLICT;
			return rc;
		}
	}
	out->key.revoked_ms = w->now_ms;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_KEY_REVOKE);
	query_int(&q, w->now_ms);
	query_int(&q, (int64_t)w->key.id);
	return query_run(&q);
}

int sqlite_change(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out)
{
	switch (w->kind) {
	case STORE_LINK_CREATE: return link_create(c, w, out);
	case STORE_LINK_UPDATE: return link_update(c, w, out);
	case STORE_LINK_DELETE:
	case STORE_LINK_REAP: return link_delete(c, w, out);
	case STORE_KEY_CREATE: return key_create(c, w, out);
	case STORE_KEY_REVOKE: return key_revoke(c, w, out);
	}
	ASSERT(false);
}
