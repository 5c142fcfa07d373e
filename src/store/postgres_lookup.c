/* Links by name or by row, a batch in one round trip. */
#include "store/postgres_replica.h"
#include "store/postgres_rows.h"
#include "store/postgres_store.h"

#include <stdlib.h>

static const struct pg_statement links_by_key = {
    "links_by_key", "SELECT " LINK_COLUMNS " FROM link l WHERE l.key = ANY ($1::bytea[])"};
static const struct pg_statement links_by_id = {
    "links_by_id", "SELECT " LINK_COLUMNS " FROM link l WHERE l.id = ANY ($1::bigint[])"};
static const struct pg_statement permissions_get = {
    "permissions_get", "SELECT l.id, p.user_id FROM unnest($1::bigint[], $2::bigint[]) AS a (id, user_id)"
                       " JOIN link l ON l.id = a.id"
                       " JOIN permission p ON p.key = l.key AND p.user_id = a.user_id"};

/* A batch: the reads sorted by what they ask for, so that a row finds all that want it. */
struct batch {
	const struct slot_row *row;
	struct store_lookup **by_key; /* those with a key, by its bytes */
	struct store_lookup **by_id;  /* the others, by id */
	size_t key_count, id_count;
	struct arena *arena;
};

static int order_by_key(const void *a, const void *b)
{
	const struct store_lookup *const *x = a, *const *y = b;
	return str_order((*x)->ref.key, (*y)->ref.key);
}

static int order_by_id(const void *a, const void *b)
{
	const struct store_lookup *const *x = a, *const *y = b;
	return ((*x)->ref.id > (*y)->ref.id) - ((*x)->ref.id < (*y)->ref.id);
}

static void batch_sort(struct batch *b, struct store_lookup **reads, size_t n)
{
	b->by_key = reads;
	for (size_t i = 0; i < n; i++) {
		struct store_lookup *read = reads[i];
		read->result = ERR_NOT_FOUND;
		read->permitted = false;
		if (!read->ref.key.ptr)
			continue;
		reads[i] = reads[b->key_count];
		reads[b->key_count++] = read;
	}
	b->by_id = reads + b->key_count;
	b->id_count = n - b->key_count;
	qsort(b->by_key, b->key_count, sizeof(struct store_lookup *), order_by_key);
	qsort(b->by_id, b->id_count, sizeof(struct store_lookup *), order_by_id);
}

/* --- asking --- */

static int keys_send(struct pg_conn *c, struct batch *b)
{
	struct str *keys = arena_alloc(b->arena, b->key_count * sizeof(*keys));
	if (!keys)
		return ERR_NOMEM;
	for (size_t i = 0; i < b->key_count; i++)
		keys[i] = b->by_key[i]->ref.key;
	struct pg_query q = pg_query(c, &links_by_key);
	pg_blobs(&q, keys, b->key_count);
	pg_send(&q);
	return 0;
}

static int ids_send(struct pg_conn *c, struct batch *b)
{
	int64_t *ids = arena_alloc(b->arena, b->id_count * sizeof(*ids));
	if (!ids)
		return ERR_NOMEM;
	for (size_t i = 0; i < b->id_count; i++)
		ids[i] = (int64_t)b->by_id[i]->ref.id;
	struct pg_query q = pg_query(c, &links_by_id);
	pg_ints(&q, ids, b->id_count);
	pg_send(&q);
	return 0;
}

static void read_take(struct store_lookup *read, const struct pg_result *result, int row)
{
	if (postgres_row_is(result, row, read->ref))
		read->result = postgres_row_link(result, row, read->arena, &read->link);
}

/* Hands the row to all reads of `sorted` that are like `want`. */
static void row_give(struct store_lookup **sorted, size_t n, int (*order)(const void *, const void *),
                     struct store_lookup *want, const struct pg_result *result, int row)
{
	struct store_lookup **hit = bsearch(&want, sorted, n, sizeof(struct store_lookup *), order);
	if (!hit)
		return;
	while (hit > sorted && order(&hit[-1], &want) == 0)
		hit--;
	for (; hit < sorted + n && order(hit, &want) == 0; hit++)
		read_take(*hit, result, row);
}

static void key_row_take(struct batch *b, const struct pg_result *result, int row)
{
	struct store_lookup like = {.ref.key = postgres_row_name(result, row)};
	row_give(b->by_key, b->key_count, order_by_key, &like, result, row);
}

static void id_row_take(struct batch *b, const struct pg_result *result, int row)
{
	struct store_lookup like = {.ref.id = (uint64_t)pg_get_int(result, row, COLUMN_ID)};
	if (slot_row_owns(b->row, postgres_row_name(result, row)))
		row_give(b->by_id, b->id_count, order_by_id, &like, result, row);
}

static int rows_take(struct pg_conn *c, struct batch *b,
                     void (*take)(struct batch *, const struct pg_result *, int row))
{
	CLEANUP(pg_result_end) struct pg_result result;
	int r = pg_next(c, &result, NULL);
	for (int row = 0; r == 0 && row < result.rows; row++)
		take(b, &result, row);
	return r;
}

/* What was sent is always read to its end. */
static int links_read(struct pg_conn *c, struct batch *b)
{
	int r = b->key_count > 0 ? keys_send(c, b) : 0;
	if (r == 0 && b->id_count > 0)
		r = ids_send(c, b);
	if (r != 0)
		return r; /* the connection is left with a question: it will not be used again */
	postgres_version_send(c, b->row);
	pg_flush(c);
	if (b->key_count > 0)
		rows_take(c, b, key_row_take);
	if (b->id_count > 0)
		rows_take(c, b, id_row_take);
	int other = postgres_version_check(c, b->row);
	r = pg_sync(c, NULL);
	return r ? r : other;
}

/* --- who is permitted --- */

static bool read_asks_permission(const struct store_lookup *read)
{
	return read->result == 0 && read->link.is_private && id_is_valid(read->user);
}

static int permissions_send(struct pg_conn *c, const struct batch *b, struct store_lookup *const *reads,
                            size_t n, size_t count)
{
	int64_t *links = arena_alloc(b->arena, count * sizeof(*links));
	int64_t *users = arena_alloc(b->arena, count * sizeof(*users));
	if (!links || !users)
		return ERR_NOMEM;
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		if (read_asks_permission(reads[i])) {
			links[at] = (int64_t)reads[i]->link.id;
			users[at++] = (int64_t)reads[i]->user;
		}
	}
	struct pg_query q = pg_query(c, &permissions_get);
	pg_ints(&q, links, count);
	pg_ints(&q, users, count);
	pg_send(&q);
	postgres_version_send(c, b->row);
	pg_flush(c);
	return 0;
}

static void permission_take(struct store_lookup *const *reads, size_t n, uint64_t link, uint64_t user)
{
	for (size_t i = 0; i < n; i++) {
		if (read_asks_permission(reads[i]) && reads[i]->link.id == link && reads[i]->user == user)
			reads[i]->permitted = true;
	}
}

/* Only private links cost this second question, and they are few. */
static int permissions_read(struct pg_conn *c, const struct batch *b, struct store_lookup *const *reads,
                            size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += read_asks_permission(reads[i]);
	if (count == 0)
		return 0;
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	int r = permissions_send(c, b, reads, n, count);
	if (r != 0)
		return r;
	r = pg_next(c, &result, NULL);
	for (int row = 0; r == 0 && row < result.rows; row++)
		permission_take(reads, n, (uint64_t)pg_get_int(&result, row, 0),
		                (uint64_t)pg_get_int(&result, row, 1));
	int other = postgres_version_check(c, b->row);
	r = pg_sync(c, NULL);
	return r ? r : other;
}

int postgres_read_links(struct pg_conn *c, const struct slot_row *row, struct store_lookup **reads, size_t n,
                        struct arena *arena)
{
	struct batch b = {.row = row, .arena = arena};
	batch_sort(&b, reads, n);
	int r = links_read(c, &b);
	return r ? r : permissions_read(c, &b, reads, n);
}

/* --- from whom --- */

/* Without the primary what replicas know is still told, and the rest fails one by one. */
static int lookup_with_replicas(struct store_postgres *s, const struct slot_row *row,
                                struct store_lookup **reads, size_t n, struct arena *arena)
{
	calls_enter(&s->calls);
	bool answered = postgres_replicas_lookup(s->replicas, false, row, reads, &n, arena);
	int r = n > 0 ? POSTGRES_READ(s, postgres_read_links(c, row, reads, n, arena)) : 0;
	if (r == ERR_UNAVAILABLE) {
		answered |= postgres_replicas_lookup(s->replicas, true, row, reads, &n, arena);
		for (size_t i = 0; i < n; i++)
			reads[i]->result = r;
		r = answered ? 0 : r;
	}
	calls_leave(&s->calls);
	return r;
}

int postgres_lookup(struct store_postgres *s, const struct slot_row *row, struct store_lookup *reads,
                    size_t n)
{
	struct arena arena = {0};
	struct store_lookup **all = arena_alloc(&arena, n * sizeof(*all));
	if (!all)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++)
		all[i] = &reads[i];
	int r = s->replicas ? lookup_with_replicas(s, row, all, n, &arena)
	                    : POSTGRES_READ(s, postgres_read_links(c, row, all, n, &arena));
	arena_release(&arena);
	return r == ERR_CONFLICT ? r : postgres_error(r);
}
