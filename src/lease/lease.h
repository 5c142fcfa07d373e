/*
 * The lease interface: mutual exclusion between processes.
 *
 * A lease is held only as long as its holder can prove it. `is_held` uses no network: it returns false as
 * soon as the last renewal is too old, or the session is in doubt, even if nobody else has the lease. A
 * holder may still be paused right after the check. So each lease has a fencing number, larger than that of
 * every earlier holder of the name. The protected resource stores the largest number that it has seen, and
 * refuses smaller ones.
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

	/* 0 with the lease; ERR_BUSY: another process has it; ERR_UNAVAILABLE: unknown. Names have 1 to 64
	 * of A-Z a-z 0-9 - _ : and dot. A thread of the backend renews it, at a third of its lifetime. */
	int (*take)(struct leases *, struct str name, uint64_t life_ms, struct lease **ret);

	/* Any thread, as often as needed. Once false, always false. */
	bool (*is_held)(const struct lease *);
	uint64_t (*fence)(const struct lease *);

	/* Releases and frees it, held or not. If the service can be reached, others may have it at once. */
	void (*release)(struct leases *, struct lease *);

	int (*ping)(struct leases *, struct err *e);
};

static inline void leases_free(struct leases *l)
{
	if (l)
		l->ops->free(l);
}
