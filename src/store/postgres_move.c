/*
 * Keys that move to another part. A move is a transaction in the part that is left: its rows are locked from
 * the beginning, and gone when it commits. They travel as JSON, each table's rows as they are, so that no
 * column can be forgotten.
 *
 * The database ends that transaction when its owner stands still for long, and another may have moved the
 * keys by the time he goes on; since then they may have been changed or deleted where they are now. So the
 * part that they move to keeps in mind which keys were put there under its epoch: a key is put once. Before
 * that it has nothing under the key, unless it was restored from a backup of a time when it had: the part
 * that is left knows better.
 */
#include "store/postgres_rows.h"
#include "store/postgres_store.h"

#include <stdlib.h>

/* What lies under keys. `lock` waits for those who change it; changes of a link's tags, list and clicks wait
 * for the link. */
struct table {
	const char *name;
	struct pg_statement lock, read, write, clear;
	struct pg_statement give_way; /* what lies where the first keys move to, of those among the second */
};

#define TABLE(table, column, how, put)                                                                       \
	{                                                                                                    \
		.name = table,                                                                               \
		.lock = {"move_lock_" table,                                                                 \
		         "SELECT 1 FROM " table " WHERE " column " = ANY ($1::bytea[])" how},                \
		.read = {"move_read_" table,                                                                 \
		         "SELECT coalesce(json_agg(t), '[]')::text FROM (SELECT * FROM " table               \
		         " WHERE " column " = ANY ($1::bytea[])) AS t"},                                     \
		.write = {"move_write_" table, "INSERT INTO " table " SELECT * FROM json_populate_recordset" \
		                               "(NULL::" table ", $1::text::json) WHERE " column             \
		                               " = ANY ($2::bytea[]) ORDER BY " column " ON CONFLICT " put}, \
		.clear = {"move_clear_" table,                                                               \
		          "DELETE FROM " table " WHERE " column " = ANY ($1::bytea[])"},                     \
		.give_way = {                                                                                \
			"move_way_" table,                                                                   \
			"DELETE FROM " table " WHERE " column " = ANY ($1::bytea[]) AND " column             \
			" = ANY ($2::bytea[])"                                                               \
		}                                                                                            \
	}

/* An idempotency key that was used here long ago gives way to its newer use. */
#define REPLAY_PUT                                                                                       \
	"(caller, name) DO UPDATE SET fingerprint = excluded.fingerprint, link_key = excluded.link_key," \
	" link_id = excluded.link_id, made_ms = excluded.made_ms WHERE replay.made_ms < excluded.made_ms"

static const struct table tables[] = {
    TABLE("link", "key", " ORDER BY key FOR UPDATE", "(key) DO NOTHING"), /* an id that is there fails it */
    TABLE("resting", "key", " ORDER BY key FOR UPDATE", "DO NOTHING"),
    TABLE("spent_key", "key", " ORDER BY key FOR UPDATE", "DO NOTHING"),
    TABLE("replay", "link_key", " ORDER BY caller, name FOR UPDATE", REPLAY_PUT),
    TABLE("permission", "key", "", "DO NOTHING"),
    TABLE("tag", "key", "", "DO NOTHING"),
    TABLE("click_total", "key", "", "DO NOTHING"),
};
enum { LOCKED_TABLES = 4 };

struct part_move {
	struct postgres_txn txn; /* in the part that is left */
	uint64_t epoch;          /* 0: of no ring */
	struct arena arena;
	struct str *keys;
	size_t n;
	struct str *present; /* of the keys: there is something under them */
	size_t present_count;
	struct str rows[ARRAY_LEN(tables)]; /* JSON */
};

static void keys_put(struct part_move *move, const struct pg_statement *statement)
{
	struct pg_query q = txn_query(&move->txn, statement);
	pg_blobs(&q, move->keys, move->n);
	txn_put(&move->txn, &q);
}

static int table_read(struct part_move *move, size_t i)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = txn_query(&move->txn, &tables[i].read);
	pg_blobs(&q, move->keys, move->n);
	int r = txn_ask(&move->txn, &q, &row);
	if (r != 0)
		return r;
	move->rows[i] = pg_get_text(&row, 0, 0);
	return str_own(&move->arena, &move->rows[i]) ? 0 : ERR_NOMEM;
}

static const struct pg_statement move_present = {
    "move_present", "SELECT key FROM link WHERE key = ANY ($1::bytea[])"
                    " UNION SELECT key FROM resting WHERE key = ANY ($1::bytea[])"
                    " UNION SELECT key FROM spent_key WHERE key = ANY ($1::bytea[])"
                    " UNION SELECT link_key FROM replay WHERE link_key = ANY ($1::bytea[])"};

static int present_read(struct part_move *move)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = txn_query(&move->txn, &move_present);
	pg_blobs(&q, move->keys, move->n);
	int r = txn_ask(&move->txn, &q, &rows);
	if (r != 0)
		return r;
	move->present = arena_alloc(&move->arena, (move->n + 1) * sizeof(*move->present));
	for (int row = 0; move->present && row < rows.rows; row++) {
		move->present[row] = pg_get_text(&rows, row, 0);
		if (!str_own(&move->arena, &move->present[row]))
			return ERR_NOMEM;
	}
	move->present_count = (size_t)rows.rows;
	return move->present ? 0 : ERR_NOMEM;
}

static const struct pg_statement move_start = {"move_start", TXN_BEGIN};

/* All locks first: then nothing changes any more. */
static int move_read(struct part_move *move)
{
	struct pg_query q = txn_query(&move->txn, &move_start);
	txn_put(&move->txn, &q);
	if (move->epoch != 0)
		postgres_epoch_hold(&move->txn, move->epoch);
	for (size_t i = 0; i < LOCKED_TABLES; i++)
		keys_put(move, &tables[i].lock);
	int r = present_read(move);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(tables); i++)
		r = table_read(move, i);
	return r;
}

static void move_free(struct part_move *move)
{
	if (!move)
		return;
	pg_return(move->txn.conn); /* inside a transaction it is closed, which lets go */
	arena_release(&move->txn.scratch);
	arena_release(&move->arena);
	free(move);
}

static struct part_move *move_new(const struct str *keys, size_t n)
{
	struct part_move *move = calloc(1, sizeof(*move));
	if (move)
		move->keys = arena_alloc(&move->arena, (n + 1) * sizeof(*keys));
	if (!move || !move->keys) {
		move_free(move);
		return NULL;
	}
	move->n = n;
	for (size_t i = 0; i < n; i++) {
		move->keys[i] = arena_str(&move->arena, keys[i]);
		if (!move->keys[i].ptr) {
			move_free(move);
			return NULL;
		}
	}
	return move;
}

static int move_begin(struct store_postgres *s, struct part_move *move)
{
	move->txn.conn = pg_take(s->movers, NULL);
	return move->txn.conn ? postgres_epoch_error(move_read(move)) : ERR_UNAVAILABLE;
}

int postgres_move_begin(struct store *from, uint64_t epoch, const struct str *keys, size_t n,
                        struct part_move **ret)
{
	struct store_postgres *s = store_postgres_of(from);
	struct part_move *move = move_new(keys, n);
	if (!move)
		return ERR_NOMEM;
	move->epoch = epoch;
	calls_enter(&s->calls);
	int r = move_begin(s, move);
	calls_leave(&s->calls);
	if (r == 0)
		*ret = move;
	else
		move_free(move);
	return r;
}

/* Waits for others who are putting one of them. */
static const struct pg_statement moved_note = {
    "moved_note", "INSERT INTO moved_key (key, epoch) SELECT k, $2 FROM unnest($1::bytea[]) AS k ORDER BY k"
                  " ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch"
                  " WHERE moved_key.epoch < excluded.epoch RETURNING key"};
/* Those of older epochs: no move under one of these is let in any more. It waits for nobody, and comes last
 * in its transaction, so nobody waits for it in a circle. */
static const struct pg_statement moved_purge = {
    "moved_purge", "DELETE FROM moved_key WHERE key IN (SELECT key FROM moved_key WHERE epoch < $1"
                   " ORDER BY epoch LIMIT $2 FOR UPDATE SKIP LOCKED)"};
enum { PURGE_PER_KEY = 2 };

/* Which of the keys nobody has put yet. The names are the answer's. */
static int keys_claim(struct postgres_txn *t, const struct part_move *move, struct pg_result *answer,
                      struct str *ret, size_t *ret_count)
{
	postgres_epoch_hold(t, move->epoch);
	struct pg_query q = txn_query(t, &moved_note);
	pg_blobs(&q, move->keys, move->n);
	pg_int(&q, (int64_t)move->epoch);
	int r = txn_ask(t, &q, answer);
	if (r != 0)
		return r;
	for (int row = 0; row < answer->rows; row++)
		ret[row] = pg_get_text(answer, row, 0);
	*ret_count = (size_t)answer->rows;
	return 0;
}

/* Links there that have the id of one that comes. */
static const struct pg_statement move_ids = {
    "move_ids", "SELECT count(*) FROM link WHERE id = ANY (ARRAY(SELECT n.id FROM json_populate_recordset"
                "(NULL::link, $1::text::json) AS n WHERE n.key = ANY ($2::bytea[])))"
                " AND key <> ALL ($2::bytea[])"};

static int ids_check(struct postgres_txn *t, struct str links, const struct str *keys, size_t n)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = txn_query(t, &move_ids);
	pg_text(&q, links);
	pg_blobs(&q, keys, n);
	int r = txn_ask(t, &q, &row);
	return r == 0 && pg_get_int(&row, 0, 0) > 0 ? ERR_CORRUPT : r;
}

static void rows_put(struct postgres_txn *t, const struct part_move *move, const struct str *keys, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		struct pg_query q = txn_query(t, &tables[i].give_way);
		pg_blobs(&q, keys, n);
		pg_blobs(&q, move->present, move->present_count);
		txn_put(t, &q);
		q = txn_query(t, &tables[i].write);
		pg_text(&q, move->rows[i]);
		pg_blobs(&q, keys, n);
		txn_put(t, &q);
	}
}

static void moved_forget(struct postgres_txn *t, const struct part_move *move)
{
	struct pg_query q = txn_query(t, &moved_purge);
	pg_int(&q, (int64_t)move->epoch);
	pg_int(&q, (int64_t)move->n * PURGE_PER_KEY);
	txn_put(t, &q);
}

static int move_put_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result answer = {NULL, 0};
	const struct part_move *move = ctx;
	struct str *keys = arena_alloc(&t->scratch, (move->n + 1) * sizeof(*keys));
	size_t n = move->n;
	if (!keys)
		return txn_no_memory(t);
	memcpy(keys, move->keys, n * sizeof(*keys));
	int r = move->epoch != 0 ? keys_claim(t, move, &answer, keys, &n) : 0;
	if (r == 0 && n > 0)
		r = ids_check(t, move->rows[0], keys, n);
	if (r == 0 && n > 0)
		rows_put(t, move, keys, n);
	if (r == 0 && move->epoch != 0)
		moved_forget(t, move);
	return r;
}

int postgres_move_put(struct store *to, struct part_move *move)
{
	struct store_postgres *s = store_postgres_of(to);
	struct postgres_work work = {.run = move_put_run, .ctx = move};
	return postgres_epoch_error(POSTGRES_WRITE(s, postgres_write(s, &work, NULL)));
}

static const struct pg_statement move_commit = {"move_commit", "COMMIT"};

static int move_finish(struct part_move *move)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		keys_put(move, &tables[i].clear);
	struct pg_query q = txn_query(&move->txn, &move_commit);
	return txn_ask(&move->txn, &q, &none);
}

int postgres_move_end(struct store *from, struct part_move *move, bool done)
{
	struct store_postgres *s = store_postgres_of(from);
	calls_enter(&s->calls);
	int r = done ? move_finish(move) : pg_run(move->txn.conn, "ROLLBACK", NULL);
	move_free(move);
	calls_leave(&s->calls);
	return postgres_error(r);
}
