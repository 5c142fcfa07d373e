/*
 * A keys database: unused keys in a PostgreSQL table. A unique constraint backs up the generator's
 * uniqueness. Taking a key deletes its row. Concurrent takers never get the same key, and do not wait for
 * each other.
 *
 * Keys are added under a fencing number (lease.h). The database stores the largest number that it has seen,
 * and refuses smaller ones: a process whose lease expired adds nothing.
 *
 * All calls block, and may come from any thread.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "link/key_source.h"

enum { KEYS_DB_NAME_BYTES = 33, KEYS_DB_KEYS_MAX = 1000 /* per call */ };

struct keys_db;

/* Only parses the URL; tables are created on first use. */
int keys_db_new(struct str url, struct keys_db **ret, struct err *e);
void keys_db_free(struct keys_db *s);

struct str keys_db_address(const struct keys_db *s); /* host:port/database */
bool keys_db_is_failing(const struct keys_db *s);    /* in backoff after a failure */

/* The database's name, the same under every address. */
int keys_db_name(struct keys_db *s, char out[KEYS_DB_NAME_BYTES], struct err *e);

/* Exact, in constant time. */
int keys_db_count(struct keys_db *s, uint64_t *ret, struct err *e);

/* Adds keys; *ret_new: how many were new. n may be 0. ERR_CONFLICT: a larger fencing number was seen.
 * ERR_UNCERTAIN: they may have been added, and taken by others since. Other errors: nothing was added. */
int keys_db_add(struct keys_db *s, uint64_t fence, const struct source_key *keys, size_t n, size_t *ret_new,
                struct err *e);

/* Takes up to KEYS_DB_KEYS_MAX keys. ERR_UNCERTAIN: the answer was lost, and with it up to `max` keys.
 * Other errors: none was taken. */
int keys_db_take(struct keys_db *s, size_t max, struct source_key *ret, size_t *ret_count, struct err *e);

/* Returns keys that were taken but not delivered. */
int keys_db_return(struct keys_db *s, const struct source_key *keys, size_t n, struct err *e);

/* Opens a comma-separated list of URLs (commas between hosts of one URL do not count). The array is in
 * `arena`, the databases are not. */
int keys_dbs_new(struct str urls, struct arena *arena, struct keys_db ***ret, size_t *ret_count,
                 struct err *e);
void keys_dbs_free(struct keys_db **dbs, size_t n);
