/*
 * API keys over HTTP: /api/v1/keys. Admins make, see and revoke everybody's; whoever is signed in their own.
 * A key without the right 'admin' has no say here: one that got lost shall not make others.
 */
#include "api/handlers.h"
#include "handler/caller.h"
#include "handler/jobs.h"
#include "handler/key_json.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/reply.h"

enum { PAGE_MAX = 1000 };

static void keys_post_done(struct write_job *j)
{
	struct buf CLEANUP(buf_release) body = {0};
	if (j->account.result == ERR_LIMIT) {
		problem_say(j->conn, 409, "too-many-keys",
		            "A user has at most %d API keys that are in force; revoke one first.",
		            ACCOUNT_KEYS_MAX);
	} else if (j->account.result < 0) {
		problem_reply_store(j->conn, j->account.result);
	} else {
		key_json(&body, &j->account.key, j->key_text);
		api_reply_json(j->conn, 201, &body, NULL, 0);
	}
}

/* Whose the key shall be: the id 0 for a user of its own. False: the request is held, or has been answered.
 */
static bool choose_user(const struct api_call *call, const struct key_input *in, uint64_t only,
                        struct account *ret)
{
	*ret = (struct account){0};
	if (!in->user.ptr)
		return only == 0 || auth_user(call, only, ret);
	if (!auth_user_named(call, in->user, ret))
		return false;
	if (only && ret->id != only)
		auth_refuse(call->c, RIGHT_ADMIN);
	else if (ret->id == 0)
		problem_say(call->c, 400, "no-such-user",
		            "The field 'user' is no user's id or email address.");
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
	problem_say(c, 400, "invalid-field",
	            "The role of that user does not have the right '%s'; raise it first, or leave it out.",
	            right_name(missing & -missing));
	return false;
}

/* Limits are what an admin sets for others: nobody gives themselves more. False: it has been answered. */
static bool may_limit(struct http_conn *c, const struct key_input *in, uint64_t only)
{
	if (!only || !in->for_admins)
		return true;
	problem_say(c, 403, "admin-only",
	            "The field '%s' is for admins; without it the key shares the limits of your account.",
	            in->for_admins->name);
	return false;
}

void keys_post(struct api_call *call)
{
	struct http_conn *c = call->c;
	struct err e;
	struct key_input in;
	struct account user;
	unsigned rights;
	uint64_t only = link_param_owner(&call->caller); /* whose keys alone they may touch; 0: anybody's */
	char text[API_KEY_TEXT_BYTES];
	struct write_job *j = auth_may_manage(call)
	                          ? account_job_new(call, REGISTRY_KEY_CREATE, keys_post_done)
	                          : NULL;
	if (!j)
		return;
	struct registry_write *w = &j->account;
	int r = key_input_read(call->req->body, w->now_ms, w->arena, &in, &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return;
	}
	if (!choose_user(call, &in, only, &user) || !choose_rights(c, &in, &user, only, &rights) ||
	    !may_limit(c, &in, only))
		return;
	w->key = in.key;
	w->key.user = user.id;
	w->key.rights = rights;
	w->key.created_ms = w->now_ms;
	if (user.id == 0)
		w->user = key_own_user(&w->key);
	api_key_make(text, w->key.digest);
	j->key_text = arena_str(w->arena, str_of(text));
	if (j->key_text.ptr)
		write_job_submit(j);
	else
		problem_reply_store(c, ERR_NOMEM);
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

void keys_get(struct api_call *call)
{
	struct page_input page;
	if (!auth_may_manage(call) || !input_page(call->c, call->req->query, PAGE_MAX, PAGE_MAX, &page))
		return;
	struct read_job *j = read_job_new(call->w, call->c, READ_KEYS, keys_get_done);
	if (!j)
		return;
	j->keys = (struct registry_page){.user = link_param_owner(&call->caller),
	                                 .after = page.after,
	                                 .limit = page.limit,
	                                 .arena = http_conn_arena(call->c)};
	read_job_submit(j);
}

static void key_delete_done(struct write_job *j)
{
	if (j->account.result == ERR_NOT_FOUND)
		problem_say(j->conn, 404, "no-such-key", "There is no API key of that id.");
	else if (j->account.result == ERR_CONFLICT)
		problem_say(
		    j->conn, 409, "last-admin-key",
		    "This is the last admin key; make another one first ('curt key create --admin').");
	else if (j->account.result < 0)
		problem_reply_store(j->conn, j->account.result);
	else
		http_reply(j->conn, &(const struct http_response){.status = 204});
}

void key_delete(struct api_call *call)
{
	struct write_job *j = auth_may_manage(call)
	                          ? account_job_new(call, REGISTRY_KEY_REVOKE, key_delete_done)
	                          : NULL;
	if (!j)
		return;
	j->account.key.user = link_param_owner(&call->caller);
	if (!str_u64(call->params[0], &j->account.key.id)) {
		j->account.result = ERR_NOT_FOUND;
		key_delete_done(j);
		return;
	}
	write_job_submit(j);
}
