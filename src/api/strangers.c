#include "api/strangers.h"

#include "api/problem.h"
#include "api/proxy_hint.h"
#include "api/ratelimit.h"
#include "http/form.h"
#include "http/forwarded.h"

enum { MISSES_PERIOD_MS = 60000, V4_BYTES = 4, V6_NETWORK_BYTES = 8 };

static struct tries_rule rule_of(const struct api_worker *w, enum stranger_kind kind)
{
	const struct stranger_limits *l = &w->api->settings->strangers;
	uint64_t max = 0, period_ms = l->tries_ms;
	switch (kind) {
	case STRANGER_MISS:
	case STRANGER_KEY:
		max = l->misses_max;
		period_ms = MISSES_PERIOD_MS;
		break;
	case STRANGER_SIGN_IN:
	case STRANGER_CURRENT_PASSWORD: max = l->sign_ins_max; break;
	case STRANGER_SIGN_IN_ACCOUNT: max = l->sign_ins_account_max; break;
	case STRANGER_SIGN_IN_ADDRESS: max = l->sign_ins_address_max; break;
	case STRANGER_PASSWORD_LINK: max = l->passwords_link_max; break;
	case STRANGER_PASSWORD_ADDRESS: max = l->passwords_address_max; break;
	}
	return (struct tries_rule){
	    .max = (uint32_t)MIN(max, UINT32_MAX),
	    .period_ms = (uint32_t)MIN(period_ms, UINT32_MAX),
	};
}

static uint64_t address_name(const struct api_worker *w, enum stranger_kind kind, const struct net_addr *a)
{
	if (a->any.sa_family == AF_INET6)
		return tries_name(w->api->tries, kind, a->v6.sin6_addr.s6_addr, V6_NETWORK_BYTES);
	return tries_name(w->api->tries, kind, &a->v4.sin_addr, V4_BYTES);
}

void strangers_address(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct net_addr *ret)
{
	proxy_hint(w, c, req);
	http_client_address(w->api->proxies, http_conn_peer(c), req, ret);
}

static void refuse(struct api_worker *w, struct http_conn *c, const struct meter_reading *reading,
                   bool as_page, const char *what)
{
	metric_add(&w->metrics->limited, 1);
	ratelimit_refuse(c, reading, as_page, what);
}

static const char too_many_misses[] = "Too many links that do not exist were asked for from your address.";

bool strangers_miss(struct api_worker *w, struct http_conn *c, const struct net_addr *client, bool as_page)
{
	struct tries_rule rule = rule_of(w, STRANGER_MISS);
	struct meter_reading reading;
	if (tries_take(w->api->tries, address_name(w, STRANGER_MISS, client), &rule,
	               loop_mono_ms(http_conn_loop(c)), &reading))
		return true;
	refuse(w, c, &reading, as_page, too_many_misses);
	return false;
}

bool strangers_may_look(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	int64_t mono_ms = loop_mono_ms(http_conn_loop(c));
	if (LIKELY(!tries_any_spent(w->api->tries, mono_ms)))
		return true;
	struct tries_rule rule = rule_of(w, STRANGER_MISS);
	struct meter_reading reading;
	struct net_addr client;
	strangers_address(w, c, req, &client);
	if (!tries_are_spent(w->api->tries, address_name(w, STRANGER_MISS, &client), &rule, mono_ms,
	                     &reading))
		return true;
	refuse(w, c, &reading, problem_wants_page(req), too_many_misses);
	return false;
}

void strangers_forgive(struct api_worker *w, struct http_conn *c, const struct stranger_tries *tries)
{
	for (unsigned i = 0; i < tries->count; i++) {
		struct tries_rule rule = rule_of(w, tries->tries[i].kind);
		tries_refund(w->api->tries, tries->tries[i].name, &rule, loop_mono_ms(http_conn_loop(c)));
	}
}

/* All that `wanted` names, or none. */
static bool take(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct stranger_tries *wanted, const char *sentence, struct stranger_tries *ret)
{
	struct meter_reading reading;
	*ret = (struct stranger_tries){0};
	for (unsigned i = 0; i < wanted->count; i++) {
		const struct stranger_try *one = &wanted->tries[i];
		struct tries_rule rule = rule_of(w, one->kind);
		if (tries_take(w->api->tries, one->name, &rule, loop_mono_ms(http_conn_loop(c)), &reading)) {
			ret->tries[ret->count++] = *one;
			continue;
		}
		strangers_forgive(w, c, ret);
		ret->count = 0;
		refuse(w, c, &reading, problem_wants_page(req) || http_is_form(req), sentence);
		return false;
	}
	return true;
}

static uint64_t text_name(const struct api_worker *w, enum stranger_kind kind, struct str text)
{
	return tries_name(w->api->tries, kind, text.ptr, text.len);
}

bool strangers_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct str email, struct stranger_tries *ret)
{
	struct net_addr client;
	strangers_address(w, c, req, &client);
	uint64_t account = text_name(w, STRANGER_SIGN_IN_ACCOUNT, email);
	uint64_t address = address_name(w, STRANGER_SIGN_IN_ADDRESS, &client);
	const uint64_t both[] = {account, address};
	const struct stranger_tries wanted = {
	    .tries = {{STRANGER_SIGN_IN, tries_name(w->api->tries, STRANGER_SIGN_IN, both, sizeof(both))},
	              {STRANGER_SIGN_IN_ACCOUNT, account},
	              {STRANGER_SIGN_IN_ADDRESS, address}},
	    .count = 3,
	};
	return take(w, c, req, &wanted,
	            "Too many wrong passwords were given for this account or from your address.", ret);
}

bool strangers_key(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                   struct stranger_tries *ret)
{
	struct net_addr client;
	strangers_address(w, c, req, &client);
	const struct stranger_tries wanted = {
	    .tries = {{STRANGER_KEY, address_name(w, STRANGER_KEY, &client)}}, .count = 1};
	return take(w, c, req, &wanted, "Too many unknown API keys were sent from your address.", ret);
}

bool strangers_current_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                                uint64_t user, struct stranger_tries *ret)
{
	const enum stranger_kind kind = STRANGER_CURRENT_PASSWORD;
	const struct stranger_tries wanted = {
	    .tries = {{kind, tries_name(w->api->tries, kind, &user, sizeof(user))}}, .count = 1};
	return take(w, c, req, &wanted, "Too many wrong passwords were given for this account.", ret);
}

bool strangers_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        struct str key, struct stranger_tries *ret)
{
	struct net_addr client;
	strangers_address(w, c, req, &client);
	const struct stranger_tries wanted = {
	    .tries = {{STRANGER_PASSWORD_LINK, text_name(w, STRANGER_PASSWORD_LINK, key)},
	              {STRANGER_PASSWORD_ADDRESS, address_name(w, STRANGER_PASSWORD_ADDRESS, &client)}},
	    .count = 2,
	};
	return take(w, c, req, &wanted,
	            "Too many wrong passwords were given for this link or from your address.", ret);
}
