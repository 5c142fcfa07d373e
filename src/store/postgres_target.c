/* Changes of links that are there, and of the lists of users who may follow them. */
#include "store/postgres_change.h"
#include "store/postgres_put.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

/* --- the rows --- */

static const struct pg_statement targets_by_key = {
    "targets_by_key",
    "SELECT " LINK_COLUMNS " FROM link l WHERE l.key = ANY ($1::bytea[]) ORDER BY l.key FOR UPDATE"};
/* Whoever locks several does it in the keys' order. */
static const struct pg_statement targets_by_id = {
    "targets_by_id", "SELECT * FROM (SELECT " LINK_COLUMNS " FROM link l WHERE l.id = ANY ($1::bigint[])"
                     " ORDER BY l.key FOR UPDATE) AS t ORDER BY t.id"};

/* Of one key: what Citus can lock, too. */
static const struct pg_statement target_by_key = {
    "target_by_key", "SELECT " LINK_COLUMNS " FROM link l WHERE l.key = $1 FOR UPDATE"};
static const struct pg_statement key_of_row = {"key_of_row", "SELECT key FROM link WHERE id = $1"};

static void target_add_key(struct postgres_txn *t, struct str key)
{
	struct pg_query q = txn_query(t, &target_by_key);
	pg_text(&q, key);
	txn_ask_add(t, &q);
}

/* A row that is known by its id alone is not found without asking everywhere; then it is locked by its key.
 */
static int target_add_row(struct postgres_txn *t, uint64_t id)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = txn_query(t, &key_of_row);
	pg_int(&q, id_is_valid(id) ? (int64_t)id : 0);
	int r = txn_ask(t, &q, &row);
	if (r == 0)
		target_add_key(t, row.rows > 0 ? pg_get_text(&row, 0, 0) : STR(""));
	return r;
}

static int targets_add(struct postgres_txn *t, const struct store_write *writes, size_t n)
{
	bool by_key = writes[0].ref.key.ptr;
	if (n == 1 && by_key) {
		target_add_key(t, writes[0].ref.key);
		return 0;
	}
	if (n == 1 && t->is_distributed)
		return target_add_row(t, writes[0].ref.id);
	struct str *keys = arena_alloc(&t->scratch, n * sizeof(*keys));
	int64_t *ids = arena_alloc(&t->scratch, n * sizeof(*ids));
	if (!keys || !ids)
		return txn_no_memory(t);
	for (size_t i = 0; i < n; i++) {
		keys[i] = writes[i].ref.key;
		ids[i] = id_is_valid(writes[i].ref.id) ? (int64_t)writes[i].ref.id : 0;
	}
	struct pg_query q = txn_query(t, by_key ? &targets_by_key : &targets_by_id);
	if (by_key)
		pg_blobs(&q, keys, n);
	else
		pg_ints(&q, ids, n);
	txn_ask_add(t, &q);
	return 0;
}

static int row_order(const struct pg_result *rows, int row, struct link_ref ref)
{
	if (ref.key.ptr)
		return str_order(postgres_row_name(rows, row), ref.key);
	uint64_t id = (uint64_t)pg_get_int(rows, row, COLUMN_ID);
	return (id > ref.id) - (id < ref.id);
}

/* The row that `ref` means, or -1; rows are in order. */
static int row_find(const struct pg_result *rows, struct link_ref ref)
{
	int low = 0, high = rows->rows;
	while (low < high) {
		int middle = low + (high - low) / 2;
		int order = row_order(rows, middle, ref);
		if (order == 0)
			return postgres_row_is(rows, middle, ref) ? middle : -1;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

/* The link that the change is about goes to out->link, unless out->result says why not. */
static int target_take(const struct pg_result *rows, const struct store_write *w, struct store_outcome *out)
{
	int row = row_find(rows, w->ref);
	out->back = BACK_LINK;
	out->result = row >= 0 ? postgres_row_link(rows, row, w->arena, &out->link) : ERR_NOT_FOUND;
	if (out->result == 0)
		out->result = target_check(w, &out->link);
	return row;
}

/* --- update, delete, reap --- */

/* What a run comes to. */
struct effects {
	struct link_row *updated, *retagged;
	size_t updated_count, retagged_count;
	struct str *gone, *rests, *spent; /* names */
	size_t gone_count, rest_count, spent_count;
	int64_t *rest_owners, *rest_until_ms, *spent_ids, *spent_end_ms;
};

static int effects_init(struct postgres_txn *t, struct effects *f, size_t n)
{
	struct link_row *rows = arena_alloc(&t->scratch, 2 * n * sizeof(*rows));
	struct str *names = arena_alloc(&t->scratch, 3 * n * sizeof(*names));
	int64_t *numbers = arena_alloc(&t->scratch, 4 * n * sizeof(*numbers));
	if (!rows || !names || !numbers)
		return txn_no_memory(t);
	*f = (struct effects){.updated = rows,
	                      .retagged = rows + n,
	                      .gone = names,
	                      .rests = names + n,
	                      .spent = names + 2 * n,
	                      .rest_owners = numbers,
	                      .rest_until_ms = numbers + n,
	                      .spent_ids = numbers + 2 * n,
	                      .spent_end_ms = numbers + 3 * n};
	return 0;
}

static int update_note(struct effects *f, const struct store_write *w, struct store_outcome *out,
                       struct str name)
{
	struct str tags = out->link.tags;
	fields_take(w, &out->link);
	int r = link_own(w->arena, &out->link);
	if (r != 0)
		return r;
	struct link_row row = {.link = &out->link, .name = name};
	f->updated[f->updated_count++] = row;
	if (!str_eq(tags, out->link.tags))
		f->retagged[f->retagged_count++] = row;
	return 0;
}

enum { NEVER_MS = -1 }; /* of a spent key: it does not come back */

static void spent_note(struct effects *f, struct str name, int64_t key_id, int64_t end_ms)
{
	f->spent[f->spent_count] = name;
	f->spent_ids[f->spent_count] = key_id;
	f->spent_end_ms[f->spent_count++] = end_ms;
}

static void rest_note(struct effects *f, const struct store_write *w, const struct link_record *link,
                      struct str name)
{
	int64_t until_ms = rest_until_ms(link_over_ms(link), w->rest_ms);
	if (until_ms <= w->now_ms)
		return;
	f->rests[f->rest_count] = name;
	f->rest_owners[f->rest_count] = (int64_t)link->owner;
	f->rest_until_ms[f->rest_count++] = until_ms;
}

/* A chosen name rests, or is free at once; a generated key is spent, and may come back only after a REAP. */
static void removal_note(struct effects *f, const struct store_write *w, const struct link_record *link,
                         struct str name, int64_t key_id)
{
	bool reap = w->kind == STORE_LINK_REAP;
	f->gone[f->gone_count++] = name;
	if (key_id != 0)
		spent_note(f, name, key_id, reap ? link_over_ms(link) : NEVER_MS);
	else if (reap)
		rest_note(f, w, link, name);
}

static int target_note(struct effects *f, const struct pg_result *rows, const struct store_write *w,
                       struct store_outcome *out)
{
	int row = target_take(rows, w, out);
	if (out->result != 0)
		return out->result == ERR_NOMEM ? ERR_NOMEM : 0;
	struct str name = postgres_row_name(rows, row);
	if (w->kind == STORE_LINK_UPDATE)
		return update_note(f, w, out, name);
	removal_note(f, w, &out->link, name, pg_get_int(rows, row, COLUMN_KEY_ID));
	return 0;
}

static const struct pg_statement rests_put = {
    "rests_put", "INSERT INTO resting (key, rest_owner, until_ms)"
                 " SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) ORDER BY 1"
                 " ON CONFLICT (key) DO UPDATE SET rest_owner = excluded.rest_owner,"
                 " until_ms = excluded.until_ms"};
static const struct pg_statement spent_put = {
    "spent_put", "INSERT INTO spent_key (key, id, ended_ms) SELECT n.key, n.id, NULLIF(n.ended_ms, -1)"
                 " FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS n (key, id, ended_ms)"
                 " ORDER BY n.key"
                 " ON CONFLICT (key) DO UPDATE SET id = excluded.id, ended_ms = excluded.ended_ms"};

static void named_put(struct postgres_txn *t, const struct pg_statement *statement, const struct str *names,
                      const int64_t *a, const int64_t *b, size_t n)
{
	if (n == 0)
		return;
	struct pg_query q = txn_query(t, statement);
	pg_blobs(&q, names, n);
	pg_ints(&q, a, n);
	pg_ints(&q, b, n);
	txn_put(t, &q);
}

static int effects_put(struct postgres_txn *t, const struct effects *f)
{
	struct str *names = arena_alloc(&t->scratch, (f->retagged_count + 1) * sizeof(*names));
	if (!names)
		return txn_no_memory(t);
	for (size_t i = 0; i < f->retagged_count; i++)
		names[i] = f->retagged[i].name;
	postgres_links_update(t, f->updated, f->updated_count);
	postgres_tags_delete(t, names, f->retagged_count);
	postgres_tags_insert(t, f->retagged, f->retagged_count);
	postgres_links_delete(t, f->gone, f->gone_count);
	named_put(t, &rests_put, f->rests, f->rest_owners, f->rest_until_ms, f->rest_count);
	named_put(t, &spent_put, f->spent, f->spent_ids, f->spent_end_ms, f->spent_count);
	return t->error;
}

int postgres_target_run(struct postgres_txn *t, const struct store_write *writes, size_t n,
                        struct store_outcome *outcomes)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct effects f = {0};
	int r = effects_init(t, &f, n);
	if (r == 0)
		r = targets_add(t, writes, n);
	if (r != 0)
		return r;
	txn_ask_send(t);
	txn_ask_next(t, &rows);
	r = txn_ask_end(t);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = target_note(&f, &rows, &writes[i], &outcomes[i]);
	return r ? r : effects_put(t, &f);
}

/* --- lists of users --- */

static const struct pg_statement listed_get = {
    "listed_get", "SELECT p.key, p.user_id FROM unnest($1::bytea[], $2::bigint[]) AS a (key, user_id)"
                  " JOIN permission p ON p.key = a.key AND p.user_id = a.user_id"
                  " WHERE p.key = ANY ($1) ORDER BY p.key, p.user_id"};
static const struct pg_statement users_there = {
    "users_there", "SELECT id FROM users WHERE id = ANY ($1::bigint[]) ORDER BY id"};
static const struct pg_statement listed_insert = {
    "listed_insert", "INSERT INTO permission (key, user_id) SELECT * FROM unnest($1::bytea[], $2::bigint[])"};
static const struct pg_statement listed_delete = {
    "listed_delete", "DELETE FROM permission p USING unnest($1::bytea[], $2::bigint[]) AS a (key, user_id)"
                     " WHERE p.key = a.key AND p.user_id = a.user_id AND p.key = ANY ($1)"};
static const struct pg_statement listed_count = {"listed_count",
                                                 "UPDATE link SET permitted_count = n.count"
                                                 " FROM unnest($1::bytea[], $2::bigint[]) AS n (key, count)"
                                                 " WHERE link.key = n.key AND link.key = ANY ($1)"};

/* Pairs of a link and a user. */
struct pairs {
	struct str *keys;
	int64_t *users;
	size_t count;
};

struct lists {
	struct pg_result rows, listed, users;
	int64_t *counts; /* by row: how many will be on its list */
	struct pairs asked, added, dropped;
};

static bool pairs_init(struct postgres_txn *t, struct pairs *p, size_t n)
{
	p->keys = arena_alloc(&t->scratch, n * sizeof(*p->keys));
	p->users = arena_alloc(&t->scratch, n * sizeof(*p->users));
	p->count = 0;
	return p->keys && p->users;
}

static void pair_add(struct pairs *p, struct str key, uint64_t user)
{
	p->keys[p->count] = key;
	p->users[p->count++] = (int64_t)user;
}

static void pairs_bind(struct pg_query *q, const struct pairs *p)
{
	pg_blobs(q, p->keys, p->count);
	pg_ints(q, p->users, p->count);
}

static bool is_listed(const struct pg_result *listed, struct str key, uint64_t user)
{
	int low = 0, high = listed->rows;
	while (low < high) {
		int middle = low + (high - low) / 2;
		int order = str_order(pg_get_text(listed, middle, 0), key);
		uint64_t at = (uint64_t)pg_get_int(listed, middle, 1);
		if (order == 0)
			order = (at > user) - (at < user);
		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static bool is_there(const struct pg_result *users, uint64_t user)
{
	int low = 0, high = users->rows;
	while (low < high) {
		int middle = low + (high - low) / 2;
		uint64_t at = (uint64_t)pg_get_int(users, middle, 0);
		if (at == user)
			return true;
		if (at < user)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* The user is not on the list. */
static int permit_judge(const struct postgres_txn *t, const struct lists *l, const struct store_write *w,
                        int row)
{
	if (!id_is_valid(w->user.id) || (!t->in_ring && !is_there(&l->users, w->user.id)))
		return ERR_INVALID;
	return l->counts[row] < PERMITTED_MAX ? 0 : ERR_LIMIT;
}

static void list_note(const struct postgres_txn *t, struct lists *l, const struct store_write *w,
                      struct store_outcome *out)
{
	int row = target_take(&l->rows, w, out);
	if (out->result != 0)
		return;
	struct str name = postgres_row_name(&l->rows, row);
	bool wanted = w->kind == STORE_PERMIT;
	if (is_listed(&l->listed, name, w->user.id) == wanted)
		return;
	if (wanted)
		out->result = permit_judge(t, l, w, row);
	if (out->result != 0)
		return;
	pair_add(wanted ? &l->added : &l->dropped, name, w->user.id);
	l->counts[row] += wanted ? 1 : -1;
}

static void pairs_put(struct postgres_txn *t, const struct pg_statement *statement, const struct pairs *p)
{
	if (p->count == 0)
		return;
	struct pg_query q = txn_query(t, statement);
	pairs_bind(&q, p);
	txn_put(t, &q);
}

static int counts_put(struct postgres_txn *t, const struct lists *l)
{
	struct pairs changed; /* of a link and its count */
	if (!pairs_init(t, &changed, (size_t)l->rows.rows + 1))
		return txn_no_memory(t);
	for (int row = 0; row < l->rows.rows; row++) {
		if (l->counts[row] != pg_get_int(&l->rows, row, COLUMN_PERMITTED))
			pair_add(&changed, postgres_row_name(&l->rows, row), (uint64_t)l->counts[row]);
	}
	pairs_put(t, &listed_count, &changed);
	return t->error;
}

static int lists_ask(struct postgres_txn *t, struct lists *l, const struct store_write *writes, size_t n)
{
	int r = targets_add(t, writes, n);
	if (r != 0)
		return r;
	struct pg_query q = txn_query(t, &listed_get);
	pairs_bind(&q, &l->asked);
	txn_ask_add(t, &q);
	q = txn_query(t, &users_there);
	pg_ints(&q, l->asked.users, n);
	txn_ask_add(t, &q);
	txn_ask_send(t);
	txn_ask_next(t, &l->rows);
	txn_ask_next(t, &l->listed);
	txn_ask_next(t, &l->users);
	return txn_ask_end(t);
}

static int lists_init(struct postgres_txn *t, struct lists *l, const struct store_write *writes, size_t n)
{
	if (!pairs_init(t, &l->asked, n) || !pairs_init(t, &l->added, n) || !pairs_init(t, &l->dropped, n))
		return txn_no_memory(t);
	for (size_t i = 0; i < n; i++)
		pair_add(&l->asked, writes[i].ref.key,
		         id_is_valid(writes[i].user.id) ? writes[i].user.id : 0);
	return 0;
}

static int list_run(struct postgres_txn *t, struct lists *l, const struct store_write *writes, size_t n,
                    struct store_outcome *outcomes)
{
	int r = lists_init(t, l, writes, n);
	if (r == 0)
		r = lists_ask(t, l, writes, n);
	if (r != 0)
		return r;
	l->counts = arena_alloc(&t->scratch, ((size_t)l->rows.rows + 1) * sizeof(*l->counts));
	if (!l->counts)
		return txn_no_memory(t);
	for (int row = 0; row < l->rows.rows; row++)
		l->counts[row] = pg_get_int(&l->rows, row, COLUMN_PERMITTED);
	for (size_t i = 0; i < n; i++)
		list_note(t, l, &writes[i], &outcomes[i]);
	pairs_put(t, &listed_insert, &l->added);
	pairs_put(t, &listed_delete, &l->dropped);
	return counts_put(t, l);
}

int postgres_list_run(struct postgres_txn *t, const struct store_write *writes, size_t n,
                      struct store_outcome *outcomes)
{
	struct lists l = {0};
	int r = list_run(t, &l, writes, n, outcomes);
	pg_result_end(&l.rows);
	pg_result_end(&l.listed);
	pg_result_end(&l.users);
	return r;
}
