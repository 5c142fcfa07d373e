/*
 * The encoding of blobs in the stats file. Numbers are varints: seven bits a byte, lowest first, the top bit
 * set if more follow. Most are stored as the difference from the previous item. Signed numbers are
 * zigzag-encoded (0, -1, 1, -2, …). Readers never leave the blob, and detect invalid bytes.
 *
 *	blob      items, one after the other                               order
 *	counts    id - previous id, count                                  id
 *	          (visits per dimension set, or impressions per ad)
 *	runs      minute - previous minute, first - end of previous run,   minute, first
 *	          count
 *	          (the ids of a cell's visits; minutes from the cell's start)
 *	keys      time - previous time, link - previous link,              of the visits
 *	          id of the dimension set * 2 + is a click
 *	details   agent, referrer, place, path, length and address         of the same visits
 */
#pragma once

#include "base/buf.h"
#include "sink/sink.h"

enum { VARINT_BYTES_MAX = 10 };

static inline uint8_t *varint_put(uint8_t *out, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*out++ = (uint8_t)(value | 0x80);
	*out++ = (uint8_t)value;
	return out;
}

/* `bad` is sticky; everything reads as 0 after it. */
struct blob_reader {
	const uint8_t *at;
	const uint8_t *end;
	bool bad;
};

static inline struct blob_reader blob_reader_of(struct str blob)
{
	const uint8_t *data = (const uint8_t *)blob.ptr;
	return (struct blob_reader){.at = data, .end = data + blob.len};
}

uint64_t varint_get_long(struct blob_reader *r);

static inline uint64_t varint_get(struct blob_reader *r)
{
	if (LIKELY(r->at < r->end && *r->at < 0x80))
		return *r->at++;
	return varint_get_long(r);
}

static inline uint64_t zigzag(int64_t value)
{
	return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int64_t zigzag_back(uint64_t value)
{
	return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* --- counts --- */

struct count {
	uint64_t id;
	uint64_t n;
};

struct counts {
	struct count *items; /* by rising id, each once */
	size_t count, cap;
};

void counts_release(struct counts *c);
int counts_append(struct counts *c, uint64_t id, uint64_t n); /* `id` must be the largest; 0, ERR_NOMEM */

/* Adds the counts of a blob. 0, ERR_NOMEM, ERR_CORRUPT. */
int counts_add_blob(struct counts *c, struct str blob);
void counts_write(const struct counts *c, struct buf *out);
uint64_t counts_sum(const struct counts *c);

/* Iterates over a blob; false at the end, or when `bad`. */
struct counts_reader {
	struct blob_reader blob;
	uint64_t id;
};

static inline bool counts_next(struct counts_reader *r, struct count *ret)
{
	if (r->blob.at == r->blob.end || r->blob.bad)
		return false;
	r->id += varint_get(&r->blob);
	*ret = (struct count){.id = r->id, .n = varint_get(&r->blob)};
	return !r->blob.bad;
}

/* --- runs --- */

struct run {
	uint64_t minute; /* from the cell's start */
	uint64_t first;  /* id of its first visit */
	uint64_t count;
};

struct runs {
	struct run *items;
	size_t count, cap;
};

void runs_release(struct runs *r);
int runs_append(struct runs *r, struct run run); /* in any order */

/* Adds the runs of a blob, with `minutes` added to each minute. */
int runs_add_blob(struct runs *r, struct str blob, uint64_t minutes);

/* Moves the first `count` to the end. */
int runs_rotate(struct runs *r, size_t count);

/* Sorts, joins adjacent runs, and drops minutes whose visits are all before `first`. A minute with any visit
 * left keeps all its runs: the rank of a visit in its minute must not change. */
void runs_normalize(struct runs *r, uint64_t first);
void runs_write(const struct runs *r, struct buf *out);

/* --- visits --- */

struct visit_key {
	int64_t time_ms;
	uint64_t link; /* 0: orphan */
	uint32_t set;
	bool click;
};

struct visit_details {
	uint64_t agent, referrer, place, path; /* ids in the table `text`; 0: none */
	uint8_t address_len;
	uint8_t address[ADDRESS_BYTES_MAX];
};

/* Zero-initialised at the start of each blob, for the writer and for the reader. */
struct keys_state {
	int64_t time_ms;
	uint64_t link;
};

enum {
	KEY_BYTES_MAX = 3 * VARINT_BYTES_MAX,
	DETAILS_BYTES_MAX = 4 * VARINT_BYTES_MAX + 1 + ADDRESS_BYTES_MAX
};

static inline uint8_t *visit_key_put(uint8_t *out, struct keys_state *s, const struct visit_key *key)
{
	out = varint_put(out, zigzag((int64_t)((uint64_t)key->time_ms - (uint64_t)s->time_ms)));
	out = varint_put(out, zigzag((int64_t)(key->link - s->link)));
	out = varint_put(out, (uint64_t)key->set << 1 | key->click);
	*s = (struct keys_state){.time_ms = key->time_ms, .link = key->link};
	return out;
}

static inline void visit_key_get(struct blob_reader *r, struct keys_state *s, struct visit_key *ret)
{
	s->time_ms = (int64_t)((uint64_t)s->time_ms + (uint64_t)zigzag_back(varint_get(r)));
	s->link += (uint64_t)zigzag_back(varint_get(r));
	uint64_t set = varint_get(r);
	*ret = (struct visit_key){
	    .time_ms = s->time_ms, .link = s->link, .set = (uint32_t)(set >> 1), .click = set & 1};
}

uint8_t *visit_details_put(uint8_t *out, const struct visit_details *d);
void visit_details_get(struct blob_reader *r, struct visit_details *ret);
void visit_details_skip(struct blob_reader *r);
