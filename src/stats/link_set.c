#include "stats/link_set.h"

#include "base/hash.h"

#include <sodium.h>
#include <stdlib.h>

enum { CAP_MIN = 1024 };

static uint32_t *slot_of(const struct link_set *s, uint64_t link)
{
	size_t mask = 2 * s->cap - 1;
	size_t i = hash_u64(link, s->seed) & mask;
	while (s->slots[i] != 0 && s->all[s->slots[i] - 1].link != link)
		i = (i + 1) & mask;
	return &s->slots[i];
}

static int grow(struct link_set *s)
{
	size_t cap = s->cap ? 2 * s->cap : CAP_MIN;
	uint32_t *slots = calloc(2 * cap, sizeof(*slots));
	struct counter *all = slots ? reallocarray(s->all, cap, sizeof(*all)) : NULL;
	if (!all) {
		free(slots);
		return ERR_NOMEM;
	}
	if (s->cap == 0)
		randombytes_buf(&s->seed, sizeof(s->seed));
	free(s->slots);
	s->all = all;
	s->slots = slots;
	s->cap = cap;
	for (size_t i = 0; i < s->count; i++)
		*slot_of(s, s->all[i].link) = (uint32_t)i + 1;
	return 0;
}

int link_set_add(struct link_set *s, uint64_t link, uint64_t clicks)
{
	if (s->count == s->cap && grow(s) < 0)
		return ERR_NOMEM;
	uint32_t *slot = slot_of(s, link);
	if (*slot == 0) {
		s->all[s->count] = (struct counter){.link = link};
		*slot = (uint32_t)++s->count;
	}
	s->all[*slot - 1].clicks += clicks;
	return 0;
}

void link_set_reset(struct link_set *s)
{
	if (s->count > 0)
		memset(s->slots, 0, 2 * s->cap * sizeof(*s->slots));
	s->count = 0;
}

void link_set_release(struct link_set *s)
{
	free(s->all);
	free(s->slots);
	*s = (struct link_set){0};
}
