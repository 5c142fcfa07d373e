/*
 * What visitors of short links are told who are not sent on. Unknown, disabled, not yet valid, ended and used
 * up look all the same. Nothing here tells where a link goes.
 */
#pragma once

#include "handler/api.h"

/* There is no link here for anybody. */
void deny_no_link(struct http_conn *c, bool as_page);

/*
 * The same for a key that is none at all: it counts as a miss of the client, and may end in 429. Somebody who
 * tries keys meets these; those who follow a link that has ended, or one that is wrong in many places at once
 * (and so in the cache), do not.
 */
void deny_no_key(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_page);

/* For the verdicts LINK_SIGN_IN, LINK_FORBIDDEN and LINK_LOCKED. `key` is what was asked for. */
void deny_closed(struct http_conn *c, enum link_verdict verdict, struct str key, bool as_page);

/* The password was wrong: ask again. */
void deny_wrong_password(struct http_conn *c, bool as_page);
