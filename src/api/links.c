/* Links over HTTP: /api/v1/links, and createURL and deleteURL, which say the same in other words. */
#include "api/auth.h"
#include "api/handlers.h"
#include "api/input.h"
#include "api/jobs.h"
#include "api/link_json.h"
#include "api/named.h"
#include "api/problem.h"
#include "api/ratelimit.h"
#include "api/reply.h"

#include <sodium.h>

enum {
	TITLE_BYTES_MAX = 512,
	NOTE_BYTES_MAX = 4096,
	USER_NAME_BYTES_MAX = 128,
	IDEMPOTENCY_KEY_BYTES_MAX = 255,
	PAGE_DEFAULT = 50,
	PAGE_MAX = 1000,
	PAGE_BYTES_MAX = 1 << 20, /* a page of many long notes ends early */
	STRANGERS_BODY_BYTES_MAX = 64 * 1024,
};
static const int64_t default_life_ms = 2LL * 365 * 24 * 3600 * 1000;

static void reply_link(struct http_conn *c, const struct api *api, const struct link_record *link)
{
	struct buf CLEANUP(buf_release) body = {0};
	link_json(&body, api, link);
	api_reply_json(c, 200, &body, NULL, 0);
}

/* Creating */

/* What the two ways of creating have in common, as read from the request. */
struct create_input {
	struct str url, alias, user_name, title, note, tags;
	int64_t expires_ms;
	uint64_t status;
	bool enabled;
	bool expires_given;
};

static int check_status(uint64_t status, struct err *e)
{
	if (status == 301 || status == 302 || status == 307 || status == 308)
		return 0;
	return err_set(e, ERR_INVALID, "the field 'redirect_status' must be 301, 302, 307 or 308");
}

static int check_expiry(int64_t expires_ms, int64_t now_ms, struct err *e)
{
	if (expires_ms == 0 || expires_ms > now_ms)
		return 0;
	return err_set(e, ERR_INVALID, "the expiry lies in the past; give a later time, or null for none");
}

/* Puts the canonical form into the arena. */
static int canonical_url(struct api *api, struct str in, struct arena *arena, struct str *ret, struct err *e)
{
	struct buf CLEANUP(buf_release) canonical = {0};
	int r = url_canonicalize(in, &api->url_rules, &canonical, e);
	if (r < 0)
		return r;
	*ret = arena_str(arena, buf_view(&canonical));
	return ret->ptr ? 0 : ERR_NOMEM;
}

static int create_fill(struct write_job *j, const struct create_input *in, struct err *e,
                       const char **ret_code)
{
	struct api *api = j->worker->api;
	struct link_record *link = &j->write.link;
	struct arena *arena = j->write.arena;
	*ret_code = "invalid-url";
	int r = canonical_url(api, in->url, arena, &link->url, e);
	if (r < 0)
		return r;
	if (in->alias.ptr) {
		*ret_code = "invalid-alias";
		r = alias_check(in->alias, e);
		if (r < 0)
			return r;
		char folded[ALIAS_BYTES_MAX];
		link->is_alias = true;
		link->key = arena_str(arena, key_fold(links_cipher(api->links), in->alias, folded));
		if (!link->key.ptr)
			return ERR_NOMEM;
	}
	*ret_code = "invalid-field";
	r = check_status(in->status, e);
	if (r == 0 && in->expires_given)
		r = check_expiry(in->expires_ms, j->write.now_ms, e);
	if (r < 0)
		return r;
	link->created_ms = link->updated_ms = j->write.now_ms;
	link->expires_ms = in->expires_given ? in->expires_ms : j->write.now_ms + default_life_ms;
	link->redirect_status = (uint16_t)in->status;
	link->enabled = in->enabled;
	link->user_name = in->user_name;
	link->title = in->title;
	link->note = in->note;
	link->tags = in->tags;
	return 0;
}

static void refuse_create(struct write_job *j)
{
	metric_add(&j->worker->metrics->limited, 1);
	ratelimit_refuse(j->conn, &j->reading, false,
	                 "This API key has made as many links as its limit allows.");
}

static void create_done(struct write_job *j)
{
	struct api *api = j->worker->api;
	const struct store_write *w = &j->write;
	if (w->result == ERR_CONFLICT) {
		static const struct problem taken = {.status = 409, .code = "alias-taken"};
		problem_reply(j->conn, &taken, "The alias '%.*s' is taken; choose another.",
		              STR_ARG(w->link.key));
		return;
	}
	if (w->result == ERR_INVALID) {
		static const struct problem reused = {.status = 422, .code = "idempotency-key-reused"};
		problem_reply(
		    j->conn, &reused,
		    "This Idempotency-Key was used for another request; use a new one for each link.");
		return;
	}
	if (w->result == ERR_NOT_FOUND) {
		static const struct problem gone = {.status = 409, .code = "idempotent-link-gone"};
		problem_reply(j->conn, &gone,
		              "The link that this Idempotency-Key made has been deleted; use a new key.");
		return;
	}
	if (w->result == ERR_LIMIT && w->replay_only) {
		refuse_create(j);
		return;
	}
	if (w->result == ERR_LIMIT) {
		static const struct problem full = {.status = 503, .code = "keys-used-up"};
		problem_reply(j->conn, &full,
		              "All keys of this length have been given out; use a store with longer keys.");
		return;
	}
	if (w->result < 0) {
		problem_reply_store(j->conn, w->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0}, location = {0};
	struct ratelimit_text text;
	struct http_field fields[RATELIMIT_FIELDS + 2];
	size_t n = ratelimit_fields(&j->reading, &text, fields);
	link_short_url(&location, api, &w->link);
	if (!location.failed)
		fields[n++] = (struct http_field){STR("Location"), buf_view(&location)};
	if (w->replayed)
		fields[n++] = (struct http_field){STR("Idempotency-Replayed"), STR("true")};
	if (j->plain_text) {
		const struct http_response r = {
		    .status = 201,
		    .content_type = STR("text/plain; charset=utf-8"),
		    .body = buf_view(&location),
		    .fields = fields,
		    .field_count = n,
		};
		http_reply(j->conn, &r);
		return;
	}
	if (j->plain)
		link_json_created(&body, api, &w->link);
	else
		link_json(&body, api, &w->link);
	api_reply_json(j->conn, 201, &body, fields, n);
}

/* False: it was wrong, and that has been said. */
static bool take_idempotency_key(struct write_job *j, const struct http_request *req)
{
	struct str key = http_request_field(req, STR("idempotency-key"));
	if (!key.ptr)
		return true;
	if (key.len == 0 || key.len > IDEMPOTENCY_KEY_BYTES_MAX) {
		static const struct problem p = {.status = 400, .code = "invalid-idempotency-key"};
		problem_reply(j->conn, &p, "Idempotency-Key must have 1 to %d bytes.",
		              IDEMPOTENCY_KEY_BYTES_MAX);
		return false;
	}
	j->write.idempotency_key = arena_str(j->write.arena, key);
	if (!j->write.idempotency_key.ptr) {
		problem_reply_store(j->conn, ERR_NOMEM);
		return false;
	}
	crypto_generichash(j->write.fingerprint, FINGERPRINT_BYTES, (const unsigned char *)req->body.ptr,
	                   req->body.len, NULL, 0);
	return true;
}

/* The rest of a create, by somebody known. */
static void create_submit(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                          const struct create_input *in, const struct api_key *key, bool plain)
{
	struct write_job *j = write_job_new(w, c, STORE_LINK_CREATE, create_done);
	if (!j)
		return;
	j->plain = plain;
	j->plain_text = plain && str_starts(http_request_field(req, STR("accept")), STR("text/plain"));
	j->write.link.owner = key->id;
	struct err e;
	const char *code;
	int r = create_fill(j, in, &e, &code);
	if (r < 0) {
		api_reply_failed(c, r, code, &e);
		return;
	}
	if (!take_idempotency_key(j, req))
		return;
	if (meter_take(&key->budget->creates, loop_mono_ms(http_conn_loop(c)), &j->reading)) {
		j->refund = &key->budget->creates;
	} else if (j->write.idempotency_key.ptr) {
		j->write.replay_only = true; /* the limit is used up, but the answer may be known already */
	} else {
		refuse_create(j);
		return;
	}
	write_job_submit(j);
}

void links_post(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	(void)match;
	struct api_key key;
	struct err e;
	struct create_input in = {.status = 302, .enabled = true};
	const struct input_field fields[] = {
	    {"original_url", INPUT_STRING, &in.url, .required = true},
	    {"alias", INPUT_STRING_OR_NULL, &in.alias},
	    {"expires_at", INPUT_TIME_OR_NULL, &in.expires_ms, .ret_given = &in.expires_given},
	    {"redirect_status", INPUT_UINT, &in.status},
	    {"enabled", INPUT_BOOL, &in.enabled},
	    {"title", INPUT_TEXT_OR_NULL, &in.title, .bytes_max = TITLE_BYTES_MAX},
	    {"note", INPUT_TEXT_OR_NULL, &in.note, .bytes_max = NOTE_BYTES_MAX},
	    {"tags", INPUT_STRINGS, &in.tags},
	    {"user_name", INPUT_TEXT_OR_NULL, &in.user_name, .bytes_max = USER_NAME_BYTES_MAX},
	};
	if (!auth_require(w, c, req, STR_NULL, &key))
		return;
	int r = input_read(req->body, fields, ARRAY_LEN(fields), http_conn_arena(c), &e);
	if (r < 0)
		api_reply_failed(c, r, "invalid-body", &e);
	else
		create_submit(w, c, req, &in, &key, false);
}

/*
 * For routes whose API key may stand in the body: parses it and finds out who is asking, in the order that
 * costs a stranger most and the server least. False: it has been answered. `in` is to be released in any
 * case.
 */
static bool body_and_key(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                         struct input *in, struct api_key *ret_key)
{
	struct err e;
	bool known_already = auth_in_header(req);
	if (known_already && !auth_require(w, c, req, STR_NULL, ret_key))
		return false;
	if (!known_already && req->body.len > STRANGERS_BODY_BYTES_MAX) {
		static const struct problem p = {.status = 413, .code = "body-too-large"};
		problem_reply(c, &p,
		              "A body over %d bytes is read only when the API key stands in the header.",
		              STRANGERS_BODY_BYTES_MAX);
		return false;
	}
	int r = input_parse(req->body, in, &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return false;
	}
	return known_already || auth_require(w, c, req, input_peek(in, "api_dev_key"), ret_key);
}

void create_url_post(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                     const struct route_match *match)
{
	(void)match;
	struct api_key key;
	struct err e;
	struct str api_dev_key;
	struct create_input in = {.status = 302, .enabled = true};
	const struct input_field fields[] = {
	    {"api_dev_key", INPUT_STRING, &api_dev_key},
	    {"original_url", INPUT_STRING, &in.url, .required = true},
	    {"custom_alias", INPUT_STRING_OR_NULL, &in.alias},
	    {"user_name", INPUT_TEXT_OR_NULL, &in.user_name, .bytes_max = USER_NAME_BYTES_MAX},
	    {"expire_date", INPUT_TIME_OR_NULL, &in.expires_ms, .ret_given = &in.expires_given},
	};
	struct input CLEANUP(input_release) body = {0};
	if (!body_and_key(w, c, req, &body, &key))
		return;
	int r = input_fields(&body, fields, ARRAY_LEN(fields), http_conn_arena(c), &e);
	if (r < 0)
		api_reply_failed(c, r, "invalid-body", &e);
	else
		create_submit(w, c, req, &in, &key, true);
}

/* Reading */

static void link_get_done(struct read_job *j)
{
	const struct store_lookup *found = &j->lookup;
	if (found->result == ERR_NOT_FOUND ||
	    (found->result == 0 && j->owner && found->link.owner != j->owner))
		named_reply_no_such_link(j->conn);
	else if (found->result < 0)
		problem_reply_store(j->conn, found->result);
	else
		reply_link(j->conn, j->worker->api, &found->link);
}

void link_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
              const struct route_match *match)
{
	struct api_key key;
	if (!auth_require(w, c, req, STR_NULL, &key))
		return;
	struct str name = named_take_key(w, c, match->params[0]);
	struct read_job *j = name.ptr ? read_job_new(w, c, READ_LINK, link_get_done) : NULL;
	if (!j)
		return;
	j->owner = named_sees_only(&key);
	j->lookup.ref = links_ref(w->api->links, name);
	j->lookup.arena = http_conn_arena(c);
	read_job_submit(j);
}

static void links_list_done(struct read_job *j)
{
	const struct store_list *page = &j->list;
	if (j->result == ERR_INVALID) {
		static const struct problem p = {.status = 400, .code = "invalid-cursor"};
		problem_reply(j->conn, &p,
		              "The cursor is not one that this list gave; start again without it.");
		return;
	}
	if (j->result < 0) {
		problem_reply_store(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"links\":["));
	for (size_t i = 0; i < page->count; i++) {
		if (i)
			buf_char(&body, ',');
		link_json(&body, j->worker->api, &page->links[i]);
	}
	buf_str(&body, STR("],\"next\":"));
	if (page->next.ptr)
		buf_printf(&body, "\"%.*s\"}", STR_ARG(page->next));
	else
		buf_str(&body, STR("null}"));
	api_reply_json(j->conn, 200, &body, NULL, 0);
}

void links_list_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                    const struct route_match *match)
{
	(void)match;
	struct api_key key;
	if (!auth_require(w, c, req, STR_NULL, &key))
		return;
	struct str limit_text = http_query_param(req->query, STR("limit"));
	uint64_t limit = PAGE_DEFAULT;
	if (limit_text.ptr && (!str_u64(limit_text, &limit) || limit < 1 || limit > PAGE_MAX)) {
		static const struct problem p = {.status = 400, .code = "invalid-limit"};
		problem_reply(c, &p, "The parameter 'limit' must be a number from 1 to %d.", PAGE_MAX);
		return;
	}
	struct read_job *j = read_job_new(w, c, READ_LIST, links_list_done);
	if (!j)
		return;
	j->list.owner = named_sees_only(&key);
	j->list.limit = limit;
	j->list.bytes_max = PAGE_BYTES_MAX;
	j->list.arena = http_conn_arena(c);
	j->list.cursor = arena_str(j->list.arena, http_query_param(req->query, STR("cursor")));
	read_job_submit(j);
}

/* Changing */

static void patch_done(struct write_job *j)
{
	const struct store_write *w = &j->write;
	if (w->result == ERR_NOT_FOUND)
		named_reply_no_such_link(j->conn);
	else if (w->result < 0)
		problem_reply_store(j->conn, w->result);
	else
		reply_link(j->conn, j->worker->api, &w->link);
}

/* Reads the changes into the write. */
static int patch_read(struct write_job *j, struct str body, struct err *e)
{
	struct link_record *link = &j->write.link;
	struct str url = STR_NULL;
	uint64_t status = 0;
	bool given[7];
	const struct input_field fields[] = {
	    {"original_url", INPUT_STRING, &url, .ret_given = &given[0]},
	    {"expires_at", INPUT_TIME_OR_NULL, &link->expires_ms, .ret_given = &given[1]},
	    {"redirect_status", INPUT_UINT, &status, .ret_given = &given[2]},
	    {"enabled", INPUT_BOOL, &link->enabled, .ret_given = &given[3]},
	    {"title", INPUT_TEXT_OR_NULL, &link->title, .ret_given = &given[4], .bytes_max = TITLE_BYTES_MAX},
	    {"note", INPUT_TEXT_OR_NULL, &link->note, .ret_given = &given[5], .bytes_max = NOTE_BYTES_MAX},
	    {"tags", INPUT_STRINGS, &link->tags, .ret_given = &given[6]},
	};
	static const unsigned bits[] = {LINK_URL,   LINK_EXPIRES, LINK_STATUS, LINK_ENABLED,
	                                LINK_TITLE, LINK_NOTE,    LINK_TAGS};
	int r = input_read(body, fields, ARRAY_LEN(fields), j->write.arena, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		j->write.fields |= given[i] ? bits[i] : 0;
	if (j->write.fields == 0)
		return err_set(e, ERR_INVALID, "the body changes nothing; name at least one field");
	if (j->write.fields & LINK_URL)
		r = canonical_url(j->worker->api, url, j->write.arena, &link->url, e);
	if (r == 0 && (j->write.fields & LINK_STATUS))
		r = check_status(status, e);
	if (r == 0 && (j->write.fields & LINK_EXPIRES))
		r = check_expiry(link->expires_ms, j->write.now_ms, e);
	link->redirect_status = (uint16_t)status;
	return r;
}

void link_patch(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	struct api_key key;
	if (!auth_require(w, c, req, STR_NULL, &key))
		return;
	struct str name = named_take_key(w, c, match->params[0]);
	struct write_job *j = name.ptr ? write_job_new(w, c, STORE_LINK_UPDATE, patch_done) : NULL;
	if (!j)
		return;
	struct err e;
	int r = patch_read(j, req->body, &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return;
	}
	j->write.owner = named_sees_only(&key);
	j->write.ref = links_ref(w->api->links, name);
	write_job_submit(j);
}

static void delete_done(struct write_job *j)
{
	if (j->write.result == ERR_NOT_FOUND) {
		named_reply_no_such_link(j->conn);
		return;
	}
	if (j->write.result < 0) {
		problem_reply_store(j->conn, j->write.result);
		return;
	}
	const struct http_response done = {.status = 204};
	const struct http_response success = {
	    .status = 200, .content_type = STR("text/plain; charset=utf-8"), .body = STR("SUCCESS")};
	http_reply(j->conn, j->plain ? &success : &done);
}

static void delete_submit(struct api_worker *w, struct http_conn *c, const struct api_key *key,
                          struct str text, bool plain)
{
	struct str name = named_take_key(w, c, text);
	struct write_job *j = name.ptr ? write_job_new(w, c, STORE_LINK_DELETE, delete_done) : NULL;
	if (!j)
		return;
	j->plain = plain;
	j->write.owner = named_sees_only(key);
	j->write.ref = links_ref(w->api->links, name);
	write_job_submit(j);
}

void link_delete(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct route_match *match)
{
	struct api_key key;
	if (auth_require(w, c, req, STR_NULL, &key))
		delete_submit(w, c, &key, match->params[0], false);
}

/* A query parameter, decoded into the arena; STR_NULL when absent or malformed. */
static struct str query_text(struct http_conn *c, const struct http_request *req, struct str name)
{
	struct str raw = http_query_param(req->query, name);
	char *text = raw.ptr ? arena_alloc(http_conn_arena(c), raw.len + 1) : NULL;
	size_t len;
	return text && http_percent_decode(raw, text, &len) ? str_n(text, len) : STR_NULL;
}

void delete_url_delete(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                       const struct route_match *match)
{
	(void)match;
	struct api_key key;
	struct err e;
	struct str api_dev_key, url_key = STR_NULL;
	const struct input_field fields[] = {
	    {"api_dev_key", INPUT_STRING, &api_dev_key},
	    {"url_key", INPUT_STRING, &url_key, .required = true},
	};
	struct input CLEANUP(input_release) body = {0};
	int r = 0;
	if (req->body.len > 0) {
		if (!body_and_key(w, c, req, &body, &key))
			return;
		r = input_fields(&body, fields, ARRAY_LEN(fields), http_conn_arena(c), &e);
	} else {
		if (!auth_require(w, c, req, query_text(c, req, STR("api_dev_key")), &key))
			return;
		url_key = query_text(c, req, STR("url_key"));
		if (!url_key.ptr)
			r = err_set(&e, ERR_INVALID,
			            "the field 'url_key' is missing; give it in a JSON body or in the query");
	}
	if (r < 0)
		api_reply_failed(c, r, "invalid-body", &e);
	else
		delete_submit(w, c, &key, url_key, true);
}
