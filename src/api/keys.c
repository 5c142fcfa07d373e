/*
 * The routes /api/v1/keys. Admins create, see and revoke all keys; users with a session their own. An API key
 * needs the right 'admin', so that a leaked key cannot create others.
 */
#include "api/handlers.h"
#include "base/json_out.h"
#include "handler/caller.h"
#include "handler/input.h"
#include "handler/jobs.h"
#include "handler/key_json.h"
#include "handler/problem.h"
#include "handler/reply.h"

enum { PAGE_MAX = 1000 };

static void keys_post_done(struct write_job *j)
{
	struct buf CLEANUP(buf_release) body = {0};
	if (j->account.result == ERR_LIMIT) {
		problem_reply(j->conn, 409, "too-many-keys",
		              "The user has %d valid API keys, which is the limit; revoke one first.",
		              ACCOUNT_KEYS_MAX);
	} else if (j->account.result < 0) {
		problem_reply_store(j->conn, j->account.result);
	} else {
		key_json(&body, &j->account.key, j->key_text);
		reply_json(j->conn, 201, &body, NULL, 0);
	}
}

/* The key's user; the id 0 for a new one. `owner` is the only user whose keys the caller may touch; 0: any.
 * False: the request was parked or answered. */
static bool choose_user(const struct api_call *call, const struct key_input *in, uint64_t owner,
                        struct account *ret)
{
	*ret = (struct account){0};
	if (!in->user.ptr)
		return owner == 0 || caller_resolve_user_id(call, owner, ret);
	if (!caller_resolve_user(call, in->user, ret))
		return false;
	if (owner && ret->id != owner)
		caller_reply_forbidden(call->c, RIGHT_ADMIN);
	else if (ret->id == 0)
		caller_reply_no_such_user(call->c, "user", in->user);
	else
		return true;
	return false;
}

/* The rights that the key gets: at most those of its user's role. False: the request has been answered. */
static bool choose_rights(struct http_conn *c, const struct key_input *in, const struct account *user,
                          uint64_t owner, unsigned *ret)
{
	unsigned allowed = user->id ? role_rights(user->role) : RIGHTS_ALL;
	unsigned missing = in->rights_given ? in->key.rights & ~allowed : 0;
	*ret = in->key.rights & allowed;
	if (missing == 0)
		return true;
	if (owner)
		caller_reply_forbidden(c, missing);
	else
		problem_reply_field(
		    c, "invalid-field", "scopes",
		    "The role of this user lacks the right '%s'; change the role first, or leave the "
		    "right out.",
		    right_name(missing & -missing));
	return false;
}

void keys_post(struct api_call *call)
{
	struct http_conn *c = call->c;
	struct input_err e;
	struct key_input in;
	struct account user;
	unsigned rights;
	uint64_t owner = caller_owner_filter(&call->caller);
	char text[API_KEY_TEXT_BYTES];
	struct write_job *j = caller_may_manage_accounts(call)
	                          ? account_job_new(call, REGISTRY_KEY_CREATE, keys_post_done)
	                          : NULL;
	if (!j)
		return;
	struct registry_write *w = &j->account;
	int r = key_input_parse(call->req->body, w->now_ms, w->arena, &in, &e);
	if (r < 0) {
		input_reply_failed(c, r, &e);
		return;
	}
	if (!choose_user(call, &in, owner, &user) || !choose_rights(c, &in, &user, owner, &rights))
		return;
	if (owner && in.for_admins) { /* users must not raise their own limits */
		problem_reply(
		    c, 403, "admin-only",
		    "Only admins may set the field '%s'; without it the key shares the limits of your "
		    "account.",
		    in.for_admins->name);
		return;
	}
	w->key = in.key;
	w->key.user = user.id;
	w->key.rights = rights;
	w->key.created_ms = w->now_ms;
	if (user.id == 0)
		w->user = key_own_user(&w->key);
	api_key_make(text, w->key.digest);
	j->key_text = request_str(c, str_of(text));
	if (j->key_text.ptr)
		write_job_submit(j);
}

static void keys_get_done(struct read_job *j)
{
	if (j->result < 0) {
		problem_reply_store(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"keys\":["));
	for (size_t i = 0; i < j->keys.count; i++) {
		struct key_record *key = &j->keys.keys[i];
		key->used_ms = MAX(key->used_ms, accounts_key_used_ms(j->worker->api->accounts, key->id));
		json_out_next(&body);
		key_json(&body, key, STR_NULL);
	}
	reply_page_by_id(j->conn, &body, j->keys.more ? j->keys.keys[j->keys.count - 1].id : 0);
}

void keys_get(struct api_call *call)
{
	struct page_input page;
	if (!caller_may_manage_accounts(call) ||
	    !input_page(call->c, call->req->query, PAGE_MAX, PAGE_MAX, &page))
		return;
	struct read_job *j = read_job_new(call->w, call->c, READ_KEYS, keys_get_done);
	if (!j)
		return;
	j->keys = (struct registry_page){.user = caller_owner_filter(&call->caller),
	                                 .after = page.after,
	                                 .limit = page.limit,
	                                 .arena = http_conn_arena(call->c)};
	read_job_submit(j);
}

static void key_delete_done(struct write_job *j)
{
	if (j->account.result == ERR_NOT_FOUND)
		problem_reply(j->conn, 404, "no-such-key",
		              "There is no API key with this id. GET /api/v1/keys lists them.");
	else if (j->account.result == ERR_CONFLICT)
		problem_reply(
		    j->conn, 409, "last-admin-key",
		    "This is the last admin key; create another one first ('curt key create --admin').");
	else if (j->account.result < 0)
		problem_reply_store(j->conn, j->account.result);
	else
		http_reply(j->conn, &(const struct http_response){.status = 204});
}

void key_delete(struct api_call *call)
{
	struct write_job *j = caller_may_manage_accounts(call)
	                          ? account_job_new(call, REGISTRY_KEY_REVOKE, key_delete_done)
	                          : NULL;
	if (!j)
		return;
	j->account.key.user = caller_owner_filter(&call->caller);
	if (!str_u64(call->params[0], &j->account.key.id)) {
		j->account.result = ERR_NOT_FOUND;
		key_delete_done(j);
		return;
	}
	write_job_submit(j);
}
