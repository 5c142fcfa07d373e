/* The tables of a PostgreSQL store, and how they come to be. For the files of the PostgreSQL store only. */
#pragma once

#include "client/postgres.h"

/* Brings the database to the layout that this version knows. Any number of servers may do it at once.
 * ERR_INVALID with a sentence when a newer version was here. *ret_distributed: Citus spreads the tables. */
int postgres_layout_make(struct pg_conn *c, bool *ret_distributed, struct err *e);
