/*
 * The role `lease`: who may do what, one process at a time.
 *
 * A lease is held for as long as its holder can prove it, and no longer: lease_is_held looks at no network;
 * it says no as soon as the last renewal is too old, or the session is in doubt, even if nobody has taken it
 * over. Still a holder may be paused right after it asked. So each lease carries a fencing number, larger
 * than that of every earlier holder of the same name; whoever guards what the lease is about keeps the
 * largest number it has seen, and refuses smaller ones.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct lease;

struct leases {
	const struct leases_ops *ops;
};

struct leases_ops {
	void (*free)(struct leases *); /* after all leases were released */

	/* 0 and the lease; ERR_BUSY: somebody else has it; ERR_UNAVAILABLE: nobody knows. Names are 1 to 64
	 * of A-Z a-z 0-9 - _ : and dot. It is renewed by a thread of the backend's own, at a third of its
	 * life. */
	int (*take)(struct leases *, struct str name, uint64_t life_ms, struct lease **ret);

	/* Any thread, at any rate. Once false it stays so. */
	bool (*is_held)(const struct lease *);
	uint64_t (*fence)(const struct lease *);

	/* Gives it up, held or not: others may have it at once, if it can be told. Frees it. */
	void (*release)(struct leases *, struct lease *);

	int (*ping)(struct leases *, struct err *e);
};

static inline void leases_free(struct leases *l)
{
	if (l)
		l->ops->free(l);
}
