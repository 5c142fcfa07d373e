/*
 * The tables of a link file.
 *
 *	link         a link, under a sequential id: a new one is appended to the last page, without a search
 *	alias        chosen names
 *	tag          the tags of a link, one row each; link.tags has them as given
 *	permission   users who may follow a private link; link.permitted is their number
 *	resting      quarantine: aliases that only their last owner may take; never also in `alias`
 *	replay       creates with an idempotency key
 *	user, api_key, session, counter, constant      the registry
 *	link_feed, account_feed                        one row per transaction: feed.h
 *
 * link.over_ms is link_expired_ms. Most expiries are relative to now, so a new link's entry is appended to
 * link_by_over, too. link_by_owner ends in the id, so the list of an owner's links walks that index.
 */
#include "store/sqlite_store.h"

#define FIRST(column, ...)  #column
#define NEXT(column, ...)   ", " #column
#define PLACE(...)          ", ?"
#define ASSIGN(column, ...) ", " #column " = ?"
#define NONE(...)

/* `alias` is link.key, or NULL. */
#define LINK_COLUMNS "alias, " LINK_FIELDS(FIRST, NEXT, NEXT, NONE)
#define LINK_PLACES  "?" LINK_FIELDS(PLACE, PLACE, PLACE, NONE)
#define USER_COLUMNS USER_FIELDS(FIRST, NEXT, NEXT, NONE)
#define KEY_COLUMNS  KEY_FIELDS(FIRST, NEXT, NEXT, NONE)

/* How an admin can sign in: with a password, or with a key active at ?1. Numbers are literals so that
 * SQLite uses the index of admins, which comes first because they are few. */
#define ADMIN_SIGNS_IN "role = 3 AND enabled <> 0 AND email IS NOT NULL AND password IS NOT NULL"
#define KEY_FOR_ADMINS "revoked_ms = 0 AND (expires_ms = 0 OR expires_ms > ?1) AND rights & 16"
#define ADMINS_KEYS                                                                            \
	"user u CROSS JOIN api_key k ON k.user_id = u.id WHERE u.role = 3 AND u.enabled <> 0 " \
	"AND " KEY_FOR_ADMINS
_Static_assert(RIGHT_ADMIN == 16 && ROLE_ADMIN == 3, "the statements say so");

static const char *const migrations[] = {
    "CREATE TABLE link ("
    "	id INTEGER PRIMARY KEY,"
    "	alias TEXT," /* NULL: the key that encodes id */
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
    "CREATE TABLE replay (" /* creates with an idempotency key */
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
    /* Not json_valid(): it also fails when memory runs out. */
    "INSERT INTO tag (name, link) SELECT value, link.id FROM link,"
    " json_each(CASE WHEN link.tags LIKE '[\"%\"]' THEN link.tags ELSE '[]' END)"
    " WHERE type = 'text' ON CONFLICT DO NOTHING;",

    /* Links are copied into a new table: ADD COLUMN would scan a strict table once per column. What
     * belonged to an API key goes to a user with the same id, who is disabled if the key was revoked. */
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
    "CREATE TABLE resting (" /* quarantine */
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

    /* One row per transaction: store/feed.h. */
    "CREATE TABLE link_feed (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, entries BLOB NOT NULL) STRICT;"
    "CREATE TABLE account_feed (seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, entries BLOB NOT NULL)"
    " STRICT;",

    /* Sessions were tokens without a row: all have ended. */
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
