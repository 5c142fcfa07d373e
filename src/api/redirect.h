/* GET and HEAD of /{key} and /{key}+. */
#pragma once

#include "api/api.h"

/* Replies when the cache knows the answer; false when it does not. */
bool redirect_from_cache(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* Asks the store. For a path of one segment that is no route. */
void redirect_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req);
