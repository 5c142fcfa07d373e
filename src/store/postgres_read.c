/* Lists: links, ids of links with a tag, ids of expired links, and permission lists. */
#include "store/postgres_store.h"

/* --- rows in an order --- */

/* A scan of an index, which skips rows of slots that the database does not own. The statement takes rank
 * and id of the position, a limit, and `of`. Its first column is the name; its last are rank and id. */
struct scan {
	const struct pg_statement *statement;
	struct ranked_id place;
	const void *of; /* a tag (struct str) or a number; NULL: no such parameter */
	bool of_tag;
	size_t step; /* rows per query */
	size_t left; /* rows still wanted */
	/* Takes a row. 1: stop. */
	int (*take)(struct scan *scan, const struct pg_result *rows, int row);
};

static int scan_step(struct pg_conn *c, const struct slot_row *slots, struct scan *scan, bool *ret_more)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	size_t want = MIN(scan->left, scan->step);
	struct pg_query q = pg_query(c, scan->statement);
	pg_int(&q, scan->place.rank);
	pg_int(&q, (int64_t)scan->place.id);
	pg_int(&q, (int64_t)want);
	if (scan->of && scan->of_tag)
		pg_text(&q, *(const struct str *)scan->of);
	else if (scan->of)
		pg_int(&q, *(const int64_t *)scan->of);
	int r = pg_ask(&q, &rows, NULL);
	int last = r == 0 ? PQnfields(rows.vendor) - 1 : 0;
	for (int row = 0; r == 0 && row < rows.rows; row++) {
		scan->place = (struct ranked_id){pg_get_int(&rows, row, last - 1),
		                                 (uint64_t)pg_get_int(&rows, row, last)};
		if (!slot_row_owns(slots, pg_get_text(&rows, row, 0)))
			continue;
		r = scan->take(scan, &rows, row);
		scan->left--;
	}
	*ret_more = r == 0 && (size_t)rows.rows == want && scan->left > 0;
	return r < 0 ? postgres_error(r) : 0;
}

static int scan_run(struct pg_conn *c, const struct slot_row *slots, struct scan *scan)
{
	bool more = scan->left > 0;
	int r = 0;
	while (r == 0 && more)
		r = scan_step(c, slots, scan, &more);
	return r ? r : postgres_slots_confirm(c, slots);
}

/* --- links --- */

enum { LINKS_STEP = 513 }; /* pages may end early, at bytes_max */

static const struct pg_statement links_of_all = {"links_of_all",
                                                 "SELECT " LINK_COLUMNS ", l.created_ms, l.id FROM link l"
                                                 " WHERE (created_ms, l.id) < ($1::bigint, $2::bigint)"
                                                 " ORDER BY created_ms DESC, l.id DESC LIMIT $3"};
static const struct pg_statement links_of_owner = {
    "links_of_owner", "SELECT " LINK_COLUMNS ", l.created_ms, l.id FROM link l WHERE owner = $4::bigint"
                      " AND (created_ms, l.id) < ($1::bigint, $2::bigint)"
                      " ORDER BY created_ms DESC, l.id DESC LIMIT $3"};

struct links_scan {
	struct scan scan;
	const struct store_list *page;
	struct link_record *links;
	size_t count, cap, bytes;
	bool more; /* the page is full, and another link follows */
};

static int link_take(struct scan *scan, const struct pg_result *rows, int row)
{
	struct links_scan *l = container_of(scan, struct links_scan, scan);
	l->more = page_is_full(l->page, l->count, l->bytes);
	if (l->more)
		return 1;
	l->links = array_room(l->page->arena, l->links, l->count, &l->cap, sizeof(*l->links));
	if (!l->links)
		return ERR_NOMEM;
	struct link_record *link = &l->links[l->count++];
	int r = postgres_row_link(rows, row, l->page->arena, link);
	l->bytes += r == 0 ? link_bytes(link) : 0;
	return r;
}

static int list_on(struct pg_conn *c, const struct slot_row *slots, struct ranked_id from,
                   struct store_list *page, bool *ret_more)
{
	struct links_scan l = {.scan = {.statement = page->owner ? &links_of_owner : &links_of_all,
	                                .place = from,
	                                .of = page->owner ? &page->owner : NULL,
	                                .step = LINKS_STEP,
	                                .left = MIN(page->limit, SIZE_MAX - 1) + 1,
	                                .take = link_take},
	                       .page = page};
	int r = scan_run(c, slots, &l.scan);
	if (r != 0)
		return r;
	page->links = l.links;
	page->count = l.count;
	*ret_more = l.more;
	return 0;
}

int postgres_list(struct store_postgres *s, const struct slot_row *row, struct ranked_id from,
                  struct store_list *page, bool *ret_more)
{
	return POSTGRES_READ(s, list_on(c, row, from, page, ret_more));
}

/* --- ids --- */

enum { IDS_STEP = 1000 };

static const struct pg_statement tagged = {
    "tagged", "SELECT key, made_ms, id FROM tag WHERE name = $4 AND (made_ms, id) < ($1::bigint, $2::bigint)"
              " ORDER BY made_ms DESC, id DESC LIMIT $3"};
static const struct pg_statement expired_ids = {
    "expired_ids", "SELECT key, over_ms, id FROM link WHERE over_ms > 0 AND over_ms <= $4"
                   " AND (over_ms, id) > ($1::bigint, $2::bigint) ORDER BY over_ms, id LIMIT $3"};
static const struct pg_statement expired_count = {
    "expired_count", "SELECT count(*) FROM link WHERE over_ms > 0 AND over_ms <= $1"};

struct ids_scan {
	struct scan scan;
	struct postgres_ids *ids;
};

static int id_take(struct scan *scan, const struct pg_result *rows, int row)
{
	struct postgres_ids *ids = container_of(scan, struct ids_scan, scan)->ids;
	(void)rows;
	(void)row;
	ids->total++;
	if (ids->count < ids->max)
		ids->ids[ids->count++] = scan->place;
	return 0;
}

static int ids_on(struct pg_conn *c, const struct slot_row *slots, struct postgres_ids *ids)
{
	bool of_tag = ids->tag.ptr;
	/* The database can count only if it owns all its rows. */
	bool counts_by_scan = ids->count_all && slot_row_has_hidden(slots);
	struct ids_scan s = {.scan = {.statement = of_tag ? &tagged : &expired_ids,
	                              .place = {of_tag ? INT64_MAX : 0, of_tag ? INT64_MAX : 0},
	                              .of = of_tag ? (const void *)&ids->tag : &ids->now_ms,
	                              .of_tag = of_tag,
	                              .step = IDS_STEP,
	                              .left = counts_by_scan ? SIZE_MAX : ids->max,
	                              .take = id_take},
	                     .ids = ids};
	ids->count = ids->total = 0;
	/* Counting is slow when there are many. */
	int r = ids->count_all ? postgres_error(pg_timeout(c, PG_ANSWER_TIMEOUT_MS, NULL)) : 0;
	if (r == 0)
		r = scan_run(c, slots, &s.scan);
	if (r == 0 && ids->count_all && !counts_by_scan)
		r = postgres_error(
		    PG_ASK_INT(c, &expired_count, (int64_t *)&ids->total, PG_INT(ids->now_ms)));
	return r;
}

int postgres_ids(struct store_postgres *s, const struct slot_row *row, struct postgres_ids *ids)
{
	return POSTGRES_READ(s, ids_on(c, row, ids));
}

/* --- who may follow a link --- */

static const struct pg_statement permitted = {
    "permitted", "SELECT p.user_id, l.key FROM link l JOIN permission p ON p.key = l.key WHERE l.id = $1"
                 " ORDER BY p.user_id"};

static int permitted_on(struct pg_conn *c, const struct slot_row *slots, uint64_t link, struct arena *arena,
                        uint64_t **ret, size_t *ret_count)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	int r = PG_ASK(c, &permitted, &result, PG_INT(MIN(link, INT64_MAX)));
	if (r != 0)
		return postgres_error(r);
	r = postgres_slots_confirm(c, slots);
	if (r != 0)
		return r;
	uint64_t *users = arena_alloc(arena, ((size_t)result.rows + 1) * sizeof(*users));
	size_t count = 0;
	if (!users)
		return ERR_NOMEM;
	for (int row = 0; row < result.rows; row++) {
		if (slot_row_owns(slots, pg_get_text(&result, row, 1)))
			users[count++] = (uint64_t)pg_get_int(&result, row, 0);
	}
	*ret = users;
	*ret_count = count;
	return 0;
}

int postgres_permitted(struct store_postgres *s, const struct slot_row *row, uint64_t link,
                       struct arena *arena, uint64_t **ret, size_t *ret_count)
{
	return POSTGRES_READ(s, permitted_on(c, row, link, arena, ret, ret_count));
}
