/* Every backend of the role `store` keeps the same promises: lib/store_suite.c has them. */
#include "lib/findings_kit.h"
#include "lib/postgres_kit.h"
#include "lib/store_kit.h"
#include "lib/store_suite.h"
#include "lib/test.h"
#include "store/backends.h"

static struct temp folder;

static struct store *sqlite_here(void)
{
	struct store *s = NULL;
	char path[TEMP_PATH_BYTES];
	temp_path(&folder, "links.db", path);
	MUST(store_sqlite_open(path, &s, &why));
	return s;
}

static struct store *sqlite_open(void)
{
	temp_init(&folder);
	return sqlite_here();
}

static struct store *sqlite_reopen(struct store *s)
{
	store_free(s);
	return sqlite_here();
}

static void sqlite_close(struct store *s)
{
	char path[TEMP_PATH_BYTES];
	struct findings_kit found = findings_kit(NULL);
	store_free(s);
	store_sqlite_check(temp_path(&folder, "links.db", path), true, false, NULL, &found.base);
	assert_int_equal(found.base.bad_count, 0);
	temp_release(&folder);
}

static char urls[3][POSTGRES_KIT_URL_BYTES]; /* the last one looks as if Citus were there */

static struct store *postgres_at(const char *url)
{
	struct store *s = NULL;
	const struct store_shards_config config = {.urls = (struct str[]){str_of(url)}, .count = 1};
	MUST(store_shards_open(&config, &s, &why));
	return s;
}

/* Opening one takes longer than most tests do. It keeps nothing that is not in the database, so the same
 * store with nothing in it serves them all. */
static struct store *kept;

static struct store *kept_open(const char *url)
{
	postgres_kit_database_empty(url);
	if (!kept)
		kept = postgres_at(url);
	return kept;
}

static void kept_close(struct store *s)
{
	kept = s;
}

static void kept_end(void)
{
	store_free(kept);
	kept = NULL;
}

static struct store *postgres_open(void)
{
	return kept_open(urls[0]);
}

static struct store *distributed_open(void)
{
	return kept_open(urls[2]);
}

static struct store *postgres_reopen(struct store *s)
{
	store_free(s);
	return postgres_at(urls[0]);
}

static struct store *shards_here(void)
{
	const struct str list[] = {str_of(urls[0]), str_of(urls[1])};
	const struct store_shards_config config = {.urls = list, .count = ARRAY_LEN(list)};
	struct store *s = NULL;
	MUST(store_shards_open(&config, &s, &why));
	return s;
}

static struct store *shards_open(void)
{
	postgres_kit_database_empty(urls[0]);
	postgres_kit_database_empty(urls[1]);
	return shards_here();
}

static struct store *shards_reopen(struct store *s)
{
	store_free(s);
	return shards_here();
}

/* The thread sanitizer sees nothing new in the further ways to lay out PostgreSQL: the first one must do. */
#ifdef __SANITIZE_THREAD__
enum { POSTGRES_LAYOUTS = 1 };
#else
enum { POSTGRES_LAYOUTS = 3 };
#endif

int main(void)
{
	static const struct store_backend backends[] = {
	    {.name = "sqlite",
	     .open = sqlite_open,
	     .reopen = sqlite_reopen,
	     .close = sqlite_close,
	     .has_feed = true},
	};
	const struct store_backend with_postgres[] = {
	    {.name = "postgres",
	     .open = postgres_open,
	     .reopen = postgres_reopen,
	     .close = kept_close,
	     .deletes_first = true,
	     .has_feed = true,
	     .has_parts = postgres_kit_has_citus()},
	    {.name = "postgres as with Citus",
	     .open = distributed_open,
	     .close = kept_close,
	     .has_feed = true,
	     .has_parts = true},
	    {.name = "two shards on postgres",
	     .open = shards_open,
	     .reopen = shards_reopen,
	     .close = store_free,
	     .has_parts = true},
	};
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(backends); i++)
		failed += store_suite_run(&backends[i]);
	if (!postgres_kit_is_there())
		return failed;
	for (size_t i = 0; i < ARRAY_LEN(urls); i++)
		postgres_kit_database_make(urls[i]);
	postgres_kit_citus_feign(urls[2]);
	size_t count = POSTGRES_LAYOUTS;
	if (postgres_kit_has_citus())
		count = 1; /* the second would be the same, and there are no shards with Citus */
	for (size_t i = 0; i < count; i++) {
		failed += store_suite_run(&with_postgres[i]);
		kept_end();
	}
	for (size_t i = 0; i < ARRAY_LEN(urls); i++)
		postgres_kit_database_remove(urls[i]);
	return failed;
}
