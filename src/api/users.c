/*
 * The routes /api/v1/users. Admins see and change all users; others only themselves. Changes need a session
 * or an admin's API key, so that a leaked key does not give its user's account away.
 */
#include "api/handlers.h"
#include "api/sessions.h"
#include "api/user_json.h"
#include "auth/passwords.h"
#include "base/json_out.h"
#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/input.h"
#include "handler/jobs.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"

#include <stdio.h>

enum { PAGE_DEFAULT = 50, PAGE_MAX = 1000 };

static void reply_user_failed(struct http_conn *c, int result)
{
	if (result == ERR_NOT_FOUND)
		problem_reply(
		    c, 404, "no-such-user",
		    "There is no user with this id or email address. GET /api/v1/users lists them.");
	else if (result == ERR_CONFLICT)
		problem_reply(c, 409, "email-taken",
		              "Another user has this email address; use a different one.");
	else if (result == ERR_BUSY)
		problem_reply(c, 409, "last-admin",
		              "This is the last admin; give another user the role \"admin\" first.");
	else
		problem_reply_store(c, result);
}

static void reply_user(struct http_conn *c, int status, const struct user_record *user,
                       const struct http_field *fields, size_t field_count)
{
	struct buf CLEANUP(buf_release) body = {0};
	user_json(&body, user);
	reply_json(c, status, &body, fields, field_count);
}

/*
 * The user that the path names, if the caller may see them; 0: the request was parked or answered. For
 * callers who are not admins the name is not even looked up, so that they cannot find out which users exist.
 */
static uint64_t user_param(const struct api_call *call)
{
	struct account user;
	const struct caller *caller = &call->caller;
	bool is_admin = caller_is_admin(caller);
	struct str name = call->params[0];
	if (str_eq(name, STR("me")) && caller->user != 0)
		return caller->user;
	if (is_admin ? !caller_resolve_user(call, name, &user)
	             : !caller_resolve_user_id(call, caller->user, &user))
		return 0;
	uint64_t id;
	if (!is_admin && !(str_u64(name, &id) ? id == user.id : str_eq_nocase(name, user.email))) {
		caller_reply_forbidden(call->c, RIGHT_ADMIN);
		return 0;
	}
	if (user.id == 0)
		reply_user_failed(call->c, ERR_NOT_FOUND);
	return user.id;
}

/* Creating */

static void users_post_done(struct write_job *j)
{
	char location[64];
	if (j->account.result < 0) {
		reply_user_failed(j->conn, j->account.result);
		return;
	}
	snprintf(location, sizeof(location), "/api/v1/users/%llu", (unsigned long long)j->account.user.id);
	const struct http_field field = {STR("Location"), str_of(location)};
	reply_user(j->conn, 201, &j->account.user, &field, 1);
}

void users_post(struct api_call *call)
{
	struct user_input in;
	struct input_err e;
	int r = user_input_read(call->req->body, FIELD_CREATE, http_conn_arena(call->c), &in, &e);
	if (r < 0) {
		input_reply_failed(call->c, r, &e);
		return;
	}
	struct write_job *write = account_job_new(call, REGISTRY_USER_CREATE, users_post_done);
	if (!write)
		return;
	write->account.user = in.user;
	write->account.user.created_ms = write->account.user.updated_ms = write->account.now_ms;
	write_job_submit_hashed(write, &call->caller, in.password, &write->account.user.password);
}

/* Reading */

struct list_job {
	struct query_job base;
	uint64_t only; /* this user; 0: all */
	struct registry_page page;
	struct user_record one;
};

static void list_run(struct query_job *base)
{
	struct list_job *j = container_of(base, struct list_job, base);
	struct store *store = base->worker->api->store;
	if (j->only == 0) {
		base->result = registry_users(store->registry, &j->page);
		return;
	}
	base->result = registry_user(store->registry, j->only, STR_NULL, base->arena, &j->one);
	j->page.users = &j->one;
	j->page.count = 1;
}

static void users_get_done(struct query_job *base)
{
	const struct registry_page *page = &container_of(base, struct list_job, base)->page;
	if (base->result < 0) {
		reply_user_failed(base->conn, base->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"users\":["));
	for (size_t i = 0; i < page->count; i++) {
		json_out_next(&body);
		user_json(&body, &page->users[i]);
	}
	reply_page_by_id(base->conn, &body,
	                 page->more && page->count > 0 ? page->users[page->count - 1].id : 0);
}

static void user_get_done(struct query_job *base)
{
	struct list_job *j = container_of(base, struct list_job, base);
	if (base->result < 0)
		reply_user_failed(base->conn, base->result);
	else
		reply_user(base->conn, 200, &j->one, NULL, 0);
}

static void submit_list(const struct api_call *call, const struct registry_page *page, uint64_t only,
                        void (*done)(struct query_job *))
{
	struct list_job *j = query_job_new(call->w, call->c, sizeof(*j), list_run, done);
	if (!j)
		return;
	j->page = *page;
	j->page.arena = j->base.arena;
	j->only = only;
	query_job_submit(&j->base);
}

void users_get(struct api_call *call)
{
	struct page_input page;
	if (!input_page(call->c, call->req->query, PAGE_DEFAULT, PAGE_MAX, &page))
		return;
	const struct registry_page wanted = {.after = page.after, .limit = page.limit};
	submit_list(call, &wanted, caller_owner_filter(&call->caller), users_get_done);
}

void user_get(struct api_call *call)
{
	uint64_t id = user_param(call);
	if (id != 0)
		submit_list(call, &(struct registry_page){0}, id, user_get_done);
}

/* Changing */

struct patch_job {
	struct query_job base;
	struct write_job *write;
	struct caller caller;
	struct user_input in;
	uint64_t user;
	bool own;    /* by a session, for its own user */
	bool secure; /* the new cookie needs TLS */
	bool wrong;  /* the current password is wrong */
	bool ended;  /* as caller_recheck */
	struct guess_attempts attempts;
};

static bool changes_own_password(const struct patch_job *j)
{
	return j->own && (j->in.fields & USER_PASSWORD);
}

/* The session that made the change continues, under the new generation. */
static void patch_done(struct write_job *write)
{
	const struct patch_job *j = write->ctx;
	const struct user_record *user = &write->account.user;
	if (write->account.result < 0) {
		reply_user_failed(write->conn, write->account.result);
		return;
	}
	struct session_issue start;
	struct http_field fields[2];
	size_t n = 0;
	if (changes_own_password(j) && user->enabled) {
		write->account.session.generation = user->generation;
		session_issue(write->worker, &write->account.session, j->secure, &start);
		fields[n++] = (struct http_field){STR("Set-Cookie"), str_of(start.cookie)};
		fields[n++] = (struct http_field){STR("X-CSRF-Token"), str_of(start.csrf)};
	}
	reply_user(write->conn, 200, user, fields, n);
}

/* Checks the current password and hashes the new one. */
static void patch_run(struct query_job *base)
{
	struct patch_job *j = container_of(base, struct patch_job, base);
	struct user_record now;
	int r = registry_user(base->worker->api->store->registry, j->user, STR_NULL, base->arena, &now);
	if (r == 0 && changes_own_password(j)) {
		r = password_verify(now.password, j->in.current_password);
		j->wrong = r == ERR_INVALID;
		r = j->wrong ? 0 : r;
	}
	if (r == 0 && j->in.password.ptr && !j->wrong)
		r = password_hash(j->in.password, base->arena, &j->in.user.password);
	if (r == 0)
		r = caller_recheck(base->worker->api, &j->caller, &j->ended);
	base->result = r;
}

static void patch_prepared(struct query_job *base)
{
	struct patch_job *j = container_of(base, struct patch_job, base);
	if (!j->wrong)
		guess_refund(base->worker, base->conn, &j->attempts);
	if (j->ended) {
		caller_reply_ended(base->conn, &j->caller);
	} else if (j->wrong) {
		problem_reply(base->conn, 403, "wrong-password",
		              "The field 'current_password' is wrong; nothing was changed.");
	} else if (base->result < 0) {
		reply_user_failed(base->conn, base->result);
	} else {
		j->write->account.user = j->in.user;
		j->write->account.user.id = j->user;
		j->write->account.user_fields = j->in.fields;
		write_job_submit(j->write);
	}
}

/* False: the request has been answered. */
static bool patch_is_allowed(const struct patch_job *j, const struct caller *caller)
{
	struct http_conn *c = j->base.conn;
	if (!caller_is_admin(caller) && j->in.for_admins) {
		caller_reply_forbidden(c, RIGHT_ADMIN);
		return false;
	}
	if (changes_own_password(j) && !j->in.current_password.ptr) {
		problem_reply_field(
		    c, "invalid-field", "current_password",
		    "The field 'current_password' is missing: a new password needs the old one.");
		return false;
	}
	if (!j->own && j->in.current_password.ptr) {
		problem_reply_field(
		    c, "invalid-field", "current_password",
		    "The field 'current_password' is only for users who change their own password with "
		    "a session; leave it out.");
		return false;
	}
	return true;
}

void user_patch(struct api_call *call)
{
	struct input_err e;
	if (!caller_may_manage_accounts(call))
		return;
	uint64_t id = user_param(call);
	struct patch_job *j = id ? query_job_new(call->w, call->c, sizeof(*j), patch_run, patch_prepared)
	                         : NULL;
	if (!j)
		return;
	int r = user_input_read(call->req->body, FIELD_PATCH, j->base.arena, &j->in, &e);
	if (r < 0) {
		input_reply_failed(call->c, r, &e);
		return;
	}
	j->caller = call->caller;
	j->user = id;
	j->own = call->caller.by_session && call->caller.user == id;
	j->secure = session_cookie_is_secure(call->w, call->c, call->req);
	if (!patch_is_allowed(j, &call->caller))
		return;
	j->write = account_job_new(call, REGISTRY_USER_UPDATE, patch_done);
	if (!j->write)
		return;
	j->write->ctx = j;
	if (changes_own_password(j))
		session_record_init(call->w, call->c, call->req, id, &j->write->account.session);
	if (!j->in.password.ptr) {
		query_job_submit(&j->base);
		return;
	}
	bool guess = changes_own_password(j);
	if (guess && !guess_current_password(call->w, call->c, call->req, id, &j->attempts))
		return;
	if (!query_job_submit_hash(&j->base, guess ? HASH_SIGN_IN : HASH_SET))
		guess_refund(call->w, call->c, &j->attempts);
}

/* Ending sessions */

static void sessions_delete_done(struct write_job *j)
{
	if (j->account.result < 0)
		reply_user_failed(j->conn, j->account.result);
	else if (j->ctx)
		session_reply_ended(j->conn);
	else
		http_reply(j->conn, &(const struct http_response){.status = 204});
}

void user_sessions_delete(struct api_call *call)
{
	if (!caller_may_manage_accounts(call))
		return;
	uint64_t id = user_param(call);
	struct write_job *j = id ? account_job_new(call, REGISTRY_USER_UPDATE, sessions_delete_done) : NULL;
	if (!j)
		return;
	/* If the caller's own session ends, the response removes the cookie. */
	j->ctx = call->caller.by_session && call->caller.user == id ? j : NULL;
	j->account.user.id = id;
	j->account.user_fields = USER_END_SESSIONS;
	write_job_submit(j);
}
