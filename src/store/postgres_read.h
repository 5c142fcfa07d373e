/*
 * What is read from a PostgreSQL store, over one connection and outside of transactions. For the files of the
 * PostgreSQL store only. Outputs are those of struct store_ops, untouched on failure.
 */
#pragma once

#include "client/postgres.h"
#include "store/store.h"

/*
 * With `epoch` not 0 it is ERR_CONFLICT when the part has another. The epoch is read after the links: if it
 * is still the same then, the links lay where the caller looked for them.
 */
int postgres_read_links(struct pg_conn *c, uint64_t epoch, struct store_lookup *reads, size_t n);

int postgres_read_list(struct pg_conn *c, struct store_list *page);
int postgres_read_tagged(struct pg_conn *c, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count);
int postgres_read_permitted(struct pg_conn *c, uint64_t link, struct arena *arena, uint64_t **ret,
                            size_t *ret_count);
int postgres_read_over(struct pg_conn *c, struct store_over *over);
int postgres_read_users(struct pg_conn *c, struct store_users *page);
int postgres_read_keys(struct pg_conn *c, struct store_keys *page);
int postgres_read_accounts(struct pg_conn *c, struct store_account *reads, size_t n, struct arena *arena);
int postgres_read_version(struct pg_conn *c, uint64_t *ret);

/* --- cursors: "CREATED_MS.ID" of the last link of a page --- */

struct str postgres_cursor_format(struct arena *arena, const struct link_record *last);
