/*
 * What is read from a PostgreSQL store, over one connection and outside of transactions. For the files of the
 * PostgreSQL store only. Outputs are those of struct store_ops, untouched on failure.
 */
#pragma once

#include "client/postgres.h"
#include "store/postgres_slots.h"
#include "store/store.h"

struct ranked_id;

/*
 * Under `row`: ERR_CONFLICT when the database has another by now (store/slots.h). The version is read after
 * the rest: if it is still the same then, the slots were the row's while the rest was read.
 */
int postgres_read_links(struct pg_conn *c, const struct slot_row *row, struct store_lookup *reads, size_t n);
int postgres_read_list(struct pg_conn *c, const struct slot_row *row, struct store_list *page);
int postgres_read_tagged(struct pg_conn *c, const struct slot_row *row, struct str tag, size_t max,
                         struct ranked_id *ret, size_t *ret_count);
int postgres_read_permitted(struct pg_conn *c, const struct slot_row *row, uint64_t link, struct arena *arena,
                            uint64_t **ret, size_t *ret_count);
int postgres_read_over(struct pg_conn *c, const struct slot_row *row, const struct store_over *over,
                       struct ranked_id *ret, size_t *ret_count, uint64_t *ret_total);

/* --- cursors: "CREATED_MS.ID" of the last link of a page --- */

struct str postgres_cursor_format(struct arena *arena, const struct link_record *last);
