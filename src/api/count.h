/*
 * Counting the clicks of a limited link once, before the first of them is let through: see link/gates.h. All
 * clicks that were served are in the event log when their turn has ended; the stats worker takes the log to
 * the sink; the sink knows the total.
 *
 * A server whose events go to a queue that others read has no stats worker. Then what is on its way to the
 * sink is not in the total: over several servers a limit holds only up to that.
 */
#pragma once

#include "api/jobs.h"

/* Has the gate of a resolve counted (its verdict was LINK_UNCOUNTED); then `done` is called on the loop, with
 * resolve.result 0 or why it cannot be counted now. When the queue is full, answers 503 instead. */
void count_submit(struct read_job *j, void (*done)(struct read_job *));
