/*
 * The tables of a PostgreSQL store, and their migrations.
 *
 *	link           a link; permitted_count is the length of its permission list
 *	permission     users who may follow a private link
 *	tag            the tags of a link, one row each
 *	click_total    clicks of a link by node; link.clicks is their sum
 *	resting        quarantine: aliases that only their last owner may take
 *	spent_key      generated keys of removed links, for reuse
 *	replay         creates with an idempotency key, beside the link that they made
 *	route          registry only: the key that such a create chose
 *	users, api_key, session, counter, constant, slot_map      registry only
 *	link_feed, account_feed, feed_pruned                      postgres_feed.h
 *	slot_state     the slots that this database owns: slots.h
 *	commit_mark    the last transaction of each writer: postgres_txn.h
 *	ring_state     of 0.1.0
 *
 * The first six begin their primary key with the link's key, by which Citus distributes them. `replay` is
 * indexed by it.
 *
 * Locks, in the order in which a transaction takes them:
 *
 *	advisory "curt"      exclusive: migrations
 *	advisory "curv"      shared: batches of changes; exclusive: a batch after a deadlock (postgres_txn.c)
 *	row commit_mark      the writer's own: each marked transaction
 *	advisory "curu"      shared: writers of links; exclusive: changes of slot_state (postgres_slots.c)
 *	advisory "curw"      Citus only: click totals; "curx": claims
 *	row account_version  changes of accounts
 *	rows link            in the order of keys
 *
 * layout_version counts the migrations that were applied. A released migration never changes. All missing
 * migrations run in one transaction. (CockroachDB commits before each change of a table, so a migration can
 * also be repeated.) Only SQL that CockroachDB documents as well is used: no triggers, functions or
 * extensions.
 */
#include "store/postgres_store.h"

#include <stdio.h>

static const char *const migrations[] = {
    "CREATE TABLE IF NOT EXISTS link ("
    "	key bytea PRIMARY KEY,"
    "	id bigint NOT NULL,"
    "	key_id bigint NOT NULL," /* the id of a generated key; 0: an alias */
    "	is_alias bool NOT NULL," /* false: named by its id */
    "	owner bigint NOT NULL,"
    "	api_key bigint NOT NULL,"
    "	user_name bytea,"
    "	url bytea NOT NULL,"
    "	created_ms bigint NOT NULL,"
    "	updated_ms bigint NOT NULL,"
    "	not_before_ms bigint NOT NULL,"
    "	expires_ms bigint NOT NULL,"
    "	expired_url bytea,"
    "	max_clicks bigint NOT NULL,"
    "	redirect_status int NOT NULL,"
    "	enabled bool NOT NULL,"
    "	private bool NOT NULL,"
    "	password bytea,"
    "	title bytea,"
    "	note bytea,"
    "	tags bytea,"
    "	clicks bigint NOT NULL,"  /* sum of click_total */
    "	over_ms bigint NOT NULL," /* 0: never */
    "	permitted_count bigint NOT NULL"
    ");"
    "CREATE INDEX IF NOT EXISTS link_by_time ON link (created_ms DESC, id DESC);"
    "CREATE INDEX IF NOT EXISTS link_by_owner ON link (owner, created_ms DESC, id DESC);"
    "CREATE INDEX IF NOT EXISTS link_by_over ON link (over_ms, id) WHERE over_ms > 0;"
    "CREATE TABLE IF NOT EXISTS permission (key bytea, user_id bigint, PRIMARY KEY (key, user_id));"
    "CREATE TABLE IF NOT EXISTS tag ("
    "	key bytea,"
    "	name bytea,"
    "	made_ms bigint NOT NULL," /* the link's created_ms */
    "	id bigint NOT NULL,"      /* the link's */
    "	PRIMARY KEY (key, name)"
    ");"
    "CREATE INDEX IF NOT EXISTS tag_by_name ON tag (name, made_ms DESC, id DESC);"
    "CREATE TABLE IF NOT EXISTS click_total (key bytea, node bigint, total bigint NOT NULL, PRIMARY KEY "
    "(key, node));"
    "CREATE TABLE IF NOT EXISTS resting (" /* quarantine */
    "	key bytea PRIMARY KEY,"
    "	rest_owner bigint NOT NULL,"
    "	until_ms bigint NOT NULL"
    ");"
    "CREATE INDEX IF NOT EXISTS resting_by_end ON resting (until_ms);"
    "CREATE TABLE IF NOT EXISTS spent_key ("
    "	key bytea PRIMARY KEY,"
    "	id bigint NOT NULL,"
    "	ended_ms bigint" /* when its quarantine began; NULL: never reused */
    ");"
    "CREATE INDEX IF NOT EXISTS spent_key_by_end ON spent_key (ended_ms) WHERE ended_ms IS NOT NULL;"
    "CREATE TABLE IF NOT EXISTS replay ("
    "	caller bigint,"
    "	name bytea,"
    "	fingerprint bytea NOT NULL,"
    "	link_key bytea NOT NULL,"
    "	link_id bigint NOT NULL,"
    "	made_ms bigint NOT NULL,"
    "	PRIMARY KEY (caller, name)"
    ");"
    "CREATE INDEX IF NOT EXISTS replay_by_time ON replay (made_ms);"
    "CREATE INDEX IF NOT EXISTS replay_by_link ON replay (link_key);"
    "CREATE TABLE IF NOT EXISTS route ("
    "	caller bigint,"
    "	name bytea,"
    "	key bytea NOT NULL,"
    "	key_id bigint NOT NULL,"
    "	link_id bigint NOT NULL,"
    "	is_alias bool NOT NULL,"
    "	made_ms bigint NOT NULL,"
    "	PRIMARY KEY (caller, name)"
    ");"
    "CREATE INDEX IF NOT EXISTS route_by_time ON route (made_ms);"
    "CREATE TABLE IF NOT EXISTS users ("
    "	id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,"
    "	email bytea UNIQUE,"
    "	first_name bytea,"
    "	middle_name bytea,"
    "	last_name bytea,"
    "	role int NOT NULL," /* 1 viewer, 2 editor, 3 admin */
    "	enabled bool NOT NULL,"
    "	password bytea,"
    "	generation bigint NOT NULL,"
    "	created_ms bigint NOT NULL,"
    "	updated_ms bigint NOT NULL"
    ");"
    "CREATE TABLE IF NOT EXISTS api_key ("
    "	id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,"
    "	user_id bigint NOT NULL,"
    "	name bytea,"
    "	digest bytea NOT NULL UNIQUE,"
    "	rights int NOT NULL," /* bits: 1 read, 2 stats, 4 create, 8 delete, 16 admin */
    "	created_ms bigint NOT NULL,"
    "	expires_ms bigint NOT NULL,"
    "	revoked_ms bigint NOT NULL,"
    "	used_ms bigint NOT NULL,"
    "	creates_max bigint NOT NULL,"
    "	redirects_max bigint NOT NULL,"
    "	period_ms bigint NOT NULL"
    ");"
    "CREATE INDEX IF NOT EXISTS api_key_by_user ON api_key (user_id);"
    "CREATE TABLE IF NOT EXISTS ended_session (id bytea PRIMARY KEY, expires_ms bigint NOT NULL);"
    "CREATE INDEX IF NOT EXISTS ended_session_by_end ON ended_session (expires_ms);"
    "CREATE TABLE IF NOT EXISTS account_version (id int PRIMARY KEY, version bigint NOT NULL);" /* one row
                                                                                                 */
    "INSERT INTO account_version VALUES (1, 1) ON CONFLICT (id) DO NOTHING;"
    "CREATE TABLE IF NOT EXISTS counter (name bytea PRIMARY KEY, next bigint NOT NULL);"
    "CREATE TABLE IF NOT EXISTS constant (name bytea PRIMARY KEY, value bytea NOT NULL);"
    "CREATE TABLE IF NOT EXISTS ring_state (id int PRIMARY KEY, epoch bigint NOT NULL, description "
    "bytea);" /* one row */
    "INSERT INTO ring_state VALUES (1, 0, NULL) ON CONFLICT (id) DO NOTHING;"
    /* Whether a COMMIT without an answer was applied. */
    "CREATE TABLE IF NOT EXISTS commit_mark (writer bytea PRIMARY KEY, sequence bigint NOT NULL, at_ms "
    "bigint NOT NULL)",
    /* Of 0.1.0, dropped below. */
    "CREATE TABLE IF NOT EXISTS moved_key (key bytea PRIMARY KEY)",
    "ALTER TABLE moved_key ADD COLUMN IF NOT EXISTS epoch bigint NOT NULL DEFAULT 0;"
    "CREATE INDEX IF NOT EXISTS moved_key_by_epoch ON moved_key (epoch)",
    /* One row per transaction: store/postgres_feed.h. */
    "CREATE TABLE IF NOT EXISTS link_feed ("
    "	xid bigint NOT NULL,"
    "	seq bigint GENERATED BY DEFAULT AS IDENTITY,"
    "	at_ms bigint NOT NULL,"
    "	entries bytea NOT NULL,"
    "	PRIMARY KEY (xid, seq)"
    ");"
    "CREATE TABLE IF NOT EXISTS account_feed ("
    "	xid bigint NOT NULL,"
    "	seq bigint GENERATED BY DEFAULT AS IDENTITY,"
    "	at_ms bigint NOT NULL,"
    "	entries bytea NOT NULL,"
    "	PRIMARY KEY (xid, seq)"
    ");"
    "CREATE TABLE IF NOT EXISTS feed_pruned (feed text PRIMARY KEY, xid bigint NOT NULL, seq bigint NOT "
    "NULL)",
    /* Sessions were tokens without a row: all have ended. */
    "DROP TABLE IF EXISTS ended_session;"
    "CREATE TABLE IF NOT EXISTS session ("
    "	id bytea PRIMARY KEY,"
    "	user_id bigint NOT NULL,"
    "	generation bigint NOT NULL,"
    "	created_ms bigint NOT NULL,"
    "	expires_ms bigint NOT NULL,"
    "	address bytea,"
    "	agent bytea"
    ");"
    "CREATE INDEX IF NOT EXISTS session_by_user ON session (user_id);"
    "CREATE INDEX IF NOT EXISTS session_by_end ON session (expires_ms);"
    "DROP INDEX IF EXISTS api_key_by_user;"
    "CREATE INDEX IF NOT EXISTS api_key_of_user ON api_key (user_id, id);"
    "CREATE INDEX IF NOT EXISTS api_key_live ON api_key (user_id, expires_ms) WHERE revoked_ms = 0;"
    "CREATE INDEX IF NOT EXISTS api_key_by_revocation ON api_key (revoked_ms) WHERE revoked_ms > 0;"
    "CREATE INDEX IF NOT EXISTS api_key_by_end ON api_key (expires_ms) WHERE expires_ms > 0;"
    "CREATE INDEX IF NOT EXISTS users_admin ON users (id) WHERE role = 3",
    /* Slots: store/slots.h. A database owns all slots until it becomes a shard. Versions start at random,
     * so that two databases have none in common. */
    "CREATE TABLE IF NOT EXISTS slot_state (" /* one row */
    "	id int PRIMARY KEY,"
    "	version bigint NOT NULL,"
    "	owned bytea NOT NULL,"
    "	outgoing bytea NOT NULL,"
    "	move int NOT NULL," /* enum slot_move */
    "	out_token bigint NOT NULL,"
    "	out_to bytea NOT NULL,"
    "	until_ms bigint NOT NULL,"
    "	incoming bytea NOT NULL,"
    "	in_token bigint NOT NULL,"
    "	garbage bytea NOT NULL,"
    "	registry bytea NOT NULL"
    ");"
    "INSERT INTO slot_state SELECT 1, 1 + floor(random() * 1000000000)::bigint,"
    " decode(repeat('ff', 512), 'hex'), n, 0, 0, decode(repeat('00', 16), 'hex'), 0, n, 0, n, ''"
    " FROM (SELECT decode(repeat('00', 512), 'hex') AS n) AS none ON CONFLICT (id) DO NOTHING;"
    "CREATE TABLE IF NOT EXISTS slot_map (id int PRIMARY KEY, version bigint NOT NULL, map bytea NOT NULL);"
    "DROP TABLE IF EXISTS moved_key",
    "ALTER TABLE link ADD COLUMN IF NOT EXISTS external_id bytea;"
    "CREATE INDEX IF NOT EXISTS link_by_external_id ON link (external_id) WHERE external_id IS NOT NULL",
};
_Static_assert(SLOT_SET_BYTES == 512 && SHARD_NAME_BYTES == 16, "the statement says so");

/* The counter makes ids unique; where possible the database checks it, too. */
static const char *const index_single = "CREATE UNIQUE INDEX IF NOT EXISTS link_by_id ON link (id)";

/* In Citus a unique index must contain the distribution key. */
static const char *const distribute_citus =
    "CREATE INDEX IF NOT EXISTS link_by_id ON link (id);"
    "SELECT create_distributed_table('link', 'key');"
    "SELECT create_distributed_table('permission', 'key', colocate_with => 'link');"
    "SELECT create_distributed_table('tag', 'key', colocate_with => 'link');"
    "SELECT create_distributed_table('click_total', 'key', colocate_with => 'link');"
    "SELECT create_distributed_table('resting', 'key', colocate_with => 'link');"
    "SELECT create_distributed_table('spent_key', 'key', colocate_with => 'link')";

/* Marks of processes that have ended. */
static const char *const marks_purge =
    "DELETE FROM commit_mark WHERE at_ms < extract(epoch FROM now() - interval '2 days') * 1000";

enum { LAYOUT_TIMEOUT_MS = 10 * 60 * 1000 }; /* creating an index over many links is slow */

static const struct pg_statement server_about = {
    "layout_server", "SELECT (version() LIKE 'PostgreSQL%')::int,"
                     " (SELECT count(*) FROM pg_extension WHERE extname = 'citus')"};

/* Servers that start at the same time take turns. The advisory lock is "curt" in ASCII. */
static const char *const lock_sql =
    "SELECT pg_advisory_xact_lock(1668641396, oid::int) FROM pg_namespace WHERE nspname = current_schema()";

static const char *const version_table_sql =
    "CREATE TABLE IF NOT EXISTS layout_version (id int PRIMARY KEY, version bigint NOT NULL);"
    "INSERT INTO layout_version VALUES (1, 0) ON CONFLICT (id) DO NOTHING";

/* Without advisory locks this row is the lock. */
static const struct pg_statement version_get = {"layout_version",
                                                "SELECT version FROM layout_version WHERE id = 1 FOR UPDATE"};

/* The nodes of Citus, and those that may hold rows; whether the tables are distributed: they may be older
 * than the extension. */
static const struct pg_statement citus_nodes = {
    "layout_nodes", "SELECT count(*), count(*) FILTER (WHERE shouldhaveshards AND isactive AND noderole ="
                    " 'primary') FROM pg_dist_node"};
static const struct pg_statement citus_has_links = {
    "layout_has_links", "SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = to_regclass('link')"};

static int numbers_ask(struct pg_conn *c, const struct pg_statement *statement, int64_t *ret,
                       int64_t *ret_more, struct err *e)
{
	struct pg_result result;
	struct pg_query q = pg_query(c, statement);
	int r = pg_ask(&q, &result, e);
	if (r != 0)
		return r;
	*ret = result.rows > 0 ? pg_get_int(&result, 0, 0) : 0;
	if (ret_more)
		*ret_more = result.rows > 0 ? pg_get_int(&result, 0, 1) : 0;
	pg_result_end(&result);
	return 0;
}

/* Without any node, Citus adds the server itself. */
static int citus_check(struct pg_conn *c, struct err *e)
{
	int64_t nodes, holders;
	int r = numbers_ask(c, &citus_nodes, &nodes, &holders, e);
	if (r != 0 || nodes == 0 || holders > 0)
		return r;
	return err_set(e, ERR_INVALID,
	               "the extension citus is installed, but no node may hold rows; add one with SELECT "
	               "citus_add_node('HOST', PORT), or let the coordinator hold rows with SELECT "
	               "citus_set_node_property('HOST', PORT, 'shouldhaveshards', true) (HOST and PORT "
	               "as in pg_dist_node), or remove the extension with DROP EXTENSION citus");
}

static int migrations_run(struct pg_conn *c, int64_t done, bool has_citus, struct err *e)
{
	int r = has_citus && done == 0 ? citus_check(c, e) : 0;
	for (size_t i = (size_t)done; r == 0 && i < ARRAY_LEN(migrations); i++)
		r = pg_run(c, migrations[i], e);
	if (r == 0 && done == 0)
		r = pg_run(c, has_citus ? distribute_citus : index_single, e);
	char sql[96];
	snprintf(sql, sizeof(sql), "UPDATE layout_version SET version = %zu WHERE id = 1",
	         ARRAY_LEN(migrations));
	return r ? r : pg_run(c, sql, e);
}

static int layout_upgrade(struct pg_conn *c, bool has_citus, struct err *e)
{
	int64_t done;
	int r = numbers_ask(c, &version_get, &done, NULL, e);
	if (r != 0)
		return r;
	if (done > (int64_t)ARRAY_LEN(migrations))
		return err_set(e, ERR_INVALID,
		               "the database was set up by a newer version of curt (layout %lld, this one "
		               "knows %zu); run that version, or use another database",
		               (long long)done, ARRAY_LEN(migrations));
	return done < (int64_t)ARRAY_LEN(migrations) ? migrations_run(c, done, has_citus, e) : 0;
}

/* Version 0.1.0 spread keys by another hash, and called it a ring. */
static const struct pg_statement ring_members = {
    "layout_ring",
    "SELECT (length(t) - length(replace(t, '\"name\"', ''))) / 6 FROM (SELECT"
    " coalesce(convert_from(description, 'UTF8'), '') AS t FROM ring_state WHERE id = 1) AS d"};

static int ring_check(struct pg_conn *c, struct err *e)
{
	int64_t members;
	int r = numbers_ask(c, &ring_members, &members, NULL, e);
	if (r != 0 || members < 2)
		return r;
	return err_set(e, ERR_INVALID,
	               "curt 0.1.0 has spread links over this and other databases, which this version cannot "
	               "read; with 0.1.0, move all links to one of them ('curt reshard --leave'), "
	               "then use that one");
}

static int layout_make_locked(struct pg_conn *c, bool is_postgres, bool has_citus, struct err *e)
{
	int r = is_postgres ? pg_run(c, lock_sql, e) : 0;
	if (r == 0)
		r = pg_run(c, version_table_sql, e);
	if (r == 0)
		r = layout_upgrade(c, has_citus, e);
	return r ? r : ring_check(c, e);
}

int postgres_layout_make(struct pg_conn *c, struct postgres_features *ret, struct err *e)
{
	int64_t is_postgres, citus_count, is_distributed = 0;
	int r = pg_timeout(c, LAYOUT_TIMEOUT_MS, e)
		?: numbers_ask(c, &server_about, &is_postgres, &citus_count, e)
		?: pg_run(c, TXN_BEGIN, e);
	if (r != 0)
		return r;
	r = layout_make_locked(c, is_postgres, citus_count > 0, e) ?: pg_run(c, marks_purge, e);
	if (r == 0 && citus_count > 0)
		r = numbers_ask(c, &citus_has_links, &is_distributed, NULL, e);
	if (r != 0) {
		pg_run(c, "ROLLBACK", NULL);
		return r;
	}
	*ret = (struct postgres_features){.has_advisory_locks = is_postgres,
	                                  .is_distributed = is_distributed > 0};
	return pg_run(c, "COMMIT", e);
}
