/* Changes of links in a link file: their names, tags and lists of users go with them. */
#include "store/rules.h"
#include "store/sqlite_change.h"
#include "store/sqlite_rows.h"
#include "store/tags.h"

/* --- idempotency keys --- */

/* The link that an earlier use of the idempotency key made, or 0 in *ret_id. */
static int replay_find(struct sqlite_conn *c, const struct store_write *w, uint64_t *ret_id, bool *ret_same)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_REPLAY_GET);
	query_int(&q, (int64_t)w->idempotency_owner);
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
	query_int(&q, (int64_t)w->idempotency_owner);
	query_str(&q, w->idempotency_key);
	query_blob(&q, w->fingerprint, FINGERPRINT_BYTES);
	query_int(&q, (int64_t)w->link.id);
	query_int(&q, w->now_ms);
	return query_run(&q);
}

/* --- tags and names --- */

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

static int alias_insert(struct sqlite_conn *c, struct str name, uint64_t id)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ALIAS_INSERT);
	query_str(&q, name);
	query_int(&q, (int64_t)id);
	return query_run(&q);
}

/* A name that is to be had by a CREATE. */
struct name {
	struct link_record holder; /* what has it and yields; id 0: nothing */
	bool rests;
	bool taken;
};

static int name_ask(struct sqlite_conn *c, const struct store_write *w, struct name *name,
                    uint64_t *ret_alias)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_NAME_STATE);
	query_str(&q, w->ref.key);
	bool found;
	int rc = query_find(&q, &found);
	*ret_alias = 0;
	if (!found)
		return rc;
	*ret_alias = (uint64_t)sqlite3_column_int64(q.stmt, 0); /* NULL reads as 0 */
	name->rests = sqlite3_column_type(q.stmt, 1) != SQLITE_NULL;
	name->taken = name->rests && !rest_allows((uint64_t)sqlite3_column_int64(q.stmt, 1),
	                                          sqlite3_column_int64(q.stmt, 2), w);
	return rc;
}

/* The link in row `id` has the name as its alias. */
static int holder_ask(struct sqlite_conn *c, const struct store_write *w, uint64_t id, struct name *name)
{
	struct link_record link;
	int result;
	int rc = sqlite_link_by_id(c, id, w->arena, &result, &link);
	if (rc != SQLITE_OK || result == ERR_NOT_FOUND)
		return rc;
	name->taken = result != 0 || !holder_yields(&link, w);
	if (!name->taken)
		name->holder = link;
	return rc;
}

/* Was the key that the name reads like given out? An alias's row never goes by its id. */
static int given_ask(struct sqlite_conn *c, const struct store_write *w, bool *ret)
{
	struct link_record link;
	int64_t next;
	int result;
	int rc = sqlite_link_by_id(c, w->ref.id, w->arena, &result, &link);
	*ret = result != 0 || !link.is_alias;
	if (rc != SQLITE_OK || result != ERR_NOT_FOUND)
		return rc;
	rc = sqlite_counter_next(c, STORE_LINK_COUNTER, &next);
	*ret = key_is_spent(w, (uint64_t)next);
	return rc;
}

static int name_find(struct sqlite_conn *c, const struct store_write *w, struct name *name)
{
	uint64_t alias;
	int rc = name_ask(c, w, name, &alias);
	if (rc == SQLITE_OK && !name->taken && alias != 0)
		rc = holder_ask(c, w, alias, name);
	if (rc == SQLITE_OK && !name->taken && alias_decodes(w))
		rc = given_ask(c, w, &name->taken);
	return rc; /* a generated key's own row is looked at by the insert */
}

static int rest_put(struct sqlite_conn *c, const struct link_record *link, int64_t until_ms)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_REST_PUT);
	query_str(&q, link->key);
	query_int(&q, (int64_t)link->owner);
	query_int(&q, until_ms);
	return query_run(&q);
}

static int rest_drop(struct sqlite_conn *c, struct str name)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_REST_DROP);
	query_str(&q, name);
	return query_run(&q);
}

/* --- links --- */

/* A statement whose only parameter is the link's id. */
static int link_run(struct sqlite_conn *c, unsigned sql, uint64_t id)
{
	CLEANUP(query_end) struct query q = query_begin(c, sql);
	query_int(&q, (int64_t)id);
	return query_run(&q);
}

static int link_remove(struct sqlite_conn *c, const struct link_record *link)
{
	int rc = link->is_alias ? alias_delete(c, link->key) : SQLITE_OK;
	if (rc == SQLITE_OK)
		rc = tags_run(c, SQL_TAG_DROP, link->id, link->tags);
	if (rc == SQLITE_OK)
		rc = link_run(c, SQL_PERMISSIONS_DROP, link->id);
	return rc == SQLITE_OK ? link_run(c, SQL_LINK_DELETE, link->id) : rc;
}

/* Does nothing when the id is taken. */
static int link_insert(struct sqlite_conn *c, const struct link_record *link, bool *ret_done)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_INSERT);
	query_int(&q, link_over_ms(link));
	query_str(&q, link->is_alias ? link->key : STR_NULL);
	sqlite_bind_record(&q, &link_fields, FIELDS_ALL, link);
	int rc = query_run(&q);
	*ret_done = rc == SQLITE_OK && sqlite3_changes(c->db) == 1;
	return rc;
}

/* Clears the name of what had it. */
static int name_clear(struct sqlite_conn *c, const struct store_write *w, const struct name *name)
{
	int rc = name->rests ? rest_drop(c, w->ref.key) : SQLITE_OK;
	return rc == SQLITE_OK && name->holder.id != 0 ? link_remove(c, &name->holder) : rc;
}

static int link_create_new(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	struct name name = {.taken = false};
	bool done;
	int rc = name_find(c, w, &name);
	out->result = ERR_CONFLICT;
	if (rc != SQLITE_OK || name.taken)
		return rc;
	rc = link_insert(c, &w->link, &done); /* first, as it may find the row taken */
	if (rc != SQLITE_OK || !done)
		return rc;
	out->result = 0;
	rc = name_clear(c, w, &name);
	if (rc == SQLITE_OK && w->link.is_alias)
		rc = alias_insert(c, w->link.key, w->link.id);
	if (rc == SQLITE_OK)
		rc = tags_run(c, SQL_TAG_ADD, w->link.id, w->link.tags);
	if (rc == SQLITE_OK && w->idempotency_key.ptr)
		rc = replay_put(c, w);
	return rc;
}

static int link_create(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
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
			return sqlite_link_by_id(c, id, w->arena, &out->result, &out->link);
		}
	}
	if (w->replay_only) {
		out->result = ERR_LIMIT;
		return SQLITE_OK;
	}
	return link_create_new(c, w, out);
}

/* The link that the change is about goes to out->link, unless out->result says why not. */
static int target_find(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	int rc = sqlite_link_find(c, w->ref, w->arena, &out->result, &out->link);
	if (rc == SQLITE_OK && out->result == 0)
		out->result = target_check(w, &out->link);
	out->back = BACK_LINK;
	return rc;
}

static int link_write(struct sqlite_conn *c, const struct link_record *link)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINK_UPDATE);
	query_int(&q, link_over_ms(link));
	sqlite_bind_record(&q, &link_fields, FIELDS_CHANGING, link);
	query_int(&q, (int64_t)link->id);
	return query_run(&q);
}

static int link_update(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
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
	return rc == SQLITE_OK ? link_write(c, &out->link) : rc;
}

static int link_delete(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	int rc = target_find(c, w, out);
	if (rc != SQLITE_OK || out->result != 0)
		return rc;
	return link_remove(c, &out->link);
}

static int link_reap(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	int rc = link_delete(c, w, out);
	if (rc != SQLITE_OK || out->result != 0 || !out->link.is_alias)
		return rc;
	int64_t until_ms = rest_until_ms(link_over_ms(&out->link), w->rest_ms);
	return until_ms > w->now_ms ? rest_put(c, &out->link, until_ms) : SQLITE_OK;
}

/* --- lists of users --- */

/* Counts one more on the link's list, unless it is full. */
static int list_room(struct sqlite_conn *c, uint64_t link, bool *ret_done)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_PERMISSION_ROOM);
	query_int(&q, (int64_t)link);
	query_int(&q, PERMITTED_MAX);
	int rc = query_run(&q);
	*ret_done = rc == SQLITE_OK && sqlite3_changes(c->db) == 1;
	return rc;
}

static int list_run(struct sqlite_conn *c, unsigned sql, uint64_t link, uint64_t user)
{
	CLEANUP(query_end) struct query q = query_begin(c, sql);
	query_int(&q, (int64_t)link);
	query_int(&q, (int64_t)user);
	return query_run(&q);
}

static int list_add(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	bool known, room;
	int rc = sqlite_user_exists(c, w->user.id, &known);
	out->result = ERR_INVALID;
	if (rc != SQLITE_OK || !known)
		return rc;
	rc = list_room(c, out->link.id, &room);
	out->result = room ? 0 : ERR_LIMIT;
	if (rc != SQLITE_OK || !room)
		return rc;
	return list_run(c, SQL_PERMISSION_ADD, out->link.id, w->user.id);
}

static int list_drop(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	int rc = list_run(c, SQL_PERMISSION_DROP, out->link.id, w->user.id);
	return rc == SQLITE_OK ? link_run(c, SQL_PERMISSION_DROPPED, out->link.id) : rc;
}

static int list_change(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	bool listed, wanted = w->kind == STORE_PERMIT;
	int rc = target_find(c, w, out);
	if (rc != SQLITE_OK || out->result != 0)
		return rc;
	rc = sqlite_permission_find(c, out->link.id, w->user.id, &listed);
	if (rc != SQLITE_OK || listed == wanted)
		return rc;
	return wanted ? list_add(c, w, out) : list_drop(c, w, out);
}

int sqlite_change_link(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	switch (w->kind) {
	case STORE_LINK_CREATE: return link_create(c, w, out);
	case STORE_LINK_UPDATE: return link_update(c, w, out);
	case STORE_LINK_DELETE: return link_delete(c, w, out);
	case STORE_LINK_REAP: return link_reap(c, w, out);
	case STORE_PERMIT:
	case STORE_FORBID: return list_change(c, w, out);
	default: ASSERT(false);
	}
}
