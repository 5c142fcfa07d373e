/* Links on their way into the tables, many in one statement. For the files of the PostgreSQL store only. */
#pragma once

#include "store/postgres_txn.h"

struct link_row {
	const struct link_record *link;
	struct str name;
	uint64_t key_id;  /* what the name encodes, if it is a generated key's; 0: it was chosen */
	struct str entry; /* insert: of the feed */
};

/* The feed's row that an insert writes, with the entries of the links that it made behind others. */
struct link_feed {
	int64_t now_ms;
	struct str entries;
};

/* Inserts those whose name and id no link has. Their names are in *ret_names when the transaction has asked
 * or ended; with `feed`, one NULL stands for all of them. Without it the feed's row is left to the caller. */
void postgres_links_insert(struct postgres_txn *t, const struct link_row *rows, size_t n,
                           const struct link_feed *feed, struct pg_result *ret_names);

/* All but the clicks and the list. */
void postgres_links_update(struct postgres_txn *t, const struct link_row *rows, size_t n);

/* With all that hangs on them. */
void postgres_links_delete(struct postgres_txn *t, const struct str *names, size_t n);

/* Their tags' index; with `if_made` only of those that are there. */
void postgres_tags_insert(struct postgres_txn *t, const struct link_row *rows, size_t n, bool if_made);
void postgres_tags_delete(struct postgres_txn *t, const struct str *names, size_t n);
