#include "sink/day_sketches.h"

void day_sketches_init(struct day_sketches *s)
{
	sketch_init(&s->people);
	sketch_init(&s->bots);
	s->is_mixed = false;
}

bool day_sketches_read(struct day_sketches *ret, struct str people, struct str bots)
{
	ret->is_mixed = !bots.ptr;
	return sketch_read(&ret->people, people.ptr, people.len) &&
	       sketch_read(&ret->bots, bots.ptr, bots.len);
}

bool day_sketches_add(struct day_sketches *s, uint32_t hash, bool is_bot)
{
	return sketch_add(is_bot && !s->is_mixed ? &s->bots : &s->people, hash);
}

bool day_sketches_select(const struct day_sketches *s, enum stats_bots bots, struct sketch *ret)
{
	*ret = bots == BOTS_ONLY ? s->bots : s->people;
	if (bots == BOTS_INCLUDED)
		sketch_merge(ret, &s->bots);
	return bots == BOTS_INCLUDED || !s->is_mixed;
}
