/* The route table. Cached redirects are served before it is searched: reserved words cannot be keys. */
#include "api/routes.h"

#include "api/handlers.h"
#include "handler/caller.h"
#include "handler/jobs.h"
#include "handler/problem.h"
#include "handler/query_params.h"
#include "http/router.h"
#include "redirect/redirect.h"
#include "sink/dimension_set.h"

/* PUBLIC: no authentication, or the handler does it. AUTH: the caller needs all of `rights`. The query
 * parameters come last (handler/query_params.h); without them the route takes none. */
struct endpoint {
	api_handler_fn *fn;
	bool is_public;
	unsigned rights;
	const char *query;
};
#define PUBLIC(handler, ...) (&(const struct endpoint){handler, .is_public = true, .query = "" __VA_ARGS__})
#define AUTH(handler, rights_, ...) \
	(&(const struct endpoint){handler, .rights = rights_, .query = "" __VA_ARGS__})

#define PAGE_QUERY   "limit, cursor"
#define VISITS_QUERY "from, to, " PAGE_QUERY
#define STATS_QUERY  "from, to, by, bots, limit, " DIMENSION_SET_DIMS

#define EVERY_METHOD ((1U << HTTP_METHOD_OTHER) - 1)

static const struct route routes[] = {
    {HTTP_GET, "/", PUBLIC(front_get, QUERY_ANY)},
    {HTTP_GET, "/healthz", PUBLIC(healthz_get, QUERY_ANY)},
    {HTTP_GET, "/readyz", PUBLIC(readyz_get, QUERY_ANY)},
    {HTTP_GET, "/metrics", PUBLIC(metrics_get, QUERY_ANY)},
    {HTTP_GET, "/api/v1/openapi.json", PUBLIC(openapi_get)},
    {HTTP_POST, "/api/v1/createURL", PUBLIC(create_url_post)},
    {HTTP_DELETE, "/api/v1/deleteURL", PUBLIC(delete_url_delete, "api_dev_key, url_key")},
    {HTTP_POST, "/api/v1/links", AUTH(links_post, RIGHT_CREATE)},
    {HTTP_GET, "/api/v1/links", AUTH(links_list_get, RIGHT_READ, PAGE_QUERY)},
    {HTTP_GET, "/api/v1/links/{key}", AUTH(link_get, RIGHT_READ)},
    {HTTP_PATCH, "/api/v1/links/{key}", AUTH(link_patch, RIGHT_CREATE)},
    {HTTP_DELETE, "/api/v1/links/{key}", AUTH(link_delete, RIGHT_DELETE)},
    {HTTP_GET, "/api/v1/links/{key}/permissions", AUTH(permissions_get, RIGHT_READ)},
    {HTTP_PUT, "/api/v1/links/{key}/permissions/{user}", AUTH(permission_put, RIGHT_CREATE)},
    {HTTP_DELETE, "/api/v1/links/{key}/permissions/{user}", AUTH(permission_delete, RIGHT_CREATE)},
    {HTTP_GET, "/api/v1/links/{key}/stats", AUTH(link_stats_get, RIGHT_STATS, STATS_QUERY)},
    {HTTP_GET, "/api/v1/links/{key}/visits", AUTH(link_visits_get, RIGHT_STATS, VISITS_QUERY)},
    {HTTP_GET, "/api/v1/orphans", AUTH(orphans_get, RIGHT_ADMIN, VISITS_QUERY)},
    {HTTP_GET, "/api/v1/stats", AUTH(overview_get, RIGHT_ADMIN, STATS_QUERY)},
    {HTTP_GET, "/api/v1/live", AUTH(live_get, RIGHT_STATS, "key")},
    {HTTP_GET, "/api/v1/reconcile", AUTH(reconcile_get, RIGHT_ADMIN, "deep")},
    {HTTP_POST, "/event", PUBLIC(event_post)},
    {HTTP_GET, "/stats", PUBLIC(window_get, "timeWindowMinutes")},
    {HTTP_POST, "/api/v1/keys", AUTH(keys_post, 0)},
    {HTTP_GET, "/api/v1/keys", AUTH(keys_get, 0, PAGE_QUERY)},
    {HTTP_DELETE, "/api/v1/keys/{id}", AUTH(key_delete, 0)},
    {HTTP_POST, "/api/v1/session", PUBLIC(session_post)},
    {HTTP_GET, "/api/v1/session", AUTH(session_get, 0)},
    {HTTP_DELETE, "/api/v1/session", PUBLIC(session_delete)},
    {HTTP_POST, "/api/v1/users", AUTH(users_post, RIGHT_ADMIN)},
    {HTTP_GET, "/api/v1/users", AUTH(users_get, 0, PAGE_QUERY)},
    {HTTP_GET, "/api/v1/users/{user}", AUTH(user_get, 0)},
    {HTTP_PATCH, "/api/v1/users/{user}", AUTH(user_patch, 0)},
    {HTTP_DELETE, "/api/v1/users/{user}/sessions", AUTH(user_sessions_delete, 0)},
    {HTTP_POST, "/api/v1/sweep", AUTH(sweep_post, RIGHT_ADMIN)},
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

/* "/{key}+", which has no POST. */
static bool is_preview(struct str path)
{
	struct str end = str_n(path.ptr + path.len - MIN(path.len, (size_t)3), MIN(path.len, (size_t)3));
	return path.ptr[path.len - 1] == '+' || str_eq_nocase(end, STR("%2b"));
}

/* For OPTIONS, and 405 for other methods. */
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
	problem_reply_with(c, &p, "This address does not support the method; it supports %.*s.",
	                   STR_ARG(allow.value));
}

/* Here and nowhere else, so that an encoded slash is no separator. False: the request has been answered. */
static bool decode_params(struct http_conn *c, struct str params[ROUTE_PARAMS_MAX])
{
	for (size_t i = 0; i < ROUTE_PARAMS_MAX; i++) {
		struct str raw = params[i];
		if (raw.len == 0 || !memchr(raw.ptr, '%', raw.len))
			continue;
		char *text = request_zalloc(c, raw.len);
		if (!text)
			return false;
		params[i].ptr = text;
		if (!str_percent_decode(raw, text, &params[i].len)) {
			problem_reply(c, 400, "invalid-path",
			              "The path has a '%%' without two hexadecimal digits, or a NUL; write "
			              "'%%' as '%%25'.");
			return false;
		}
	}
	return true;
}

void api_dispatch(void *ctx, struct http_conn *c, const struct http_request *req)
{
	struct api_worker *w = ctx;
	struct route_match match = route_find(routes, ARRAY_LEN(routes), req->method, req->path);
	http_conn_set_route(c, route_number(&match, req->path));
	if (match.route) {
		const struct endpoint *to = match.route->target;
		struct api_call call = {.w = w, .c = c, .req = req, .params = match.params};
		if ((to->is_public || caller_require(w, c, req, STR_NULL, to->rights, &call.caller)) &&
		    decode_params(c, match.params) && query_params_check(c, req->query, to->query))
			to->fn(&call);
	} else if (match.allowed != 0 || str_eq(req->path, STR("*"))) {
		reply_allowed(c, req->method, match.allowed ? match.allowed : EVERY_METHOD);
	} else if (is_one_segment(req->path)) {
		if (is_reading(req->method))
			redirect_handle(w, c, req);
		else if (is_preview(req->path))
			reply_allowed(c, req->method, 1U << HTTP_GET);
		else if (req->method == HTTP_POST)
			unlock_handle(w, c, req);
		else
			reply_allowed(c, req->method, 1U << HTTP_GET | 1U << HTTP_POST);
	} else {
		const struct problem p = {
		    .status = 404, .code = "no-such-address", .as_html = problem_prefers_html(req)};
		problem_reply_with(
		    c, &p, "There is nothing at this address; /api/v1/openapi.json lists all addresses.");
	}
}

static bool is_listed(struct str path, const char *const *paths, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (str_eq(path, str_of(paths[i])))
			return true;
	}
	return false;
}

/* With serve.role = stats: reads of the API, except what only a server with an event log has. */
static void handle_stats_role(void *ctx, struct http_conn *c, const struct http_request *req)
{
	static const char *const served[] = {"/stats", "/healthz", "/readyz", "/metrics", "/api/v1/session"};
	static const char *const refused[] = {"/api/v1/live", "/api/v1/reconcile"};
	bool is_read = is_reading(req->method) && str_starts(req->path, STR("/api/v1/")) &&
	               !is_listed(req->path, refused, ARRAY_LEN(refused));
	if (is_read || is_listed(req->path, served, ARRAY_LEN(served)))
		api_dispatch(ctx, c, req);
	else
		problem_reply(
		    c, 421, "answers-only",
		    "This server only answers queries for statistics (serve.role = stats); send this "
		    "request to another server.");
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
	char text[96];
	const struct http_field allow = {STR("Allow"), str_n(text, route_allow(EVERY_METHOD, text))};
	const struct problem refused = {.status = status, .code = "bad-request"};
	const struct problem not_allowed = {
	    .status = status, .code = "method-not-allowed", .fields = &allow, .field_count = 1};
	problem_reply_with(c, status == 405 ? &not_allowed : &refused, "%s", reason);
}

struct http_handler api_handler(struct api_worker *w)
{
	return (struct http_handler){
	    .handle = w->api->is_stats_role ? handle_stats_role : handle, .refuse = refuse, .ctx = w};
}
