/*
 * The link file. Links lie under sequential integer ids, so a new one is appended to the table's last page
 * and costs no search; names that people chose lie in a second, small table. A list by owner walks the index
 * link_by_owner, whose entries end in the row's id.
 *
 * A link's tags stand in its row as they were given, and once more, each by itself, in the table tag, so that
 * the links of a tag are found. Both are written in one transaction.
 */
#include "store/sqlite_layout.h"

#define LINK_COLUMNS                                                                              \
	"id, alias, owner, user_name, url, created_ms, updated_ms, expires_ms, redirect_status, " \
	"enabled, title, note, tags, clicks"
#define KEY_COLUMNS "id, name, digest, admin, created_ms, revoked_ms, creates_max, redirects_max, period_ms"

static const char *const migrations[] = {
    "CREATE TABLE link ("
    "	id INTEGER PRIMARY KEY,"
    "	alias TEXT," /* NULL: named by the key that encodes id */
    "	owner INTEGER NOT NULL,"
    "	user_name TEXT,"
    "	url TEXT NOT NULL,"
    "	created_ms INTEGER NOT NULL,"
    "	updated_ms INTEGER NOT NULL,"
    "	expires_ms INTEGER NOT NULL,"
    "	redirect_status INTEGER NOT NULL,"
    "	enabled INTEGER NOT NULL,"
    "	title TEXT,"
    "	note TEXT,"
    "	tags TEXT"
    ") STRICT;"
    "CREATE INDEX link_by_owner ON link (owner);"
    "CREATE TABLE alias (name TEXT PRIMARY KEY, id INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE replay (" /* answers to creates with an idempotency key */
    "	owner INTEGER NOT NULL,"
    "	key TEXT NOT NULL,"
    "	fingerprint BLOB NOT NULL,"
    "	link INTEGER NOT NULL,"
    "	created_ms INTEGER NOT NULL,"
    "	PRIMARY KEY (owner, key)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX replay_by_age ON replay (created_ms);"
    "CREATE TABLE api_key ("
    "	id INTEGER PRIMARY KEY,"
    "	name TEXT,"
    "	digest BLOB NOT NULL UNIQUE,"
    "	admin INTEGER NOT NULL,"
    "	created_ms INTEGER NOT NULL,"
    "	revoked_ms INTEGER NOT NULL,"
    "	creates_max INTEGER NOT NULL,"
    "	redirects_max INTEGER NOT NULL,"
    "	period_ms INTEGER NOT NULL"
    ") STRICT;"
    "CREATE TABLE counter (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE constant (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;",

    "ALTER TABLE link ADD COLUMN clicks INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE tag (name TEXT, link INTEGER, PRIMARY KEY (name, link)) STRICT, WITHOUT ROWID;"
    /* Not json_valid(): it says no, too, when memory has run out. */
    "INSERT INTO tag (name, link) SELECT value, link.id FROM link,"
    " json_each(CASE WHEN link.tags LIKE '[\"%\"]' THEN link.tags ELSE '[]' END)"
    " WHERE type = 'text' ON CONFLICT DO NOTHING;",
};

static const char *const sql_texts[SQL_COUNT - SQL_OWN] = {
    [SQL_LINK_BY_ID - SQL_OWN] = "SELECT " LINK_COLUMNS " FROM link WHERE id = ?",
    [SQL_LINK_INSERT - SQL_OWN] = "INSERT INTO link (" LINK_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,0)"
                                  " ON CONFLICT (id) DO NOTHING",
    [SQL_LINK_UPDATE -
        SQL_OWN] = "UPDATE link SET url = ?, updated_ms = ?, expires_ms = ?, redirect_status = ?,"
                   " enabled = ?, title = ?, note = ?, tags = ? WHERE id = ?",
    [SQL_LINK_DELETE - SQL_OWN] = "DELETE FROM link WHERE id = ?",
    [SQL_LINKS_OF_ALL - SQL_OWN] = "SELECT " LINK_COLUMNS
                                   " FROM link WHERE id <= ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_LINKS_OF_OWNER - SQL_OWN] = "SELECT " LINK_COLUMNS
                                     " FROM link WHERE id <= ?1 AND owner = ?3 ORDER BY id DESC LIMIT ?2",
    /* A total that is there already costs no write. */
    [SQL_CLICKS_SET - SQL_OWN] = "UPDATE link SET clicks = ?2 WHERE id = ?1 AND clicks <> ?2",
    [SQL_TAG_ADD - SQL_OWN] = "INSERT INTO tag (name, link) VALUES (?, ?) ON CONFLICT DO NOTHING",
    [SQL_TAG_DROP - SQL_OWN] = "DELETE FROM tag WHERE name = ? AND link = ?",
    [SQL_TAGGED - SQL_OWN] = "SELECT link FROM tag WHERE name = ? ORDER BY link DESC LIMIT ?",
    [SQL_ALIAS_BY_NAME - SQL_OWN] = "SELECT id FROM alias WHERE name = ?",
    [SQL_ALIAS_INSERT - SQL_OWN] = "INSERT INTO alias (name, id) VALUES (?, ?)",
    [SQL_ALIAS_DELETE - SQL_OWN] = "DELETE FROM alias WHERE name = ?",
    [SQL_REPLAY_GET -
        SQL_OWN] = "SELECT fingerprint, link, created_ms FROM replay WHERE owner = ? AND key = ?",
    [SQL_REPLAY_PUT -
        SQL_OWN] = "INSERT INTO replay (owner, key, fingerprint, link, created_ms) VALUES (?,?,?,?,?)"
                   " ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint,"
                   " link = excluded.link, created_ms = excluded.created_ms",
    [SQL_REPLAY_PURGE - SQL_OWN] = "DELETE FROM replay WHERE (owner, key) IN"
                                   " (SELECT owner, key FROM replay WHERE created_ms <= ?"
                                   " ORDER BY created_ms LIMIT ?)",
    [SQL_KEY_BY_ID - SQL_OWN] = "SELECT " KEY_COLUMNS " FROM api_key WHERE id = ?",
    [SQL_KEY_BY_DIGEST - SQL_OWN] = "SELECT 1 FROM api_key WHERE digest = ?",
    [SQL_KEY_INSERT -
        SQL_OWN] = "INSERT INTO api_key (name, digest, admin, created_ms, revoked_ms, creates_max,"
                   " redirects_max, period_ms) VALUES (?,?,?,?,?,?,?,?)",
    [SQL_KEY_REVOKE - SQL_OWN] = "UPDATE api_key SET revoked_ms = ? WHERE id = ?",
    [SQL_ADMINS_IN_FORCE - SQL_OWN] = "SELECT count(*) FROM api_key WHERE admin <> 0 AND revoked_ms = 0",
    [SQL_KEYS - SQL_OWN] = "SELECT " KEY_COLUMNS " FROM api_key ORDER BY id",
    [SQL_COUNTER_GET - SQL_OWN] = "SELECT next FROM counter WHERE name = ?",
    [SQL_COUNTER_SET - SQL_OWN] = "INSERT INTO counter (name, next) VALUES (?, ?)"
                                  " ON CONFLICT (name) DO UPDATE SET next = excluded.next",
    [SQL_SEAL - SQL_OWN] = "INSERT INTO counter (name, next) VALUES ('', 1)" /* no lease has an empty name */
                           " ON CONFLICT (name) DO UPDATE SET next = next + 1",
    [SQL_CONSTANT_GET - SQL_OWN] = "SELECT value FROM constant WHERE name = ?",
    [SQL_CONSTANT_PUT - SQL_OWN] = "INSERT INTO constant (name, value) VALUES (?, ?)",
};

const struct sqlite_layout link_file_layout = {
    .application_id = 0x63757274, /* "curt" */
    .migrations = migrations,
    .migration_count = ARRAY_LEN(migrations),
    .sql = sql_texts,
    .sql_count = SQL_COUNT,
    .writer_pragmas =
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -2000; PRAGMA journal_size_limit = 16777216",
};
