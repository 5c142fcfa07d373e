/*
 * Counts the clicks of a link with a click limit, once, before its first visitor is served; see
 * link/click_limit.h.
 */
#pragma once

#include "handler/jobs.h"

/* For a resolve with the verdict LINK_UNCOUNTED. `done` runs on the loop, with resolve.result 0 or why the
 * clicks cannot be counted now. Answers 503 instead if the queue is full. */
void click_count_submit(struct read_job *j, void (*done)(struct read_job *));

/* The work of api->click_counter. */
extern const struct offload_ops click_counter_ops;
