/* Which backend a URL names. The one place that knows them all. */
#pragma once

#include "cmd/folder.h"
#include "store/store.h"

/* sqlite: (in the data folder), sqlite:/path, memory:, fault:SPEC;URL */
int backend_open_store(const char *url, const struct folder *f, struct store **ret, struct err *e);
