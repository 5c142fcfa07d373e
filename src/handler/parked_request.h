/*
 * A request that waits for a read of an account (auth/accounts.h). Then its handler runs again from the
 * beginning and finds the account in the cache. So a handler may park a request only before it has changed
 * anything.
 */
#pragma once

#include "handler/api.h"

struct parked_request;

/* In the connection's arena. NULL: out of memory, and the request has been answered. */
struct parked_request *parked_request_new(struct api_worker *w, struct http_conn *c,
                                          const struct http_request *req, const struct account_ref *ref);

/* Defers the connection. Or answers: 429 after too many unknown API keys from the client's address; 503 if
 * the queue is full, or if the account does not stay in the cache after several reads. */
void parked_request_submit(struct parked_request *p);
