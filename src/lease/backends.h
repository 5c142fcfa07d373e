/* The backends of the role `lease`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "lease/lease.h"

/* Locks on files in a folder: for processes of one machine. */
int leases_local_open(const char *folder, struct leases **ret, struct err *e);

/* SET NX PX with a random token, and a counter for the fencing number. One redis:// or redis+sentinel://. */
int leases_redis_open(const char *url, struct leases **ret, struct err *e);

/* Ephemeral nodes under a path; the fencing number is the node's creation transaction.
 * zookeeper://host:port,host:port/path */
int leases_zookeeper_open(const char *url, struct leases **ret, struct err *e);
