#include "server/backends.h"

#include "client/postgres.h"
#include "counters/backends.h"
#include "keys/pool.h"
#include "lease/backends.h"
#include "limiter/backends.h"
#include "link/claim.h"
#include "link/key_format.h"
#include "rcache/backends.h"
#include "seen/backends.h"
#include "sink/sink_clickhouse.h"
#include "sink/sink_postgres.h"
#include "sink/sink_sqlite.h"
#include "store/backends.h"
#include "store/slots.h"

#include <sodium.h>
#include <stdlib.h>

enum { CLAIM_ID_BLOCK = 256, REPLICAS_MAX = 64, COUNTED_LINKS_MAX = 1000000 };
enum { INSTALLATION_BYTES = 6, INSTALLATION_TEXT_BYTES = 2 * INSTALLATION_BYTES + 1 };

/* Puts the setting before a message that does not name it. */
static int about(const char *setting, int r, struct err *e)
{
	if (r == 0 || !e || strstr(e->text, setting))
		return r;
	const struct err before = *e;
	return err_set(e, r, "%s: %s", setting, before.text);
}

struct store_place {
	const char *url;
	const char *rest; /* after the scheme */
	const char *replicas;
	const struct folder *folder; /* NULL: there is none */
};

static int open_sqlite(const struct store_place *p, struct store **ret, struct err *e)
{
	if (!p->rest[0] && !p->folder)
		return err_set(
		    e, ERR_INVALID,
		    "store.url = sqlite: is in the data folder of one server; set a shared store, such "
		    "as postgres://HOST/DATABASE");
	char *path CLEANUP(freep) = p->rest[0] ? strdup(p->rest) : folder_path(p->folder, "links.db");
	return store_sqlite_open(path, ret, e);
}

static int open_fault(const struct store_place *p, struct store **ret, struct err *e)
{
	const char *inner_url = strchr(p->rest, ';');
	if (!inner_url)
		return err_set(e, ERR_INVALID,
		               "store.url = fault: is incomplete; write fault:OP=ERROR[@N],...;URL");
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

/* Cuts a list of URLs; false when there are more than `max`. */
static bool urls_cut(const char *urls, struct str *ret, size_t max, size_t *ret_count)
{
	struct str rest = str_of(urls);
	for (*ret_count = 0; rest.ptr && rest.len > 0; ++*ret_count) {
		if (*ret_count == max)
			return false;
		ret[*ret_count] = str_cut_url(&rest);
	}
	return true;
}

int backend_open_shards(const char *urls, const char *replicas, bool is_admin, struct store **ret,
                        struct err *e)
{
	struct str url_list[SHARDS_MAX], replica_list[REPLICAS_MAX];
	struct store_shards_config config = {
	    .urls = url_list, .replicas = replica_list, .is_admin = is_admin};
	if (!urls_cut(urls, url_list, SHARDS_MAX, &config.count))
		return err_set(e, ERR_INVALID, "store.url names more than %d databases; remove some",
		               SHARDS_MAX);
	if (!urls_cut(replicas, replica_list, REPLICAS_MAX, &config.replica_count))
		return err_set(e, ERR_INVALID, "store.replicas names more than %d databases; remove some",
		               REPLICAS_MAX);
	return store_shards_open(&config, ret, e);
}

static int open_postgres(const struct store_place *p, struct store **ret, struct err *e)
{
	return backend_open_shards(p->url, p->replicas, false, ret, e);
}

static const struct {
	const char *scheme;
	int (*open)(const struct store_place *p, struct store **ret, struct err *e);
} stores[] = {
    {"sqlite:", open_sqlite},
    {"postgres://", open_postgres},
    {"postgresql://", open_postgres},
    {"fault:", open_fault}, /* for tests of failures */
};

static int open_one(const char *url, const char *replicas, const struct folder *f, struct store **ret,
                    struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(stores); i++) {
		size_t len = strlen(stores[i].scheme);
		const struct store_place place = {url, url + len, replicas, f};
		if (strncmp(url, stores[i].scheme, len) == 0)
			return stores[i].open(&place, ret, e);
	}
	return err_set(e, ERR_INVALID,
	               "store.url = %.*s... names no known store; write sqlite: or "
	               "postgres://USER@HOST/DATABASE",
	               (int)MIN(strcspn(url, ":/@"), 16), url);
}

int backend_open_store_with(const char *url, const char *replicas, const struct folder *f, struct store **ret,
                            struct err *e)
{
	return about("store.url", open_one(url, replicas, f, ret, e), e);
}

int backend_open_store(const char *url, const struct folder *f, struct store **ret, struct err *e)
{
	return backend_open_store_with(url, "", f, ret, e);
}

static const char sqlite_scheme[] = "sqlite:";

bool backend_sink_is_file(const char *url)
{
	return strncmp(url, sqlite_scheme, strlen(sqlite_scheme)) == 0;
}

static int open_sink_sqlite(const char *rest, const struct folder *f, const struct sink_settings *s,
                            struct sink **ret, struct err *e)
{
	if (!f)
		return err_set(e, ERR_INVALID,
		               "sink.url = sqlite: belongs to one server; set a shared sink, such as "
		               "clickhouse://HOST:8123 or postgres://HOST/DATABASE");
	char *path CLEANUP(freep) = rest[0] ? strdup(rest) : folder_path(f, "stats.db");
	return path ? sink_sqlite_open(path, s, ret, e) : err_set(e, ERR_NOMEM, "out of memory");
}

static const struct {
	const char *scheme;
	int (*open)(const char *url, const struct sink_settings *s, struct sink **ret, struct err *e);
} shared_sinks[] = {
    {"clickhouse://", sink_clickhouse_open},
    {"postgres://", sink_postgres_open},
    {"postgresql://", sink_postgres_open},
};

int backend_open_sink(const char *url, const struct folder *f, const struct sink_settings *s,
                      struct sink **ret, struct err *e)
{
	if (backend_sink_is_file(url))
		return about("sink.url", open_sink_sqlite(url + strlen(sqlite_scheme), f, s, ret, e), e);
	for (size_t i = 0; i < ARRAY_LEN(shared_sinks); i++) {
		if (strncmp(url, shared_sinks[i].scheme, strlen(shared_sinks[i].scheme)) == 0)
			return about("sink.url", shared_sinks[i].open(url, s, ret, e), e);
	}
	return err_set(e, ERR_INVALID,
	               "sink.url names no known sink; write sqlite:, sqlite:/path, clickhouse://HOST:8123 or "
	               "postgres://HOST/DATABASE");
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
			return about("lease.url", lease_services[i].open(url, ret, e), e);
	}
	return err_set(e, ERR_INVALID,
	               "lease.url names no known lease service; write redis://HOST:PORT, "
	               "redis+sentinel://HOST:PORT/NAME, zookeeper://HOST:PORT/PATH or file:/FOLDER");
}

/* The store's name, which is part of all keys in Redis: servers of other stores may use the same Redis. */
static int installation_name(const char *setting, const char *urls, struct store *store,
                             char ret[INSTALLATION_TEXT_BYTES], struct err *e)
{
	unsigned char name[INSTALLATION_BYTES];
	if (strncmp(urls, "redis://", 8) != 0 && strncmp(urls, "redis+sentinel://", 17) != 0)
		return err_set(e, ERR_INVALID,
		               "%s names no known service; write redis://HOST:PORT or "
		               "redis+sentinel://HOST:PORT,HOST:PORT/NAME",
		               setting);
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
	int r = urls[0] ? installation_name("cache.url", urls, store, name, e) : 0;
	return r < 0 || !urls[0] ? r : about("cache.url", rcache_redis_open(urls, name, listener, ret, e), e);
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
	int r = installation_name("seen.url", urls, store, name, e);
	return r < 0 ? r : about("seen.url", seen_redis_open(&config, ret, e), e);
}

int backend_open_counters(const char *urls, struct store *store, struct counters **ret, struct err *e)
{
	char name[INSTALLATION_TEXT_BYTES];
	const struct counters_redis_config config = {
	    .urls = urls, .installation = name, .stream_links_max = COUNTED_LINKS_MAX};
	int r = installation_name("seen.url", urls, store, name, e);
	return r < 0 ? r : about("seen.url", counters_redis_open(&config, ret, e), e);
}

int backend_open_limiter(const char *urls, struct store *store, struct limiter **ret, struct err *e)
{
	char name[INSTALLATION_TEXT_BYTES];
	*ret = NULL;
	int r = urls[0] ? installation_name("limits.url", urls, store, name, e) : 0;
	return r < 0 || !urls[0] ? r : about("limits.url", limiter_redis_open(urls, name, ret, e), e);
}

static int open_pool(const struct settings *s, struct key_source **ret, struct err *e)
{
	if (!s->keys.url[0])
		return err_set(
		    e, ERR_INVALID,
		    "keys.url is not set, and keys.source = pool needs the Redis servers that hold the "
		    "keys; set keys.url, or keys.source = cipher");
	return about("keys.url", key_pool_open(s->keys.url, s->keys.batch, ret, e), e);
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
	case SOURCE_POOL: return open_pool(s, ret, e);
	case SOURCE_CLAIM: return backend_open_claim(s, store, CLAIM_ID_BLOCK, ret, e);
	}
	return 0;
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
