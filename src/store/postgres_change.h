/* Fetching and writing links inside a transaction; decide.h applies the rules in between. Functions return
 * 0 or the error that ended the transaction. */
#pragma once

#include "store/postgres_store.h"

/* --- postgres_fetch.c --- */

/* Names, with up to two numbers each, as the arrays of a statement. */
struct name_columns {
	struct str *names;
	int64_t *a, *b;
	size_t count;
};

/* False: out of memory, which ends the transaction. */
bool name_columns_init(struct postgres_txn *t, struct name_columns *c, size_t capacity);
void name_columns_add(struct name_columns *c, struct str name, int64_t a, int64_t b);

/* Fetches and locks the rows of a view in one round trip; one more if idempotency keys were used before. With
 * `all` also the links of names that are only generated. */
int postgres_fetch_links(struct postgres_txn *t, struct view *v, bool all);

/* --- postgres_links.c --- */

/* Puts the statements that write what was decided. When the transaction has ended, *ret_made has the names of
 * the inserted links; the caller ends it. */
int postgres_write_links(struct postgres_txn *t, struct view *v, struct pg_result *ret_made);

/* Sets is_lost of the rows whose insert was lost; returns how many. */
size_t postgres_lost_mark(struct view *v, const struct pg_result *made);

/* The same if the answer to the COMMIT was lost, from the table as it is now. A name that another link has
 * was lost. A free name is unknown: its link may have been inserted, and removed by another server. */
int postgres_lost_find(struct pg_conn *c, struct view *v, size_t *ret_lost);

/* --- postgres_put.c: many links in one statement --- */

struct link_row {
	const struct link_record *link;
	struct str name;
	uint64_t key_id;  /* the id that a generated key encodes; 0: an alias */
	struct str entry; /* insert: its feed entry */
};

/* The feed row that an insert writes: `entries`, then those of the inserted links. */
struct link_feed {
	int64_t now_ms;
	struct str entries;
};

/* Inserts the links whose name and id are free. *ret_names has their names after the next round trip; with
 * `feed` a single NULL means all. Without `feed` the caller writes the feed row. */
void postgres_links_insert(struct postgres_txn *t, const struct link_row *rows, size_t n,
                           const struct link_feed *feed, struct pg_result *ret_names);

/* Writes all but clicks and the permission list. */
void postgres_links_update(struct postgres_txn *t, const struct link_row *rows, size_t n);

/* Deletes links with their tags, permissions and totals. */
void postgres_links_delete(struct postgres_txn *t, const struct str *names, size_t n);

/* Rows of the table tag; with `if_made` only of links that exist. */
void postgres_tags_insert(struct postgres_txn *t, const struct link_row *rows, size_t n, bool if_made);
void postgres_tags_delete(struct postgres_txn *t, const struct str *names, size_t n);
