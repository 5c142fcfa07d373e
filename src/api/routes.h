/* The route table: which handler answers which request. */
#pragma once

#include "handler/api.h"

/* Answers all requests of a worker's connections. */
struct http_handler api_handler(struct api_worker *w);

/* Answers a request that the cache of redirects did not answer. `ctx` is the worker. */
void api_dispatch(void *ctx, struct http_conn *c, const struct http_request *req);

/* The route's label in metrics; NULL behind the last one. */
const char *route_label(size_t number);
