/* Counts the connections of each address on one worker. IPv6 counts by /64. */
#pragma once

#include "os/net.h"

struct peers;

struct peers *peers_new(size_t addresses_max); /* NULL when memory ran out */
void peers_free(struct peers *p);

/* Counts one more, unless the address holds `max` already (0: no bound) or the table is full: then false. */
bool peers_enter(struct peers *p, const struct net_addr *a, uint64_t max);
void peers_leave(struct peers *p, const struct net_addr *a);
