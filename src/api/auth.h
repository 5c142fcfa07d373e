/* Who is asking. */
#pragma once

#include "api/api.h"

/*
 * Finds the request's API key: `Authorization: Bearer`, `X-Api-Key`, or `in_body` (the api_dev_key field;
 * STR_NULL when the route has none). Replies 401 and says false when there is none or it is not in force.
 */
bool auth_require(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                  struct str in_body, struct api_key *ret);

/* Does the request carry a key in its header, whatever it is worth? */
bool auth_in_header(const struct http_request *req);

/* As auth_require, and 403 unless it is an admin's. */
bool auth_require_admin(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        struct api_key *ret);
