/* Every backend of the role `store` keeps the same promises: lib/store_suite.c has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/postgres_kit.h"
#include "lib/store_kit.h"
#include "lib/store_suite.h"
#include "store/backends.h"

#include <stdio.h>

static char folder[KIT_PATH_BYTES];

static struct store *sqlite_here(void)
{
	struct store *s = NULL;
	struct err e = {""};
	char path[KIT_PATH_BYTES + 16];
	snprintf(path, sizeof(path), "%s/links.db", folder);
	if (store_sqlite_open(path, &s, &e) != 0)
		print_error("%s\n", e.text);
	return s;
}

static struct store *sqlite_open(void)
{
	kit_folder_make(folder);
	return sqlite_here();
}

static struct store *sqlite_reopen(struct store *s)
{
	store_free(s);
	return sqlite_here();
}

static void sqlite_close(struct store *s)
{
	store_free(s);
	kit_folder_remove(folder);
}

static char url[POSTGRES_KIT_URL_BYTES];

static struct store *postgres_here(void)
{
	struct store *s = NULL;
	struct err e = {""};
	const struct store_postgres_config config = {.url = str_of(url)};
	if (store_postgres_open(&config, &s, &e) != 0)
		print_error("%s\n", e.text);
	return s;
}

/* One database, and its tables anew for each test. */
static struct store *postgres_open(void)
{
	postgres_kit_run(url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
	return postgres_here();
}

static struct store *postgres_reopen(struct store *s)
{
	store_free(s);
	return postgres_here();
}

static struct store *memory_open(void)
{
	struct store *s = NULL;
	return store_memory_open(&s, NULL) == 0 ? s : NULL;
}

static struct store *fault_open(void)
{
	struct store *s = NULL, *inner = memory_open();
	return inner && store_fault_open("", inner, &s, NULL) == 0 ? s : NULL;
}

static struct store *ring_open(void)
{
	const struct store_ring_part parts[] = {{.store = memory_open(), .address = STR("one")},
	                                        {.store = memory_open(), .address = STR("two")}};
	struct store *s = NULL;
	struct err e = {""};
	if (store_ring_open(parts, ARRAY_LEN(parts), &s, &e) != 0)
		print_error("%s\n", e.text);
	return s;
}

int main(void)
{
	static const struct store_backend backends[] = {
	    {.name = "sqlite", .open = sqlite_open, .reopen = sqlite_reopen, .close = sqlite_close},
	    {.name = "memory", .open = memory_open, .close = store_free},
	    {.name = "fault over memory", .open = fault_open, .close = store_free},
	    {.name = "ring of two in memory", .open = ring_open, .close = store_free, .has_parts = true},
	};
	static const struct store_backend postgres = {
	    .name = "postgres", .open = postgres_open, .reopen = postgres_reopen, .close = store_free};
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(backends); i++)
		failed += store_suite_run(&backends[i]);
	if (postgres_kit_is_there()) {
		postgres_kit_database_make(url);
		failed += store_suite_run(&postgres);
		postgres_kit_database_remove(url);
	}
	return failed;
}
