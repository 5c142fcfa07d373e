/* Checks and opens the backend that a URL names. The one place that knows them all. */
#pragma once

#include "counters/counters.h"
#include "lease/lease.h"
#include "limiter/limiter.h"
#include "rcache/rcache.h"
#include "seen/seen.h"
#include "server/folder.h"
#include "server/settings.h"
#include "sink/settings.h"
#include "sink/sink.h"
#include "store/store.h"

/* Checks what the URLs of all settings say, without connecting. ERR_INVALID. */
int backend_check(const struct settings *s, struct err *e);
/* Checks more, for a start that is about to create files: the database of places, the properties of Kafka. */
int backend_check_start(const struct settings *s, struct err *e);
/* ERR_INVALID: the store or the sink is in a data folder, and no other process can use it. */
int backend_check_shared(const struct settings *s, struct err *e);

/*
 * sqlite: (in the data folder), sqlite:/path, postgres://, fault:SPEC;URL. Links are sharded over several
 * postgres:// URLs, separated by commas. `replicas` has URLs likewise; "": none. With `f` NULL, only stores
 * outside the data folder.
 */
int backend_open_store_with(const char *url, const char *replicas, const struct folder *f, struct store **ret,
                            struct err *e);
int backend_open_store(const char *url, const struct folder *f, struct store **ret, struct err *e);

/* Only postgres://; `is_admin` as in store/backends.h. */
int backend_open_shards(const char *urls, const char *replicas, bool is_admin, struct store **ret,
                        struct err *e);

bool backend_sink_is_file(const char *url); /* of this machine */
/* sqlite: (in the data folder), sqlite:/path, clickhouse://, postgres://. With `f` NULL, no sqlite:. */
int backend_open_sink(const char *url, const struct folder *f, const struct sink_settings *s,
                      struct sink **ret, struct err *e);

/* redis://, redis+sentinel://, zookeeper://, file:/FOLDER */
int backend_open_leases(const char *url, struct leases **ret, struct err *e);

/* redis:// and redis+sentinel://, several separated by commas; *ret is NULL when the setting is empty. Keys in
 * Redis carry the store's name, so servers on other stores may use the same Redis. */
int backend_open_rcache(const char *urls, struct store *store, const struct rcache_listener *listener,
                        struct rcache **ret, struct err *e);
int backend_open_seen(const char *urls, struct store *store, struct sink *sink, uint64_t window_ms,
                      struct seen **ret, struct err *e);
int backend_open_counters(const char *urls, struct store *store, struct counters **ret, struct err *e);
int backend_open_limiter(const char *urls, struct store *store, struct limiter **ret, struct err *e);

/* The source of keys.source = claim, whatever the setting is. */
int backend_open_claim(const struct settings *s, struct store *store, uint64_t id_block,
                       struct key_source **ret, struct err *e);

/* The source that keys.source names; *ret is NULL for cipher. */
int backend_open_source(const struct settings *s, struct store *store, struct key_source **ret,
                        struct err *e);

/* A line for each setting that names a backend: the URL schemes it may have. */
void backend_list(struct buf *out);
