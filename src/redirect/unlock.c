/*
 * POST /{key}: the password of a link, from the form of its page or as JSON. The hasher checks it, after all
 * other conditions of the link. If it is right, the redirect continues as usual, but with 303: a browser must
 * not post the password to the target.
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
	struct query_job base;
	struct read_job *redirect;
	struct str password; /* as given */
	struct guess_attempts attempts;
	struct store_lookup lookup;
	enum link_verdict verdict; /* LINK_OPEN: the password is right */
};

static void unlock_run(struct query_job *base)
{
	struct unlock_job *j = container_of(base, struct unlock_job, base);
	const struct link_record *link = &j->lookup.link;
	base->result = link_read(base->worker->api, &j->lookup, 0);
	j->verdict = LINK_LOCKED;
	if (base->result < 0)
		return;
	bool open = links_is_open(base->worker->api->links, link, base->now_ms);
	bool late = !open && link->enabled && link->not_before_ms <= base->now_ms && link->expired_url.ptr;
	if (!open && !late) {
		base->result = ERR_NOT_FOUND;
		return;
	}
	enum link_verdict verdict = links_may_follow(&j->lookup, j->redirect->resolve.sees_all);
	if (verdict != LINK_OPEN) {
		j->verdict = verdict;
		return;
	}
	if (late) {
		j->verdict = LINK_LATE; /* as for GET, without a password */
		return;
	}
	if (!link->password.ptr) {
		j->verdict = LINK_OPEN;
		return;
	}
	int r = password_verify(link->password, j->password);
	if (r == 0)
		j->verdict = LINK_OPEN;
	else if (r != ERR_INVALID)
		base->result = r;
}

static void unlock_done(struct query_job *base)
{
	struct unlock_job *j = container_of(base, struct unlock_job, base);
	struct read_job *redirect = j->redirect;
	static const struct http_field allow = {STR("Allow"), STR("GET, HEAD, OPTIONS")};
	static const struct problem not_allowed = {
	    .status = 405, .code = "method-not-allowed", .fields = &allow, .field_count = 1};
	if (base->result < 0 && base->result != ERR_NOT_FOUND) /* not checked */
		guess_refund(base->worker, base->conn, &j->attempts);
	if (base->result == ERR_NOT_FOUND) {
		if (j->lookup.result == 0) /* it exists, but is not open */
			deny_not_found(base->conn, redirect->as_html);
		else
			deny_unknown_key(base->worker, base->conn, &redirect->client, redirect->as_html);
	} else if (base->result < 0) {
		problem_reply_store(base->conn, base->result);
	} else if (j->verdict == LINK_LOCKED) {
		deny_wrong_password(base->conn, redirect->as_html);
	} else if (j->verdict == LINK_LATE) {
		redirect->resolve.see_other = true;
		redirect_job_submit(redirect);
	} else if (j->verdict == LINK_SIGN_IN && redirect->found == ACCOUNT_UNCACHED) {
		guess_refund(base->worker, base->conn,
		             &j->attempts); /* checked later, when the caller is known */
		parked_request_submit(redirect->parked);
	} else if (j->verdict == LINK_SIGN_IN && redirect->found == ACCOUNT_STALE) {
		caller_reply_stale(base->conn, redirect->as_html);
	} else if (j->verdict != LINK_OPEN) {
		deny_verdict(base->conn, j->verdict, redirect->resolve.key, redirect->as_html);
	} else if (!j->lookup.link.password.ptr) {
		problem_reply_with(base->conn, &not_allowed,
		                   "This link has no password; follow it with GET.");
	} else {
		guess_refund(base->worker, base->conn, &j->attempts);
		redirect->resolve.unlocked = j->lookup.link.password;
		redirect->resolve.see_other = true;
		redirect_job_submit(redirect);
	}
}

/* STR_NULL: the request has been answered. */
static struct str read_password(struct http_conn *c, const struct http_request *req)
{
	struct str password = STR_NULL;
	const struct input_field fields[] = {
	    {"password", FIELD_STRING, &password, .required = true, .bytes_max = PASSWORD_BYTES_MAX}};
	struct input_err e;
	if (req->body.len > UNLOCK_BODY_BYTES_MAX) {
		problem_reply(c, 413, "body-too-large", "The body has %zu bytes; it may have at most %d.",
		              req->body.len, UNLOCK_BODY_BYTES_MAX);
		return STR_NULL;
	}
	if (http_is_form(req)) {
		password = http_form_field(req->body, STR("password"), http_conn_arena(c));
		if (!password.ptr || password.len > PASSWORD_BYTES_MAX)
			deny_wrong_password(c, problem_prefers_html(req));
		return password.len > PASSWORD_BYTES_MAX ? STR_NULL : password;
	}
	int r = input_read(req->body, fields, ARRAY_LEN(fields), http_conn_arena(c), &e);
	if (r < 0) {
		input_reply_failed(c, r, &e);
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
	if (!guess_may_look_up(w, c, req))
		return;
	if (!key.ptr || preview) {
		request_client_address(w, c, req, &client);
		deny_unknown_key(w, c, &client, problem_prefers_html(req));
		return;
	}
	struct str password = read_password(c, req);
	struct unlock_job *j = password.ptr ? query_job_new(w, c, sizeof(*j), unlock_run, unlock_done) : NULL;
	if (!j)
		return;
	if (!guess_link_password(w, c, req, key, &j->attempts))
		return;
	j->password = password;
	j->redirect = redirect_job_new(w, c, req, key);
	if (!j->redirect) {
		guess_refund(w, c, &j->attempts);
		return;
	}
	j->lookup.ref = links_ref(w->api->links, j->redirect->resolve.key);
	j->lookup.user = j->redirect->resolve.user;
	j->lookup.arena = j->base.arena;
	if (!query_job_submit_hash(&j->base, HASH_UNLOCK))
		guess_refund(w, c, &j->attempts);
}
