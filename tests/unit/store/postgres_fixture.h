/* A store on an empty PostgreSQL database, for a test that needs one. */
#pragma once

#include "lib/database_kit.h"
#include "lib/store_kit.h"
#include "lib/test.h"

static const char *const url = database_kit_urls[0];
static struct store *store;
static struct arena arena;

static int setup(void **state)
{
	if (!url[0])
		return 0;
	int r = database_kit_renew(state);
	store = database_kit_store(url);
	return r;
}

static int teardown(void **state)
{
	int r = database_kit_calm(state);
	store_free(store);
	store = NULL;
	arena_release(&arena);
	return r;
}
