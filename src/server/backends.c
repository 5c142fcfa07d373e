#include "server/backends.h"

#include "client/clickhouse_url.h"
#include "client/postgres.h"
#include "client/redis_ring.h"
#include "counters/backends.h"
#include "keys/pool.h"
#include "lease/backends.h"
#include "limiter/backends.h"
#include "link/claim.h"
#include "link/key_format.h"
#include "queue/topics.h"
#include "rcache/backends.h"
#include "seen/backends.h"
#include "sink/sink_clickhouse.h"
#include "sink/sink_postgres.h"
#include "sink/sink_sqlite.h"
#include "stats/place.h"
#include "store/backends.h"
#include "store/slots.h"

#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLAIM_ID_BLOCK = 256, REPLICAS_MAX = 64, COUNTED_LINKS_MAX = 1000000 };
enum { INSTALLATION_BYTES = 6, INSTALLATION_TEXT_BYTES = 2 * INSTALLATION_BYTES + 1 };

static const char sqlite_scheme[] = "sqlite:";

struct store_place {
	const char *url;
	const char *rest; /* after the scheme */
	const char *replicas;
	const struct folder *folder; /* NULL: there is none */
};

static int refuse_local_store(struct err *e)
{
	return err_set(e, ERR_INVALID,
	               "store.url = sqlite: is in the data folder of one server; set a shared store, such as "
	               "postgres://HOST/DATABASE");
}

static int open_sqlite(const struct store_place *p, struct store **ret, struct err *e)
{
	if (!p->rest[0] && !p->folder)
		return refuse_local_store(e);
	char *path CLEANUP(freep) = p->rest[0] ? strdup(p->rest) : folder_path(p->folder, "links.db");
	return store_sqlite_open(path, ret, e);
}

static int check_store(const char *url, struct err *e);

static int refuse_fault(struct err *e)
{
	return err_set(e, ERR_INVALID, "store.url = fault: is incomplete; write fault:OP=ERROR[@N],...;URL");
}

static int open_fault(const struct store_place *p, struct store **ret, struct err *e)
{
	const char *inner_url = strchr(p->rest, ';');
	if (!inner_url)
		return refuse_fault(e);
	char *spec CLEANUP(freep) = strndup(p->rest, (size_t)(inner_url - p->rest));
	struct store *inner = NULL;
	int r = backend_open_store_with(inner_url + 1, p->replicas, p->folder, &inner, e);
	if (r < 0)
		return r;
	r = store_fault_open(spec, inner, ret, e);
	if (r < 0)
		store_free(inner);
	return r;
}

/* Cuts a list of URLs of a setting. */
static int urls_cut(const char *setting, const char *urls, struct str *ret, size_t max, size_t *ret_count,
                    struct err *e)
{
	struct str rest = str_of(urls);
	for (*ret_count = 0; rest.ptr && rest.len > 0; ++*ret_count) {
		if (*ret_count == max)
			return err_set(e, ERR_INVALID, "%s names more than %zu databases; remove some",
			               setting, max);
		ret[*ret_count] = str_cut_url(&rest);
	}
	return 0;
}

static int check_postgres_list(const char *setting, const char *urls, size_t max, struct err *e)
{
	struct str list[(size_t)SHARDS_MAX + REPLICAS_MAX];
	size_t count;
	int r = urls_cut(setting, urls, list, max, &count, e);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = err_about(e, pg_url_check(list[i], e), setting);
	return r;
}

/* A database file is created, but not the folder that it is in. */
static int check_file(const char *setting, const char *path, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char *folder CLEANUP(freep) = slash && slash > path ? strndup(path, (size_t)(slash - path)) : NULL;
	if (!folder || access(folder, F_OK) == 0)
		return 0;
	return err_set(e, ERR_INVALID, "%s: there is no folder %s; create it, or name another file", setting,
	               folder);
}

int backend_open_shards(const char *urls, const char *replicas, bool is_admin, struct store **ret,
                        struct err *e)
{
	struct str url_list[SHARDS_MAX], replica_list[REPLICAS_MAX];
	struct store_shards_config config = {
	    .urls = url_list, .replicas = replica_list, .is_admin = is_admin};
	return urls_cut("store.url", urls, url_list, SHARDS_MAX, &config.count, e)
	       ?: urls_cut("store.replicas", replicas, replica_list, REPLICAS_MAX, &config.replica_count, e)
	       ?: store_shards_open(&config, ret, e);
}

static int open_postgres(const struct store_place *p, struct store **ret, struct err *e)
{
	return backend_open_shards(p->url, p->replicas, false, ret, e);
}

static int check_store_sqlite(const char *url, struct err *e)
{
	return check_file("store.url", url + strlen(sqlite_scheme), e);
}

static int check_store_postgres(const char *url, struct err *e)
{
	return check_postgres_list("store.url", url, SHARDS_MAX, e);
}

static int check_store_fault(const char *url, struct err *e)
{
	const char *inner_url = strchr(url, ';');
	return inner_url ? check_store(inner_url + 1, e) : refuse_fault(e);
}

static const struct store_backend {
	const char *scheme;
	int (*check)(const char *url, struct err *e);
	int (*open)(const struct store_place *p, struct store **ret, struct err *e);
} stores[] = {
    {sqlite_scheme, check_store_sqlite, open_sqlite},
    {"postgres://", check_store_postgres, open_postgres},
    {"postgresql://", check_store_postgres, open_postgres},
    {"fault:", check_store_fault, open_fault}, /* for tests of failures */
};

static const struct store_backend *find_store(const char *url, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(stores); i++) {
		if (strncmp(url, stores[i].scheme, strlen(stores[i].scheme)) == 0)
			return &stores[i];
	}
	err_set(e, ERR_INVALID,
	        "store.url = %.*s... names no known store; write sqlite: or postgres://USER@HOST/DATABASE",
	        (int)MIN(strcspn(url, ":/@"), 16), url);
	return NULL;
}

static int check_store(const char *url, struct err *e)
{
	const struct store_backend *b = find_store(url, e);
	return b ? b->check(url, e) : ERR_INVALID;
}

static int open_one(const char *url, const char *replicas, const struct folder *f, struct store **ret,
                    struct err *e)
{
	const struct store_backend *b = find_store(url, e);
	const struct store_place place = {url, url + (b ? strlen(b->scheme) : 0), replicas, f};
	return b ? b->open(&place, ret, e) : ERR_INVALID;
}

int backend_open_store_with(const char *url, const char *replicas, const struct folder *f, struct store **ret,
                            struct err *e)
{
	return err_about(e, open_one(url, replicas, f, ret, e), "store.url");
}

int backend_open_store(const char *url, const struct folder *f, struct store **ret, struct err *e)
{
	return backend_open_store_with(url, "", f, ret, e);
}

bool backend_sink_is_file(const char *url)
{
	return strncmp(url, sqlite_scheme, strlen(sqlite_scheme)) == 0;
}

static int refuse_local_sink(struct err *e)
{
	return err_set(e, ERR_INVALID,
	               "sink.url = sqlite: belongs to one server; set a shared sink, such as "
	               "clickhouse://HOST:8123 or postgres://HOST/DATABASE");
}

int backend_check_shared(const struct settings *s, struct err *e)
{
	if (strcmp(s->serve.store_url, sqlite_scheme) == 0)
		return refuse_local_store(e);
	return backend_sink_is_file(s->serve.sink_url) ? refuse_local_sink(e) : 0;
}

static int open_sink_sqlite(const char *rest, const struct folder *f, const struct sink_settings *s,
                            struct sink **ret, struct err *e)
{
	if (!f)
		return refuse_local_sink(e);
	char *path CLEANUP(freep) = rest[0] ? strdup(rest) : folder_path(f, "stats.db");
	return path ? sink_sqlite_open(path, s, ret, e) : err_set(e, ERR_NOMEM, "out of memory");
}

static int check_clickhouse(struct str url, struct err *e)
{
	struct clickhouse_url parts;
	int r = clickhouse_url_parse(url, &parts, e);
	if (r == 0)
		clickhouse_url_release(&parts);
	return r;
}

static const struct sink_backend {
	const char *scheme;
	int (*check)(struct str url, struct err *e);
	int (*open)(const char *url, const struct sink_settings *s, struct sink **ret, struct err *e);
} shared_sinks[] = {
    {"clickhouse://", check_clickhouse, sink_clickhouse_open},
    {"postgres://", pg_url_check, sink_postgres_open},
    {"postgresql://", pg_url_check, sink_postgres_open},
};

static const struct sink_backend *find_shared_sink(const char *url, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(shared_sinks); i++) {
		if (strncmp(url, shared_sinks[i].scheme, strlen(shared_sinks[i].scheme)) == 0)
			return &shared_sinks[i];
	}
	err_set(e, ERR_INVALID,
	        "sink.url names no known sink; write sqlite:, sqlite:/path, clickhouse://HOST:8123 or "
	        "postgres://HOST/DATABASE");
	return NULL;
}

static int check_sink(const char *url, struct err *e)
{
	if (backend_sink_is_file(url))
		return check_file("sink.url", url + strlen(sqlite_scheme), e);
	const struct sink_backend *b = find_shared_sink(url, e);
	return b ? err_about(e, b->check(str_of(url), e), "sink.url") : ERR_INVALID;
}

int backend_open_sink(const char *url, const struct folder *f, const struct sink_settings *s,
                      struct sink **ret, struct err *e)
{
	if (backend_sink_is_file(url))
		return err_about(e, open_sink_sqlite(url + strlen(sqlite_scheme), f, s, ret, e), "sink.url");
	const struct sink_backend *b = find_shared_sink(url, e);
	return b ? err_about(e, b->open(url, s, ret, e), "sink.url") : ERR_INVALID;
}

static int open_leases_file(const char *url, struct leases **ret, struct err *e)
{
	return leases_local_open(url + strlen("file:"), ret, e);
}

static const struct {
	const char *scheme;
	int (*open)(const char *url, struct leases **ret, struct err *e);
} lease_services[] = {
    {"redis://", leases_redis_open},
    {"redis+sentinel://", leases_redis_open},
    {"zookeeper://", leases_zookeeper_open},
    {"file:", open_leases_file},
};

int backend_open_leases(const char *url, struct leases **ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(lease_services); i++) {
		if (strncmp(url, lease_services[i].scheme, strlen(lease_services[i].scheme)) == 0)
			return err_about(e, lease_services[i].open(url, ret, e), "lease.url");
	}
	return err_set(e, ERR_INVALID,
	               "lease.url names no known lease service; write redis://HOST:PORT, "
	               "redis+sentinel://HOST:PORT/NAME, zookeeper://HOST:PORT/PATH or file:/FOLDER");
}

/* The store's name, which is part of all keys in Redis: servers of other stores may use the same Redis. */
static int installation_name(struct store *store, char ret[INSTALLATION_TEXT_BYTES], struct err *e)
{
	unsigned char name[INSTALLATION_BYTES];
	randombytes_buf(name, sizeof(name));
	int r = registry_constant(store->registry, STR("installation"), name, sizeof(name));
	if (r < 0)
		return err_set(e, r, "cannot read the installation's name from the store (%s)", err_name(r));
	sodium_bin2hex(ret, INSTALLATION_TEXT_BYTES, name, sizeof(name));
	return 0;
}

int backend_open_rcache(const char *urls, struct store *store, const struct rcache_listener *listener,
                        struct rcache **ret, struct err *e)
{
	char name[INSTALLATION_TEXT_BYTES];
	*ret = NULL;
	int r = urls[0] ? installation_name(store, name, e) : 0;
	return r < 0 || !urls[0] ? r
	                         : err_about(e, rcache_redis_open(urls, name, listener, ret, e), "cache.url");
}

static int sink_is_empty(void *ctx)
{
	struct sink *sink = ctx;
	int r = sink->ops->has_fingerprints(sink);
	return r < 0 ? r : !r;
}

int backend_open_seen(const char *urls, struct store *store, struct sink *sink, uint64_t window_ms,
                      struct seen **ret, struct err *e)
{
	char name[INSTALLATION_TEXT_BYTES];
	const struct seen_redis_config config = {.urls = urls,
	                                         .installation = name,
	                                         .window_ms = window_ms,
	                                         .sink_is_empty = sink_is_empty,
	                                         .ctx = sink};
	int r = installation_name(store, name, e);
	return r < 0 ? r : err_about(e, seen_redis_open(&config, ret, e), "seen.url");
}

int backend_open_counters(const char *urls, struct store *store, struct counters **ret, struct err *e)
{
	char name[INSTALLATION_TEXT_BYTES];
	const struct counters_redis_config config = {
	    .urls = urls, .installation = name, .stream_links_max = COUNTED_LINKS_MAX};
	int r = installation_name(store, name, e);
	return r < 0 ? r : err_about(e, counters_redis_open(&config, ret, e), "seen.url");
}

int backend_open_limiter(const char *urls, struct store *store, struct limiter **ret, struct err *e)
{
	char name[INSTALLATION_TEXT_BYTES];
	*ret = NULL;
	int r = urls[0] ? installation_name(store, name, e) : 0;
	return r < 0 || !urls[0] ? r : err_about(e, limiter_redis_open(urls, name, ret, e), "limits.url");
}

int backend_open_claim(const struct settings *s, struct store *store, uint64_t id_block,
                       struct key_source **ret, struct err *e)
{
	struct key_cipher cipher;
	int r = key_format_fix(store, (enum key_alphabet)s->links.alphabet, s->links.key_length, &cipher, e);
	if (r < 0)
		return r;
	const struct claim_config config = {
	    .store = store, .cipher = &cipher, .quarantine_ms = s->links.quarantine_ms, .id_block = id_block};
	r = claim_new(&config, ret, e);
	explicit_bzero(&cipher, sizeof(cipher));
	return r;
}

int backend_open_source(const struct settings *s, struct store *store, struct key_source **ret, struct err *e)
{
	*ret = NULL;
	switch ((enum link_source)s->links.source) {
	case SOURCE_CIPHER: return 0;
	case SOURCE_POOL: return err_about(e, key_pool_open(s->keys.url, s->keys.batch, ret, e), "keys.url");
	case SOURCE_CLAIM: return backend_open_claim(s, store, CLAIM_ID_BLOCK, ret, e);
	}
	return 0;
}

/* Checking */

static int check_redis(const char *setting, const char *urls, struct err *e)
{
	struct redis_ring ring = {0};
	int r = urls[0] ? err_about(e, redis_ring_open(str_of(urls), &ring, e), setting) : 0;
	redis_ring_release(&ring);
	return r;
}

static int check_lease(const char *url, struct err *e)
{
	struct leases *leases = NULL;
	bool is_folder = strncmp(url, "file:", 5) == 0 && url[5]; /* opening it would create it */
	int r = url[0] && !is_folder ? backend_open_leases(url, &leases, e) : 0;
	leases_free(leases);
	return r;
}

/* Where new keys come from must fit the rest. */
static int check_source(const struct settings *s, struct err *e)
{
	const char *url = strncmp(s->serve.store_url, "fault:", 6) == 0 ? strchr(s->serve.store_url, ';') + 1
	                                                                : s->serve.store_url;
	if (s->links.source == SOURCE_CLAIM && strncmp(url, sqlite_scheme, strlen(sqlite_scheme)) == 0)
		return err_set(
		    e, ERR_INVALID,
		    "keys.source = claim needs a PostgreSQL store (store.url = postgres://...); set "
		    "store.url, or keys.source = cipher");
	if (s->links.source == SOURCE_POOL && !s->keys.url[0])
		return err_set(
		    e, ERR_INVALID,
		    "keys.url is not set, and keys.source = pool needs the Redis servers that hold the "
		    "keys; set keys.url, or keys.source = cipher");
	return 0;
}

int backend_check(const struct settings *s, struct err *e)
{
	return check_store(s->serve.store_url, e)
	       ?: check_source(s, e)
	       ?: check_postgres_list("store.replicas", s->serve.store_replicas, REPLICAS_MAX, e)
	       ?: check_sink(s->serve.sink_url, e)
	       ?: check_redis("cache.url", s->serve.cache_url, e)
	       ?: check_redis("limits.url", s->serve.limits_url, e)
	       ?: check_redis("seen.url", s->serve.seen_url, e)
	       ?: check_redis("keys.url", s->keys.url, e)
	       ?: check_postgres_list("keys.db_url", s->keys.db_url, REPLICAS_MAX, e)
	       ?: check_lease(s->serve.lease_url, e);
}

int backend_check_start(const struct settings *s, struct err *e)
{
	struct places *places = NULL;
	struct topics topics;
	struct kafka_producer *producer = NULL;
	int r = s->stats.places[0] ? places_open(s->stats.places, &places, e) : 0;
	places_close(places);
	if (r == 0 && s->queue.url[0])
		r = topics_init(&topics, &s->queue, e)
		        ?: err_about(e, kafka_producer_new(&topics.kafka, &producer, e), "queue.options");
	kafka_producer_free(producer);
	return r;
}

void backend_list(struct buf *out)
{
	buf_str(out, STR("store.url "));
	for (size_t i = 0; i < ARRAY_LEN(stores); i++)
		buf_printf(out, " %s", stores[i].scheme);
	buf_printf(out, "\nsink.url   %s", sqlite_scheme);
	for (size_t i = 0; i < ARRAY_LEN(shared_sinks); i++)
		buf_printf(out, " %s", shared_sinks[i].scheme);
	buf_str(out, STR("\nlease.url "));
	for (size_t i = 0; i < ARRAY_LEN(lease_services); i++)
		buf_printf(out, " %s", lease_services[i].scheme);
	buf_str(out, STR("\nqueue.url  kafka://\n"
	                 "cache.url, keys.url, limits.url, seen.url  redis:// redis+sentinel://\n"));
}
