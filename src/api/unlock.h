/* POST of /{key}: following a link with its password. */
#pragma once

#include "api/api.h"

enum { UNLOCK_BODY_BYTES_MAX = 16 * 1024 };

void unlock_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req);
