/*
 * What the store's readers ask of a link file, over one connection. For store_sqlite.c only. Functions return
 * our codes; outputs are those of struct store_ops, untouched on failure.
 */
#pragma once

#include "store/sqlite_layout.h"
#include "store/store.h"

int sqlite_read_links(struct sqlite_conn *c, struct store_lookup *reads, size_t n);
int sqlite_read_list(struct sqlite_conn *c, struct store_list *page, uint64_t id_max);
int sqlite_read_tagged(struct sqlite_conn *c, struct str tag, size_t max, uint64_t *ret_ids,
                       size_t *ret_count);
int sqlite_read_permitted(struct sqlite_conn *c, uint64_t link, struct arena *arena, uint64_t **ret,
                          size_t *ret_count);
int sqlite_read_over(struct sqlite_conn *c, struct store_over *over);
int sqlite_read_users(struct sqlite_conn *c, struct store_users *page);
int sqlite_read_keys(struct sqlite_conn *c, struct store_keys *page);
int sqlite_read_accounts(struct sqlite_conn *c, struct store_account *reads, size_t n, struct arena *arena);

/* In a snapshot. */
int sqlite_read_feed(struct sqlite_conn *c, bool accounts, struct feed_page *page);
