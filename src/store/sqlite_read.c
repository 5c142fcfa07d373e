#include "store/sqlite_read.h"

#include "store/rules.h"
#include "store/sqlite_rows.h"

/* --- links --- */

/* The link, and whether the user is on its list; only a private one costs the second question. */
static int lookup_one(struct sqlite_conn *c, struct store_lookup *read)
{
	int rc = sqlite_link_find(c, read->ref, read->arena, &read->result, &read->link);
	read->permitted = false;
	if (rc != SQLITE_OK || read->result != 0 || !read->link.is_private || read->user == 0)
		return rc;
	return sqlite_permission_find(c, read->link.id, read->user, &read->permitted);
}

static int lookup_each(struct sqlite_conn *c, struct store_lookup *reads, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = lookup_one(c, &reads[i]);
		if (sqlite_error(rc) == ERR_CORRUPT)
			reads[i].result = ERR_CORRUPT; /* its page is bad; the others' may be good */
		else if (rc != SQLITE_OK)
			return sqlite_error(rc);
	}
	return 0;
}

/* Several together in one snapshot: the locks that a read takes are then taken once for all. */
int sqlite_read_links(struct sqlite_conn *c, struct store_lookup *reads, size_t n)
{
	if (n == 1) {
		int r = lookup_each(c, reads, n);
		if (r != 0 || reads[0].result != ERR_CORRUPT)
			return r;
		/* A link may have gone between its name and its row: look again, at one moment. */
	}
	int rc = sqlite_conn_run(c, SQL_BEGIN_READ);
	if (rc != SQLITE_OK)
		return sqlite_error(rc);
	int r = lookup_each(c, reads, n);
	sqlite_conn_run(c, SQL_ROLLBACK);
	return r;
}

static int list_collect(struct query *q, struct store_list *page)
{
	struct link_record *links = NULL;
	size_t count = 0, cap = 0, bytes = 0;
	struct str next = STR_NULL;
	int rc;
	ASSERT(page->limit > 0);
	while ((rc = query_step(q)) == SQLITE_ROW) {
		if (page_is_full(page, count, bytes)) { /* and here is one row more: there is another page */
			next = cursor_format(page->arena, links[count - 1].id);
			if (!next.ptr)
				return ERR_NOMEM;
			break;
		}
		links = array_room(page->arena, links, count, &cap, sizeof(*links));
		int r = links ? sqlite_row_link(q->stmt, page->arena, &links[count]) : ERR_NOMEM;
		if (r != 0)
			return r;
		bytes += link_bytes(&links[count]);
		count++;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return sqlite_error(rc);
	page->links = links;
	page->count = count;
	page->next = next;
	return 0;
}

int sqlite_read_list(struct sqlite_conn *c, struct store_list *page, uint64_t id_max)
{
	CLEANUP(query_end)
	struct query q = query_begin(c, page->owner ? SQL_LINKS_OF_OWNER : SQL_LINKS_OF_ALL);
	query_int(&q, (int64_t)id_max);
	query_int(&q, (int64_t)MIN(page->limit, INT32_MAX) + 1);
	if (page->owner)
		query_int(&q, (int64_t)page->owner);
	return list_collect(&q, page);
}

/* There is room for as many rows as the statement gives at most. */
static int ids_collect(struct query *q, uint64_t *ret_ids, size_t *ret_count)
{
	size_t count = 0;
	int rc;
	while ((rc = query_step(q)) == SQLITE_ROW)
		ret_ids[count++] = (uint64_t)sqlite3_column_int64(q->stmt, 0);
	if (rc != SQLITE_DONE)
		return sqlite_error(rc);
	*ret_count = count;
	return 0;
}

int sqlite_read_tagged(struct sqlite_conn *c, struct str tag, size_t max, uint64_t *ret_ids,
                       size_t *ret_count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_TAGGED);
	query_str(&q, tag);
	query_int(&q, (int64_t)MIN(max, INT64_MAX));
	return ids_collect(&q, ret_ids, ret_count);
}

int sqlite_read_permitted(struct sqlite_conn *c, uint64_t link, struct arena *arena, uint64_t **ret,
                          size_t *ret_count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_PERMISSIONS);
	query_int(&q, (int64_t)link);
	uint64_t *users = NULL;
	size_t count = 0, cap = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		users = array_room(arena, users, count, &cap, sizeof(*users));
		if (!users)
			return ERR_NOMEM;
		users[count++] = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	}
	if (rc != SQLITE_DONE)
		return sqlite_error(rc);
	*ret = users;
	*ret_count = count;
	return 0;
}

static int over_ids(struct sqlite_conn *c, struct store_over *over)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINKS_OVER);
	query_int(&q, over->now_ms);
	query_int(&q, (int64_t)MIN(over->max, INT64_MAX));
	return ids_collect(&q, over->ids, &over->count);
}

static int over_count(struct sqlite_conn *c, int64_t now_ms, uint64_t *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_LINKS_OVER_COUNT);
	query_int(&q, now_ms);
	bool found;
	int rc = query_find(&q, &found);
	if (found)
		*ret = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	return sqlite_error(rc);
}

static int over_both(struct sqlite_conn *c, struct store_over *over)
{
	uint64_t total = 0;
	int r = over_count(c, over->now_ms, &total);
	if (r == 0)
		r = over_ids(c, over);
	if (r == 0)
		over->total = total;
	return r;
}

int sqlite_read_over(struct sqlite_conn *c, struct store_over *over)
{
	if (!over->count_all)
		return over_ids(c, over);
	int rc = sqlite_conn_run(c, SQL_BEGIN_READ); /* one snapshot for both */
	if (rc != SQLITE_OK)
		return sqlite_error(rc);
	int r = over_both(c, over);
	sqlite_conn_run(c, SQL_ROLLBACK);
	return r;
}

/* --- accounts --- */

static int users_collect(struct query *q, struct store_users *page)
{
	struct user_record *users = NULL;
	size_t count = 0, cap = 0;
	int rc;
	while ((rc = query_step(q)) == SQLITE_ROW && count < page->limit) {
		users = array_room(page->arena, users, count, &cap, sizeof(*users));
		int r = users ? sqlite_row_user(q->stmt, page->arena, &users[count]) : ERR_NOMEM;
		if (r != 0)
			return r;
		count++;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return sqlite_error(rc);
	page->users = users;
	page->count = count;
	page->more = rc == SQLITE_ROW;
	return 0;
}

int sqlite_read_users(struct sqlite_conn *c, struct store_users *page)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_USERS);
	query_int(&q, (int64_t)MIN(page->after, INT64_MAX));
	query_int(&q, (int64_t)MIN(page->limit, INT32_MAX) + 1);
	return users_collect(&q, page);
}

static int keys_collect(struct query *q, struct store_keys *page)
{
	struct key_record *keys = NULL;
	size_t count = 0, cap = 0;
	int rc;
	while ((rc = query_step(q)) == SQLITE_ROW && count < page->limit) {
		keys = array_room(page->arena, keys, count, &cap, sizeof(*keys));
		int r = keys ? sqlite_row_key(q->stmt, page->arena, &keys[count]) : ERR_NOMEM;
		if (r != 0)
			return r;
		count++;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return sqlite_error(rc);
	page->keys = keys;
	page->count = count;
	page->more = rc == SQLITE_ROW;
	return 0;
}

int sqlite_read_keys(struct sqlite_conn *c, struct store_keys *page)
{
	CLEANUP(query_end) struct query q = query_begin(c, page->user ? SQL_KEYS_OF_USER : SQL_KEYS_OF_ALL);
	query_int(&q, (int64_t)MIN(page->after, INT64_MAX));
	query_int(&q, (int64_t)MIN(page->limit, INT32_MAX) + 1);
	if (page->user)
		query_int(&q, (int64_t)MIN(page->user, INT64_MAX));
	return keys_collect(&q, page);
}

static int account_find(struct sqlite_conn *c, struct store_account *read, struct arena *arena)
{
	static const unsigned statements[] = {
	    [BY_KEY] = SQL_KEY_BY_ID, [BY_DIGEST] = SQL_KEY_BY_DIGEST, [BY_SESSION] = SQL_SESSION_BY_ID};
	if (read->by == BY_USER || read->by == BY_EMAIL)
		return sqlite_user_find(c, read->id, read->by == BY_EMAIL ? read->text : STR_NULL, arena,
		                        &read->result, &read->user);
	CLEANUP(query_end) struct query q = query_begin(c, statements[read->by]);
	if (read->by == BY_KEY)
		query_int(&q, (int64_t)MIN(read->id, INT64_MAX));
	else
		query_blob(&q, read->text.ptr, read->text.len);
	bool found;
	int rc = query_find(&q, &found);
	read->result = found ? 0 : ERR_NOT_FOUND;
	if (found && read->by != BY_SESSION)
		read->result = sqlite_row_key(q.stmt, arena, &read->key);
	if (!found || read->by != BY_SESSION)
		return rc;
	read->session = (struct session_record){
	    .user = (uint64_t)sqlite3_column_int64(q.stmt, 0),
	    .generation = (uint64_t)sqlite3_column_int64(q.stmt, 1),
	    .created_ms = sqlite3_column_int64(q.stmt, 2),
	    .expires_ms = sqlite3_column_int64(q.stmt, 3),
	};
	memcpy(read->session.id, read->text.ptr, MIN(read->text.len, SESSION_ID_BYTES));
	return rc;
}

int sqlite_read_accounts(struct sqlite_conn *c, struct store_account *reads, size_t n, struct arena *arena)
{
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		rc = account_find(c, &reads[i], arena);
	return sqlite_error(rc);
}

/* --- the feed --- */

static int feed_ends(struct sqlite_conn *c, unsigned sql, uint64_t *ret_first, uint64_t *ret_last)
{
	CLEANUP(query_end) struct query q = query_begin(c, sql);
	bool found;
	int rc = query_find(&q, &found);
	*ret_first = (uint64_t)sqlite3_column_int64(q.stmt, 0); /* NULL reads as 0 */
	*ret_last = (uint64_t)sqlite3_column_int64(q.stmt, 1);
	return sqlite_error(rc);
}

/* One process writes, and its transactions are numbered in the order of their commits: all are settled, and a
 * number that is missing was pruned. Rows go by their time, and clocks may be set back. */
int sqlite_read_feed(struct sqlite_conn *c, bool accounts, struct feed_page *page)
{
	uint64_t first, last;
	int r = feed_ends(c, accounts ? SQL_ACCOUNT_FEED_ENDS : SQL_LINK_FEED_ENDS, &first, &last);
	page->entries = NULL;
	page->count = 0;
	page->more = false;
	page->lost = r == 0 && !page->from_end && first > page->cursor.sequence + 1;
	if (r == 0 && page->from_end)
		page->cursor = (struct feed_cursor){.sequence = last};
	if (r != 0 || page->from_end)
		return r;
	CLEANUP(query_end) struct query q = query_begin(c, accounts ? SQL_ACCOUNT_FEED : SQL_LINK_FEED);
	query_int(&q, (int64_t)page->cursor.sequence);
	query_int(&q, (int64_t)page->max);
	size_t rows = 0, room = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		struct str row = str_n(sqlite3_column_blob(q.stmt, 2),
		                       (size_t)sqlite3_column_bytes(q.stmt, 2));
		r = feed_page_add(page, &room, row, sqlite3_column_int64(q.stmt, 1));
		if (r != 0)
			return r;
		uint64_t sequence = (uint64_t)sqlite3_column_int64(q.stmt, 0);
		page->lost |= sequence != page->cursor.sequence + 1;
		page->cursor.sequence = sequence;
		rows++;
	}
	page->more = rows == page->max;
	return rc == SQLITE_DONE ? 0 : sqlite_error(rc);
}
