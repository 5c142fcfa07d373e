/*
 * createURL and deleteURL: the same as POST and DELETE of /api/v1/links, with other names for the fields,
 * shorter responses, and an API key that may be in the body.
 */
#include "api/handlers.h"
#include "api/link_writes.h"
#include "handler/caller.h"
#include "handler/input.h"
#include "handler/problem.h"
#include "handler/query_params.h"
#include "handler/reply.h"

enum {
	USER_NAME_BYTES_MAX = 128,
	ANONYMOUS_BODY_BYTES_MAX = 64 * 1024,
};

static void reply_differs(struct http_conn *c, const char *field, const char *where)
{
	problem_reply_field(c, "invalid-field", field,
	                    "The field '%s' differs between %s; send it once, or the same in both.", field,
	                    where);
}

static bool agree(struct str a, struct str b)
{
	return !a.ptr || !b.ptr || str_eq(a, b);
}

/*
 * Checks the body and authenticates the caller, by an API key in the header, the body or the query; all that
 * are there must be the same. A key in the header is checked first, so that only small bodies are parsed for
 * anonymous callers. False: the request was parked or answered.
 */
static bool body_and_key(struct api_call *call, bool needs_body, struct str in_query, unsigned rights)
{
	struct http_conn *c = call->c;
	const struct http_request *req = call->req;
	struct input_err e;
	struct str in_header = caller_header_key(req), in_body = STR_NULL;
	if (in_header.len > 0 && !caller_require(call->w, c, req, STR_NULL, rights, &call->caller))
		return false;
	if (in_header.len == 0 && req->body.len > ANONYMOUS_BODY_BYTES_MAX) {
		problem_reply(c, 413, "body-too-large",
		              "The body has %zu bytes. A body over %d bytes needs the API key in a header: "
		              "send 'Authorization: Bearer KEY'.",
		              req->body.len, ANONYMOUS_BODY_BYTES_MAX);
		return false;
	}
	if (needs_body || req->body.len > 0) {
		int r = input_check(req->body, &e);
		if (r < 0) {
			input_reply_failed(c, r, &e);
			return false;
		}
		in_body = input_peek(req->body, "api_dev_key", http_conn_arena(c));
	}
	struct str given = in_body.ptr ? in_body : in_query;
	if (!agree(in_body, in_query))
		reply_differs(c, "api_dev_key", "the body and the query");
	else if (in_header.len == 0)
		return caller_require(call->w, c, req, given, rights, &call->caller);
	else if (!agree(in_header, given))
		reply_differs(c, "api_dev_key", "the header and the rest of the request");
	else
		return true;
	return false;
}

void create_url_post(struct api_call *call)
{
	struct input_err e;
	struct str api_dev_key;
	struct link_create_input in = {0};
	struct write_job *j = body_and_key(call, true, STR_NULL, RIGHT_CREATE) ? link_create_new(call) : NULL;
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
	int r = input_fields(call->req->body, fields, ARRAY_LEN(fields), j->write.arena, &e);
	if (r < 0)
		input_reply_failed(call->c, r, &e);
	else
		link_create_submit(j, call, &in);
}

void delete_url_delete(struct api_call *call)
{
	struct input_err e;
	struct err why;
	struct arena *arena = http_conn_arena(call->c);
	struct str query = call->req->query;
	struct str api_dev_key = STR_NULL, in_query = STR_NULL, url_key = STR_NULL;
	const struct input_field fields[] = {
	    {"api_dev_key", FIELD_STRING, &api_dev_key},
	    {"url_key", FIELD_STRING, &url_key},
	};
	int r = query_param_text(query, "api_dev_key", arena, &api_dev_key, &why)
	            ?: query_param_text(query, "url_key", arena, &in_query, &why);
	if (r < 0) {
		reply_failed(call->c, r, "invalid-parameter", &why);
		return;
	}
	if (!body_and_key(call, false, api_dev_key, RIGHT_DELETE))
		return;
	if (call->req->body.len > 0)
		r = input_fields(call->req->body, fields, ARRAY_LEN(fields), arena, &e);
	if (r == 0 && !url_key.ptr && !in_query.ptr)
		r = input_wrong_field(
		    &e, "url_key", "the field 'url_key' is missing; send it in a JSON body or in the query");
	if (r < 0)
		input_reply_failed(call->c, r, &e);
	else if (!agree(url_key, in_query))
		reply_differs(call->c, "url_key", "the body and the query");
	else
		link_delete_submit(call, url_key.ptr ? url_key : in_query, true);
}
