#include "handler/jobs.h"

#include "handler/caller.h"
#include "handler/link_param.h"
#include "handler/live_clicks.h"
#include "handler/problem.h"
#include "obs/log.h"
#include "os/clock.h"

#include <stdlib.h>

struct metrics *api_pool_metrics(void)
{
	static _Thread_local struct metrics *mine;
	if (!mine)
		mine = metrics_register();
	ASSERT(mine);
	return mine;
}

void *request_zalloc(struct http_conn *c, size_t bytes)
{
	void *p = arena_zalloc(http_conn_arena(c), bytes);
	if (!p)
		problem_reply_store(c, ERR_NOMEM);
	return p;
}

struct str request_str(struct http_conn *c, struct str s)
{
	struct str copy = arena_str(http_conn_arena(c), s);
	if (!copy.ptr)
		problem_reply_store(c, ERR_NOMEM);
	return copy;
}

static void read_done(struct offload_job *job)
{
	struct read_job *j = container_of(job, struct read_job, job);
	j->done(j);
}

struct read_job *read_job_new(struct api_worker *w, struct http_conn *c, enum read_kind kind,
                              void (*done)(struct read_job *))
{
	struct read_job *j = request_zalloc(c, sizeof(*j));
	if (!j)
		return NULL;
	j->job.origin = http_conn_loop(c);
	j->job.done = read_done;
	j->worker = w;
	j->conn = c;
	j->done = done;
	j->kind = kind;
	j->now_ms = loop_real_ms(j->job.origin);
	return j;
}

static void write_done(struct offload_job *job)
{
	struct write_job *j = container_of(job, struct write_job, job);
	if (!j->is_account && (j->write.result != 0 || j->write.replayed))
		write_job_cancel(j);
	j->done(j);
}

static struct write_job *job_new(const struct api_call *call, void (*done)(struct write_job *))
{
	struct write_job *j = request_zalloc(call->c, sizeof(*j));
	if (!j)
		return NULL;
	j->job.origin = http_conn_loop(call->c);
	j->job.done = write_done;
	j->worker = call->w;
	j->conn = call->c;
	j->done = done;
	return j;
}

struct write_job *write_job_new(const struct api_call *call, enum store_write_kind kind,
                                void (*done)(struct write_job *))
{
	struct write_job *j = job_new(call, done);
	if (j)
		j->write = (struct store_write){.kind = kind,
		                                .actor = call->caller.user,
		                                .arena = http_conn_arena(call->c),
		                                .now_ms = loop_real_ms(j->job.origin)};
	return j;
}

struct write_job *link_job_new(const struct api_call *call, struct str key, enum store_write_kind kind,
                               void (*done)(struct write_job *))
{
	struct str folded = link_param_key(call->w, call->c, key);
	struct write_job *j = folded.ptr ? write_job_new(call, kind, done) : NULL;
	if (j) {
		j->write.owner = caller_owner_filter(&call->caller);
		j->write.ref = links_ref(call->w->api->links, folded);
	}
	return j;
}

struct write_job *account_job_new(const struct api_call *call, enum registry_write_kind kind,
                                  void (*done)(struct write_job *))
{
	struct write_job *j = job_new(call, done);
	if (!j)
		return NULL;
	j->is_account = true;
	j->account = (struct registry_write){.kind = kind,
	                                     .actor = call->caller.user,
	                                     .arena = http_conn_arena(call->c),
	                                     .now_ms = loop_real_ms(j->job.origin)};
	return j;
}

void read_job_share(struct read_job *j)
{
	struct str key = j->resolve.key;
	char *text = arena_alloc(j->resolve.arena, key.len + sizeof(j->epoch));
	if (!text)
		return;
	memcpy(text, key.ptr, key.len);
	memcpy(text + key.len, &j->epoch, sizeof(j->epoch));
	j->job.share = str_n(text, key.len + sizeof(j->epoch));
}

void read_job_submit_account(struct read_job *j)
{
	uint64_t epoch = accounts_epoch(j->worker->api->accounts, &j->account);
	size_t len = j->account.len;
	char *text = arena_alloc(http_conn_arena(j->conn), 2 + len + sizeof(epoch));
	if (text) {
		text[0] = '\1'; /* no key of a link begins with it */
		text[1] = (char)j->account.by;
		memcpy(text + 2, j->account.text, len);
		memcpy(text + 2 + len, &epoch, sizeof(epoch));
		j->job.share = str_n(text, 2 + len + sizeof(epoch));
	}
	read_job_submit(j);
}

void read_job_submit(struct read_job *j)
{
	struct http_conn *c = j->conn;
	if (offload_submit(j->worker->api->readers, &j->job) < 0)
		problem_reply_store(c, ERR_LIMIT);
	else
		http_conn_defer(c);
}

/* A write to a known key goes to the writer of its shard. New links without an alias go to the writer with
 * the shortest queue, so that a shard that hangs gets hardly any. */
static struct offload *writer_of(struct api *api, const struct write_job *j)
{
	const struct store_write *w = &j->write;
	if (j->is_account)
		return api->account_writer;
	if (api->writer_count == 1)
		return api->writers[0].queue;
	struct str key = w->kind == STORE_LINK_CREATE ? w->link.key : w->ref.key;
	if (key.ptr)
		return api->writers[MIN(store_shard_of(api->store, key), api->writer_count - 1)].queue;
	size_t first = atomic_fetch_add_explicit(&api->next_writer, 1, memory_order_relaxed);
	struct offload *least = api->writers[first % api->writer_count].queue;
	for (size_t i = 1; i < api->writer_count; i++) {
		struct offload *other = api->writers[(first + i) % api->writer_count].queue;
		if (offload_backlog(other) < offload_backlog(least))
			least = other;
	}
	return least;
}

void write_job_submit(struct write_job *j)
{
	struct http_conn *c = j->conn;
	if (offload_submit(writer_of(j->worker->api, j), &j->job) < 0) {
		write_job_cancel(j);
		problem_reply_store(c, ERR_LIMIT);
	} else {
		http_conn_defer(c);
	}
}

void write_job_cancel(struct write_job *j)
{
	if (j->refund)
		meter_refund(j->refund, &j->reading);
}

/* On pool threads */

/* The client's error message does not give the cause, so the log does. */
static void log_failure(const char *action, struct str key, int result)
{
	if (result == ERR_UNAVAILABLE || result == ERR_UNCERTAIN || result == ERR_CORRUPT)
		log_error("api", "%s failed%s%.*s error=%s", action, key.len > 0 ? " key=" : "", STR_ARG(key),
		          err_name(result));
}

int link_read(const struct api *api, struct store_lookup *lookup, uint64_t owner)
{
	int r = links_get(api->links, lookup, 1, api_pool_metrics());
	if (r == 0)
		r = lookup->result;
	return r == 0 && owner != 0 && lookup->link.owner != owner ? ERR_NOT_FOUND : r;
}

static void read_permissions(struct api *api, struct read_job *j)
{
	struct arena *arena = http_conn_arena(j->conn);
	struct store_lookup read = {.ref = j->permitted.ref, .arena = arena};
	int r = link_read(api, &read, j->owner);
	if (r == 0)
		r = store_permitted(api->store, read.link.id, arena, &j->permitted.ids, &j->permitted.count);
	if (r == 0) {
		size_t count = j->permitted.count;
		j->permitted.users = arena_alloc(arena, (count + 1) * sizeof(*j->permitted.users));
		r = j->permitted.users ? accounts_read_users(api->accounts, j->permitted.ids, count, arena,
		                                             j->permitted.users)
		                       : ERR_NOMEM;
	}
	j->permitted.link = read.link;
	j->result = r;
}

/* Links without a user_name show their owner's. */
static int read_owner_names(struct api *api, struct link_record *links, size_t n, struct arena *arena)
{
	uint64_t *ids = arena_alloc(arena, (n + 1) * sizeof(*ids));
	struct user_record *users = arena_alloc(arena, (n + 1) * sizeof(*users));
	size_t count = 0;
	if (!ids || !users)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++) { /* many links of a page have the same owner */
		if (links[i].user_name.len == 0 && (count == 0 || ids[count - 1] != links[i].owner))
			ids[count++] = links[i].owner;
	}
	int r = accounts_read_users(api->accounts, ids, count, arena, users);
	for (size_t i = 0, at = 0; r == 0 && i < n; i++) {
		if (links[i].user_name.len > 0)
			continue;
		at += ids[at] != links[i].owner;
		if (users[at].id == links[i].owner)
			links[i].user_name = account_display_name(arena, &users[at]);
	}
	return r;
}

static void run_single(struct api *api, struct read_job *j)
{
	switch (j->kind) {
	case READ_LINK:
		j->lookup.result = link_read(api, &j->lookup, j->owner);
		log_failure("reading a link", j->lookup.ref.key, j->lookup.result);
		if (j->shows_clicks && j->lookup.result == 0) {
			live_clicks_show(api, &j->lookup.link, 1);
			j->lookup.result = read_owner_names(api, &j->lookup.link, 1, j->lookup.arena);
		}
		break;
	case READ_CLICKS:
	case READ_OWNER:
		if (j->kind == READ_CLICKS)
			live_clicks_show(api, &j->lookup.link, 1);
		/* A failure is ignored: the write succeeded, and the reply only lacks the name. */
		read_owner_names(api, &j->lookup.link, 1, http_conn_arena(j->conn));
		break;
	case READ_LIST:
		j->result = links_list(api->links, &j->list);
		if (j->result == 0)
			j->result = read_owner_names(api, j->list.links, j->list.count, j->list.arena);
		log_failure("listing links", j->list.cursor, j->result);
		if (j->result == 0)
			live_clicks_show(api, j->list.links, j->list.count);
		break;
	case READ_KEYS:
		j->result = registry_keys(api->store->registry, &j->keys);
		log_failure("listing API keys", STR(""), j->result);
		break;
	case READ_PERMISSIONS:
		read_permissions(api, j);
		log_failure("reading the permissions of a link", j->permitted.ref.key, j->result);
		break;
	case READ_ACCOUNT:
	case READ_RESOLVE: ASSERT(false); break;
	}
}

/* Removes one expired link. It has its own memory and no connection. */
struct reap_job {
	struct write_job write;
	struct arena arena;
};

static void reap_done(struct offload_job *job)
{
	struct reap_job *reap = container_of(job, struct reap_job, write.job);
	arena_release(&reap->arena);
	free(reap);
}

/* An expired link that was requested goes with the writer's next batch, before the sweeper finds it. If this
 * fails, the next request does it. */
static void reap_submit(struct api *api, struct str key, int64_t now_ms)
{
	struct reap_job *reap = calloc(1, sizeof(*reap));
	struct str copy = reap ? arena_str(&reap->arena, key) : STR_NULL;
	if (!copy.ptr) {
		free(reap);
		return;
	}
	reap->write.job.done = reap_done;
	reap->write.write = (struct store_write){
	    .kind = STORE_LINK_SWEEP,
	    .now_ms = now_ms,
	    .arena = &reap->arena,
	    .ref = links_ref(api->links, copy),
	};
	if (offload_submit(writer_of(api, &reap->write), &reap->write.job) < 0)
		reap_done(&reap->write.job);
}

/* Before a visitor is refused, learn what other servers have used of the limit. */
static void limits_refresh(struct link_resolve **resolves, size_t n)
{
	int64_t until_ms = clock_mono_ms() + LIMIT_REFRESH_MS_MAX;
	for (size_t i = 0; i < n; i++) {
		const struct link_resolve *r = resolves[i];
		bool leads_on = r->result == 0 && (r->verdict == LINK_OPEN || r->verdict == LINK_LATE);
		if (leads_on && r->budget && container_of(r, struct read_job, resolve)->conn)
			meter_wait_for_grant(&r->budget->redirects, until_ms);
	}
}

static void readers_run(void *ctx, struct offload_job **jobs, size_t n)
{
	struct api *api = ctx;
	struct link_resolve *resolves[OFFLOAD_BATCH_MAX];
	const struct account_ref *accounts[OFFLOAD_BATCH_MAX];
	size_t resolve_count = 0, account_count = 0;
	int64_t now_ms = 0;
	for (size_t i = 0; i < n; i++) {
		struct read_job *j = container_of(jobs[i], struct read_job, job);
		now_ms = MAX(now_ms, j->now_ms);
		if (j->kind == READ_RESOLVE)
			resolves[resolve_count++] = &j->resolve;
		else if (j->kind == READ_ACCOUNT)
			accounts[account_count++] = &j->account;
		else
			run_single(api, j);
	}
	int r = account_count > 0 ? accounts_read(api->accounts, accounts, account_count) : 0;
	log_failure("reading accounts", STR(""), r);
	for (size_t i = 0; i < account_count; i++)
		container_of(accounts[i], struct read_job, account)->result = r;
	if (resolve_count == 0)
		return;
	links_resolve(api->links, resolves, resolve_count, now_ms, api_pool_metrics());
	for (size_t i = 0; i < resolve_count; i++) {
		/* A job without a connection is a refresh; if it fails, the cache serves on. */
		if (container_of(resolves[i], struct read_job, resolve)->conn)
			log_failure("resolving", resolves[i]->key, resolves[i]->result);
		if (resolves[i]->expired)
			reap_submit(api, resolves[i]->key, now_ms);
	}
	limits_refresh(resolves, resolve_count);
}

/* Only resolves and reads of accounts are shared. */
static void readers_adopt(void *ctx, struct offload_job *follower, const struct offload_job *leader)
{
	(void)ctx;
	struct read_job *j = container_of(follower, struct read_job, job);
	j->result = container_of(leader, const struct read_job, job)->result;
	if (j->kind == READ_ACCOUNT)
		return;
	struct link_resolve *to = &j->resolve;
	const struct link_resolve *from = &container_of(leader, const struct read_job, job)->resolve;
	to->result = from->result;
	to->verdict = from->verdict;
	to->response_date_at = from->response_date_at;
	to->link = from->link;
	to->budget = from->budget;
	to->limit = from->limit;
	click_limit_pin(to->limit);
	to->max_clicks = from->max_clicks;
	to->response = arena_str(to->arena, from->response);
	if (from->response.ptr && !to->response.ptr)
		to->result = ERR_NOMEM;
}

const struct offload_ops api_reader_ops = {.run = readers_run, .adopt = readers_adopt};

/* A change of owners, certain or not, makes the live feed check its watchers again. A user who sees only
 * their own links can give them only to themselves: that changes nothing, and must not disturb other
 * watchers. */
static void announce_owner_changes(struct api *api, const struct store_write *writes, size_t n)
{
	bool changed = false;
	for (size_t i = 0; i < n; i++) {
		const struct store_write *w = &writes[i];
		changed |= w->kind == STORE_LINK_UPDATE && (w->fields & LINK_OWNER) &&
		           w->link.owner != w->owner && (w->result == 0 || w->result == ERR_UNCERTAIN);
	}
	if (!changed)
		return;
	atomic_fetch_add(&api->owner_changes, 1);
	if (api->rcache)
		api->rcache->ops->tell(api->rcache, API_TOPIC_OWNERS);
}

static void writer_run(void *ctx, struct offload_job **jobs, size_t n)
{
	const struct api_writer *writer = ctx;
	struct api *api = writer->api;
	struct store_write *writes = calloc(n, sizeof(*writes));
	for (size_t i = 0; i < n; i++) {
		struct store_write *w = &container_of(jobs[i], struct write_job, job)->write;
		if (writes)
			writes[i] = *w;
		else
			w->result = ERR_NOMEM;
	}
	if (!writes)
		return;
	links_apply_in(api->links, writer->shard, writes, n, api_pool_metrics());
	announce_owner_changes(api, writes, n);
	for (size_t i = 0; i < n; i++) {
		log_failure("writing a link", writes[i].ref.key, writes[i].result);
		container_of(jobs[i], struct write_job, job)->write = writes[i];
	}
	free(writes);
}

const struct offload_ops api_writer_ops = {.run = writer_run};

/* Workers must know of the end of a key, a session or a user before the client gets the reply. */
static void announce_account_changes(struct api *api, const struct registry_write *writes, size_t n)
{
	bool changed = false;
	for (size_t i = 0; i < n; i++) {
		const struct registry_write *w = &writes[i];
		accounts_update_cache(api->accounts, w);
		changed |= (w->kind == REGISTRY_USER_UPDATE || w->kind == REGISTRY_KEY_REVOKE ||
		            w->kind == REGISTRY_SESSION_END) &&
		           (w->result == 0 || w->result == ERR_UNCERTAIN);
	}
	if (changed && api->rcache)
		api->rcache->ops->tell(api->rcache, API_TOPIC_ACCOUNTS);
}

static void account_writer_run(void *ctx, struct offload_job **jobs, size_t n)
{
	struct api *api = ctx;
	struct metrics *m = api_pool_metrics();
	struct registry_write *writes = calloc(n, sizeof(*writes));
	for (size_t i = 0; writes && i < n; i++)
		writes[i] = container_of(jobs[i], struct write_job, job)->account;
	int64_t start_ns = clock_mono_ns();
	int r = writes ? registry_apply(api->store->registry, writes, n) : ERR_NOMEM;
	links_count_commit(m, n, start_ns, r < 0);
	for (size_t i = 0; writes && r < 0 && i < n; i++)
		writes[i].result = r;
	if (writes)
		announce_account_changes(api, writes, n);
	for (size_t i = 0; i < n; i++) {
		struct registry_write *w = &container_of(jobs[i], struct write_job, job)->account;
		if (writes)
			*w = writes[i];
		else
			w->result = ERR_NOMEM;
		log_failure("writing an account", STR(""), w->result);
	}
	free(writes);
}

const struct offload_ops api_account_writer_ops = {.run = account_writer_run};
