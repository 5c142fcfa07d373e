#include "base/ring.h"

#include <stdlib.h>

struct point {
	uint64_t at;
	uint32_t member;
};

struct ring {
	size_t point_count;
	struct point points[];
};

/* FNV-1a, and MurmurHash3's last step so that short names scatter over all bits. */
static uint64_t hash_step(uint64_t h, const void *data, size_t len)
{
	const unsigned char *p = data;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	return h;
}

static uint64_t hash_end(uint64_t h)
{
	h = (h ^ h >> 33) * 0xff51afd7ed558ccdULL;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return h ^ h >> 33;
}

enum { HASH_POINT = 1, HASH_KEY = 2 };
#define HASH_BEGIN 0xcbf29ce484222325ULL

static uint64_t hash_point(struct str name, unsigned number)
{
	const unsigned char head[] = {HASH_POINT, (unsigned char)number, (unsigned char)(number >> 8)};
	return hash_end(hash_step(hash_step(HASH_BEGIN, head, sizeof(head)), name.ptr, name.len));
}

static uint64_t hash_key(struct str key)
{
	const unsigned char head[] = {HASH_KEY};
	return hash_end(hash_step(hash_step(HASH_BEGIN, head, sizeof(head)), key.ptr, key.len));
}

struct named_point {
	struct point point;
	struct str name;
};

/* Two members at one point: the smaller name has it, whatever order they were given in. */
static int point_compare(const void *a, const void *b)
{
	const struct named_point *x = a, *y = b;
	if (x->point.at != y->point.at)
		return x->point.at < y->point.at ? -1 : 1;
	return str_order(x->name, y->name);
}

struct ring *ring_new(const struct str *names, size_t n)
{
	size_t count = n * RING_POINTS;
	struct ring *r = malloc(sizeof(*r) + count * sizeof(r->points[0]));
	struct named_point *points = calloc(count + 1, sizeof(*points));
	if (!r || !points) {
		free(r);
		free(points);
		return NULL;
	}
	for (size_t i = 0; i < count; i++) {
		size_t member = i / RING_POINTS;
		points[i].name = names[member];
		points[i].point.member = (uint32_t)member;
		points[i].point.at = hash_point(names[member], (unsigned)(i % RING_POINTS));
	}
	qsort(points, count, sizeof(*points), point_compare);
	r->point_count = count;
	for (size_t i = 0; i < count; i++)
		r->points[i] = points[i].point;
	free(points);
	return r;
}

void ring_free(struct ring *r)
{
	free(r);
}

/* The first point at or behind `at`; the first of all behind the last. */
static size_t point_find(const struct ring *r, uint64_t at)
{
	size_t low = 0, high = r->point_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (r->points[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low == r->point_count ? 0 : low;
}

size_t ring_find(const struct ring *r, struct str key)
{
	return r->point_count ? r->points[point_find(r, hash_key(key))].member : 0;
}
