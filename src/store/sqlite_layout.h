/* The link file: its tables, and every statement. For the files of the SQLite store only. */
#pragma once

#include "client/sqlite.h"

enum {
	SQL_BEFORE = SQL_OWN - 1,
#define STATEMENT(name, text) name,
#include "store/sqlite_statements.h"
#undef STATEMENT
	SQL_COUNT,
};

/* Of a feed, behind the statement that reads it. */
enum { FEED_READ, FEED_ADD, FEED_ENDS, FEED_PRUNE };

extern const struct sqlite_layout link_file_layout;
