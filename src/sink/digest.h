/* Fresh visits become blocks, cells and totals. For this backend only; SQLite's codes. */
#pragma once

#include "sink/codec.h"
#include "sink/layout.h"

/* The next piece of what is fresh, in the transaction that the caller has begun: about `visits_max` visits,
 * or all of one link, if it has more. Goes on with the digest under way, or begins one of all that is fresh.
 */
int digest_piece(struct sqlite_conn *c, size_t visits_max);

/* Adds to the cell (level, start, link); the scratch buffer is the caller's. */
int digest_cell_add(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                    struct counts *shapes, struct runs *runs, uint64_t first_visit, struct buf *scratch);

/* Hands every visit that is not digested yet to `each`, which says 0 or a code that ends it. Its ordinal is
 * its place among all in the fresh rows. */
typedef int digest_each_fn(void *arg, uint64_t ordinal, const struct visit_key *key, uint32_t visitor);
int digest_fresh_each(struct sqlite_conn *c, digest_each_fn *each, void *arg);
