/* How values travel to and from PostgreSQL: binary, big-endian. */
#include "client/postgres.h"

#include <endian.h>
#include <string.h>

/* Object ids of element types; fixed for ever in PostgreSQL's catalogue. */
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_TEXT = 25 };

struct pg_query pg_query(struct pg_conn *c, const struct pg_statement *statement)
{
	return (struct pg_query){.conn = c, .statement = statement};
}

static void value_add(struct pg_query *q, const void *v, size_t n)
{
	ASSERT(q->count < PG_PARAMS_MAX && n <= INT32_MAX);
	q->values[q->count] = v;
	q->lengths[q->count] = (int)n;
	q->count++;
}

void pg_int(struct pg_query *q, int64_t v)
{
	ASSERT(q->count < PG_PARAMS_MAX);
	q->numbers[q->count] = htobe64((uint64_t)v);
	value_add(q, &q->numbers[q->count], sizeof(uint64_t));
}

void pg_bool(struct pg_query *q, bool v)
{
	static const char bytes[2] = {0, 1};
	value_add(q, &bytes[v], 1);
}

void pg_text(struct pg_query *q, struct str v)
{
	value_add(q, v.ptr, v.len);
}

void pg_bytes(struct pg_query *q, const void *v, size_t n)
{
	value_add(q, v, n);
}

/* --- arrays --- */

static char *put_u32(char *at, uint32_t v)
{
	uint32_t wire = htobe32(v);
	memcpy(at, &wire, sizeof(wire));
	return at + sizeof(wire);
}

enum { ARRAY_HEAD_BYTES = 20 };

static char *array_head(char *at, uint32_t element, size_t n)
{
	at = put_u32(at, 1); /* dimensions */
	at = put_u32(at, 1); /* NULLs may come */
	at = put_u32(at, element);
	at = put_u32(at, (uint32_t)n);
	return put_u32(at, 1); /* the first one's number */
}

static char *array_room(struct pg_query *q, size_t bytes)
{
	char *room = bytes <= INT32_MAX ? arena_alloc(&q->arena, bytes) : NULL;
	if (!room)
		q->failed = true;
	value_add(q, room, room ? bytes : 0);
	return room;
}

void pg_ints_of(struct pg_query *q, const void *items, size_t size, size_t offset, size_t n)
{
	char *at = array_room(q, ARRAY_HEAD_BYTES + n * (sizeof(uint32_t) + sizeof(uint64_t)));
	if (!at)
		return;
	at = array_head(at, OID_INT8, n);
	for (size_t i = 0; i < n; i++) {
		uint64_t value;
		memcpy(&value, (const char *)items + i * size + offset, sizeof(value));
		value = htobe64(value);
		at = put_u32(at, sizeof(value));
		memcpy(at, &value, sizeof(value));
		at += sizeof(value);
	}
}

void pg_ints(struct pg_query *q, const int64_t *v, size_t n)
{
	pg_ints_of(q, v, sizeof(*v), 0, n);
}

static void strs_add(struct pg_query *q, uint32_t element, const void *items, size_t size, size_t offset,
                     size_t n)
{
	size_t bytes = ARRAY_HEAD_BYTES;
	for (size_t i = 0; i < n; i++) {
		const struct str *v = (const void *)((const char *)items + i * size + offset);
		bytes += sizeof(uint32_t) + v->len;
	}
	char *at = array_room(q, bytes);
	if (!at)
		return;
	at = array_head(at, element, n);
	for (size_t i = 0; i < n; i++) {
		const struct str *v = (const void *)((const char *)items + i * size + offset);
		at = put_u32(at, v->ptr ? (uint32_t)v->len : UINT32_MAX);
		if (v->ptr)
			memcpy(at, v->ptr, v->len);
		at += v->len;
	}
}

void pg_texts(struct pg_query *q, const struct str *v, size_t n)
{
	strs_add(q, OID_TEXT, v, sizeof(*v), 0, n);
}

void pg_blobs_of(struct pg_query *q, const void *items, size_t size, size_t offset, size_t n)
{
	strs_add(q, OID_BYTEA, items, size, offset, n);
}

void pg_blobs(struct pg_query *q, const struct str *v, size_t n)
{
	pg_blobs_of(q, v, sizeof(*v), 0, n);
}

void pg_bind(struct pg_query *q, const struct pg_value *values, size_t n)
{
	for (const struct pg_value *v = values; v < values + n; v++) {
		switch (v->kind) {
		case PG_VALUE_INT: pg_int(q, v->number); break;
		case PG_VALUE_TEXT: pg_text(q, v->text); break;
		case PG_VALUE_INTS: pg_ints(q, v->ints, v->n); break;
		case PG_VALUE_BLOBS: pg_blobs(q, v->strs, v->n); break;
		}
	}
}

void pg_send_values(struct pg_conn *c, const struct pg_statement *statement, const struct pg_value *values,
                    size_t n)
{
	struct pg_query q = pg_query(c, statement);
	pg_bind(&q, values, n);
	pg_send(&q);
}

int pg_ask_values(struct pg_conn *c, const struct pg_statement *statement, struct pg_result *ret,
                  const struct pg_value *values, size_t n)
{
	struct pg_query q = pg_query(c, statement);
	pg_bind(&q, values, n);
	return pg_ask(&q, ret, NULL);
}

int pg_ask_int(struct pg_conn *c, const struct pg_statement *statement, int64_t *ret,
               const struct pg_value *values, size_t n)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	int r = pg_ask_values(c, statement, &result, values, n);
	if (r == 0 && result.rows > 0)
		*ret = pg_get_int(&result, 0, 0);
	return r;
}

int pg_exec(struct pg_conn *c, const struct pg_statement *statement, const struct pg_value *values, size_t n)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	return pg_ask_values(c, statement, &result, values, n);
}

/* --- cells --- */

bool pg_is_null(const struct pg_result *r, int row, int col)
{
	return PQgetisnull(r->vendor, row, col);
}

int64_t pg_get_int(const struct pg_result *r, int row, int col)
{
	const char *bytes = PQgetvalue(r->vendor, row, col);
	uint64_t eight;
	uint32_t four;
	uint16_t two;
	switch (PQgetlength(r->vendor, row, col)) {
	case 8: memcpy(&eight, bytes, sizeof(eight)); return (int64_t)be64toh(eight);
	case 4: memcpy(&four, bytes, sizeof(four)); return (int32_t)be32toh(four);
	case 2: memcpy(&two, bytes, sizeof(two)); return (int16_t)be16toh(two);
	case 1: return bytes[0]; /* only bool */
	default: return 0;       /* NULL */
	}
}

struct str pg_get_text(const struct pg_result *r, int row, int col)
{
	if (PQgetisnull(r->vendor, row, col))
		return STR_NULL;
	return str_n(PQgetvalue(r->vendor, row, col), (size_t)PQgetlength(r->vendor, row, col));
}
