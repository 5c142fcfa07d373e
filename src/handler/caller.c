#include "handler/caller.h"

#include "handler/key_json.h"
#include "handler/problem.h"
#include "os/clock.h"

#include <stdio.h>

const struct str session_cookie_name = {"curt_session", sizeof("curt_session") - 1};
const struct http_field auth_challenge = {STR("WWW-Authenticate"), STR("Bearer realm=\"curt\"")};

static struct str presented_key(const struct http_request *req, struct str in_body)
{
	struct str bearer = http_request_field(req, STR("authorization"));
	if (bearer.len > 7 && str_eq_nocase(str_n(bearer.ptr, 7), STR("bearer ")))
		return str_trim(str_n(bearer.ptr + 7, bearer.len - 7));
	struct str header = http_request_field(req, STR("x-api-key"));
	return header.ptr ? header : in_body;
}

bool auth_in_header(const struct http_request *req)
{
	return presented_key(req, STR_NULL).len > 0;
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
 * Cookies of other programs on the same host may hold anything, and are passed over. Two sessions are none: a
 * neighbour's page can add a cookie of this name to ours, and nobody shall act in another's account unawares.
 */
struct str auth_session_cookie(const struct http_request *req)
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

/* Who it is */

static struct account_time time_of(struct http_conn *c)
{
	struct loop *l = http_conn_loop(c);
	return (struct account_time){loop_real_ms(l), loop_mono_ms(l)};
}

static enum account_found find(struct api_worker *w, struct http_conn *c, struct str key, struct str token,
                               struct caller *ret, struct account_want *ret_want)
{
	struct accounts *accounts = w->api->accounts;
	*ret = (struct caller){0};
	if (key.len > 0)
		return accounts_find_key(accounts, key, time_of(c), ret, ret_want);
	return token.ptr ? accounts_find_session(accounts, token, time_of(c), ret, ret_want) : ACCOUNT_NONE;
}

enum account_found auth_find(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                             struct caller *ret, struct hold **ret_hold)
{
	struct account_want want;
	enum account_found found = find(w, c, presented_key(req, STR_NULL), auth_session_cookie(req), ret,
	                                &want);
	*ret_hold = found == ACCOUNT_UNREAD ? hold_new(w, c, req, &want) : NULL;
	return found;
}

void auth_refuse_stale(struct http_conn *c, bool as_page)
{
	static const struct http_field soon = {STR("Retry-After"), STR("5")};
	const struct problem p = {.status = 503,
	                          .code = "accounts-unavailable",
	                          .fields = &soon,
	                          .field_count = 1,
	                          .as_page = as_page};
	problem_reply(c, &p,
	              "The database has not answered for too long to know whether this API key or session is "
	              "still in force. Try again.");
}

/* What is not at hand is waited for, or told. */
static void not_at_hand(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        enum account_found found, const struct account_want *want)
{
	struct hold *hold = found == ACCOUNT_UNREAD ? hold_new(w, c, req, want) : NULL;
	if (found == ACCOUNT_STALE)
		auth_refuse_stale(c, false);
	else if (hold)
		hold_submit(hold);
}

bool auth_user_named(const struct api_call *call, struct str text, struct account *ret)
{
	struct account_want want;
	*ret = (struct account){0};
	enum account_found found = accounts_user_named(call->w->api->accounts, text, time_of(call->c), ret,
	                                               &want);
	if (found == ACCOUNT_FOUND || found == ACCOUNT_NONE)
		return true;
	not_at_hand(call->w, call->c, call->req, found, &want);
	return false;
}

bool auth_user(const struct api_call *call, uint64_t id, struct account *ret)
{
	char text[24];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
	return auth_user_named(call, str_of(text), ret);
}

static const struct problem nobody = {
    .status = 401, .code = "key-required", .fields = &auth_challenge, .field_count = 1};

static void refuse_nobody(struct http_conn *c, struct str key, struct str token)
{
	if (key.len > 0)
		problem_reply(c, &nobody,
		              "The API key is unknown, has been revoked or has expired, or its user is "
		              "disabled. Make one with 'curt key create'.");
	else if (token.ptr)
		problem_reply(
		    c, &nobody,
		    "Your session is over. Sign in again (POST /api/v1/session), or send an API key.");
	else
		problem_reply(
		    c, &nobody,
		    "This needs an API key: send it as 'Authorization: Bearer KEY', as 'X-Api-Key: KEY', "
		    "or in the field api_dev_key where there is one. Or sign in: POST /api/v1/session.");
}

static bool changes_nothing(enum http_method m)
{
	return m == HTTP_GET || m == HTTP_HEAD || m == HTTP_OPTIONS;
}

static bool is_forged(const struct api_worker *w, const struct http_request *req, const struct caller *caller)
{
	struct str presented = http_request_field(req, STR("x-csrf-token"));
	return caller->by_session && !changes_nothing(req->method) &&
	       !session_csrf_is(w->api->accounts, caller->session, presented);
}

bool auth_require(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                  struct str in_body, unsigned rights, struct caller *ret)
{
	struct str key = presented_key(req, in_body);
	struct str token = auth_session_cookie(req);
	struct account_want want;
	enum account_found found = find(w, c, key, token, ret, &want);
	if (found == ACCOUNT_NONE)
		refuse_nobody(c, key, token);
	else if (found != ACCOUNT_FOUND)
		not_at_hand(w, c, req, found, &want);
	if (found != ACCOUNT_FOUND)
		return false;
	if (is_forged(w, req, ret)) {
		problem_say(c, 403, "csrf-token-required",
		            "A change by somebody who is signed in needs the session's csrf_token (see GET "
		            "/api/v1/session) in the header X-CSRF-Token.");
		return false;
	}
	if (rights & ~ret->rights) {
		auth_refuse(c, rights & ~ret->rights);
		return false;
	}
	return true;
}

int auth_check(const struct api *api, const struct caller *caller, bool *ret_ended)
{
	bool holds = true;
	int r = accounts_check(api->accounts, caller, clock_real_ms(), &holds);
	*ret_ended = !holds;
	return r;
}

void auth_refuse_ended(struct http_conn *c, const struct caller *caller)
{
	if (caller->by_session)
		problem_reply(c, &nobody,
		              "Your session ended, or you lost a right, before this was done: nothing was "
		              "changed. Sign in again (POST /api/v1/session).");
	else
		problem_reply(c, &nobody,
		              "The API key was revoked, expired or lost a right, or its user was disabled, "
		              "before this was done: nothing was changed.");
}

bool auth_may_manage(const struct api_call *call)
{
	bool may = caller_is_admin(&call->caller) || call->caller.by_session;
	if (!may)
		auth_refuse(call->c, RIGHT_ADMIN);
	return may;
}

static const char *doing(unsigned right)
{
	switch (right) {
	case RIGHT_READ: return "read links";
	case RIGHT_STATS: return "see statistics";
	case RIGHT_CREATE: return "make or change links";
	case RIGHT_DELETE: return "delete links";
	default: return "do this";
	}
}

void auth_refuse(struct http_conn *c, unsigned missing)
{
	if (missing & RIGHT_ADMIN) {
		problem_say(c, 403, "admin-only",
		            "This needs an admin's API key, or an admin who is signed in.");
		return;
	}
	struct buf CLEANUP(buf_release) list = {0};
	for (unsigned right = 1; right <= RIGHTS_ALL; right <<= 1) {
		if (missing & right)
			buf_printf(&list, "%s%s (right '%s')", list.len ? ", nor " : "", doing(right),
			           right_name(right));
	}
	problem_say(c, 403, "right-missing",
	            "This key or account may not %.*s. Use one that has the right, or ask an admin for it.",
	            STR_ARG(buf_view(&list)));
}
