/*
 * createURL and deleteURL: the same as POST and DELETE of /api/v1/links, with other names for the fields,
 * shorter responses, and an API key that may be in the body.
 */
#include "api/handlers.h"
#include "api/link_writes.h"
#include "handler/caller.h"
#include "handler/input.h"
#include "handler/problem.h"
#include "handler/reply.h"

enum {
	USER_NAME_BYTES_MAX = 128,
	ANONYMOUS_BODY_BYTES_MAX = 64 * 1024,
};

static bool require(struct api_call *call, struct str in_body, unsigned rights)
{
	return caller_require(call->w, call->c, call->req, in_body, rights, &call->caller);
}

/*
 * Parses the body and authenticates the caller, by an API key in the header or in the body. A key in the
 * header is checked first, so that only small bodies are parsed for anonymous callers. False: the request was
 * parked or answered. The caller releases `in` in any case.
 */
static bool body_and_key(struct api_call *call, struct input *in, unsigned rights)
{
	struct http_conn *c = call->c;
	const struct http_request *req = call->req;
	struct err e;
	bool by_header = caller_has_header_key(req);
	if (by_header && !require(call, STR_NULL, rights))
		return false;
	if (!by_header && req->body.len > ANONYMOUS_BODY_BYTES_MAX) {
		problem_reply(c, 413, "body-too-large",
		              "The body has %zu bytes. A body over %d bytes needs the API key in a header: "
		              "send 'Authorization: Bearer KEY'.",
		              req->body.len, ANONYMOUS_BODY_BYTES_MAX);
		return false;
	}
	int r = input_parse(req->body, in, &e);
	if (r < 0) {
		reply_failed(c, r, "invalid-body", &e);
		return false;
	}
	return by_header || require(call, input_peek(in, "api_dev_key"), rights);
}

void create_url_post(struct api_call *call)
{
	struct err e;
	struct str api_dev_key;
	struct link_create_input in = {0};
	struct input CLEANUP(input_release) body = {0};
	struct write_job *j = body_and_key(call, &body, RIGHT_CREATE) ? link_create_new(call) : NULL;
	if (!j)
		return;
	j->plain = true;
	j->plain_text = str_starts(http_request_field(call->req, STR("accept")), STR("text/plain"));
	struct link_record *link = &j->write.link;
	const struct input_field fields[] = {
	    {"api_dev_key", FIELD_STRING, &api_dev_key},
	    {"original_url", FIELD_STRING, &link->url, .required = true},
	    {"custom_alias", FIELD_STRING, &in.alias, .may_be_null = true},
	    {"user_name", FIELD_TEXT, &link->user_name, .may_be_null = true,
	     .bytes_max = USER_NAME_BYTES_MAX},
	    {"expire_date", FIELD_TIME, &link->expires_ms},
	};
	int r = input_fields(&body, fields, ARRAY_LEN(fields), j->write.arena, &e);
	if (r < 0)
		reply_failed(call->c, r, "invalid-body", &e);
	else
		link_create_submit(j, call, &in);
}

/* A query parameter, decoded, in the arena; STR_NULL: absent or malformed. */
static struct str query_text(const struct api_call *call, struct str name)
{
	struct str raw = http_query_param(call->req->query, name);
	char *text = raw.ptr ? arena_alloc(http_conn_arena(call->c), raw.len + 1) : NULL;
	size_t len;
	return text && str_percent_decode(raw, text, &len) ? str_n(text, len) : STR_NULL;
}

void delete_url_delete(struct api_call *call)
{
	struct err e;
	struct str api_dev_key, url_key = STR_NULL;
	const struct input_field fields[] = {
	    {"api_dev_key", FIELD_STRING, &api_dev_key},
	    {"url_key", FIELD_STRING, &url_key, .required = true},
	};
	struct input CLEANUP(input_release) body = {0};
	int r = 0;
	if (call->req->body.len > 0) {
		if (!body_and_key(call, &body, RIGHT_DELETE))
			return;
		r = input_fields(&body, fields, ARRAY_LEN(fields), http_conn_arena(call->c), &e);
	} else {
		if (!require(call, query_text(call, STR("api_dev_key")), RIGHT_DELETE))
			return;
		url_key = query_text(call, STR("url_key"));
		if (!url_key.ptr)
			r = err_set(&e, ERR_INVALID,
			            "the field 'url_key' is missing; send it in a JSON body or in the query");
	}
	if (r < 0)
		reply_failed(call->c, r, "invalid-body", &e);
	else
		link_delete_submit(call, url_key, true);
}
