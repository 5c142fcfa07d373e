#include "api/live.h"

#include "api/handlers.h"
#include "api/ownership.h"
#include "base/json_out.h"
#include "handler/caller.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/query_job.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { STILL_HERE_MS = 15000, LOOK_MS = 1000, READ_AGAIN_MS = 100 };

/* One event of the feed, as it goes out. */
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

/* What one batch gives; shared by all workers, freed by the last. */
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
	struct list chunks; /* on their way; a stopped loop leaves its mail unread */
};

struct watcher {
	struct http_stream_owner owner;
	struct list link;
	struct http_conn *conn;
	struct live *live;
	uint64_t only;               /* this link; 0: everything */
	struct caller caller;        /* by whose right */
	uint64_t owner_changes;      /* before that right was looked at */
	int64_t read_ms;             /* monotonic; when the account was last read again */
	struct ownership *ownership; /* NULL: whoever changes it tells, or it need not be theirs */
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

/* One that reads too slowly misses some. */
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

/* Is the link still theirs? When any link has got another owner it is not known which, so the answer is no:
 * the client connects again and is judged anew. Admins need not own what they watch. */
static bool watcher_still_owns(struct watcher *w)
{
	if (caller_is_admin(&w->caller))
		return true;
	if (w->ownership && !ownership_holds(w->ownership, loop_mono_ms(http_conn_loop(w->conn))))
		return false;
	return atomic_load(&w->live->api->owner_changes) == w->owner_changes;
}

/* Somebody who is not in the cache is read again beside the loop. */
static enum account_found watcher_find(struct watcher *w)
{
	struct loop *l = http_conn_loop(w->conn);
	const struct account_time now = {loop_real_ms(l), loop_mono_ms(l)};
	struct account_want want;
	enum account_found found = accounts_in_force(w->live->api->accounts, &w->caller, now, &want);
	if (found == ACCOUNT_UNREAD && now.mono_ms - w->read_ms >= READ_AGAIN_MS) {
		w->read_ms = now.mono_ms;
		hold_refresh(w->live->api, &want);
	}
	return found;
}

/* A key that was revoked, a session that ended, or somebody whose link was given away sees no more. Nor does
 * one who is being read again, until that is known: what comes meanwhile is missed. */
static bool watcher_may_watch(struct watcher *w)
{
	enum account_found found = watcher_find(w);
	bool stays = found == ACCOUNT_FOUND || found == ACCOUNT_UNREAD;
	if (stays && watcher_still_owns(w))
		return found == ACCOUNT_FOUND;
	struct http_conn *conn = w->conn;
	watcher_closed(&w->owner);
	http_stream_end(conn);
	return false;
}

static void chunk_deliver(const struct live_chunk *chunk, struct watcher *w)
{
	if (w->only == 0) {
		watcher_write(w, buf_view(&chunk->text));
		return;
	}
	for (size_t i = 0; i < chunk->item_count; i++) {
		const struct live_item *item = &chunk->items[i];
		if (item->link == w->only)
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

/* Do others give links away without telling? */
static bool is_unsent(const struct api *api)
{
	return api->store->is_shared && !api->rcache;
}

static void timer_again(struct api_worker *w)
{
	timer_set(loop_timers(w->loop), &w->watchers_timer,
	          loop_mono_ms(w->loop) + (is_unsent(w->api) ? LOOK_MS : STILL_HERE_MS));
}

/* Proxies and clients give up on a connection that says nothing. */
static void still_here(struct timer *t)
{
	struct api_worker *worker = container_of(t, struct api_worker, watchers_timer);
	struct list *head = &worker->watchers;
	int64_t mono_ms = loop_mono_ms(worker->loop);
	bool says_so = mono_ms - worker->watchers_noted_ms >= STILL_HERE_MS;
	if (says_so)
		worker->watchers_noted_ms = mono_ms;
	for (struct list *node = head->next; node != head;) {
		struct watcher *w = container_of(node, struct watcher, link);
		node = node->next;
		if (watcher_may_watch(w) && says_so)
			watcher_write(w, STR(": still here\n\n"));
	}
	if (!list_empty(head))
		timer_again(worker);
}

void live_worker_init(struct api_worker *w)
{
	list_init(&w->watchers);
	timer_init(&w->watchers_timer, still_here);
}

/* Publishing, on the stats worker's thread */

static void put_text(struct buf *b, const char *name, struct str value)
{
	buf_printf(b, ",\"%s\":", name);
	json_out_str_or_null(b, value);
}

static void item_begin(struct live_chunk *chunk, uint64_t link, const char *event)
{
	chunk->items[chunk->item_count] = (struct live_item){.link = link, .at = chunk->text.len};
	buf_printf(&chunk->text, "event: %s\ndata: ", event);
}

static void item_end(struct live_chunk *chunk)
{
	buf_str(&chunk->text, STR("\n\n"));
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
	buf_str(&chunk->text, STR("{\"t\":"));
	json_out_time(&chunk->text, v->time_ms);
	put_text(&chunk->text, "key", str_n(recent->key, recent->key_len));
	for (unsigned dim = 0; dim < DIM_COUNT; dim++)
		put_text(&chunk->text, visit_dim_names[dim], set->dims[dim]);
	buf_char(&chunk->text, '}');
	item_end(chunk);
}

static void put_impression(struct live_chunk *chunk, const struct sink_impression *i)
{
	item_begin(chunk, 0, "impression");
	buf_str(&chunk->text, STR("{\"t\":"));
	json_out_time(&chunk->text, i->time_ms);
	put_text(&chunk->text, "adId", i->ad);
	buf_char(&chunk->text, '}');
	item_end(chunk);
}

static void put_totals(struct live_chunk *chunk, const struct live_batch *news)
{
	const struct sink_batch *b = news->batch;
	item_begin(chunk, 0, "totals");
	buf_printf(&chunk->text,
	           "{\"clicks\":%llu,\"orphans\":%llu,\"impressions\":%llu,\"duplicates\":%llu}",
	           (unsigned long long)b->tally.clicks, (unsigned long long)b->tally.orphans,
	           (unsigned long long)(b->impression_count - news->duplicates),
	           (unsigned long long)(b->tally.duplicates + news->duplicates));
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

static unsigned watchers_of(const struct api_worker *w, uint64_t user)
{
	unsigned count = 0;
	for (const struct list *node = w->watchers.next; node != &w->watchers; node = node->next)
		count += container_of(node, const struct watcher, link)->caller.user == user;
	return count;
}

/* Room for one more: for this user, and at all. False: that has been said. */
static bool watch_admit(struct api_worker *w, struct http_conn *c, const struct caller *caller)
{
	if (watchers_of(w, caller->user) >= LIVE_WATCHERS_USER_MAX) {
		problem_say(c, 503, "too-many-watchers",
		            "You watch the live feed %d times already; end one of them first.",
		            LIVE_WATCHERS_USER_MAX);
		return false;
	}
	if (atomic_fetch_add(&w->api->live->watchers, 1) >= LIVE_WATCHERS_MAX) {
		atomic_fetch_sub(&w->api->live->watchers, 1);
		problem_say(c, 503, "too-many-watchers",
		            "%d clients watch the live feed already; try again later.", LIVE_WATCHERS_MAX);
		return false;
	}
	return true;
}

/* `wish` says by which right; it is copied. */
static void watch(struct api_worker *w, struct http_conn *c, const struct watcher *wish,
                  struct ownership *ownership)
{
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	if (!watcher)
		problem_reply_store(c, ERR_NOMEM);
	if (!watcher || !watch_admit(w, c, &wish->caller)) {
		ownership_free(ownership);
		free(watcher);
		return;
	}
	*watcher = *wish;
	watcher->owner.closed = watcher_closed;
	watcher->conn = c;
	watcher->live = w->api->live;
	watcher->ownership = ownership;
	list_push(&w->watchers, &watcher->link);
	if (!w->watchers_timer.armed) {
		w->watchers_noted_ms = loop_mono_ms(w->loop);
		timer_again(w);
	}
	http_stream_begin(c, &live_head, &watcher->owner);
}

struct watch_job {
	struct ask_job ask;
	struct ask_subject subject;
	struct caller caller;
	uint64_t owner_changes;
	bool head_only;
};

static void watch_run(struct ask_job *ask)
{
	struct watch_job *j = container_of(ask, struct watch_job, ask);
	ask->result = ask_subject_find(ask, &j->subject);
}

static void watch_one(struct watch_job *j)
{
	struct api *api = j->ask.worker->api;
	const struct watcher wish = {
	    .only = j->subject.link.id, .caller = j->caller, .owner_changes = j->owner_changes};
	struct ownership *ownership = NULL;
	if (is_unsent(api) && j->subject.owner != 0) {
		ownership = ownership_new(api, j->subject.key, j->subject.link.id, j->subject.owner);
		if (!ownership) {
			problem_reply_store(j->ask.conn, ERR_NOMEM);
			return;
		}
	}
	watch(j->ask.worker, j->ask.conn, &wish, ownership);
}

static void watch_done(struct ask_job *ask)
{
	struct watch_job *j = container_of(ask, struct watch_job, ask);
	if (ask_job_failed(ask))
		return;
	if (j->head_only)
		http_reply(ask->conn, &live_head);
	else
		watch_one(j);
}

void live_get(struct api_call *call)
{
	struct str wanted = http_query_param(call->req->query, STR("key"));
	if (!wanted.ptr) {
		if (!caller_is_admin(&call->caller))
			problem_say(call->c, 403, "not-permitted",
			            "Only an admin may watch everything; name one of your links: ?key=KEY");
		else if (call->req->method == HTTP_HEAD)
			http_reply(call->c, &live_head);
		else
			watch(call->w, call->c, &(struct watcher){.caller = call->caller}, NULL);
		return;
	}
	struct str name = link_param_take(call->w, call->c, wanted);
	struct watch_job *j = name.ptr ? ask_job_new(call->w, call->c, sizeof(*j), watch_run, watch_done)
	                               : NULL;
	if (!j)
		return;
	j->subject = (struct ask_subject){.key = name, .owner = link_param_owner(&call->caller)};
	j->caller = call->caller;
	j->owner_changes = atomic_load(&call->w->api->owner_changes);
	j->head_only = call->req->method == HTTP_HEAD;
	ask_job_submit(&j->ask);
}
