#include "api/strangers.h"

#include "api/problem.h"
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
		max = l->misses_max;
		period_ms = MISSES_PERIOD_MS;
		break;
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
		struct tries_rule rule = rule_of(w, tries->kinds[i]);
		tries_refund(w->api->tries, tries->names[i], &rule, loop_mono_ms(http_conn_loop(c)));
	}
}

static bool take(struct api_worker *w, struct http_conn *c, enum stranger_kind kind, uint64_t name,
                 struct stranger_tries *tries, struct meter_reading *ret)
{
	struct tries_rule rule = rule_of(w, kind);
	if (!tries_take(w->api->tries, name, &rule, loop_mono_ms(http_conn_loop(c)), ret))
		return false;
	tries->names[tries->count] = name;
	tries->kinds[tries->count] = kind;
	tries->count++;
	return true;
}

/* One try of `what`, and one of the address; both or none. */
static bool take_both(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                      struct str what, const enum stranger_kind kinds[2], const char *sentence,
                      struct stranger_tries *ret)
{
	struct meter_reading reading;
	struct net_addr client;
	strangers_address(w, c, req, &client);
	*ret = (struct stranger_tries){0};
	if (take(w, c, kinds[0], tries_name(w->api->tries, kinds[0], what.ptr, what.len), ret, &reading) &&
	    take(w, c, kinds[1], address_name(w, kinds[1], &client), ret, &reading))
		return true;
	strangers_forgive(w, c, ret);
	ret->count = 0;
	refuse(w, c, &reading, problem_wants_page(req) || http_is_form(req), sentence);
	return false;
}

bool strangers_sign_in(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct str email, struct stranger_tries *ret)
{
	static const enum stranger_kind kinds[] = {STRANGER_SIGN_IN_ACCOUNT, STRANGER_SIGN_IN_ADDRESS};
	return take_both(w, c, req, email, kinds,
	                 "Too many wrong passwords were given for this account or from your address.", ret);
}

bool strangers_password(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        struct str key, struct stranger_tries *ret)
{
	static const enum stranger_kind kinds[] = {STRANGER_PASSWORD_LINK, STRANGER_PASSWORD_ADDRESS};
	return take_both(w, c, req, key, kinds,
	                 "Too many wrong passwords were given for this link or from your address.", ret);
}
