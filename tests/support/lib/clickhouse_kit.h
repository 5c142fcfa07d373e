/*
 * A ClickHouse server for tests: CURT_TEST_CLICKHOUSE=HOST:PORT, user default, no password. Each test takes a
 * database of its own.
 */
#pragma once

#include "base/buf.h"

enum { CLICKHOUSE_KIT_BYTES = 128 };

bool clickhouse_kit_is_there(void); /* says why when it is not */

/* The URL of a database that nobody has used; opening it makes it. */
void clickhouse_kit_url(char ret[CLICKHOUSE_KIT_BYTES]);

/* Drops the database of the last URL. */
void clickhouse_kit_drop(void);

/* Runs a statement in it and asserts that it works; the answer is as the statement's FORMAT says. */
void clickhouse_kit_run(const char *sql, struct buf *ret_answer);
