/*
 * Bounds for those who guess: keys, passwords of links, passwords of people. One that is met is answered with
 * 429 and a Retry-After that is true. An address is the client's own (behind trusted proxies), an IPv6 one by
 * its /64.
 */
#pragma once

#include "handler/api.h"

enum guess_kind {
	GUESS_MISS = 1,
	GUESS_KEY,     /* an API key that is none */
	GUESS_SIGN_IN, /* for one account from one address */
	GUESS_SIGN_IN_ACCOUNT,
	GUESS_SIGN_IN_ADDRESS,
	GUESS_CURRENT_PASSWORD, /* of somebody who is signed in already */
	GUESS_PASSWORD_LINK,
	GUESS_PASSWORD_ADDRESS
};

/* What a try counts for. */
struct guess_attempt {
	enum guess_kind kind;
	uint64_t name;
};

/* Those that were taken, for giving them back. */
enum { GUESS_ATTEMPTS_MAX = 3 };
struct guess_attempts {
	struct guess_attempt tries[GUESS_ATTEMPTS_MAX];
	unsigned count;
};

/* A key that is none was asked for. False: too many by this address, and that has been said. */
bool guess_miss(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_page);

/* Nobody who has used up their misses gets any answer but 429, or they would learn which keys are good.
 * False: that has been said. Costs one load while there is no such stranger anywhere. */
bool guess_may_look(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/*
 * Before a password, or an API key that is not in the cache, is looked at: takes a try of all that it counts
 * for, or none. False: too many, and that has been said.
 *
 * Signing in counts for the account (by its email address, known or not) from this address, strictly; for the
 * account from anywhere, so generously that others can hardly keep its owner out; and for the address. The
 * current password of whoever is signed in counts for that user alone, whom strangers cannot keep from it.
 */
bool guess_key(struct api_worker *w, struct http_conn *c, const struct http_request *req,
               struct guess_attempts *ret);
bool guess_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct str email, struct guess_attempts *ret);
bool guess_current_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                            uint64_t user, struct guess_attempts *ret);
bool guess_password(struct api_worker *w, struct http_conn *c, const struct http_request *req, struct str key,
                    struct guess_attempts *ret);

/* It was right, or was not looked at: the tries did not count. */
void guess_refund(struct api_worker *w, struct http_conn *c, const struct guess_attempts *tries);

/* Where a request comes from. */
void guess_address(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct net_addr *ret);
