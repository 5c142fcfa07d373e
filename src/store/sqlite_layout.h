/* The link file: its tables, and every statement. For store_sqlite.c and sqlite_change.c only. */
#pragma once

#include "client/sqlite.h"

enum {
	SQL_LINK_BY_ID = SQL_OWN,
	SQL_LINK_INSERT,
	SQL_LINK_UPDATE,
	SQL_LINK_DELETE,
	SQL_LINKS_OF_ALL,
	SQL_LINKS_OF_OWNER,
	SQL_CLICKS_SET,
	SQL_TAG_ADD,
	SQL_TAG_DROP,
	SQL_TAGGED,
	SQL_ALIAS_BY_NAME,
	SQL_ALIAS_INSERT,
	SQL_ALIAS_DELETE,
	SQL_REPLAY_GET,
	SQL_REPLAY_PUT,
	SQL_REPLAY_PURGE,
	SQL_KEY_BY_ID,
	SQL_KEY_BY_DIGEST,
	SQL_KEY_INSERT,
	SQL_KEY_REVOKE,
	SQL_ADMINS_IN_FORCE,
	SQL_KEYS,
	SQL_COUNTER_GET,
	SQL_COUNTER_SET,
	SQL_SEAL,
	SQL_CONSTANT_GET,
	SQL_CONSTANT_PUT,
	SQL_COUNT,
};

extern const struct sqlite_layout link_file_layout;
