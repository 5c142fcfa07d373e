#include "link/follow.h"

#include "link/links_private.h"
#include "obs/log.h"
#include "os/task.h"

#include <stdlib.h>

enum { FOLLOW_MS = 500, PAGE_TRANSACTIONS = 200 };

struct feed_task {
	struct task task;
	struct links *links;
	size_t shard;
	struct feed_cursor cursor;
	bool has_begun; /* `cursor` is valid */
	bool is_failing;
};

struct links_follower {
	size_t count;
	struct feed_task tasks[];
};

static int page_read(struct feed_task *t, struct feed_page *page)
{
	int r = store_feed(t->links->store, page);
	if ((r != 0) != t->is_failing) {
		t->is_failing = r != 0;
		if (r != 0)
			log_warn("link", "change feed failed, retrying shard=%zu error=%s", t->shard,
			         err_name(r));
		else
			log_info("link", "change feed recovered shard=%zu", t->shard);
	}
	return r;
}

/* After a failed start, links cached before the cursor may have changed already. */
static int64_t feed_run(struct task *task)
{
	struct feed_task *t = container_of(task, struct feed_task, task);
	CLEANUP(arena_release) struct arena arena = {0};
	struct feed_page page = {.shard = t->shard,
	                         .cursor = t->cursor,
	                         .from_end = !t->has_begun,
	                         .max = PAGE_TRANSACTIONS,
	                         .arena = &arena};
	bool was_failing = t->is_failing;
	if (page_read(t, &page) != 0)
		return FOLLOW_MS;
	if (page.lost || (!t->has_begun && was_failing))
		links_feed_lost(t->links);
	for (size_t i = 0; i < page.count; i++) {
		const struct feed_entry *e = &page.entries[i];
		if (e->kind == FEED_LINK_MADE)
			links_created_elsewhere(t->links, e->name, e->id);
		else
			links_changed_elsewhere(t->links, e->name);
	}
	t->cursor = page.cursor;
	t->has_begun = true;
	return page.more ? 0 : FOLLOW_MS;
}

int links_follow_start(struct links *l, struct links_follower **ret, struct err *e)
{
	size_t count = store_shard_count(l->store);
	*ret = NULL;
	if (!l->is_shared || !l->cache)
		return 0;
	struct links_follower *f = calloc(1, sizeof(*f) + count * sizeof(f->tasks[0]));
	if (!f)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = 0;
	for (f->count = 0; r == 0 && f->count < count; f->count++) {
		struct feed_task *t = &f->tasks[f->count];
		t->links = l;
		t->shard = f->count;
		/* The first read is before anything is cached. */
		const struct task_config config = {
		    .name = "feed", .run = feed_run, .first_ms = feed_run(&t->task)};
		r = task_start(&t->task, &config, e);
	}
	if (r < 0) {
		links_follow_stop(f);
		return r;
	}
	*ret = f;
	return 0;
}

void links_follow_stop(struct links_follower *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->count; i++)
		task_ask_stop(&f->tasks[i].task);
	for (size_t i = 0; i < f->count; i++)
		task_stop(&f->tasks[i].task);
	free(f);
}
