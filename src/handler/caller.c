#include "handler/caller.h"

#include "base/utf8.h"
#include "handler/key_json.h"
#include "handler/problem.h"
#include "os/clock.h"

#include <stdio.h>

const struct str session_cookie_name = {"curt_session", sizeof("curt_session") - 1};
const struct http_field bearer_challenge = {STR("WWW-Authenticate"), STR("Bearer realm=\"curt\"")};

static struct str presented_key(const struct http_request *req, struct str in_body)
{
	struct str bearer = http_request_field(req, STR("authorization"));
	if (bearer.len > 7 && str_eq_nocase(str_n(bearer.ptr, 7), STR("bearer ")))
		return str_trim(str_n(bearer.ptr + 7, bearer.len - 7));
	struct str header = http_request_field(req, STR("x-api-key"));
	return header.ptr ? header : in_body;
}

struct str caller_header_key(const struct http_request *req)
{
	return presented_key(req, STR_NULL);
}

/* Cookies */

static bool is_token(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = ascii_lower(s.ptr[i]);
		if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_')
			return false;
	}
	return s.len > 0 && s.len < SESSION_TEXT_BYTES;
}

/*
 * Other cookies of the same host are skipped. Two different session cookies count as none: a page on a
 * sibling domain can add a cookie of this name, and must not make a user act in another account.
 */
struct str caller_session_cookie(const struct http_request *req)
{
	struct str found = STR_NULL;
	for (size_t i = 0; i < req->field_count; i++) {
		struct str rest = req->fields[i].value;
		if (!str_eq_nocase(req->fields[i].name, STR("cookie")))
			continue;
		while (rest.ptr) {
			struct str value = str_trim(str_cut(&rest, ';'));
			struct str name = str_cut(&value, '=');
			if (!str_eq(name, session_cookie_name))
				continue;
			if (found.ptr && !str_eq(found, value))
				return STR_NULL;
			found = value;
		}
	}
	return is_token(found) ? found : STR_NULL;
}

static struct account_time time_of(struct http_conn *c)
{
	struct loop *l = http_conn_loop(c);
	return (struct account_time){loop_real_ms(l), loop_mono_ms(l)};
}

static enum account_found find(struct api_worker *w, struct http_conn *c, struct str key, struct str token,
                               struct caller *ret, struct account_ref *ret_ref)
{
	struct accounts *accounts = w->api->accounts;
	*ret = (struct caller){0};
	if (key.len > 0)
		return accounts_find_key(accounts, key, time_of(c), ret, ret_ref);
	return token.ptr ? accounts_find_session(accounts, token, time_of(c), ret, ret_ref) : ACCOUNT_NONE;
}

enum account_found caller_find(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                               struct caller *ret, struct parked_request **ret_parked)
{
	struct account_ref ref;
	enum account_found found = find(w, c, presented_key(req, STR_NULL), caller_session_cookie(req), ret,
	                                &ref);
	*ret_parked = found == ACCOUNT_UNCACHED ? parked_request_new(w, c, req, &ref) : NULL;
	return found;
}

void caller_reply_stale(struct http_conn *c, bool as_html)
{
	static const struct http_field retry = {STR("Retry-After"), STR("5")};
	const struct problem p = {.status = 503,
	                          .code = "accounts-unavailable",
	                          .fields = &retry,
	                          .field_count = 1,
	                          .as_html = as_html};
	problem_reply_with(c, &p,
	                   "The database has not answered for too long, so the server cannot tell whether "
	                   "this API key or session is still valid. Try again in 5 seconds.");
}

/* Parks the request until the account is read, or answers 503. */
static void park_or_refuse(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                           enum account_found found, const struct account_ref *ref)
{
	struct parked_request *parked = found == ACCOUNT_UNCACHED ? parked_request_new(w, c, req, ref) : NULL;
	if (found == ACCOUNT_STALE)
		caller_reply_stale(c, false);
	else if (parked)
		parked_request_submit(parked);
}

bool caller_resolve_user(const struct api_call *call, struct str text, struct account *ret)
{
	struct account_ref ref;
	*ret = (struct account){0};
	enum account_found found = accounts_find_user_named(call->w->api->accounts, text, time_of(call->c),
	                                                    ret, &ref);
	if (found == ACCOUNT_FOUND || found == ACCOUNT_NONE)
		return true;
	park_or_refuse(call->w, call->c, call->req, found, &ref);
	return false;
}

bool caller_resolve_user_id(const struct api_call *call, uint64_t id, struct account *ret)
{
	char text[24];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
	return caller_resolve_user(call, str_of(text), ret);
}

void caller_reply_no_such_user(struct http_conn *c, const char *field, struct str text)
{
	struct echo shown;
	problem_reply_field(c, "no-such-user", field,
	                    "There is no user '%s' (field '%s'); send a user's email address or id.",
	                    echo(&shown, text), field);
}

static const struct problem unauthenticated = {
    .status = 401, .code = "key-required", .fields = &bearer_challenge, .field_count = 1};

static void reply_unauthenticated(struct http_conn *c, struct str key, struct str token)
{
	const char *detail = "This request needs an API key: send it as 'Authorization: Bearer KEY', as "
	                     "'X-Api-Key: KEY', or in the field api_dev_key of createURL and deleteURL. Or "
	                     "sign in: POST /api/v1/session.";
	if (key.len > 0)
		detail = "The API key is unknown, revoked or expired, or its user is disabled. Create one "
		         "with 'curt key create'.";
	else if (token.ptr)
		detail = "The session has ended. Sign in again (POST /api/v1/session), or send an API key.";
	problem_reply_with(c, &unauthenticated, "%s", detail);
}

/* A change by a session without its CSRF token may come from another site. */
static bool is_forged(const struct api_worker *w, const struct http_request *req, const struct caller *caller)
{
	bool is_safe = req->method == HTTP_GET || req->method == HTTP_HEAD || req->method == HTTP_OPTIONS;
	struct str presented = http_request_field(req, STR("x-csrf-token"));
	return caller->by_session && !is_safe &&
	       !accounts_csrf_matches(w->api->accounts, caller->session, presented);
}

bool caller_require(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    struct str in_body, unsigned rights, struct caller *ret)
{
	struct str key = presented_key(req, in_body);
	struct str token = caller_session_cookie(req);
	struct account_ref ref;
	enum account_found found = find(w, c, key, token, ret, &ref);
	if (found == ACCOUNT_NONE)
		reply_unauthenticated(c, key, token);
	else if (found != ACCOUNT_FOUND)
		park_or_refuse(w, c, req, found, &ref);
	else if (is_forged(w, req, ret))
		problem_reply(c, 403, "csrf-token-required",
		              "A change with a session cookie needs the header X-CSRF-Token. Its value is "
		              "csrf_token of GET /api/v1/session.");
	else if (rights & ~ret->rights)
		caller_reply_forbidden(c, rights & ~ret->rights);
	else
		return true;
	return false;
}

int caller_recheck(const struct api *api, const struct caller *caller, bool *ret_ended)
{
	bool is_valid = true;
	int r = accounts_recheck_stored(api->accounts, caller, clock_real_ms(), &is_valid);
	*ret_ended = !is_valid;
	return r;
}

void caller_reply_ended(struct http_conn *c, const struct caller *caller)
{
	problem_reply_with(c, &unauthenticated, "%s",
	                   caller->by_session
	                       ? "Your session ended, or you lost a right, while this request waited; "
	                         "nothing was changed. Sign in again (POST /api/v1/session)."
	                       : "The API key was revoked, expired or lost a right, or its user was "
	                         "disabled, while this request waited; nothing was changed.");
}

bool caller_may_manage_accounts(const struct api_call *call)
{
	bool may = caller_is_admin(&call->caller) || call->caller.by_session;
	if (!may)
		caller_reply_forbidden(call->c, RIGHT_ADMIN);
	return may;
}

void caller_reply_forbidden(struct http_conn *c, unsigned missing)
{
	static const char *const actions[] = {
	    [__builtin_ctz(RIGHT_READ)] = "read links",
	    [__builtin_ctz(RIGHT_STATS)] = "see statistics",
	    [__builtin_ctz(RIGHT_CREATE)] = "create or change links",
	    [__builtin_ctz(RIGHT_DELETE)] = "delete links",
	};
	if (missing & RIGHT_ADMIN) {
		problem_reply(c, 403, "admin-only",
		              "Only admins may do this: use the API key or the session of an admin.");
		return;
	}
	struct buf CLEANUP(buf_release) list = {0};
	for (unsigned i = 0; i < ARRAY_LEN(actions); i++) {
		if (missing & 1U << i)
			buf_printf(&list, "%s%s (right '%s')", list.len ? " or " : "", actions[i],
			           right_name(1U << i));
	}
	problem_reply(c, 403, "right-missing",
	              "This API key or account may not %.*s. Use one that has the right, or ask an admin for "
	              "it.",
	              STR_ARG(buf_view(&list)));
}
