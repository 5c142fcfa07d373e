/*
 * Single rows of a link file, found and read, over one connection. For the files of the SQLite store only.
 * Finding returns SQLite's code (SQLITE_OK or an error); what became of it stands in *ret_result: 0,
 * ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM. Strings go to the arena.
 */
#pragma once

#include "store/sqlite_layout.h"
#include "store/store.h"

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
