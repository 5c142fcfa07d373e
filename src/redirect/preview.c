/* GET /{key}+: a page with the target of a link. */
#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/html.h"
#include "handler/jobs.h"
#include "handler/problem.h"
#include "handler/reply.h"
#include "redirect/denials.h"
#include "redirect/redirect.h"

static void write_target(struct buf *page, const struct link_record *link)
{
	buf_str(page, STR(" redirects to</p><p><a rel=\"noreferrer nofollow\" href=\""));
	html_text(page, link->url);
	buf_str(page, STR("\">"));
	html_text(page, link->url);
	buf_str(page, STR("</a></p>"));
	if (link->title.len > 0) {
		buf_str(page, STR("<p>"));
		html_text(page, link->title);
		buf_str(page, STR("</p>"));
	}
}

/* A preview must not reveal more than a visit: no target that needs a password or that a visit would count
 * against a click limit. */
static void reply_preview(struct read_job *j, const struct link_record *link)
{
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("Link preview"));
	buf_str(&page, STR("<h1>Link preview</h1><p><code>"));
	html_text(&page, j->worker->api->base_url);
	buf_char(&page, '/');
	html_text(&page, link->key);
	buf_str(&page, STR("</code>"));
	if (link->password.ptr)
		buf_str(&page, STR(" is protected by a password, so its target is not shown.</p>"));
	else if (link->max_clicks > 0)
		buf_str(&page, STR(" has a click limit, so its target is not shown.</p>"));
	else
		write_target(&page, link);
	buf_str(&page, STR("<p class=\"quiet\">A preview does not count as a visit.</p>"));
	html_page_end(&page);
	reply_html(j->conn, 200, &page, html_policy, NULL);
}

static void preview_done(struct read_job *j)
{
	const struct store_lookup *found = &j->lookup;
	const struct link_record *link = &found->link;
	if (found->result == ERR_NOT_FOUND) {
		deny_unknown_key(j->worker, j->conn, &j->client, j->as_html);
	} else if (found->result == 0 && !links_is_open(j->worker->api->links, link, j->now_ms)) {
		deny_not_found(j->conn, j->as_html);
	} else if (found->result < 0) {
		problem_reply_store(j->conn, found->result);
	} else if (link->is_private && j->found == ACCOUNT_STALE) {
		caller_reply_stale(j->conn, j->as_html);
	} else {
		enum link_verdict verdict = links_may_follow(found, j->sees_all);
		if (verdict == LINK_OPEN)
			reply_preview(j, link);
		else
			deny_verdict(j->conn, verdict, link->key, j->as_html);
	}
}

void preview_submit(struct api_worker *w, struct http_conn *c, const struct http_request *req, struct str key)
{
	struct read_job *j = read_job_new(w, c, READ_LINK, preview_done);
	if (!j)
		return;
	struct caller caller;
	struct parked_request *parked;
	j->found = caller_find(w, c, req, &caller, &parked);
	if (j->found == ACCOUNT_UNCACHED) {
		if (parked)
			parked_request_submit(parked);
		return;
	}
	request_client_address(w, c, req, &j->client);
	j->as_html = problem_prefers_html(req);
	j->sees_all = caller_is_admin(&caller);
	j->lookup.user = caller_visitor(&caller);
	j->lookup.arena = http_conn_arena(c);
	struct str copy = request_str(c, key);
	if (!copy.ptr)
		return;
	j->lookup.ref = links_ref(w->api->links, copy);
	read_job_submit(j);
}
