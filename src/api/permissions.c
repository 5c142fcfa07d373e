/* The routes /api/v1/links/{key}/permissions: who may follow a private link. For its owner and admins. */
#include "api/handlers.h"
#include "base/json_out.h"
#include "base/utf8.h"
#include "handler/caller.h"
#include "handler/jobs.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/reply.h"

/* Owners must be able to tell users apart, and must not learn their addresses: a***@example.com. */
static void email_masked(struct buf *b, struct str email)
{
	struct str domain = email;
	struct buf CLEANUP(buf_release) masked = {0};
	str_cut(&domain, '@');
	buf_append(&masked, email.ptr, utf8_first(email));
	buf_str(&masked, STR("***@"));
	buf_str(&masked, domain);
	b->failed |= masked.failed;
	json_out_str(b, buf_view(&masked));
}

static void listed_json(struct buf *b, uint64_t id, const struct user_record *user, struct arena *arena,
                        bool for_admin)
{
	struct str email = user->id ? user->email : STR_NULL;
	buf_char(b, '{');
	json_out_name_u64(b, "id", id);
	json_out_name(b, "email");
	if (email.ptr && !for_admin)
		email_masked(b, email);
	else
		json_out_str_or_null(b, email);
	json_out_name_str(b, "name", user->id && for_admin ? account_full_name(arena, user) : STR_NULL);
	buf_char(b, '}');
}

static void permissions_get_done(struct read_job *j)
{
	if (j->result < 0) {
		link_param_reply_failed(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_char(&body, '{');
	json_out_name_str(&body, "key", j->permitted.link.key);
	json_out_name_str(&body, "visibility", j->permitted.link.is_private ? STR("private") : STR("public"));
	json_out_begin(&body, "users", '[');
	for (size_t i = 0; i < j->permitted.count; i++) {
		json_out_next(&body);
		listed_json(&body, j->permitted.ids[i], &j->permitted.users[i], http_conn_arena(j->conn),
		            j->owner == 0);
	}
	buf_str(&body, STR("]}"));
	reply_json(j->conn, 200, &body, NULL, 0);
}

void permissions_get(struct api_call *call)
{
	struct str name = link_param_key(call->w, call->c, call->params[0]);
	struct read_job *j = name.ptr ? read_job_new(call->w, call->c, READ_PERMISSIONS, permissions_get_done)
	                              : NULL;
	if (!j)
		return;
	j->owner = caller_owner_filter(&call->caller);
	j->permitted.ref = links_ref(call->w->api->links, name);
	read_job_submit(j);
}

/* "No such link" takes precedence over "no such user"; otherwise callers could find out which users exist. */
static void permission_done(struct write_job *j)
{
	int r = j->write.result;
	if (r == ERR_INVALID || (r == 0 && j->write.user == 0))
		problem_reply(j->conn, 404, "no-such-user",
		              "There is no such user; name one by email address or id in the path.");
	else if (r == ERR_LIMIT)
		problem_reply(j->conn, 409, "too-many-permissions",
		              "%d users may follow this link, which is the limit; remove one first.",
		              PERMITTED_MAX);
	else if (r < 0)
		link_param_reply_failed(j->conn, r);
	else
		http_reply(j->conn, &(const struct http_response){.status = 204});
}

static void permission_change(struct api_call *call, enum store_write_kind kind)
{
	struct write_job *j = link_job_new(call, call->params[0], kind, permission_done);
	if (!j)
		return;
	struct account user;
	if (!caller_resolve_user(call, call->params[1], &user))
		return;
	j->write.user = user.id;
	write_job_submit(j);
}

void permission_put(struct api_call *call)
{
	permission_change(call, STORE_PERMIT);
}

void permission_delete(struct api_call *call)
{
	permission_change(call, STORE_FORBID);
}
