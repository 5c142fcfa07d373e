/* One worker: a thread with its own loop, listener, connections and counters. */
#pragma once

#include "api/api.h"
#include "http/conn.h"

struct worker;

/* `number` is also that of its event writer. */
int worker_new(struct api *api, const struct capture_rules *rules, unsigned number,
               const struct http_settings *http, int listen_fd, struct worker **ret, struct err *e);
int worker_start(struct worker *w, struct err *e);
struct api_worker *worker_api(struct worker *w);

/* Stops accepting, finishes what is under way (for at most `drain_ms`), and ends the thread. */
void worker_drain(struct worker *w, uint64_t drain_ms);
void worker_join(struct worker *w);
void worker_free(struct worker *w); /* after the pools have ended */
