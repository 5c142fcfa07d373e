/* ClickHouse's format RowBinary: little-endian numbers, texts with a length prefix. Reads are
 * bounds-checked; after an overrun `bad` stays set, and reads return 0 or empty. */
#pragma once

#include "base/buf.h"

enum { ROW_TEXT_LENGTH_BYTES_MAX = 10 };

/* --- writing: into room that is there; what is behind it is returned --- */

#define ROW_PUT(name, type)                                   \
	static inline char *row_put_##name(char *out, type v) \
	{                                                     \
		memcpy(out, &v, sizeof(v));                   \
		return out + sizeof(v);                       \
	}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");
ROW_PUT(u8, uint8_t)
ROW_PUT(u16, uint16_t)
ROW_PUT(u32, uint32_t)
ROW_PUT(u64, uint64_t)
ROW_PUT(i64, int64_t)
#undef ROW_PUT

static inline char *row_put_bytes(char *out, const void *data, size_t len)
{
	if (len > 0)
		memcpy(out, data, len);
	return out + len;
}

static inline char *row_put_length(char *out, uint64_t len)
{
	for (; len >= 0x80; len >>= 7)
		*out++ = (char)(len | 0x80);
	*out++ = (char)len;
	return out;
}

/* --- reading --- */

struct row_reader {
	const char *at, *end;
	bool bad;
};

static inline struct row_reader row_reader_of(const struct buf *b)
{
	return (struct row_reader){.at = b->data, .end = b->data ? b->data + b->len : NULL};
}

/* True: another row follows. */
static inline bool row_more(const struct row_reader *r)
{
	return !r->bad && r->at < r->end;
}

static inline const char *row_take(struct row_reader *r, size_t len)
{
	if (r->bad || (size_t)(r->end - r->at) < len) {
		r->bad = true;
		return NULL;
	}
	const char *at = r->at;
	r->at += len;
	return at;
}

#define ROW_GET(name, type)                                 \
	static inline type row_##name(struct row_reader *r) \
	{                                                   \
		type v = 0;                                 \
		const char *at = row_take(r, sizeof(v));    \
		if (at)                                     \
			memcpy(&v, at, sizeof(v));          \
		return v;                                   \
	}
ROW_GET(u8, uint8_t)
ROW_GET(u16, uint16_t)
ROW_GET(u32, uint32_t)
ROW_GET(u64, uint64_t)
ROW_GET(i64, int64_t)
#undef ROW_GET

/* Valid as long as the response. */
static inline struct str row_text(struct row_reader *r)
{
	uint64_t len = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = row_u8(r);
		len |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			break;
	}
	const char *at = row_take(r, len);
	return at ? str_n(at, len) : STR("");
}

/* Every row of a response ends with a zero byte; see client/clickhouse.h. */
static inline void row_end(struct row_reader *r)
{
	r->bad |= row_u8(r) != 0;
}
