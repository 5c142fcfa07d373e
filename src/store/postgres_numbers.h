/* Counters and constants; click totals and keys that come back are in postgres_store.h. For the files of the
 * PostgreSQL store only. Functions are those of struct store_ops. */
#pragma once

#include "store/postgres_layout.h"

#include "store/postgres_txn.h"

int postgres_lease(struct pg_pool *writers, struct str counter, uint64_t count, uint64_t *ret_first);
int postgres_constant(struct pg_pool *writers, struct str name, void *value, size_t len);
int postgres_forget(struct pg_pool *writers, struct str from, struct str before);
