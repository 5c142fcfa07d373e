/*
 * A word to an operator who put a proxy in front and did not name it: every visitor then has the proxy's
 * address, and what is bounded by address is bounded for all of them together.
 */
#pragma once

#include "handler/api.h"

/* Warns in the log when a request shows such a proxy; once in a process. Looks at the fields of every request
 * until then, so it is for where something is counted by address, not for every redirect. */
void proxy_hint(const struct api_worker *w, const struct http_conn *c, const struct http_request *req);
