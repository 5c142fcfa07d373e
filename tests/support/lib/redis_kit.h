/*
 * Redis servers of a test program's own, which its tests may flush, stop and kill: the group's setup starts
 * them, each test begins with all of them well and empty, and the group's teardown ends them. Where there is
 * no redis-server, tests that need one are skipped and say why.
 */
#pragma once

#include "client/redis.h"
#include "lib/redis_server.h"

enum { REDIS_KIT_SERVERS = 3, REDIS_KIT_URLS_BYTES = 256 };

extern struct redis_server redis_kit_servers[REDIS_KIT_SERVERS];

/* Setups of a group: so many. */
int redis_kit_one(void **state);
int redis_kit_two(void **state);
int redis_kit_three(void **state);
int redis_kit_down(void **state); /* the teardown */

/* A test's setup: whatever the test before has left of them. */
int redis_kit_renew(void **state);

/* Skips the test when they were not started. */
void redis_kit_need(void);

/* The addresses of all that were started, as a list. */
const char *redis_kit_urls(char out[REDIS_KIT_URLS_BYTES]);

/* A command of the test's own, which must work: what it gives as a number, and whether its text has this in
 * it. */
int64_t redis_kit_ask(const char *url, const struct str *args, size_t n);
bool redis_kit_answers(const char *url, const char *text, const struct str *args, size_t n);
