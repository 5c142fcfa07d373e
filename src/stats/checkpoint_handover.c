#include "stats/checkpoint_handover.h"

#include "event/reader.h"
#include "obs/log.h"
#include "os/clock.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const files[] = {[OWNER_FORWARDER] = "forwarded", [OWNER_WORKER] = "counted"};

struct handover {
	const struct handover_config *config;
	struct arena *arena;
	struct checkpoint *all; /* merged so far */
	bool has_file[ARRAY_LEN(files)];
};

const char *handover_file(enum checkpoint_owner owner)
{
	return owner < ARRAY_LEN(files) ? files[owner] : NULL;
}

static const char *file_path(const struct handover *t, size_t file, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/%s", t->config->folder, files[file]);
	return out;
}

/* Merging */

struct event_counts event_counts_max(struct event_counts a, struct event_counts b)
{
	return (struct event_counts){
	    .clicks = MAX(a.clicks, b.clicks),
	    .orphans = MAX(a.orphans, b.orphans),
	    .impressions = MAX(a.impressions, b.impressions),
	    .rejected = MAX(a.rejected, b.rejected),
	    .dropped = MAX(a.dropped, b.dropped),
	};
}

static int by_position(const void *a, const void *b)
{
	const struct position *x = a, *y = b;
	if (x->stream != y->stream)
		return x->stream < y->stream ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Keeps the furthest position of each segment. */
static int positions_add(struct handover *t, const struct position *more, size_t count)
{
	struct checkpoint *all = t->all;
	struct position *both = arena_alloc(t->arena, (all->count + count + 1) * sizeof(*both));
	size_t n = 0;
	if (!both)
		return ERR_NOMEM;
	for (size_t i = 0; i < all->count; i++)
		both[n++] = all->positions[i];
	for (size_t i = 0; i < count; i++)
		both[n++] = more[i];
	qsort(both, n, sizeof(*both), by_position);
	all->positions = both;
	all->count = 0;
	for (size_t i = 0; i < n; i++) {
		bool is_last = i + 1 == n || both[i + 1].stream != both[i].stream;
		if (is_last)
			both[all->count++] = both[i];
	}
	return 0;
}

/* The sink */

static int sink_positions(const struct handover *t, uint64_t node, struct position **ret, size_t *ret_count,
                          struct err *e)
{
	struct sink *s = t->config->sink;
	int r = s->ops->resume(s, node, t->arena, ret, ret_count);
	return r < 0 ? err_set(e, r, "cannot read the event log's positions from the sink (%s)", err_name(r))
	             : 0;
}

int handover_consumed(struct sink *sink, uint64_t node, struct event_counts *ret, struct err *e)
{
	struct reconciliation reconciliation;
	int r = sink->ops->reconciliation(sink, node, false, &reconciliation);
	if (r < 0)
		return err_set(e, r, "cannot read the reconciliation from the sink (%s)", err_name(r));
	*ret = (struct event_counts){
	    .clicks = reconciliation.tally.clicks,
	    .orphans = reconciliation.tally.orphans,
	    .impressions = reconciliation.tally.impressions,
	    .rejected = reconciliation.tally.rejected,
	    .dropped = reconciliation.tally.dropped_clicks,
	};
	return 0;
}

/* Taking over */

/* Without a file, the sink may have kept the positions. */
static int take_from_sink(struct handover *t, uint64_t node, struct err *e)
{
	struct position *kept;
	size_t count;
	struct event_counts counts;
	uint64_t *segments;
	size_t segment_count = 0;
	int r = event_folder_list(t->config->folder, t->arena, &segments, &segment_count, e);
	if (r < 0 || segment_count == 0)
		return r == ERR_NOT_FOUND ? 0 : r;
	if (t->config->sink_is_unavailable)
		return err_set(e, ERR_UNAVAILABLE,
		               "only the sink knows how far the event log was read, and it is not available; "
		               "restart when it is");
	if (!t->config->sink->ops->resume)
		return 0;
	r = sink_positions(t, node, &kept, &count, e) ?: handover_consumed(t->config->sink, node, &counts, e);
	if (r == 0 && positions_add(t, kept, count) < 0)
		r = err_set(e, ERR_NOMEM, "out of memory");
	if (r == 0)
		t->all->counts = event_counts_max(t->all->counts, counts);
	return r;
}

static int take_into_file(struct handover *t, uint64_t node, struct err *e)
{
	char path[PATH_MAX];
	size_t own = t->config->owner, other = own == OWNER_FORWARDER ? OWNER_WORKER : OWNER_FORWARDER;
	int r = t->has_file[own] || t->has_file[other] ? 0 : take_from_sink(t, node, e);
	if (r == 0 && (!t->has_file[own] || t->has_file[other]))
		r = checkpoint_write(file_path(t, own, path), t->all, e);
	return r;
}

static int take_into_sink(struct handover *t, uint64_t node, struct err *e)
{
	struct position *kept = NULL;
	size_t count = 0;
	int r = sink_positions(t, node, &kept, &count, e);
	if (r == 0 && positions_add(t, kept, count) < 0)
		r = err_set(e, ERR_NOMEM, "out of memory");
	bool has_files = t->has_file[OWNER_FORWARDER] || t->has_file[OWNER_WORKER];
	if (r != 0 || !has_files)
		return r;
	/* A batch names the positions that it begins at, so the sink's must be those of the reader. */
	struct sink *s = t->config->sink;
	uint64_t duplicates;
	struct sink_batch batch = {.source = node, .now_ms = clock_real_ms()};
	struct advance *advances = arena_alloc(t->arena, (t->all->count + 1) * sizeof(*advances));
	if (!advances)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; i < t->all->count; i++) {
		const struct position *p = &t->all->positions[i];
		const struct position *found = NULL;
		for (size_t k = 0; k < count && !found; k++)
			found = kept[k].stream == p->stream ? &kept[k] : NULL;
		uint64_t from = found ? found->offset : 0;
		if (from < p->offset)
			advances[batch.advance_count++] = (struct advance){p->stream, from, p->offset};
	}
	batch.advances = advances;
	r = batch.advance_count > 0 ? s->ops->commit(s, &batch, &duplicates) : 0;
	if (r == 0 && s->ops->sync)
		r = s->ops->sync(s);
	return r < 0 ? err_set(e, r, "cannot store the event log's positions in the sink (%s)", err_name(r))
	             : 0;
}

int checkpoint_handover(const struct handover_config *c, uint64_t node, struct arena *arena,
                        struct checkpoint *ret, struct err *e)
{
	struct handover t = {.config = c, .arena = arena, .all = ret};
	*ret = (struct checkpoint){0};
	char path[PATH_MAX];
	int r = 0;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++) {
		struct checkpoint found;
		t.has_file[i] = access(file_path(&t, i, path), F_OK) == 0;
		if (!t.has_file[i])
			continue;
		r = checkpoint_read(path, t.arena, &found, e);
		if (r == 0 && positions_add(&t, found.positions, found.count) < 0)
			r = err_set(e, ERR_NOMEM, "out of memory");
		if (r == 0)
			t.all->counts = event_counts_max(t.all->counts, found.counts);
	}
	if (r == 0)
		r = c->owner == OWNER_SINK ? take_into_sink(&t, node, e) : take_into_file(&t, node, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++)
		if (t.has_file[i] && i != c->owner)
			unlink(file_path(&t, i, path));
	return r;
}
