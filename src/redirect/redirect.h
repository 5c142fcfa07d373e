/* Short links: GET, HEAD and POST of /{key}, and previews at /{key}+. Loop threads. */
#pragma once

#include "handler/jobs.h"

/* A links_render_fn: the bytes of the redirect. */
int redirect_render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at);

/* Replies from the cache; false if it cannot. */
bool redirect_from_cache(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* Replies from the store, for a path of one segment that is not a route. */
void redirect_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* GET /{key}+: shows the target of a link. */
void preview_submit(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    struct str key);

/* POST /{key}: the password of a link. */
void unlock_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* Counts the clicks of a link with a click limit, once, before its first visitor is served (LINK_UNCOUNTED);
 * see link/click_limit.h. `done` runs on the loop, with resolve.result 0 or why they cannot be counted now.
 * Answers 503 instead if the queue is full. */
void click_count_submit(struct read_job *j, void (*done)(struct read_job *));
extern const struct offload_ops click_counter_ops; /* the work of api->click_counter */

enum { REDIRECT_KEY_BYTES = 3 * (KEY_BYTES_MAX + 1) };

/* The key in a path of one segment, decoded and folded, in `out`; STR_NULL if it is malformed. A trailing "+"
 * requests a preview. */
struct str redirect_key(struct api_worker *w, struct str path, char out[REDIRECT_KEY_BYTES],
                        bool *ret_preview);

/* Resolves the key for the caller, and replies. Between the two calls `resolve` may be refined. NULL: the
 * request has been answered. */
struct read_job *redirect_job_new(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                                  struct str key);
void redirect_job_submit(struct read_job *j);
