/*
 * API keys over HTTP: /api/v1/keys. Admins make, see and revoke everybody's; whoever is signed in their own.
 * A key without the right 'admin' has no say here: one that got lost shall not make others.
 */
#include "api/auth.h"
#include "api/handlers.h"
#include "api/jobs.h"
#include "api/key_json.h"
#include "api/problem.h"
#include "api/reply.h"

enum { PAGE_MAX = 1000 };

/* False: they may not, and that has been said. `ret_only` is whose keys alone they may touch; 0: anybody's.
 */
static bool may_manage(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       struct caller *ret, uint64_t *ret_only)
{
	if (!auth_require(w, c, req, STR_NULL, 0, ret))
		return false;
	if (!caller_is_admin(ret) && !ret->by_session) {
		auth_refuse(c, RIGHT_ADMIN);
		return false;
	}
	*ret_only = caller_is_admin(ret) ? 0 : ret->user;
	return true;
}

static void keys_post_done(struct write_job *j)
{
	if (j->account.result == ERR_LIMIT) {
		static const struct problem p = {.status = 409, .code = "too-many-keys"};
		problem_reply(j->conn, &p,
		              "A user has at most %d API keys that are in force; revoke one first.",
		              ACCOUNT_KEYS_MAX);
		return;
	}
	if (j->account.result < 0) {
		problem_reply_store(j->conn, j->account.result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	key_json(&body, &j->account.key, j->key_text);
	api_reply_json(j->conn, 201, &body, NULL, 0);
}

/* Whose the key shall be: the id 0 for a user of its own. False: the request is held, or has been answered.
 */
static bool choose_user(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        const struct key_input *in, uint64_t only, struct account *ret)
{
	static const struct problem p = {.status = 400, .code = "no-such-user"};
	*ret = (struct account){0};
	if (!in->user.ptr)
		return only == 0 || auth_user(w, c, req, only, ret);
	if (!auth_user_named(w, c, req, in->user, ret))
		return false;
	if (only && ret->id != only)
		auth_refuse(c, RIGHT_ADMIN);
	else if (ret->id == 0)
		problem_reply(c, &p, "The field 'user' is no user's id or email address.");
	else
		return true;
	return false;
}

/* A right that its user's role lacks would be worth nothing. False: it has been answered. */
static bool choose_rights(struct http_conn *c, const struct key_input *in, const struct account *user,
                          uint64_t only, unsigned *ret)
{
	unsigned allowed = user->id ? role_rights(user->role) : RIGHTS_ALL;
	unsigned missing = in->rights_given ? in->key.rights & ~allowed : 0;
	*ret = in->key.rights & allowed;
	if (missing == 0)
		return true;
	if (only) {
		auth_refuse(c, missing);
		return false;
	}
	static const struct problem p = {.status = 400, .code = "invalid-field"};
	problem_reply(c, &p,
	              "The role of that user does not have the right '%s'; raise it first, or leave it out.",
	              right_name(missing & -missing));
	return false;
}

/* Limits are what an admin sets for others: nobody gives themselves more. False: it has been answered. */
static bool may_limit(struct http_conn *c, const struct key_input *in, uint64_t only)
{
	static const struct problem p = {.status = 403, .code = "admin-only"};
	if (!only || !in->for_admins)
		return true;
	problem_reply(c, &p,
	              "The field '%s' is for admins; without it the key shares the limits of your account.",
	              in->for_admins->name);
	return false;
}

void keys_post(struct api_worker *w, struct http_conn *c, const struct http_request *req,
               const struct route_match *match)
{
	(void)match;
	struct caller caller;
	uint64_t only;
	if (!may_manage(w, c, req, &caller, &only))
		return;
	struct write_job *j = account_job_new(w, c, caller.user, REGISTRY_KEY_CREATE, keys_post_done);
	char *text = j ? arena_alloc(j->account.arena, API_KEY_TEXT_BYTES) : NULL;
	if (!text) {
		if (j)
			problem_reply_store(c, ERR_NOMEM);
		return;
	}
	struct err e;
	struct key_input in;
	struct account user;
	unsigned rights;
	int r = key_input_read(req->body, j->account.now_ms, j->account.arena, &in, &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return;
	}
	if (!choose_user(w, c, req, &in, only, &user) || !choose_rights(c, &in, &user, only, &rights) ||
	    !may_limit(c, &in, only))
		return;
	j->account.key = in.key;
	j->account.key.user = user.id;
	j->account.key.rights = rights;
	j->account.key.created_ms = j->account.now_ms;
	if (user.id == 0)
		j->account.user = key_own_user(&j->account.key);
	api_key_make(text, j->account.key.digest);
	j->key_text = str_of(text);
	write_job_submit(j);
}

static void keys_get_done(struct read_job *j)
{
	if (j->result < 0) {
		problem_reply_store(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	const char *before = "{\"keys\":[";
	for (size_t i = 0; i < j->keys.count; i++) {
		struct key_record *key = &j->keys.keys[i];
		key->used_ms = MAX(key->used_ms, accounts_key_used_ms(j->worker->api->accounts, key->id));
		buf_str(&body, str_of(before));
		key_json(&body, key, STR_NULL);
		before = ",";
	}
	buf_str(&body, body.len > 0 ? STR("],\"next\":") : STR("{\"keys\":[],\"next\":"));
	if (j->keys.more)
		buf_printf(&body, "\"%llu\"}", (unsigned long long)j->keys.keys[j->keys.count - 1].id);
	else
		buf_str(&body, STR("null}"));
	api_reply_json(j->conn, 200, &body, NULL, 0);
}

void keys_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
              const struct route_match *match)
{
	(void)match;
	struct caller caller;
	uint64_t only;
	if (!may_manage(w, c, req, &caller, &only))
		return;
	struct page_input page;
	if (!input_page(c, req->query, PAGE_MAX, PAGE_MAX, &page))
		return;
	struct read_job *j = read_job_new(w, c, READ_KEYS, keys_get_done);
	if (!j)
		return;
	j->keys = (struct registry_keys){
	    .user = only, .after = page.after, .limit = page.limit, .arena = http_conn_arena(c)};
	read_job_submit(j);
}

static void key_delete_done(struct write_job *j)
{
	if (j->account.result == ERR_NOT_FOUND) {
		static const struct problem p = {.status = 404, .code = "no-such-key"};
		problem_reply(j->conn, &p, "There is no API key of that id.");
		return;
	}
	if (j->account.result == ERR_CONFLICT) {
		static const struct problem p = {.status = 409, .code = "last-admin-key"};
		problem_reply(
		    j->conn, &p,
		    "This is the last admin key; make another one first ('curt key create --admin').");
		return;
	}
	if (j->account.result < 0) {
		problem_reply_store(j->conn, j->account.result);
		return;
	}
	const struct http_response done = {.status = 204};
	http_reply(j->conn, &done);
}

void key_delete(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	struct caller caller;
	uint64_t only;
	if (!may_manage(w, c, req, &caller, &only))
		return;
	struct write_job *j = account_job_new(w, c, caller.user, REGISTRY_KEY_REVOKE, key_delete_done);
	if (!j)
		return;
	j->account.key.user = only;
	if (!str_u64(match->params[0], &j->account.key.id)) {
		j->account.result = ERR_NOT_FOUND;
		key_delete_done(j);
		return;
	}
	write_job_submit(j);
}
