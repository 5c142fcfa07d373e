/*
 * Signing in and out. An address that is unknown, one without a password, one that is disabled and a wrong
 * password get the same answer after the same time: the password is always looked at, on the password thread.
 *
 * Signing in works as a form too, without scripts, for those who follow a private link.
 */
#include "api/sign_in.h"

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

bool session_is_secure(const struct api_worker *w, struct http_conn *c, const struct http_request *req)
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

/* The network that the client is in, as visits keep it, in hexadecimal; STR_NULL where no trace of addresses
 * is kept. */
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

void session_prepare(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                     uint64_t user, struct session_record *ret)
{
	struct net_addr client;
	struct str agent = http_request_field(req, STR("user-agent"));
	int64_t now_ms = loop_real_ms(http_conn_loop(c));
	guess_address(w, c, req, &client);
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

void session_start(const struct api_worker *w, const struct session_record *session, bool secure,
                   struct session_start *ret)
{
	const struct api *api = w->api;
	char token[SESSION_TEXT_BYTES];
	session_text(api->accounts, session, token);
	session_csrf(api->accounts, session->id, ret->csrf);
	cookie_write(ret->cookie, token, api->settings->session_ms / 1000, secure);
}

void session_reply_ended(struct http_conn *c)
{
	char cookie[SESSION_COOKIE_BYTES];
	cookie_write(cookie, "", 0, false);
	const struct http_field fields[] = {{STR("Set-Cookie"), str_of(cookie)}, never_kept};
	const struct http_response r = {.status = 204, .fields = fields, .field_count = ARRAY_LEN(fields)};
	http_reply(c, &r);
}

/* The form */

/* Only a path of our own, in printable ASCII: browsers take '//' and '/\' for another host, and drop controls
 * before they look. */
static struct str local_path(struct str next)
{
	bool fits = next.len > 0 && next.len <= NEXT_BYTES_MAX && next.ptr[0] == '/' &&
	            (next.len == 1 || (next.ptr[1] != '/' && next.ptr[1] != '\\'));
	for (size_t i = 0; fits && i < next.len; i++)
		fits = next.ptr[i] > ' ' && next.ptr[i] < 0x7f;
	return fits ? next : STR("/");
}

/* A page elsewhere may post here, and so sign somebody in as another without their knowledge. Browsers say
 * where a POST comes from; others send no Origin. */
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
	struct ask_job ask;
	struct str email, password; /* as given, the first in lower case */
	struct str next;
	bool is_form, secure;
	struct guess_attempts tries;
	struct user_record user;
	struct write_job *write; /* of the session that begins if it is right */
	bool right;
};

static void sign_in_run(struct ask_job *ask)
{
	struct sign_in_job *j = container_of(ask, struct sign_in_job, ask);
	int found = ERR_NOT_FOUND;
	if (j->email.len > 0)
		found = registry_user(ask->worker->api->store->registry, 0, j->email, ask->arena, &j->user);
	if (found < 0 && found != ERR_NOT_FOUND) {
		ask->result = found;
		return;
	}
	bool may = found == 0 && j->user.enabled;
	int r = password_verify(may ? j->user.password : STR_NULL, j->password);
	j->right = r == 0;
	ask->result = r == ERR_INVALID ? 0 : r;
}

static void reply_wrong(struct sign_in_job *j)
{
	static const struct problem p = {
	    .status = 401, .code = "sign-in-failed", .fields = &auth_challenge, .field_count = 1};
	if (j->is_form)
		reply_sign_in_page(j->ask.conn, 401, failed_sentence, j->next);
	else
		problem_reply(j->ask.conn, &p, "%s", failed_sentence);
}

static void reply_signed_in(struct write_job *write)
{
	struct sign_in_job *j = write->ctx;
	struct http_conn *c = write->conn;
	struct session_start start;
	if (write->account.result < 0) {
		problem_reply_store(c, write->account.result);
		return;
	}
	session_start(write->worker, &write->account.session, j->secure, &start);
	const struct http_field cookie = {STR("Set-Cookie"), str_of(start.cookie)};
	if (j->is_form) {
		const struct http_field fields[] = {cookie, never_kept, {STR("Location"), j->next}};
		const struct http_response r = {
		    .status = 303, .fields = fields, .field_count = ARRAY_LEN(fields)};
		http_reply(c, &r);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"user\":"));
	user_json(&body, &j->user);
	buf_printf(&body, ",\"csrf_token\":\"%s\",\"expires_at\":", start.csrf);
	json_out_time(&body, write->account.session.expires_ms);
	buf_char(&body, '}');
	api_reply_json(c, 200, &body, &cookie, 1);
}

static void sign_in_done(struct ask_job *ask)
{
	struct sign_in_job *j = container_of(ask, struct sign_in_job, ask);
	if (ask->result < 0 || j->right) /* what could not be looked at is no try */
		guess_refund(ask->worker, ask->conn, &j->tries);
	if (ask->result < 0) {
		problem_reply_store(ask->conn, ask->result);
	} else if (j->right) {
		j->write->account.actor = j->write->account.session.user = j->user.id;
		j->write->account.session.generation = j->user.generation;
		write_job_submit(j->write);
	} else {
		reply_wrong(j);
	}
}

/* False: it was wrong, and that has been said. */
static bool read_form(struct sign_in_job *j, const struct http_request *req)
{
	struct arena *arena = j->ask.arena;
	j->email = http_form_field(req->body, STR("email"), arena);
	j->password = http_form_field(req->body, STR("password"), arena);
	j->next = local_path(http_form_field(req->body, STR("next"), arena));
	if (j->email.len > 0 && j->email.len <= USER_EMAIL_BYTES_MAX && j->password.len > 0 &&
	    j->password.len <= PASSWORD_BYTES_MAX)
		return true;
	reply_sign_in_page(j->ask.conn, 400, "Give your email address and your password.", j->next);
	return false;
}

static bool read_json(struct sign_in_job *j, const struct http_request *req)
{
	const struct input_field fields[] = {
	    {"email", FIELD_STRING, &j->email, .required = true, .bytes_max = USER_EMAIL_BYTES_MAX},
	    {"password", FIELD_STRING, &j->password, .required = true, .bytes_max = PASSWORD_BYTES_MAX},
	};
	struct err e;
	int r = input_read(req->body, fields, ARRAY_LEN(fields), j->ask.arena, &e);
	if (r == 0)
		return true;
	api_reply_failed(j->ask.conn, r, "invalid-body", &e);
	return false;
}

void session_post(struct api_call *call)
{
	bool is_form = http_is_form(call->req);
	const struct problem large = {.status = 413, .code = "body-too-large", .as_page = is_form};
	const struct problem foreign = {.status = 403, .code = "foreign-origin", .as_page = is_form};
	if (call->req->body.len > SIGN_IN_BODY_BYTES_MAX) {
		problem_reply(call->c, &large, "Signing in takes at most %d bytes.", SIGN_IN_BODY_BYTES_MAX);
		return;
	}
	if (is_foreign(call->w->api, call->req)) {
		problem_reply(call->c, &foreign,
		              "Another site has sent this. Sign in on this server's own page.");
		return;
	}
	struct sign_in_job *j = ask_job_new(call->w, call->c, sizeof(*j), sign_in_run, sign_in_done);
	if (!j || !(j->write = account_job_new(call, REGISTRY_SESSION_CREATE, reply_signed_in)))
		return;
	j->write->ctx = j;
	j->is_form = is_form;
	j->secure = session_is_secure(call->w, call->c, call->req);
	if (!(is_form ? read_form(j, call->req) : read_json(j, call->req)))
		return;
	str_lower(j->email, (char *)j->email.ptr); /* our own copy */
	session_prepare(call->w, call->c, call->req, 0, &j->write->account.session);
	if (!guess_sign_in(call->w, call->c, call->req, j->email, &j->tries))
		return;
	if (!ask_job_submit_hash(&j->ask, HASH_SIGN_IN))
		guess_refund(call->w, call->c, &j->tries); /* it was not looked at */
}

/* Who am I? */

struct who_job {
	struct ask_job ask;
	struct caller caller;
	struct user_record user;
};

static void who_run(struct ask_job *ask)
{
	struct who_job *j = container_of(ask, struct who_job, ask);
	ask->result = registry_user(ask->worker->api->store->registry, j->caller.user, STR_NULL, ask->arena,
	                            &j->user);
}

static void reply_who(struct api_worker *w, struct http_conn *c, const struct caller *caller,
                      const struct user_record *user)
{
	struct buf CLEANUP(buf_release) body = {0};
	char csrf[CSRF_TEXT_BYTES];
	buf_str(&body, STR("{\"user\":"));
	if (user)
		user_json(&body, user);
	else
		buf_str(&body, STR("null"));
	buf_str(&body, STR(",\"rights\":"));
	rights_json(&body, caller->rights);
	buf_str(&body, STR(",\"csrf_token\":"));
	if (caller->by_session)
		session_csrf(w->api->accounts, caller->session, csrf);
	json_out_str_or_null(&body, caller->by_session ? str_of(csrf) : STR_NULL);
	buf_str(&body, STR(",\"expires_at\":"));
	json_out_time(&body, caller->expires_ms);
	buf_char(&body, '}');
	api_reply_json(c, 200, &body, NULL, 0);
}

static void who_done(struct ask_job *ask)
{
	struct who_job *j = container_of(ask, struct who_job, ask);
	if (ask->result < 0)
		problem_reply_store(ask->conn, ask->result);
	else
		reply_who(ask->worker, ask->conn, &j->caller, &j->user);
}

void session_get(struct api_call *call)
{
	if (call->caller.user == 0) {
		reply_who(call->w, call->c, &call->caller, NULL);
		return;
	}
	struct who_job *j = ask_job_new(call->w, call->c, sizeof(*j), who_run, who_done);
	if (!j)
		return;
	j->caller = call->caller;
	ask_job_submit(&j->ask);
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
	struct hold *hold;
	enum account_found found = auth_find(call->w, call->c, call->req, &call->caller, &hold);
	if (hold)
		hold_submit(hold);
	else if (found == ACCOUNT_STALE)
		auth_refuse_stale(call->c, false);
	if (found == ACCOUNT_UNREAD || found == ACCOUNT_STALE)
		return;
	if (!call->caller.by_session) {
		static const struct problem p = {
		    .status = 401, .code = "not-signed-in", .fields = &auth_challenge, .field_count = 1};
		problem_reply(call->c, &p, "Nobody is signed in here, so there is no session to end.");
		return;
	}
	struct write_job *j = account_job_new(call, REGISTRY_SESSION_END, session_delete_done);
	if (!j)
		return;
	memcpy(j->account.session.id, call->caller.session, SESSION_ID_BYTES);
	write_job_submit(j);
}
