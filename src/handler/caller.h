/*
 * Authenticates a request. An API key comes as `Authorization: Bearer`, as `X-Api-Key`, or in a field of the
 * body; a session comes as the cookie `curt_session`. A key takes precedence: if one is sent, the cookie is
 * ignored, even when the key is invalid. Loop threads, except caller_recheck.
 */
#pragma once

#include "handler/parked_request.h"

extern const struct str session_cookie_name;     /* "curt_session" */
extern const struct http_field bearer_challenge; /* WWW-Authenticate, for every 401 */

/*
 * Finds the caller and requires all of `rights`. False: the request was parked or answered, with 401 for an
 * anonymous caller and 403 for a missing right. A session that changes something (any method but GET, HEAD
 * and OPTIONS) must send its CSRF token in X-CSRF-Token, otherwise 403: another site may have sent the
 * request. `in_body` is the api_dev_key field; STR_NULL if the route has none.
 */
bool caller_require(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    struct str in_body, unsigned rights, struct caller *ret);

/* Finds the caller without replying; *ret is zeroed unless ACCOUNT_FOUND. With ACCOUNT_UNCACHED, *ret_parked
 * is to be submitted if the route needs the caller; NULL: out of memory, and the request has been
 * answered. */
enum account_found caller_find(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                               struct caller *ret, struct parked_request **ret_parked);

/* Whose links and keys the caller may see: their own user's id, or 0 for everybody's. */
static inline uint64_t caller_owner_filter(const struct caller *c)
{
	return caller_is_admin(c) ? 0 : c->user;
}

/* Who follows a link: 0 is anonymous, and so is a key without RIGHT_READ. */
static inline uint64_t caller_visitor(const struct caller *c)
{
	return c->rights & RIGHT_READ ? c->user : 0;
}

/* A user that the request names, by email address or id; zeroes if there is none. False: the request was
 * parked or answered. */
bool caller_resolve_user(const struct api_call *call, struct str text, struct account *ret);
bool caller_resolve_user_id(const struct api_call *call, uint64_t id, struct account *ret);

/* 400: there is none, and the body's `field` named one. */
void caller_reply_no_such_user(struct http_conn *c, const char *field, struct str text);

/* For changes of accounts: requires an admin or a session, because a leaked API key must not be enough.
 * False: answered with 403. */
bool caller_may_manage_accounts(const struct api_call *call);

/* The API key in a header, valid or not; empty: none. */
struct str caller_header_key(const struct http_request *req);

/* On a pool thread, for requests of several steps: has the caller lost the key, the session or a right since?
 * 0 or a failure of the store. */
int caller_recheck(const struct api *api, const struct caller *caller, bool *ret_ended);

/* 401: caller_recheck says that they have. */
void caller_reply_ended(struct http_conn *c, const struct caller *caller);

/* 403 that names the missing rights. */
void caller_reply_forbidden(struct http_conn *c, unsigned missing);

/* 503: the cache of accounts is stale. */
void caller_reply_stale(struct http_conn *c, bool as_html);

/* The session's token from the cookies; STR_NULL: none. */
struct str caller_session_cookie(const struct http_request *req);
