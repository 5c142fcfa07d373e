/*
 * Cursors of pages of single visits, for sinks that have a secret, and the text form of addresses and places.
 * The text of a cursor contains a keyed check, so that only cursors made here are accepted.
 */
#pragma once

#include "base/arena.h"
#include "sink/keyed.h"
#include "sink/sink.h"

/* The last visit of the previous page: the next page continues after it. */
struct page_cursor {
	int64_t minute_ms;
	uint64_t rank; /* within the minute */
};

/* STR_NULL when memory ran out. */
struct str page_cursor_text(struct arena *arena, const uint8_t key[SINK_KEY_BYTES], uint64_t link,
                            struct page_cursor at);

/* Parses the query's cursor; without one, *ret is before the newest visit. ERR_INVALID if it was not made for
 * this link, or if the query itself is invalid. */
int page_cursor_parse(const struct visits_query *q, const uint8_t key[SINK_KEY_BYTES],
                      struct page_cursor *ret);

/* "192.0.2.0/24" for 3 or 6 bytes; STR_NULL without an address, or when memory ran out. */
struct str page_address(struct arena *arena, const uint8_t *bytes, size_t len);

/* Splits "region\ncity"; the results point into `place`. */
void page_place(struct str place, struct stats_visit *to);
