/* All statements of a link file: an enum in sqlite_store.h, the texts in sqlite_layout.c. */

/* Pruning keeps the last row of a feed, because the next row is numbered after it. */
#define FEED(name, table)                                                                                   \
	STATEMENT(name, "SELECT seq, at_ms, entries FROM " table " WHERE seq > ? ORDER BY seq LIMIT ?")     \
	STATEMENT(name##_ADD, "INSERT INTO " table " (at_ms, entries) VALUES (?, ?)")                       \
	STATEMENT(name##_ENDS, "SELECT (SELECT min(seq) FROM " table "), (SELECT max(seq) FROM " table ")") \
	STATEMENT(name##_PRUNE,                                                                             \
	          "DELETE FROM " table " WHERE seq IN (SELECT seq FROM " table                              \
	          " WHERE at_ms < ?1 AND seq < (SELECT max(seq) FROM " table ") ORDER BY seq LIMIT ?2)")

STATEMENT(SQL_LINK_BY_ID, "SELECT " LINK_COLUMNS " FROM link WHERE id = ?")
STATEMENT(SQL_LINK_INSERT, "INSERT INTO link (permitted, over_ms, " LINK_COLUMNS
                           ") VALUES (0, ?, " LINK_PLACES ") ON CONFLICT (id) DO NOTHING")
STATEMENT(SQL_LINK_UPDATE,
          "UPDATE link SET over_ms = ?" LINK_FIELDS(NONE, NONE, ASSIGN, NONE) " WHERE id = ?")
STATEMENT(SQL_LINK_DELETE, "DELETE FROM link WHERE id = ?")
STATEMENT(SQL_LINKS_OF_ALL, "SELECT " LINK_COLUMNS " FROM link WHERE id <= ?1 ORDER BY id DESC LIMIT ?2")
STATEMENT(SQL_LINKS_OF_OWNER,
          "SELECT " LINK_COLUMNS " FROM link WHERE id <= ?1 AND owner = ?3 ORDER BY id DESC LIMIT ?2")
STATEMENT(SQL_LINKS_EXPIRED, "SELECT id FROM link WHERE over_ms > 0 AND over_ms <= ?"
                             " ORDER BY over_ms, id LIMIT ?")
STATEMENT(SQL_LINKS_EXPIRED_COUNT, "SELECT count(*) FROM link WHERE over_ms > 0 AND over_ms <= ?")
STATEMENT(SQL_PERMISSION_GET, "SELECT 1 FROM permission WHERE link = ? AND user = ?")
STATEMENT(SQL_PERMISSION_ADD, "INSERT INTO permission (link, user) VALUES (?, ?)")
STATEMENT(SQL_PERMISSION_DROP, "DELETE FROM permission WHERE link = ? AND user = ?")
STATEMENT(SQL_PERMITTED_GET, "SELECT permitted FROM link WHERE id = ?")
STATEMENT(SQL_PERMITTED_SET, "UPDATE link SET permitted = ?2 WHERE id = ?1")
STATEMENT(SQL_PERMISSIONS, "SELECT user FROM permission WHERE link = ? ORDER BY user")
STATEMENT(SQL_PERMISSIONS_DROP, "DELETE FROM permission WHERE link = ?")
/* An unchanged total costs no write. */
STATEMENT(SQL_CLICKS_SET, "UPDATE link SET clicks = ?2 WHERE id = ?1 AND clicks <> ?2")
STATEMENT(SQL_TAG_ADD, "INSERT INTO tag (name, link) VALUES (?, ?) ON CONFLICT DO NOTHING")
STATEMENT(SQL_TAG_DROP, "DELETE FROM tag WHERE name = ? AND link = ?")
STATEMENT(SQL_TAGGED, "SELECT link FROM tag WHERE name = ? ORDER BY link DESC LIMIT ?")
STATEMENT(SQL_ALIAS_BY_NAME, "SELECT id FROM alias WHERE name = ?")
/* The holder of a name, and its quarantine. */
STATEMENT(SQL_NAME_STATE, "SELECT (SELECT id FROM alias WHERE name = ?1), owner, until_ms"
                          " FROM (SELECT 1) LEFT JOIN resting ON name = ?1")
STATEMENT(SQL_ALIAS_INSERT, "INSERT INTO alias (name, id) VALUES (?, ?)")
/* A name and a link that do not lead to each other: damage. */
STATEMENT(SQL_ALIAS_ASTRAY,
          "SELECT name FROM alias LEFT JOIN link ON link.id = alias.id WHERE link.alias IS NOT alias.name"
          " UNION ALL SELECT link.alias FROM link LEFT JOIN alias ON name = link.alias"
          " WHERE link.alias IS NOT NULL AND alias.id IS NOT link.id LIMIT 1")
STATEMENT(SQL_ALIAS_DELETE, "DELETE FROM alias WHERE name = ?")
STATEMENT(SQL_QUARANTINE_PUT, "INSERT INTO resting (name, owner, until_ms) VALUES (?, ?, ?)"
                              " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner,"
                              " until_ms = excluded.until_ms")
STATEMENT(SQL_QUARANTINE_DROP, "DELETE FROM resting WHERE name = ?")
STATEMENT(SQL_QUARANTINE_PURGE, "DELETE FROM resting WHERE name IN (SELECT name FROM resting"
                                " WHERE until_ms <= ? ORDER BY until_ms LIMIT ?)")
STATEMENT(SQL_REPLAY_GET, "SELECT fingerprint, link, created_ms FROM replay WHERE owner = ? AND key = ?")
STATEMENT(SQL_REPLAY_PUT, "INSERT INTO replay (owner, key, fingerprint, link, created_ms) VALUES (?,?,?,?,?)"
                          " ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint,"
                          " link = excluded.link, created_ms = excluded.created_ms")
STATEMENT(SQL_REPLAY_PURGE, "DELETE FROM replay WHERE (owner, key) IN"
                            " (SELECT owner, key FROM replay WHERE created_ms <= ?"
                            " ORDER BY created_ms LIMIT ?)")
STATEMENT(SQL_USER_BY_ID, "SELECT " USER_COLUMNS " FROM user WHERE id = ?")
STATEMENT(SQL_USER_BY_EMAIL, "SELECT " USER_COLUMNS " FROM user WHERE email = ?")
STATEMENT(SQL_USER_INSERT,
          "INSERT INTO user (" USER_COLUMNS ") VALUES (?" USER_FIELDS(NONE, PLACE, PLACE, NONE) ")")
STATEMENT(SQL_USER_UPDATE,
          "UPDATE user SET created_ms = created_ms" USER_FIELDS(NONE, NONE, ASSIGN, NONE) " WHERE id = ?")
STATEMENT(SQL_USERS, "SELECT " USER_COLUMNS " FROM user WHERE id > ? ORDER BY id LIMIT ?")
STATEMENT(SQL_OTHER_ADMIN, "SELECT 1 FROM user WHERE id <> ?2 AND " ADMIN_SIGNS_IN
                           " UNION ALL SELECT 1 FROM " ADMINS_KEYS " AND u.id <> ?2 LIMIT 1")
STATEMENT(SQL_ADMIN_KEY_OF, "SELECT 1 FROM api_key WHERE user_id = ?2 AND " KEY_FOR_ADMINS " LIMIT 1")
STATEMENT(SQL_SESSION_INSERT,
          "INSERT INTO session (id, user_id, generation, created_ms, expires_ms, address, agent)"
          " VALUES (?, ?, ?, ?, ?, ?, ?)")
STATEMENT(SQL_SESSION_DELETE, "DELETE FROM session WHERE id = ?")
STATEMENT(SQL_SESSION_PURGE, "DELETE FROM session WHERE id IN (SELECT id FROM session"
                             " WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)")
STATEMENT(SQL_SESSION_BY_ID, "SELECT user_id, generation, created_ms, expires_ms FROM session WHERE id = ?")
STATEMENT(SQL_KEY_BY_ID, "SELECT " KEY_COLUMNS " FROM api_key WHERE id = ?")
STATEMENT(SQL_KEY_BY_DIGEST, "SELECT " KEY_COLUMNS " FROM api_key WHERE digest = ?")
/* Active keys of user ?1 at ?2, counted up to ?3. */
STATEMENT(
    SQL_KEYS_LIVE,
    "SELECT count(*) FROM (SELECT 1 FROM api_key WHERE user_id = ?1 AND revoked_ms = 0 AND expires_ms = 0"
    " UNION ALL SELECT 1 FROM api_key WHERE user_id = ?1 AND revoked_ms = 0 AND expires_ms > MAX(0, ?2)"
    " LIMIT ?3)")
STATEMENT(SQL_KEY_INSERT,
          "INSERT INTO api_key (" KEY_COLUMNS ") VALUES (?" KEY_FIELDS(NONE, PLACE, PLACE, NONE) ")")
STATEMENT(SQL_KEY_REVOKE, "UPDATE api_key SET revoked_ms = ?2 WHERE id = ?1")
STATEMENT(SQL_KEY_USED, "UPDATE api_key SET used_ms = ?2 WHERE id = ?1")
/* The last key is kept: SQLite would reuse its id, and links refer to keys by id. */
STATEMENT(SQL_KEY_PURGE_REVOKED,
          "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE revoked_ms > 0 AND revoked_ms <= ?"
          " ORDER BY revoked_ms LIMIT ?) AND id < (SELECT max(id) FROM api_key)")
STATEMENT(SQL_KEY_PURGE_EXPIRED,
          "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE expires_ms > 0 AND expires_ms <= ?"
          " ORDER BY expires_ms LIMIT ?) AND id < (SELECT max(id) FROM api_key)")
/* Two are enough for the rules. */
STATEMENT(SQL_ADMIN_KEYS, "SELECT k.id FROM " ADMINS_KEYS " LIMIT 2")
STATEMENT(SQL_KEYS_OF_ALL, "SELECT " KEY_COLUMNS " FROM api_key WHERE id > ?1 ORDER BY id LIMIT ?2")
STATEMENT(SQL_KEYS_OF_USER,
          "SELECT " KEY_COLUMNS " FROM api_key WHERE id > ?1 AND user_id = ?3 ORDER BY id LIMIT ?2")
FEED(SQL_LINK_FEED, "link_feed")
FEED(SQL_ACCOUNT_FEED, "account_feed")
STATEMENT(SQL_COUNTER_GET, "SELECT next FROM counter WHERE name = ?")
STATEMENT(SQL_COUNTER_SET, "INSERT INTO counter (name, next) VALUES (?, ?)"
                           " ON CONFLICT (name) DO UPDATE SET next = excluded.next")
STATEMENT(SQL_CONSTANT_GET, "SELECT value FROM constant WHERE name = ?")
STATEMENT(SQL_CONSTANT_PUT, "INSERT INTO constant (name, value) VALUES (?, ?)")
STATEMENT(SQL_CONSTANTS_DROP, "DELETE FROM constant WHERE name >= ? AND name < ?")
#undef FEED
