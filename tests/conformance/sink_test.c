/* Every backend of the role `sink` keeps the same promises: lib/sink_suite.c has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/sink_suite.h"
#include "lib/temp.h"
#include "sink/sink_sqlite.h"

static struct temp folder;

static struct sink *sqlite_here(const struct sink_settings *settings)
{
	struct sink *s = NULL;
	struct err e = {""};
	char path[TEMP_PATH_BYTES];
	if (sink_sqlite_open(temp_path(&folder, "stats.db", path), settings, &s, &e) != 0)
		print_error("%s\n", e.text);
	return s;
}

static struct sink *sqlite_open(const struct sink_settings *settings)
{
	temp_init(&folder);
	return sqlite_here(settings);
}

static struct sink *sqlite_reopen(struct sink *s, const struct sink_settings *settings)
{
	s->ops->free(s);
	return sqlite_here(settings);
}

static void sqlite_close(struct sink *s)
{
	s->ops->free(s);
	temp_release(&folder);
}

int main(void)
{
	static const struct sink_backend backends[] = {
	    {.name = "sqlite", .open = sqlite_open, .reopen = sqlite_reopen, .close = sqlite_close},
	};
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(backends); i++)
		failed += sink_suite_run(&backends[i]);
	return failed;
}
