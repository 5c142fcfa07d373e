#include "cmd/backends.h"

#include "lease/backends.h"
#include "sink/sink_sqlite.h"
#include "store/backends.h"

#include <stdlib.h>

static int open_sqlite(const char *rest, const struct folder *f, struct store **ret, struct err *e)
{
	char *path CLEANUP(freep) = rest[0] ? strdup(rest) : folder_path(f, "links.db");
	return store_sqlite_open(path, ret, e);
}

static int open_memory(const char *rest, const struct folder *f, struct store **ret, struct err *e)
{
	(void)f;
	if (rest[0])
		return err_set(e, ERR_INVALID, "store.url = memory: takes nothing behind the colon");
	return store_memory_open(ret, e);
}

static int open_fault(const char *rest, const struct folder *f, struct store **ret, struct err *e)
{
	const char *inner_url = strchr(rest, ';');
	if (!inner_url)
		return err_set(e, ERR_INVALID, "store.url = fault: is written fault:OP=ERROR[@N],...;URL");
	char *spec CLEANUP(freep) = strndup(rest, (size_t)(inner_url - rest));
	struct store *inner = NULL;
	int r = backend_open_store(inner_url + 1, f, &inner, e);
	if (r < 0)
		return r;
	r = store_fault_open(spec, inner, ret, e);
	if (r < 0)
		store_free(inner);
	return r;
}

static const struct {
	const char *scheme;
	int (*open)(const char *rest, const struct folder *f, struct store **ret, struct err *e);
} stores[] = {
    {"sqlite:", open_sqlite},
    {"memory:", open_memory},
    {"fault:", open_fault}, /* to see what the server does when its store fails */
};

int backend_open_store(const char *url, const struct folder *f, struct store **ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(stores); i++) {
		size_t len = strlen(stores[i].scheme);
		if (strncmp(url, stores[i].scheme, len) == 0)
			return stores[i].open(url + len, f, ret, e);
	}
	return err_set(e, ERR_INVALID,
	               "store.url = %.64s names no known store; write sqlite: or memory:", url);
}

int backend_open_sink(const char *url, const struct folder *f, const struct sink_settings *s,
                      struct sink **ret, struct err *e)
{
	if (strncmp(url, "sqlite:", 7) != 0)
		return err_set(e, ERR_INVALID,
		               "sink.url = %.64s names no known sink; write sqlite: or sqlite:/path", url);
	char *path CLEANUP(freep) = url[7] ? strdup(url + 7) : folder_path(f, "stats.db");
	return path ? sink_sqlite_open(path, s, ret, e) : err_set(e, ERR_NOMEM, "out of memory");
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
			return lease_services[i].open(url, ret, e);
	}
	return err_set(e, ERR_INVALID,
	               "lease.url names no known lease service; write redis://HOST:PORT, "
	               "redis+sentinel://HOST:PORT/NAME, zookeeper://HOST:PORT/PATH or file:/FOLDER");
}
