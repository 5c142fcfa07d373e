#include "sink/sqlite_codec.h"

#include "base/grow.h"
#include <stdlib.h>

uint64_t varint_get_long(struct blob_reader *r)
{
	uint64_t value = 0;
	for (unsigned shift = 0; r->at < r->end && shift < 64; shift += 7) {
		uint8_t byte = *r->at++;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
	r->bad = true;
	r->at = r->end;
	return 0;
}

/* --- counts --- */

void counts_release(struct counts *c)
{
	free(c->items);
	*c = (struct counts){0};
}

int counts_append(struct counts *c, uint64_t id, uint64_t n)
{
	ASSERT(c->count == 0 || c->items[c->count - 1].id < id);
	if (!ARRAY_ROOM(c->items, c->cap, c->count + 1))
		return ERR_NOMEM;
	c->items[c->count++] = (struct count){.id = id, .n = n};
	return 0;
}

static int counts_read(struct counts *c, struct str blob)
{
	struct counts_reader r = {.blob = blob_reader_of(blob)};
	struct count item;
	while (counts_next(&r, &item)) {
		if (c->count > 0 && item.id <= c->items[c->count - 1].id)
			return ERR_CORRUPT;
		if (counts_append(c, item.id, item.n) != 0)
			return ERR_NOMEM;
	}
	return r.blob.bad ? ERR_CORRUPT : 0;
}

static int counts_add(struct counts *c, const struct counts *more)
{
	CLEANUP(counts_release) struct counts sum = {0};
	size_t i = 0, j = 0;
	int r = 0;
	while (r == 0 && (i < c->count || j < more->count)) {
		uint64_t left = i < c->count ? c->items[i].id : UINT64_MAX;
		uint64_t right = j < more->count ? more->items[j].id : UINT64_MAX;
		uint64_t n = 0;
		if (i < c->count && left <= right)
			n += c->items[i++].n;
		if (j < more->count && right <= left)
			n += more->items[j++].n;
		r = counts_append(&sum, MIN(left, right), n);
	}
	if (r == 0) {
		struct counts old = *c;
		*c = sum;
		sum = old;
	}
	return r;
}

int counts_add_blob(struct counts *c, struct str blob)
{
	if (c->count == 0)
		return counts_read(c, blob);
	CLEANUP(counts_release) struct counts more = {0};
	return counts_read(&more, blob) ?: counts_add(c, &more);
}

void counts_write(const struct counts *c, struct buf *out)
{
	uint8_t *at = (uint8_t *)buf_reserve(out, c->count * 2 * VARINT_BYTES_MAX);
	if (!at)
		return;
	uint64_t before = 0;
	for (size_t i = 0; i < c->count; i++) {
		at = varint_put(at, c->items[i].id - before);
		at = varint_put(at, c->items[i].n);
		before = c->items[i].id;
	}
	out->len = (size_t)((char *)at - out->data);
}

uint64_t counts_sum(const struct counts *c)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < c->count; i++)
		sum += c->items[i].n;
	return sum;
}

/* --- runs --- */

enum { MINUTES_MAX = 24 * 60 }; /* of the largest cell */

void runs_release(struct runs *r)
{
	free(r->items);
	*r = (struct runs){0};
}

int runs_append(struct runs *r, struct run run)
{
	if (!ARRAY_ROOM(r->items, r->cap, r->count + 1))
		return ERR_NOMEM;
	r->items[r->count++] = run;
	return 0;
}

int runs_add_blob(struct runs *r, struct str blob, uint64_t minutes)
{
	struct blob_reader b = blob_reader_of(blob);
	struct run run = {0};
	while (b.at < b.end) {
		uint64_t minute = varint_get(&b), gap = varint_get(&b), count = varint_get(&b);
		run = (struct run){.minute = run.minute + minute,
		                   .first = run.first + run.count + (uint64_t)zigzag_back(gap),
		                   .count = count};
		if (b.bad || run.minute >= MINUTES_MAX || run.first > INT64_MAX ||
		    count > INT64_MAX - run.first)
			return ERR_CORRUPT;
		struct run moved = run;
		moved.minute += minutes;
		if (runs_append(r, moved) != 0)
			return ERR_NOMEM;
	}
	return b.bad ? ERR_CORRUPT : 0;
}

static int run_compare(const void *a, const void *b)
{
	const struct run *x = a, *y = b;
	if (x->minute != y->minute)
		return x->minute < y->minute ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

int runs_rotate(struct runs *r, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (runs_append(r, r->items[i]) != 0)
			return ERR_NOMEM;
	r->count -= count;
	memmove(r->items, r->items + count, r->count * sizeof(*r->items));
	return 0;
}

void runs_normalize(struct runs *r, uint64_t first)
{
	bool is_sorted = true; /* nearly always */
	for (size_t i = 1; is_sorted && i < r->count; i++)
		is_sorted = run_compare(&r->items[i - 1], &r->items[i]) <= 0;
	if (!is_sorted)
		qsort(r->items, r->count, sizeof(*r->items), run_compare);
	size_t kept = 0;
	for (size_t i = 0, end = 0; i < r->count; i++) {
		if (i == end) {
			/* A minute's last run has its largest ids. */
			for (end = i + 1; end < r->count && r->items[end].minute == r->items[i].minute;)
				end++;
			if (r->items[end - 1].first + r->items[end - 1].count <= first) {
				i = end - 1;
				continue;
			}
		}
		struct run run = r->items[i];
		struct run *last = kept > 0 ? &r->items[kept - 1] : NULL;
		if (last && last->minute == run.minute && last->first + last->count == run.first)
			last->count += run.count;
		else
			r->items[kept++] = run;
	}
	r->count = kept;
}

void runs_write(const struct runs *r, struct buf *out)
{
	uint8_t *at = (uint8_t *)buf_reserve(out, r->count * 3 * VARINT_BYTES_MAX);
	if (!at)
		return;
	struct run before = {0};
	for (size_t i = 0; i < r->count; i++) {
		struct run run = r->items[i];
		at = varint_put(at, run.minute - before.minute);
		at = varint_put(at, zigzag((int64_t)(run.first - before.first - before.count)));
		at = varint_put(at, run.count);
		before = run;
	}
	out->len = (size_t)((char *)at - out->data);
}

/* --- visits --- */

uint8_t *visit_details_put(uint8_t *out, const struct visit_details *d)
{
	out = varint_put(out, d->agent);
	out = varint_put(out, d->referrer);
	out = varint_put(out, d->place);
	out = varint_put(out, d->path);
	*out++ = d->address_len;
	memcpy(out, d->address, d->address_len);
	return out + d->address_len;
}

void visit_details_get(struct blob_reader *r, struct visit_details *ret)
{
	*ret = (struct visit_details){0};
	ret->agent = varint_get(r);
	ret->referrer = varint_get(r);
	ret->place = varint_get(r);
	ret->path = varint_get(r);
	uint64_t len = varint_get(r);
	if (len > ADDRESS_BYTES_MAX || len > (size_t)(r->end - r->at)) {
		r->bad = true;
		r->at = r->end;
		return;
	}
	ret->address_len = (uint8_t)len;
	memcpy(ret->address, r->at, len);
	r->at += len;
}

void visit_details_skip(struct blob_reader *r)
{
	struct visit_details ignored;
	visit_details_get(r, &ignored);
}
