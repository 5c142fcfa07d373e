/*
 * Who is asking. An API key comes as `Authorization: Bearer`, `X-Api-Key`, or in a field of the body; a
 * session comes as the cookie `curt_session`. A key that is presented decides: the cookie is not looked at
 * then, and a wrong key is wrong.
 */
#pragma once

#include "handler/hold.h"

extern const struct str session_cookie_name;   /* "curt_session" */
extern const struct http_field auth_challenge; /* WWW-Authenticate, for every 401 */

/*
 * Finds out who asks, and whether they have all of `rights`. Replies and says false otherwise: 401 when it is
 * nobody, 403 when a right is missing. A session that changes something (any method but GET, HEAD and
 * OPTIONS) must bring its token in X-CSRF-Token, or it is 403: another site may have sent the request.
 * `in_body` is the api_dev_key field; STR_NULL when the route has none.
 */
bool auth_require(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                  struct str in_body, unsigned rights, struct caller *ret);

/* Who asks, and no reply; zeroes unless it is ACCOUNT_FOUND. For following links, and for signing out. With
 * ACCOUNT_UNREAD, *ret_hold is to be submitted if it matters who it is; NULL when memory ran out: then that
 * has been said. */
enum account_found auth_find(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                             struct caller *ret, struct hold **ret_hold);

/* 503: nobody can tell at the moment whether they may. */
void auth_refuse_stale(struct http_conn *c, bool as_page);

/* The user that somebody names, by email address or id; zeroes when it is nobody. False: the request is held,
 * or has been answered. */
bool auth_user_named(const struct api_call *call, struct str text, struct account *ret);
bool auth_user(const struct api_call *call, uint64_t id, struct account *ret);

/* For changes of accounts: an admin's, or somebody's who is signed in. A key that got lost is not enough.
 * False: that has been said. */
bool auth_may_manage(const struct api_call *call);

/* Does the request carry a key in its header, whatever it is worth? */
bool auth_in_header(const struct http_request *req);

/*
 * For answers that take more than one step, on a pool thread: would whoever asked still be let in, with all
 * the rights they had then? 0 or a failure of the store. And the 401 for those who would not.
 */
int auth_check(const struct api *api, const struct caller *caller, bool *ret_ended);
void auth_refuse_ended(struct http_conn *c, const struct caller *caller);

/* 403 that names the missing rights. */
void auth_refuse(struct http_conn *c, unsigned missing);

/* The session's token out of the cookies; STR_NULL when there is none. */
struct str auth_session_cookie(const struct http_request *req);
