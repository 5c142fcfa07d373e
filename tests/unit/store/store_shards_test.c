/*
 * Links spread over several databases: how they become one store, what a server does when slots are
 * elsewhere, frozen, or given and not taken, and what becomes of databases that are down, restored or lost.
 * Steps of moves are made here by hand, as a `curt reshard` would have left them that was killed in between.
 */
#include "lib/database_kit.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "store/backends.h"
#include "store/reshard.h"
#include "store/shards.h"

enum { LINKS = 60, TOKEN = 77 };

static char (*const urls)[POSTGRES_KIT_URL_BYTES] = database_kit_urls;
static struct arena arena;
static struct store *store; /* a server's */
static struct err e;

static struct store *open_these(const char *const *list, size_t n, bool is_admin)
{
	struct str strs[DATABASE_KIT_MAX];
	struct store *s = NULL;
	for (size_t i = 0; i < n; i++)
		strs[i] = str_of(list[i]);
	const struct store_shards_config config = {.urls = strs, .count = n, .is_admin = is_admin};
	e.text[0] = '\0';
	return store_shards_open(&config, &s, &e) == 0 ? s : NULL;
}

static struct store *open_first(size_t n)
{
	const char *const list[] = {urls[0], urls[1], urls[2]};
	struct store *s = open_these(list, n, false);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static struct store *open_admin(size_t n)
{
	const char *const list[] = {urls[0], urls[1], urls[2]};
	struct store *s = open_these(list, n, true);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static int setup(void **state)
{
	for (size_t i = 0; i < DATABASE_KIT_MAX && urls[0][0]; i++)
		postgres_kit_database_empty(urls[i]);
	return 0;
}

static int teardown(void **state)
{
	database_kit_calm(state);
	store_free(store);
	store = NULL;
	arena_release(&arena);
	return 0;
}

static void links_make(uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++) {
		struct store_write w = kit_generated(&arena, i);
		w.link.tags = STR("[\"all\"]");
		assert_int_equal(kit_apply(store, &w), 0);
	}
}

static void links_check(struct store *s, uint64_t first, uint64_t count)
{
	struct store_list page = {.limit = 1000, .arena = &arena};
	uint64_t ids[1000];
	size_t tagged;
	for (uint64_t i = first; i < first + count; i++)
		assert_int_equal(kit_find_generated(s, &arena, i), 0);
	assert_int_equal(store_list(s, &page), 0);
	assert_int_equal(page.count, count);
	assert_int_equal(store_tagged(s, STR("all"), ARRAY_LEN(ids), ids, &tagged), 0);
	assert_int_equal(tagged, count);
}

static int64_t links_in(size_t i)
{
	return postgres_kit_ask(urls[i], "SELECT count(*) FROM link");
}

static void reshard_with(size_t n, const char *leave)
{
	struct store *admin = open_admin(n);
	struct reshard *r = calloc(1, sizeof(*r));
	struct str address = leave ? str_of(leave) : STR_NULL;
	r->leave = &address;
	r->leave_count = leave != NULL;
	int result = store_reshard(admin, r, &e);
	store_free(admin);
	free(r);
	if (result != 0)
		fail_msg("%s", e.text);
}

/* --- a database by hand --- */

static struct store_postgres *db_open(size_t i)
{
	const struct postgres_config config = {.url = str_of(urls[i])};
	struct store_postgres *db = NULL;
	assert_int_equal(postgres_new(&config, &db, &e), 0);
	assert_int_equal(postgres_connect(db, &e), 0);
	return db;
}

static struct slot_row row_of(size_t i)
{
	struct slot_row row;
	struct store_postgres *db = db_open(i);
	assert_int_equal(postgres_slots_get(db, &row), 0);
	postgres_close(db);
	return row;
}

static int step(size_t i, slot_rule_fn *rule, const struct slot_attempt *a)
{
	struct slot_row row;
	struct store_postgres *db = db_open(i);
	int r = postgres_slots_change(db, rule, a, &row);
	postgres_close(db);
	return r;
}

/* An attempt to move half of what the first database has to the second. */
static struct slot_set moving;
static uint8_t target[SHARD_NAME_BYTES];

static struct slot_attempt attempt_make(int64_t freeze_ms)
{
	struct slot_row from = row_of(0), to = row_of(1);
	memcpy(target, to.name, sizeof(target));
	moving = from.owned;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot += 2)
		moving.bits[slot / 8] &= (uint8_t) ~(1 << slot % 8);
	return (struct slot_attempt){.token = TOKEN, .slots = &moving, .to = target, .freeze_ms = freeze_ms};
}

/* A generated link among the first that is moving, or that stays in the first database. */
static uint64_t id_that_moves(bool moves)
{
	struct slot_row from = row_of(0);
	for (uint64_t i = 1; i <= LINKS; i++) {
		unsigned slot = slot_of(kit_generated(&arena, i).ref.key);
		if (slots_have(&moving, slot) == moves && (moves || slots_have(&from.owned, slot)))
			return i;
	}
	fail_msg("there is none");
	return 0;
}

static void names_copy(void)
{
	struct store_postgres *from = db_open(0), *to = db_open(1);
	static struct str names[1000];
	struct slot_row row;
	size_t count = 0, kept = 0;
	assert_int_equal(postgres_slots_get(to, &row), 0);
	assert_int_equal(postgres_names_after(from, STR_NULL, ARRAY_LEN(names), &arena, names, &count), 0);
	for (size_t i = 0; i < count; i++) {
		if (slots_have(&moving, slot_of(names[i])))
			names[kept++] = names[i];
	}
	assert_int_equal(postgres_names_copy(from, to, &row, names, kept, &e), 0);
	postgres_close(from);
	postgres_close(to);
}

static int title_set(uint64_t id)
{
	CLEANUP(arena_release) struct arena own = {0};
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = KIT_NOW_MS,
	                        .arena = &own,
	                        .ref = kit_generated(&own, id).ref,
	                        .fields = LINK_TITLE,
	                        .link.title = STR("changed")};
	int r = store_apply(store, &w, 1);
	return r ? r : w.result;
}

/* --- how they become one store --- */

TEST(empty_databases_share_all_slots_and_the_order_does_not_matter)
{
	database_kit_need();
	const char *const back[] = {urls[1], urls[0]};
	store = open_first(2);
	links_make(1, LINKS);
	assert_true(links_in(0) > LINKS / 4 && links_in(1) > LINKS / 4);
	struct slot_row a = row_of(0), b = row_of(1);
	assert_false(slots_meet(&a.owned, &b.owned));
	slots_join(&a.owned, &b.owned);
	assert_true(slots_include(&a.owned, &slots_all));
	for (uint64_t i = 1; i <= LINKS; i++) {
		struct str key = kit_generated(&arena, i).ref.key;
		assert_int_equal(store_shard_of(store, key), slots_have(&b.owned, slot_of(key)));
	}
	assert_int_equal(store_shard_count(store), 2);
	store_free(store);
	store = open_these(back, 2, false);
	assert_non_null(store);
	links_check(store, 1, LINKS);
	assert_int_equal(store_ping(store, &e), 0);
}

TEST(a_database_of_its_own_keeps_all_until_it_is_resharded)
{
	database_kit_need();
	struct store_write order = kit_generated(&arena, LINKS + 1);
	order.idempotency_key = STR("order");
	order.idempotency_owner = 7;
	order.link.tags = STR("[\"all\"]");
	store = open_first(1);
	links_make(1, LINKS);
	assert_int_equal(kit_apply(store, &order), 0);
	struct store *alone = store;
	store = open_first(2);
	links_check(store, 1, LINKS + 1);
	assert_int_equal(links_in(1), 0);
	reshard_with(2, NULL);
	assert_true(links_in(1) > LINKS / 4);
	links_check(store, 1, LINKS + 1);

	/* A create that was remembered is repeated, whatever key the retry chose. */
	struct store_write retry = kit_generated(&arena, LINKS + 99);
	retry.idempotency_key = STR("order");
	retry.idempotency_owner = 7;
	assert_int_equal(kit_apply(store, &retry), 0);
	assert_true(retry.replayed && retry.link.id == LINKS + 1);

	/* A server that was left with one URL fails, and says why. */
	struct store_lookup read = {.ref = kit_generated(&arena, 1).ref, .arena = &arena};
	int r = store_lookup(alone, &read, 1);
	assert_int_equal(r ? r : read.result, ERR_UNAVAILABLE);
	struct store_write w = kit_generated(&arena, LINKS + 50);
	assert_int_equal(store_apply(alone, &w, 1), ERR_UNAVAILABLE);
	assert_int_equal(store_ping(alone, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "store.url must list"));
	store_free(alone);
	assert_null(open_these((const char *[]){urls[1]}, 1, false));
	assert_non_null(strstr(e.text, "store.url must list"));

	/* When all have left it, it is the whole again. */
	const char *address = strstr(urls[1], "@") ? strstr(urls[1], "@") + 1 : strstr(urls[1], "://") + 3;
	reshard_with(2, address);
	assert_int_equal(links_in(1), 0);
	alone = open_first(1);
	links_check(alone, 1, LINKS + 1);
	store_free(alone);
}

TEST(databases_that_were_never_one_store_are_refused)
{
	database_kit_need();
	const char *const twice[] = {urls[0], urls[0]}, *const two[] = {urls[0], urls[1]};
	assert_null(open_these(twice, 2, false));
	assert_non_null(strstr(e.text, "twice"));
	assert_null(open_these(two, 2, true)); /* for `curt reshard` nothing is made */
	assert_non_null(strstr(e.text, "not one store yet"));
	for (size_t i = 0; i < 2; i++) {
		struct store *s = database_kit_store(urls[i]);
		struct store_write w = kit_generated(&arena, 1);
		assert_int_equal(kit_apply(s, &w), 0);
		store_free(s);
	}
	assert_null(open_these(two, 2, false));
	assert_non_null(strstr(e.text, "both have links"));
}

TEST(a_ring_of_an_earlier_version_is_refused_with_what_to_do)
{
	database_kit_need();
	const char *const one[] = {urls[0]};
	store_free(database_kit_store(urls[0]));
	postgres_kit_run(urls[0],
	                 "UPDATE ring_state SET epoch = 3, description = convert_to('{\"home\":\"a\","
	                 "\"members\":[{\"name\":\"a\",\"address\":\"x\"},"
	                 "{\"name\":\"b\",\"address\":\"y\"}]}', 'UTF8')");
	assert_null(open_these(one, 1, false));
	assert_non_null(strstr(e.text, "0.1.0"));
	postgres_kit_run(urls[0], "UPDATE ring_state SET description = convert_to('{\"home\":\"a\","
	                          "\"members\":[{\"name\":\"a\",\"address\":\"x\"}]}', 'UTF8')");
	store = open_first(1); /* of one it is that one */
}

TEST(servers_that_start_at_once_make_one_store)
{
	database_kit_need();
	const char *const back[] = {urls[1], urls[0]};
	store = open_first(2);
	postgres_kit_run(urls[0], "DELETE FROM slot_map"); /* as if the first had died on its way */
	store_free(store);
	store = NULL;
	struct store *s = open_these(back, 2, false);
	assert_non_null(s);
	assert_int_equal(postgres_kit_ask(urls[0], "SELECT count(*) FROM slot_map") +
	                     postgres_kit_ask(urls[1], "SELECT count(*) FROM slot_map"),
	                 1);
	assert_int_equal(store_ping(s, &e), 0);
	store_free(s);
}

/* --- steps of a move --- */

TEST(rows_that_are_not_ours_are_never_seen)
{
	database_kit_need();
	store = open_first(2);
	links_make(1, LINKS);
	struct slot_attempt a = attempt_make(0);
	assert_int_equal(step(0, slot_row_begin, &a), 0);
	assert_int_equal(step(1, slot_row_expect, &a), 0);
	names_copy();
	assert_true(links_in(0) + links_in(1) > LINKS);
	links_check(store, 1, LINKS);
	struct store_expired expired = {
	    .now_ms = INT64_MAX, .max = 1, .ids = (uint64_t[1]){0}, .count_all = true};
	assert_int_equal(store_expired(store, &expired), 0);
	assert_int_equal(expired.total, 0);
	struct store_lookup read = {.ref.id = id_that_moves(true), .arena = &arena}; /* by its row */
	assert_int_equal(store_lookup(store, &read, 1), 0);
	assert_int_equal(read.result, 0);

	/* What is changed now is in the feed, also new totals; the copy stays as it was. */
	struct store_count total = {.id = id_that_moves(true), .clicks = 9};
	int64_t before = postgres_kit_ask(urls[0], "SELECT count(*) FROM link_feed");
	assert_int_equal(store_set_clicks(store, 1, &total, 1), 0);
	assert_int_equal(postgres_kit_ask(urls[0], "SELECT count(*) FROM link_feed"), before + 1);
	assert_int_equal(title_set(id_that_moves(true)), 0);

	/* Another one begins anew, and what lies there in vain is gone. */
	reshard_with(2, NULL);
	links_check(store, 1, LINKS);
	assert_int_equal(links_in(0) + links_in(1), LINKS);
	struct slot_row from = row_of(0), to = row_of(1);
	assert_true(from.move == MOVE_NONE && to.in_token == 0 && !slot_row_has_hidden(&to));
}

TEST(changes_wait_for_a_frozen_slot_and_reads_do_not)
{
	database_kit_need();
	store = open_first(2);
	links_make(1, LINKS);
	struct slot_attempt a = attempt_make(3600 * 1000);
	assert_int_equal(step(0, slot_row_begin, &a), 0);
	assert_int_equal(step(1, slot_row_expect, &a), 0);
	assert_int_equal(step(0, slot_row_freeze, &a), 0);
	links_check(store, 1, LINKS);
	assert_int_equal(title_set(id_that_moves(false)), 0);
	assert_int_equal(row_of(0).move, MOVE_FREEZE);
	/* Nobody comes: the freeze is rolled back by the change that waits for it. */
	a.freeze_ms = 300;
	assert_int_equal(step(0, slot_row_abandon, &a), 0);
	assert_int_equal(step(0, slot_row_begin, &a), 0);
	assert_int_equal(step(0, slot_row_freeze, &a), 0);
	assert_int_equal(title_set(id_that_moves(true)), 0);
	assert_int_equal(row_of(0).move, MOVE_COPY);
	assert_int_equal(step(0, slot_row_give, &a), ERR_CONFLICT);
	struct store_count total = {.id = id_that_moves(true), .clicks = 9};
	assert_int_equal(step(0, slot_row_freeze, &a), 0);
	assert_int_equal(store_set_clicks(store, 1, &total, 1), 0); /* likewise */
}

TEST(what_was_given_and_not_taken_is_taken_by_the_next_server)
{
	database_kit_need();
	store = open_first(2);
	links_make(1, LINKS);
	struct store *other = open_first(2);
	struct slot_attempt a = attempt_make(5000);
	uint64_t id = id_that_moves(true);
	assert_int_equal(step(0, slot_row_begin, &a), 0);
	assert_int_equal(step(1, slot_row_expect, &a), 0);
	names_copy();
	assert_int_equal(step(0, slot_row_freeze, &a), 0);
	assert_int_equal(step(0, slot_row_give, &a), 0);
	assert_int_equal(title_set(id), 0);
	struct slot_row from = row_of(0), to = row_of(1);
	assert_true(from.move == MOVE_NONE && slots_include(&to.owned, &moving));
	struct link_record link;
	struct str key = kit_generated(&arena, id).ref.key;
	assert_int_equal(kit_find(store, &arena, id, arena_printf(&arena, "%.*s", STR_ARG(key)).ptr, &link),
	                 0);
	assert_true(str_eq(link.title, STR("changed")));
	links_check(store, 1, LINKS);
	links_check(other, 1, LINKS); /* which had the old map */
	store_free(other);
	/* The map has followed. */
	assert_int_equal(postgres_kit_ask(urls[0], "SELECT version FROM slot_map"), 2);
}

TEST(who_wakes_up_late_copies_and_gives_nothing)
{
	database_kit_need();
	store = open_first(2);
	links_make(1, LINKS);
	struct slot_attempt a = attempt_make(5000);
	assert_int_equal(step(0, slot_row_begin, &a), 0);
	assert_int_equal(step(1, slot_row_expect, &a), 0);
	struct slot_row late = row_of(1);
	assert_int_equal(step(0, slot_row_freeze, &a), 0);
	reshard_with(2, NULL); /* another one takes over */
	assert_int_equal(step(0, slot_row_give, &a), ERR_CONFLICT);
	assert_int_equal(step(1, slot_row_take, &a), ERR_CONFLICT);
	struct store_postgres *from = db_open(0), *to = db_open(1);
	struct str key = kit_generated(&arena, id_that_moves(true)).ref.key;
	assert_int_equal(postgres_names_copy(from, to, &late, &key, 1, &e), ERR_CONFLICT);
	postgres_close(from);
	postgres_close(to);
	links_check(store, 1, LINKS);
}

static void *touch(void *arg)
{
	return (void *)(intptr_t)step(0, slot_row_adopt, arg);
}

TEST(a_change_of_slots_waits_for_writers)
{
	database_kit_need();
	store = open_first(1);
	struct slot_attempt none = {.slots = &slots_none};
	struct slot_row before = row_of(0);
	database_kit_hold(urls[0],
	                  "BEGIN; SELECT pg_advisory_xact_lock_shared(1668641397, oid::int) FROM pg_namespace"
	                  " WHERE nspname = current_schema()");
	database_kit_start_waiting(urls[0], touch, &none);
	assert_int_equal(row_of(0).version, before.version);
	database_kit_let_go();
	database_kit_join();
	assert_true(row_of(0).version > before.version);
	links_make(1, 1); /* the server hears of it by itself */
}

TEST(nothing_is_read_or_written_by_another_row)
{
	database_kit_need();
	struct store_postgres *db = db_open(0);
	struct slot_row row = row_of(0), old = row;
	struct store_write w = kit_generated(&arena, 1);
	struct store_lookup read = {.ref = w.ref, .arena = &arena};
	struct store_list page = {.limit = 1, .arena = &arena};
	struct store_count total = {.id = 1, .clicks = 1};
	struct ranked_id ranked[2];
	struct postgres_ids tagged = {.tag = STR("t"), .max = 1, .ids = ranked},
	                    expired = {.max = 1, .ids = ranked};
	uint64_t ids[1], *users;
	size_t count;
	bool more;
	old.version--;
	assert_int_equal(postgres_apply(db, &old, &w, 1), ERR_CONFLICT);
	assert_int_equal(postgres_lookup(db, &old, &read, 1), ERR_CONFLICT);
	assert_int_equal(postgres_list(db, &old, (struct ranked_id){0}, &page, &more), ERR_CONFLICT);
	assert_int_equal(postgres_ids(db, &old, &tagged), ERR_CONFLICT);
	assert_int_equal(postgres_ids(db, &old, &expired), ERR_CONFLICT);
	assert_int_equal(postgres_permitted(db, &old, 1, &arena, &users, &count), ERR_CONFLICT);
	assert_int_equal(postgres_set_clicks(db, &old, 1, &total, 1), ERR_CONFLICT);
	assert_int_equal(postgres_claim(db, &old, 1, 0, 1, ids, &count), ERR_CONFLICT);
	assert_int_equal(postgres_names_remove(db, &old, &w.ref.key, 1), ERR_CONFLICT);
	assert_int_equal(postgres_apply(db, &row, &w, 1), 0);
	assert_int_equal(postgres_lookup(db, &row, &read, 1), 0);
	assert_int_equal(read.result, 0);
	/* A failure of the database is not taken for another row. */
	w = kit_generated(&arena, 2);
	postgres_kit_run(urls[0], "ALTER TABLE link RENAME COLUMN note TO notice");
	assert_int_equal(postgres_apply(db, &row, &w, 1), ERR_UNAVAILABLE);
	postgres_kit_run(urls[0], "ALTER TABLE link RENAME COLUMN notice TO note");
	postgres_close(db);
}

TEST(everything_under_a_name_moves_with_it)
{
	database_kit_need();
	store = open_first(1);
	struct registry_write user = kit_user(&arena, "one@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(store, &user), 0);
	for (uint64_t i = 1; i <= LINKS; i++) {
		const char *name = arena_printf(&arena, "name-%llu", (unsigned long long)i).ptr;
		struct store_write batch[] = {kit_alias(&arena, i, name), kit_generated(&arena, 1000 + i)};
		batch[0].link.is_private = true;
		batch[0].link.tags = STR("[\"all\"]");
		batch[1].link.expires_ms = KIT_NOW_MS;
		assert_int_equal(store_apply(store, batch, 2), 0);
		struct store_write more[] = {
		    {.kind = STORE_PERMIT, .ref = batch[0].ref, .user = user.user.id},
		    {.kind = STORE_LINK_SWEEP, .ref = batch[1].ref}};
		for (size_t k = 0; k < 2; k++) {
			more[k].now_ms = KIT_NOW_MS;
			more[k].arena = &arena;
			assert_int_equal(kit_apply(store, &more[k]), 0);
		}
		struct store_count total = {.id = i, .clicks = 100 + i};
		assert_int_equal(store_set_clicks(store, 1, &total, 1), 0);
	}
	store_free(store);
	store = open_first(3);
	reshard_with(3, NULL);
	for (uint64_t i = 1; i <= LINKS; i++) {
		struct store_lookup read = {
		    .ref.key = arena_printf(&arena, "name-%llu", (unsigned long long)i),
		    .user = user.user.id,
		    .arena = &arena};
		assert_int_equal(store_lookup(store, &read, 1), 0);
		assert_int_equal(read.result, 0);
		assert_true(read.permitted && read.link.clicks == 100 + i);
	}
	/* Keys whose links are gone come back, once each. */
	static bool seen[LINKS + 1];
	uint64_t ids[7];
	size_t count, all = 0;
	do {
		assert_int_equal(store_claim(store, KIT_NOW_MS, 0, ARRAY_LEN(ids), ids, &count), 0);
		for (size_t i = 0; i < count; i++) {
			assert_in_range(ids[i], 1001, 1000 + LINKS);
			assert_false(seen[ids[i] - 1000]);
			seen[ids[i] - 1000] = true;
		}
		all += count;
	} while (count > 0);
	assert_int_equal(all, LINKS);
	assert_true(links_in(0) > 0 && links_in(1) > 0 && links_in(2) > 0);
}

/* --- databases that are down, restored or lost --- */

static void own_check(const struct slot_row *there, int expected)
{
	for (uint64_t i = 1; i <= LINKS; i++) {
		bool is_there = slots_have(&there->owned, slot_of(kit_generated(&arena, i).ref.key));
		assert_int_equal(kit_find_generated(store, &arena, i), is_there ? 0 : expected);
	}
}

TEST(a_database_that_is_down_fails_only_its_own_and_is_opened_when_it_is_back)
{
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES];
	struct relay *relay = database_kit_relay(urls[1], through);
	const char *const list[] = {urls[0], through};
	store = open_these(list, 2, false);
	assert_non_null(store);
	links_make(1, LINKS);
	struct slot_row there = row_of(0);
	store_free(store);
	relay_set(relay, RELAY_CUT);
	store = open_these(list, 2, false); /* it starts without it */
	assert_non_null(store);
	own_check(&there, ERR_UNAVAILABLE);
	assert_int_equal(store_ping(store, &e), ERR_UNAVAILABLE);
	struct store_list page = {.limit = 1, .arena = &arena};
	assert_int_equal(store_list(store, &page), ERR_UNAVAILABLE);
	struct store_write batch[] = {kit_generated(&arena, 1), kit_generated(&arena, 2)};
	batch[0].kind = batch[1].kind = STORE_LINK_UPDATE;
	assert_int_equal(store_apply(store, batch, 2), 0);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(batch[i].result,
		                 slots_have(&there.owned, slot_of(batch[i].ref.key)) ? 0 : ERR_UNAVAILABLE);
	relay_set(relay, RELAY_PASS);
	/* It counts as down until its slots are known: no list leaves out what lies there. */
	page.limit = 2 * LINKS;
	int r;
	while ((r = store_list(store, &page)) != 0)
		assert_int_equal(r, ERR_UNAVAILABLE);
	assert_int_equal(page.count, LINKS);
	UNTIL(store_ping(store, &e) == 0);
	own_check(&there, 0);
	store_free(store);
	store = NULL;
	relay_stop(relay);
}

static atomic_uint given_up; /* by those who wait for a database that hangs */

static void *title_set_hanging(void *arg)
{
	(void)title_set(*(uint64_t *)arg);
	given_up++;
	return NULL;
}

TEST(a_database_that_hangs_delays_no_change_of_another)
{
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES];
	struct relay *relay = database_kit_relay(urls[1], through);
	const char *const list[] = {urls[0], through};
	pthread_t threads[3];
	store = open_these(list, 2, false);
	assert_non_null(store);
	links_make(1, LINKS);
	struct slot_row there = row_of(0);
	uint64_t own = 1, other = 1;
	while (!slots_have(&there.owned, slot_of(kit_generated(&arena, own).ref.key)))
		own++;
	while (slots_have(&there.owned, slot_of(kit_generated(&arena, other).ref.key)))
		other++;
	relay_set(relay, RELAY_HOLD);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_create(&threads[i], NULL, title_set_hanging, &other);
	for (int i = 0; i < 20; i++) {
		struct store_write w = kit_generated(&arena, own);
		w.kind = STORE_LINK_UPDATE;
		assert_int_equal(kit_apply(store, &w), 0);
	}
	assert_int_equal(given_up, 0); /* all were done before one of those had to end */
	relay_set(relay, RELAY_PASS);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	store_free(store);
	store = NULL;
	relay_stop(relay);
}

TEST(what_a_restored_database_brings_back_is_neither_listed_nor_kept)
{
	database_kit_need();
	store = open_first(2);
	links_make(1, LINKS);
	struct slot_row before = row_of(0);
	postgres_kit_run(urls[0], "CREATE TABLE backup AS SELECT * FROM link;"
	                          " CREATE TABLE slots_backup AS SELECT * FROM slot_state");
	store_free(store);
	store = open_first(3);
	reshard_with(3, NULL);
	store_free(store);
	postgres_kit_run(urls[0],
	                 "DELETE FROM link; INSERT INTO link SELECT * FROM backup; DELETE FROM slot_state;"
	                 " INSERT INTO slot_state SELECT * FROM slots_backup;"
	                 " DROP TABLE backup; DROP TABLE slots_backup");
	store = open_first(3);
	for (uint64_t i = 1; i <= LINKS; i++)
		assert_int_equal(kit_find_generated(store, &arena, i), 0);
	reshard_with(3, NULL);
	assert_int_equal(links_in(0) + links_in(1) + links_in(2), LINKS);
	struct slot_row after = row_of(0);
	assert_true(slots_count(&after.owned) < slots_count(&before.owned));
	links_check(store, 1, LINKS);
}

TEST(a_database_that_is_lost_can_be_given_up)
{
	database_kit_need();
	struct shards_status *status = calloc(1, sizeof(*status));
	store = open_first(2);
	links_make(1, LINKS);
	store_free(store);
	store = NULL;
	struct slot_row kept = row_of(0);
	postgres_kit_database_empty(urls[1]); /* another one stands in its place */
	postgres_kit_run(urls[1], "DELETE FROM constant");
	store = open_first(2);
	assert_int_equal(store_ping(store, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "is not the one"));
	struct store *admin = open_admin(2);
	store_shards_status(admin, status);
	struct str address = STR_NULL;
	for (size_t i = 0; i < status->count; i++) {
		if (status->shards[i].is_lost)
			address = arena_str(&arena, str_of(status->shards[i].address));
	}
	assert_non_null(address.ptr);
	assert_int_equal(store_shards_forget(admin, address, false, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "--yes"));
	assert_int_equal(store_shards_forget(admin, address, true, &e), 0);
	store_free(admin);
	for (uint64_t i = 1; i <= LINKS; i++) {
		bool is_there = slots_have(&kept.owned, slot_of(kit_generated(&arena, i).ref.key));
		UNTIL(kit_find_generated(store, &arena, i) == (is_there ? 0 : ERR_NOT_FOUND));
	}
	reshard_with(2, NULL); /* and the empty one joins */
	assert_true(links_in(1) > 0);
	free(status);
}

TEST(ids_go_on_behind_the_highest_of_all_databases)
{
	database_kit_need();
	uint64_t first;
	store = open_first(2);
	links_make(1, LINKS);
	store_free(store);
	postgres_kit_run(urls[0], "DELETE FROM counter"); /* of an older backup */
	store = open_first(2);
	assert_int_equal(registry_lease(store->registry, STORE_LINK_COUNTER, 1, &first), 0);
	assert_int_equal(first, LINKS + 1);
}

/* --- changes of several databases --- */

TEST(a_retry_is_repeated_whatever_database_its_own_key_lies_in)
{
	database_kit_need();
	store = open_first(2);
	for (uint64_t i = 1; i <= 20; i++) {
		struct store_write first = kit_generated(&arena, i), retry = kit_generated(&arena, 100 + i);
		first.idempotency_key = retry.idempotency_key = arena_printf(&arena, "order-%llu",
		                                                             (unsigned long long)i);
		first.idempotency_owner = retry.idempotency_owner = 7;
		assert_int_equal(kit_apply(store, &first), 0);
		assert_int_equal(kit_apply(store, &retry), 0);
		assert_true(retry.replayed && retry.link.id == i);
		retry.fingerprint[0] = 1;
		assert_int_equal(kit_apply(store, &retry), ERR_INVALID);
	}
}

TEST_MAIN(.group_setup = database_kit_three, .group_teardown = database_kit_down, .setup = setup,
          .teardown = teardown)
