/* Who may follow a private link: /api/v1/links/{key}/permissions, for its owner and admins. */
#include "api/auth.h"
#include "api/handlers.h"
#include "api/jobs.h"
#include "api/named.h"
#include "api/problem.h"
#include "api/reply.h"
#include "base/json_out.h"

static void permissions_get_done(struct read_job *j)
{
	if (j->result == ERR_NOT_FOUND) {
		named_reply_no_such_link(j->conn);
		return;
	}
	if (j->result < 0) {
		problem_reply_store(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"key\":"));
	json_out_str(&body, j->permitted.link.key);
	buf_printf(&body, ",\"visibility\":\"%s\",\"users\":[",
	           j->permitted.link.is_private ? "private" : "public");
	for (size_t i = 0; i < j->permitted.count; i++) {
		uint64_t id = j->permitted.users[i];
		const struct account *user = accounts_user(j->worker->api->accounts, id);
		buf_printf(&body, "%s{\"id\":%llu,\"email\":", i ? "," : "", (unsigned long long)id);
		json_out_str_or_null(&body, user ? user->email : STR_NULL);
		buf_str(&body, STR(",\"name\":"));
		json_out_str_or_null(&body, user ? user->name : STR_NULL);
		buf_char(&body, '}');
	}
	buf_str(&body, STR("]}"));
	api_reply_json(j->conn, 200, &body, NULL, 0);
}

void permissions_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                     const struct route_match *match)
{
	struct caller caller;
	if (!auth_require(w, c, req, STR_NULL, RIGHT_READ, &caller))
		return;
	struct str name = named_take_key(w, c, match->params[0]);
	struct read_job *j = name.ptr ? read_job_new(w, c, READ_PERMITTED, permissions_get_done) : NULL;
	if (!j)
		return;
	j->owner = named_sees_only(&caller);
	j->permitted.ref = links_ref(w->api->links, name);
	read_job_submit(j);
}

static void permission_done(struct write_job *j)
{
	static const struct problem full = {.status = 409, .code = "too-many-permissions"};
	const struct http_response done = {.status = 204};
	switch (j->write.result) {
	case 0: http_reply(j->conn, &done); return;
	case ERR_NOT_FOUND: named_reply_no_such_link(j->conn); return;
	case ERR_LIMIT:
		problem_reply(j->conn, &full,
		              "A link's list holds at most %d users; take somebody off it first.",
		              PERMITTED_MAX);
		return;
	default: problem_reply_store(j->conn, j->write.result); return;
	}
}

static void permission_change(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                              const struct route_match *match, enum store_write_kind kind)
{
	struct caller caller;
	if (!auth_require(w, c, req, STR_NULL, RIGHT_CREATE, &caller))
		return;
	struct str name = named_take_key(w, c, match->params[0]);
	struct write_job *j = name.ptr ? write_job_new(w, c, kind, permission_done) : NULL;
	if (!j)
		return;
	char *text = arena_alloc(j->write.arena, match->params[1].len + 1);
	size_t len = 0;
	const struct account *user = NULL;
	if (text && http_percent_decode(match->params[1], text, &len))
		user = accounts_user_named(w->api->accounts, str_n(text, len));
	if (!user) {
		static const struct problem p = {.status = 404, .code = "no-such-user"};
		problem_reply(c, &p, "There is no such user; name one by email address or id.");
		return;
	}
	j->write.user.id = user->id;
	j->write.owner = named_sees_only(&caller);
	j->write.ref = links_ref(w->api->links, name);
	write_job_submit(j);
}

void permission_put(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    const struct route_match *match)
{
	permission_change(w, c, req, match, STORE_PERMIT);
}

void permission_delete(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       const struct route_match *match)
{
	permission_change(w, c, req, match, STORE_FORBID);
}
