/*
 * A request that waits until an account was read (auth/accounts.h). Then it is handled again from the
 * beginning, and finds the account in the cache. So a handler may do so as long as it has changed nothing.
 */
#pragma once

#include "handler/api.h"

struct hold;

/* In the connection's arena. NULL when memory ran out: then the request has been answered. */
struct hold *hold_new(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                      const struct account_want *want);

/* Defers the connection. Or answers: with 429 when too many unknown API keys came from that address, with
 * 503 when the store does not answer, or what was read never stays. */
void hold_submit(struct hold *h);

/* Reads an account for nobody in particular: for what goes on for long. Loop threads. */
void hold_refresh(struct api *api, const struct account_want *want);
