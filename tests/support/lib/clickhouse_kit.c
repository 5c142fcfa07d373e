#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/clickhouse_kit.h"

#include "client/clickhouse.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char database[64];

bool clickhouse_kit_is_there(void)
{
	if (getenv("CURT_TEST_CLICKHOUSE"))
		return true;
	print_message("CURT_TEST_CLICKHOUSE names no server: nothing is tried on ClickHouse\n");
	return false;
}

void clickhouse_kit_url(char ret[CLICKHOUSE_KIT_BYTES])
{
	static unsigned number;
	snprintf(database, sizeof(database), "curt_test_%d_%u", (int)getpid(), ++number);
	snprintf(ret, CLICKHOUSE_KIT_BYTES, "clickhouse://%s/%s", getenv("CURT_TEST_CLICKHOUSE"), database);
}

static void run(const char *sql, bool without_database, struct buf *ret_answer)
{
	char url[CLICKHOUSE_KIT_BYTES];
	struct clickhouse *c = NULL;
	struct err e = {""};
	snprintf(url, sizeof(url), "clickhouse://%s/%s", getenv("CURT_TEST_CLICKHOUSE"), database);
	assert_int_equal(clickhouse_new(str_of(url), &c, &e), 0);
	struct clickhouse_call call = {
	    .sql = str_of(sql), .timeout_ms = 60000, .without_database = without_database};
	int r = clickhouse_run(c, &call, ret_answer, &e);
	clickhouse_free(c);
	if (r != 0)
		print_error("%s\n", e.text);
	assert_int_equal(r, 0);
}

void clickhouse_kit_drop(void)
{
	char sql[128];
	snprintf(sql, sizeof(sql), "DROP DATABASE IF EXISTS %s", database);
	run(sql, true, NULL);
}

void clickhouse_kit_run(const char *sql, struct buf *ret_answer)
{
	run(sql, false, ret_answer);
}
