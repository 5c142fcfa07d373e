#include "keys/keygen.h"

#include "client/redis.h"
#include "cmd/command.h"
#include "cmd/service.h"
#include "server/backends.h"

#include <stdio.h>

static const char usage[] =
    "usage: curt keygen [--config FILE] [--SETTING VALUE]...\n"
    "\n"
    "Makes keys for the links of store.url and keeps the databases of keys.stock_url filled with them, "
    "between\n"
    "keys.stock_low and keys.stock_high. Any number may run: each looks after keys.gen_stocks of the "
    "databases,\n"
    "under a lease (lease.url; without it, on the first server of keys.url). SIGTERM ends it.\n"
    "\n";

enum { ID_BLOCK = 1000 }; /* what a batch needs, and what a kill wastes at most */

struct keygen_service {
	struct store *store;
	struct key_source *origin;
	struct leases *leases;
	struct arena arena;
	struct keys_db **dbs;
	size_t db_count;
	struct keygen *keygen;
};

static int open_leases(const struct settings *s, struct leases **ret, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct str *urls;
	size_t count;
	if (s->serve.lease_url[0])
		return backend_open_leases(s->serve.lease_url, ret, e);
	if (!s->keys.url[0])
		return err_set(
		    e, ERR_INVALID,
		    "lease.url is not set: curt keygen must know who else makes keys; write "
		    "redis://HOST:PORT, zookeeper://HOST:PORT/PATH, or file:/FOLDER when all of them run "
		    "on this machine");
	int r = redis_urls_cut(str_of(s->keys.url), &arena, &urls, &count, e);
	if (r < 0)
		return r;
	struct str first = arena_str(&arena, urls[0]);
	return first.ptr ? backend_open_leases(first.ptr, ret, e) : err_set(e, ERR_NOMEM, "out of memory");
}

static int open_origin(struct keygen_service *k, const struct settings *s, struct err *e)
{
	/* A store that belongs to one process makes its keys there. */
	if (strncmp(s->serve.store_url, "postgres", strlen("postgres")) != 0)
		return err_set(
		    e, ERR_INVALID,
		    "curt keygen makes keys for a store that several processes share: set store.url to "
		    "a postgres:// address");
	int r = backend_open_store(s->serve.store_url, NULL, &k->store, e);
	return r < 0 ? r : backend_open_claim(s, k->store, ID_BLOCK, &k->origin, e);
}

static void stop(void *ctx)
{
	struct keygen_service *k = ctx;
	if (k->keygen) {
		struct keygen_sums sums;
		keygen_stop(k->keygen, &sums);
		printf("keygen: %ju keys made, %ju lost\n", (uintmax_t)sums.made, (uintmax_t)sums.lost);
	}
	keys_dbs_free(k->dbs, k->db_count);
	leases_free(k->leases);
	if (k->origin)
		k->origin->ops->free(k->origin);
	store_free(k->store);
	arena_release(&k->arena);
}

static int start(void *ctx, const struct settings *s, struct err *e)
{
	struct keygen_service *k = ctx;
	int r = keys_settings_check(&s->keys, e);
	if (r == 0 && !s->keys.db_url[0])
		r = err_set(e, ERR_INVALID,
		            "keys.stock_url is not set; write postgres://USER@HOST:PORT/DATABASE");
	if (r == 0)
		r = keys_dbs_new(str_of(s->keys.db_url), &k->arena, &k->dbs, &k->db_count, e);
	if (r == 0)
		r = open_leases(s, &k->leases, e);
	if (r == 0)
		r = open_origin(k, s, e);
	if (r < 0)
		return r;
	const struct keygen_config config = {
	    .origin = k->origin,
	    .leases = k->leases,
	    .dbs = k->dbs,
	    .db_count = k->db_count,
	    .low = s->keys.db_low,
	    .high = s->keys.db_high,
	    .held_max = s->keys.gen_stocks,
	    .lease_ms = s->keys.lease_ms,
	};
	r = keygen_start(&config, &k->keygen, e);
	if (r < 0)
		return r;
	printf("keygen: ready for %zu keys database%s\n", k->db_count, k->db_count == 1 ? "" : "s");
	fflush(stdout);
	return 0;
}

int cmd_keygen(int argc, char **argv)
{
	struct keygen_service k = {0};
	struct settings settings = {0};
	const struct service service = {
	    .usage = usage, .settings = &settings, .start = start, .stop = stop, .ctx = &k};
	return service_run(&service, argc, argv);
}
