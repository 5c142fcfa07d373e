/* Which request goes where. A hit in the cache never gets here: reserved words cannot be keys. */
#include "api/routes.h"

#include "api/handlers.h"
#include "handler/caller.h"
#include "handler/problem.h"
#include "http/router.h"
#include "redirect/redirect.h"

/* Who may ask: anybody (then the handler sees to it, if it matters), or somebody with all of `rights`. */
struct endpoint {
	api_handler_fn *fn;
	bool is_open;
	unsigned rights;
};
#define OPEN(handler)           (&(const struct endpoint){handler, .is_open = true})
#define KNOWN(handler, rights_) (&(const struct endpoint){handler, .rights = rights_})

static const struct route routes[] = {
    {HTTP_GET, "/", OPEN(front_get)},
    {HTTP_GET, "/healthz", OPEN(healthz_get)},
    {HTTP_GET, "/readyz", OPEN(readyz_get)},
    {HTTP_GET, "/metrics", OPEN(metrics_get)},
    {HTTP_GET, "/api/v1/openapi.json", OPEN(openapi_get)},
    {HTTP_POST, "/api/v1/createURL", OPEN(create_url_post)},
    {HTTP_DELETE, "/api/v1/deleteURL", OPEN(delete_url_delete)},
    {HTTP_POST, "/api/v1/links", KNOWN(links_post, RIGHT_CREATE)},
    {HTTP_GET, "/api/v1/links", KNOWN(links_list_get, RIGHT_READ)},
    {HTTP_GET, "/api/v1/links/{key}", KNOWN(link_get, RIGHT_READ)},
    {HTTP_PATCH, "/api/v1/links/{key}", KNOWN(link_patch, RIGHT_CREATE)},
    {HTTP_DELETE, "/api/v1/links/{key}", KNOWN(link_delete, RIGHT_DELETE)},
    {HTTP_GET, "/api/v1/links/{key}/permissions", KNOWN(permissions_get, RIGHT_READ)},
    {HTTP_PUT, "/api/v1/links/{key}/permissions/{user}", KNOWN(permission_put, RIGHT_CREATE)},
    {HTTP_DELETE, "/api/v1/links/{key}/permissions/{user}", KNOWN(permission_delete, RIGHT_CREATE)},
    {HTTP_GET, "/api/v1/links/{key}/stats", KNOWN(link_stats_get, RIGHT_STATS)},
    {HTTP_GET, "/api/v1/links/{key}/visits", KNOWN(link_visits_get, RIGHT_STATS)},
    {HTTP_GET, "/api/v1/orphans", KNOWN(orphans_get, RIGHT_ADMIN)},
    {HTTP_GET, "/api/v1/stats", KNOWN(overview_get, RIGHT_ADMIN)},
    {HTTP_GET, "/api/v1/live", KNOWN(live_get, RIGHT_STATS)},
    {HTTP_GET, "/api/v1/reconcile", KNOWN(reconcile_get, RIGHT_ADMIN)},
    {HTTP_POST, "/event", OPEN(event_post)},
    {HTTP_GET, "/stats", OPEN(window_get)},
    {HTTP_POST, "/api/v1/keys", KNOWN(keys_post, 0)},
    {HTTP_GET, "/api/v1/keys", KNOWN(keys_get, 0)},
    {HTTP_DELETE, "/api/v1/keys/{id}", KNOWN(key_delete, 0)},
    {HTTP_POST, "/api/v1/session", OPEN(session_post)},
    {HTTP_GET, "/api/v1/session", KNOWN(session_get, 0)},
    {HTTP_DELETE, "/api/v1/session", OPEN(session_delete)},
    {HTTP_POST, "/api/v1/users", KNOWN(users_post, RIGHT_ADMIN)},
    {HTTP_GET, "/api/v1/users", KNOWN(users_get, 0)},
    {HTTP_GET, "/api/v1/users/{user}", KNOWN(user_get, 0)},
    {HTTP_PATCH, "/api/v1/users/{user}", KNOWN(user_patch, 0)},
    {HTTP_DELETE, "/api/v1/users/{user}/sessions", KNOWN(user_sessions_delete, 0)},
    {HTTP_POST, "/api/v1/sweep", KNOWN(sweep_post, RIGHT_ADMIN)},
};

static bool is_one_segment(struct str path)
{
	return path.len > 1 && !memchr(path.ptr + 1, '/', path.len - 1);
}

/* In metrics: rows of one pattern stand together in the table, and the first one stands for all of them. */
enum { ROUTE_OTHER, ROUTE_REDIRECT, ROUTE_FIRST };
_Static_assert(ROUTE_FIRST + ARRAY_LEN(routes) <= METRICS_ROUTES_MAX, "more histograms are needed");

const char *route_label(size_t number)
{
	static const char *const outside[ROUTE_FIRST] = {"other", "/{key}"};
	if (number < ROUTE_FIRST)
		return outside[number];
	return number - ROUTE_FIRST < ARRAY_LEN(routes) ? routes[number - ROUTE_FIRST].pattern : NULL;
}

static size_t route_number(const struct route_match *match, struct str path)
{
	if (!match->route)
		return match->allowed == 0 && is_one_segment(path) ? ROUTE_REDIRECT : ROUTE_OTHER;
	const struct route *first = match->route;
	while (first > routes && strcmp(first[-1].pattern, first->pattern) == 0)
		first--;
	return ROUTE_FIRST + (size_t)(first - routes);
}

static bool is_reading(enum http_method m)
{
	return m == HTTP_GET || m == HTTP_HEAD;
}

/* Another method than the path has: 405, or what OPTIONS asks for. */
static void reply_allowed(struct http_conn *c, enum http_method method, unsigned allowed)
{
	char text[96];
	const struct http_field allow = {STR("Allow"), str_n(text, route_allow(allowed, text))};
	if (method == HTTP_OPTIONS) {
		const struct http_response r = {.status = 204, .fields = &allow, .field_count = 1};
		http_reply(c, &r);
		return;
	}
	const struct problem p = {
	    .status = 405, .code = "method-not-allowed", .fields = &allow, .field_count = 1};
	problem_reply(c, &p, "This address does not take that method; it takes %.*s.", STR_ARG(allow.value));
}

void api_dispatch(void *ctx, struct http_conn *c, const struct http_request *req)
{
	struct api_worker *w = ctx;
	if (req->method == HTTP_METHOD_OTHER) {
		http_conn_set_route(c, ROUTE_OTHER);
		problem_say(c, 501, "unknown-method", "This server does not know that method.");
		return;
	}
	struct route_match match = route_find(routes, ARRAY_LEN(routes), req->method, req->path);
	http_conn_set_route(c, route_number(&match, req->path));
	if (match.route) {
		const struct endpoint *to = match.route->target;
		struct api_call call = {.w = w, .c = c, .req = req, .params = match.params};
		if (to->is_open || auth_require(w, c, req, STR_NULL, to->rights, &call.caller))
			to->fn(&call);
	} else if (match.allowed != 0 || str_eq(req->path, STR("*"))) {
		reply_allowed(c, req->method, match.allowed);
	} else if (is_one_segment(req->path)) {
		if (is_reading(req->method))
			redirect_handle(w, c, req);
		else if (req->method == HTTP_POST)
			unlock_handle(w, c, req);
		else
			reply_allowed(c, req->method, 1U << HTTP_GET | 1U << HTTP_POST);
	} else {
		const struct problem p = {
		    .status = 404, .code = "no-such-address", .as_page = problem_wants_page(req)};
		problem_reply(c, &p,
		              "There is nothing at this address; /api/v1/openapi.json lists what there is.");
	}
}

/* What a server answers that only answers: all that others have counted, and what leads to it. */
static bool is_question(const struct http_request *req)
{
	static const char *const answered[] = {"/stats", "/healthz", "/readyz", "/metrics",
	                                       "/api/v1/session"};
	static const char *const of_others[] = {"/api/v1/live", "/api/v1/reconcile"};
	for (size_t i = 0; i < ARRAY_LEN(of_others); i++) {
		if (str_eq(req->path, str_of(of_others[i])))
			return false;
	}
	for (size_t i = 0; i < ARRAY_LEN(answered); i++) {
		if (str_eq(req->path, str_of(answered[i])))
			return true;
	}
	return is_reading(req->method) && str_starts(req->path, STR("/api/v1/"));
}

static void handle_question(void *ctx, struct http_conn *c, const struct http_request *req)
{
	if (is_question(req))
		api_dispatch(ctx, c, req);
	else
		problem_say(c, 421, "answers-only",
		            "This server only answers questions about statistics (serve.role = stats); ask "
		            "one of the others.");
}

static void handle(void *ctx, struct http_conn *c, const struct http_request *req)
{
	struct api_worker *w = ctx;
	http_conn_set_route(c, ROUTE_REDIRECT);
	if (LIKELY(is_reading(req->method)) && redirect_from_cache(w, c, req))
		return;
	api_dispatch(w, c, req);
}

static void refuse(void *ctx, struct http_conn *c, int status, const char *reason)
{
	(void)ctx;
	const struct problem p = {.status = status, .code = "bad-request"};
	problem_reply(c, &p, "%s", reason);
}

struct http_handler api_handler(struct api_worker *w)
{
	return (struct http_handler){
	    .handle = w->api->only_queries ? handle_question : handle, .refuse = refuse, .ctx = w};
}
