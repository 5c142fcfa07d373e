/* API keys over HTTP, for admins: /api/v1/keys. */
#include "api/auth.h"
#include "api/handlers.h"
#include "api/input.h"
#include "api/jobs.h"
#include "api/key_json.h"
#include "api/problem.h"
#include "api/reply.h"

static void keys_post_done(struct write_job *j)
{
	if (j->write.result < 0) {
		problem_reply_store(j->conn, j->write.result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	key_json(&body, &j->write.key, j->key_text);
	api_reply_json(j->conn, 201, &body, NULL, 0);
}

void keys_post(struct api_worker *w, struct http_conn *c, const struct http_request *req,
               const struct route_match *match)
{
	(void)match;
	struct api_key key;
	if (!auth_require_admin(w, c, req, &key))
		return;
	struct write_job *j = write_job_new(w, c, STORE_KEY_CREATE, keys_post_done);
	char *text = j ? arena_alloc(j->write.arena, API_KEY_TEXT_BYTES) : NULL;
	if (!text) {
		if (j)
			problem_reply_store(c, ERR_NOMEM);
		return;
	}
	struct err e;
	struct key_record *record = &j->write.key;
	int r = key_input_read(req->body, j->write.arena, record, &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return;
	}
	api_key_make(text, record->digest);
	record->created_ms = j->write.now_ms;
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
	buf_str(&body, STR("{\"keys\":["));
	for (size_t i = 0; i < j->keys.count; i++) {
		if (i)
			buf_char(&body, ',');
		key_json(&body, &j->keys.keys[i], STR_NULL);
	}
	buf_str(&body, STR("]}"));
	api_reply_json(j->conn, 200, &body, NULL, 0);
}

void keys_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
              const struct route_match *match)
{
	(void)match;
	struct api_key key;
	if (!auth_require_admin(w, c, req, &key))
		return;
	struct read_job *j = read_job_new(w, c, READ_KEYS, keys_get_done);
	if (j)
		read_job_submit(j);
}

static void key_delete_done(struct write_job *j)
{
	if (j->write.result == ERR_NOT_FOUND) {
		static const struct problem p = {.status = 404, .code = "no-such-key"};
		problem_reply(j->conn, &p, "There is no API key of that id.");
		return;
	}
	if (j->write.result == ERR_CONFLICT) {
		static const struct problem p = {.status = 409, .code = "last-admin-key"};
		problem_reply(
		    j->conn, &p,
		    "This is the last admin key; make another one first ('curt key create --admin').");
		return;
	}
	if (j->write.result < 0) {
		problem_reply_store(j->conn, j->write.result);
		return;
	}
	const struct http_response done = {.status = 204};
	http_reply(j->conn, &done);
}

void key_delete(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	struct api_key key;
	if (!auth_require_admin(w, c, req, &key))
		return;
	struct write_job *j = write_job_new(w, c, STORE_KEY_REVOKE, key_delete_done);
	if (!j)
		return;
	if (!str_u64(match->params[0], &j->write.key.id)) {
		j->write.result = ERR_NOT_FOUND;
		key_delete_done(j);
		return;
	}
	write_job_submit(j);
}
