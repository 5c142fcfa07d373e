/*
 * The link file. Links lie under sequential integer ids, so a new one is appended to the table's last page
 * and costs no search; names that people chose lie in a second, small table. A list by owner walks the index
 * link_by_owner, whose entries end in the row's id.
 *
 * A link's tags stand in its row as they were given, and once more, each by itself, in the table tag, so that
 * the links of a tag are found. Both are written in one transaction.
 *
 * over_ms is link_over_ms of the row, and link_by_over has the links that will be over one day: expiries are
 * mostly given as so much from now, so a new link's entry is appended there too. `permitted` is how many
 * users are on the link's list, so that its bound costs no counting.
 *
 * A name that people chose is held (alias) or rests (resting), never both.
 */
#include "store/sqlite_layout.h"

#include "store/fields.h"

#define FIRST(column, ...)  #column
#define NEXT(column, ...)   ", " #column
#define PLACE(...)          ", ?"
#define ASSIGN(column, ...) ", " #column " = ?"
#define NONE(...)

/* `alias` is link.key of those that have one. */
#define LINK_COLUMNS "alias, " LINK_FIELDS(FIRST, NEXT, NEXT, NONE)
#define LINK_PLACES  "?" LINK_FIELDS(PLACE, PLACE, PLACE, NONE)
#define USER_COLUMNS USER_FIELDS(FIRST, NEXT, NEXT, NONE)
#define KEY_COLUMNS  KEY_FIELDS(FIRST, NEXT, NEXT, NONE)

/* What an admin gets in with: a password, or a key in force at ?1. Numbers are spelled out, so that SQLite
 * knows that the index of admins will do; and they are walked first, for they are few. */
#define ADMIN_SIGNS_IN "role = 3 AND enabled <> 0 AND email IS NOT NULL AND password IS NOT NULL"
#define KEY_FOR_ADMINS "revoked_ms = 0 AND (expires_ms = 0 OR expires_ms > ?1) AND rights & 16"
#define ADMINS_KEYS                                                                            \
	"user u CROSS JOIN api_key k ON k.user_id = u.id WHERE u.role = 3 AND u.enabled <> 0 " \
	"AND " KEY_FOR_ADMINS
_Static_assert(RIGHT_ADMIN == 16 && ROLE_ADMIN == 3, "the statements say so");

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

    /* Links are copied into a new table: ADD COLUMN would read all of a strict one, once for each column.
     * What used to be an API key's becomes that of a user of the same id, whom nobody can be any more when
     * the key is revoked. */
    "CREATE TABLE link_3 ("
    "	id INTEGER PRIMARY KEY,"
    "	alias TEXT,"
    "	owner INTEGER NOT NULL,"
    "	api_key INTEGER NOT NULL,"
    "	user_name TEXT,"
    "	url TEXT NOT NULL,"
    "	created_ms INTEGER NOT NULL,"
    "	updated_ms INTEGER NOT NULL,"
    "	not_before_ms INTEGER NOT NULL,"
    "	expires_ms INTEGER NOT NULL,"
    "	expired_url TEXT,"
    "	max_clicks INTEGER NOT NULL,"
    "	redirect_status INTEGER NOT NULL,"
    "	enabled INTEGER NOT NULL,"
    "	private INTEGER NOT NULL,"
    "	password TEXT,"
    "	title TEXT,"
    "	note TEXT,"
    "	tags TEXT,"
    "	clicks INTEGER NOT NULL,"
    "	over_ms INTEGER NOT NULL,"
    "	permitted INTEGER NOT NULL"
    ") STRICT;"
    "INSERT INTO link_3 SELECT id, alias, owner, owner, user_name, url, created_ms, updated_ms, 0,"
    " expires_ms, NULL, 0, redirect_status, enabled, 0, NULL, title, note, tags, clicks, expires_ms, 0"
    " FROM link ORDER BY id;"
    "DROP TABLE link;"
    "ALTER TABLE link_3 RENAME TO link;"
    "CREATE INDEX link_by_owner ON link (owner);"
    "CREATE INDEX link_by_over ON link (over_ms) WHERE over_ms > 0;"
    "CREATE TABLE permission (link INTEGER, user INTEGER, PRIMARY KEY (link, user)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE resting (" /* aliases that only their last owner may take */
    "	name TEXT PRIMARY KEY,"
    "	owner INTEGER NOT NULL,"
    "	until_ms INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX resting_by_end ON resting (until_ms);"
    "CREATE TABLE ended_session (id BLOB PRIMARY KEY, expires_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX ended_session_by_end ON ended_session (expires_ms);"
    "CREATE TABLE user ("
    "	id INTEGER PRIMARY KEY,"
    "	email TEXT UNIQUE,"
    "	first_name TEXT,"
    "	middle_name TEXT,"
    "	last_name TEXT,"
    "	role INTEGER NOT NULL," /* 1 viewer, 2 editor, 3 admin */
    "	enabled INTEGER NOT NULL,"
    "	password TEXT,"
    "	generation INTEGER NOT NULL,"
    "	created_ms INTEGER NOT NULL,"
    "	updated_ms INTEGER NOT NULL"
    ") STRICT;"
    "INSERT INTO user SELECT id, NULL, name, NULL, NULL, CASE admin WHEN 0 THEN 2 ELSE 3 END, revoked_ms = 0,"
    " NULL, 1, created_ms, created_ms FROM api_key;"
    "CREATE TABLE api_key_3 ("
    "	id INTEGER PRIMARY KEY,"
    "	user INTEGER NOT NULL,"
    "	name TEXT,"
    "	digest BLOB NOT NULL UNIQUE,"
    "	rights INTEGER NOT NULL," /* bits: 1 read, 2 stats, 4 create, 8 delete, 16 admin */
    "	created_ms INTEGER NOT NULL,"
    "	expires_ms INTEGER NOT NULL,"
    "	revoked_ms INTEGER NOT NULL,"
    "	used_ms INTEGER NOT NULL,"
    "	creates_max INTEGER NOT NULL,"
    "	redirects_max INTEGER NOT NULL,"
    "	period_ms INTEGER NOT NULL"
    ") STRICT;"
    "INSERT INTO api_key_3 SELECT id, id, name, digest, CASE admin WHEN 0 THEN 15 ELSE 31 END, created_ms, 0,"
    " revoked_ms, 0, creates_max, redirects_max, period_ms FROM api_key;"
    "DROP TABLE api_key;"
    "ALTER TABLE api_key_3 RENAME TO api_key;",

    "ALTER TABLE api_key RENAME COLUMN user TO user_id;",

    /* One row for each transaction: store/feed.h. */
    "CREATE TABLE link_feed (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, entries BLOB NOT NULL) STRICT;"
    "CREATE TABLE account_feed (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, entries BLOB NOT NULL)"
    " STRICT;",

    /* Accounts that are read one by one. Sessions were tokens without a row, so they have all ended. */
    "DROP TABLE ended_session;"
    "CREATE TABLE session ("
    "	id BLOB PRIMARY KEY,"
    "	user_id INTEGER NOT NULL,"
    "	generation INTEGER NOT NULL,"
    "	created_ms INTEGER NOT NULL,"
    "	expires_ms INTEGER NOT NULL,"
    "	address TEXT,"
    "	agent TEXT"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX session_by_user ON session (user_id);"
    "CREATE INDEX session_by_end ON session (expires_ms);"
    "CREATE INDEX api_key_by_user ON api_key (user_id);"
    "CREATE INDEX api_key_live ON api_key (user_id, expires_ms) WHERE revoked_ms = 0;"
    "CREATE INDEX api_key_by_revocation ON api_key (revoked_ms) WHERE revoked_ms > 0;"
    "CREATE INDEX api_key_by_end ON api_key (expires_ms) WHERE expires_ms > 0;"
    "CREATE INDEX user_admin ON user (id) WHERE role = 3;",
};

/* When a feed is pruned, its last row stays: the next one is numbered by it. */
#define FEED(first, table)                                                                                  \
	[first - SQL_OWN +                                                                                  \
	    FEED_READ] = "SELECT seq, at_ms, entries FROM " table " WHERE seq > ? ORDER BY seq LIMIT ?",    \
	    [first - SQL_OWN + FEED_ADD] = "INSERT INTO " table " (at_ms, entries) VALUES (?, ?)",          \
	    [first - SQL_OWN + FEED_ENDS] = "SELECT min(seq), max(seq) FROM " table,                        \
	    [first - SQL_OWN + FEED_PRUNE] = "DELETE FROM " table " WHERE seq IN (SELECT seq FROM " table   \
	                                     " WHERE at_ms < ?1 AND seq < (SELECT max(seq) FROM " table ")" \
	                                     " ORDER BY seq LIMIT ?2)"

static const char *const sql_texts[SQL_COUNT - SQL_OWN] = {
    [SQL_LINK_BY_ID - SQL_OWN] = "SELECT " LINK_COLUMNS " FROM link WHERE id = ?",
    [SQL_LINK_INSERT - SQL_OWN] = "INSERT INTO link (permitted, over_ms, " LINK_COLUMNS
                                  ") VALUES (0, ?, " LINK_PLACES ") ON CONFLICT (id) DO NOTHING",
    [SQL_LINK_UPDATE -
        SQL_OWN] = "UPDATE link SET over_ms = ?" LINK_FIELDS(NONE, NONE, ASSIGN, NONE) " WHERE id = ?",
    [SQL_LINK_DELETE - SQL_OWN] = "DELETE FROM link WHERE id = ?",
    [SQL_LINKS_OF_ALL - SQL_OWN] = "SELECT " LINK_COLUMNS
                                   " FROM link WHERE id <= ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_LINKS_OF_OWNER - SQL_OWN] = "SELECT " LINK_COLUMNS
                                     " FROM link WHERE id <= ?1 AND owner = ?3 ORDER BY id DESC LIMIT ?2",
    [SQL_LINKS_OVER - SQL_OWN] = "SELECT id FROM link WHERE over_ms > 0 AND over_ms <= ?"
                                 " ORDER BY over_ms, id LIMIT ?",
    [SQL_LINKS_OVER_COUNT - SQL_OWN] = "SELECT count(*) FROM link WHERE over_ms > 0 AND over_ms <= ?",
    [SQL_PERMISSION_GET - SQL_OWN] = "SELECT 1 FROM permission WHERE link = ? AND user = ?",
    [SQL_PERMISSION_ADD - SQL_OWN] = "INSERT INTO permission (link, user) VALUES (?, ?)",
    [SQL_PERMISSION_DROP - SQL_OWN] = "DELETE FROM permission WHERE link = ? AND user = ?",
    [SQL_PERMITTED_GET - SQL_OWN] = "SELECT permitted FROM link WHERE id = ?",
    [SQL_PERMITTED_SET - SQL_OWN] = "UPDATE link SET permitted = ?2 WHERE id = ?1",
    [SQL_PERMISSIONS - SQL_OWN] = "SELECT user FROM permission WHERE link = ? ORDER BY user",
    [SQL_PERMISSIONS_DROP - SQL_OWN] = "DELETE FROM permission WHERE link = ?",
    /* A total that is there already costs no write. */
    [SQL_CLICKS_SET - SQL_OWN] = "UPDATE link SET clicks = ?2 WHERE id = ?1 AND clicks <> ?2",
    [SQL_TAG_ADD - SQL_OWN] = "INSERT INTO tag (name, link) VALUES (?, ?) ON CONFLICT DO NOTHING",
    [SQL_TAG_DROP - SQL_OWN] = "DELETE FROM tag WHERE name = ? AND link = ?",
    [SQL_TAGGED - SQL_OWN] = "SELECT link FROM tag WHERE name = ? ORDER BY link DESC LIMIT ?",
    [SQL_ALIAS_BY_NAME - SQL_OWN] = "SELECT id FROM alias WHERE name = ?",
    /* Who holds a name, and for whom it rests. */
    [SQL_NAME_STATE - SQL_OWN] = "SELECT (SELECT id FROM alias WHERE name = ?1), owner, until_ms"
                                 " FROM (SELECT 1) LEFT JOIN resting ON name = ?1",
    [SQL_ALIAS_INSERT - SQL_OWN] = "INSERT INTO alias (name, id) VALUES (?, ?)",
    [SQL_ALIAS_DELETE - SQL_OWN] = "DELETE FROM alias WHERE name = ?",
    [SQL_REST_PUT - SQL_OWN] = "INSERT INTO resting (name, owner, until_ms) VALUES (?, ?, ?)"
                               " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner,"
                               " until_ms = excluded.until_ms",
    [SQL_REST_DROP - SQL_OWN] = "DELETE FROM resting WHERE name = ?",
    [SQL_REST_PURGE - SQL_OWN] = "DELETE FROM resting WHERE name IN (SELECT name FROM resting"
                                 " WHERE until_ms <= ? ORDER BY until_ms LIMIT ?)",
    [SQL_REPLAY_GET -
        SQL_OWN] = "SELECT fingerprint, link, created_ms FROM replay WHERE owner = ? AND key = ?",
    [SQL_REPLAY_PUT -
        SQL_OWN] = "INSERT INTO replay (owner, key, fingerprint, link, created_ms) VALUES (?,?,?,?,?)"
                   " ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint,"
                   " link = excluded.link, created_ms = excluded.created_ms",
    [SQL_REPLAY_PURGE - SQL_OWN] = "DELETE FROM replay WHERE (owner, key) IN"
                                   " (SELECT owner, key FROM replay WHERE created_ms <= ?"
                                   " ORDER BY created_ms LIMIT ?)",
    [SQL_USER_BY_ID - SQL_OWN] = "SELECT " USER_COLUMNS " FROM user WHERE id = ?",
    [SQL_USER_BY_EMAIL - SQL_OWN] = "SELECT " USER_COLUMNS " FROM user WHERE email = ?",
    [SQL_USER_INSERT - SQL_OWN] = "INSERT INTO user (" USER_COLUMNS
                                  ") VALUES (?" USER_FIELDS(NONE, PLACE, PLACE, NONE) ")",
    [SQL_USER_UPDATE - SQL_OWN] = "UPDATE user SET created_ms = created_ms" USER_FIELDS(NONE, NONE, ASSIGN,
                                                                                        NONE) " WHERE id = ?",
    [SQL_USERS - SQL_OWN] = "SELECT " USER_COLUMNS " FROM user WHERE id > ? ORDER BY id LIMIT ?",
    [SQL_OTHER_ADMIN - SQL_OWN] = "SELECT 1 FROM user WHERE id <> ?2 AND " ADMIN_SIGNS_IN
                                  " UNION ALL SELECT 1 FROM " ADMINS_KEYS " AND u.id <> ?2 LIMIT 1",
    [SQL_ADMIN_KEY_OF - SQL_OWN] = "SELECT 1 FROM api_key WHERE user_id = ?2 AND " KEY_FOR_ADMINS " LIMIT 1",
    [SQL_SESSION_INSERT -
        SQL_OWN] = "INSERT INTO session (id, user_id, generation, created_ms, expires_ms, address, agent)"
                   " VALUES (?, ?, ?, ?, ?, ?, ?)",
    [SQL_SESSION_DELETE - SQL_OWN] = "DELETE FROM session WHERE id = ?",
    [SQL_SESSION_PURGE - SQL_OWN] = "DELETE FROM session WHERE id IN (SELECT id FROM session"
                                    " WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)",
    [SQL_SESSION_BY_ID -
        SQL_OWN] = "SELECT user_id, generation, created_ms, expires_ms FROM session WHERE id = ?",
    [SQL_KEY_BY_ID - SQL_OWN] = "SELECT " KEY_COLUMNS " FROM api_key WHERE id = ?",
    [SQL_KEY_BY_DIGEST - SQL_OWN] = "SELECT " KEY_COLUMNS " FROM api_key WHERE digest = ?",
    /* Of user ?1 at ?2, up to ?3. */
    [SQL_KEYS_LIVE - SQL_OWN] =
        "SELECT count(*) FROM (SELECT 1 FROM api_key WHERE user_id = ?1 AND revoked_ms = 0 AND expires_ms = 0"
        " UNION ALL SELECT 1 FROM api_key WHERE user_id = ?1 AND revoked_ms = 0 AND expires_ms > MAX(0, ?2)"
        " LIMIT ?3)",
    [SQL_KEY_INSERT - SQL_OWN] = "INSERT INTO api_key (" KEY_COLUMNS
                                 ") VALUES (?" KEY_FIELDS(NONE, PLACE, PLACE, NONE) ")",
    [SQL_KEY_REVOKE - SQL_OWN] = "UPDATE api_key SET revoked_ms = ?2 WHERE id = ?1",
    [SQL_KEY_USED - SQL_OWN] = "UPDATE api_key SET used_ms = ?2 WHERE id = ?1",
    /* The last key stays: SQLite would give its id to the next one, and links know keys by their ids. */
    [SQL_KEY_PURGE_REVOKED - SQL_OWN] =
        "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE revoked_ms > 0 AND revoked_ms <= ?"
        " ORDER BY revoked_ms LIMIT ?) AND id < (SELECT max(id) FROM api_key)",
    [SQL_KEY_PURGE_EXPIRED - SQL_OWN] =
        "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE expires_ms > 0 AND expires_ms <= ?"
        " ORDER BY expires_ms LIMIT ?) AND id < (SELECT max(id) FROM api_key)",
    /* Two will do. */
    [SQL_ADMIN_KEYS - SQL_OWN] = "SELECT k.id FROM " ADMINS_KEYS " LIMIT 2",
    [SQL_KEYS_OF_ALL - SQL_OWN] = "SELECT " KEY_COLUMNS " FROM api_key WHERE id > ?1 ORDER BY id LIMIT ?2",
    [SQL_KEYS_OF_USER - SQL_OWN] = "SELECT " KEY_COLUMNS
                                   " FROM api_key WHERE id > ?1 AND user_id = ?3 ORDER BY id LIMIT ?2",
    FEED(SQL_LINK_FEED, "link_feed"),
    FEED(SQL_ACCOUNT_FEED, "account_feed"),
    [SQL_COUNTER_GET - SQL_OWN] = "SELECT next FROM counter WHERE name = ?",
    [SQL_COUNTER_SET - SQL_OWN] = "INSERT INTO counter (name, next) VALUES (?, ?)"
                                  " ON CONFLICT (name) DO UPDATE SET next = excluded.next",
    [SQL_CONSTANT_GET - SQL_OWN] = "SELECT value FROM constant WHERE name = ?",
    [SQL_CONSTANT_PUT - SQL_OWN] = "INSERT INTO constant (name, value) VALUES (?, ?)",
    [SQL_CONSTANTS_DROP - SQL_OWN] = "DELETE FROM constant WHERE name >= ? AND name < ?",
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
