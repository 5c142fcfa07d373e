/*
 * Responses to visitors who are not redirected. Unknown, disabled, not yet valid, expired and used-up links
 * look the same. No response reveals the target of a link.
 */
#pragma once

#include "handler/api.h"

/* 404 */
void deny_not_found(struct http_conn *c, bool as_html);

/*
 * The same for a key that no link has or had: counts as a miss of the client, and gives 429 over the limit.
 * Clients that guess keys get these. Visitors of expired links do not, nor those of a wrong link that many
 * follow: that is answered from the cache.
 */
void deny_unknown_key(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_html);

/* For the verdicts LINK_SIGN_IN, LINK_FORBIDDEN and LINK_LOCKED. */
void deny_verdict(struct http_conn *c, enum link_verdict verdict, struct str key, bool as_html);

/* 401, with the form again */
void deny_wrong_password(struct http_conn *c, bool as_html);
