/*
 * Bounds for those who guess: keys, passwords of links, passwords of people. One that is met is answered with
 * 429 and a Retry-After that is true. An address is the client's own (behind trusted proxies), an IPv6 one by
 * its /64.
 */
#pragma once

#include "api/api.h"

enum stranger_kind {
	STRANGER_MISS = 1,
	STRANGER_KEY,     /* an API key that is none */
	STRANGER_SIGN_IN, /* for one account from one address */
	STRANGER_SIGN_IN_ACCOUNT,
	STRANGER_SIGN_IN_ADDRESS,
	STRANGER_CURRENT_PASSWORD, /* of somebody who is signed in already */
	STRANGER_PASSWORD_LINK,
	STRANGER_PASSWORD_ADDRESS
};

/* What a try counts for. */
struct stranger_try {
	enum stranger_kind kind;
	uint64_t name;
};

/* Those that were taken, for giving them back. */
enum { STRANGER_TRIES_MAX = 3 };
struct stranger_tries {
	struct stranger_try tries[STRANGER_TRIES_MAX];
	unsigned count;
};

/* A key that is none was asked for. False: too many by this address, and that has been said. */
bool strangers_miss(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_page);

/* Nobody who has used up their misses gets any answer but 429, or they would learn which keys are good.
 * False: that has been said. Costs one load while there is no such stranger anywhere. */
bool strangers_may_look(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/*
 * Before a password, or an API key that is not in the cache, is looked at: takes a try of all that it counts
 * for, or none. False: too many, and that has been said.
 *
 * Signing in counts for the account (by its email address, known or not) from this address, strictly; for the
 * account from anywhere, so generously that others can hardly keep its owner out; and for the address. The
 * current password of whoever is signed in counts for that user alone, whom strangers cannot keep from it.
 */
bool strangers_key(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct stranger_tries *ret);
bool strangers_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct str email, struct stranger_tries *ret);
bool strangers_current_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                                uint64_t user, struct stranger_tries *ret);
bool strangers_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        struct str key, struct stranger_tries *ret);

/* It was right, or was not looked at: the tries did not count. */
void strangers_forgive(struct api_worker *w, struct http_conn *c, const struct stranger_tries *tries);

/* Where a request comes from. */
void strangers_address(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct net_addr *ret);
