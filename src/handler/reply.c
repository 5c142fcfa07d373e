#include "handler/reply.h"

#include "handler/caller.h"
#include "handler/html.h"
#include "handler/problem.h"

const struct http_field no_store = {STR("Cache-Control"), STR("private, no-store")};

void reply_json(struct http_conn *c, int status, struct buf *body, const struct http_field *fields,
                size_t field_count)
{
	buf_char(body, '\n');
	if (body->failed) {
		problem_reply_store(c, ERR_NOMEM);
		return;
	}
	struct http_field all[REPLY_FIELDS_MAX + 1] = {no_store};
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

void reply_page_by_id(struct http_conn *c, struct buf *body, uint64_t last)
{
	if (last)
		buf_printf(body, "],\"next\":\"%llu\"}", (unsigned long long)last);
	else
		buf_str(body, STR("],\"next\":null}"));
	reply_json(c, 200, body, NULL, 0);
}

void reply_html(struct http_conn *c, int status, const struct buf *page, struct http_field policy,
                const struct http_field *challenge_or_null)
{
	if (page->failed) {
		problem_reply_store(c, ERR_NOMEM);
		return;
	}
	const struct http_field fields[] = {policy, no_store,
	                                    challenge_or_null ? *challenge_or_null : policy};
	const struct http_response r = {
	    .status = status,
	    .content_type = STR("text/html; charset=utf-8"),
	    .body = buf_view(page),
	    .fields = fields,
	    .field_count = challenge_or_null ? 3 : 2,
	};
	http_reply(c, &r);
}

void reply_failed(struct http_conn *c, int err, const char *code, const struct err *e)
{
	if (err != ERR_INVALID)
		problem_reply_store(c, err);
	else
		problem_reply(c, 400, code, "%s", e->text);
}

void reply_sign_in_page(struct http_conn *c, int status, const char *text, struct str next)
{
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("Sign in"));
	buf_str(&page, STR("<h1>Sign in</h1><p>"));
	html_text(&page, str_of(text));
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
	reply_html(c, status, &page, html_form_policy, status == 401 ? &bearer_challenge : NULL);
}
