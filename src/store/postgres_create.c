/*
 * Creates. Most names are free, so the run is inserted first, in one statement that leaves out names and ids
 * that are there; names that rest or are spent are taken out again. What was left out is then looked at one
 * by one: the holder of the name may have to give way.
 */
#include "store/postgres_change.h"
#include "store/postgres_put.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

#include <stdlib.h>

/* One create on its way. */
struct create {
	const struct store_write *w;
	struct store_outcome *out;
	bool settled; /* its outcome is known */
	bool made;
};

/* --- idempotency keys --- */

static const struct pg_statement replays_get = {
    "replays_get", "SELECT r.caller, r.name, r.fingerprint, r.made_ms, r.link_key, r.link_id"
                   " FROM unnest($1::bigint[], $2::bytea[]) AS a (caller, name)"
                   " JOIN replay r ON r.caller = a.caller AND r.name = a.name"};
enum { REPLAY_CALLER, REPLAY_NAME, REPLAY_FINGERPRINT, REPLAY_MADE, REPLAY_KEY, REPLAY_LINK };

/* What such creates have made: asked for when there are some, as they are few. */
static const struct pg_statement replayed_links = {
    "replayed_links", "SELECT " LINK_COLUMNS " FROM link l WHERE l.key = ANY ($1::bytea[])"};

static const struct pg_statement replays_clear = {
    "replays_clear", "DELETE FROM replay r USING unnest($1::bigint[], $2::bytea[], $3::bigint[])"
                     " AS a (caller, name, dead_ms)"
                     " WHERE r.caller = a.caller AND r.name = a.name AND r.made_ms <= a.dead_ms"};

/* A row that appeared since we looked is a unique violation, and all is done again. */
static const struct pg_statement replays_insert = {
    "replays_insert",
    "INSERT INTO replay (caller, name, fingerprint, link_key, link_id, made_ms)"
    " SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[])"
    " ORDER BY 1, 2"};

struct replay_columns {
	size_t count;
	int64_t *callers, *ids, *made_ms, *dead_ms;
	struct str *names, *fingerprints, *keys;
};

/* Of those that have an idempotency key, and were made when `made` says so. */
static int replay_columns_fill(struct postgres_txn *t, const struct create *creates, size_t n, bool made,
                               struct replay_columns *to)
{
	int64_t *ints = arena_alloc(&t->scratch, 4 * n * sizeof(*ints));
	struct str *strs = arena_alloc(&t->scratch, 3 * n * sizeof(*strs));
	if (!ints || !strs)
		return txn_no_memory(t);
	*to = (struct replay_columns){0,    ints,     ints + n,    ints + 2 * n, ints + 3 * n,
	                              strs, strs + n, strs + 2 * n};
	for (size_t i = 0; i < n; i++) {
		const struct store_write *w = creates[i].w;
		if (!w->idempotency_key.ptr || (made && !creates[i].made))
			continue;
		to->callers[to->count] = (int64_t)w->idempotency_owner;
		to->names[to->count] = w->idempotency_key;
		to->fingerprints[to->count] = str_n((const char *)w->fingerprint, FINGERPRINT_BYTES);
		to->keys[to->count] = w->link.key;
		to->ids[to->count] = (int64_t)w->link.id;
		to->made_ms[to->count] = w->now_ms;
		to->dead_ms[to->count++] = w->now_ms - REPLAY_MS;
	}
	return 0;
}

/* What was done before: rows of replays_get and of replayed_links. */
struct replays {
	struct pg_result rows, links;
};

static int replays_ask(struct postgres_txn *t, const struct replay_columns *c, struct replays *ret)
{
	struct pg_query q = txn_query(t, &replays_get);
	pg_ints(&q, c->callers, c->count);
	pg_blobs(&q, c->names, c->count);
	int r = txn_ask(t, &q, &ret->rows);
	if (r != 0 || ret->rows.rows == 0)
		return r;
	struct str *keys = arena_alloc(&t->scratch, (size_t)ret->rows.rows * sizeof(*keys));
	if (!keys)
		return txn_no_memory(t);
	for (int row = 0; row < ret->rows.rows; row++)
		keys[row] = pg_get_text(&ret->rows, row, REPLAY_KEY);
	q = txn_query(t, &replayed_links);
	pg_blobs(&q, keys, (size_t)ret->rows.rows);
	return txn_ask(t, &q, &ret->links);
}

/* ERR_NOT_FOUND when it is gone, or another one has its key by now. */
static int replayed_get(const struct replays *from, int row, struct arena *arena, struct link_record *ret)
{
	struct str key = pg_get_text(&from->rows, row, REPLAY_KEY);
	int64_t id = pg_get_int(&from->rows, row, REPLAY_LINK);
	for (int i = 0; i < from->links.rows; i++) {
		if (pg_get_int(&from->links, i, COLUMN_ID) == id &&
		    str_eq(postgres_row_name(&from->links, i), key))
			return postgres_row_link(&from->links, i, arena, ret);
	}
	return ERR_NOT_FOUND;
}

static int replay_take(const struct replays *from, int row, struct create *c)
{
	const struct store_write *w = c->w;
	c->settled = true;
	struct str fingerprint = pg_get_text(&from->rows, row, REPLAY_FINGERPRINT);
	if (!str_eq(fingerprint, str_n((const char *)w->fingerprint, FINGERPRINT_BYTES))) {
		c->out->result = ERR_INVALID;
		return 0;
	}
	c->out->replayed = true;
	c->out->back = BACK_LINK;
	c->out->result = replayed_get(from, row, w->arena, &c->out->link);
	return c->out->result == ERR_NOMEM ? ERR_NOMEM : 0;
}

static bool replay_is_of(const struct pg_result *rows, int row, const struct store_write *w)
{
	return (uint64_t)pg_get_int(rows, row, REPLAY_CALLER) == w->idempotency_owner &&
	       w->idempotency_key.ptr && str_eq(pg_get_text(rows, row, REPLAY_NAME), w->idempotency_key);
}

static int replays_take(const struct replays *from, struct create *creates, size_t n, bool *ret_dead)
{
	int r = 0;
	for (int row = 0; row < from->rows.rows; row++) {
		for (size_t i = 0; r == 0 && i < n; i++) {
			if (!replay_is_of(&from->rows, row, creates[i].w))
				continue;
			if (replay_is_dead(pg_get_int(&from->rows, row, REPLAY_MADE), creates[i].w->now_ms))
				*ret_dead = true;
			else
				r = replay_take(from, row, &creates[i]);
		}
	}
	return r;
}

/* Settles what was done before, and what may only be repeated. */
static int replays_settle(struct postgres_txn *t, struct create *creates, size_t n)
{
	struct replays before = {0};
	struct replay_columns c;
	bool dead = false;
	int r = replay_columns_fill(t, creates, n, false, &c);
	if (r == 0 && c.count > 0)
		r = replays_ask(t, &c, &before);
	if (r == 0)
		r = replays_take(&before, creates, n, &dead);
	pg_result_end(&before.rows);
	pg_result_end(&before.links);
	if (r == 0 && dead) {
		struct pg_query q = txn_query(t, &replays_clear);
		pg_ints(&q, c.callers, c.count);
		pg_blobs(&q, c.names, c.count);
		pg_ints(&q, c.dead_ms, c.count);
		txn_put(t, &q);
	}
	for (size_t i = 0; i < n; i++) {
		if (!creates[i].settled && creates[i].w->replay_only) {
			creates[i].settled = true;
			creates[i].out->result = ERR_LIMIT;
		}
	}
	return r;
}

static void replays_put(struct postgres_txn *t, const struct create *creates, size_t n)
{
	struct replay_columns c;
	if (replay_columns_fill(t, creates, n, true, &c) != 0 || c.count == 0)
		return;
	struct pg_query q = txn_query(t, &replays_insert);
	pg_ints(&q, c.callers, c.count);
	pg_blobs(&q, c.names, c.count);
	pg_blobs(&q, c.fingerprints, c.count);
	pg_blobs(&q, c.keys, c.count);
	pg_ints(&q, c.ids, c.count);
	pg_ints(&q, c.made_ms, c.count);
	txn_put(t, &q);
}

/* --- at a glance --- */

static struct link_row create_row(const struct store_write *w)
{
	return (struct link_row){
	    .link = &w->link,
	    .name = w->link.key,
	    .key_id = w->link.is_alias && !w->reuse ? 0 : w->ref.id,
	    .reuse = w->reuse,
	};
}

static int order_by_id(const void *a, const void *b)
{
	const struct create *const *x = a, *const *y = b;
	return ((*x)->w->link.id > (*y)->w->link.id) - ((*x)->w->link.id < (*y)->w->link.id);
}

static void made_note(const struct pg_result *ids, struct create **sorted, size_t n)
{
	for (int row = 0; row < ids->rows; row++) {
		struct store_write like = {.link.id = (uint64_t)pg_get_int(ids, row, 0)};
		struct create want = {.w = &like}, *at = &want;
		struct create **hit = bsearch(&at, sorted, n, sizeof(struct create *), order_by_id);
		ASSERT(hit);
		(*hit)->made = (*hit)->settled = true;
	}
}

static struct create *made_find(struct create **among, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++) {
		if (among[i]->made && !among[i]->w->reuse && str_eq(among[i]->w->link.key, name))
			return among[i];
	}
	return NULL;
}

/* Takes out again what was made under a name that rests or is spent. */
static int made_undo(struct postgres_txn *t, const struct pg_result *kept, struct create **among, size_t n)
{
	struct str *names = arena_alloc(&t->scratch, ((size_t)kept->rows + 1) * sizeof(*names));
	size_t count = 0;
	if (!names)
		return txn_no_memory(t);
	for (int row = 0; row < kept->rows; row++) {
		struct create *c = made_find(among, n, pg_get_text(kept, row, 0));
		if (!c)
			continue;
		c->made = c->settled = false;
		names[count++] = c->w->link.key;
	}
	postgres_links_delete(t, names, count);
	return 0;
}

/* A name that reads like a generated key needs more than a glance. */
static bool create_is_simple(const struct create *c)
{
	return !c->settled && (!alias_decodes(c->w) || c->w->reuse);
}

static int simple_insert(struct postgres_txn *t, struct create *creates, size_t n)
{
	CLEANUP(inserted_end) struct inserted in = {0};
	struct create **sorted = arena_alloc(&t->scratch, n * sizeof(struct create *));
	struct link_row *rows = arena_alloc(&t->scratch, n * sizeof(*rows));
	size_t count = 0;
	if (!sorted || !rows)
		return txn_no_memory(t);
	for (size_t i = 0; i < n; i++) {
		if (!create_is_simple(&creates[i]))
			continue;
		rows[count] = create_row(creates[i].w);
		sorted[count++] = &creates[i];
	}
	if (count == 0)
		return 0;
	qsort(sorted, count, sizeof(struct create *), order_by_id);
	int r = postgres_links_insert(t, rows, count, &in);
	if (r == 0)
		made_note(&in.ids, sorted, count);
	for (size_t i = 0; r == 0 && i < KEPT_KINDS; i++)
		r = made_undo(t, &in.kept[i], sorted, count);
	return r;
}

/* --- one by one --- */

static const struct pg_statement name_holder = {"name_holder", "SELECT " LINK_COLUMNS
                                                               " FROM link l WHERE l.key = $1 FOR UPDATE"};
static const struct pg_statement name_rest = {
    "name_rest", "SELECT rest_owner, until_ms FROM resting WHERE key = $1 FOR UPDATE"};
static const struct pg_statement name_spent = {"name_spent", "SELECT 1 FROM spent_key WHERE key = $1"};
static const struct pg_statement rows_there = {"rows_there",
                                               "SELECT id, is_alias FROM link WHERE id = ANY ($1::bigint[])"};
static const struct pg_statement counter_next = {"counter_next", "SELECT next FROM counter WHERE name = $1"};
static const struct pg_statement rest_clear = {"rest_clear", "DELETE FROM resting WHERE key = $1"};

/* What stands in a name's way. */
struct name {
	bool taken;
	bool rests;
	bool is_held; /* by a link that yields */
};

static void name_put(struct postgres_txn *t, const struct pg_statement *statement, struct str name)
{
	struct pg_query q = txn_query(t, statement);
	pg_text(&q, name);
	txn_ask_add(t, &q);
}

/* A generated key is its link's for good, also when it was given out again. */
static int holder_judge(const struct pg_result *rows, const struct store_write *w, struct name *name)
{
	struct link_record holder;
	if (rows->rows == 0)
		return 0;
	int r = postgres_row_link(rows, 0, w->arena, &holder);
	name->is_held = true;
	if (r == ERR_NOMEM)
		return r;
	if (r != 0 || pg_get_int(rows, 0, COLUMN_KEY_ID) != 0 || !holder_yields(&holder, w))
		name->taken = true;
	return 0;
}

static int holder_answer(struct postgres_txn *t, const struct store_write *w, struct name *name)
{
	CLEANUP(pg_result_end) struct pg_result rows;
	int r = txn_ask_next(t, &rows);
	return r ? r : holder_judge(&rows, w, name);
}

static int rest_answer(struct postgres_txn *t, const struct store_write *w, struct name *name)
{
	CLEANUP(pg_result_end) struct pg_result rows;
	int r = txn_ask_next(t, &rows);
	if (r != 0 || rows.rows == 0)
		return r;
	name->rests = true;
	if (!rest_allows((uint64_t)pg_get_int(&rows, 0, 0), pg_get_int(&rows, 0, 1), w))
		name->taken = true;
	return 0;
}

static int spent_answer(struct postgres_txn *t, const struct store_write *w, struct name *name)
{
	CLEANUP(pg_result_end) struct pg_result rows;
	int r = txn_ask_next(t, &rows);
	if (r == 0 && rows.rows > 0 && !w->reuse)
		name->taken = true;
	return r;
}

/* The create's own row must be free. That of the id which the name reads like tells whose the key is: an
 * alias's row never goes by its id. */
static int rows_answer(struct postgres_txn *t, const struct store_write *w, struct name *name,
                       bool *ret_row_is_alias)
{
	CLEANUP(pg_result_end) struct pg_result rows;
	int r = txn_ask_next(t, &rows);
	*ret_row_is_alias = false;
	for (int row = 0; r == 0 && row < rows.rows; row++) {
		uint64_t id = (uint64_t)pg_get_int(&rows, row, 0);
		bool is_alias = pg_get_int(&rows, row, 1);
		if (id == w->link.id || (id == w->ref.id && !is_alias))
			name->taken = true;
		if (id == w->ref.id && is_alias)
			*ret_row_is_alias = true;
	}
	return r;
}

/* In a ring the counter was asked by whoever has it. */
static int counter_answer(struct postgres_txn *t, const struct store_write *w, bool row_is_alias,
                          struct name *name)
{
	CLEANUP(pg_result_end) struct pg_result rows;
	int r = txn_ask_next(t, &rows);
	if (r != 0 || row_is_alias || t->in_ring || !alias_decodes(w) || rows.rows == 0)
		return r;
	if (key_is_spent(w, (uint64_t)pg_get_int(&rows, 0, 0)))
		name->taken = true;
	return 0;
}

static int name_answers(struct postgres_txn *t, const struct store_write *w, struct name *name)
{
	bool row_is_alias;
	int r = holder_answer(t, w, name);
	if (r == 0)
		r = rest_answer(t, w, name);
	if (r == 0)
		r = spent_answer(t, w, name);
	if (r == 0)
		r = rows_answer(t, w, name, &row_is_alias);
	return r ? r : counter_answer(t, w, row_is_alias, name);
}

static int name_find(struct postgres_txn *t, const struct store_write *w, struct name *name)
{
	const int64_t ids[] = {(int64_t)w->link.id, alias_decodes(w) ? (int64_t)w->ref.id : 0};
	name_put(t, &name_holder, w->ref.key);
	name_put(t, &name_rest, w->ref.key);
	name_put(t, &name_spent, w->ref.key);
	struct pg_query q = txn_query(t, &rows_there);
	pg_ints(&q, ids, ARRAY_LEN(ids));
	txn_ask_add(t, &q);
	name_put(t, &counter_next, STORE_LINK_COUNTER);
	int r = txn_ask_send(t);
	if (r == 0)
		r = name_answers(t, w, name);
	int end = txn_ask_end(t);
	return r ? r : end;
}

static void name_clear(struct postgres_txn *t, const struct store_write *w, const struct name *name)
{
	if (name->is_held)
		postgres_links_delete(t, &w->ref.key, 1);
	if (!name->rests)
		return;
	struct pg_query q = txn_query(t, &rest_clear);
	pg_text(&q, w->ref.key);
	txn_put(t, &q);
}

static int create_one(struct postgres_txn *t, struct create *c)
{
	struct name name = {.taken = false};
	int r = name_find(t, c->w, &name);
	c->settled = true;
	c->out->result = ERR_CONFLICT;
	if (r != 0 || name.taken)
		return r;
	CLEANUP(inserted_end) struct inserted in = {0};
	struct link_row row = create_row(c->w);
	name_clear(t, c->w, &name);
	r = postgres_links_insert(t, &row, 1, &in);
	if (r != 0)
		return r;
	if (in.ids.rows == 0 || in.kept[0].rows > 0 || in.kept[1].rows > 0)
		return ERR_BUSY; /* somebody came in between */
	c->out->result = 0;
	c->made = true;
	return 0;
}

/* --- the run --- */

static int tags_put(struct postgres_txn *t, const struct create *creates, size_t n)
{
	struct link_row *rows = arena_alloc(&t->scratch, n * sizeof(*rows));
	size_t count = 0;
	if (!rows)
		return txn_no_memory(t);
	for (size_t i = 0; i < n; i++) {
		if (creates[i].made && creates[i].w->link.tags.len > 0)
			rows[count++] = create_row(creates[i].w);
	}
	postgres_tags_insert(t, rows, count);
	return t->error;
}

int postgres_create_run(struct postgres_txn *t, const struct store_write *writes, size_t n,
                        struct store_outcome *outcomes)
{
	struct create *creates = arena_zalloc(&t->scratch, n * sizeof(*creates));
	if (!creates)
		return txn_no_memory(t);
	for (size_t i = 0; i < n; i++) {
		create_check(&writes[i]);
		creates[i] = (struct create){.w = &writes[i], .out = &outcomes[i]};
	}
	int r = replays_settle(t, creates, n);
	if (r == 0)
		r = simple_insert(t, creates, n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (!creates[i].settled)
			r = create_one(t, &creates[i]);
	}
	if (r == 0)
		r = tags_put(t, creates, n);
	if (r == 0)
		replays_put(t, creates, n);
	return r ? r : t->error;
}
