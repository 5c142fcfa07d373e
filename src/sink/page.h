/*
 * What pages of single visits have in common in all sinks that keep a secret: a cursor is a link, a minute
 * and a place within it, with a check that says that we made it. Addresses and places as people read them.
 */
#pragma once

#include "base/arena.h"
#include "sink/keyed.h"
#include "sink/sink.h"

/* Where the next page goes on: behind the last visit of the page before. */
struct page_from {
	int64_t minute_ms;
	uint64_t rank; /* within the minute */
};

/* STR_NULL when memory ran out. */
struct str page_cursor(struct arena *arena, const uint8_t key[SINK_KEY_BYTES], uint64_t link,
                       struct page_from at);

/* 0, or ERR_INVALID when the query's cursor never was one of its link, or the query makes no sense. Without a
 * cursor all is before *ret. */
int page_check(const struct visits_query *q, const uint8_t key[SINK_KEY_BYTES], struct page_from *ret);

/* "192.0.2.0/24" of so many bytes; STR_NULL when there are none, or memory ran out. */
struct str page_address(struct arena *arena, const uint8_t *bytes, size_t len);

/* "region\ncity" into the two; the parts lie in `place`. */
void page_place(struct str place, struct stats_visit *to);
