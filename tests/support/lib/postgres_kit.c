#include "lib/postgres_kit.h"
#include "lib/test.h"

bool postgres_kit_is_there(void)
{
	bool there = getenv("CURT_TEST_POSTGRES") != NULL;
	if (!there)
		print_message("no PostgreSQL: CURT_TEST_POSTGRES is not set\n");
	return there;
}

static struct pg_conn *connect(const char *url, struct pg_pool **ret_pool)
{
	struct err e = {""};
	MUST(pg_pool_new(str_of(url), 1, NULL, NULL, ret_pool, &why));
	struct pg_conn *c = pg_take(*ret_pool, &e);
	if (!c)
		fail_msg("%s", e.text);
	return c;
}

static void run(struct pg_conn *c, const char *sql)
{
	struct err e = {""};
	if (pg_run(c, sql, &e) != 0)
		fail_msg("%s: %s", sql, e.text);
}

void postgres_kit_run(const char *url, const char *sql)
{
	struct pg_pool *pool;
	struct pg_conn *c = connect(url, &pool);
	run(c, sql);
	pg_return(c);
	pg_pool_free(pool);
}

int64_t postgres_kit_ask(const char *url, const char *sql)
{
	struct pg_pool *pool;
	struct pg_result result;
	struct err e = {""};
	struct pg_conn *c = connect(url, &pool);
	const struct pg_statement statement = {"kit_ask", sql};
	struct pg_query q = pg_query(c, &statement);
	pg_send(&q);
	pg_flush(c);
	if (pg_next(c, &result, &e) != 0 || result.rows != 1)
		fail_msg("%s: %s", sql, e.text);
	int64_t v = pg_get_int(&result, 0, 0);
	pg_result_end(&result);
	assert_int_equal(pg_sync(c, NULL), 0);
	pg_return(c);
	pg_pool_free(pool);
	return v;
}

bool postgres_kit_has_citus(void)
{
	const char *wanted = getenv("CURT_TEST_CITUS");
	return wanted && strcmp(wanted, "1") == 0;
}

/* Each database has nodes of its own: the server itself is the only one, and holds all shards. They are few,
 * as each costs time in each test. */
static void citus_make(const char *url, const char *name)
{
	char sql[128];
	snprintf(sql, sizeof(sql), "ALTER DATABASE %s SET citus.shard_count = 4", name);
	postgres_kit_run(url, sql);
	postgres_kit_run(url,
	                 "CREATE EXTENSION citus;"
	                 " SELECT citus_set_coordinator_host(host(inet_server_addr()), inet_server_port());"
	                 " SELECT citus_set_node_property(host(inet_server_addr()), inet_server_port(),"
	                 " 'shouldhaveshards', true)");
}

bool postgres_kit_has_timescale(void)
{
	const char *wanted = getenv("CURT_TEST_TIMESCALE");
	return wanted && strcmp(wanted, "1") == 0;
}

void postgres_kit_database_make(char ret_url[POSTGRES_KIT_URL_BYTES])
{
	static atomic_uint made;
	const char *base = getenv("CURT_TEST_POSTGRES");
	assert_non_null(base);
	char name[64], sql[128];
	snprintf(name, sizeof(name), "curt_test_%d_%u", (int)getpid(), atomic_fetch_add(&made, 1));
	snprintf(sql, sizeof(sql), "CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'", name);
	postgres_kit_run(base, sql);
	const char *path = strchr(strstr(base, "://") + 3, '/');
	int head = path ? (int)(path - base) : (int)strlen(base);
	const char *options = path ? strchr(path, '?') : NULL;
	snprintf(ret_url, POSTGRES_KIT_URL_BYTES, "%.*s/%s%s", head, base, name, options ? options : "");
	if (postgres_kit_has_citus())
		citus_make(ret_url, name);
	if (postgres_kit_has_timescale()) /* in a schema of its own: tests empty the usual one */
		postgres_kit_run(ret_url, "CREATE SCHEMA hyper; CREATE EXTENSION timescaledb SCHEMA hyper");
}

/* Connections to databases that are emptied again and again: a new one costs more than what it is for. */
static struct emptier {
	char url[POSTGRES_KIT_URL_BYTES];
	struct pg_pool *pool;
} emptiers[8];

static struct emptier *emptier_of(const char *url)
{
	for (size_t i = 0; i < ARRAY_LEN(emptiers); i++) {
		if (strcmp(emptiers[i].url, url) == 0)
			return &emptiers[i];
	}
	return NULL;
}

static struct emptier *emptier_get(const char *url)
{
	struct emptier *e = emptier_of(url);
	if (e)
		return e;
	e = emptier_of("");
	assert_non_null(e);
	pg_return(connect(url, &e->pool));
	snprintf(e->url, sizeof(e->url), "%s", url);
	return e;
}

static void emptier_end(const char *url)
{
	struct emptier *e = emptier_of(url);
	if (!e)
		return;
	pg_pool_free(e->pool);
	*e = (struct emptier){0};
}

void postgres_kit_database_remove(const char *url)
{
	emptier_end(url);
	char sql[POSTGRES_KIT_URL_BYTES + 64];
	const char *name = strchr(strstr(url, "://") + 3, '/') + 1;
	snprintf(sql, sizeof(sql), "DROP DATABASE %.*s WITH (FORCE)", (int)strcspn(name, "?"), name);
	postgres_kit_run(getenv("CURT_TEST_POSTGRES"), sql);
}

void postgres_kit_database_empty(const char *url)
{
	struct pg_conn *c = pg_take(emptier_get(url)->pool, NULL);
	assert_non_null(c);
	run(c, "DO $$ DECLARE t name; used bool; BEGIN"
	       " FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
	       " AND tablename NOT IN ('layout_version', 'account_version', 'ring_state', 'slot_state',"
	       " 'constant') LOOP"
	       " EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', t) INTO used;"
	       " IF used THEN EXECUTE format('DELETE FROM %I', t); END IF; END LOOP;"
	       " IF to_regclass('ring_state') IS NOT NULL THEN"
	       " DELETE FROM constant WHERE name <> 'part-name';" /* an open store knows it */
	       " UPDATE ring_state SET epoch = 0, description = NULL;"
	       " UPDATE slot_state SET version = version + 1, owned = decode(repeat('ff', 512), 'hex'),"
	       " outgoing = decode(repeat('00', 512), 'hex'), move = 0, out_token = 0,"
	       " incoming = decode(repeat('00', 512), 'hex'), in_token = 0,"
	       " garbage = decode(repeat('00', 512), 'hex'), registry = '';"
	       " ALTER TABLE users ALTER COLUMN id RESTART;"
	       " ALTER TABLE api_key ALTER COLUMN id RESTART; END IF; END $$");
	pg_return(c);
}

void postgres_kit_citus_feign(const char *url)
{
	if (postgres_kit_has_citus())
		return;
	postgres_kit_run(
	    url, "SET allow_system_table_mods = on;"
	         " INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable,"
	         " extversion) VALUES (99999, 'citus', 10, 2200, false, '0');"
	         " CREATE FUNCTION create_distributed_table(text, text, colocate_with text DEFAULT '')"
	         " RETURNS void LANGUAGE sql AS '';"
	         " CREATE VIEW pg_dist_node AS SELECT true AS shouldhaveshards, true AS isactive,"
	         " 'primary'::text AS noderole;"
	         " CREATE VIEW pg_dist_partition AS SELECT to_regclass('link') AS logicalrelid");
}
