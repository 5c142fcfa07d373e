#include "keys/keysync.h"

#include "client/redis.h"
#include "cmd/command.h"
#include "cmd/service.h"
#include "server/backends.h"

#include <stdio.h>

static const char usage[] = "usage: curt keysync [--config FILE] [--SETTING VALUE]...\n"
                            "\n"
                            "Moves keys from the databases of keys.stock_url to the Redis servers of "
                            "keys.url, which it keeps filled\n"
                            "between keys.low and keys.high. Any number may run: each looks after "
                            "keys.sync_shards of the servers, under\n"
                            "a lease (lease.url; without it, on the server itself). SIGTERM ends it.\n"
                            "\n";

struct keysync_service {
	struct arena arena;
	struct redis_key_list **lists;
	size_t list_count;
	struct leases **leases; /* of each shelf */
	size_t leases_opened;   /* the first ones are our own; the rest repeats the last */
	struct keys_db **dbs;
	size_t db_count;
	struct keysync *keysync;
};

/* One service for all of them, or each server for itself. */
static int open_leases(struct keysync_service *k, const struct settings *s, struct err *e)
{
	struct str *urls;
	size_t count;
	int r = redis_urls_cut(str_of(s->keys.url), &k->arena, &urls, &count, e);
	if (r < 0)
		return r;
	k->leases = arena_zalloc(&k->arena, count * sizeof(struct leases *));
	if (!k->leases)
		return err_set(e, ERR_NOMEM, "out of memory");
	bool shared = s->serve.lease_url[0] != '\0';
	for (size_t i = 0; r == 0 && i < (shared ? 1 : count); i++) {
		struct str url = shared ? str_of(s->serve.lease_url) : arena_str(&k->arena, urls[i]);
		r = url.ptr ? backend_open_leases(url.ptr, &k->leases[i], e)
		            : err_set(e, ERR_NOMEM, "out of memory");
		k->leases_opened += r == 0 ? 1 : 0;
	}
	for (size_t i = k->leases_opened; r == 0 && i < count; i++)
		k->leases[i] = k->leases[0];
	return r;
}

static void stop(void *ctx)
{
	struct keysync_service *k = ctx;
	if (k->keysync) {
		struct keysync_sums sums;
		keysync_stop(k->keysync, &sums);
		printf("keysync: %ju keys moved, %ju put back, %ju lost\n", (uintmax_t)sums.moved,
		       (uintmax_t)sums.returned, (uintmax_t)sums.lost);
	}
	for (size_t i = 0; i < k->leases_opened; i++)
		leases_free(k->leases[i]);
	key_lists_free(k->lists, k->list_count);
	keys_dbs_free(k->dbs, k->db_count);
	arena_release(&k->arena);
}

static int start(void *ctx, const struct settings *s, struct err *e)
{
	struct keysync_service *k = ctx;
	int r = keys_settings_check(&s->keys, e);
	if (r == 0 && !s->keys.db_url[0])
		r = err_set(e, ERR_INVALID,
		            "keys.stock_url is not set; write postgres://USER@HOST:PORT/DATABASE");
	if (r == 0 && !s->keys.url[0])
		r = err_set(e, ERR_INVALID, "keys.url is not set; write redis://HOST:PORT");
	if (r == 0)
		r = keys_dbs_new(str_of(s->keys.db_url), &k->arena, &k->dbs, &k->db_count, e);
	if (r == 0)
		r = key_lists_new(str_of(s->keys.url), &k->arena, &k->lists, &k->list_count, e);
	if (r == 0)
		r = open_leases(k, s, e);
	if (r < 0)
		return r;
	const struct keysync_config config = {
	    .lists = k->lists,
	    .leases = k->leases,
	    .list_count = k->list_count,
	    .dbs = k->dbs,
	    .db_count = k->db_count,
	    .low = s->keys.low,
	    .high = s->keys.high,
	    .held_max = s->keys.sync_shards,
	    .lease_ms = s->keys.lease_ms,
	};
	r = keysync_start(&config, &k->keysync, e);
	if (r < 0)
		return r;
	printf("keysync: ready for %zu Redis server%s\n", k->list_count, k->list_count == 1 ? "" : "s");
	fflush(stdout);
	return 0;
}

int cmd_keysync(int argc, char **argv)
{
	struct keysync_service k = {0};
	struct settings settings = {0};
	const struct service service = {
	    .usage = usage, .settings = &settings, .start = start, .stop = stop, .ctx = &k};
	return service_run(&service, argc, argv);
}
