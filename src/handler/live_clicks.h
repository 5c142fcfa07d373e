/*
 * Click counts that are seconds old at most. The store gets them only now and then, and a shared sink may
 * lag; the counters (seen.url) are ahead of both. Unknown counts stay as they are. Pool threads: a call
 * may wait for the counters' servers.
 */
#pragma once

#include "handler/api.h"

/* Raises totals to the live counts. */
void live_clicks_raise(const struct api *api, struct sink_total *totals, size_t n);

/* The same for links that were read from the store. */
void live_clicks_show(const struct api *api, struct link_record *links, size_t n);
