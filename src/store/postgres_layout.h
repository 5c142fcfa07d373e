/* The tables of a PostgreSQL store, and how they come to be. For the files of the PostgreSQL store only. */
#pragma once

#include "client/postgres.h"

/* What the server can do. */
struct postgres_kind {
	bool has_advisory_locks;
	bool is_distributed; /* Citus spreads the tables */
};

/* Brings the database to the layout that this version knows. Any number of servers may do it at once.
 * ERR_INVALID with a sentence when a newer version was here. */
int postgres_layout_make(struct pg_conn *c, struct postgres_kind *ret, struct err *e);
