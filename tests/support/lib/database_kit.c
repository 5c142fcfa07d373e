#include "lib/database_kit.h"

#include "lib/test.h"
#include "store/backends.h"

char database_kit_urls[DATABASE_KIT_MAX][POSTGRES_KIT_URL_BYTES];

static int make(size_t n)
{
	for (size_t i = 0; postgres_kit_is_there() && i < n; i++)
		postgres_kit_database_make(database_kit_urls[i]);
	return 0;
}

int database_kit_one(void **state)
{
	return make(1);
}

int database_kit_two(void **state)
{
	return make(2);
}

int database_kit_three(void **state)
{
	return make(3);
}

int database_kit_down(void **state)
{
	for (size_t i = 0; i < DATABASE_KIT_MAX && database_kit_urls[i][0]; i++)
		postgres_kit_database_remove(database_kit_urls[i]);
	return 0;
}

int database_kit_renew(void **state)
{
	for (size_t i = 0; i < DATABASE_KIT_MAX && database_kit_urls[i][0]; i++)
		postgres_kit_run(database_kit_urls[i], "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
	return 0;
}

void database_kit_need(void)
{
	if (!postgres_kit_is_there())
		skip();
}

static struct pg_pool *holder_pool;
static struct pg_conn *holder;

void database_kit_hold(const char *url, const char *sql)
{
	struct err e = {""};
	assert_int_equal(pg_pool_new(str_of(url), 1, NULL, NULL, &holder_pool, &e), 0);
	holder = pg_take(holder_pool, &e);
	assert_non_null(holder);
	MUST(pg_run(holder, sql, &why));
}

void database_kit_let_go(void)
{
	int r = holder ? pg_run(holder, "COMMIT", NULL) : 0;
	pg_return(steal(holder));
	pg_pool_free(steal(holder_pool));
	assert_int_equal(r, 0);
}

static pthread_t thread;
static bool thread_runs;

void database_kit_start_waiting(const char *url, void *(*run)(void *), void *arg)
{
	assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
	thread_runs = true;
	UNTIL(postgres_kit_ask(url, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0);
}

void database_kit_join(void)
{
	if (thread_runs)
		pthread_join(thread, NULL);
	thread_runs = false;
}

int database_kit_calm(void **state)
{
	database_kit_let_go();
	database_kit_join();
	return 0;
}

struct relay *database_kit_relay(const char *url, char ret_url[2 * POSTGRES_KIT_URL_BYTES])
{
	char server[128];
	const char *begin = strstr(url, "://") + 3, *path = strchr(begin, '/');
	const char *at = memchr(begin, '@', (size_t)(path - begin));
	const char *host = at ? at + 1 : begin;
	snprintf(server, sizeof(server), "%.*s", (int)(path - host), host);
	struct relay *relay = relay_start(server);
	snprintf(ret_url, (size_t)2 * POSTGRES_KIT_URL_BYTES, "%.*s%s%s", (int)(host - url), url,
	         relay_address(relay), path);
	return relay;
}

struct store *database_kit_store(const char *url)
{
	struct store *s = NULL;
	const struct store_shards_config config = {.urls = (struct str[]){str_of(url)}, .count = 1};
	MUST(store_shards_open(&config, &s, &why));
	return s;
}
