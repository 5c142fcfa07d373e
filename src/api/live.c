#include "api/live.h"

#include "api/handlers.h"
#include "api/ownership.h"
#include "base/json_out.h"
#include "handler/caller.h"
#include "handler/jobs.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/query_params.h"
#include "handler/reply.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
	KEEPALIVE_MS = 15000,
	OWNER_POLL_MS = 1000,
	REFRESH_MS = 100, /* the shortest time between two reads of a watcher's account */
};

/* One event of the feed in a chunk's text. */
struct live_item {
	uint64_t link; /* 0: not about a link */
	size_t at, len;
};

struct live_chunk;

struct live_mail {
	struct mail mail;
	struct live_chunk *chunk;
	struct api_worker *worker;
};

/* The text of one batch. All workers share it, and the last one frees it. */
struct live_chunk {
	struct live *live;
	struct list link; /* in live->chunks */
	_Atomic unsigned users;
	struct buf text;
	struct live_item items[2 * LIVE_ITEMS_MAX + 1];
	size_t item_count;
	struct live_mail mails[];
};

struct live {
	struct api *api;
	_Atomic unsigned watchers; /* on all workers */
	pthread_mutex_t lock;
	struct list chunks; /* in the mail; a stopped loop does not open its mail */
};

struct watcher {
	struct http_stream_owner owner;
	struct list link;
	struct http_conn *conn;
	struct live *live;
	uint64_t link_id;            /* 0: all links */
	struct caller caller;        /* who watches */
	uint64_t owner_changes;      /* before the caller's right was checked */
	int64_t refreshed_ms;        /* monotonic; the last read of the account */
	struct ownership *ownership; /* NULL: changes are announced, or the caller is an admin */
};

int live_new(struct api *api, struct live **ret, struct err *e)
{
	struct live *live = calloc(1, sizeof(*live));
	if (!live)
		return err_set(e, ERR_NOMEM, "out of memory");
	live->api = api;
	list_init(&live->chunks);
	pthread_mutex_init(&live->lock, NULL);
	*ret = live;
	return 0;
}

static void chunk_free(struct live_chunk *chunk)
{
	pthread_mutex_lock(&chunk->live->lock);
	list_remove(&chunk->link);
	pthread_mutex_unlock(&chunk->live->lock);
	buf_release(&chunk->text);
	free(chunk);
}

void live_free(struct live *live)
{
	if (!live)
		return;
	while (!list_empty(&live->chunks))
		chunk_free(container_of(live->chunks.next, struct live_chunk, link));
	pthread_mutex_destroy(&live->lock);
	free(live);
}

/* Watchers */

/* A watcher that reads too slowly misses events. */
static void watcher_write(struct watcher *w, struct str text)
{
	(void)http_stream_write(w->conn, text);
}

static void watcher_closed(struct http_stream_owner *owner)
{
	struct watcher *w = container_of(owner, struct watcher, owner);
	list_remove(&w->link);
	atomic_fetch_sub(&w->live->watchers, 1);
	ownership_free(w->ownership);
	free(w);
}

/* Changes of owners are counted, not named. So after any change the answer is no, and the client connects and
 * is checked again. Admins need not own what they watch. */
static bool watcher_still_owns(struct watcher *w)
{
	if (caller_is_admin(&w->caller))
		return true;
	if (w->ownership && !ownership_is_held(w->ownership, loop_mono_ms(http_conn_loop(w->conn))))
		return false;
	return atomic_load(&w->live->api->owner_changes) == w->owner_changes;
}

/* On the pool's thread, because a stopped loop does not open its mail. */
static void account_refresh_done(struct offload_job *job)
{
	free(container_of(job, struct read_job, job));
}

/* Reads an account into the cache again. If that fails, the watcher tries again later. */
static void account_refresh(struct api *api, const struct account_ref *ref)
{
	struct read_job *j = calloc(1, sizeof(*j));
	if (!j)
		return;
	j->job.done = account_refresh_done;
	j->kind = READ_ACCOUNT;
	j->account = *ref;
	if (offload_submit(api->readers, &j->job) < 0)
		free(j);
}

/* Ends the stream after a revoked key, an ended session or a change of the link's owner. False also while an
 * account that fell out of the cache is read again: what comes meanwhile is missed. */
static bool watcher_may_watch(struct watcher *w)
{
	struct loop *l = http_conn_loop(w->conn);
	const struct account_time now = {loop_real_ms(l), loop_mono_ms(l)};
	struct account_ref ref;
	enum account_found found = accounts_recheck(w->live->api->accounts, &w->caller, now, &ref);
	if (found == ACCOUNT_UNCACHED && now.mono_ms - w->refreshed_ms >= REFRESH_MS) {
		w->refreshed_ms = now.mono_ms;
		account_refresh(w->live->api, &ref);
	}
	bool stays = found == ACCOUNT_FOUND || found == ACCOUNT_UNCACHED;
	if (stays && watcher_still_owns(w))
		return found == ACCOUNT_FOUND;
	struct http_conn *conn = w->conn;
	watcher_closed(&w->owner);
	http_stream_end(conn);
	return false;
}

static void chunk_deliver(const struct live_chunk *chunk, struct watcher *w)
{
	if (w->link_id == 0) {
		watcher_write(w, buf_view(&chunk->text));
		return;
	}
	for (size_t i = 0; i < chunk->item_count; i++) {
		const struct live_item *item = &chunk->items[i];
		if (item->link == w->link_id)
			watcher_write(w, str_n(chunk->text.data + item->at, item->len));
	}
}

static void chunk_open(struct mail *m)
{
	struct live_mail *mail = container_of(m, struct live_mail, mail);
	struct live_chunk *chunk = mail->chunk;
	struct list *head = &mail->worker->watchers;
	for (struct list *node = head->next; node != head;) {
		struct watcher *w = container_of(node, struct watcher, link);
		node = node->next; /* a write may end the stream */
		if (watcher_may_watch(w))
			chunk_deliver(chunk, w);
	}
	if (atomic_fetch_sub(&chunk->users, 1) == 1)
		chunk_free(chunk);
}

/* May other servers change owners of links without an announcement? Then they are polled (ownership.h). */
static bool must_poll_owners(const struct api *api)
{
	return api->store->is_shared && !api->rcache;
}

static void timer_restart(struct api_worker *w)
{
	timer_set(loop_timers(w->loop), &w->keepalive_timer,
	          loop_mono_ms(w->loop) + (must_poll_owners(w->api) ? OWNER_POLL_MS : KEEPALIVE_MS));
}

/* Proxies and clients close a connection that stays silent. */
static void keepalive(struct timer *t)
{
	struct api_worker *worker = container_of(t, struct api_worker, keepalive_timer);
	struct list *head = &worker->watchers;
	int64_t mono_ms = loop_mono_ms(worker->loop);
	bool is_due = mono_ms - worker->keepalive_sent_ms >= KEEPALIVE_MS;
	if (is_due)
		worker->keepalive_sent_ms = mono_ms;
	for (struct list *node = head->next; node != head;) {
		struct watcher *w = container_of(node, struct watcher, link);
		node = node->next;
		if (watcher_may_watch(w) && is_due)
			watcher_write(w, STR(": still here\n\n"));
	}
	if (!list_empty(head))
		timer_restart(worker);
}

void live_worker_init(struct api_worker *w)
{
	list_init(&w->watchers);
	timer_init(&w->keepalive_timer, keepalive);
}

/* Publishing, on the stats worker's thread */

static void item_begin(struct live_chunk *chunk, uint64_t link, const char *event)
{
	chunk->items[chunk->item_count] = (struct live_item){.link = link, .at = chunk->text.len};
	buf_printf(&chunk->text, "event: %s\ndata: {", event);
}

static void item_end(struct live_chunk *chunk)
{
	buf_str(&chunk->text, STR("}\n\n"));
	struct live_item *item = &chunk->items[chunk->item_count++];
	item->len = chunk->text.len - item->at;
}

static void put_visit(struct live_chunk *chunk, const struct live_batch *news,
                      const struct live_visit *recent)
{
	static const char *const names[VISIT_KINDS] = {"click", "head", "prefetch", "orphan", "orphan"};
	const struct sink_visit *v = &news->batch->visits[recent->visit];
	const struct dimension_set *set = &news->batch->sets[v->set];
	item_begin(chunk, v->link, names[set->kind]);
	json_out_name_time(&chunk->text, "t", v->time_ms);
	json_out_name_str(&chunk->text, "key", str_n(recent->key, recent->key_len));
	for (unsigned dim = 0; dim < DIM_COUNT; dim++)
		json_out_name_str(&chunk->text, visit_dim_names[dim], set->dims[dim]);
	item_end(chunk);
}

static void put_impression(struct live_chunk *chunk, const struct sink_impression *i)
{
	item_begin(chunk, 0, "impression");
	json_out_name_time(&chunk->text, "t", i->time_ms);
	json_out_name_str(&chunk->text, "adId", i->ad);
	item_end(chunk);
}

static void put_totals(struct live_chunk *chunk, const struct live_batch *news)
{
	const struct sink_batch *b = news->batch;
	uint64_t visits[VISIT_KINDS] = {0}; /* the tally counts HEAD and prefetch requests with the clicks */
	for (size_t i = 0; i < b->visit_count; i++)
		visits[b->sets[b->visits[i].set].kind]++;
	item_begin(chunk, 0, "totals");
	json_out_name_u64(&chunk->text, "clicks", visits[VISIT_CLICK]);
	json_out_name_u64(&chunk->text, "heads", visits[VISIT_HEAD]);
	json_out_name_u64(&chunk->text, "prefetches", visits[VISIT_PREFETCH]);
	json_out_name_u64(&chunk->text, "orphans", visits[VISIT_UNKNOWN] + visits[VISIT_ROOT]);
	json_out_name_u64(&chunk->text, "impressions", b->impression_count - news->duplicates);
	json_out_name_u64(&chunk->text, "duplicates", b->tally.duplicates + news->duplicates);
	item_end(chunk);
}

bool live_is_watched(void *ctx)
{
	struct live *live = ctx;
	return atomic_load_explicit(&live->watchers, memory_order_relaxed) > 0;
}

void live_publish(void *ctx, const struct live_batch *news)
{
	struct live *live = ctx;
	if (!live_is_watched(live))
		return;
	unsigned workers = live->api->worker_count;
	struct live_chunk *chunk = calloc(1, sizeof(*chunk) + workers * sizeof(chunk->mails[0]));
	if (!chunk)
		return;
	chunk->live = live;
	list_init(&chunk->link);
	size_t shown = MIN(news->batch->impression_count, (size_t)LIVE_ITEMS_MAX);
	for (size_t i = 0; i < news->recent_count; i++)
		put_visit(chunk, news, &news->recent[i]);
	for (size_t i = 0; i < shown; i++)
		put_impression(chunk, &news->batch->impressions[i]);
	put_totals(chunk, news);
	if (chunk->text.failed) {
		buf_release(&chunk->text);
		free(chunk);
		return;
	}
	pthread_mutex_lock(&live->lock);
	list_push(&live->chunks, &chunk->link);
	pthread_mutex_unlock(&live->lock);
	atomic_init(&chunk->users, workers);
	for (unsigned i = 0; i < workers; i++) {
		struct api_worker *w = live->api->workers[i];
		chunk->mails[i] = (struct live_mail){.mail.open = chunk_open, .chunk = chunk, .worker = w};
		loop_post(w->loop, &chunk->mails[i].mail);
	}
}

/* The route */

static const struct http_field live_fields[] = {{{"Cache-Control", 13}, {"no-store", 8}},
                                                {{"X-Accel-Buffering", 17}, {"no", 2}}};
static const struct http_response live_head = {
    .status = 200,
    .content_type = {"text/event-stream", 17},
    .fields = live_fields,
    .field_count = ARRAY_LEN(live_fields),
};

/* Counts one more watcher. False: there are too many, answered with 503. */
static bool watch_admit(struct api_worker *w, struct http_conn *c, const struct caller *caller)
{
	unsigned own = 0;
	for (const struct list *node = w->watchers.next; node != &w->watchers; node = node->next)
		own += container_of(node, const struct watcher, link)->caller.user == caller->user;
	if (own >= LIVE_WATCHERS_USER_MAX) {
		problem_reply(
		    c, 503, "too-many-watchers",
		    "You have %d connections to the live feed, which is the limit; close one first.",
		    LIVE_WATCHERS_USER_MAX);
		return false;
	}
	if (atomic_fetch_add(&w->api->live->watchers, 1) >= LIVE_WATCHERS_MAX) {
		atomic_fetch_sub(&w->api->live->watchers, 1);
		problem_reply(c, 503, "too-many-watchers",
		              "The live feed has %d clients, which is the limit; try again later.",
		              LIVE_WATCHERS_MAX);
		return false;
	}
	return true;
}

/* Begins the stream of a watcher with the link_id, caller and owner_changes of `from`. Takes `ownership`. */
static void watch(struct api_worker *w, struct http_conn *c, const struct watcher *from,
                  struct ownership *ownership)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	if (!watcher)
		problem_reply_store(c, ERR_NOMEM);
	if (!watcher || !watch_admit(w, c, &from->caller)) {
		ownership_free(ownership);
		free(watcher);
		return;
	}
	*watcher = *from;
	watcher->owner.closed = watcher_closed;
	watcher->conn = c;
	watcher->live = w->api->live;
	watcher->ownership = ownership;
	list_push(&w->watchers, &watcher->link);
	if (!w->keepalive_timer.armed) {
		w->keepalive_sent_ms = loop_mono_ms(w->loop);
		timer_restart(w);
	}
	http_stream_begin(c, &live_head, &watcher->owner);
}

struct watch_job {
	struct query_job base;
	struct query_link link;
	struct caller caller;
	uint64_t owner_changes;
	bool head_only;
};

static void watch_run(struct query_job *base)
{
	struct watch_job *j = container_of(base, struct watch_job, base);
	base->result = query_link_find(base, &j->link);
}

static void watch_one(struct watch_job *j)
{
	struct api *api = j->base.worker->api;
	const struct watcher from = {
	    .link_id = j->link.link.id, .caller = j->caller, .owner_changes = j->owner_changes};
	struct ownership *ownership = NULL;
	if (must_poll_owners(api) && j->link.owner != 0) {
		ownership = ownership_new(api, j->link.key, j->link.link.id, j->link.owner);
		if (!ownership) {
			problem_reply_store(j->base.conn, ERR_NOMEM);
			return;
		}
	}
	watch(j->base.worker, j->base.conn, &from, ownership);
}

static void watch_done(struct query_job *base)
{
	struct watch_job *j = container_of(base, struct watch_job, base);
	if (query_job_reply_failed(base))
		return;
	if (j->head_only)
		http_reply(base->conn, &live_head);
	else
		watch_one(j);
}

void live_get(struct api_call *call)
{
	struct err e;
	struct str key;
	int r = query_param_text(call->req->query, "key", http_conn_arena(call->c), &key, &e);
	if (r < 0) {
		reply_failed(call->c, r, "invalid-parameter", &e);
		return;
	}
	if (!key.ptr) {
		if (!caller_is_admin(&call->caller))
			problem_reply(call->c, 403, "not-permitted",
			              "Only admins may watch all links; name one of your links: ?key=KEY");
		else if (call->req->method == HTTP_HEAD)
			http_reply(call->c, &live_head);
		else
			watch(call->w, call->c, &(struct watcher){.caller = call->caller}, NULL);
		return;
	}
	key = link_param_key(call->w, call->c, key);
	struct watch_job *j = key.ptr ? query_job_new(call->w, call->c, sizeof(*j), watch_run, watch_done)
	                              : NULL;
	if (!j)
		return;
	j->link = (struct query_link){.key = key, .owner = caller_owner_filter(&call->caller)};
	j->caller = call->caller;
	j->owner_changes = atomic_load(&call->w->api->owner_changes);
	j->head_only = call->req->method == HTTP_HEAD;
	query_job_submit(&j->base);
}
