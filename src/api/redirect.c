/*
 * The redirect. A hit in the cache is answered here and now: one hash, one walk, one copy; no allocation, no
 * lock, no system call. Everything else goes to the readers' pool, where identical keys share one lookup.
 *
 * Each answer is captured (api/capture.h) before it is queued: redirects as visits of their link, 404s as
 * orphans.
 */
#include "api/redirect.h"

#include "api/html.h"
#include "api/jobs.h"
#include "api/problem.h"
#include "api/ratelimit.h"
#include "api/reply.h"

static const struct http_field redirect_cache_control = {STR("Cache-Control"), STR("private, no-store")};

int api_render_redirect(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	const struct http_field fields[] = {{STR("Location"), link->url}, redirect_cache_control};
	const struct http_response r = {
	    .status = link->redirect_status,
	    .fields = fields,
	    .field_count = ARRAY_LEN(fields),
	};
	struct http_ready ready;
	int e = http_ready_make(out, &r, &ready);
	if (e == 0)
		*ret_date_at = ready.date_at;
	return e == ERR_INVALID ? ERR_CORRUPT : e;
}

static void reply_no_link(struct http_conn *c, bool as_page)
{
	const struct problem p = {.status = 404, .code = "no-such-link", .as_page = as_page};
	problem_reply(
	    c, &p,
	    "There is no link here. Check the address for typing errors; the link may also have ended.");
}

/* False: the owner's budget is used up, and that has been said. */
static bool within_budget(struct api_worker *w, struct http_conn *c, struct budget *budget, bool as_page)
{
	struct meter_reading reading;
	if (LIKELY(meter_take(&budget->redirects, loop_mono_ms(http_conn_loop(c)), &reading)))
		return true;
	metric_add(&w->metrics->limited, 1);
	ratelimit_refuse(c, &reading, as_page,
	                 "This link has been followed more often than its owner's limit allows.");
	return false;
}

static void reply_orphan(struct api_worker *w, struct http_conn *c, struct capture_draft *draft,
                         struct str key, bool as_page)
{
	capture_orphan(&w->capture, draft, key);
	reply_no_link(c, as_page);
}

static void reply_redirect(struct api_worker *w, struct http_conn *c, struct str response, uint16_t date_at)
{
	const struct http_ready ready = {.len = (uint32_t)response.len, .date_at = date_at};
	metric_add(&w->metrics->redirects, 1);
	http_reply_ready(c, response.ptr, &ready);
}

static void resolve_done(struct read_job *j)
{
	struct link_resolve *found = &j->resolve;
	struct capture *capture = &j->worker->capture;
	if (found->result == ERR_NOT_FOUND) {
		reply_orphan(j->worker, j->conn, &j->draft, found->key, j->as_page);
	} else if (found->result < 0) {
		problem_reply_store(j->conn, found->result);
	} else if (within_budget(j->worker, j->conn, found->budget, j->as_page)) {
		capture_redirect(capture, &j->draft, found->link, found->key);
		reply_redirect(j->worker, j->conn, found->response, found->response_date_at);
	}
}

static void resolve_submit(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                           struct str key, bool as_page)
{
	struct read_job *j = read_job_new(w, c, READ_RESOLVE, resolve_done);
	if (!j)
		return;
	j->as_page = as_page;
	j->resolve.arena = http_conn_arena(c);
	capture_read(&w->capture, c, req, &j->draft);
	/* Shared are lookups of the same key and epoch: one that began before a change must not answer a
	 * request that came after the change was acknowledged. */
	uint32_t epoch = cache_epoch(links_cache(w->api->links), key);
	char *share = arena_alloc(j->resolve.arena, key.len + sizeof(epoch));
	if (!share || !capture_keep(&j->draft, j->resolve.arena)) {
		problem_reply_store(c, ERR_NOMEM);
		return;
	}
	memcpy(share, key.ptr, key.len);
	memcpy(share + key.len, &epoch, sizeof(epoch));
	j->resolve.key = str_n(share, key.len);
	j->job.share = str_n(share, key.len + sizeof(epoch));
	read_job_submit(j);
}

bool redirect_from_cache(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	if (req->path.len < 2 || req->path.len > KEY_BYTES_MAX + 1)
		return false;
	struct links *links = w->api->links;
	char folded[KEY_BYTES_MAX];
	struct str key = key_fold(links_cipher(links), str_n(req->path.ptr + 1, req->path.len - 1), folded);
	/* No need to see whether this looks like a key: nothing else is ever in the cache. */
	const struct cache_entry *e = cache_find(links_cache(links), key);
	if (!e)
		return false;
	if (UNLIKELY(e->expires_ms != 0 && e->expires_ms <= loop_real_ms(http_conn_loop(c))))
		return false; /* the store decides, and removes it if it has ended */
	struct capture_draft draft;
	if (UNLIKELY(e->response_len == 0)) {
		metric_add(&w->metrics->cache_negative, 1);
		capture_read(&w->capture, c, req, &draft);
		reply_orphan(w, c, &draft, key, problem_wants_page(req));
		return true;
	}
	metric_add(&w->metrics->cache_hits, 1);
	if (UNLIKELY(atomic_load_explicit(&e->budget->redirects.max, memory_order_relaxed) != 0) &&
	    !within_budget(w, c, e->budget, problem_wants_page(req)))
		return true;
	capture_read(&w->capture, c, req, &draft);
	capture_redirect(&w->capture, &draft, e->link, key);
	reply_redirect(w, c, str_n(cache_entry_response(e), e->response_len), e->response_date_at);
	return true;
}

/* The preview */

static void preview_done(struct read_job *j)
{
	const struct store_lookup *found = &j->lookup;
	bool ended = found->result == 0 && (!found->link.enabled || link_has_ended(&found->link, j->now_ms));
	if (found->result == ERR_NOT_FOUND || ended) {
		reply_no_link(j->conn, j->as_page);
		return;
	}
	if (found->result < 0) {
		problem_reply_store(j->conn, found->result);
		return;
	}
	const struct link_record *link = &found->link;
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("Where this link goes"));
	buf_str(&page, STR("<h1>Where this link goes</h1><p><code>"));
	html_text(&page, j->worker->api->base_url);
	buf_char(&page, '/');
	html_text(&page, link->key);
	buf_str(&page, STR("</code> leads to</p><p><a rel=\"noreferrer nofollow\" href=\""));
	html_text(&page, link->url);
	buf_str(&page, STR("\">"));
	html_text(&page, link->url);
	buf_str(&page, STR("</a></p>"));
	if (link->title.len > 0) {
		buf_str(&page, STR("<p>"));
		html_text(&page, link->title);
		buf_str(&page, STR("</p>"));
	}
	buf_str(&page, STR("<p class=\"quiet\">Looking here does not count as a visit.</p>"));
	html_page_end(&page);
	api_reply_page(j->conn, &page);
}

static void preview_submit(struct api_worker *w, struct http_conn *c, struct str key, bool as_page)
{
	struct read_job *j = read_job_new(w, c, READ_LINK, preview_done);
	if (!j)
		return;
	j->as_page = as_page;
	j->lookup.arena = http_conn_arena(c);
	struct str kept = arena_str(j->lookup.arena, key);
	if (!kept.ptr) {
		problem_reply_store(c, ERR_NOMEM);
		return;
	}
	j->lookup.ref = links_ref(w->api->links, kept);
	read_job_submit(j);
}

void redirect_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	bool as_page = problem_wants_page(req);
	char decoded[3 * (KEY_BYTES_MAX + 1)], folded[KEY_BYTES_MAX];
	size_t len = 0;
	bool readable = req->path.len - 1 <= sizeof(decoded) &&
	                http_percent_decode(str_n(req->path.ptr + 1, req->path.len - 1), decoded, &len);
	struct str key = str_n(decoded, len);
	bool preview = readable && str_ends(key, STR("+"));
	if (preview)
		key.len--;
	if (!readable || !key_is_wellformed(key)) {
		struct capture_draft draft;
		capture_read(&w->capture, c, req, &draft);
		reply_orphan(w, c, &draft, str_n(req->path.ptr + 1, req->path.len - 1), as_page);
		return;
	}
	key = key_fold(links_cipher(w->api->links), key, folded);
	if (preview) {
		preview_submit(w, c, key, as_page);
		return;
	}
	metric_add(&w->metrics->cache_misses, 1);
	resolve_submit(w, c, req, key, as_page);
}
