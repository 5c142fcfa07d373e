#include "handler/problem.h"

#include "base/json_out.h"
#include "handler/html.h"
#include "handler/reply.h"

#include <stdarg.h>
#include <stdio.h>

/* Messages of lower layers are clauses; clients get a sentence. `text` has room for one more byte. */
static void make_sentence(char *text)
{
	size_t len = strlen(text);
	if (text[0] >= 'a' && text[0] <= 'z')
		text[0] = (char)(text[0] - 'a' + 'A');
	if (len > 0 && !strchr(".!?", text[len - 1])) {
		text[len] = '.';
		text[len + 1] = '\0';
	}
}

void problem_reply_with(struct http_conn *c, const struct problem *p, const char *fmt, ...)
{
	char detail[sizeof(struct err) + 2];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(detail, sizeof(struct err), fmt, ap);
	va_end(ap);
	make_sentence(detail);

	struct http_field fields[8];
	size_t n = 0;
	ASSERT(p->field_count <= 6);
	for (; n < p->field_count; n++)
		fields[n] = p->fields[n];
	fields[n++] = no_store;

	struct buf CLEANUP(buf_release) body = {0};
	const char *title = http_status_text(p->status);
	if (p->as_html) {
		fields[n++] = html_policy;
		html_page_begin(&body, str_of(title));
		buf_printf(&body, "<h1>%s</h1><p>", title);
		html_text(&body, str_of(detail));
		buf_str(&body, STR("</p>"));
		html_page_end(&body);
	} else {
		buf_printf(&body,
		           "{\"type\":\"urn:curt:%s\",\"title\":\"%s\",\"status\":%d,\"detail\":", p->code,
		           title, p->status);
		json_out_str(&body, str_of(detail));
		if (p->field)
			json_out_name_str(&body, "field", str_of(p->field));
		buf_str(&body, STR("}\n"));
	}
	const struct http_response r = {
	    .status = p->status,
	    .content_type = p->as_html ? STR("text/html; charset=utf-8") : STR("application/problem+json"),
	    .body = body.failed ? STR_NULL : buf_view(&body),
	    .fields = fields,
	    .field_count = n,
	};
	http_reply(c, &r);
}

/* Good enough for what browsers send: HTML comes before any JSON. */
bool problem_prefers_html(const struct http_request *req)
{
	struct str accept = http_request_field(req, STR("accept"));
	if (!accept.ptr)
		return false;
	const char *html = memmem(accept.ptr, accept.len, "text/html", 9);
	const char *json = memmem(accept.ptr, accept.len, "json", 4);
	return html && (!json || html < json);
}

static const struct http_field retry_soon = {STR("Retry-After"), STR("1")};

void problem_reply_event_log(struct http_conn *c, int err)
{
	const struct problem p = {
	    .status = 503,
	    .code = err == ERR_UNCERTAIN ? "uncertain" : "unavailable",
	    .fields = &retry_soon,
	    .field_count = 1,
	};
	problem_reply_with(c, &p,
	                   "This visit cannot be counted now: the event log %s. Try again in a second.",
	                   err == ERR_LIMIT ? "is full" : "cannot be written");
}

void problem_reply_store(struct http_conn *c, int err)
{
	const struct problem p = {
	    .status = err == ERR_CORRUPT ? 500 : 503,
	    .code = err == ERR_UNCERTAIN ? "uncertain"
	            : err == ERR_CORRUPT ? "corrupt"
	                                 : "unavailable",
	    .fields = &retry_soon,
	    .field_count = err != ERR_CORRUPT,
	};
	const char *detail = "The store does not answer; nothing was changed. Try again in a second.";
	if (err == ERR_UNCERTAIN)
		detail = "The store failed during a write: the change may or may not have been made. Check "
		         "before you repeat it. A create with an Idempotency-Key is safe to repeat.";
	else if (err == ERR_LIMIT)
		detail = "The server is overloaded: its queue is full. Try again in a second.";
	else if (err == ERR_NOMEM)
		detail = "The server is out of memory. Try again in a second.";
	else if (err == ERR_CORRUPT)
		detail = "Stored data is damaged; nothing was changed. Ask the operator: the server's log "
		         "says which data.";
	problem_reply_with(c, &p, "%s", detail);
}

void problem_reply_sink(struct http_conn *c, int err)
{
	if (err != ERR_UNAVAILABLE) {
		problem_reply_store(c, err);
		return;
	}
	const struct problem p = {
	    .status = 503, .code = "unavailable", .fields = &retry_soon, .field_count = 1};
	problem_reply_with(
	    c, &p,
	    "The statistics cannot be read: their database (sink.url) does not answer in time. "
	    "Try again in a second, or ask for a shorter time range.");
}

void problem_reply_cursor(struct http_conn *c)
{
	problem_reply(c, 400, "invalid-cursor",
	              "The parameter 'cursor' is not a 'next' of this list; start again without it.");
}
