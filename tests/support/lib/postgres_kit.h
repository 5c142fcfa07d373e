/*
 * A PostgreSQL server for tests: CURT_TEST_POSTGRES is the URL of a superuser of a server where databases may
 * be made. Without it there is no server, and such tests are skipped.
 */
#pragma once

#include "client/postgres.h"

enum { POSTGRES_KIT_URL_BYTES = 512 };

bool postgres_kit_is_there(void); /* prints why not */

/* CURT_TEST_CITUS=1: the server has the extension citus, and every database that is made gets it. */
bool postgres_kit_has_citus(void);

/* CURT_TEST_TIMESCALE=1: likewise timescaledb. */
bool postgres_kit_has_timescale(void);

/* A new database's URL. */
void postgres_kit_database_make(char ret_url[POSTGRES_KIT_URL_BYTES]);
void postgres_kit_database_remove(const char *url); /* who is connected to it is thrown out */

/* Takes away everything that a store has put into it, and leaves the tables. */
void postgres_kit_database_empty(const char *url);

/* Makes the database look as if it had the extension citus, so that what is done for its sake is tried. Where
 * it has it, nothing happens. */
void postgres_kit_citus_feign(const char *url);

/* Runs SQL on the database; must work. */
void postgres_kit_run(const char *url, const char *sql);

/* The first cell, a number. */
int64_t postgres_kit_ask(const char *url, const char *sql);
