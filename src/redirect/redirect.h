/* GET and HEAD of /{key}. */
#pragma once

#include "handler/jobs.h"

/* Replies when the cache knows the answer; false when it does not. */
bool redirect_from_cache(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* Asks the store. For a path of one segment that is no route. */
void redirect_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* GET /{key}+: where a link goes, without going there. */
void preview_submit(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    struct str key);

/* POST /{key}: the password of a link. */
void unlock_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req);

enum { REDIRECT_KEY_BYTES = 3 * (KEY_BYTES_MAX + 1) };

/* The key that a path of one segment means, decoded and folded, in `out`; STR_NULL when it can be none. A "+"
 * behind it asks for a preview. */
struct str redirect_key(struct api_worker *w, struct str path, char out[REDIRECT_KEY_BYTES],
                        bool *ret_preview);

/* Finds out where the key leads for whoever asks, and replies; in between, `resolve` may be told more. NULL:
 * the request has been answered. */
struct read_job *redirect_job_new(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                                  struct str key);
void redirect_job_submit(struct read_job *j);
