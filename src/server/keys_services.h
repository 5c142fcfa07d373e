/*
 * `curt keygen` makes keys and stores them in the keys databases; `curt keysync` moves them from there to the
 * Redis servers. Zeroed members have not been made. A stop may follow a start that failed.
 */
#pragma once

#include "keys/keygen.h"
#include "keys/keysync.h"
#include "server/settings.h"

struct keygen_service {
	struct store *store;
	struct key_source *origin;
	struct leases *leases;
	struct arena arena;
	struct keys_db **dbs;
	size_t db_count;
	struct keygen *keygen;
};

int keygen_service_start(struct keygen_service *k, const struct settings *s, struct err *e);
void keygen_service_stop(struct keygen_service *k, struct keygen_sums *ret);

struct keysync_service {
	struct arena arena;
	struct redis_key_list **lists;
	size_t list_count;
	struct leases **leases; /* of each list */
	size_t leases_opened;   /* the first ones are ours; the rest repeats the first */
	struct keys_db **dbs;
	size_t db_count;
	struct keysync *keysync;
};

int keysync_service_start(struct keysync_service *k, const struct settings *s, struct err *e);
void keysync_service_stop(struct keysync_service *k, struct keysync_sums *ret);
