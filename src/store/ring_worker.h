/* A thread that does for a ring what no call shall wait for. */
#pragma once

#include "base/err.h"

struct store_ring;
struct ring_worker;

/* `step` is called at the start, after each poke, and again after a pause as long as it returns false. */
int ring_worker_new(struct store_ring *s, const char *name, bool (*step)(struct store_ring *s),
                    struct ring_worker **ret, struct err *e);
void ring_worker_poke(struct ring_worker *w); /* NULL: there is none */
void ring_worker_free(struct ring_worker *w); /* waits for a step under way */
