/*
 * The visitors of a link on a day, as SQLite and PostgreSQL store them: a sketch of people and one of bots,
 * so that a query can leave either out. Their union is the sketch of all visitors.
 */
#pragma once

#include "base/str.h"
#include "sink/sink.h"
#include "sink/sketch.h"

struct day_sketches {
	struct sketch people, bots;
	bool
	    is_mixed; /* the row is from before there were two sketches: `people` has all visitors, and stays so */
};

void day_sketches_init(struct day_sketches *s);

/* The stored forms; STR_NULL for `bots`: is_mixed. False: not valid. */
bool day_sketches_read(struct day_sketches *ret, struct str people, struct str bots);

/* True if that changed a sketch. */
bool day_sketches_add(struct day_sketches *s, uint32_t hash, bool is_bot);

/* The sketch of the visitors that `bots` selects. False: a mixed row does not say. */
bool day_sketches_select(const struct day_sketches *s, enum stats_bots bots, struct sketch *ret);
