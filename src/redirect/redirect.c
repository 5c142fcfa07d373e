/*
 * The redirect. A cache hit is answered at once: one hash, one walk, one copy; no allocation, no lock, no
 * system call. Everything else goes to the readers' pool, where identical keys share one lookup.
 *
 * Each response is logged (handler/capture.h) before it is queued: redirects as visits of their link, 404s
 * and visits after the end of a link as orphans. A redirect of a link with a click limit takes one click from
 * the limit and waits until it is logged; see link/click_limit.h.
 */
#include "redirect/redirect.h"

#include "handler/caller.h"
#include "handler/guess_limits.h"
#include "handler/jobs.h"
#include "handler/problem.h"
#include "handler/ratelimit.h"
#include "handler/reply.h"
#include "redirect/denials.h"
#include "redirect/refresh.h"

int redirect_render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	const struct http_field fields[] = {{STR("Location"), link->url}, no_store};
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

/* What to serve for a key, from the cache or from a lookup. */
struct redirect_target {
	uint64_t link;
	struct str key;
	struct budget *budget;
	struct click_limit *limit;
	uint64_t max_clicks;
	bool late; /* the link has ended and leads to its expired_url */
	struct str response;
	uint16_t date_at;
};

static struct redirect_target target_of(const struct cache_entry *e)
{
	return (struct redirect_target){
	    .link = e->link,
	    .key = str_n(e->data, e->key_len),
	    .budget = e->budget,
	    .limit = e->limit,
	    .max_clicks = e->max_clicks,
	    .late = e->late,
	    .response = str_n(cache_entry_response(e), e->response_len),
	    .date_at = e->response_date_at,
	};
}

static void reply_redirect(struct api_worker *w, struct http_conn *c, struct str response, uint16_t date_at)
{
	const struct http_ready ready = {.len = (uint32_t)response.len, .date_at = date_at};
	metric_add(&w->metrics->redirects, 1);
	http_reply_ready(c, response.ptr, &ready);
}

/* Limited links */

struct limited_redirect {
	struct capture_wait wait;
	struct api_worker *worker;
	struct click_limit *limit; /* pinned */
	struct budget *budget;
	struct meter_reading reading; /* of the budget, for a refund */
	struct str response;
	uint16_t date_at;
};

/* Returns the click to both limits. */
static void limited_undo(const struct redirect_target *t, const struct meter_reading *reading)
{
	click_limit_put_back(t->limit);
	meter_refund(&t->budget->redirects, reading);
}

static void limited_done(struct capture_wait *wait, int err)
{
	struct limited_redirect *a = container_of(wait, struct limited_redirect, wait);
	const struct redirect_target t = {.limit = a->limit, .budget = a->budget};
	if (err == 0) {
		reply_redirect(a->worker, wait->conn, a->response, a->date_at);
	} else {
		if (err != ERR_UNCERTAIN) /* otherwise it may be logged, and so counted */
			limited_undo(&t, &a->reading);
		problem_reply_event_log(wait->conn, err);
	}
	click_limit_unpin(t.limit);
}

/* One click has been taken from the click limit, and one redirect from the budget. */
static void limited_submit(struct api_worker *w, struct http_conn *c, const struct redirect_target *t,
                           const struct meter_reading *reading, struct capture_draft *draft)
{
	struct limited_redirect *a = arena_zalloc(http_conn_arena(c), sizeof(*a));
	int r = a ? capture_wait_begin(&w->capture, &a->wait) : ERR_NOMEM;
	if (r == 0) {
		a->response = arena_str(http_conn_arena(c), t->response);
		r = a->response.ptr ? 0 : ERR_NOMEM;
	}
	if (r == 0 && !capture_limited(&w->capture, draft, t->link, t->key))
		r = ERR_LIMIT;
	if (r < 0) {
		limited_undo(t, reading);
		problem_reply_event_log(c, r);
		return;
	}
	click_limit_pin(t->limit);
	a->worker = w;
	a->limit = t->limit;
	a->budget = t->budget;
	a->reading = *reading;
	a->date_at = t->date_at;
	a->wait.done = limited_done;
	capture_wait_end(&w->capture, c, &a->wait);
}

/* Redirects the visitor, or answers 429 if the owner's budget is used up. False, without an answer: the
 * link's clicks are used up or not counted yet, or the use by other servers is not known yet and has not been
 * waited for (readers_run does). */
static bool serve(struct api_worker *w, struct http_conn *c, const struct redirect_target *t,
                  struct capture_draft *draft, bool as_html, bool has_waited)
{
	struct meter_reading reading = {0};
	if (UNLIKELY(t->limit) && !click_limit_take(t->limit, t->max_clicks))
		return false;
	if (UNLIKELY(atomic_load_explicit(&t->budget->redirects.max, memory_order_relaxed) != 0) &&
	    !meter_take(&t->budget->redirects, loop_mono_ms(http_conn_loop(c)), &reading)) {
		if (t->limit)
			click_limit_put_back(t->limit);
		if (reading.unsynced && !has_waited)
			return false;
		metric_add(&w->metrics->http_requests_limited, 1);
		ratelimit_refuse(c, &reading, as_html,
		                 "The owner of this link has used up their limit on redirects.");
		return true;
	}
	if (UNLIKELY(t->limit)) {
		limited_submit(w, c, t, &reading, draft);
		return true;
	}
	if (UNLIKELY(t->late))
		capture_orphan(&w->capture, draft, t->key);
	else
		capture_redirect(&w->capture, draft, t->link, t->key);
	reply_redirect(w, c, t->response, t->date_at);
	return true;
}

/* From the store */

static void resolve_done(struct read_job *j);

static void resolve_again(struct read_job *j)
{
	j->done = resolve_done;
	j->resolve.result = 0;
	j->resolve.limit = NULL; /* the caller unpins it */
	j->epoch = cache_epoch(links_cache(j->worker->api->links), j->resolve.key);
	j->job.share = STR_NULL;
	read_job_submit(j);
}

static void count_done(struct read_job *j)
{
	static const struct http_field retry = {STR("Retry-After"), STR("1")};
	const struct problem p = {
	    .status = 503, .code = "unavailable", .fields = &retry, .field_count = 1, .as_html = j->as_html};
	click_limit_unpin(j->resolve.limit);
	if (j->resolve.result < 0)
		problem_reply_with(
		    j->conn, &p,
		    "This link has a click limit, and its clicks cannot be counted now. Try again in a "
		    "second.");
	else
		resolve_again(j);
}

static void resolve_failed(struct read_job *j)
{
	struct link_resolve *found = &j->resolve;
	const struct cache_entry *e = found->see_other
	                                  ? NULL
	                                  : refresh_stale_if_error(j->worker, found->key, found->result);
	if (e) {
		const struct redirect_target t = target_of(e);
		serve(j->worker, j->conn, &t, &j->draft, j->as_html, true);
	} else {
		problem_reply_store(j->conn, found->result);
	}
}

/* The reply releases the arena of `j`. */
static void resolve_answer(struct read_job *j)
{
	struct link_resolve *found = &j->resolve;
	struct api_worker *w = j->worker;
	/* The link has changed since the lookup. A new limit must apply already. */
	if (cache_epoch(links_cache(w->api->links), found->key) != j->epoch) {
		resolve_again(j);
		return;
	}
	if (found->result == ERR_NOT_FOUND) {
		capture_orphan(&w->capture, &j->draft, found->key);
		if (found->link != 0)
			deny_not_found(j->conn, j->as_html);
		else
			deny_unknown_key(w, j->conn, &j->client, j->as_html);
		return;
	}
	if (found->result < 0) {
		resolve_failed(j);
		return;
	}
	if (found->verdict == LINK_SIGN_IN && j->found == ACCOUNT_UNCACHED) {
		parked_request_submit(j->parked); /* only now the caller matters */
		return;
	}
	if (found->verdict == LINK_SIGN_IN && j->found == ACCOUNT_STALE) {
		caller_reply_stale(j->conn, j->as_html);
		return;
	}
	if (found->verdict != LINK_OPEN && found->verdict != LINK_LATE) {
		deny_verdict(j->conn, found->verdict, found->key, j->as_html);
		return;
	}
	const struct redirect_target t = {
	    .link = found->link,
	    .key = found->key,
	    .budget = found->budget,
	    .limit = found->limit,
	    .max_clicks = found->max_clicks,
	    .late = found->verdict == LINK_LATE,
	    .response = found->response,
	    .date_at = found->response_date_at,
	};
	if (!serve(w, j->conn, &t, &j->draft, j->as_html, true))
		resolve_again(j); /* another visitor took the last click: the link has ended */
}

static void resolve_done(struct read_job *j)
{
	struct click_limit *limit = j->resolve.limit;
	bool uncounted = j->resolve.result == 0 && j->resolve.verdict == LINK_UNCOUNTED;
	if (uncounted) {
		click_count_submit(j, count_done); /* it takes over the pin */
		return;
	}
	resolve_answer(j);
	click_limit_unpin(limit);
}

struct read_job *redirect_job_new(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                                  struct str key)
{
	struct read_job *j = read_job_new(w, c, READ_RESOLVE, resolve_done);
	if (!j)
		return NULL;
	struct arena *arena = http_conn_arena(c);
	j->as_html = problem_prefers_html(req);
	j->resolve.arena = arena;
	j->resolve.key = arena_str(arena, key);
	request_client_address(w, c, req, &j->client);
	capture_read(&w->capture, c, req, &j->draft);
	if (!j->resolve.key.ptr || !capture_draft_copy(&j->draft, arena)) {
		problem_reply_store(c, ERR_NOMEM);
		return NULL;
	}
	struct caller caller;
	j->found = caller_find(w, c, req, &caller, &j->parked);
	if (j->found == ACCOUNT_UNCACHED && !j->parked)
		return NULL;
	j->resolve.user = caller_visitor(&caller);
	j->resolve.sees_all = caller_is_admin(&caller);
	return j;
}

void redirect_job_submit(struct read_job *j)
{
	j->epoch = cache_epoch(links_cache(j->worker->api->links), j->resolve.key);
	if (j->resolve.user == 0 && !j->resolve.sees_all && !j->resolve.see_other)
		read_job_share(j);
	read_job_submit(j);
}

/* From the cache */

bool redirect_from_cache(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	if (req->path.len < 2 || req->path.len > KEY_BYTES_MAX + 1)
		return false;
	struct links *links = w->api->links;
	char folded[KEY_BYTES_MAX];
	struct str key = key_fold(links_cipher(links), str_n(req->path.ptr + 1, req->path.len - 1), folded);
	/* The path need not be validated: only keys are in the cache. */
	struct cache_entry *e = cache_find(links_cache(links), key);
	if (!e)
		return false;
	if (UNLIKELY(e->expires_ms != 0 && e->expires_ms <= loop_real_ms(http_conn_loop(c))))
		return false; /* a lookup decides, and removes an expired link */
	if (UNLIKELY(atomic_load_explicit(&e->due_ms, memory_order_relaxed) <=
	             loop_mono_ms(http_conn_loop(c))) &&
	    !refresh_stale_while_revalidate(w, e))
		return false;
	if (!guess_may_look_up(w, c, req))
		return true;
	struct capture_draft draft;
	capture_read(&w->capture, c, req, &draft);
	if (UNLIKELY(e->response_len == 0)) {
		metric_add(&w->metrics->cache_negative, 1);
		capture_orphan(&w->capture, &draft, key);
		deny_not_found(c, problem_prefers_html(req));
		return true;
	}
	const struct redirect_target t = target_of(e);
	bool as_html = UNLIKELY(atomic_load_explicit(&e->budget->redirects.max, memory_order_relaxed) != 0) &&
	               problem_prefers_html(req);
	if (!serve(w, c, &t, &draft, as_html, false))
		return false; /* used up: the store has the expired_url */
	metric_add(&w->metrics->cache_hits, 1);
	return true;
}

struct str redirect_key(struct api_worker *w, struct str path, char out[REDIRECT_KEY_BYTES],
                        bool *ret_preview)
{
	char decoded[REDIRECT_KEY_BYTES];
	struct str text = str_n(path.ptr + 1, path.len - 1);
	size_t len = 0;
	*ret_preview = false;
	if (text.len > sizeof(decoded) || !str_percent_decode(text, decoded, &len))
		return STR_NULL;
	struct str key = str_n(decoded, len);
	if (str_ends(key, STR("+"))) {
		*ret_preview = true;
		key.len--;
	}
	if (!key_is_wellformed(key))
		return STR_NULL;
	key = key_fold(links_cipher(w->api->links), key, out);
	if (key.ptr == decoded) {
		memcpy(out, decoded, key.len);
		key.ptr = out;
	}
	return key;
}

void redirect_handle(struct api_worker *w, struct http_conn *c, const struct http_request *req)
{
	char text[REDIRECT_KEY_BYTES];
	bool preview;
	if (!guess_may_look_up(w, c, req))
		return;
	struct str key = redirect_key(w, req->path, text, &preview);
	if (!key.ptr) {
		struct capture_draft draft;
		struct net_addr client;
		capture_read(&w->capture, c, req, &draft);
		capture_orphan(&w->capture, &draft, str_n(req->path.ptr + 1, req->path.len - 1));
		request_client_address(w, c, req, &client);
		deny_unknown_key(w, c, &client, problem_prefers_html(req));
		return;
	}
	if (preview) {
		preview_submit(w, c, req, key);
		return;
	}
	metric_add(&w->metrics->cache_misses, 1);
	struct read_job *j = redirect_job_new(w, c, req, key);
	if (j)
		redirect_job_submit(j);
}
