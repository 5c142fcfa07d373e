#include "sink/postgres_sink.h"

/* --- results --- */

int postgres_find(struct pg_query *q, int64_t *ret, int count, struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = pg_ask(q, &rows, e);
	if (r == 0 && rows.rows != 1)
		r = err_set(e, ERR_CORRUPT,
		            "statement %s returned %d rows instead of 1; the tables are damaged",
		            q->statement->name, rows.rows);
	for (int i = 0; r == 0 && i < count; i++)
		if (!pg_is_null(&rows, 0, i))
			ret[i] = pg_get_int(&rows, 0, i);
	return r;
}

int postgres_rows(struct pg_query *q, int columns, struct arena *arena, void *ret_items, size_t *ret_count,
                  struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = pg_ask(q, &rows, e);
	if (r != 0)
		return r;
	int64_t *items = arena_alloc(arena, ((size_t)rows.rows + 1) * (size_t)columns * sizeof(*items));
	if (!items)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (int i = 0; i < rows.rows * columns; i++)
		items[i] = pg_get_int(&rows, i / columns, i % columns);
	memcpy(ret_items, &items, sizeof(items));
	*ret_count = (size_t)rows.rows;
	return 0;
}

int postgres_exec(struct pg_query *q, struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	return pg_ask(q, &none, e);
}

/* --- transactions --- */

static const struct pg_statement txn_begin = {"sink_begin", "BEGIN ISOLATION LEVEL READ COMMITTED"};
static const struct pg_statement txn_commit = {"sink_commit", "COMMIT"};

int postgres_txn_begin(struct pg_query *first, struct pg_result *ret, struct err *e)
{
	struct pg_conn *c = first->conn;
	struct pg_query begin = pg_query(c, &txn_begin);
	pg_send(&begin);
	pg_send(first);
	pg_flush(c);
	pg_next(c, ret, NULL);
	pg_result_end(ret);
	pg_next(c, ret, NULL);
	return pg_sync(c, e);
}

int postgres_txn_commit(struct pg_conn *c, struct err *e)
{
	struct pg_query commit = pg_query(c, &txn_commit);
	pg_send(&commit);
	pg_flush(c);
	return pg_sync(c, e);
}

void postgres_txn_undo(struct pg_conn *c)
{
	if (!pg_conn_failed(c))
		pg_run(c, "ROLLBACK", NULL);
}

int postgres_txn_end(struct pg_conn *c, int r, struct err *e)
{
	if (r == 0)
		return postgres_txn_commit(c, e);
	postgres_txn_undo(c);
	return r;
}
