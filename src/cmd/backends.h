/* Which backend a URL names. The one place that knows them all. */
#pragma once

#include "cmd/folder.h"
#include "lease/lease.h"
#include "sink/settings.h"
#include "sink/sink.h"
#include "store/store.h"

/* sqlite: (in the data folder), sqlite:/path, memory:, fault:SPEC;URL */
int backend_open_store(const char *url, const struct folder *f, struct store **ret, struct err *e);

/* sqlite: (in the data folder), sqlite:/path */
int backend_open_sink(const char *url, const struct folder *f, const struct sink_settings *s,
                      struct sink **ret, struct err *e);

/* redis://, redis+sentinel://, zookeeper://, file:/FOLDER */
int backend_open_leases(const char *url, struct leases **ret, struct err *e);
