/*
 * Single rows of a link file, found and read, over one connection. For the files of the SQLite store only.
 * Finding returns SQLite's code (SQLITE_OK or an error); what became of it stands in *ret_result: 0,
 * ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM. Strings go to the arena.
 */
#pragma once

#include "store/fields.h"
#include "store/sqlite_layout.h"
#include "store/store.h"

/* Binds the stored fields in the order of their rows, as the column lists of sqlite_layout.c have them. An id
 * of 0 becomes NULL: SQLite chooses one. Strings are borrowed until query_end. */
void sqlite_bind_record(struct query *q, const struct fields *s, enum fields_which which, const void *record);

/* 0, ERR_CORRUPT or ERR_NOMEM; then the record may be half filled. */
int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret);
int sqlite_row_read(sqlite3_stmt *row, const struct fields *s, struct arena *arena, void *record,
                    size_t size);

int sqlite_link_by_id(struct sqlite_conn *c, uint64_t id, struct arena *arena, int *ret_result,
                      struct link_record *ret);
int sqlite_link_find(struct sqlite_conn *c, struct link_ref ref, struct arena *arena, int *ret_result,
                     struct link_record *ret);

int sqlite_permission_find(struct sqlite_conn *c, uint64_t link, uint64_t user, bool *ret);
