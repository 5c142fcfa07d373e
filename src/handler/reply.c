#include "handler/reply.h"

#include "handler/html.h"
#include "handler/problem.h"

const struct http_field never_kept = {STR("Cache-Control"), STR("private, no-store")};

void api_reply_json(struct http_conn *c, int status, struct buf *body, const struct http_field *fields,
                    size_t field_count)
{
	buf_char(body, '\n');
	if (body->failed) {
		problem_reply_store(c, ERR_NOMEM);
		return;
	}
	struct http_field all[REPLY_FIELDS_MAX + 1] = {never_kept};
	ASSERT(field_count <= REPLY_FIELDS_MAX);
	for (size_t i = 0; i < field_count; i++)
		all[i + 1] = fields[i];
	const struct http_response r = {
	    .status = status,
	    .content_type = STR("application/json"),
	    .body = buf_view(body),
	    .fields = all,
	    .field_count = field_count + 1,
	};
	http_reply(c, &r);
}

void api_reply_page(struct http_conn *c, int status, const struct buf *page, struct http_field policy)
{
	if (page->failed) {
		problem_reply_store(c, ERR_NOMEM);
		return;
	}
	const struct http_field fields[] = {policy, never_kept};
	const struct http_response r = {
	    .status = status,
	    .content_type = STR("text/html; charset=utf-8"),
	    .body = buf_view(page),
	    .fields = fields,
	    .field_count = ARRAY_LEN(fields),
	};
	http_reply(c, &r);
}

void api_reply_failed(struct http_conn *c, int err, const char *code, const struct err *e)
{
	if (err != ERR_INVALID) {
		problem_reply_store(c, err);
		return;
	}
	const struct problem p = {.status = 400, .code = code};
	problem_reply(c, &p, "%s", e->text);
}

bool input_limit(struct http_conn *c, struct str query, uint64_t usual, uint64_t max, uint64_t *ret)
{
	struct str limit = http_query_param(query, STR("limit"));
	*ret = usual;
	if (!limit.ptr || (str_u64(limit, ret) && *ret >= 1 && *ret <= max))
		return true;
	problem_say(c, 400, "invalid-limit", "The parameter 'limit' must be a number from 1 to %llu.",
	            (unsigned long long)max);
	return false;
}

bool input_page(struct http_conn *c, struct str query, uint64_t limit_usual, uint64_t limit_max,
                struct page_input *ret)
{
	struct str cursor = http_query_param(query, STR("cursor"));
	*ret = (struct page_input){0};
	if (!input_limit(c, query, limit_usual, limit_max, &ret->limit))
		return false;
	if (!cursor.ptr || (str_u64(cursor, &ret->after) && ret->after <= INT64_MAX))
		return true;
	problem_say(c, 400, "invalid-cursor",
	            "The cursor is not one that this list gave; start again without it.");
	return false;
}

void reply_sign_in_page(struct http_conn *c, int status, const char *why, struct str next)
{
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("Sign in"));
	buf_str(&page, STR("<h1>Sign in</h1><p>"));
	html_text(&page, str_of(why));
	buf_str(&page,
	        STR("</p><form method=\"post\" action=\"/api/v1/session\">"
	            "<label>Email address<br><input type=\"email\" name=\"email\" autocomplete=\"username\" "
	            "required autofocus></label>"
	            "<label>Password<br><input type=\"password\" name=\"password\" "
	            "autocomplete=\"current-password\" required></label>"
	            "<input type=\"hidden\" name=\"next\" value=\""));
	html_text(&page, next);
	buf_str(&page, STR("\"><p><button>Sign in</button></p></form>"));
	html_page_end(&page);
	api_reply_page(c, status, &page, html_form_policy);
}
