#include "api/ownership.h"

#include "handler/jobs.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ownership {
	_Atomic unsigned refs;    /* the loop's, and that of a running check */
	_Atomic bool is_checking; /* then `read` and `arena` belong to the pool */
	_Atomic bool is_lost;
	struct api *api;
	uint64_t link, owner;
	int64_t checked_ms;
	struct read_job read;
	struct arena arena;
	size_t key_len;
	char key[];
};

struct ownership *ownership_new(struct api *api, struct str key, uint64_t link, uint64_t owner)
{
	struct ownership *o = calloc(1, sizeof(*o) + key.len);
	if (!o)
		return NULL;
	atomic_init(&o->refs, 1);
	o->api = api;
	o->link = link;
	o->owner = owner;
	o->key_len = key.len;
	memcpy(o->key, key.ptr, key.len);
	return o;
}

/* The last reference frees it; acq_rel, so that the other's accesses have happened. */
void ownership_free(struct ownership *o)
{
	if (!o || atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) > 1)
		return;
	arena_release(&o->arena);
	free(o);
}

/* On the pool's thread, because a stopped loop does not open its mail. */
static void check_done(struct offload_job *job)
{
	struct ownership *o = container_of(job, struct ownership, read.job);
	const struct store_lookup *found = &o->read.lookup;
	bool is_other = found->result == 0 && (found->link.id != o->link || found->link.owner != o->owner);
	if (is_other || found->result == ERR_NOT_FOUND)
		atomic_store_explicit(&o->is_lost, true, memory_order_relaxed);
	arena_release(&o->arena);
	/* pairs with the acquire in ownership_is_held */
	atomic_store_explicit(&o->is_checking, false, memory_order_release);
	ownership_free(o);
}

static void check_submit(struct ownership *o)
{
	o->arena = (struct arena){0};
	o->read = (struct read_job){
	    .job.done = check_done,
	    .kind = READ_LINK,
	    .lookup = {.ref = links_ref(o->api->links, str_n(o->key, o->key_len)), .arena = &o->arena},
	};
	atomic_store_explicit(&o->is_checking, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
	if (offload_submit(o->api->readers, &o->read.job) == 0)
		return;
	atomic_store_explicit(&o->is_checking, false, memory_order_relaxed);
	ownership_free(o);
}

bool ownership_is_held(struct ownership *o, int64_t mono_ms)
{
	if (mono_ms - o->checked_ms >= OWNERSHIP_CHECK_MS &&
	    !atomic_load_explicit(&o->is_checking, memory_order_acquire)) {
		o->checked_ms = mono_ms;
		check_submit(o);
	}
	return !atomic_load_explicit(&o->is_lost, memory_order_relaxed);
}
