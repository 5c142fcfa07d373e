#include "handler/live_clicks.h"

enum { STEP_MAX = COUNTERS_GET_MAX };

static void raise_some(struct counters *counters, struct sink_total *totals, size_t n)
{
	struct counter asked[STEP_MAX];
	for (size_t i = 0; i < n; i++)
		asked[i] = (struct counter){.link = totals[i].link};
	counters->ops->get(counters, asked, n); /* marks those it could not read */
	for (size_t i = 0; i < n; i++) {
		if (!asked[i].is_missing)
			totals[i].clicks = MAX(totals[i].clicks, asked[i].clicks);
	}
}

void live_clicks_raise(const struct api *api, struct sink_total *totals, size_t n)
{
	for (size_t i = 0; api->counters && i < n; i += STEP_MAX)
		raise_some(api->counters, totals + i, MIN(n - i, (size_t)STEP_MAX));
}

static void show_some(const struct api *api, struct link_record *links, size_t n)
{
	struct sink_total totals[STEP_MAX];
	for (size_t i = 0; i < n; i++)
		totals[i] = (struct sink_total){.link = links[i].id, .clicks = links[i].clicks};
	live_clicks_raise(api, totals, n);
	for (size_t i = 0; i < n; i++)
		links[i].clicks = totals[i].clicks;
}

void live_clicks_show(const struct api *api, struct link_record *links, size_t n)
{
	for (size_t i = 0; api->counters && i < n; i += STEP_MAX)
		show_some(api, links + i, MIN(n - i, (size_t)STEP_MAX));
}
