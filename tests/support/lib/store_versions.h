/* Files of earlier versions of the SQLite store, made by the SQL of that time, with rows in them. */
#pragma once

#include "store/store.h"

enum { STORE_VERSION_LAST = 2 }; /* before the present one */

void store_version_make(const char *path, int version);

/* Asserts that a store that was made of such a file has all its links, owners and tags. */
void store_version_check(struct store *store, int version);
