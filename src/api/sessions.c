/*
 * Signing in and out. An unknown address, a disabled user, a user without a password and a wrong password get
 * the same response after the same time: the hasher always verifies a password.
 *
 * For visitors of private links, signing in works also as an HTML form, without scripts.
 */
#include "api/sessions.h"

#include "api/handlers.h"
#include "api/user_json.h"
#include "auth/passwords.h"
#include "base/json_out.h"
#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/html.h"
#include "handler/input.h"
#include "handler/jobs.h"
#include "handler/key_json.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"
#include "http/form.h"
#include "http/forwarded.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <stdio.h>

enum { SIGN_IN_BODY_BYTES_MAX = 16 * 1024, NEXT_BYTES_MAX = 2048, MAX_AGE_S_MAX = 400 * 24 * 3600 };

static const char failed_sentence[] = "The email address or the password is wrong.";

/* The cookie */

bool session_cookie_is_secure(const struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	struct str proto = http_request_field(req, STR("x-forwarded-proto"));
	return str_starts(w->api->base_url, STR("https://")) ||
	       (proxies_trust(w->api->proxies, http_conn_peer(c)) && str_eq_nocase(proto, STR("https")));
}

static void cookie_write(char out[SESSION_COOKIE_BYTES], const char *token, uint64_t age_s, bool secure)
{
	int len = snprintf(out, SESSION_COOKIE_BYTES,
	                   "%.*s=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%llu%s",
	                   STR_ARG(session_cookie_name), token, (unsigned long long)MIN(age_s, MAX_AGE_S_MAX),
	                   secure ? "; Secure" : "");
	ASSERT(len > 0 && len < SESSION_COOKIE_BYTES);
}

/* The client's network, truncated as for visits; STR_NULL if the settings forbid addresses. */
static struct str network_text(const struct api_worker *w, const struct net_addr *client, struct arena *arena)
{
	char text[INET6_ADDRSTRLEN] = "";
	struct in_addr v4 = client->v4.sin_addr;
	struct in6_addr v6 = client->v6.sin6_addr;
	if (w->capture.rules && w->capture.rules->settings->address == ADDRESS_NONE)
		return STR_NULL;
	v4.s_addr &= htonl(0xffffff00);
	memset(v6.s6_addr + 6, 0, 10);
	if (client->any.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &v6, text, sizeof(text));
	else
		inet_ntop(AF_INET, &v4, text, sizeof(text));
	return arena_str(arena, str_of(text));
}

void session_record_init(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                         uint64_t user, struct session_record *ret)
{
	struct net_addr client;
	struct str agent = http_request_field(req, STR("user-agent"));
	int64_t now_ms = loop_real_ms(http_conn_loop(c));
	request_client_address(w, c, req, &client);
	agent.len = MIN(agent.len, (size_t)SESSION_AGENT_BYTES_MAX);
	*ret = (struct session_record){
	    .user = user,
	    .created_ms = now_ms,
	    .expires_ms = now_ms + (int64_t)w->api->settings->session_ms,
	    .address = network_text(w, &client, http_conn_arena(c)),
	    .agent = arena_str(http_conn_arena(c), agent),
	};
	randombytes_buf(ret->id, sizeof(ret->id));
}

void session_issue(const struct api_worker *w, const struct session_record *session, bool secure,
                   struct session_issue *ret)
{
	const struct api *api = w->api;
	char token[SESSION_TEXT_BYTES];
	accounts_session_token(api->accounts, session, token);
	accounts_csrf_token(api->accounts, session->id, ret->csrf);
	cookie_write(ret->cookie, token, api->settings->session_ms / 1000, secure);
}

void session_reply_ended(struct http_conn *c)
{
	char cookie[SESSION_COOKIE_BYTES];
	cookie_write(cookie, "", 0, false);
	const struct http_field fields[] = {{STR("Set-Cookie"), str_of(cookie)}, no_store};
	const struct http_response r = {.status = 204, .fields = fields, .field_count = ARRAY_LEN(fields)};
	http_reply(c, &r);
}

/* The form */

/* Only a path of this server, in printable ASCII: browsers take '//' and '/\' for another host, and drop
 * control characters before they parse. */
static struct str local_path(struct str next)
{
	bool fits = next.len > 0 && next.len <= NEXT_BYTES_MAX && next.ptr[0] == '/' &&
	            (next.len == 1 || (next.ptr[1] != '/' && next.ptr[1] != '\\'));
	for (size_t i = 0; fits && i < next.len; i++)
		fits = next.ptr[i] > ' ' && next.ptr[i] < 0x7f;
	return fits ? next : STR("/");
}

/* Another site's page may post here, and so sign a visitor in to another account. Browsers send the Origin of
 * a POST; other clients send none. */
static bool is_foreign(const struct api *api, const struct http_request *req)
{
	struct str origin = http_request_field(req, STR("origin"));
	if (!origin.ptr)
		return false;
	const char *slashes = memmem(origin.ptr, origin.len, "://", 3);
	if (!slashes)
		return true;
	struct str authority = str_n(slashes + 3, origin.len - (size_t)(slashes + 3 - origin.ptr));
	return !str_eq_nocase(authority, req->host) && !str_eq_nocase(authority, api->domain);
}

/* Signing in */

struct sign_in_job {
	struct query_job base;
	struct str email, password; /* the email in lower case */
	struct str next;
	bool is_form, secure;
	struct guess_attempts attempts;
	struct user_record user;
	struct write_job *write; /* of the new session */
	bool is_right;
};

static void sign_in_run(struct query_job *base)
{
	struct sign_in_job *j = container_of(base, struct sign_in_job, base);
	int found = ERR_NOT_FOUND;
	if (j->email.len > 0)
		found = registry_user(base->worker->api->store->registry, 0, j->email, base->arena, &j->user);
	if (found < 0 && found != ERR_NOT_FOUND) {
		base->result = found;
		return;
	}
	bool may = found == 0 && j->user.enabled;
	int r = password_verify(may ? j->user.password : STR_NULL, j->password);
	j->is_right = r == 0;
	base->result = r == ERR_INVALID ? 0 : r;
}

static void reply_wrong(struct sign_in_job *j)
{
	static const struct problem p = {
	    .status = 401, .code = "sign-in-failed", .fields = &bearer_challenge, .field_count = 1};
	if (j->is_form)
		reply_sign_in_page(j->base.conn, 401, failed_sentence, j->next);
	else
		problem_reply_with(j->base.conn, &p, "%s", failed_sentence);
}

static void reply_signed_in(struct write_job *write)
{
	struct sign_in_job *j = write->ctx;
	struct http_conn *c = write->conn;
	struct session_issue start;
	if (write->account.result < 0) {
		problem_reply_store(c, write->account.result);
		return;
	}
	session_issue(write->worker, &write->account.session, j->secure, &start);
	const struct http_field cookie = {STR("Set-Cookie"), str_of(start.cookie)};
	if (j->is_form) {
		const struct http_field fields[] = {cookie, no_store, {STR("Location"), j->next}};
		const struct http_response r = {
		    .status = 303, .fields = fields, .field_count = ARRAY_LEN(fields)};
		http_reply(c, &r);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"user\":"));
	user_json(&body, &j->user);
	json_out_name_str(&body, "csrf_token", str_of(start.csrf));
	json_out_name_time(&body, "expires_at", write->account.session.expires_ms);
	buf_char(&body, '}');
	reply_json(c, 200, &body, &cookie, 1);
}

static void sign_in_done(struct query_job *base)
{
	struct sign_in_job *j = container_of(base, struct sign_in_job, base);
	if (base->result < 0 || j->is_right) /* right, or not checked */
		guess_refund(base->worker, base->conn, &j->attempts);
	if (base->result < 0) {
		problem_reply_store(base->conn, base->result);
	} else if (j->is_right) {
		j->write->account.actor = j->write->account.session.user = j->user.id;
		j->write->account.session.generation = j->user.generation;
		write_job_submit(j->write);
	} else {
		reply_wrong(j);
	}
}

/* False: the request has been answered. */
static bool read_form(struct sign_in_job *j, const struct http_request *req)
{
	struct arena *arena = j->base.arena;
	j->email = http_form_field(req->body, STR("email"), arena);
	j->password = http_form_field(req->body, STR("password"), arena);
	j->next = local_path(http_form_field(req->body, STR("next"), arena));
	if (j->email.len > 0 && j->email.len <= USER_EMAIL_BYTES_MAX && j->password.len > 0 &&
	    j->password.len <= PASSWORD_BYTES_MAX)
		return true;
	reply_sign_in_page(j->base.conn, 400, "Enter your email address and your password.", j->next);
	return false;
}

static bool read_json(struct sign_in_job *j, const struct http_request *req)
{
	const struct input_field fields[] = {
	    {"email", FIELD_STRING, &j->email, .required = true, .bytes_max = USER_EMAIL_BYTES_MAX},
	    {"password", FIELD_STRING, &j->password, .required = true, .bytes_max = PASSWORD_BYTES_MAX},
	};
	struct input_err e;
	int r = input_read(req->body, fields, ARRAY_LEN(fields), j->base.arena, &e);
	if (r == 0)
		return true;
	input_reply_failed(j->base.conn, r, &e);
	return false;
}

void session_post(struct api_call *call)
{
	bool is_form = http_is_form(call->req);
	const struct problem large = {.status = 413, .code = "body-too-large", .as_html = is_form};
	const struct problem foreign = {.status = 403, .code = "foreign-origin", .as_html = is_form};
	if (call->req->body.len > SIGN_IN_BODY_BYTES_MAX) {
		problem_reply_with(call->c, &large, "The body has %zu bytes; it may have at most %d.",
		                   call->req->body.len, SIGN_IN_BODY_BYTES_MAX);
		return;
	}
	if (is_foreign(call->w->api, call->req)) {
		problem_reply_with(
		    call->c, &foreign,
		    "The request comes from a page of another site (header Origin). Sign in on a "
		    "page of this server.");
		return;
	}
	struct sign_in_job *j = query_job_new(call->w, call->c, sizeof(*j), sign_in_run, sign_in_done);
	if (!j || !(j->write = account_job_new(call, REGISTRY_SESSION_CREATE, reply_signed_in)))
		return;
	j->write->ctx = j;
	j->is_form = is_form;
	j->secure = session_cookie_is_secure(call->w, call->c, call->req);
	if (!(is_form ? read_form(j, call->req) : read_json(j, call->req)))
		return;
	str_lower(j->email, (char *)j->email.ptr); /* a copy in the arena */
	session_record_init(call->w, call->c, call->req, 0, &j->write->account.session);
	if (!guess_sign_in(call->w, call->c, call->req, j->email, &j->attempts))
		return;
	if (!query_job_submit_hash(&j->base, HASH_SIGN_IN))
		guess_refund(call->w, call->c, &j->attempts);
}

/* The current session */

struct whoami_job {
	struct query_job base;
	struct caller caller;
	struct user_record user;
};

static void whoami_run(struct query_job *base)
{
	struct whoami_job *j = container_of(base, struct whoami_job, base);
	base->result = registry_user(base->worker->api->store->registry, j->caller.user, STR_NULL,
	                             base->arena, &j->user);
}

static void reply_whoami(struct api_worker *w, struct http_conn *c, const struct caller *caller,
                         const struct user_record *user)
{
	struct buf CLEANUP(buf_release) body = {0};
	char csrf[CSRF_TEXT_BYTES];
	buf_str(&body, STR("{\"user\":"));
	if (user)
		user_json(&body, user);
	else
		buf_str(&body, STR("null"));
	json_out_name(&body, "rights");
	rights_json(&body, caller->rights);
	if (caller->by_session)
		accounts_csrf_token(w->api->accounts, caller->session, csrf);
	json_out_name_str(&body, "csrf_token", caller->by_session ? str_of(csrf) : STR_NULL);
	json_out_name_time(&body, "expires_at", caller->expires_ms);
	buf_char(&body, '}');
	reply_json(c, 200, &body, NULL, 0);
}

static void whoami_done(struct query_job *base)
{
	struct whoami_job *j = container_of(base, struct whoami_job, base);
	if (base->result < 0)
		problem_reply_store(base->conn, base->result);
	else
		reply_whoami(base->worker, base->conn, &j->caller, &j->user);
}

void session_get(struct api_call *call)
{
	if (call->caller.user == 0) {
		reply_whoami(call->w, call->c, &call->caller, NULL);
		return;
	}
	struct whoami_job *j = query_job_new(call->w, call->c, sizeof(*j), whoami_run, whoami_done);
	if (!j)
		return;
	j->caller = call->caller;
	query_job_submit(&j->base);
}

/* Signing out */

static void session_delete_done(struct write_job *j)
{
	if (j->account.result < 0)
		problem_reply_store(j->conn, j->account.result);
	else
		session_reply_ended(j->conn);
}

void session_delete(struct api_call *call)
{
	struct parked_request *parked;
	enum account_found found = caller_find(call->w, call->c, call->req, &call->caller, &parked);
	if (parked)
		parked_request_submit(parked);
	else if (found == ACCOUNT_STALE)
		caller_reply_stale(call->c, false);
	if (found == ACCOUNT_UNCACHED || found == ACCOUNT_STALE)
		return;
	if (!call->caller.by_session) {
		static const struct problem p = {
		    .status = 401, .code = "not-signed-in", .fields = &bearer_challenge, .field_count = 1};
		problem_reply_with(call->c, &p,
		                   "The request has no valid session cookie, so there is no session to end.");
		return;
	}
	struct write_job *j = account_job_new(call, REGISTRY_SESSION_END, session_delete_done);
	if (!j)
		return;
	memcpy(j->account.session.id, call->caller.session, SESSION_ID_BYTES);
	write_job_submit(j);
}
