/* Constructors of the store backends. Only the composition root (src/server/, src/cmd/) and tests include
 * this. */
#pragma once

#include "base/findings.h"
#include "store/store.h"

/* Opens a SQLite file, and creates it when it does not exist. ERR_INVALID with a sentence when the file
 * belongs to another program or to a newer version. */
int store_sqlite_open(const char *path, struct store **ret, struct err *e);

/* Looks for damage and changes nothing: client/sqlite_check.h. `is_valid` knows more about links than the
 * store does; NULL: nothing. */
void store_sqlite_check(const char *path, bool is_deep, bool is_in_use,
                        bool (*is_valid)(const struct link_record *), struct findings *f);

/*
 * Opens a store over PostgreSQL databases, or over one compatible server (docs/postgres.md lists them).
 * Creates missing tables.
 *
 * ERR_INVALID with a sentence: a URL is wrong, or a newer version has upgraded the tables. ERR_UNAVAILABLE:
 * a required database does not answer.
 *
 * `is_admin` is for store/reshard.h. It creates nothing (ERR_NOT_FOUND when the databases do not form a
 * store yet), and it opens even when some databases are lost.
 */
struct store_shards_config {
	const struct str *urls;
	size_t count;
	const struct str *replicas; /* of any of the databases */
	size_t replica_count;
	size_t readers, writers; /* most connections to each; 0: the default */
	bool is_admin;
};
int store_shards_open(const struct store_shards_config *config, struct store **ret, struct err *e);

/*
 * Fault injection: makes calls of a store fail, to test its callers. *ret is the same store; store_free
 * removes the rules.
 *
 * `spec` is a comma-separated list of OP=ERROR[@N[!]]:
 *
 *	OP        lookup, apply, list, tagged, clicks, permitted, over, users, keys, accounts,
 *	          lease, counter, constant, ping, claim
 *	ERROR     unavailable, uncertain, corrupt, busy, no-memory
 *	@N        from the N-th call on; @N! only the N-th call; without it every call
 *
 * `apply=uncertain` applies the changes, then returns the error. `lookup=slow` answers after 300 ms.
 */
int store_fault_open(const char *spec, struct store *store, struct store **ret, struct err *e);
