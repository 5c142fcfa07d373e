/* Links on their way into the tables, many in one statement. For the files of the PostgreSQL store only. */
#pragma once

#include "store/postgres_txn.h"

struct link_row {
	const struct link_record *link;
	struct str name;
	uint64_t key_id; /* what the name encodes, if it is a generated key's; 0: it was chosen */
	bool sure;       /* insert: nobody need be asked whether the name rests or is spent */
	bool reuse;      /* insert: a key that was spent before */
};

/* Asks for the insert of those whose name and id are free; the ids that were inserted are the first column
 * of the answer. ERR_BUSY when one of them has come to rest, or was spent, while the insert waited. */
int postgres_links_insert(struct postgres_txn *t, const struct link_row *rows, size_t n,
                          struct pg_result *ret);

/* All but the clicks and the list. */
void postgres_links_update(struct postgres_txn *t, const struct link_row *rows, size_t n);

/* With all that hangs on them. */
void postgres_links_delete(struct postgres_txn *t, const struct str *names, size_t n);

/* Their tags' index. */
void postgres_tags_insert(struct postgres_txn *t, const struct link_row *rows, size_t n);
void postgres_tags_delete(struct postgres_txn *t, const struct str *names, size_t n);
