/*
 * Shapes as they are numbered. Visitors choose most of what is in them, so a day brings a bounded number of
 * new ones, and all days together too; towards the bound more and more of a new one becomes "(other)".
 */
#pragma once

#include "base/buf.h"
#include "sink/sink.h"

/* Columns of databases that number them, in the order of enum visit_dim. */
#define DIMENSION_SET_DIMS "referrer, country, browser, os, device, language, source, bot"

/* The same bytes for the same shape, and for no other. */
void dimension_set_pack(struct buf *out, const struct dimension_set *set);

/* A shape that is new: makes it plainer for that stage (0, 1, ...) when so many came that day and ever; false
 * when it may be new as it is. */
bool dimension_set_simplify(struct dimension_set *set, size_t stage, int64_t new_today, uint64_t ever);

/* What a sketch remembers of a visitor; 0: nobody. 32 bits are enough for it, and say less about anybody. */
uint32_t dimension_set_visitor_hash(uint64_t visitor);
