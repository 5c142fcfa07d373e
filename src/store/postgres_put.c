/* Statements that write many links at once, with their tags. */
#include "store/postgres_change.h"
#include "store/postgres_feed.h"
#include "store/tags.h"

#include <pthread.h>

/* Built once, from the rows of link_fields. */
static struct pg_statement links_insert = {"links_insert", NULL};
/* also writes the feed row */
static struct pg_statement links_insert_with_feed = {"links_insert_with_feed", NULL};
static struct pg_statement links_update = {"links_update", NULL};
static pthread_once_t texts_once = PTHREAD_ONCE_INIT;

enum { FIELDS_PARAM = 5 }; /* the parameter of the first field, the id */

/* "key, key_id, over_ms, is_alias", then the fields. */
static void rows_text(struct buf *b)
{
	buf_str(b, STR(" FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], "));
	fields_sql(b, &link_fields, FIELDS_ALL, &postgres_arrays, FIELDS_PARAM);
	buf_str(b, STR(") AS n (key, key_id, over_ms, is_alias, "));
	fields_sql(b, &link_fields, FIELDS_ALL, &postgres_names, 0);
	buf_str(b, STR(")"));
}

static void texts_make(void)
{
	struct buf insert = {0}, update = {0}, with_feed = {0};
	buf_str(&insert, STR("INSERT INTO link (permitted_count, key, key_id, over_ms, is_alias, "));
	fields_sql(&insert, &link_fields, FIELDS_ALL, &postgres_names, 0);
	buf_str(&insert, STR(") SELECT 0, n.key, n.key_id, n.over_ms, n.is_alias <> 0, "));
	fields_sql(&insert, &link_fields, FIELDS_ALL, &postgres_of_n, 0);
	rows_text(&insert);
	buf_str(&insert, STR(" ORDER BY n.key ON CONFLICT DO NOTHING RETURNING key"));
	int next = fields_sql(&with_feed, &link_fields, FIELDS_ALL, &postgres_arrays, FIELDS_PARAM);
	with_feed.len = 0;
	/* Usually all are inserted: then all entries are written at once, and no name is returned. */
	buf_printf(&with_feed,
	           "WITH made AS (%.*s), tally AS (SELECT count(*) AS n FROM made),"
	           " with_feed AS (INSERT INTO link_feed (xid, at_ms, entries)"
	           " SELECT " FEED_TRANSACTION
	           ", $%d, $%d::bytea || CASE WHEN n = $%d::bigint THEN $%d::bytea"
	           " ELSE coalesce((SELECT string_agg(substring($%d::bytea FROM f.at::int FOR f.len::int), ''"
	           " ORDER BY f.at) FROM made JOIN unnest($1::bytea[], $%d::bigint[], $%d::bigint[])"
	           " AS f (key, at, len) ON f.key = made.key), '') END"
	           " FROM tally WHERE n > 0 OR length($%d::bytea) > 0)"
	           " SELECT NULL::bytea FROM tally WHERE n = $%d"
	           " UNION ALL SELECT key FROM made, tally WHERE n < $%d",
	           STR_ARG(buf_view(&insert)), next, next + 1, next + 2, next + 3, next + 3, next + 4,
	           next + 5, next + 1, next + 2, next + 2);
	buf_char(&insert, '\0');
	buf_char(&with_feed, '\0');
	buf_str(&update, STR("UPDATE link SET over_ms = n.over_ms, "));
	fields_sql(&update, &link_fields, FIELDS_CHANGING, &postgres_set_of_n, 0);
	rows_text(&update);
	buf_str(&update, STR(" WHERE link.key = n.key AND link.key = ANY ($1)"));
	buf_char(&update, '\0');
	ASSERT(!insert.failed && !update.failed && !with_feed.failed);
	links_insert.sql = insert.data;
	links_insert_with_feed.sql = with_feed.data;
	links_update.sql = update.data;
}

/* --- link_columns --- */

struct link_columns {
	const void **links;
	int64_t *ints;
	struct str *strs;
	const struct link_row *rows;
	size_t n;
};

static void rows_bind(struct postgres_txn *t, struct pg_query *q, struct link_columns *c)
{
	for (size_t i = 0; i < c->n; i++) {
		c->links[i] = c->rows[i].link;
		c->strs[i] = c->rows[i].name;
		c->ints[i] = (int64_t)c->rows[i].key_id;
	}
	pg_blobs(q, c->strs, c->n);
	pg_ints(q, c->ints, c->n);
	for (size_t i = 0; i < c->n; i++)
		c->ints[i] = link_expired_ms(c->rows[i].link);
	pg_ints(q, c->ints, c->n);
	for (size_t i = 0; i < c->n; i++)
		c->ints[i] = c->rows[i].link->is_alias;
	pg_ints(q, c->ints, c->n);
	postgres_bind_records(q, &link_fields, FIELDS_ALL, c->links, c->n, &t->scratch);
}

static bool link_columns_init(struct postgres_txn *t, struct link_columns *c, const struct link_row *rows,
                              size_t n)
{
	pthread_once(&texts_once, texts_make);
	*c = (struct link_columns){.rows = rows, .n = n};
	c->links = arena_alloc(&t->scratch, n * sizeof(*c->links));
	c->ints = arena_alloc(&t->scratch, n * sizeof(*c->ints));
	c->strs = arena_alloc(&t->scratch, n * sizeof(*c->strs));
	if (c->links && c->ints && c->strs)
		return true;
	txn_no_memory(t);
	return false;
}

/* All entries concatenated, with the offset and length of each. */
static bool feed_bind(struct postgres_txn *t, struct pg_query *q, struct link_columns *c,
                      const struct link_feed *feed)
{
	size_t len = 0;
	int64_t *begins = arena_alloc(&t->scratch, c->n * sizeof(*begins));
	for (size_t i = 0; i < c->n; i++)
		len += c->rows[i].entry.len;
	char *whole = arena_alloc(&t->scratch, len), *at = whole;
	if (!begins || !whole)
		return false;
	for (size_t i = 0; i < c->n; i++) {
		begins[i] = at - whole + 1; /* SQL counts from 1 */
		c->ints[i] = (int64_t)c->rows[i].entry.len;
		at = mempcpy(at, c->rows[i].entry.ptr, c->rows[i].entry.len);
	}
	pg_int(q, feed->now_ms);
	pg_text(q, feed->entries);
	pg_int(q, (int64_t)c->n);
	pg_text(q, str_n(whole, len));
	pg_ints(q, begins, c->n);
	pg_ints(q, c->ints, c->n);
	return true;
}

void postgres_links_insert(struct postgres_txn *t, const struct link_row *rows, size_t n,
                           const struct link_feed *feed, struct pg_result *ret_names)
{
	struct link_columns c;
	if (n == 0 || !link_columns_init(t, &c, rows, n))
		return;
	struct pg_query q = txn_query(t, feed ? &links_insert_with_feed : &links_insert);
	rows_bind(t, &q, &c);
	q.failed |= feed && !feed_bind(t, &q, &c, feed);
	if (q.failed)
		txn_no_memory_note(t);
	txn_put_kept(t, &q, ret_names); /* ends the query, also a failed one */
}

void postgres_links_update(struct postgres_txn *t, const struct link_row *rows, size_t n)
{
	struct link_columns c;
	if (n == 0 || !link_columns_init(t, &c, rows, n))
		return;
	struct pg_query q = txn_query(t, &links_update);
	rows_bind(t, &q, &c);
	txn_put(t, &q);
}

/* --- deleting --- */

static const struct pg_statement tags_delete = {"tags_delete",
                                                "DELETE FROM tag WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement deletes[] = {
    {"links_delete", "DELETE FROM link WHERE key = ANY ($1::bytea[])"},
    {"permissions_delete", "DELETE FROM permission WHERE key = ANY ($1::bytea[])"},
    {"totals_delete", "DELETE FROM click_total WHERE key = ANY ($1::bytea[])"},
};

static void names_put(struct postgres_txn *t, const struct pg_statement *statement, const struct str *names,
                      size_t n)
{
	TXN_PUT(t, statement, PG_BLOBS(names, n));
}

void postgres_tags_delete(struct postgres_txn *t, const struct str *names, size_t n)
{
	if (n > 0)
		names_put(t, &tags_delete, names, n);
}

void postgres_links_delete(struct postgres_txn *t, const struct str *names, size_t n)
{
	postgres_tags_delete(t, names, n);
	for (size_t i = 0; n > 0 && i < ARRAY_LEN(deletes); i++)
		names_put(t, &deletes[i], names, n);
}

/* --- tags --- */

#define TAGS_INSERT                                                                   \
	"INSERT INTO tag (key, name, made_ms, id)"                                    \
	" SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])" \
	" AS n (key, name, made_ms, id)"
static const struct pg_statement tags_insert = {"tags_insert",
                                                TAGS_INSERT " ORDER BY 1, 2 ON CONFLICT DO NOTHING"};
/* For links whose insert may have been lost. */
static const struct pg_statement tags_insert_made = {
    "tags_insert_made", TAGS_INSERT " WHERE EXISTS (SELECT 1 FROM link l WHERE l.key = n.key AND l.id = n.id)"
                                    " ORDER BY 1, 2 ON CONFLICT DO NOTHING"};

struct tag_rows {
	struct arena *arena;
	const struct link_row *row; /* the link whose tags are read */
	size_t count, cap;          /* of each array */
	struct str *keys, *names;
	int64_t *made_ms, *ids;
};

static bool tag_rows_grow(struct tag_rows *to)
{
	size_t caps[4] = {to->cap, to->cap, to->cap, to->cap};
	to->keys = array_room(to->arena, to->keys, to->count, &caps[0], sizeof(*to->keys));
	to->names = array_room(to->arena, to->names, to->count, &caps[1], sizeof(*to->names));
	to->made_ms = array_room(to->arena, to->made_ms, to->count, &caps[2], sizeof(*to->made_ms));
	to->ids = array_room(to->arena, to->ids, to->count, &caps[3], sizeof(*to->ids));
	to->cap = caps[0];
	return to->keys && to->names && to->made_ms && to->ids;
}

static int tag_add(void *ctx, struct str name)
{
	struct tag_rows *to = ctx;
	if (!tag_rows_grow(to))
		return ERR_NOMEM;
	to->keys[to->count] = to->row->name;
	to->names[to->count] = arena_str(to->arena, name);
	to->made_ms[to->count] = to->row->link->created_ms;
	to->ids[to->count] = (int64_t)to->row->link->id;
	return to->names[to->count++].ptr ? 0 : ERR_NOMEM;
}

void postgres_tags_insert(struct postgres_txn *t, const struct link_row *rows, size_t n, bool if_made)
{
	struct tag_rows to = {.arena = &t->scratch};
	for (size_t i = 0; i < n; i++) {
		to.row = &rows[i];
		if (tags_each(rows[i].link->tags, tag_add, &to) != 0) {
			txn_no_memory(t);
			return;
		}
	}
	if (to.count == 0)
		return;
	TXN_PUT(t, if_made ? &tags_insert_made : &tags_insert, PG_BLOBS(to.keys, to.count),
	        PG_BLOBS(to.names, to.count), PG_INTS(to.made_ms, to.count), PG_INTS(to.ids, to.count));
}
