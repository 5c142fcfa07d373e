/* A store in front of another one, so that a test can replace operations, or take the other one away. */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

struct store_proxy {
	struct store base;
	struct store_ops ops;
	struct store *inner;
	atomic_bool is_away; /* every call is ERR_UNAVAILABLE, and nothing happens */
};

/* `inner` stays the test's; the store is p->base. */
void store_proxy_init(struct store_proxy *p, struct store *inner);
