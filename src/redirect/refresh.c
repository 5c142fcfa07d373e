#include "redirect/refresh.h"

#include "handler/jobs.h"

#include <stdlib.h>

enum { RETRY_MS = 1000 };

/* Has its own memory and no connection. */
struct refresh_job {
	struct read_job read;
	struct arena arena;
};

static void refresh_done(struct offload_job *job)
{
	struct refresh_job *refresh = container_of(job, struct refresh_job, read.job);
	click_limit_unpin(refresh->read.resolve.limit);
	arena_release(&refresh->arena);
	free(refresh);
}

static void refresh_submit(struct api_worker *w, struct str key)
{
	struct refresh_job *refresh = calloc(1, sizeof(*refresh));
	struct str copy = refresh ? arena_str(&refresh->arena, key) : STR_NULL;
	if (!copy.ptr) {
		free(refresh);
		return; /* a later visitor tries again */
	}
	struct read_job *j = &refresh->read;
	j->job.done = refresh_done;
	j->worker = w;
	j->kind = READ_RESOLVE;
	j->now_ms = loop_real_ms(w->loop);
	j->resolve.key = copy;
	j->resolve.arena = &refresh->arena;
	j->epoch = cache_epoch(links_cache(w->api->links), copy);
	read_job_share(j);
	if (offload_submit(w->api->readers, &j->job) < 0)
		refresh_done(&j->job);
}

static bool may_be_stale(const struct cache_entry *e)
{
	return e->response_len > 0 && !e->limit;
}

bool refresh_stale_while_revalidate(struct api_worker *w, struct cache_entry *e)
{
	int64_t mono_ms = loop_mono_ms(w->loop);
	int64_t due_ms = atomic_load_explicit(&e->due_ms, memory_order_relaxed);
	if (!may_be_stale(e) || mono_ms - due_ms > (int64_t)links_grace_ms(w->api->links))
		return false;
	/* Relaxed: it orders nothing else. */
	if (due_ms <= mono_ms &&
	    atomic_compare_exchange_strong_explicit(&e->due_ms, &due_ms, mono_ms + RETRY_MS,
	                                            memory_order_relaxed, memory_order_relaxed)) {
		metric_add(&w->metrics->cache_refreshes, 1);
		refresh_submit(w, str_n(e->data, e->key_len));
	}
	return true;
}

struct cache_entry *refresh_stale_if_error(struct api_worker *w, struct str key, int err)
{
	struct cache_entry *e = err == ERR_CORRUPT ? NULL : cache_find(links_cache(w->api->links), key);
	if (!e || !may_be_stale(e) || (e->expires_ms != 0 && e->expires_ms <= loop_real_ms(w->loop)))
		return NULL;
	metric_add(&w->metrics->cache_stale_served, 1);
	atomic_store_explicit(&e->due_ms, loop_mono_ms(w->loop) + RETRY_MS, memory_order_relaxed);
	return e;
}
