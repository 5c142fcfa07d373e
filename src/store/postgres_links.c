/*
 * Writes links as the rules (decide.h) have decided.
 *
 * A free name cannot be locked, so the insert of a link does nothing if another server has taken its name.
 * The result of the transaction tells which inserts were lost. What belongs to a new link (tags,
 * idempotency key) is written only if the link was inserted. So creates cost two round trips: one to fetch
 * what may block their names, one for everything else.
 */
#include "store/postgres_change.h"
#include "store/postgres_feed.h"

static const struct pg_statement quarantine_put = {
    "quarantine_put", "INSERT INTO resting (key, rest_owner, until_ms)"
                      " SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) ORDER BY 1"
                      " ON CONFLICT (key) DO UPDATE SET rest_owner = excluded.rest_owner,"
                      " until_ms = excluded.until_ms"};
static const struct pg_statement quarantine_drop = {"quarantine_drop",
                                                    "DELETE FROM resting WHERE key = ANY ($1::bytea[])"};
static const struct pg_statement spent_put = {
    "spent_put", "INSERT INTO spent_key (key, id, ended_ms) SELECT n.key, n.id, NULLIF(n.ended_ms, -1)"
                 " FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS n (key, id, ended_ms)"
                 " ORDER BY n.key"
                 " ON CONFLICT (key) DO UPDATE SET id = excluded.id, ended_ms = excluded.ended_ms"};
_Static_assert(SPENT_FOR_GOOD == -1, "the statement says so");

static const struct pg_statement permissions_insert = {
    "permissions_insert",
    "INSERT INTO permission (key, user_id) SELECT * FROM unnest($1::bytea[], $2::bigint[])"};
static const struct pg_statement permissions_remove = {
    "permissions_remove",
    "DELETE FROM permission p USING unnest($1::bytea[], $2::bigint[]) AS a (key, user_id)"
    " WHERE p.key = a.key AND p.user_id = a.user_id AND p.key = ANY ($1)"};
static const struct pg_statement permission_counts_set = {
    "permission_counts_set", "UPDATE link SET permitted_count = n.count"
                             " FROM unnest($1::bytea[], $2::bigint[]) AS n (key, count)"
                             " WHERE link.key = n.key AND link.key = ANY ($1)"};

static const struct pg_statement replays_drop = {
    "replays_drop", "DELETE FROM replay r USING unnest($1::bigint[], $2::bytea[], $3::bigint[])"
                    " AS a (caller, name, made_ms)"
                    " WHERE r.caller = a.caller AND r.name = a.name AND r.made_ms = a.made_ms"};
/* A concurrent insert is a unique violation: the transaction is retried. */
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
    "quarantine_purge", "DELETE FROM resting WHERE key IN (SELECT key FROM resting"
                        " WHERE until_ms <= $1 ORDER BY until_ms LIMIT $2)"};

/* What a batch writes, by statement. */
struct edits {
	struct link_row *made, *changed, *retagged;
	size_t made_count, changed_count, retagged_count;
	struct name_columns gone, untagged, quarantined, unquarantined, spent;
};

static bool edits_init(struct postgres_txn *t, struct edits *e, size_t n)
{
	struct link_row *rows = arena_alloc(&t->scratch, 3 * n * sizeof(*rows));
	*e = (struct edits){.made = rows, .changed = rows + n, .retagged = rows + 2 * n};
	if (!rows)
		txn_no_memory(t);
	return rows && name_columns_init(t, &e->gone, n) && name_columns_init(t, &e->untagged, n) &&
	       name_columns_init(t, &e->quarantined, n) && name_columns_init(t, &e->unquarantined, n) &&
	       name_columns_init(t, &e->spent, n);
}

static void edits_add(struct edits *e, const struct name_row *row)
{
	const struct name_state *before = &row->before, *now = &row->now;
	struct link_row link = {
	    .link = now->link, .name = row->name, .key_id = now->key_id, .entry = row->made};
	if (name_loses_link(row))
		name_columns_add(&e->gone, row->name, 0, 0);
	if (name_gains_link(row))
		e->made[e->made_count++] = link;
	if (name_changes_link(row)) {
		e->changed[e->changed_count++] = link;
		if (!str_eq(before->link->tags, now->link->tags)) {
			name_columns_add(&e->untagged, row->name, 0, 0);
			e->retagged[e->retagged_count++] = link;
		}
	}
	if (name_enters_quarantine(row))
		name_columns_add(&e->quarantined, row->name, (int64_t)now->quarantine_owner,
		                 now->quarantined_until_ms);
	if (before->quarantined && !now->quarantined)
		name_columns_add(&e->unquarantined, row->name, 0, 0);
	if (now->spent_id != before->spent_id)
		name_columns_add(&e->spent, row->name, (int64_t)now->spent_id, now->spent_end_ms);
}

/* Puts a statement with names, and as many numbers each as it takes. */
static void name_columns_put(struct postgres_txn *t, const struct pg_statement *statement,
                             const struct name_columns *c, int numbers)
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

/* A lost name has another server's link, whose permissions must not change. */
static int permissions_put(struct postgres_txn *t, const struct view *v)
{
	struct name_columns added, dropped, counts;
	if (v->permission_count == 0)
		return 0;
	if (!name_columns_init(t, &added, v->permission_count) ||
	    !name_columns_init(t, &dropped, v->permission_count) ||
	    !name_columns_init(t, &counts, v->name_count))
		return t->error;
	for (size_t i = 0; i < v->permission_count; i++) {
		const struct permission_row *row = &v->permissions[i];
		bool was = row->before && name_keeps_permissions(row->name);
		if (row->name->now.link && !row->name->is_lost && row->now != was)
			name_columns_add(row->now ? &added : &dropped, row->name->name, (int64_t)row->user,
			                 0);
	}
	for (size_t i = 0; i < v->name_count; i++) {
		const struct name_row *row = &v->names[i];
		uint64_t was = name_keeps_permissions(row) ? row->before.permitted : 0;
		if (row->now.link && !row->is_lost && row->now.permitted != was)
			name_columns_add(&counts, row->name, (int64_t)row->now.permitted, 0);
	}
	name_columns_put(t, &permissions_insert, &added, 1);
	name_columns_put(t, &permissions_remove, &dropped, 1);
	name_columns_put(t, &permission_counts_set, &counts, 1);
	return t->error;
}

static int replays_put(struct postgres_txn *t, const struct view *v, bool if_made)
{
	size_t n = v->replay_count, count = 0;
	struct name_columns keys, links, dead;
	struct str *fingerprints = arena_alloc(&t->scratch, n * sizeof(*fingerprints));
	if (n == 0)
		return 0;
	if (!fingerprints)
		return txn_no_memory(t);
	if (!name_columns_init(t, &keys, n) || !name_columns_init(t, &links, n) ||
	    !name_columns_init(t, &dead, n))
		return t->error;
	for (size_t i = 0; i < n; i++) {
		const struct replay_row *row = &v->replays[i];
		if (!row->name || row->name->is_lost)
			continue; /* it created nothing */
		if (row->before.is_there)
			name_columns_add(&dead, row->key, (int64_t)row->caller, row->before.made_ms);
		fingerprints[count++] = row->now.fingerprint;
		name_columns_add(&keys, row->key, (int64_t)row->caller, row->now.made_ms);
		name_columns_add(&links, row->now.link_key, (int64_t)row->now.link_id, 0);
	}
	if (dead.count > 0)
		TXN_PUT(t, &replays_drop, PG_INTS(dead.a, dead.count), PG_BLOBS(dead.names, dead.count),
		        PG_INTS(dead.b, dead.count));
	if (count == 0)
		return 0;
	TXN_PUT(t, if_made ? &replays_insert_made : &replays_insert, PG_INTS(keys.a, count),
	        PG_BLOBS(keys.names, count), PG_BLOBS(fingerprints, count), PG_BLOBS(links.names, count),
	        PG_INTS(links.a, count), PG_INTS(keys.b, count));
	return 0;
}

static void purge_put(struct postgres_txn *t, const struct pg_statement *statement, const struct purge *p)
{
	if (p->max == 0)
		return;
	TXN_PUT(t, statement, PG_INT(p->until_ms), PG_INT(p->max));
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
	int r = PG_ASK(c, &made_get, &rows, PG_BLOBS(names, n), PG_INTS(ids, n));
	*ret_lost = 0;
	for (int row = 0; r == 0 && row < rows.rows; row++) {
		struct name_row *name = view_name(v, pg_get_text(&rows, row, 0));
		name->is_unknown = false;
		name->is_lost = !pg_get_int(&rows, row, 1);
		*ret_lost += name->is_lost;
	}
	return r;
}

/* Must it be known which links were inserted before their tags and feed row are written? Citus cannot check
 * that inside a statement. And a batch that also changes a link that it creates is rare. */
static bool must_know_made(const struct postgres_txn *t, const struct view *v)
{
	bool asks = t->is_distributed || !t->is_postgres;
	for (size_t i = 0; !asks && i < v->change_count; i++)
		asks = !v->changes[i].is_made && v->changes[i].name->made.ptr;
	return asks;
}

static const struct pg_statement round_trip = {"round_trip", "SELECT 1"};

static int made_ask(struct postgres_txn *t, struct view *v, struct edits *e, struct pg_result *made)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	int r = TXN_ASK(t, &round_trip, &none);
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
	bool is_known = e.made_count == 0 || must_know_made(t, v);
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
	name_columns_put(t, &quarantine_drop, &e.unquarantined, 0);
	name_columns_put(t, &quarantine_put, &e.quarantined, 2);
	name_columns_put(t, &spent_put, &e.spent, 2);
	int r = permissions_put(t, v) ?: replays_put(t, v, !is_known);
	purge_put(t, &replays_purge, &v->replays_purge);
	purge_put(t, &quarantine_purge, &v->quarantine_purge);
	return r ? r : t->error;
}
