/* Fresh visits become blocks, cells and totals. For this backend only; SQLite's codes. */
#pragma once

#include "sink/codec.h"
#include "sink/layout.h"

/* All that is fresh, in the transaction that the caller has begun. */
int digest_run(struct sqlite_conn *c);

/* Adds to the cell (level, start, link); the scratch buffer is the caller's. */
int digest_cell_add(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                    struct counts *shapes, struct runs *runs, uint64_t first_visit, struct buf *scratch);

/* Hands every fresh visit to `each`, which says 0 or a code that ends it. */
int digest_fresh_each(struct sqlite_conn *c,
                      int (*each)(void *arg, const struct visit_key *key, uint32_t visitor), void *arg);
