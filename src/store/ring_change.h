/* A batch of changes on its way through a ring. For ring_change.c and ring_home.c. */
#pragma once

#include "store/ring_core.h"

struct change {
	struct store_write *from; /* the caller's */
	struct store_write write; /* as the part gets it */
	bool pending;             /* its part has not answered for good */
	bool refused;             /* a part has another epoch: to be tried again under the new ring */
	bool routed;              /* it has a route */
	bool stranger;            /* a PERMIT of a user who is not there */
	bool taken;               /* a key that reads so was given out: it may be repeated, not made */
	bool foreign; /* the route leads to another create: it is asked whether that one happened */
	struct part_route route;
};

struct changes {
	struct change *all;
	size_t count;
};

static inline void change_end(struct change *c, int result)
{
	c->write.result = result;
	c->pending = false;
}

/* Asks the home what no other part knows; a change that the answer decides is not pending any more. */
void ring_home_ask(struct store_ring *s, struct changes *changes);

/* Creates with an idempotency key get their route. */
void ring_home_route(struct store_ring *s, struct changes *changes);

/* After the parts have answered: forgets routes that lead nowhere. True when there are creates that may be
 * tried again, which are pending then. */
bool ring_home_settle(struct store_ring *s, struct changes *changes);
