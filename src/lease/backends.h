/* Constructors of the lease backends. Only the composition root and tests include this. */
#pragma once

#include "lease/lease.h"

/* File locks in a folder, for processes of one machine. */
int leases_local_open(const char *folder, struct leases **ret, struct err *e);

/* SET NX PX with a random token, and a counter as fencing number. One redis:// or redis+sentinel:// URL. */
int leases_redis_open(const char *url, struct leases **ret, struct err *e);

/* Ephemeral nodes under a path; the fencing number is the transaction that created the node.
 * zookeeper://host:port,host:port/path */
int leases_zookeeper_open(const char *url, struct leases **ret, struct err *e);
