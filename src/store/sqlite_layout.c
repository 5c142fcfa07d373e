/*
 * The link file. Links lie under sequential integer ids, so a new one is appended to the table's last page
 * and costs no search; names that people chose lie in a second, small table. A list by owner walks the index
 * link_by_owner, whose entries end in the row's id.
 *
 * A link's tags stand in its row as they were given, and once more, each by itself, in the table tag, so that
 * the links of a tag are found. Both are written in one transaction.
 *
 * over_ms is link_expired_ms of the row, and link_by_over has the links that will be over one day: expiries
 * are mostly given as so much from now, so a new link's entry is appended there too. `permitted` is how many
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

    "ALTER TABLE link ADD COLUMN external_id TEXT;"
    "CREATE INDEX link_by_external_id ON link (external_id) WHERE external_id IS NOT NULL;",
};

static const char *const sql_texts[] = {
#define STATEMENT(name, text) text,
#include "store/sqlite_statements.h"
#undef STATEMENT
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
