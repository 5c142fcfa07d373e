/*
 * Fetches the rows of links for the rules (decide.h), locked in the order of keys.
 *
 * A free name cannot be locked. Its insert does nothing if another server was faster (postgres_links.c).
 */
#include "store/postgres_change.h"

#include <stdlib.h>

static const struct pg_statement links_lock = {
    "links_lock",
    "SELECT " LINK_COLUMNS " FROM link l WHERE l.key = ANY ($1::bytea[]) ORDER BY l.key FOR UPDATE"};
/* Citus locks one key per statement. */
static const struct pg_statement link_lock = {"link_lock", "SELECT " LINK_COLUMNS
                                                           " FROM link l WHERE l.key = $1 FOR UPDATE"};
static const struct pg_statement quarantine_get = {
    "quarantine_get", "SELECT key, rest_owner, until_ms FROM resting WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement spent_get = {"spent_get",
                                              "SELECT key, id FROM spent_key WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement permissions_fetch = {
    "permissions_fetch", "SELECT p.key, p.user_id FROM unnest($1::bytea[], $2::bigint[]) AS a (key, user_id)"
                         " JOIN permission p ON p.key = a.key AND p.user_id = a.user_id"
                         " WHERE p.key = ANY ($1)"};
static const struct pg_statement replays_get = {
    "replays_get", "SELECT a.at, r.fingerprint, r.made_ms, r.link_key, r.link_id"
                   " FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS a (caller, name, at)"
                   " JOIN replay r ON r.caller = a.caller AND r.name = a.name"};
static const struct pg_statement links_get = {"links_get", "SELECT " LINK_COLUMNS
                                                           " FROM link l WHERE l.key = ANY ($1::bytea[])"};

bool name_columns_init(struct postgres_txn *t, struct name_columns *c, size_t n)
{
	c->names = arena_alloc(&t->scratch, n * sizeof(*c->names));
	c->a = arena_alloc(&t->scratch, n * sizeof(*c->a));
	c->b = arena_alloc(&t->scratch, n * sizeof(*c->b));
	c->count = 0;
	if (c->names && c->a && c->b)
		return true;
	txn_no_memory(t);
	return false;
}

void name_columns_add(struct name_columns *c, struct str name, int64_t a, int64_t b)
{
	c->names[c->count] = name;
	c->a[c->count] = a;
	c->b[c->count++] = b;
}

/* The questions of one round trip. Results are read in the same order. */
struct fetch {
	struct view *v;
	struct name_columns links; /* to lock */
	size_t link_questions;
	bool asks_names, asks_permissions, asks_replays;
};

static void names_ask(struct postgres_txn *t, const struct pg_statement *statement,
                      const struct name_columns *c)
{
	TXN_ASK_ADD(t, statement, PG_BLOBS(c->names, c->count));
}

static void links_ask(struct postgres_txn *t, struct fetch *f)
{
	if (!t->is_distributed && f->links.count > 0) {
		names_ask(t, &links_lock, &f->links);
		f->link_questions = 1;
	}
	for (size_t i = 0; t->is_distributed && i < f->links.count; i++) {
		TXN_ASK_ADD(t, &link_lock, PG_TEXT(f->links.names[i]));
		f->link_questions++;
	}
}

static int name_order(const void *a, const void *b)
{
	return str_order(*(const struct str *)a, *(const struct str *)b);
}

static void names_add(struct postgres_txn *t, struct fetch *f, bool all)
{
	struct name_columns wanted; /* by creates */
	const struct view *v = f->v;
	if (!name_columns_init(t, &f->links, v->name_count) || !name_columns_init(t, &wanted, v->name_count))
		return;
	for (size_t i = 0; i < v->name_count; i++) {
		if (all || !v->names[i].is_generated)
			name_columns_add(&f->links, v->names[i].name, 0, 0);
		if (v->names[i].is_wanted)
			name_columns_add(&wanted, v->names[i].name, 0, 0);
	}
	qsort(f->links.names, f->links.count, sizeof(struct str), name_order);
	links_ask(t, f);
	f->asks_names = wanted.count > 0;
	if (f->asks_names) { /* after the locks, to see what a removed link left behind */
		names_ask(t, &quarantine_get, &wanted);
		names_ask(t, &spent_get, &wanted);
	}
}

static void permissions_add(struct postgres_txn *t, struct fetch *f)
{
	struct name_columns c;
	const struct view *v = f->v;
	if (v->permission_count == 0 || !name_columns_init(t, &c, v->permission_count))
		return;
	for (size_t i = 0; i < v->permission_count; i++) {
		uint64_t user = v->permissions[i].user;
		name_columns_add(&c, v->permissions[i].name->name, id_is_valid(user) ? (int64_t)user : 0, 0);
	}
	TXN_ASK_ADD(t, &permissions_fetch, PG_BLOBS(c.names, c.count), PG_INTS(c.a, c.count));
	f->asks_permissions = true;
}

static void replays_add(struct postgres_txn *t, struct fetch *f)
{
	struct name_columns c;
	const struct view *v = f->v;
	if (v->replay_count == 0 || !name_columns_init(t, &c, v->replay_count))
		return;
	for (size_t i = 0; i < v->replay_count; i++)
		name_columns_add(&c, v->replays[i].key, (int64_t)v->replays[i].caller, (int64_t)i);
	TXN_ASK_ADD(t, &replays_get, PG_INTS(c.a, c.count), PG_BLOBS(c.names, c.count),
	            PG_INTS(c.b, c.count));
	f->asks_replays = true;
}

/* --- results --- */

static int link_take(struct view *v, const struct pg_result *rows, int row)
{
	struct name_row *name = view_name(v, postgres_row_name(rows, row));
	struct link_record *link = arena_alloc(&v->arena, sizeof(*link));
	int r = link ? postgres_row_link(rows, row, &v->arena, link) : ERR_NOMEM;
	name->before.is_damaged = r == ERR_CORRUPT;
	if (r != 0)
		return r == ERR_CORRUPT ? 0 : r;
	name->before.link = link;
	name->before.key_id = (uint64_t)pg_get_int(rows, row, COLUMN_KEY_ID);
	name->before.permitted = (uint64_t)pg_get_int(rows, row, COLUMN_PERMITTED);
	return 0;
}

static int quarantine_take(struct view *v, const struct pg_result *rows, int row)
{
	struct name_row *name = view_name(v, pg_get_text(rows, row, 0));
	name->before.quarantined = true;
	name->before.quarantine_owner = (uint64_t)pg_get_int(rows, row, 1);
	name->before.quarantined_until_ms = pg_get_int(rows, row, 2);
	return 0;
}

static int spent_take(struct view *v, const struct pg_result *rows, int row)
{
	view_name(v, pg_get_text(rows, row, 0))->before.spent_id = (uint64_t)pg_get_int(rows, row, 1);
	return 0;
}

static int permission_take(struct view *v, const struct pg_result *rows, int row)
{
	struct name_row *name = view_name(v, pg_get_text(rows, row, 0));
	view_permission(v, name, (uint64_t)pg_get_int(rows, row, 1))->before = true;
	return 0;
}

static int replay_take(struct view *v, const struct pg_result *rows, int row)
{
	struct replay_state *s = &v->replays[pg_get_int(rows, row, 0)].before;
	*s = (struct replay_state){.is_there = true,
	                           .fingerprint = pg_get_text(rows, row, 1),
	                           .made_ms = pg_get_int(rows, row, 2),
	                           .link_key = pg_get_text(rows, row, 3),
	                           .link_id = (uint64_t)pg_get_int(rows, row, 4)};
	return str_own(&v->arena, &s->fingerprint) && str_own(&v->arena, &s->link_key) ? 0 : ERR_NOMEM;
}

/* The links that remembered creates made: found by key, recognized by id. */
static int replayed_take(struct view *v, const struct pg_result *rows, int row)
{
	uint64_t id = (uint64_t)pg_get_int(rows, row, COLUMN_ID);
	for (size_t i = 0; i < v->replay_count; i++) {
		struct replay_row *replay = &v->replays[i];
		if (replay->link || !replay->before.is_there || replay->before.link_id != id)
			continue;
		struct link_record *link = arena_alloc(&v->arena, sizeof(*link));
		int r = link ? postgres_row_link(rows, row, &v->arena, link) : ERR_NOMEM;
		replay->is_damaged = r == ERR_CORRUPT;
		if (r != 0 && r != ERR_CORRUPT)
			return r;
		replay->link = r == 0 ? link : NULL;
	}
	return 0;
}

static int rows_take(struct postgres_txn *t, struct view *v, bool asked,
                     int (*take)(struct view *, const struct pg_result *, int row))
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = asked ? txn_ask_next(t, &rows) : 0;
	for (int row = 0; r == 0 && row < rows.rows; row++)
		r = take(v, &rows, row);
	if (r == ERR_NOMEM)
		txn_no_memory_note(t);
	return r;
}

static int results_take(struct postgres_txn *t, const struct fetch *f)
{
	struct view *v = f->v;
	int r = txn_ask_send(t);
	for (size_t i = 0; i < f->link_questions; i++)
		r = rows_take(t, v, true, link_take) ?: r;
	r = rows_take(t, v, f->asks_names, quarantine_take) ?: r;
	r = rows_take(t, v, f->asks_names, spent_take) ?: r;
	r = rows_take(t, v, f->asks_permissions, permission_take) ?: r;
	r = rows_take(t, v, f->asks_replays, replay_take) ?: r;
	int end = txn_ask_end(t);
	return r ? r : end;
}

static int replayed_fetch(struct postgres_txn *t, struct view *v)
{
	struct name_columns c;
	if (!name_columns_init(t, &c, v->replay_count))
		return t->error;
	for (size_t i = 0; i < v->replay_count; i++) {
		if (v->replays[i].before.is_there)
			name_columns_add(&c, v->replays[i].before.link_key, 0, 0);
	}
	if (c.count == 0)
		return 0;
	names_ask(t, &links_get, &c);
	txn_ask_send(t);
	int r = rows_take(t, v, true, replayed_take);
	int end = txn_ask_end(t);
	return r ? r : end;
}

int postgres_fetch_links(struct postgres_txn *t, struct view *v, bool all)
{
	struct fetch f = {.v = v};
	names_add(t, &f, all);
	permissions_add(t, &f);
	replays_add(t, &f);
	if (t->error != 0 || (f.link_questions == 0 && !f.asks_names && !f.asks_replays))
		return t->error;
	return results_take(t, &f) ?: replayed_fetch(t, v);
}
