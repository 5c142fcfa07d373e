/* Every backend of the role `sink` keeps the same promises: lib/sink_suite.c has them. */
#include "lib/clickhouse_kit.h"
#include "lib/database_kit.h"
#include "lib/findings_kit.h"
#include "lib/sink_suite.h"
#include "lib/test.h"
#include "sink/sink_clickhouse.h"
#include "sink/sink_postgres.h"
#include "sink/sink_sqlite.h"

static struct temp folder;

static struct sink *sqlite_here(const struct sink_settings *settings)
{
	struct sink *s = NULL;
	char path[TEMP_PATH_BYTES];
	MUST(sink_sqlite_open(temp_path(&folder, "stats.db", path), settings, &s, &why));
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
	char path[TEMP_PATH_BYTES];
	struct buf CLEANUP(buf_release) report = {0};
	struct findings_kit found = findings_kit(&report);
	s->ops->free(s);
	sink_sqlite_check(temp_path(&folder, "stats.db", path), true, false, &found.base);
	buf_char(&report, '\0');
	/* Not every batch of the suite tells how much was read. */
	assert_true(found.base.bad_count == 0 || strstr(report.data, "the counts do not add up"));
	temp_release(&folder);
}

static char clickhouse_url[CLICKHOUSE_KIT_BYTES];

static struct sink *clickhouse_here(const struct sink_settings *settings)
{
	struct sink *s = NULL;
	MUST(sink_clickhouse_open(clickhouse_url, settings, &s, &why));
	return s;
}

static struct sink *clickhouse_fresh(const struct sink_settings *settings)
{
	clickhouse_kit_url(clickhouse_url);
	return clickhouse_here(settings);
}

static struct sink *clickhouse_reopen(struct sink *s, const struct sink_settings *settings)
{
	s->ops->free(s);
	return clickhouse_here(settings);
}

static void clickhouse_close(struct sink *s)
{
	s->ops->free(s);
	clickhouse_kit_drop();
}

/* One database, as if it were new for each test. */

static struct sink *postgres_here(const struct sink_settings *settings)
{
	struct sink *s = NULL;
	MUST(sink_postgres_open(database_kit_urls[0], settings, &s, &why));
	return s;
}

static struct sink *postgres_fresh(const struct sink_settings *settings)
{
	if (!database_kit_urls[0][0])
		database_kit_one(NULL);
	database_kit_renew(NULL);
	return postgres_here(settings);
}

static struct sink *postgres_reopen(struct sink *s, const struct sink_settings *settings)
{
	s->ops->free(s);
	return postgres_here(settings);
}

static void postgres_close(struct sink *s)
{
	s->ops->free(s);
}

int main(void)
{
	static const struct sink_backend backends[] = {
	    {.name = "sqlite",
	     .abilities = SINK_POSITIONS | SINK_TOTALS | SINK_FOLDING | SINK_BOUNDS | SINK_BLOCKS,
	     .open = sqlite_open,
	     .reopen = sqlite_reopen,
	     .close = sqlite_close},
	    {.name = "postgres",
	     .abilities = SINK_POSITIONS | SINK_TOTALS | SINK_FOLDING | SINK_BOUNDS | SINK_SHARED,
	     .effort_divisor = 8,
	     .is_there = postgres_kit_is_there,
	     .open = postgres_fresh,
	     .reopen = postgres_reopen,
	     .close = postgres_close},
	    {.name = "clickhouse",
	     .abilities = SINK_SHARED,
	     .effort_divisor = 40,
	     .is_there = clickhouse_kit_is_there,
	     .open = clickhouse_fresh,
	     .reopen = clickhouse_reopen,
	     .close = clickhouse_close},
	};
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(backends); i++)
		if (!backends[i].is_there || backends[i].is_there())
			failed += sink_suite_run(&backends[i]);
	database_kit_down(NULL);
	return failed;
}
