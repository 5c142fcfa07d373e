/*
 * Limits on guessing keys of links, API keys and passwords (auth/throttle.h). A client over a limit gets 429
 * with an exact Retry-After. An address is the client's own, also behind trusted proxies; IPv6 addresses
 * count by their /64. Loop threads.
 */
#pragma once

#include "handler/api.h"

enum guess_kind {
	GUESS_MISS = 1,         /* an unknown key of a link */
	GUESS_API_KEY,          /* an unknown API key */
	GUESS_SIGN_IN,          /* for one account from one address */
	GUESS_SIGN_IN_ACCOUNT,  /* for one account from all addresses */
	GUESS_SIGN_IN_ADDRESS,  /* from one address for all accounts */
	GUESS_CURRENT_PASSWORD, /* of a user who is signed in */
	GUESS_PASSWORD_LINK,    /* for one link from all addresses */
	GUESS_PASSWORD_ADDRESS  /* from one address for all links */
};

/* Attempts that were taken, for guess_refund. */
enum { GUESS_ATTEMPTS_MAX = 3 };
struct guess_attempts {
	struct guess_attempt {
		enum guess_kind kind;
		uint64_t key; /* throttle_key */
	} items[GUESS_ATTEMPTS_MAX];
	unsigned count;
};

/* Counts a request for an unknown key. False: over the limit, answered with 429. */
bool guess_miss(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_html);

/* A client over its limit of misses gets 429 for every key; otherwise the answers would reveal which keys
 * exist. False: answered with 429. Costs one load while no client is over the limit. */
bool guess_may_look_up(struct api_worker *w, struct http_conn *c, const struct http_request *req);

/*
 * Before a password, or an API key that is not cached, is checked: takes one attempt from each limit that
 * applies, or none. False: over a limit, answered with 429.
 *
 * A sign-in counts three times. For the account (by its email address, known or not) from this address the
 * limit is strict. For the account from all addresses it is generous, so that others can hardly lock its
 * owner out. The third is for the address. The current password of a user who is signed in counts for that
 * user only, so others cannot lock them out.
 */
bool guess_api_key(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct guess_attempts *ret);
bool guess_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct str email, struct guess_attempts *ret);
bool guess_current_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                            uint64_t user, struct guess_attempts *ret);
bool guess_link_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                         struct str key, struct guess_attempts *ret);

/* The password or key was right, or was not checked. */
void guess_refund(struct api_worker *w, struct http_conn *c, const struct guess_attempts *attempts);

/* The client's address, behind trusted proxies too. */
void request_client_address(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                            struct net_addr *ret);
