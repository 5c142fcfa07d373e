/* Lookups of links by name or row id, a batch in one round trip. */
#include "store/postgres_replica.h"
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

/* Reads are sorted, so that each row finds all its reads. */
typedef int order_fn(const void *a, const void *b);

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

/* Hands each row to all reads that want it. */
static void rows_assign(struct pg_conn *c, const struct slot_row *slots, struct store_lookup **reads,
                        size_t n, order_fn *order)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	if (n == 0 || pg_next(c, &rows, NULL) != 0)
		return; /* pg_sync returns the error */
	for (int row = 0; row < rows.rows; row++) {
		struct store_lookup like = {.ref = {.id = (uint64_t)pg_get_int(&rows, row, COLUMN_ID),
		                                    .key = postgres_row_name(&rows, row)}};
		struct store_lookup *want = &like,
		                    **hit = bsearch(&want, reads, n, sizeof(struct store_lookup *), order);
		if (!hit || !slot_row_owns(slots, like.ref.key))
			continue;
		while (hit > reads && order(&hit[-1], &want) == 0)
			hit--;
		for (; hit < reads + n && order(hit, &want) == 0; hit++) {
			if (postgres_row_is(&rows, row, (*hit)->ref))
				(*hit)->result = postgres_row_link(&rows, row, (*hit)->arena, &(*hit)->link);
		}
	}
}

/* Reads with a key come first. Every result that was sent for is read. */
static int links_read(struct pg_conn *c, const struct slot_row *slots, struct store_lookup **reads, size_t n,
                      size_t key_count, struct arena *arena)
{
	struct store_lookup **by_id = reads + key_count;
	size_t id_count = n - key_count;
	struct str *keys = arena_alloc(arena, key_count * sizeof(*keys));
	int64_t *ids = arena_alloc(arena, id_count * sizeof(*ids));
	if (!keys || !ids)
		return ERR_NOMEM;
	qsort(reads, key_count, sizeof(struct store_lookup *), order_by_key);
	qsort(by_id, id_count, sizeof(struct store_lookup *), order_by_id);
	if (key_count > 0) {
		for (size_t i = 0; i < key_count; i++)
			keys[i] = reads[i]->ref.key;
		PG_SEND(c, &links_by_key, PG_BLOBS(keys, key_count));
	}
	if (id_count > 0) {
		for (size_t i = 0; i < id_count; i++)
			ids[i] = (int64_t)by_id[i]->ref.id;
		PG_SEND(c, &links_by_id, PG_INTS(ids, id_count));
	}
	postgres_version_send(c, slots);
	pg_flush(c);
	rows_assign(c, slots, reads, key_count, order_by_key);
	rows_assign(c, slots, by_id, id_count, order_by_id);
	int other = postgres_version_check(c, slots);
	return pg_sync(c, NULL) ?: other;
}

/* --- who is permitted --- */

static bool read_asks_permission(const struct store_lookup *read)
{
	return read->result == 0 && read->link.is_private && id_is_valid(read->user);
}

/* Only private links, which are few, need this second round trip. */
static int permissions_read(struct pg_conn *c, const struct slot_row *slots, struct store_lookup **reads,
                            size_t n, struct arena *arena)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int64_t *links = NULL, *users = NULL;
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!read_asks_permission(reads[i]))
			continue;
		links = links ? links : arena_alloc(arena, n * sizeof(*links));
		users = users ? users : arena_alloc(arena, n * sizeof(*users));
		if (!links || !users)
			return ERR_NOMEM;
		links[count] = (int64_t)reads[i]->link.id;
		users[count++] = (int64_t)reads[i]->user;
	}
	if (count == 0)
		return 0;
	PG_SEND(c, &permissions_get, PG_INTS(links, count), PG_INTS(users, count));
	postgres_version_send(c, slots);
	pg_flush(c);
	pg_next(c, &rows, NULL);
	for (int row = 0; row < rows.rows; row++) {
		uint64_t link = (uint64_t)pg_get_int(&rows, row, 0),
		         user = (uint64_t)pg_get_int(&rows, row, 1);
		for (size_t i = 0; i < n; i++)
			reads[i]->permitted |= read_asks_permission(reads[i]) && reads[i]->link.id == link &&
			                       reads[i]->user == user;
	}
	int other = postgres_version_check(c, slots);
	return pg_sync(c, NULL) ?: other;
}

int postgres_read_links(struct pg_conn *c, const struct slot_row *row, struct store_lookup **reads, size_t n,
                        struct arena *arena)
{
	size_t key_count = 0;
	for (size_t i = 0; i < n; i++) {
		struct store_lookup *read = reads[i];
		read->result = ERR_NOT_FOUND;
		read->permitted = false;
		if (!read->ref.key.ptr)
			continue;
		reads[i] = reads[key_count];
		reads[key_count++] = read;
	}
	return links_read(c, row, reads, n, key_count, arena) ?: permissions_read(c, row, reads, n, arena);
}

/* --- from whom --- */

/* If the primary is down, the replicas' answers still count, and only the other reads fail. */
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
	struct store_lookup **all = arena_alloc(&arena, n * sizeof(struct store_lookup *));
	if (!all)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++)
		all[i] = &reads[i];
	int r = s->replicas ? lookup_with_replicas(s, row, all, n, &arena)
	                    : POSTGRES_READ(s, postgres_read_links(c, row, all, n, &arena));
	arena_release(&arena);
	return r == ERR_CONFLICT ? r : postgres_error(r);
}
