/*
 * Links in a PostgreSQL store, fetched for the rules and written as they have decided.
 *
 * What is fetched for a change is locked, in the keys' order. A name that nobody has cannot be locked: its
 * insert is left out when somebody else was faster, and that shows when the transaction has ended. What hangs
 * on such a link (tags, idempotency keys) is written only if it was made. So creates cost two round trips:
 * what stands in the way of their names, and everything else.
 */
#include "store/postgres_change.h"
#include "store/postgres_feed.h"
#include "store/postgres_put.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

#include <stdlib.h>

/* --- fetching --- */

static const struct pg_statement links_lock = {
    "links_lock",
    "SELECT " LINK_COLUMNS " FROM link l WHERE l.key = ANY ($1::bytea[]) ORDER BY l.key FOR UPDATE"};
/* What Citus can lock, too. */
static const struct pg_statement link_lock = {"link_lock", "SELECT " LINK_COLUMNS
                                                           " FROM link l WHERE l.key = $1 FOR UPDATE"};
static const struct pg_statement quarantine_get = {
    "rests_get", "SELECT key, rest_owner, until_ms FROM resting WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement spent_get = {"spent_get",
                                              "SELECT key, id FROM spent_key WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement listed_get = {
    "listed_get", "SELECT p.key, p.user_id FROM unnest($1::bytea[], $2::bigint[]) AS a (key, user_id)"
                  " JOIN permission p ON p.key = a.key AND p.user_id = a.user_id"
                  " WHERE p.key = ANY ($1)"};
static const struct pg_statement replays_get = {
    "replays_get", "SELECT a.at, r.fingerprint, r.made_ms, r.link_key, r.link_id"
                   " FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS a (caller, name, at)"
                   " JOIN replay r ON r.caller = a.caller AND r.name = a.name"};
static const struct pg_statement links_get = {"links_get", "SELECT " LINK_COLUMNS
                                                           " FROM link l WHERE l.key = ANY ($1::bytea[])"};

/* The columns of what a statement is about. */
struct columns {
	struct str *names;
	int64_t *a, *b;
	size_t count;
};

static bool columns_init(struct postgres_txn *t, struct columns *c, size_t n)
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

static void columns_add(struct columns *c, struct str name, int64_t a, int64_t b)
{
	c->names[c->count] = name;
	c->a[c->count] = a;
	c->b[c->count++] = b;
}

/* Questions whose answers are read in the order in which they were asked. */
struct fetch {
	struct view *v;
	struct columns links; /* to be locked */
	size_t link_questions;
	bool asks_names, asks_lists, asks_replays;
};

static void names_ask(struct postgres_txn *t, const struct pg_statement *statement, const struct columns *c)
{
	struct pg_query q = txn_query(t, statement);
	pg_blobs(&q, c->names, c->count);
	txn_ask_add(t, &q);
}

static void links_ask(struct postgres_txn *t, struct fetch *f)
{
	if (f->links.count == 0)
		return;
	if (!t->is_distributed) {
		names_ask(t, &links_lock, &f->links);
		f->link_questions = 1;
		return;
	}
	for (size_t i = 0; i < f->links.count; i++) {
		struct pg_query q = txn_query(t, &link_lock);
		pg_text(&q, f->links.names[i]);
		txn_ask_add(t, &q);
	}
	f->link_questions = f->links.count;
}

static int name_order(const void *a, const void *b)
{
	return str_order(*(const struct str *)a, *(const struct str *)b);
}

static int names_add(struct postgres_txn *t, struct fetch *f, bool all)
{
	struct columns wanted; /* by creates */
	struct view *v = f->v;
	if (!columns_init(t, &f->links, v->name_count) || !columns_init(t, &wanted, v->name_count))
		return t->error;
	for (size_t i = 0; i < v->name_count; i++) {
		if (all || !v->names[i].is_generated)
			columns_add(&f->links, v->names[i].name, 0, 0);
		if (v->names[i].is_wanted)
			columns_add(&wanted, v->names[i].name, 0, 0);
	}
	qsort(f->links.names, f->links.count, sizeof(struct str), name_order);
	links_ask(t, f);
	f->asks_names = wanted.count > 0;
	if (f->asks_names) { /* after the links: who waited for the end of one sees what it left behind */
		names_ask(t, &quarantine_get, &wanted);
		names_ask(t, &spent_get, &wanted);
	}
	return 0;
}

static int lists_add(struct postgres_txn *t, struct fetch *f)
{
	struct columns c;
	const struct view *v = f->v;
	if (v->list_count == 0)
		return 0;
	if (!columns_init(t, &c, v->list_count))
		return t->error;
	for (size_t i = 0; i < v->list_count; i++) {
		uint64_t user = v->lists[i].user;
		columns_add(&c, v->lists[i].name->name, id_is_valid(user) ? (int64_t)user : 0, 0);
	}
	struct pg_query q = txn_query(t, &listed_get);
	pg_blobs(&q, c.names, c.count);
	pg_ints(&q, c.a, c.count);
	txn_ask_add(t, &q);
	f->asks_lists = true;
	return 0;
}

static int replays_add(struct postgres_txn *t, struct fetch *f)
{
	struct columns c;
	const struct view *v = f->v;
	if (v->replay_count == 0)
		return 0;
	if (!columns_init(t, &c, v->replay_count))
		return t->error;
	for (size_t i = 0; i < v->replay_count; i++)
		columns_add(&c, v->replays[i].key, (int64_t)v->replays[i].caller, (int64_t)i);
	struct pg_query q = txn_query(t, &replays_get);
	pg_ints(&q, c.a, c.count);
	pg_blobs(&q, c.names, c.count);
	pg_ints(&q, c.b, c.count);
	txn_ask_add(t, &q);
	f->asks_replays = true;
	return 0;
}

/* --- answers --- */

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

static int listed_take(struct view *v, const struct pg_result *rows, int row)
{
	struct name_row *name = view_name(v, pg_get_text(rows, row, 0));
	view_list(v, name, (uint64_t)pg_get_int(rows, row, 1))->before = true;
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

/* What such creates have made: found by its key, and known by its id. */
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

static int answers_take(struct postgres_txn *t, const struct fetch *f)
{
	struct view *v = f->v;
	int r = txn_ask_send(t);
	for (size_t i = 0; i < f->link_questions; i++)
		r = rows_take(t, v, true, link_take) ?: r;
	r = rows_take(t, v, f->asks_names, quarantine_take) ?: r;
	r = rows_take(t, v, f->asks_names, spent_take) ?: r;
	r = rows_take(t, v, f->asks_lists, listed_take) ?: r;
	r = rows_take(t, v, f->asks_replays, replay_take) ?: r;
	int end = txn_ask_end(t);
	return r ? r : end;
}

static int replayed_fetch(struct postgres_txn *t, struct view *v)
{
	struct columns c;
	if (!columns_init(t, &c, v->replay_count))
		return t->error;
	for (size_t i = 0; i < v->replay_count; i++) {
		if (v->replays[i].before.is_there)
			columns_add(&c, v->replays[i].before.link_key, 0, 0);
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
	int r = names_add(t, &f, all);
	if (r == 0)
		r = lists_add(t, &f);
	if (r == 0)
		r = replays_add(t, &f);
	if (r != 0)
		return r;
	if (f.link_questions == 0 && !f.asks_names && !f.asks_replays)
		return 0;
	r = answers_take(t, &f);
	return r ? r : replayed_fetch(t, v);
}

/* --- writing --- */

static const struct pg_statement quarantine_put = {
    "rests_put", "INSERT INTO resting (key, rest_owner, until_ms)"
                 " SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) ORDER BY 1"
                 " ON CONFLICT (key) DO UPDATE SET rest_owner = excluded.rest_owner,"
                 " until_ms = excluded.until_ms"};
static const struct pg_statement quarantine_drop = {"rests_drop",
                                                    "DELETE FROM resting WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement spent_put = {
    "spent_put", "INSERT INTO spent_key (key, id, ended_ms) SELECT n.key, n.id, NULLIF(n.ended_ms, -1)"
                 " FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS n (key, id, ended_ms)"
                 " ORDER BY n.key"
                 " ON CONFLICT (key) DO UPDATE SET id = excluded.id, ended_ms = excluded.ended_ms"};
_Static_assert(SPENT_FOR_GOOD == -1, "the statement says so");

static const struct pg_statement listed_insert = {
    "listed_insert", "INSERT INTO permission (key, user_id) SELECT * FROM unnest($1::bytea[], $2::bigint[])"};
static const struct pg_statement listed_delete = {
    "listed_delete", "DELETE FROM permission p USING unnest($1::bytea[], $2::bigint[]) AS a (key, user_id)"
                     " WHERE p.key = a.key AND p.user_id = a.user_id AND p.key = ANY ($1)"};
static const struct pg_statement listed_count = {"listed_count",
                                                 "UPDATE link SET permitted_count = n.count"
                                                 " FROM unnest($1::bytea[], $2::bigint[]) AS n (key, count)"
                                                 " WHERE link.key = n.key AND link.key = ANY ($1)"};

static const struct pg_statement replays_drop = {
    "replays_drop", "DELETE FROM replay r USING unnest($1::bigint[], $2::bytea[], $3::bigint[])"
                    " AS a (caller, name, made_ms)"
                    " WHERE r.caller = a.caller AND r.name = a.name AND r.made_ms = a.made_ms"};
/* A row that appeared since we looked is a unique violation, and all is done again. */
#define REPLAYS_INSERT                                                                                  \
	"INSERT INTO replay (caller, name, fingerprint, link_key, link_id, made_ms) SELECT *"           \
	" FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[])" \
	" AS n (caller, name, fingerprint, link_key, link_id, made_ms)"
static const struct pg_statement replays_insert = {"replays_insert", REPLAYS_INSERT " ORDER BY 1, 2"};
static const struct pg_statement replays_insert_made = {
    "replays_insert_made", REPLAYS_INSERT
    " WHERE EXISTS (SELECT 1 FROM link l WHERE l.key = n.link_key AND l.id = n.link_id) ORDER BY 1, 2"};

static const struct pg_statement replays_purge = {
    "replays_purge", "DELETE FROM replay WHERE (caller, name) IN (SELECT caller, name FROM replay"
                     " WHERE made_ms <= $1 ORDER BY made_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"};
static const struct pg_statement quarantine_purge = {
    "rests_purge", "DELETE FROM resting WHERE key IN (SELECT key FROM resting"
                   " WHERE until_ms <= $1 ORDER BY until_ms LIMIT $2)"};

/* What a batch comes to, by statement. */
struct edits {
	struct link_row *made, *changed, *retagged;
	size_t made_count, changed_count, retagged_count;
	struct columns gone, untagged, quarantined, unrests, spent;
};

static bool edits_init(struct postgres_txn *t, struct edits *e, size_t n)
{
	struct link_row *rows = arena_alloc(&t->scratch, 3 * n * sizeof(*rows));
	*e = (struct edits){.made = rows, .changed = rows + n, .retagged = rows + 2 * n};
	if (!rows)
		txn_no_memory(t);
	return rows && columns_init(t, &e->gone, n) && columns_init(t, &e->untagged, n) &&
	       columns_init(t, &e->quarantined, n) && columns_init(t, &e->unrests, n) &&
	       columns_init(t, &e->spent, n);
}

static void edits_add(struct edits *e, const struct name_row *row)
{
	const struct name_state *before = &row->before, *now = &row->now;
	struct link_row link = {
	    .link = now->link, .name = row->name, .key_id = now->key_id, .entry = row->made};
	if (name_loses_link(row))
		columns_add(&e->gone, row->name, 0, 0);
	if (name_gains_link(row))
		e->made[e->made_count++] = link;
	if (name_changes_link(row)) {
		e->changed[e->changed_count++] = link;
		if (!str_eq(before->link->tags, now->link->tags)) {
			columns_add(&e->untagged, row->name, 0, 0);
			e->retagged[e->retagged_count++] = link;
		}
	}
	if (now->quarantined &&
	    (!before->quarantined || now->quarantined_until_ms != before->quarantined_until_ms))
		columns_add(&e->quarantined, row->name, (int64_t)now->quarantine_owner,
		            now->quarantined_until_ms);
	if (before->quarantined && !now->quarantined)
		columns_add(&e->unrests, row->name, 0, 0);
	if (now->spent_id != before->spent_id)
		columns_add(&e->spent, row->name, (int64_t)now->spent_id, now->spent_end_ms);
}

/* Names, and as many numbers each as the statement takes. */
static void columns_put(struct postgres_txn *t, const struct pg_statement *statement, const struct columns *c,
                        int numbers)
{
	if (c->count == 0)
		return;
	struct pg_query q = txn_query(t, statement);
	pg_blobs(&q, c->names, c->count);
	if (numbers > 0)
		pg_ints(&q, c->a, c->count);
	if (numbers > 1)
		pg_ints(&q, c->b, c->count);
	txn_put(t, &q);
}

/* A name that was lost is another's link, whose list is not ours to change. */
static int lists_put(struct postgres_txn *t, const struct view *v)
{
	struct columns added, dropped, counts;
	if (v->list_count == 0)
		return 0;
	if (!columns_init(t, &added, v->list_count) || !columns_init(t, &dropped, v->list_count) ||
	    !columns_init(t, &counts, v->name_count))
		return t->error;
	for (size_t i = 0; i < v->list_count; i++) {
		const struct list_row *row = &v->lists[i];
		bool was = row->before && name_keeps_list(row->name);
		if (row->name->now.link && !row->name->is_lost && row->now != was)
			columns_add(row->now ? &added : &dropped, row->name->name, (int64_t)row->user, 0);
	}
	for (size_t i = 0; i < v->name_count; i++) {
		const struct name_row *row = &v->names[i];
		uint64_t was = name_keeps_list(row) ? row->before.permitted : 0;
		if (row->now.link && !row->is_lost && row->now.permitted != was)
			columns_add(&counts, row->name, (int64_t)row->now.permitted, 0);
	}
	columns_put(t, &listed_insert, &added, 1);
	columns_put(t, &listed_delete, &dropped, 1);
	columns_put(t, &listed_count, &counts, 1);
	return t->error;
}

static int replays_put(struct postgres_txn *t, const struct view *v, bool if_made)
{
	size_t n = v->replay_count, count = 0;
	struct columns keys, links, dead;
	struct str *fingerprints = arena_alloc(&t->scratch, n * sizeof(*fingerprints));
	if (n == 0)
		return 0;
	if (!fingerprints)
		return txn_no_memory(t);
	if (!columns_init(t, &keys, n) || !columns_init(t, &links, n) || !columns_init(t, &dead, n))
		return t->error;
	for (size_t i = 0; i < n; i++) {
		const struct replay_row *row = &v->replays[i];
		if (!row->name || row->name->is_lost)
			continue; /* it made nothing */
		if (row->before.is_there)
			columns_add(&dead, row->key, (int64_t)row->caller, row->before.made_ms);
		fingerprints[count++] = row->now.fingerprint;
		columns_add(&keys, row->key, (int64_t)row->caller, row->now.made_ms);
		columns_add(&links, row->now.link_key, (int64_t)row->now.link_id, 0);
	}
	if (dead.count > 0) {
		struct pg_query q = txn_query(t, &replays_drop);
		pg_ints(&q, dead.a, dead.count);
		pg_blobs(&q, dead.names, dead.count);
		pg_ints(&q, dead.b, dead.count);
		txn_put(t, &q);
	}
	if (count == 0)
		return 0;
	struct pg_query q = txn_query(t, if_made ? &replays_insert_made : &replays_insert);
	pg_ints(&q, keys.a, count);
	pg_blobs(&q, keys.names, count);
	pg_blobs(&q, fingerprints, count);
	pg_blobs(&q, links.names, count);
	pg_ints(&q, links.a, count);
	pg_ints(&q, keys.b, count);
	txn_put(t, &q);
	return 0;
}

static void purge_put(struct postgres_txn *t, const struct pg_statement *statement, const struct purge *p)
{
	if (p->max == 0)
		return;
	struct pg_query q = txn_query(t, statement);
	pg_int(&q, p->until_ms);
	pg_int(&q, p->max);
	txn_put(t, &q);
}

size_t postgres_lost_mark(struct view *v, const struct pg_result *made)
{
	size_t lost = 0;
	bool all_made = made->rows == 1 && pg_is_null(made, 0, 0);
	for (size_t i = 0; i < v->name_count; i++) {
		v->names[i].is_lost = !all_made && name_gains_link(&v->names[i]);
		lost += v->names[i].is_lost;
	}
	if (all_made)
		return 0;
	for (int row = 0; row < made->rows; row++)
		view_name(v, pg_get_text(made, row, 0))->is_lost = false;
	return lost - (size_t)made->rows;
}

static const struct pg_statement made_get = {
    "made_get", "SELECT l.key, (l.id = n.id)::int FROM unnest($1::bytea[], $2::bigint[]) AS n (key, id)"
                " JOIN link l ON l.key = n.key WHERE l.key = ANY ($1)"};

int postgres_lost_find(struct pg_conn *c, struct view *v, size_t *ret_lost)
{
	CLEANUP(arena_release) struct arena arena = {0};
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct str *names = arena_alloc(&arena, v->name_count * sizeof(*names));
	int64_t *ids = arena_alloc(&arena, v->name_count * sizeof(*ids));
	size_t n = 0;
	if (!names || !ids)
		return ERR_NOMEM;
	for (size_t i = 0; i < v->name_count; i++) {
		v->names[i].is_lost = false;
		v->names[i].is_unknown = name_gains_link(&v->names[i]);
		if (!v->names[i].is_unknown)
			continue;
		names[n] = v->names[i].name;
		ids[n++] = (int64_t)v->names[i].now.link->id;
	}
	struct pg_query q = pg_query(c, &made_get);
	pg_blobs(&q, names, n);
	pg_ints(&q, ids, n);
	int r = pg_ask(&q, &rows, NULL);
	*ret_lost = 0;
	for (int row = 0; r == 0 && row < rows.rows; row++) {
		struct name_row *name = view_name(v, pg_get_text(&rows, row, 0));
		name->is_unknown = false;
		name->is_lost = !pg_get_int(&rows, row, 1);
		*ret_lost += name->is_lost;
	}
	return r;
}

/* Must it be known which links were made, before what hangs on them can be written? Citus cannot ask inside
 * a statement; and that a link is changed in the batch that makes it is rare. */
static bool asks_made(const struct postgres_txn *t, const struct view *v)
{
	bool asks = t->is_distributed || !t->is_postgres;
	for (size_t i = 0; !asks && i < v->note_count; i++)
		asks = !v->notes[i].is_made && v->notes[i].name->made.ptr;
	return asks;
}

static const struct pg_statement nothing = {"nothing", "SELECT 1"};

static int made_ask(struct postgres_txn *t, struct view *v, struct edits *e, struct pg_result *made)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	struct pg_query q = txn_query(t, &nothing);
	int r = txn_ask(t, &q, &none);
	if (r != 0 || postgres_lost_mark(v, made) == 0)
		return r;
	size_t kept = 0;
	for (size_t i = 0; i < e->made_count; i++) {
		if (!view_name(v, e->made[i].name)->is_lost)
			e->made[kept++] = e->made[i];
	}
	e->made_count = kept;
	return 0;
}

int postgres_write_links(struct postgres_txn *t, struct view *v, struct pg_result *ret_made)
{
	struct edits e;
	struct link_feed feed = {.now_ms = v->now_ms};
	if (!edits_init(t, &e, v->name_count))
		return t->error;
	for (size_t i = 0; i < v->name_count; i++)
		edits_add(&e, &v->names[i]);
	bool is_known = e.made_count == 0 || asks_made(t, v);
	if (!is_known && !view_feed(v, false, &t->scratch, &feed.entries))
		return txn_no_memory(t);
	postgres_links_delete(t, e.gone.names, e.gone.count);
	postgres_links_insert(t, e.made, e.made_count, is_known ? NULL : &feed, ret_made);
	if (is_known) {
		int r = e.made_count > 0 ? made_ask(t, v, &e, ret_made) : 0;
		if (r != 0)
			return r;
		if (!view_feed(v, true, &t->scratch, &feed.entries))
			return txn_no_memory(t);
		postgres_feed_put(t, false, feed.now_ms, feed.entries);
	}
	postgres_links_update(t, e.changed, e.changed_count);
	postgres_tags_delete(t, e.untagged.names, e.untagged.count);
	postgres_tags_insert(t, e.retagged, e.retagged_count, false);
	postgres_tags_insert(t, e.made, e.made_count, !is_known);
	columns_put(t, &quarantine_drop, &e.unrests, 0);
	columns_put(t, &quarantine_put, &e.quarantined, 2);
	columns_put(t, &spent_put, &e.spent, 2);
	int r = lists_put(t, v);
	if (r == 0)
		r = replays_put(t, v, !is_known);
	purge_put(t, &replays_purge, &v->replays_purge);
	purge_put(t, &quarantine_purge, &v->quarantine_purge);
	return r ? r : t->error;
}
