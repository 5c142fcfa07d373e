/* Lists: links, the ids of those with a tag or of those that are over, the users on a link's list. */
#include "store/postgres_rows.h"
#include "store/postgres_store.h"

/* --- lists --- */

enum { LIST_STEP = 512 }; /* links fetched at a time, as a page may end early at its bytes */

static const struct pg_statement links_of_all = {
    "links_of_all",
    "SELECT " LINK_COLUMNS ", l.created_ms FROM link l WHERE (created_ms, l.id) < ($1::bigint, $2::bigint)"
    " ORDER BY created_ms DESC, l.id DESC LIMIT $3"};
static const struct pg_statement links_of_owner = {
    "links_of_owner", "SELECT " LINK_COLUMNS ", l.created_ms FROM link l WHERE owner = $4::bigint"
                      " AND (created_ms, l.id) < ($1::bigint, $2::bigint)"
                      " ORDER BY created_ms DESC, l.id DESC LIMIT $3"};

/* Where a page goes on: behind this link. */
struct place {
	int64_t created_ms;
	int64_t id;
};

struct str postgres_cursor_format(struct arena *arena, const struct link_record *last)
{
	return arena_printf(arena, "%lld.%llu", (long long)last->created_ms, (unsigned long long)last->id);
}

static bool place_number(struct str text, int64_t *ret)
{
	uint64_t v;
	bool padded = text.len > 1 && text.ptr[0] == '0';
	if (padded || !str_u64(text, &v) || v > INT64_MAX)
		return false;
	*ret = (int64_t)v;
	return true;
}

static bool place_parse(struct str cursor, struct place *ret)
{
	*ret = (struct place){INT64_MAX, INT64_MAX};
	if (!cursor.ptr)
		return true;
	struct str created = str_cut(&cursor, '.');
	bool before_epoch = created.len > 1 && created.ptr[0] == '-';
	if (before_epoch)
		created = str_n(created.ptr + 1, created.len - 1);
	if (!cursor.ptr || !place_number(created, &ret->created_ms) || !place_number(cursor, &ret->id))
		return false;
	if (before_epoch)
		ret->created_ms = -ret->created_ms;
	return ret->id > 0;
}

struct collected {
	struct link_record *links;
	size_t count, cap, bytes;
	bool is_full; /* and one link more was there */
};

/* Takes the rows up to the page's end. */
static int list_collect(const struct pg_result *result, const struct slot_row *slots,
                        const struct store_list *page, struct collected *got)
{
	for (int row = 0; row < result->rows; row++) {
		if (!slot_row_owns(slots, postgres_row_name(result, row)))
			continue;
		if (page_is_full(page, got->count, got->bytes)) {
			got->is_full = true;
			return 0;
		}
		got->links = array_room(page->arena, got->links, got->count, &got->cap, sizeof(*got->links));
		if (!got->links)
			return ERR_NOMEM;
		struct link_record *link = &got->links[got->count];
		int r = postgres_row_link(result, row, page->arena, link);
		if (r != 0)
			return r;
		got->bytes += link_bytes(link);
		got->count++;
	}
	return 0;
}

static int list_step(struct pg_conn *c, const struct slot_row *slots, const struct store_list *page,
                     struct place *place, struct collected *got, bool *ret_more)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	size_t want = MIN(page->limit - got->count, LIST_STEP) + 1;
	struct pg_query q = pg_query(c, page->owner ? &links_of_owner : &links_of_all);
	pg_int(&q, place->created_ms);
	pg_int(&q, place->id);
	pg_int(&q, (int64_t)want);
	if (page->owner)
		pg_int(&q, (int64_t)page->owner);
	int r = pg_ask(&q, &result, NULL);
	if (r == 0)
		r = list_collect(&result, slots, page, got);
	*ret_more = r == 0 && !got->is_full && (size_t)result.rows == want;
	if (*ret_more)
		*place = (struct place){pg_get_int(&result, result.rows - 1, PQnfields(result.vendor) - 1),
		                        pg_get_int(&result, result.rows - 1, COLUMN_ID)};
	return r;
}

static int list_on(struct pg_conn *c, const struct slot_row *slots, struct store_list *page)
{
	struct place place;
	struct collected got = {0};
	struct str next = STR_NULL;
	if (page->limit == 0 || !place_parse(page->cursor, &place))
		return ERR_INVALID;
	bool more = true;
	while (more) {
		int r = list_step(c, slots, page, &place, &got, &more);
		if (r != 0)
			return postgres_error(r);
	}
	int r = postgres_slots_confirm(c, slots);
	if (r != 0)
		return r;
	if (got.is_full) {
		next = postgres_cursor_format(page->arena, &got.links[got.count - 1]);
		if (!next.ptr)
			return ERR_NOMEM;
	}
	page->links = got.links;
	page->count = got.count;
	page->next = next;
	return 0;
}

int postgres_list(struct store_postgres *s, const struct slot_row *row, struct store_list *page)
{
	return POSTGRES_READ(s, list_on(c, row, page));
}

/* --- ids in an order --- */

enum { RANKED_STEP = 1000 };

/* Pages of (rank, id, name) behind a place. */
static const struct pg_statement tagged = {
    "tagged", "SELECT made_ms, id, key FROM tag WHERE name = $4 AND (made_ms, id) < ($1::bigint, $2::bigint)"
              " ORDER BY made_ms DESC, id DESC LIMIT $3"};
static const struct pg_statement over_ids = {
    "over_ids", "SELECT over_ms, id, key FROM link WHERE over_ms > 0 AND over_ms <= $4"
                " AND (over_ms, id) > ($1::bigint, $2::bigint) ORDER BY over_ms, id LIMIT $3"};
static const struct pg_statement over_count = {
    "over_count", "SELECT count(*) FROM link WHERE over_ms > 0 AND over_ms <= $1"};

struct ranked {
	const struct pg_statement *statement;
	const struct slot_row *row;
	struct str tag;
	int64_t now_ms;
	size_t max;
	bool counts_all; /* goes on behind `max` */
	struct ranked_id *ids;
	size_t count;
	uint64_t total;
};

static int ranked_step(struct pg_conn *c, struct ranked *r, struct place *place, bool *ret_more)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	size_t want = r->counts_all ? RANKED_STEP : MIN(r->max - r->count, RANKED_STEP);
	struct pg_query q = pg_query(c, r->statement);
	pg_int(&q, place->created_ms);
	pg_int(&q, place->id);
	pg_int(&q, (int64_t)want);
	if (r->tag.ptr)
		pg_text(&q, r->tag);
	else
		pg_int(&q, r->now_ms);
	int result = pg_ask(&q, &rows, NULL);
	if (result != 0)
		return postgres_error(result);
	for (int row = 0; row < rows.rows; row++) {
		*place = (struct place){pg_get_int(&rows, row, 0), pg_get_int(&rows, row, 1)};
		if (!slot_row_owns(r->row, pg_get_text(&rows, row, 2)))
			continue;
		r->total++;
		if (r->count < r->max)
			r->ids[r->count++] = (struct ranked_id){place->created_ms, (uint64_t)place->id};
	}
	*ret_more = (size_t)rows.rows == want && (r->counts_all || r->count < r->max);
	return 0;
}

static int ranked_read(struct pg_conn *c, struct ranked *r, struct place from)
{
	bool more = r->max > 0 || r->counts_all;
	int result = 0;
	r->count = r->total = 0;
	while (result == 0 && more)
		result = ranked_step(c, r, &from, &more);
	return result ? result : postgres_slots_confirm(c, r->row);
}

int postgres_tagged(struct store_postgres *s, const struct slot_row *row, struct str tag, size_t max,
                    struct ranked_id *ret, size_t *ret_count)
{
	struct ranked r = {.statement = &tagged, .row = row, .tag = tag, .max = max, .ids = ret};
	int result = POSTGRES_READ(s, ranked_read(c, &r, (struct place){INT64_MAX, INT64_MAX}));
	*ret_count = r.count;
	return result;
}

/* Counting all takes the longer the more there are. */
static int over_count_on(struct pg_conn *c, int64_t now_ms, uint64_t *ret)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = pg_query(c, &over_count);
	pg_int(&q, now_ms);
	int r = pg_ask(&q, &row, NULL);
	if (r == 0)
		*ret = (uint64_t)pg_get_int(&row, 0, 0);
	return postgres_error(r);
}

static int over_on(struct pg_conn *c, const struct store_over *over, struct ranked *r)
{
	uint64_t total = 0;
	int result = over->count_all ? postgres_error(pg_timeout(c, PG_ANSWER_TIMEOUT_MS, NULL)) : 0;
	if (result == 0 && over->count_all && !r->counts_all)
		result = over_count_on(c, over->now_ms, &total);
	if (result == 0)
		result = ranked_read(c, r, (struct place){0, 0});
	r->total = r->counts_all ? r->total : total;
	return result;
}

int postgres_over(struct store_postgres *s, const struct slot_row *row, const struct store_over *over,
                  struct ranked_id *ret, size_t *ret_count, uint64_t *ret_total)
{
	/* Only where all rows are ours can the database count them. */
	struct ranked r = {.statement = &over_ids,
	                   .row = row,
	                   .now_ms = over->now_ms,
	                   .max = over->max,
	                   .counts_all = over->count_all && slot_row_has_hidden(row),
	                   .ids = ret};
	int result = POSTGRES_READ(s, over_on(c, over, &r));
	*ret_count = r.count;
	*ret_total = r.total;
	return result;
}

/* --- who may follow a link --- */

static const struct pg_statement permitted = {
    "permitted", "SELECT p.user_id, l.key FROM link l JOIN permission p ON p.key = l.key WHERE l.id = $1"
                 " ORDER BY p.user_id"};

static int permitted_on(struct pg_conn *c, const struct slot_row *slots, uint64_t link, struct arena *arena,
                        uint64_t **ret, size_t *ret_count)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(c, &permitted);
	pg_int(&q, (int64_t)MIN(link, INT64_MAX));
	int r = pg_ask(&q, &result, NULL);
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
