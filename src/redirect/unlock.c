/*
 * POST /{key}: the password of a link, from the form that the link shows or as JSON. It is looked at on the
 * password thread, by which time somebody must be allowed to follow the link in all other ways. When it is
 * right, the redirect goes on as usual, with 303: a browser must not post the password to the target.
 */

#include "auth/passwords.h"
#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/input.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"
#include "http/form.h"
#include "redirect/denials.h"
#include "redirect/redirect.h"

enum { UNLOCK_BODY_BYTES_MAX = 16 * 1024 };

struct unlock_job {
	struct ask_job ask;
	struct read_job *redirect;
	struct str password; /* as given */
	struct guess_attempts tries;
	struct store_lookup lookup;
	enum link_verdict verdict; /* LINK_OPEN: the password is right */
};

static bool may_try(const struct unlock_job *j, const struct link_record *link)
{
	const struct link_resolve *r = &j->redirect->resolve;
	return !link->is_private || r->sees_all ||
	       (r->user != 0 && (r->user == link->owner || j->lookup.permitted));
}

static void unlock_run(struct ask_job *ask)
{
	struct unlock_job *j = container_of(ask, struct unlock_job, ask);
	const struct link_record *link = &j->lookup.link;
	int r = links_get(ask->worker->api->links, &j->lookup, 1, api_pool_metrics());
	ask->result = r < 0 ? r : j->lookup.result;
	j->verdict = LINK_LOCKED;
	if (ask->result < 0)
		return;
	bool open = links_is_open(ask->worker->api->links, link, ask->now_ms);
	bool late = !open && link->enabled && link->not_before_ms <= ask->now_ms && link->expired_url.ptr;
	if (!open && !late) {
		ask->result = ERR_NOT_FOUND;
		return;
	}
	if (!may_try(j, link)) {
		j->verdict = j->redirect->resolve.user != 0 ? LINK_FORBIDDEN : LINK_SIGN_IN;
		return;
	}
	if (late) {
		j->verdict = LINK_LATE; /* as for GET, and without a password */
		return;
	}
	if (!link->password.ptr) {
		j->verdict = LINK_OPEN;
		return;
	}
	r = password_verify(link->password, j->password);
	if (r == 0)
		j->verdict = LINK_OPEN;
	else if (r != ERR_INVALID)
		ask->result = r;
}

static void reply_not_locked(struct http_conn *c)
{
	static const struct http_field allow[] = {{STR("Allow"), STR("GET, HEAD")}};
	static const struct problem p = {
	    .status = 405, .code = "method-not-allowed", .fields = allow, .field_count = 1};
	problem_reply(c, &p, "This link asks for no password; follow it with GET.");
}

static void unlock_done(struct ask_job *ask)
{
	struct unlock_job *j = container_of(ask, struct unlock_job, ask);
	struct read_job *redirect = j->redirect;
	if (ask->result < 0 && ask->result != ERR_NOT_FOUND) /* what could not be looked at is no try */
		guess_refund(ask->worker, ask->conn, &j->tries);
	if (ask->result == ERR_NOT_FOUND) {
		if (j->lookup.result == 0) /* it is there, but not open */
			deny_no_link(ask->conn, redirect->as_page);
		else
			deny_no_key(ask->worker, ask->conn, &redirect->client, redirect->as_page);
	} else if (ask->result < 0) {
		problem_reply_store(ask->conn, ask->result);
	} else if (j->verdict == LINK_LOCKED) {
		deny_wrong_password(ask->conn, redirect->as_page);
	} else if (j->verdict == LINK_LATE) {
		redirect->resolve.see_other = true;
		redirect_job_submit(redirect);
	} else if (j->verdict == LINK_SIGN_IN && redirect->found == ACCOUNT_UNREAD) {
		guess_refund(ask->worker, ask->conn, &j->tries); /* it is looked at when they are known */
		hold_submit(redirect->hold);
	} else if (j->verdict == LINK_SIGN_IN && redirect->found == ACCOUNT_STALE) {
		auth_refuse_stale(ask->conn, redirect->as_page);
	} else if (j->verdict != LINK_OPEN) {
		deny_closed(ask->conn, j->verdict, redirect->resolve.key, redirect->as_page);
	} else if (!j->lookup.link.password.ptr) {
		reply_not_locked(ask->conn);
	} else {
		guess_refund(ask->worker, ask->conn, &j->tries);
		redirect->resolve.unlocked = j->lookup.link.password;
		redirect->resolve.see_other = true;
		redirect_job_submit(redirect);
	}
}

/* STR_NULL when it was wrong: then that has been said. */
static struct str read_password(struct http_conn *c, const struct http_request *req)
{
	struct str password = STR_NULL;
	const struct input_field fields[] = {
	    {"password", FIELD_STRING, &password, .required = true, .bytes_max = PASSWORD_BYTES_MAX}};
	struct err e;
	if (req->body.len > UNLOCK_BODY_BYTES_MAX) {
		problem_say(c, 413, "body-too-large", "A password's form has at most %d bytes.",
		            UNLOCK_BODY_BYTES_MAX);
		return STR_NULL;
	}
	if (http_is_form(req)) {
		password = http_form_field(req->body, STR("password"), http_conn_arena(c));
		if (!password.ptr || password.len > PASSWORD_BYTES_MAX)
			deny_wrong_password(c, problem_wants_page(req));
		return password.len > PASSWORD_BYTES_MAX ? STR_NULL : password;
	}
	int r = input_read(req->body, fields, ARRAY_LEN(fields), http_conn_arena(c), &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return STR_NULL;
	}
	return password;
}

void unlock_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	char text[REDIRECT_KEY_BYTES];
	bool preview;
	struct str key = redirect_key(w, req->path, text, &preview);
	struct net_addr client;
	if (!guess_may_look(w, c, req))
		return;
	if (!key.ptr || preview) {
		guess_address(w, c, req, &client);
		deny_no_key(w, c, &client, problem_wants_page(req));
		return;
	}
	struct str password = read_password(c, req);
	struct unlock_job *j = password.ptr ? ask_job_new(w, c, sizeof(*j), unlock_run, unlock_done) : NULL;
	if (!j)
		return;
	if (!guess_password(w, c, req, key, &j->tries))
		return;
	j->password = password;
	j->redirect = redirect_job_new(w, c, req, key);
	if (!j->redirect) {
		guess_refund(w, c, &j->tries);
		return;
	}
	j->lookup.ref = links_ref(w->api->links, j->redirect->resolve.key);
	j->lookup.user = j->redirect->resolve.user;
	j->lookup.arena = j->ask.arena;
	if (!ask_job_submit_hash(&j->ask, HASH_UNLOCK))
		guess_refund(w, c, &j->tries);
}
