/* Every backend of the role `store` keeps the same promises: lib/store_suite.c has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
	static const struct store_backend backends[] = {
	    {.name = "sqlite", .open = sqlite_open, .reopen = sqlite_reopen, .close = sqlite_close},
	    {.name = "memory", .open = memory_open, .close = store_free},
	    {.name = "fault over memory", .open = fault_open, .close = store_free},
	};
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(backends); i++)
		failed += store_suite_run(&backends[i]);
	return failed;
}
