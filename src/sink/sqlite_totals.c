/*
 * Clicks of single links, ever: a row for each link has what is digested, and stays when its cells go; what
 * is fresh is looked through once for all links that are asked about.
 */
#include "base/hash.h"
#include "sink/sqlite_sink.h"

/* Open addressing, at most half full; 0 is an empty slot, so orphans find nothing. */
enum { WANTED_SLOTS = 2 * SINK_CLICKS_MAX };

struct wanted {
	size_t mask; /* of the slots in use: few links are found in few cache lines */
	struct sink_total slots[WANTED_SLOTS];
};

static struct sink_total *wanted_slot(struct wanted *w, uint64_t link)
{
	size_t at = hash_u64(link, 0x2d358dccaa6c78a5ULL) & w->mask;
	while (w->slots[at].link != 0 && w->slots[at].link != link)
		at = (at + 1) & w->mask;
	return &w->slots[at];
}

static int wanted_buffered(void *arg, uint64_t ordinal, const struct visit_key *key, uint32_t visitor)
{
	(void)ordinal;
	(void)visitor;
	if (!key->click)
		return SQLITE_OK;
	struct sink_total *slot = wanted_slot(arg, key->link);
	if (slot->link != 0)
		slot->clicks++;
	return SQLITE_OK;
}

int sqlite_clicks_get(struct sqlite_conn *c, struct sink_total *links, size_t n)
{
	struct wanted w;
	size_t count = 2;
	while (count < 2 * n)
		count *= 2;
	w.mask = count - 1;
	memset(w.slots, 0, count * sizeof(*w.slots));
	for (size_t i = 0; i < n; i++)
		wanted_slot(&w, links[i].link)->link = links[i].link;
	int rc = buffer_each(c, wanted_buffered, &w);
	for (size_t i = 0; rc == SQLITE_OK && i <= w.mask; i++) {
		int64_t digested = 0;
		if (w.slots[i].link != 0)
			rc = FIND(c, SQL_TOTAL_GET, &digested, 1, w.slots[i].link);
		w.slots[i].clicks += (uint64_t)digested;
	}
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		links[i].clicks = links[i].link ? wanted_slot(&w, links[i].link)->clicks : 0;
	return rc;
}
