#include "store/postgres_put.h"

#include "store/rules.h"
#include "store/tags.h"

enum cell_kind { CELL_U64, CELL_U16, CELL_BOOL, CELL_STR };

struct cell {
	enum cell_kind kind;
	size_t offset; /* in struct link_record */
};

/* The order of the names in ROWS, from `id` on. */
static const struct cell cells[] = {
    {CELL_U64, offsetof(struct link_record, id)},
    {CELL_BOOL, offsetof(struct link_record, is_alias)},
    {CELL_U64, offsetof(struct link_record, owner)},
    {CELL_U64, offsetof(struct link_record, api_key)},
    {CELL_STR, offsetof(struct link_record, user_name)},
    {CELL_STR, offsetof(struct link_record, url)},
    {CELL_U64, offsetof(struct link_record, created_ms)},
    {CELL_U64, offsetof(struct link_record, updated_ms)},
    {CELL_U64, offsetof(struct link_record, not_before_ms)},
    {CELL_U64, offsetof(struct link_record, expires_ms)},
    {CELL_STR, offsetof(struct link_record, expired_url)},
    {CELL_U64, offsetof(struct link_record, max_clicks)},
    {CELL_U16, offsetof(struct link_record, redirect_status)},
    {CELL_BOOL, offsetof(struct link_record, enabled)},
    {CELL_BOOL, offsetof(struct link_record, is_private)},
    {CELL_STR, offsetof(struct link_record, password)},
    {CELL_STR, offsetof(struct link_record, title)},
    {CELL_STR, offsetof(struct link_record, note)},
    {CELL_STR, offsetof(struct link_record, tags)},
};

#define ROWS                                                                                         \
	"unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],"  \
	" $7::bigint[], $8::bytea[], $9::bytea[], $10::bigint[], $11::bigint[], $12::bigint[],"      \
	" $13::bigint[], $14::bytea[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[],"  \
	" $19::bytea[], $20::bytea[], $21::bytea[], $22::bytea[])"                                   \
	" AS n (key, key_id, over_ms, id, is_alias, owner, api_key, user_name, url, created_ms,"     \
	" updated_ms, not_before_ms, expires_ms, expired_url, max_clicks, redirect_status, enabled," \
	" private, password, title, note, tags)"

static const struct pg_statement links_insert = {
    "links_insert",
    "INSERT INTO link (key, key_id, over_ms, id, is_alias, owner, api_key, user_name, url, created_ms,"
    " updated_ms, not_before_ms, expires_ms, expired_url, max_clicks, redirect_status, enabled, private,"
    " password, title, note, tags, clicks, permitted_count)"
    " SELECT n.key, n.key_id, n.over_ms, n.id, n.is_alias <> 0, n.owner, n.api_key, n.user_name, n.url,"
    " n.created_ms, n.updated_ms, n.not_before_ms, n.expires_ms, n.expired_url, n.max_clicks,"
    " n.redirect_status, n.enabled <> 0, n.private <> 0, n.password, n.title, n.note, n.tags, 0, 0"
    " FROM " ROWS " ORDER BY n.key ON CONFLICT DO NOTHING RETURNING id"};

static const struct pg_statement links_update = {
    "links_update",
    "UPDATE link SET owner = n.owner, api_key = n.api_key, url = n.url, updated_ms = n.updated_ms,"
    " not_before_ms = n.not_before_ms, expires_ms = n.expires_ms, expired_url = n.expired_url,"
    " max_clicks = n.max_clicks, redirect_status = n.redirect_status, enabled = n.enabled <> 0,"
    " private = n.private <> 0, password = n.password, title = n.title, note = n.note, tags = n.tags,"
    " over_ms = n.over_ms FROM " ROWS " WHERE link.key = n.key AND link.key = ANY ($1)"};

/* --- columns --- */

struct columns {
	int64_t *ints;
	struct str *strs;
	const struct link_row *rows;
	size_t n;
};

static int64_t cell_int(const struct link_record *link, const struct cell *cell)
{
	const char *at = (const char *)link + cell->offset;
	int64_t wide;
	uint16_t narrow;
	switch (cell->kind) {
	case CELL_BOOL: return *(const bool *)at;
	case CELL_U16: memcpy(&narrow, at, sizeof(narrow)); return narrow;
	default: memcpy(&wide, at, sizeof(wide)); return wide;
	}
}

static void column_add(struct pg_query *q, struct columns *c, const struct cell *cell)
{
	for (size_t i = 0; i < c->n; i++) {
		if (cell->kind == CELL_STR)
			c->strs[i] = *(const struct str *)((const char *)c->rows[i].link + cell->offset);
		else
			c->ints[i] = cell_int(c->rows[i].link, cell);
	}
	if (cell->kind == CELL_STR)
		pg_blobs(q, c->strs, c->n);
	else
		pg_ints(q, c->ints, c->n);
}

static void rows_bind(struct pg_query *q, struct columns *c)
{
	for (size_t i = 0; i < c->n; i++)
		c->strs[i] = c->rows[i].name;
	pg_blobs(q, c->strs, c->n);
	for (size_t i = 0; i < c->n; i++)
		c->ints[i] = (int64_t)c->rows[i].key_id;
	pg_ints(q, c->ints, c->n);
	for (size_t i = 0; i < c->n; i++)
		c->ints[i] = link_over_ms(c->rows[i].link);
	pg_ints(q, c->ints, c->n);
	for (size_t i = 0; i < ARRAY_LEN(cells); i++)
		column_add(q, c, &cells[i]);
}

static bool columns_init(struct postgres_txn *t, struct columns *c, const struct link_row *rows, size_t n)
{
	*c = (struct columns){.rows = rows, .n = n};
	c->ints = arena_alloc(&t->scratch, n * sizeof(*c->ints));
	c->strs = arena_alloc(&t->scratch, n * sizeof(*c->strs));
	if (c->ints && c->strs)
		return true;
	txn_no_memory(t);
	return false;
}

void postgres_links_insert(struct postgres_txn *t, const struct link_row *rows, size_t n,
                           struct pg_result *ret_ids)
{
	struct columns c;
	if (n == 0 || !columns_init(t, &c, rows, n))
		return;
	struct pg_query q = txn_query(t, &links_insert);
	rows_bind(&q, &c);
	txn_put_kept(t, &q, ret_ids);
}

void postgres_links_update(struct postgres_txn *t, const struct link_row *rows, size_t n)
{
	struct columns c;
	if (n == 0 || !columns_init(t, &c, rows, n))
		return;
	struct pg_query q = txn_query(t, &links_update);
	rows_bind(&q, &c);
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
	struct pg_query q = txn_query(t, statement);
	pg_blobs(&q, names, n);
	txn_put(t, &q);
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
/* Of links whose insert may have been lost. */
static const struct pg_statement tags_insert_made = {
    "tags_insert_made", TAGS_INSERT " WHERE EXISTS (SELECT 1 FROM link l WHERE l.key = n.key AND l.id = n.id)"
                                    " ORDER BY 1, 2 ON CONFLICT DO NOTHING"};

struct tag_rows {
	struct arena *arena;
	const struct link_row *row; /* whose tags are being read */
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
	struct pg_query q = txn_query(t, if_made ? &tags_insert_made : &tags_insert);
	pg_blobs(&q, to.keys, to.count);
	pg_blobs(&q, to.names, to.count);
	pg_ints(&q, to.made_ms, to.count);
	pg_ints(&q, to.ids, to.count);
	txn_put(t, &q);
}
