#include "sink/dimension_set.h"

#include "base/hash.h"

enum {
	NEW_DIMENSION_SETS_PER_DAY = 20000,
	DIMENSION_SETS_MAX = 200000,               /* ever */
	DIMENSION_SETS_SIMPLEST = 4 * VISIT_KINDS, /* reserved below both: results of the last stage */
};

void dimension_set_pack(struct buf *out, const struct dimension_set *set)
{
	out->len = 0;
	buf_char(out, (char)set->kind);
	for (int i = 0; i < DIM_COUNT; i++) {
		uint64_t len = set->dims[i].ptr ? set->dims[i].len + 1 : 0;
		buf_append(out, &len, sizeof(len));
		buf_str(out, set->dims[i]);
	}
}

/* Which dimensions of a new set become "(other)" once `new_sets` sets were new that day. The last stage keeps
 * only the kind, and whether source and bot are known. */
static const struct stage {
	int64_t new_sets;
	unsigned dims, dims_unknown; /* applied to known values; to unknown ones */
} stages[] = {
    {.new_sets = 14000, .dims = 1U << DIM_REFERRER},
    {.new_sets = 16000, .dims = 1U << DIM_LANGUAGE},
    {.new_sets = 18000, .dims = 1U << DIM_COUNTRY | 1U << DIM_BROWSER | 1U << DIM_OS | 1U << DIM_DEVICE},
    {.new_sets = NEW_DIMENSION_SETS_PER_DAY - DIMENSION_SETS_SIMPLEST,
     .dims = (1U << DIM_COUNT) - 1,
     .dims_unknown = (1U << DIM_COUNT) - 1 - (1U << DIM_SOURCE) - (1U << DIM_BOT)},
};

bool dimension_set_simplify(struct dimension_set *set, size_t stage, int64_t new_today, uint64_t ever)
{
	bool full = ever >= DIMENSION_SETS_MAX - DIMENSION_SETS_SIMPLEST;
	if (stage == ARRAY_LEN(stages) || (!full && new_today < stages[stage].new_sets))
		return false;
	for (int i = 0; i < DIM_COUNT; i++)
		if ((set->dims[i].ptr ? stages[stage].dims : stages[stage].dims_unknown) >> i & 1)
			set->dims[i] = STR("(other)");
	return true;
}

uint32_t dimension_set_visitor_hash(uint64_t visitor)
{
	if (visitor == 0)
		return 0;
	uint32_t hash = (uint32_t)hash_mix(visitor ^ 0x9e3779b97f4a7c15ULL, 0xbf58476d1ce4e5b9ULL);
	return hash ? hash : 1;
}
