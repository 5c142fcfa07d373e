#include "handler/live_clicks.h"

enum { STEP_MAX = COUNTERS_GET_MAX };

void live_clicks_raise(const struct api *api, struct sink_total *totals, size_t n)
{
	struct counter counters[STEP_MAX];
	for (size_t from = 0; api->counters && from < n; from += STEP_MAX) {
		size_t count = MIN(n - from, (size_t)STEP_MAX);
		for (size_t i = 0; i < count; i++)
			counters[i] = (struct counter){.link = totals[from + i].link};
		api->counters->ops->get(api->counters, counters, count); /* marks those it could not read */
		for (size_t i = 0; i < count; i++) {
			if (!counters[i].is_missing)
				totals[from + i].clicks = MAX(totals[from + i].clicks, counters[i].clicks);
		}
	}
}

void live_clicks_show(const struct api *api, struct link_record *links, size_t n)
{
	struct sink_total totals[STEP_MAX];
	for (size_t from = 0; api->counters && from < n; from += STEP_MAX) {
		size_t count = MIN(n - from, (size_t)STEP_MAX);
		for (size_t i = 0; i < count; i++)
			totals[i] = (struct sink_total){.link = links[from + i].id,
			                                .clicks = links[from + i].clicks};
		live_clicks_raise(api, totals, count);
		for (size_t i = 0; i < count; i++)
			links[from + i].clicks = totals[i].clicks;
	}
}
