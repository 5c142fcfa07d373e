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
	bool is_packed; /* INSERTs are compressed */
};

/* Errors repeat no byte of the URL: it may contain a misplaced password. */
int clickhouse_url_parse(struct str url, struct clickhouse_url *ret, struct err *e);
void clickhouse_url_release(struct clickhouse_url *u);
