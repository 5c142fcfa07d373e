/*
 * A keys database: keys that nobody has yet, in a PostgreSQL table whose unique constraint is the belt to the
 * generator's braces. Whoever takes keys deletes their rows, for good; several may take at once, never get
 * the same key, and do not wait for each other.
 *
 * Keys are added under a fencing number (lease.h). The database keeps the largest that it has seen and
 * refuses smaller ones: whoever slept through the end of its lease adds nothing.
 *
 * All calls block, and may come from any thread.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "link/source.h"

enum { KEYS_DB_NAME_BYTES = 33, KEYS_DB_KEYS_MAX = 1000 /* in one call */ };

struct keys_db;

/* Only parses: the tables are made when the database is first asked. */
int keys_db_new(struct str url, struct keys_db **ret, struct err *e);
void keys_db_free(struct keys_db *s);

struct str keys_db_address(const struct keys_db *s); /* host:port/database */
bool keys_db_is_failing(const struct keys_db *s);    /* it is being left alone for a while */

/* The database's own name, the same for whoever reaches it by whichever address. */
int keys_db_name(struct keys_db *s, char out[KEYS_DB_NAME_BYTES], struct err *e);

/* Exact, and costs the same however many there are. */
int keys_db_count(struct keys_db *s, uint64_t *ret, struct err *e);

/* How many of them were new; n may be 0. ERR_CONFLICT: a larger number was seen. ERR_UNCERTAIN: they may have
 * been added, and taken by others since. After other failures nothing was added. */
int keys_db_add(struct keys_db *s, uint64_t fence, const struct source_key *keys, size_t n, size_t *ret_new,
                struct err *e);

/* Up to KEYS_DB_KEYS_MAX. ERR_UNCERTAIN: as many may have been taken, and are lost, since the answer did not
 * come; after other failures none was. */
int keys_db_take(struct keys_db *s, size_t max, struct source_key *ret, size_t *ret_count, struct err *e);

/* Puts back what was taken and did not get anywhere. */
int keys_db_return(struct keys_db *s, const struct source_key *keys, size_t n, struct err *e);

/* Of a list of URLs separated by commas (a comma between the hosts of one URL does not separate): `ret` is in
 * `arena`, the stocks are not. */
int keys_dbs_new(struct str urls, struct arena *arena, struct keys_db ***ret, size_t *ret_count,
                 struct err *e);
void keys_dbs_free(struct keys_db **dbs, size_t n);
