/*
 * Databases of a test program's own on the PostgreSQL server of the tests (postgres_kit.h): the group's setup
 * makes them and its teardown removes them. Where there is no server, tests that need one are skipped and say
 * why.
 */
#pragma once

#include "lib/postgres_kit.h"
#include "lib/relay.h"
#include "store/store.h"

enum { DATABASE_KIT_MAX = 3 };

extern char database_kit_urls[DATABASE_KIT_MAX][POSTGRES_KIT_URL_BYTES];

/* Setups of a group: so many. */
int database_kit_one(void **state);
int database_kit_two(void **state);
int database_kit_three(void **state);
int database_kit_down(void **state); /* the teardown */

/* A test's setup: as if they were new. */
int database_kit_renew(void **state);

/* Skips the test when there are none. */
void database_kit_need(void);

/* Somebody's transaction on it, which stays open until he lets go; and a thread that must wait for him. One
 * of each. */
void database_kit_hold(const char *url, const char *sql);
void database_kit_let_go(void);
void database_kit_start_waiting(const char *url, void *(*run)(void *), void *arg);
void database_kit_join(void);
int database_kit_calm(void **state); /* a test's teardown: neither is left, however it ended */

/* A relay before its server, and the URL that goes through it. */
struct relay *database_kit_relay(const char *url, char ret_url[2 * POSTGRES_KIT_URL_BYTES]);

/* A store on one of them, which must open. */
struct store *database_kit_store(const char *url);
