/*
 * Bounds for those who guess: keys, passwords of links, passwords of people. One that is met is answered with
 * 429 and a Retry-After that is true. An address is the client's own (behind trusted proxies), an IPv6 one by
 * its /64.
 */
#pragma once

#include "api/api.h"

enum stranger_kind {
	STRANGER_MISS = 1,
	STRANGER_SIGN_IN_ACCOUNT,
	STRANGER_SIGN_IN_ADDRESS,
	STRANGER_PASSWORD_LINK,
	STRANGER_PASSWORD_ADDRESS
};

/* Up to two tries that were taken, for giving them back. */
struct stranger_tries {
	uint64_t names[2];
	enum stranger_kind kinds[2];
	unsigned count;
};

/* A key that is none was asked for. False: too many by this address, and that has been said. */
bool strangers_miss(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_page);

/* Nobody who has used up their misses gets any answer but 429, or they would learn which keys are good.
 * False: that has been said. Costs one load while there is no such stranger anywhere. */
bool strangers_may_look(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* Before a password is looked at: takes one try of the account (by its email address, known or not) or link,
 * and one of the address. False: too many, and that has been said. */
bool strangers_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct str email, struct stranger_tries *ret);
bool strangers_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        struct str key, struct stranger_tries *ret);

/* The password was right: the tries did not count. */
void strangers_forgive(struct api_worker *w, struct http_conn *c, const struct stranger_tries *tries);

/* Where a request comes from. */
void strangers_address(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct net_addr *ret);
