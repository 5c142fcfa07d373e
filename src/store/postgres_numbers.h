/* Click totals, counters, constants and keys that come back. For the files of the PostgreSQL store only.
 * Functions are those of struct store_ops. */
#pragma once

#include "store/postgres_layout.h"

#include "store/postgres_txn.h"

int postgres_set_clicks(struct pg_pool *writers, bool is_distributed, uint64_t node,
                        const struct store_count *counts, size_t n);
int postgres_lease(struct pg_pool *writers, struct str counter, uint64_t count, uint64_t *ret_first);
int postgres_constant(struct pg_pool *writers, struct str name, void *value, size_t len);
int postgres_forget(struct pg_pool *writers, struct str from, struct str before);
int postgres_claim(struct pg_pool *writers, const struct postgres_kind *kind, int64_t now_ms,
                   uint64_t rest_ms, size_t max, uint64_t *ret_ids, size_t *ret_count);
