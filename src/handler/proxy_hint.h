/*
 * Warns about a proxy that is missing from serve.trusted_proxies. Behind it all visitors have one address, so
 * limits per address apply to all of them together.
 */
#pragma once

#include "handler/api.h"

/* Logs a warning if the request shows such a proxy; once in a process. Until then it scans the fields of
 * every request, so call it where addresses are counted, not for every redirect. */
void proxy_hint(const struct api_worker *w, const struct http_conn *c, const struct http_request *req);
