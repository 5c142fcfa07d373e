/* The slot row of a database, and the slot map in the registry (slots.h). */
#include "store/postgres_store.h"

#include <sys/random.h>

/* The advisory lock is "curu". */
#define SLOTS_LOCK(function) \
	"SELECT " function "(1668641397, oid::int) FROM pg_namespace WHERE nspname = current_schema()"

static const struct pg_statement slots_share = {"slots_share", SLOTS_LOCK("pg_advisory_xact_lock_shared")};
static const struct pg_statement slots_lock = {"slots_lock", SLOTS_LOCK("pg_advisory_xact_lock")};
/* This and slots_assert_empty divide by 0 if the condition is false, which ends the transaction without a
 * round trip. */
static const struct pg_statement slots_assert_version = {
    "slots_assert_version", "SELECT 1 / (version = $1)::int FROM slot_state WHERE id = 1"};
static const struct pg_statement slots_version = {"slots_version",
                                                  "SELECT version FROM slot_state WHERE id = 1"};
static const struct pg_statement slots_read = {
    "slots_read",
    "SELECT c.value, s.version, s.owned, s.outgoing, s.move, s.out_token, s.out_to, s.until_ms, s.incoming,"
    " s.in_token, s.garbage, s.registry, (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    " FROM slot_state s, constant c WHERE s.id = 1 AND c.name = 'part-name'"};
static const struct pg_statement slots_write = {
    "slots_write",
    "UPDATE slot_state SET version = $1, owned = $2, outgoing = $3, move = $4::bigint, out_token = $5,"
    " out_to = $6, until_ms = $7, incoming = $8, in_token = $9, garbage = $10, registry = $11 WHERE id = 1"
    " RETURNING txid_current()"};
#define SLOTS_USED                                                                                \
	"(EXISTS (SELECT 1 FROM link) OR EXISTS (SELECT 1 FROM resting) OR EXISTS (SELECT 1 FROM" \
	" spent_key) OR EXISTS (SELECT 1 FROM users))"
static const struct pg_statement slots_used = {"slots_used", "SELECT " SLOTS_USED "::int"};
static const struct pg_statement slots_assert_empty = {"slots_assert_empty",
                                                       "SELECT 1 / (NOT " SLOTS_USED ")::int"};
static const struct pg_statement link_id_max = {"link_id_max", "SELECT coalesce(max(id), 0) FROM link"};

/* Locks out servers of 0.1.0, which check this number. */
static const struct pg_statement ring_end = {
    "ring_end", "UPDATE ring_state SET epoch = epoch + 1, description = NULL WHERE id = 1"};

void postgres_slots_hold(struct postgres_txn *t, const struct slot_row *row)
{
	if (row->version == 0)
		return;
	TXN_PUT(t, &slots_share);
	TXN_PUT(t, &slots_assert_version, PG_INT(row->version));
}

void postgres_version_send(struct pg_conn *c, const struct slot_row *row)
{
	if (row->version == 0)
		return;
	PG_SEND(c, &slots_version);
}

int postgres_version_check(struct pg_conn *c, const struct slot_row *row)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	if (row->version == 0)
		return 0;
	int r = pg_next(c, &result, NULL);
	if (r != 0)
		return r;
	return result.rows == 1 && (uint64_t)pg_get_int(&result, 0, 0) == row->version ? 0 : ERR_CONFLICT;
}

int postgres_slots_confirm(struct pg_conn *c, const struct slot_row *row)
{
	if (row->version == 0)
		return 0;
	postgres_version_send(c, row);
	pg_flush(c);
	int checked = postgres_version_check(c, row);
	int r = pg_sync(c, NULL);
	return r ? postgres_error(r) : checked;
}

int postgres_slots_error(int r)
{
	if (r == ERR_NOT_FOUND)
		return ERR_CONFLICT;
	return r == ERR_CONFLICT ? r : postgres_error(r);
}

/* --- the row --- */

static bool bytes_take(struct str from, void *to, size_t len)
{
	if (from.len == len)
		memcpy(to, from.ptr, len);
	return from.len == len;
}

static int row_take(const struct pg_result *r, struct slot_row *ret)
{
	struct slot_row row = {.version = r->rows == 1 ? (uint64_t)pg_get_int(r, 0, 1) : 0};
	if (r->rows != 1)
		return ERR_CORRUPT;
	row.move = (enum slot_move)pg_get_int(r, 0, 4);
	row.out_token = (uint64_t)pg_get_int(r, 0, 5);
	row.until_ms = pg_get_int(r, 0, 7);
	row.in_token = (uint64_t)pg_get_int(r, 0, 9);
	row.now_ms = pg_get_int(r, 0, 12);
	struct str registry = pg_get_text(r, 0, 11);
	bool is_right = bytes_take(pg_get_text(r, 0, 0), row.name, SHARD_NAME_BYTES) &&
	                bytes_take(pg_get_text(r, 0, 2), &row.owned, SLOT_SET_BYTES) &&
	                bytes_take(pg_get_text(r, 0, 3), &row.out, SLOT_SET_BYTES) &&
	                bytes_take(pg_get_text(r, 0, 6), row.out_to, SHARD_NAME_BYTES) &&
	                bytes_take(pg_get_text(r, 0, 8), &row.in, SLOT_SET_BYTES) &&
	                bytes_take(pg_get_text(r, 0, 10), &row.garbage, SLOT_SET_BYTES) &&
	                registry.len < SHARD_ADDRESS_MAX && row.move <= MOVE_GIVEN;
	if (!is_right)
		return ERR_CORRUPT;
	memcpy(row.registry, registry.ptr, registry.len);
	*ret = row;
	return 0;
}

static int row_get(struct pg_conn *c, struct slot_row *ret)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	int r = PG_ASK(c, &slots_read, &result);
	return r ? postgres_error(r) : row_take(&result, ret);
}

int postgres_slots_get(struct store_postgres *s, struct slot_row *ret)
{
	if (postgres_can_be_shard(s))
		return POSTGRES_READ(s, row_get(c, ret));
	*ret = (struct slot_row){.owned = slots_all};
	memcpy(ret->name, s->name, SHARD_NAME_BYTES);
	return 0;
}

static int row_put(struct postgres_txn *t, struct slot_row *row)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	uint8_t step;
	ASSERT(getrandom(&step, sizeof(step), 0) == sizeof(step));
	row->version += 1 + (uint64_t)step; /* a restored database does not repeat a version */
	int r = TXN_ASK(t, &slots_write, &result, PG_INT(row->version), PG_BYTES(&row->owned, SLOT_SET_BYTES),
	                PG_BYTES(&row->out, SLOT_SET_BYTES), PG_INT(row->move), PG_INT(row->out_token),
	                PG_BYTES(row->out_to, SHARD_NAME_BYTES), PG_INT(row->until_ms),
	                PG_BYTES(&row->in, SLOT_SET_BYTES), PG_INT(row->in_token),
	                PG_BYTES(&row->garbage, SLOT_SET_BYTES), PG_TEXT(str_of(row->registry)));
	if (r == 0)
		row->transaction = (uint64_t)pg_get_int(&result, 0, 0);
	return r;
}

struct change_work {
	slot_rule_fn *rule;
	const struct slot_attempt *attempt;
	struct slot_row row;
};

static int change_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct change_work *work = ctx;
	TXN_PUT(t, &slots_lock);
	int r = TXN_ASK(t, &slots_read, &result)
		?: row_take(&result, &work->row)
		?: work->rule(&work->row, work->attempt);
	if (r != 0)
		return r;
	if (work->attempt->if_empty)
		TXN_PUT(t, &slots_assert_empty);
	if (work->attempt->makes_routes) {
		postgres_routes_fill(t);
		TXN_PUT(t, &ring_end);
	}
	return row_put(t, &work->row);
}

int postgres_slots_change(struct store_postgres *s, slot_rule_fn *rule, const struct slot_attempt *a,
                          struct slot_row *ret)
{
	struct change_work work = {.rule = rule, .attempt = a};
	struct postgres_work txn = postgres_work(s, change_run, &work);
	int r = POSTGRES_WRITE(s, postgres_write(s, &txn, NULL));
	if (r == 0)
		*ret = work.row;
	return postgres_slots_error(r);
}

/* --- contents --- */

static int number_on(struct pg_conn *c, const struct pg_statement *statement, uint64_t *ret)
{
	return postgres_error(PG_ASK_INT(c, statement, (int64_t *)ret));
}

int postgres_is_used(struct store_postgres *s, bool *ret)
{
	uint64_t used = 0;
	int r = POSTGRES_READ(s, number_on(c, &slots_used, &used));
	*ret = used;
	return r;
}

int postgres_link_id_last(struct store_postgres *s, uint64_t *ret)
{
	return POSTGRES_READ(s, number_on(c, &link_id_max, ret));
}

/* --- the map --- */

static const struct pg_statement map_read = {"map_read", "SELECT version, map FROM slot_map WHERE id = 1"};
static const struct pg_statement map_insert = {
    "map_insert", "INSERT INTO slot_map (id, version, map) VALUES (1, $1::bigint + 1, $2)"
                  " ON CONFLICT (id) DO NOTHING RETURNING version"};
static const struct pg_statement map_update = {
    "map_update",
    "UPDATE slot_map SET version = version + 1, map = $2 WHERE id = 1 AND version = $1 RETURNING version"};

static int map_get_on(struct pg_conn *c, struct slot_map *ret)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	int r = PG_ASK(c, &map_read, &row);
	if (r != 0)
		return postgres_error(r);
	if (row.rows > 0)
		return slot_map_read(pg_get_text(&row, 0, 1), (uint64_t)pg_get_int(&row, 0, 0), ret);
	*ret = (struct slot_map){.version = 0};
	return 0;
}

int postgres_map_get(struct store_postgres *s, struct slot_map *ret)
{
	return POSTGRES_READ(s, map_get_on(c, ret));
}

static int map_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	const struct slot_map *map = ctx;
	int r = TXN_ASK(t, map->version == 0 ? &map_insert : &map_update, &row, PG_INT(map->version),
	                PG_TEXT(slot_map_text(map)));
	return r == 0 && row.rows == 0 ? ERR_CONFLICT : r;
}

int postgres_map_set(struct store_postgres *s, const struct slot_map *map)
{
	struct postgres_work work = postgres_work(s, map_run, (void *)map);
	int r = POSTGRES_WRITE(s, postgres_write(s, &work, NULL));
	return r == ERR_CONFLICT ? r : postgres_error(r);
}
