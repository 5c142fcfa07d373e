#include "handler/guess_limits.h"

#include "handler/problem.h"
#include "handler/proxy_hint.h"
#include "handler/ratelimit.h"
#include "http/form.h"
#include "http/forwarded.h"

enum { MISSES_PERIOD_MS = 60000, V4_BYTES = 4, V6_NETWORK_BYTES = 8 };

static struct throttle_rule rule_of(const struct api_worker *w, enum guess_kind kind)
{
	const struct guess_limits *l = &w->api->settings->guess_limits;
	uint64_t max = 0, period_ms = l->tries_period_ms;
	switch (kind) {
	case GUESS_MISS:
	case GUESS_API_KEY:
		max = l->misses_max;
		period_ms = MISSES_PERIOD_MS;
		break;
	case GUESS_SIGN_IN:
	case GUESS_CURRENT_PASSWORD: max = l->sign_ins_max; break;
	case GUESS_SIGN_IN_ACCOUNT: max = l->sign_ins_account_max; break;
	case GUESS_SIGN_IN_ADDRESS: max = l->sign_ins_address_max; break;
	case GUESS_PASSWORD_LINK: max = l->passwords_link_max; break;
	case GUESS_PASSWORD_ADDRESS: max = l->passwords_address_max; break;
	}
	return (struct throttle_rule){
	    .max = (uint32_t)MIN(max, UINT32_MAX),
	    .period_ms = (uint32_t)MIN(period_ms, UINT32_MAX),
	};
}

static uint64_t bytes_key(const struct api_worker *w, enum guess_kind kind, const void *bytes, size_t len)
{
	return throttle_key(w->api->throttle, kind, bytes, len);
}

static uint64_t address_key(const struct api_worker *w, enum guess_kind kind, const struct net_addr *a)
{
	if (a->any.sa_family == AF_INET6)
		return bytes_key(w, kind, a->v6.sin6_addr.s6_addr, V6_NETWORK_BYTES);
	return bytes_key(w, kind, &a->v4.sin_addr, V4_BYTES);
}

void request_client_address(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                            struct net_addr *ret)
{
	proxy_hint(w, c, req);
	http_client_address(w->api->proxies, http_conn_peer(c), req, ret);
}

static void refuse(struct api_worker *w, struct http_conn *c, const struct meter_reading *reading,
                   bool as_html, const char *reason)
{
	metric_add(&w->metrics->http_requests_limited, 1);
	ratelimit_refuse(c, reading, as_html, reason);
}

static const char too_many_misses[] = "Your address has requested too many links that do not exist.";

bool guess_miss(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_html)
{
	struct throttle_rule rule = rule_of(w, GUESS_MISS);
	struct meter_reading reading;
	if (throttle_take(w->api->throttle, address_key(w, GUESS_MISS, client), &rule,
	                  loop_mono_ms(http_conn_loop(c)), &reading))
		return true;
	refuse(w, c, &reading, as_html, too_many_misses);
	return false;
}

bool guess_may_look_up(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	int64_t mono_ms = loop_mono_ms(http_conn_loop(c));
	if (LIKELY(!throttle_any_spent(w->api->throttle, mono_ms)))
		return true;
	struct throttle_rule rule = rule_of(w, GUESS_MISS);
	struct meter_reading reading;
	struct net_addr client;
	request_client_address(w, c, req, &client);
	if (!throttle_is_spent(w->api->throttle, address_key(w, GUESS_MISS, &client), &rule, mono_ms,
	                       &reading))
		return true;
	refuse(w, c, &reading, problem_prefers_html(req), too_many_misses);
	return false;
}

void guess_refund(struct api_worker *w, struct http_conn *c, const struct guess_attempts *attempts)
{
	for (unsigned i = 0; i < attempts->count; i++) {
		const struct guess_attempt *one = &attempts->items[i];
		struct throttle_rule rule = rule_of(w, one->kind);
		throttle_refund(w->api->throttle, one->key, &rule, loop_mono_ms(http_conn_loop(c)));
	}
}

/* Takes all of `needed`, or none. */
static bool take(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct guess_attempts *needed, const char *reason, struct guess_attempts *ret)
{
	struct meter_reading reading;
	*ret = (struct guess_attempts){0};
	for (unsigned i = 0; i < needed->count; i++) {
		const struct guess_attempt *one = &needed->items[i];
		struct throttle_rule rule = rule_of(w, one->kind);
		if (throttle_take(w->api->throttle, one->key, &rule, loop_mono_ms(http_conn_loop(c)),
		                  &reading)) {
			ret->items[ret->count++] = *one;
			continue;
		}
		guess_refund(w, c, ret);
		ret->count = 0;
		refuse(w, c, &reading, problem_prefers_html(req) || http_is_form(req), reason);
		return false;
	}
	return true;
}

bool guess_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct str email, struct guess_attempts *ret)
{
	struct net_addr client;
	request_client_address(w, c, req, &client);
	uint64_t account = bytes_key(w, GUESS_SIGN_IN_ACCOUNT, email.ptr, email.len);
	uint64_t address = address_key(w, GUESS_SIGN_IN_ADDRESS, &client);
	const uint64_t both[] = {account, address};
	const struct guess_attempts needed = {
	    .items = {{GUESS_SIGN_IN, bytes_key(w, GUESS_SIGN_IN, both, sizeof(both))},
	              {GUESS_SIGN_IN_ACCOUNT, account},
	              {GUESS_SIGN_IN_ADDRESS, address}},
	    .count = 3,
	};
	return take(w, c, req, &needed,
	            "There were too many wrong passwords for this account or from your address.", ret);
}

bool guess_api_key(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct guess_attempts *ret)
{
	struct net_addr client;
	request_client_address(w, c, req, &client);
	const struct guess_attempts needed = {
	    .items = {{GUESS_API_KEY, address_key(w, GUESS_API_KEY, &client)}}, .count = 1};
	return take(w, c, req, &needed, "Your address has sent too many unknown API keys.", ret);
}

bool guess_current_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                            uint64_t user, struct guess_attempts *ret)
{
	const enum guess_kind kind = GUESS_CURRENT_PASSWORD;
	const struct guess_attempts needed = {.items = {{kind, bytes_key(w, kind, &user, sizeof(user))}},
	                                      .count = 1};
	return take(w, c, req, &needed, "There were too many wrong passwords for this account.", ret);
}

bool guess_link_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                         struct str key, struct guess_attempts *ret)
{
	struct net_addr client;
	request_client_address(w, c, req, &client);
	const struct guess_attempts needed = {
	    .items = {{GUESS_PASSWORD_LINK, bytes_key(w, GUESS_PASSWORD_LINK, key.ptr, key.len)},
	              {GUESS_PASSWORD_ADDRESS, address_key(w, GUESS_PASSWORD_ADDRESS, &client)}},
	    .count = 2,
	};
	return take(w, c, req, &needed,
	            "There were too many wrong passwords for this link or from your address.", ret);
}
