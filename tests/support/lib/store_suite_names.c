/* The conformance suite's tests of how links end, and of what becomes of their names then. */
#include "base/buf.h"
#include "lib/store_suite_private.h"
#include "lib/test.h"

enum { OVER_MS = KIT_NOW_MS + 100, REST_MS = 1000, OTHER_OWNER = 8 };

/* A create of an alias of owner 7 that is over at OVER_MS. */
static struct store_write mortal(uint64_t id, const char *name)
{
	struct store_write w = kit_alias(&suite.arena, id, name);
	w.link.expires_ms = OVER_MS;
	w.quarantine_ms = REST_MS;
	return w;
}

static struct store_write reap(const char *name, int64_t now_ms)
{
	struct store_write w = on_alias(STORE_LINK_SWEEP, name);
	w.now_ms = now_ms;
	w.quarantine_ms = REST_MS;
	return w;
}

static struct store_write take(uint64_t id, const char *name, uint64_t owner, int64_t now_ms)
{
	struct store_write w = kit_alias(&suite.arena, id, name);
	w.link.owner = owner;
	w.now_ms = now_ms;
	w.quarantine_ms = REST_MS;
	return w;
}

static void create_and_reap(uint64_t id, const char *name)
{
	struct store_write batch[] = {mortal(id, name), reap(name, OVER_MS)};
	assert_int_equal(store_apply(suite.store, batch, 2), 0);
	assert_int_equal(batch[0].result, 0);
	assert_int_equal(batch[1].result, 0);
}

/* --- reap --- */

TEST(a_sweep_removes_only_what_has_expired)
{
	const int64_t now_ms = 5000;
	const struct {
		int64_t expires_ms;
		int result;
	} cases[] = {{0, ERR_CONFLICT}, {5001, ERR_CONFLICT}, {5000, 0}, {4999, 0}, {1, 0}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct store_write w = kit_alias(&suite.arena, i + 1,
		                                 arena_printf(&suite.arena, "a%zu", i).ptr);
		w.link.expires_ms = cases[i].expires_ms;
		assert_int_equal(kit_apply(suite.store, &w), 0);
		struct store_write reap = {
		    .kind = STORE_LINK_SWEEP, .now_ms = now_ms, .arena = &suite.arena, .ref = w.ref};
		assert_int_equal(kit_apply(suite.store, &reap), cases[i].result);
		assert_int_equal(find(0, w.ref.key.ptr, NULL), cases[i].result ? 0 : ERR_NOT_FOUND);
		if (cases[i].result == 0)
			assert_link(&reap.link, &w.link);
	}
}

TEST(a_link_with_a_place_for_the_late_is_over_two_years_after_its_end)
{
	struct store_write w = mortal(1, "name");
	w.link.expired_url = STR("https://late.example/");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct store_write early = reap("name", OVER_MS + LINK_LATE_MS - 1);
	assert_int_equal(kit_apply(suite.store, &early), ERR_CONFLICT);
	struct store_write heir = take(2, "name", 7, OVER_MS + LINK_LATE_MS - 1);
	assert_int_equal(kit_apply(suite.store, &heir), ERR_CONFLICT);
	struct store_write due = reap("name", OVER_MS + LINK_LATE_MS);
	assert_int_equal(kit_apply(suite.store, &due), 0);
	assert_link(&due.link, &w.link);
}

/* --- names --- */

TEST(a_link_that_is_over_does_not_hold_its_name)
{
	struct store_write w = kit_alias(&suite.arena, 1, "name");
	w.link.expires_ms = KIT_NOW_MS + 10;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct store_write early = kit_alias(&suite.arena, 2, "name");
	early.now_ms = KIT_NOW_MS + 9;
	assert_int_equal(kit_apply(suite.store, &early), ERR_CONFLICT);
	struct store_write late = kit_alias(&suite.arena, 3, "name");
	late.now_ms = KIT_NOW_MS + 10;
	assert_int_equal(kit_apply(suite.store, &late), 0);
	struct link_record link;
	assert_int_equal(kit_find(suite.store, &suite.arena, 0, "name", &link), 0);
	assert_int_equal(link.id, 3);
	struct store_list all = {.limit = 10, .arena = &suite.arena};
	assert_int_equal(store_list(suite.store, &all), 0);
	assert_int_equal(all.count, 1); /* the old row is gone too */
}

/* --- generated keys --- */

static void lease_ids(uint64_t count)
{
	uint64_t first;
	assert_int_equal(registry_lease(suite.store->registry, STR("link"), count, &first), 0);
}

/* What an alias in row `row` gets that reads like the key of `id`, long after all is over. */
static int take_key(uint64_t row, uint64_t id, uint64_t owner)
{
	const char *name = arena_printf(&suite.arena, "g%llu", (unsigned long long)id).ptr;
	struct store_write w = take(row, name, owner, OVER_MS + LINK_LATE_MS);
	uint64_t next;
	assert_int_equal(registry_counter(suite.store->registry, STORE_LINK_COUNTER, &next), 0);
	w.ref.id = id;
	w.was_issued = id < next;
	return kit_apply(suite.store, &w);
}

static void assert_key_is_taken(uint64_t id)
{
	assert_int_equal(take_key(1000, id, 7), ERR_CONFLICT); /* the owner of all the kit's links */
	assert_int_equal(take_key(1000, id, OTHER_OWNER), ERR_CONFLICT);
}

static void create_mortal_generated(uint64_t id)
{
	struct store_write w = kit_generated(&suite.arena, id);
	w.link.expires_ms = OVER_MS;
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

TEST(the_key_of_a_generated_link_that_is_gone_is_for_nobody)
{
	lease_ids(10);
	create_mortal_generated(3);
	create_mortal_generated(4);
	struct store_write gone[] = {on_generated(STORE_LINK_DELETE, 3), on_generated(STORE_LINK_SWEEP, 4)};
	gone[1].now_ms = OVER_MS;
	assert_int_equal(store_apply(suite.store, gone, 2), 0);
	for (uint64_t id = 3; id <= 4; id++) {
		assert_int_equal(kit_find_generated(suite.store, &suite.arena, id), ERR_NOT_FOUND);
		assert_key_is_taken(id);
		assert_int_equal(kit_find_generated(suite.store, &suite.arena, id), ERR_NOT_FOUND);
	}
	create_alias(1000, "the-row-is-free");
}

TEST(an_alias_may_read_like_a_key_that_is_still_to_come)
{
	uint64_t first;
	assert_int_equal(registry_lease(suite.store->registry, STR("other"), 500, &first),
	                 0); /* no links' counter */
	assert_int_equal(take_key(1001, 1, OTHER_OWNER), 0);
	lease_ids(10);
	assert_key_is_taken(10); /* the last that was leased, whether it was used or not */
	assert_int_equal(take_key(1002, 11, OTHER_OWNER), 0);
	assert_int_equal(take_key(1003, UINT64_MAX, OTHER_OWNER), 0);
	lease_ids(1);
	struct store_write meets = kit_generated(&suite.arena, 11); /* and then is skipped */
	assert_int_equal(kit_apply(suite.store, &meets), ERR_CONFLICT);
	struct link_record link;
	assert_int_equal(find(11, "g11", &link), 0);
	assert_int_equal(link.id, 1002);
	struct store_write generated = kit_generated(&suite.arena, 10);
	assert_int_equal(kit_apply(suite.store, &generated), 0);
}

TEST(a_replay_of_an_alias_is_none_of_the_counters_business)
{
	struct store_write w = take(1000, "g3", 7, KIT_NOW_MS);
	w.ref.id = 3;
	w.idempotency_key = STR("once");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	lease_ids(10);
	w.link.id = 1001;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_true(w.replayed);
	assert_int_equal(w.link.id, 1000);
}

/* --- generated keys that came back --- */

/* What a link in row `row` gets that shall have the key of `id` again. */
static int give_again(uint64_t row, uint64_t id)
{
	struct store_write w = take(row, arena_printf(&suite.arena, "g%llu", (unsigned long long)id).ptr,
	                            OTHER_OWNER, OVER_MS);
	w.ref.id = id;
	w.reuse = true;
	return kit_apply(suite.store, &w);
}

TEST(a_key_that_came_back_names_a_link_of_its_own)
{
	lease_ids(10);
	create_mortal_generated(3);
	struct store_write gone = on_generated(STORE_LINK_SWEEP, 3);
	gone.now_ms = OVER_MS;
	assert_int_equal(kit_apply(suite.store, &gone), 0);
	assert_key_is_taken(3);
	assert_int_equal(give_again(1001, 3), 0);
	struct link_record link;
	assert_int_equal(find(3, "g3", &link), 0);
	assert_int_equal(link.id, 1001);
	assert_true(link.is_alias);
	assert_str(link.key, STR("g3"));
	assert_int_equal(find(3, NULL, NULL), ERR_NOT_FOUND); /* the row of the first */
	struct store_write change = on_generated(STORE_LINK_UPDATE, 3);
	change.fields = LINK_TITLE;
	change.link.title = STR("second");
	assert_int_equal(kit_apply(suite.store, &change), 0);
	assert_int_equal(change.link.id, 1001);
	assert_int_equal(give_again(1002, 3), ERR_CONFLICT);
}

TEST(a_key_that_somebody_has_does_not_come_back)
{
	lease_ids(10);
	create_generated(3);
	create_mortal_generated(4); /* over, and still there */
	create_alias(50, "g5");
	for (uint64_t id = 3; id <= 5; id++)
		assert_int_equal(give_again(1000 + id, id), ERR_CONFLICT);
	assert_int_equal(find(3, "g3", NULL), 0);
	assert_int_equal(find(4, "g4", NULL), 0);
	assert_int_equal(find(5, "g5", NULL), 0);
}

/* --- rest --- */

TEST(the_name_of_a_swept_link_is_quarantined_for_others)
{
	create_and_reap(1, "name");
	struct store_write early = take(2, "name", OTHER_OWNER, OVER_MS + REST_MS - 1);
	assert_int_equal(kit_apply(suite.store, &early), ERR_CONFLICT);
	assert_int_equal(find(0, "name", NULL), ERR_NOT_FOUND);
	struct store_write due = take(2, "name", OTHER_OWNER, OVER_MS + REST_MS);
	assert_int_equal(kit_apply(suite.store, &due), 0);
	assert_int_equal(find(0, "name", NULL), 0);
}

TEST(a_quarantine_begins_when_the_link_expired)
{
	struct store_write made[] = {mortal(1, "late"), mortal(2, "long-ago")};
	assert_int_equal(store_apply(suite.store, made, 2), 0);
	struct store_write late = reap("late", OVER_MS + REST_MS - 1);
	assert_int_equal(kit_apply(suite.store, &late), 0);
	struct store_write w = take(3, "late", OTHER_OWNER, OVER_MS + REST_MS - 1);
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w.now_ms++;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct store_write long_ago = reap("long-ago", OVER_MS + REST_MS);
	assert_int_equal(kit_apply(suite.store, &long_ago), 0);
	w = take(4, "long-ago", OTHER_OWNER, OVER_MS + REST_MS);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

TEST(a_generated_key_does_not_get_a_quarantined_name_of_another_user)
{
	create_and_reap(1, "g5");
	create_and_reap(2, "g6");
	struct store_write w = kit_generated(&suite.arena, 5);
	w.link.owner = OTHER_OWNER;
	w.now_ms = OVER_MS + REST_MS - 1;
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w.now_ms++;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = kit_generated(&suite.arena, 6); /* the owner's own */
	w.now_ms = OVER_MS;
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

TEST(a_quarantine_may_be_endless)
{
	struct store_write batch[] = {mortal(1, "name"), reap("name", OVER_MS)};
	batch[1].quarantine_ms = UINT64_MAX;
	assert_int_equal(store_apply(suite.store, batch, 2), 0);
	struct store_write w = take(2, "name", OTHER_OWNER, 1LL << 60);
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = take(2, "name", 7, 1LL << 60);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

TEST(a_create_that_fails_removes_nobody)
{
	if (suite.backend->has_parts)
		return; /* the row that is taken may lie in another part */
	if (suite.backend->deletes_first)
		return;
	struct store_write made[] = {mortal(1, "name"), kit_generated(&suite.arena, 2)};
	assert_int_equal(store_apply(suite.store, made, 2), 0);
	struct store_write w = take(2, "name", 7, OVER_MS); /* the name would yield, the row does not */
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = take(1, "name", 7, OVER_MS); /* its own row is never used twice */
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	struct link_record link;
	assert_int_equal(find(0, "name", &link), 0);
	assert_int_equal(link.id, 1);
	create_and_reap(3, "rests");
	w = take(2, "rests", 7, OVER_MS);
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = take(4, "rests", OTHER_OWNER, OVER_MS); /* and still does */
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
}

/* A clock that goes back shows a quarantine that was forgotten. */
TEST(names_after_their_quarantine_are_forgotten_and_others_stay)
{
	enum { NAMES = 40 };
	for (uint64_t i = 1; i <= NAMES; i++) {
		const char *name = arena_printf(&suite.arena, "n%llu", (unsigned long long)i).ptr;
		create_and_reap(i, name);
		struct store_write batch[] = {take(100 + i, name, 7, OVER_MS), reap(name, OVER_MS + 5000)};
		batch[0].link.expires_ms = OVER_MS + (int64_t)i;
		batch[1].quarantine_ms = 10000;
		assert_int_equal(store_apply(suite.store, batch, 2), 0);
		assert_int_equal(batch[1].result, 0);
	}
	for (uint64_t i = 1; i <= NAMES; i++) { /* reaps of nothing, when half of the names have rested */
		struct store_write w = {
		    .kind = STORE_LINK_SWEEP,
		    .now_ms = OVER_MS + 10000 + NAMES / 2,
		    .arena = &suite.arena,
		    .ref.key = arena_printf(&suite.arena, "n%llu", (unsigned long long)i)};
		assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
	}
	for (uint64_t i = 1; i <= NAMES; i++) {
		const char *name = arena_printf(&suite.arena, "n%llu", (unsigned long long)i).ptr;
		struct store_write w = take(200 + i, name, OTHER_OWNER, OVER_MS);
		assert_int_equal(kit_apply(suite.store, &w), i <= NAMES / 2 ? 0 : ERR_CONFLICT);
	}
}

/* --- links that may go --- */

static void create_with_end(uint64_t id, int64_t expires_ms, const char *expired_url)
{
	struct store_write w = kit_generated(&suite.arena, id);
	w.link.expires_ms = expires_ms;
	w.link.expired_url = str_of(expired_url);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

/* `expected` has the ids in order, each followed by a space. */
static void assert_over(int64_t now_ms, const char *expected)
{
	uint64_t ids[64];
	struct store_expired expired = {.now_ms = now_ms, .max = ARRAY_LEN(ids), .ids = ids, .count = 99};
	CLEANUP(buf_release) struct buf text = {0};
	assert_int_equal(store_expired(suite.store, &expired), 0);
	assert_true(expired.count <= expired.max);
	for (size_t i = 0; i < expired.count; i++)
		buf_printf(&text, "%llu ", (unsigned long long)ids[i]);
	buf_append(&text, "", 1);
	assert_string_equal(text.data, expected);
	expired.count_all = true;
	assert_int_equal(store_expired(suite.store, &expired), 0);
	assert_int_equal(expired.total, expired.count);
}

TEST(what_is_over_comes_in_the_order_in_which_it_ended)
{
	assert_over(INT64_MAX, "");
	create_with_end(5, 300, NULL);
	create_with_end(1, 500, NULL);
	create_with_end(2, 100, NULL);
	create_with_end(3, 0, NULL);
	create_with_end(4, 50, "https://late.example/");
	create_with_end(0x700000000, 301, NULL);
	struct store_write w = kit_alias(&suite.arena, 7, "name");
	w.link.expires_ms = 300;
	w.link.enabled = false;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_over(99, "");
	assert_over(100, "2 ");
	assert_over(299, "2 ");
	assert_over(300, "2 5 7 ");
	assert_over(499, "2 5 7 30064771072 ");
	assert_over(500, "2 5 7 30064771072 1 ");
	assert_over(50 + LINK_LATE_MS - 1, "2 5 7 30064771072 1 ");
	assert_over(50 + LINK_LATE_MS, "2 5 7 30064771072 1 4 ");
	assert_over(0, "");
	assert_over(-1, "");
}

TEST(what_is_over_follows_every_change)
{
	create_with_end(1, 100, NULL);
	create_with_end(2, 200, NULL);
	create_with_end(3, 300, NULL);
	struct store_write later = on_generated(STORE_LINK_UPDATE, 1);
	later.fields = LINK_EXPIRES;
	later.link.expires_ms = 250;
	struct store_write never = on_generated(STORE_LINK_UPDATE, 2);
	never.fields = LINK_EXPIRES;
	struct store_write kept = on_generated(STORE_LINK_UPDATE, 3);
	kept.fields = LINK_EXPIRED_URL;
	kept.link.expired_url = STR("https://late.example/");
	struct store_write batch[] = {later, never, kept};
	assert_int_equal(store_apply(suite.store, batch, 3), 0);
	assert_over(1000, "1 ");
	never.link.expires_ms = 240;
	kept.link.expired_url = STR_NULL;
	struct store_write back[] = {never, kept};
	assert_int_equal(store_apply(suite.store, back, 2), 0);
	assert_over(1000, "2 1 3 ");
	struct store_write title = on_generated(STORE_LINK_UPDATE, 1);
	title.fields = LINK_TITLE;
	assert_int_equal(kit_apply(suite.store, &title), 0);
	assert_over(1000, "2 1 3 ");
	struct store_write gone[] = {on_generated(STORE_LINK_DELETE, 2), on_generated(STORE_LINK_SWEEP, 3)};
	assert_int_equal(store_apply(suite.store, gone, 2), 0);
	assert_over(1000, "1 ");
}

TEST(no_more_come_than_there_is_room_for_and_all_are_counted)
{
	for (uint64_t id = 1; id <= 30; id++)
		create_with_end(id, (int64_t)id, NULL);
	for (size_t max = 0; max <= 40; max += 10) {
		uint64_t ids[41];
		memset(ids, 0xff, sizeof(ids));
		struct store_expired expired = {
		    .now_ms = 25, .max = max, .ids = ids, .count_all = max != 20, .total = 77};
		assert_int_equal(store_expired(suite.store, &expired), 0);
		assert_int_equal(expired.count, MIN(max, 25));
		assert_int_equal(expired.total, max != 20 ? 25 : 77);
		for (size_t i = 0; i < expired.count; i++)
			assert_int_equal(ids[i], i + 1);
		assert_true(ids[expired.count] == UINT64_MAX);
	}
}

/* --- random changes against a model --- */

enum { MODEL_NAMES = 5, MODEL_OWNERS = 3, MODEL_STEPS = 1500, MODEL_REST_MS = 40 };

/* A name is held by a link, or rests until `until_ms` (0: does not), and in both cases has an owner. */
static struct {
	uint64_t link; /* 0: nobody has it */
	uint64_t owner;
	int64_t over_ms; /* of the link; 0: never */
	int64_t until_ms;
} model[MODEL_NAMES];

static uint32_t random_state;

static uint32_t random_below(uint32_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	random_state ^= random_state << 5;
	return random_state % bound;
}

static const char *model_name(unsigned i)
{
	return arena_printf(&suite.arena, "name-%u", i).ptr;
}

static bool model_is_over(unsigned i, int64_t now_ms)
{
	return model[i].link != 0 && model[i].over_ms != 0 && model[i].over_ms <= now_ms;
}

static bool model_may_take(unsigned i, uint64_t owner, int64_t now_ms)
{
	int64_t until_ms = model[i].until_ms;
	if (model[i].link != 0 && !model_is_over(i, now_ms))
		return false;
	if (model[i].link != 0)
		until_ms = model[i].over_ms + MODEL_REST_MS;
	return model[i].owner == owner || until_ms <= now_ms;
}

static void model_create(unsigned i, uint64_t id, int64_t now_ms)
{
	struct store_write w = take(id, model_name(i), 1 + random_below(MODEL_OWNERS), now_ms);
	w.quarantine_ms = MODEL_REST_MS;
	w.link.expires_ms = random_below(4) ? now_ms + random_below(60) : 0;
	bool may = model_may_take(i, w.link.owner, now_ms);
	assert_int_equal(kit_apply(suite.store, &w), may ? 0 : ERR_CONFLICT);
	if (!may)
		return;
	model[i].link = id;
	model[i].owner = w.link.owner;
	model[i].over_ms = w.link.expires_ms;
	model[i].until_ms = 0;
}

static void model_reap(unsigned i, int64_t now_ms)
{
	struct store_write w = on_alias(STORE_LINK_SWEEP, model_name(i));
	w.now_ms = now_ms;
	w.quarantine_ms = MODEL_REST_MS;
	bool expired = model_is_over(i, now_ms);
	assert_int_equal(kit_apply(suite.store, &w), expired              ? 0
	                                             : model[i].link == 0 ? ERR_NOT_FOUND
	                                                                  : ERR_CONFLICT);
	if (!expired)
		return;
	assert_int_equal(w.link.id, model[i].link);
	model[i].link = 0;
	model[i].until_ms = model[i].over_ms + MODEL_REST_MS;
}

static void model_delete(unsigned i, int64_t now_ms)
{
	struct store_write w = on_alias(STORE_LINK_DELETE, model_name(i));
	w.now_ms = now_ms;
	assert_int_equal(kit_apply(suite.store, &w), model[i].link ? 0 : ERR_NOT_FOUND);
	if (model[i].link != 0) {
		model[i].link = 0;
		model[i].until_ms = 0;
		model[i].owner = 0;
	}
}

static void model_update(unsigned i, int64_t now_ms)
{
	struct store_write w = on_alias(STORE_LINK_UPDATE, model_name(i));
	w.fields = LINK_OWNER | LINK_EXPIRES;
	w.link.owner = 1 + random_below(MODEL_OWNERS);
	w.link.expires_ms = now_ms + random_below(60);
	assert_int_equal(kit_apply(suite.store, &w), model[i].link ? 0 : ERR_NOT_FOUND);
	if (model[i].link != 0) {
		model[i].owner = w.link.owner;
		model[i].over_ms = w.link.expires_ms;
	}
}

static void assert_model(int64_t now_ms)
{
	size_t expired_count = 0;
	for (unsigned i = 0; i < MODEL_NAMES; i++) {
		struct link_record link;
		int r = find(0, model_name(i), &link);
		assert_int_equal(r, model[i].link ? 0 : ERR_NOT_FOUND);
		if (r == 0) {
			assert_int_equal(link.id, model[i].link);
			assert_int_equal(link.owner, model[i].owner);
		}
		expired_count += model_is_over(i, now_ms);
	}
	struct store_expired expired = {.now_ms = now_ms, .count_all = true};
	assert_int_equal(store_expired(suite.store, &expired), 0);
	assert_int_equal(expired.total, expired_count);
}

TEST(names_are_right_after_any_changes)
{
	memset(model, 0, sizeof(model));
	random_state = 20261116;
	int64_t now_ms = KIT_NOW_MS;
	for (uint64_t step = 1; step <= MODEL_STEPS; step++) {
		unsigned i = random_below(MODEL_NAMES);
		now_ms += random_below(12);
		switch (random_below(8)) {
		case 0:
		case 1:
		case 2:
		case 3: model_create(i, step, now_ms); break;
		case 4:
		case 5: model_reap(i, now_ms); break;
		case 6: model_update(i, now_ms); break;
		default: model_delete(i, now_ms); break;
		}
		if (step % 10 == 0) {
			assert_model(now_ms);
			arena_release(&suite.arena);
		}
	}
}

int store_suite_names_run(const char *name)
{
	return RUN_TESTS(.name = name, .setup = suite_setup, .teardown = suite_teardown);
}
