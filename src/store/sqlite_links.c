/* Fetches links for the rules (decide.h), and writes what they decided. */
#include "store/sqlite_store.h"
#include "store/tags.h"

/* --- fetching --- */

/* The row with that id, in the view's arena; NULL: not found, or damaged. */
static int link_fetch(struct sqlite_conn *c, struct view *v, uint64_t id, const struct link_record **ret,
                      bool *ret_damaged)
{
	struct link_record *link = arena_alloc(&v->arena, sizeof(*link));
	int result;
	*ret = NULL;
	if (!link)
		return SQLITE_NOMEM;
	int rc = sqlite_link_by_id(c, id, &v->arena, &result, link);
	*ret_damaged = rc == SQLITE_OK && result == ERR_CORRUPT;
	if (rc != SQLITE_OK || result == ERR_NOT_FOUND || *ret_damaged)
		return rc;
	*ret = link;
	return sqlite_of_error(result);
}

/* The holder of an alias, and its quarantine. */
static int name_fetch(struct sqlite_conn *c, struct name_row *row, uint64_t *ret_alias)
{
	CLEANUP(query_end) struct query q = QUERY_VALUES(c, SQL_NAME_STATE, Q_STR(row->name));
	bool found;
	int rc = query_find(&q, &found);
	*ret_alias = 0;
	if (!found)
		return rc;
	*ret_alias = (uint64_t)sqlite3_column_int64(q.stmt, 0); /* NULL reads as 0 */
	row->before.quarantined = sqlite3_column_type(q.stmt, 1) != SQLITE_NULL;
	row->before.quarantine_owner = (uint64_t)sqlite3_column_int64(q.stmt, 1);
	row->before.quarantined_until_ms = sqlite3_column_int64(q.stmt, 2);
	return rc;
}

/* A generated key is found by its id, an alias only by its name. */
static int holder_fetch(struct sqlite_conn *c, struct view *v, struct name_row *row)
{
	uint64_t alias;
	const struct link_record *link;
	int rc = name_fetch(c, row, &alias);
	if (rc == SQLITE_OK && alias != 0) {
		rc = link_fetch(c, v, alias, &row->before.link, &row->before.is_damaged);
		row->before.is_damaged |= rc == SQLITE_OK && !row->before.link; /* an alias without a link */
		return rc;
	}
	if (rc != SQLITE_OK || row->is_generated || row->id == 0)
		return rc;
	rc = link_fetch(c, v, row->id, &link, &row->before.is_damaged);
	if (rc == SQLITE_OK && link && !link->is_alias) {
		row->before.link = link;
		row->before.key_id = link->id;
	}
	return rc;
}

static int permission_fetch(struct sqlite_conn *c, struct permission_row *row)
{
	struct name_state *name = &row->name->before;
	int64_t count = 0;
	bool found;
	if (!name->link)
		return SQLITE_OK;
	int rc = sqlite_permission_find(c, name->link->id, row->user, &row->before)
	             ?: QUERY_FIND(c, SQL_PERMITTED_GET, &found, &count, 1, Q_INT(name->link->id));
	name->permitted = (uint64_t)count;
	return rc;
}

static int replay_fetch(struct sqlite_conn *c, struct view *v, struct replay_row *row)
{
	CLEANUP(query_end)
	struct query q = QUERY_VALUES(c, SQL_REPLAY_GET, Q_INT(row->caller), Q_STR(row->key));
	int rc = query_find(&q, &row->before.is_there);
	if (!row->before.is_there)
		return rc;
	row->before.fingerprint = str_n(sqlite3_column_blob(q.stmt, 0),
	                                (size_t)sqlite3_column_bytes(q.stmt, 0));
	if (!str_own(&v->arena, &row->before.fingerprint))
		return SQLITE_NOMEM;
	row->before.link_id = (uint64_t)sqlite3_column_int64(q.stmt, 1);
	row->before.made_ms = sqlite3_column_int64(q.stmt, 2);
	return link_fetch(c, v, row->before.link_id, &row->link, &row->is_damaged);
}

int sqlite_fetch_links(struct sqlite_conn *c, struct view *v)
{
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < v->name_count; i++)
		rc = holder_fetch(c, v, &v->names[i]);
	for (size_t i = 0; rc == SQLITE_OK && i < v->permission_count; i++)
		rc = permission_fetch(c, &v->permissions[i]);
	for (size_t i = 0; rc == SQLITE_OK && i < v->replay_count; i++)
		rc = replay_fetch(c, v, &v->replays[i]);
	return rc;
}

/* --- writing --- */

struct tag_call {
	struct sqlite_conn *c;
	unsigned sql;
	uint64_t link_id;
};

static int tag_write(void *ctx, struct str name)
{
	const struct tag_call *call = ctx;
	return QUERY_RUN(call->c, call->sql, Q_STR(name), Q_INT(call->link_id));
}

static int tags_run(struct sqlite_conn *c, unsigned sql, uint64_t link_id, struct str tags)
{
	struct tag_call call = {.c = c, .sql = sql, .link_id = link_id};
	int rc = tags_each(tags, tag_write, &call);
	return rc == ERR_NOMEM ? SQLITE_NOMEM : rc;
}

static int link_remove(struct sqlite_conn *c, const struct link_record *link)
{
	int rc = link->is_alias ? QUERY_RUN(c, SQL_ALIAS_DELETE, Q_STR(link->key)) : SQLITE_OK;
	return rc
	           ?: tags_run(c, SQL_TAG_DROP, link->id, link->tags)
	           ?: QUERY_RUN(c, SQL_PERMISSIONS_DROP, Q_INT(link->id))
	           ?: QUERY_RUN(c, SQL_LINK_DELETE, Q_INT(link->id));
}

/* Does nothing if the id is taken. */
static int link_insert(struct sqlite_conn *c, const struct link_record *link, bool *ret_done)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_INSERT);
	query_int(&q, link_expired_ms(link));
	query_str(&q, link->is_alias ? link->key : STR_NULL);
	sqlite_bind_record(&q, &link_fields, FIELDS_ALL, link);
	int rc = query_run(&q);
	*ret_done = rc == SQLITE_OK && sqlite3_changes(c->db) == 1;
	return rc;
}

static int link_make(struct sqlite_conn *c, struct name_row *row, bool *ret_lost)
{
	const struct link_record *link = row->now.link;
	bool done;
	int rc = link_insert(c, link, &done);
	if (rc != SQLITE_OK || !done) {
		row->is_lost = *ret_lost = true;
		return rc;
	}
	if (link->is_alias)
		rc = QUERY_RUN(c, SQL_ALIAS_INSERT, Q_STR(link->key), Q_INT(link->id));
	return rc ?: tags_run(c, SQL_TAG_ADD, link->id, link->tags);
}

static int link_update(struct sqlite_conn *c, const struct link_record *before, const struct link_record *now)
{
	int rc = SQLITE_OK;
	if (!str_eq(before->tags, now->tags))
		rc = tags_run(c, SQL_TAG_DROP, now->id, before->tags)
		         ?: tags_run(c, SQL_TAG_ADD, now->id, now->tags);
	if (rc != SQLITE_OK)
		return rc;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_UPDATE);
	query_int(&q, link_expired_ms(now));
	sqlite_bind_record(&q, &link_fields, FIELDS_CHANGING, now);
	query_int(&q, (int64_t)now->id);
	return query_run(&q);
}

static int name_write(struct sqlite_conn *c, struct name_row *row, bool *ret_lost)
{
	const struct name_state *before = &row->before, *now = &row->now;
	int rc = name_loses_link(row) ? link_remove(c, before->link) : SQLITE_OK;
	if (rc == SQLITE_OK && name_gains_link(row))
		rc = link_make(c, row, ret_lost);
	if (rc == SQLITE_OK && name_changes_link(row))
		rc = link_update(c, before->link, now->link);
	if (rc == SQLITE_OK && name_enters_quarantine(row))
		rc = QUERY_RUN(c, SQL_QUARANTINE_PUT, Q_STR(row->name), Q_INT(now->quarantine_owner),
		               Q_INT(now->quarantined_until_ms));
	else if (rc == SQLITE_OK && !now->quarantined && before->quarantined)
		rc = QUERY_RUN(c, SQL_QUARANTINE_DROP, Q_STR(row->name));
	return rc;
}

static int permission_write(struct sqlite_conn *c, const struct permission_row *row)
{
	const struct link_record *link = row->name->now.link;
	if (!link || row->now == (row->before && name_keeps_permissions(row->name)))
		return SQLITE_OK;
	return QUERY_RUN(c, row->now ? SQL_PERMISSION_ADD : SQL_PERMISSION_DROP, Q_INT(link->id),
	                 Q_INT(row->user))
	           ?: QUERY_RUN(c, SQL_PERMITTED_SET, Q_INT(link->id), Q_INT(row->name->now.permitted));
}

static int replay_write(struct sqlite_conn *c, const struct replay_row *row)
{
	if (!row->name)
		return SQLITE_OK; /* it created nothing */
	const struct replay_state *now = &row->now;
	return QUERY_RUN(c, SQL_REPLAY_PUT, Q_INT(row->caller), Q_STR(row->key),
	                 Q_BLOB(now->fingerprint.ptr, now->fingerprint.len), Q_INT(now->link_id),
	                 Q_INT(now->made_ms));
}

int sqlite_write_links(struct sqlite_conn *c, struct view *v, bool *ret_lost)
{
	struct str entries;
	int rc = SQLITE_OK;
	*ret_lost = false;
	for (size_t i = 0; rc == SQLITE_OK && !*ret_lost && i < v->name_count; i++)
		rc = name_write(c, &v->names[i], ret_lost);
	if (*ret_lost)
		return rc;
	for (size_t i = 0; rc == SQLITE_OK && i < v->permission_count; i++)
		rc = permission_write(c, &v->permissions[i]);
	for (size_t i = 0; rc == SQLITE_OK && i < v->replay_count; i++)
		rc = replay_write(c, &v->replays[i]);
	if (rc == SQLITE_OK && !view_feed(v, true, &v->arena, &entries))
		rc = SQLITE_NOMEM;
	return rc
	           ?: sqlite_feed_add(c, SQL_LINK_FEED, v->now_ms, entries)
	           ?: sqlite_purge(c, SQL_REPLAY_PURGE, &v->replays_purge)
	           ?: sqlite_purge(c, SQL_QUARANTINE_PURGE, &v->quarantine_purge);
}
