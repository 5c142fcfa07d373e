#include "lib/store_versions.h"
#include "lib/store_kit.h"
#include "lib/test.h"

#include <sqlite3.h>

/* The tables of version 1, as that version made them. */
static const char version_1[] =
    "PRAGMA journal_mode = WAL;"
    "CREATE TABLE link (id INTEGER PRIMARY KEY, alias TEXT, owner INTEGER NOT NULL, user_name TEXT,"
    " url TEXT NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL, redirect_status INTEGER NOT NULL, enabled INTEGER NOT NULL,"
    " title TEXT, note TEXT, tags TEXT) STRICT;"
    "CREATE INDEX link_by_owner ON link (owner);"
    "CREATE TABLE alias (name TEXT PRIMARY KEY, id INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE replay (owner INTEGER NOT NULL, key TEXT NOT NULL, fingerprint BLOB NOT NULL,"
    " link INTEGER NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY (owner, key)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX replay_by_age ON replay (created_ms);"
    "CREATE TABLE api_key (id INTEGER PRIMARY KEY, name TEXT, digest BLOB NOT NULL UNIQUE,"
    " admin INTEGER NOT NULL, created_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL,"
    " creates_max INTEGER NOT NULL, redirects_max INTEGER NOT NULL, period_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE counter (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE constant (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;"
    "PRAGMA application_id = 1668641396; PRAGMA user_version = 1;";

static const char rows[] =
    "INSERT INTO link (id, alias, owner, user_name, url, created_ms, updated_ms, expires_ms, redirect_status,"
    " enabled, title, note, tags) VALUES"
    " (1, NULL, 7, NULL, 'https://example.com/1', 5, 6, 0, 302, 1, NULL, NULL, '[\"old\",\"both\",\"old\"]'),"
    " (2, 'two', 7, 'who', 'https://example.com/2', 5, 6, 900, 308, 0, 'title', 'note', '[\"both\"]'),"
    " (3, NULL, 0, NULL, 'https://example.com/3', 5, 6, 0, 302, 1, NULL, NULL, NULL),"
    " (4, NULL, 3, NULL, 'https://example.com/4', 5, 6, 800, 302, 1, NULL, NULL, 'damaged ['),"
    " (5000000000, NULL, 3, NULL, 'https://example.com/5', 5, 6, 850, 302, 1, NULL, NULL, NULL);"
    "INSERT INTO alias VALUES ('two', 2);"
    "INSERT INTO replay VALUES (7, 'again', zeroblob(16), 1, 1000000);"
    "INSERT INTO api_key VALUES"
    " (3, 'the admin', zeroblob(32), 1, 11, 0, 0, 0, 60000),"
    " (7, 'a program', CAST('12345678901234567890123456789012' AS BLOB), 0, 12, 0, 100, 200, 60000),"
    " (9, NULL, CAST('abcdefghijklmnopqrstuvwxyz012345' AS BLOB), 1, 13, 14, 0, 0, 60000);"
    "INSERT INTO counter VALUES ('ids', 5);"
    "INSERT INTO constant VALUES ('secret', CAST('abc' AS BLOB));";

/* What version 2 made of version 1. */
static const char version_2[] =
    "ALTER TABLE link ADD COLUMN clicks INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE tag (name TEXT, link INTEGER, PRIMARY KEY (name, link)) STRICT, WITHOUT ROWID;"
    "PRAGMA user_version = 2;";

static const char rows_2[] = "UPDATE link SET clicks = id + 40;"
                             "INSERT INTO tag VALUES ('old', 1), ('both', 1), ('both', 2);";

void store_version_make(const char *path, int version)
{
	const char *const scripts[] = {version_1, version == 2 ? version_2 : "", rows,
	                               version == 2 ? rows_2 : ""};
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	for (size_t i = 0; i < ARRAY_LEN(scripts); i++)
		assert_int_equal(sqlite3_exec(db, scripts[i], NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void assert_tagged(struct store *store, struct str tag, size_t expected_count, uint64_t newest)
{
	uint64_t ids[8] = {0};
	size_t count;
	assert_int_equal(store_tagged(store, tag, ARRAY_LEN(ids), ids, &count), 0);
	assert_int_equal(count, expected_count);
	assert_int_equal(ids[0], newest);
}

void store_version_check(struct store *store, int version)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct arena *a = &arena;
	struct link_record link;
	assert_int_equal(kit_find(store, a, 1, "g1", &link), 0);
	assert_int_equal(link.owner, 7);
	assert_int_equal(link.api_key, 7);
	assert_int_equal(link.clicks, version == 2 ? 41 : 0);
	assert_true(str_eq(link.tags, STR("[\"old\",\"both\",\"old\"]")));
	assert_int_equal(kit_find(store, a, 0, "two", &link), 0);
	assert_int_equal(link.id, 2);
	assert_int_equal(link.clicks, version == 2 ? 42 : 0);
	assert_int_equal(link.created_ms, 5);
	assert_int_equal(link.updated_ms, 6);
	assert_int_equal(link.expires_ms, 900);
	assert_int_equal(link.redirect_status, 308);
	assert_false(link.enabled);
	assert_false(link.is_private);
	assert_int_equal(link.not_before_ms, 0);
	assert_int_equal(link.max_clicks, 0);
	assert_null(link.expired_url.ptr);
	assert_null(link.password.ptr);
	assert_true(str_eq(link.user_name, STR("who")));
	assert_true(str_eq(link.title, STR("title")));
	assert_true(str_eq(link.note, STR("note")));
	assert_int_equal(kit_find(store, a, 3, "g3", &link), 0);
	assert_int_equal(link.owner, 0);
	assert_int_equal(link.api_key, 0);
	assert_int_equal(kit_find_generated(store, a, 4), 0);
	assert_tagged(store, STR("old"), 1, 1);
	assert_tagged(store, STR("both"), 2, 2);
	assert_tagged(store, STR("damaged ["), 0, 0);
	uint64_t ids[4];
	struct store_expired over = {.now_ms = 899, .max = 4, .ids = ids};
	assert_int_equal(store_expired(store, &over), 0);
	assert_int_equal(over.count, 2);
	assert_int_equal(ids[0], 4);
	assert_true(ids[1] == 5000000000);
	struct store_list page = {.owner = 7, .limit = 5, .arena = a};
	assert_int_equal(store_list(store, &page), 0);
	assert_int_equal(page.count, 2);
}
