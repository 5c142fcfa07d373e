/* The parts of a clickhouse:// URL (client/clickhouse.h has its form). */
#pragma once

#include "base/err.h"

#include "client/clickhouse.h"

struct clickhouse_url {
	char *endpoint; /* http://HOST:PORT/ */
	char *address;  /* HOST:PORT */
	char *database;
	char *user;     /* NULL: none */
	char *password; /* NULL: none */
	bool is_packed; /* INSERTs are */
};

/* What is wrong is said without repeating a byte of the URL: a password that was put in the wrong place would
 * come out with it. */
int clickhouse_url_parse(struct str url, struct clickhouse_url *ret, struct err *e);
void clickhouse_url_release(struct clickhouse_url *u);
