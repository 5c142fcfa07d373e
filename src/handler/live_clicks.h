/* The clicks of links as of a moment ago. The link store is told of them now and then only, and a sink that
 * others write to may be late; where there are counters, they know better. On a pool's thread: it may wait as
 * long as a server of the counters may take to answer. Those that they do not know stay as they are. */
#pragma once

#include "handler/api.h"

/* Raises totals to the live ones. */
void live_clicks_raise(const struct api *api, struct sink_total *totals, size_t n);

/* The same for links that were read from the store. */
void live_clicks_show(const struct api *api, struct link_record *links, size_t n);
