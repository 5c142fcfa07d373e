/*
 * Users over HTTP: /api/v1/users. Admins see and change everybody; anybody else themselves, and to change
 * anything they must be signed in: an API key that got lost shall not take its user's account along.
 */
#include "api/handlers.h"
#include "api/sign_in.h"
#include "api/user_json.h"
#include "auth/passwords.h"
#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/jobs.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"

#include <stdio.h>

enum { PAGE_DEFAULT = 50, PAGE_MAX = 1000, USER_SEGMENT_BYTES_MAX = 3 * USER_EMAIL_BYTES_MAX };

/* For all that a change of a user may come to but success. */
static void reply_unchanged(struct http_conn *c, int result)
{
	if (result == ERR_NOT_FOUND)
		problem_say(c, 404, "no-such-user", "There is no user of that id or email address.");
	else if (result == ERR_CONFLICT)
		problem_say(c, 409, "email-taken", "Another user has that email address.");
	else if (result == ERR_BUSY)
		problem_say(c, 409, "last-admin",
		            "This is the last admin; make somebody else an admin first (role \"admin\").");
	else
		problem_reply_store(c, result);
}

static void reply_user(struct http_conn *c, int status, const struct user_record *user,
                       const struct http_field *fields, size_t field_count)
{
	struct buf CLEANUP(buf_release) body = {0};
	user_json(&body, user);
	api_reply_json(c, status, &body, fields, field_count);
}

/*
 * Which user the path means, and whether whoever asks may have to do with them: 0 when the request is held or
 * has been answered. Others do not learn who there is: whom they name is not even looked for.
 */
static uint64_t named_user(const struct api_call *call)
{
	char text[USER_SEGMENT_BYTES_MAX];
	size_t len = 0;
	struct account user = {0};
	const struct caller *caller = &call->caller;
	bool is_admin = caller_is_admin(caller);
	bool is_text = call->params[0].len <= sizeof(text) &&
	               http_percent_decode(call->params[0], text, &len);
	struct str name = str_n(text, is_text ? len : 0);
	if (str_eq(name, STR("me")) && caller->user != 0)
		return caller->user;
	if (is_admin ? !auth_user_named(call, name, &user) : !auth_user(call, caller->user, &user))
		return 0;
	uint64_t id;
	if (!is_admin && !(str_u64(name, &id) ? id == user.id : str_eq_nocase(name, user.email))) {
		auth_refuse(call->c, RIGHT_ADMIN);
		return 0;
	}
	if (user.id == 0)
		reply_unchanged(call->c, ERR_NOT_FOUND);
	return user.id;
}

/* Creating */

static void users_post_done(struct write_job *j)
{
	char location[64];
	if (j->account.result < 0) {
		reply_unchanged(j->conn, j->account.result);
		return;
	}
	snprintf(location, sizeof(location), "/api/v1/users/%llu", (unsigned long long)j->account.user.id);
	const struct http_field field = {STR("Location"), str_of(location)};
	reply_user(j->conn, 201, &j->account.user, &field, 1);
}

void users_post(struct api_call *call)
{
	struct user_input in;
	struct err e;
	int r = user_input_create(call->req->body, http_conn_arena(call->c), &in, &e);
	if (r < 0) {
		api_reply_failed(call->c, r, "invalid-body", &e);
		return;
	}
	struct write_job *write = account_job_new(call, REGISTRY_USER_CREATE, users_post_done);
	if (!write)
		return;
	write->account.user = in.user;
	write->account.user.created_ms = write->account.user.updated_ms = write->account.now_ms;
	ask_submit_hashed(write, &call->caller, in.password, &write->account.user.password);
}

/* Reading */

struct list_job {
	struct ask_job ask;
	uint64_t only; /* 0: everybody */
	struct registry_page page;
	struct user_record one;
};

static void list_run(struct ask_job *ask)
{
	struct list_job *j = container_of(ask, struct list_job, ask);
	struct store *store = ask->worker->api->store;
	if (j->only == 0) {
		ask->result = registry_users(store->registry, &j->page);
		return;
	}
	ask->result = registry_user(store->registry, j->only, STR_NULL, ask->arena, &j->one);
	j->page.users = &j->one;
	j->page.count = 1;
}

static void users_get_done(struct ask_job *ask)
{
	const struct registry_page *page = &container_of(ask, struct list_job, ask)->page;
	if (ask->result < 0) {
		reply_unchanged(ask->conn, ask->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"users\":["));
	for (size_t i = 0; i < page->count; i++) {
		if (i)
			buf_char(&body, ',');
		user_json(&body, &page->users[i]);
	}
	if (page->more && page->count > 0)
		buf_printf(&body, "],\"next\":\"%llu\"}",
		           (unsigned long long)page->users[page->count - 1].id);
	else
		buf_str(&body, STR("],\"next\":null}"));
	api_reply_json(ask->conn, 200, &body, NULL, 0);
}

static void user_get_done(struct ask_job *ask)
{
	struct list_job *j = container_of(ask, struct list_job, ask);
	if (ask->result < 0)
		reply_unchanged(ask->conn, ask->result);
	else
		reply_user(ask->conn, 200, &j->one, NULL, 0);
}

static void submit_list(const struct api_call *call, const struct registry_page *page, uint64_t only,
                        void (*done)(struct ask_job *))
{
	struct list_job *j = ask_job_new(call->w, call->c, sizeof(*j), list_run, done);
	if (!j)
		return;
	j->page = *page;
	j->page.arena = j->ask.arena;
	j->only = only;
	ask_job_submit(&j->ask);
}

void users_get(struct api_call *call)
{
	struct page_input page;
	if (!input_page(call->c, call->req->query, PAGE_DEFAULT, PAGE_MAX, &page))
		return;
	const struct registry_page wanted = {.after = page.after, .limit = page.limit};
	submit_list(call, &wanted, link_param_owner(&call->caller), users_get_done);
}

void user_get(struct api_call *call)
{
	uint64_t id = named_user(call);
	if (id != 0)
		submit_list(call, &(struct registry_page){0}, id, user_get_done);
}

/* Changing */

struct patch_job {
	struct ask_job ask;
	struct write_job *write;
	struct caller caller;
	struct user_input in;
	uint64_t user;
	bool own;    /* by somebody who is signed in, for themselves */
	bool secure; /* a new cookie goes over TLS only */
	bool wrong;  /* the current password is another */
	bool ended;  /* whoever asked has lost the right to */
	struct guess_attempts tries;
};

static bool changes_own_password(const struct patch_job *j)
{
	return j->own && (j->in.fields & USER_PASSWORD);
}

/* Whose session made the change keeps it, under the new generation. */
static void patch_done(struct write_job *write)
{
	const struct patch_job *j = write->ctx;
	const struct user_record *user = &write->account.user;
	if (write->account.result < 0) {
		reply_unchanged(write->conn, write->account.result);
		return;
	}
	struct session_start start;
	struct http_field fields[2];
	size_t n = 0;
	if (changes_own_password(j) && user->enabled) {
		write->account.session.generation = user->generation;
		session_start(write->worker, &write->account.session, j->secure, &start);
		fields[n++] = (struct http_field){STR("Set-Cookie"), str_of(start.cookie)};
		fields[n++] = (struct http_field){STR("X-CSRF-Token"), str_of(start.csrf)};
	}
	reply_user(write->conn, 200, user, fields, n);
}

/* Looks at the user as they are, for the password that was, and makes the new one. */
static void patch_run(struct ask_job *ask)
{
	struct patch_job *j = container_of(ask, struct patch_job, ask);
	struct user_record now;
	int r = registry_user(ask->worker->api->store->registry, j->user, STR_NULL, ask->arena, &now);
	if (r == 0 && changes_own_password(j)) {
		r = password_verify(now.password, j->in.current_password);
		j->wrong = r == ERR_INVALID;
		r = j->wrong ? 0 : r;
	}
	if (r == 0 && j->in.password.ptr && !j->wrong)
		r = password_hash(j->in.password, ask->arena, &j->in.user.password);
	if (r == 0)
		r = auth_check(ask->worker->api, &j->caller, &j->ended);
	ask->result = r;
}

static void patch_prepared(struct ask_job *ask)
{
	struct patch_job *j = container_of(ask, struct patch_job, ask);
	if (!j->wrong)
		guess_refund(ask->worker, ask->conn, &j->tries);
	if (j->ended) {
		auth_refuse_ended(ask->conn, &j->caller);
	} else if (j->wrong) {
		problem_say(ask->conn, 403, "wrong-password",
		            "The current password is another one; nothing was changed.");
	} else if (ask->result < 0) {
		reply_unchanged(ask->conn, ask->result);
	} else {
		j->write->account.user = j->in.user;
		j->write->account.user.id = j->user;
		j->write->account.user_fields = j->in.fields;
		write_job_submit(j->write);
	}
}

/* False: they may not, and that has been said. */
static bool patch_is_allowed(const struct patch_job *j, const struct caller *caller)
{
	struct http_conn *c = j->ask.conn;
	if (!caller_is_admin(caller) && j->in.for_admins) {
		auth_refuse(c, RIGHT_ADMIN);
		return false;
	}
	if (changes_own_password(j) && !j->in.current_password.ptr) {
		problem_say(c, 400, "invalid-body",
		            "The field 'current_password' is missing: a new password needs the old one.");
		return false;
	}
	if (!j->own && j->in.current_password.ptr) {
		problem_say(
		    c, 400, "invalid-body",
		    "The field 'current_password' is for those who are signed in and change their own.");
		return false;
	}
	return true;
}

void user_patch(struct api_call *call)
{
	struct err e;
	if (!auth_may_manage(call))
		return;
	uint64_t id = named_user(call);
	struct patch_job *j = id ? ask_job_new(call->w, call->c, sizeof(*j), patch_run, patch_prepared)
	                         : NULL;
	if (!j)
		return;
	int r = user_input_change(call->req->body, j->ask.arena, &j->in, &e);
	if (r < 0) {
		api_reply_failed(call->c, r, "invalid-body", &e);
		return;
	}
	j->caller = call->caller;
	j->user = id;
	j->own = call->caller.by_session && call->caller.user == id;
	j->secure = session_is_secure(call->w, call->c, call->req);
	if (!patch_is_allowed(j, &call->caller))
		return;
	j->write = account_job_new(call, REGISTRY_USER_UPDATE, patch_done);
	if (!j->write)
		return;
	j->write->ctx = j;
	if (changes_own_password(j))
		session_prepare(call->w, call->c, call->req, id, &j->write->account.session);
	if (!j->in.password.ptr) {
		ask_job_submit(&j->ask);
		return;
	}
	bool guess = changes_own_password(j);
	if (guess && !guess_current_password(call->w, call->c, call->req, id, &j->tries))
		return;
	if (!ask_job_submit_hash(&j->ask, guess ? HASH_SIGN_IN : HASH_SET))
		guess_refund(call->w, call->c, &j->tries);
}

/* Ending sessions */

static void sessions_delete_done(struct write_job *j)
{
	if (j->account.result < 0)
		reply_unchanged(j->conn, j->account.result);
	else if (j->ctx)
		session_reply_ended(j->conn);
	else
		http_reply(j->conn, &(const struct http_response){.status = 204});
}

void user_sessions_delete(struct api_call *call)
{
	if (!auth_may_manage(call))
		return;
	uint64_t id = named_user(call);
	struct write_job *j = id ? account_job_new(call, REGISTRY_USER_UPDATE, sessions_delete_done) : NULL;
	if (!j)
		return;
	j->ctx = call->caller.by_session && call->caller.user == id
	             ? j
	             : NULL; /* their own cookie goes with it */
	j->account.user.id = id;
	j->account.user_fields = USER_END_SESSIONS;
	write_job_submit(j);
}
