/* The route table: which handler answers which request. Loop threads. */
#pragma once

#include "handler/api.h"

/* Answers all requests of a worker's connections. */
struct http_handler api_handler(struct api_worker *w);

/* Answers a request that the cache of redirects did not answer. `ctx` is the worker. */
void api_dispatch(void *ctx, struct http_conn *c, const struct http_request *req);

/* Makes api->health_checks, before the first request. health_checks_free ends them. */
int readyz_init(struct api *api, struct err *e);

/* The route's label in metrics; NULL behind the last one. */
const char *route_label(size_t number);
