/*
 * Dimension sets as databases number them. Visitors choose most of their values, so the number of new sets is
 * bounded per day and in total. Close to a bound, more and more dimensions of a new set become "(other)".
 */
#pragma once

#include "base/buf.h"
#include "sink/sink.h"

/* The columns of a numbered set, in the order of enum visit_dim. */
#define DIMENSION_SET_DIMS "referrer, country, browser, os, device, language, source, bot"

/* An unambiguous encoding: equal bytes mean equal sets. Replaces what `out` held. */
void dimension_set_pack(struct buf *out, const struct dimension_set *set);

/* Applies simplification `stage` (0, 1, …) to a new set, given how many were new today and exist in all.
 * Returns false if the set may be added as it is. */
bool dimension_set_simplify(struct dimension_set *set, size_t stage, int64_t new_today, uint64_t ever);

/* The 32 bits of a visitor that a sketch stores; 0: none. More bits would not help, and reveal more. */
uint32_t dimension_set_visitor_hash(uint64_t visitor);
