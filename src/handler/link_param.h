/* Which link a request means, and whether whoever asks may see it. */
#pragma once

#include "handler/api.h"

/* A key out of a path or a body, decoded, folded and in the connection's arena; when it is none, 404 was
 * answered and STR_NULL comes back. */
struct str link_param_take(struct api_worker *w, struct http_conn *c, struct str text);

/* Whose links somebody sees: 0 for everybody's. */
uint64_t link_param_owner(const struct caller *caller);

/* Why there is no answer about a link: ERR_NOT_FOUND is 404, and the rest is problem_reply_store's. */
void link_param_reply_failed(struct http_conn *c, int err);
