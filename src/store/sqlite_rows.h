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

/* Reads them back, from that column on: 0, ERR_CORRUPT or ERR_NOMEM; then the record may be half filled. */
int sqlite_read_record(sqlite3_stmt *row, int column, const struct fields *s, struct arena *arena,
                       void *record);

/* 0, ERR_CORRUPT or ERR_NOMEM. */
int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret);
int sqlite_row_user(sqlite3_stmt *row, struct arena *arena, struct user_record *ret);
int sqlite_row_key(sqlite3_stmt *row, struct arena *arena, struct key_record *ret);

int sqlite_link_by_id(struct sqlite_conn *c, uint64_t id, struct arena *arena, int *ret_result,
                      struct link_record *ret);
int sqlite_link_find(struct sqlite_conn *c, struct link_ref ref, struct arena *arena, int *ret_result,
                     struct link_record *ret);

/* By email address, or by id when that is STR_NULL. */
int sqlite_user_find(struct sqlite_conn *c, uint64_t id, struct str email, struct arena *arena,
                     int *ret_result, struct user_record *ret);

int sqlite_permission_find(struct sqlite_conn *c, uint64_t link, uint64_t user, bool *ret);
int sqlite_user_exists(struct sqlite_conn *c, uint64_t id, bool *ret);

/* The number that a counter's next lease begins with. */
int sqlite_counter_next(struct sqlite_conn *c, struct str name, int64_t *ret);
