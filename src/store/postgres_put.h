/* Links on their way into the tables, many in one statement. For the files of the PostgreSQL store only. */
#pragma once

#include "store/postgres_txn.h"

struct link_row {
	const struct link_record *link;
	struct str name;
	uint64_t key_id; /* what the name encodes, if it is a generated key's; 0: it was chosen */
	bool reuse;      /* insert: a key that was spent before */
};

/* What came of an insert. Names that rest or are spent are told, inserted or not, but those to be used again:
 * the caller judges, and deletes what is not to be had. */
enum { KEPT_KINDS = 2 };
struct inserted {
	struct pg_result ids;              /* that were inserted */
	struct pg_result kept[KEPT_KINDS]; /* names that rest, and names that are spent */
};
void inserted_end(struct inserted *i);

/* Inserts those whose name and id no link has. */
int postgres_links_insert(struct postgres_txn *t, const struct link_row *rows, size_t n,
                          struct inserted *ret);

/* All but the clicks and the list. */
void postgres_links_update(struct postgres_txn *t, const struct link_row *rows, size_t n);

/* With all that hangs on them. */
void postgres_links_delete(struct postgres_txn *t, const struct str *names, size_t n);

/* Their tags' index. */
void postgres_tags_insert(struct postgres_txn *t, const struct link_row *rows, size_t n);
void postgres_tags_delete(struct postgres_txn *t, const struct str *names, size_t n);
