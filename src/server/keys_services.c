#include "server/keys_services.h"

#include "client/redis.h"
#include "server/backends.h"

enum { ID_BLOCK = 1000 }; /* what a batch needs, and what a kill wastes at most */

static int open_dbs(const struct settings *s, struct arena *arena, struct keys_db ***ret, size_t *ret_count,
                    struct err *e)
{
	if (!s->keys.db_url[0])
		return err_set(e, ERR_INVALID,
		               "keys.db_url is not set; write postgres://USER@HOST:PORT/DATABASE");
	return keys_dbs_new(str_of(s->keys.db_url), arena, ret, ret_count, e);
}

static int keygen_leases(const struct settings *s, struct leases **ret, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct str *urls;
	size_t count;
	if (s->serve.lease_url[0])
		return backend_open_leases(s->serve.lease_url, ret, e);
	if (!s->keys.url[0])
		return err_set(
		    e, ERR_INVALID,
		    "lease.url is not set, and curt keygen needs it to share the work; write "
		    "redis://HOST:PORT, "
		    "zookeeper://HOST:PORT/PATH, or file:/FOLDER when all keygens run on this machine");
	int r = redis_urls_cut(str_of(s->keys.url), &arena, &urls, &count, e);
	if (r < 0)
		return r;
	struct str first = arena_str(&arena, urls[0]);
	return first.ptr ? backend_open_leases(first.ptr, ret, e) : err_set(e, ERR_NOMEM, "out of memory");
}

static int open_origin(struct keygen_service *k, const struct settings *s, struct err *e)
{
	if (strncmp(s->serve.store_url, "postgres", strlen("postgres")) != 0)
		return err_set(e, ERR_INVALID,
		               "store.url must be a postgres:// address: curt keygen makes keys for a store "
		               "that several "
		               "processes share");
	int r = backend_open_store(s->serve.store_url, NULL, &k->store, e);
	return r < 0 ? r : backend_open_claim(s, k->store, ID_BLOCK, &k->origin, e);
}

void keygen_service_stop(struct keygen_service *k, struct keygen_sums *ret)
{
	if (k->keygen)
		keygen_stop(k->keygen, ret);
	keys_dbs_free(k->dbs, k->db_count);
	leases_free(k->leases);
	if (k->origin)
		k->origin->ops->free(k->origin);
	store_free(k->store);
	arena_release(&k->arena);
}

int keygen_service_start(struct keygen_service *k, const struct settings *s, struct err *e)
{
	int r = open_dbs(s, &k->arena, &k->dbs, &k->db_count, e);
	if (r == 0)
		r = keygen_leases(s, &k->leases, e);
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
	    .held_max = s->keys.gen_dbs,
	    .lease_ms = s->keys.lease_ms,
	};
	return keygen_start(&config, &k->keygen, e);
}

/* One lease service for all lists, or each Redis server for its own list. */
static int keysync_leases(struct keysync_service *k, const struct settings *s, struct err *e)
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

void keysync_service_stop(struct keysync_service *k, struct keysync_sums *ret)
{
	if (k->keysync)
		keysync_stop(k->keysync, ret);
	for (size_t i = 0; i < k->leases_opened; i++)
		leases_free(k->leases[i]);
	key_lists_free(k->lists, k->list_count);
	keys_dbs_free(k->dbs, k->db_count);
	arena_release(&k->arena);
}

int keysync_service_start(struct keysync_service *k, const struct settings *s, struct err *e)
{
	int r = open_dbs(s, &k->arena, &k->dbs, &k->db_count, e);
	if (r == 0 && !s->keys.url[0])
		r = err_set(e, ERR_INVALID, "keys.url is not set; write redis://HOST:PORT");
	if (r == 0)
		r = key_lists_new(str_of(s->keys.url), &k->arena, &k->lists, &k->list_count, e);
	if (r == 0)
		r = keysync_leases(k, s, e);
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
	return keysync_start(&config, &k->keysync, e);
}
