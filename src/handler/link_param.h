/* The link that a request names, in its path or body. */
#pragma once

#include "handler/api.h"

/* The key, folded, in the connection's arena. STR_NULL: it is malformed, answered with 404. */
struct str link_param_key(struct api_worker *w, struct http_conn *c, struct str text);

/* ERR_NOT_FOUND: 404; other errors as problem_reply_store. */
void link_param_reply_failed(struct http_conn *c, int err);
