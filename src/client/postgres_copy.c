/* Binary COPY into a table. libpq has no such thing in pipeline mode, so the connection leaves it meanwhile.
 */
#include "client/postgres_conn.h"

#include <endian.h>

enum { PIECE_BYTES = 64 * 1024 };

static void put_u16(struct buf *out, uint16_t v)
{
	uint16_t wire = htobe16(v);
	buf_append(out, &wire, sizeof(wire));
}

static void put_u32(struct buf *out, uint32_t v)
{
	uint32_t wire = htobe32(v);
	buf_append(out, &wire, sizeof(wire));
}

/* What is gathered goes out, and all of it before more is gathered: libpq would keep it. */
static void piece_send(struct pg_copy *copy)
{
	struct pg_conn *c = copy->conn;
	pg_conn_check(c, !copy->out.failed);
	pg_conn_deadline_set(c);
	if (!c->failed)
		pg_conn_check(c, PQputCopyData(c->vendor, copy->out.data, (int)copy->out.len) == 1);
	if (!c->failed)
		pg_conn_drain(c);
	copy->out.len = 0;
}

int pg_copy_begin(struct pg_copy *copy, struct pg_conn *c, const char *sql, struct err *e)
{
	static const char signature[11] = "PGCOPY\n\377\r\n";
	*copy = (struct pg_copy){.conn = c};
	pg_conn_start(c, sql);
	PGresult *result = NULL;
	if (!c->failed)
		pg_conn_read(c, &result);
	copy->is_open = result && PQresultStatus(result) == PGRES_COPY_IN;
	if (result && !copy->is_open)
		pg_conn_judge(c, result);
	PQclear(result);
	buf_append(&copy->out, signature, sizeof(signature));
	put_u32(&copy->out, 0); /* flags */
	put_u32(&copy->out, 0); /* no extension */
	if (!c->failed && c->error == 0)
		return 0;
	return err_set(e, c->error, "%s", c->error_text.text);
}

void pg_copy_row(struct pg_copy *copy, int columns)
{
	if (copy->out.len >= PIECE_BYTES && copy->is_open)
		piece_send(copy);
	put_u16(&copy->out, (uint16_t)columns);
}

void pg_copy_int(struct pg_copy *copy, int64_t v)
{
	uint64_t wire = htobe64((uint64_t)v);
	put_u32(&copy->out, sizeof(wire));
	buf_append(&copy->out, &wire, sizeof(wire));
}

void pg_copy_int32(struct pg_copy *copy, int32_t v)
{
	put_u32(&copy->out, sizeof(v));
	put_u32(&copy->out, (uint32_t)v);
}

void pg_copy_bytes(struct pg_copy *copy, const void *v, size_t n)
{
	put_u32(&copy->out, v ? (uint32_t)n : UINT32_MAX);
	if (v)
		buf_append(&copy->out, v, n);
}

int pg_copy_end(struct pg_copy *copy, struct err *e)
{
	struct pg_conn *c = copy->conn;
	if (copy->is_open) {
		put_u16(&copy->out, UINT16_MAX);
		piece_send(copy);
		if (!c->failed)
			pg_conn_check(c, PQputCopyEnd(c->vendor, NULL) == 1);
	}
	copy->is_open = false;
	buf_release(&copy->out);
	pg_conn_deadline_set(c);
	if (!c->failed)
		pg_conn_finish(c);
	return pg_conn_outcome(c, e);
}
