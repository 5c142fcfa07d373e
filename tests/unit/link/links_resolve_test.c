/* What is to be done with somebody who follows a link, and what of it the cache keeps. */
#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/links.h"
#include "store/backends.h"

#include <sodium.h>

enum { NOW = 100000, NEGATIVE_MS = 1000, REST_MS = 50000, NOBODY = 0 };
#define SECRET STR("$argon2id$stored")

static struct {
	struct store *store;
	struct budgets *budgets;
	struct links *links;
	struct metrics *metrics;
	struct arena arena;
	uint64_t owner, friend, stranger; /* users */
} fx;

/* The response says the status and where it goes. */
static int render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	buf_printf(out, "%u %.*s", link->redirect_status, STR_ARG(link->url));
	*ret_date_at = 3;
	return 0;
}

static uint64_t user_create(void)
{
	struct registry_write w = {.kind = REGISTRY_USER_CREATE,
	                           .now_ms = 1,
	                           .arena = &fx.arena,
	                           .user = {.role = ROLE_EDITOR, .enabled = true}};
	assert_int_equal(kit_apply(fx.store, &w), 0);
	return w.user.id;
}

static int setup(void **state)
{
	fx.store = kit_store_new();
	fx.budgets = budgets_new();
	if (!fx.metrics)
		fx.metrics = metrics_register();
	const struct links_config config = {.store = fx.store,
	                                    .budgets = fx.budgets,
	                                    .settings = {.alphabet = KEY_BASE62,
	                                                 .cache_bytes = 1 << 20,
	                                                 .negative_ms = NEGATIVE_MS,
	                                                 .quarantine_ms = REST_MS},
	                                    .id_block = 10,
	                                    .cache_seed = 1,
	                                    .render = render};
	assert_int_equal(links_new(&config, &fx.links, NULL), 0);
	fx.owner = user_create();
	fx.friend = user_create();
	fx.stranger = user_create();
	return 0;
}

static int teardown(void **state)
{
	links_free(fx.links);
	budgets_free(fx.budgets);
	store_free(fx.store);
	arena_release(&fx.arena);
	return 0;
}

/* Helpers */

static int create_at(struct link_record link, int64_t now_ms, uint64_t *ret_id)
{
	link.is_alias = link.key.ptr != NULL;
	link.owner = link.owner ? link.owner : fx.owner;
	link.url = STR("https://a.example/");
	link.created_ms = link.updated_ms = now_ms;
	link.redirect_status = link.redirect_status ? link.redirect_status : 307;
	link.enabled = true;
	struct store_write w = {
	    .kind = STORE_LINK_CREATE, .now_ms = now_ms, .arena = &fx.arena, .link = link};
	links_apply(fx.links, &w, 1, fx.metrics);
	if (ret_id)
		*ret_id = w.link.id;
	return w.result;
}

static uint64_t create(struct link_record link)
{
	uint64_t id;
	link.key = STR("k");
	assert_int_equal(create_at(link, 1000, &id), 0);
	return id;
}

static void change(unsigned fields, struct link_record link)
{
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = 2000,
	                        .arena = &fx.arena,
	                        .ref = links_ref(fx.links, STR("k")),
	                        .fields = fields,
	                        .link = link};
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
}

static void let(enum store_write_kind kind, uint64_t user)
{
	struct store_write w = {.kind = kind,
	                        .now_ms = 2000,
	                        .arena = &fx.arena,
	                        .ref = links_ref(fx.links, STR("k")),
	                        .user = user};
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
}

static struct link_resolve resolve_as(struct link_resolve who, int64_t now_ms)
{
	struct link_resolve *wanted = &who;
	who.key = who.key.ptr ? who.key : STR("k");
	who.arena = &fx.arena;
	links_resolve(fx.links, &wanted, 1, now_ms, fx.metrics);
	return who;
}

static struct link_resolve resolve(uint64_t user)
{
	return resolve_as((struct link_resolve){.user = user}, NOW);
}

static const struct cache_entry *cached(void)
{
	return cache_find(links_cache(fx.links), STR("k"));
}

static void assert_verdict(struct link_resolve r, enum link_verdict verdict)
{
	assert_int_equal(r.result, 0);
	assert_int_equal(r.verdict, verdict);
	assert_int_not_equal(r.link, 0);
	if (verdict != LINK_OPEN && verdict != LINK_LATE)
		assert_null(r.response.ptr);
}

static void assert_sends(struct link_resolve r, enum link_verdict verdict, const char *response)
{
	assert_verdict(r, verdict);
	assert_true(str_eq(r.response, str_of(response)));
	assert_int_equal(r.response_date_at, 3);
}

static void assert_not_found(struct link_resolve r)
{
	assert_int_equal(r.result, ERR_NOT_FOUND);
	assert_null(r.response.ptr);
}

static void assert_absence_is_cached_until(int64_t expires_ms)
{
	assert_non_null(cached());
	assert_int_equal(cached()->response_len, 0);
	assert_int_equal(cached()->expires_ms, expires_ms);
}

/* Budgets */

TEST(a_link_counts_for_the_api_key_that_made_it_or_else_for_its_owner)
{
	static const struct budget_limits limits = {.redirects_max = 50, .period_ms = 60000};
	budgets_limit(fx.budgets, &limits);
	create((struct link_record){.api_key = 0});
	assert_int_equal(resolve(NOBODY).budget->owner, budget_of_user(fx.owner));
	assert_int_equal(cached()->budget->owner, budget_of_user(fx.owner));
	assert_int_equal(cached()->budget->redirects.max, 50);
}

TEST(the_limits_of_an_api_key_are_read_with_the_first_link_that_it_made)
{
	struct registry_write key = {.kind = REGISTRY_KEY_CREATE, .now_ms = 1, .arena = &fx.arena};
	key.key = (struct key_record){.user = fx.owner, .rights = RIGHTS_ALL, .redirects_max = 7};
	assert_int_equal(kit_apply(fx.store, &key), 0);
	create((struct link_record){.api_key = key.key.id});
	struct budget *budget = resolve(NOBODY).budget;
	assert_int_equal(budget->owner, key.key.id);
	assert_int_equal(budget->redirects.max, 7);
}

TEST(links_of_a_key_that_was_purged_count_for_their_owner)
{
	static const struct budget_limits limits = {.redirects_max = 50, .period_ms = 60000};
	budgets_limit(fx.budgets, &limits);
	create((struct link_record){.api_key = 4711});
	assert_int_equal(resolve(NOBODY).budget->owner, budget_of_user(fx.owner));
}

TEST(owners_without_limits_share_one_budget)
{
	create((struct link_record){.api_key = 0});
	assert_ptr_equal(resolve(NOBODY).budget, budgets_of_user(fx.budgets, fx.friend));
	assert_int_equal(cached()->budget->redirects.max, 0);
}

/* Time */

TEST(a_link_is_not_found_before_its_time)
{
	create((struct link_record){.not_before_ms = NOW + 300});
	assert_not_found(resolve(NOBODY));
	assert_absence_is_cached_until(NOW + 300); /* and not a moment longer */
	assert_not_found(resolve_as((struct link_resolve){0}, NOW + 299));
	assert_sends(resolve_as((struct link_resolve){0}, NOW + 300), LINK_OPEN, "307 https://a.example/");
}

TEST(that_a_link_is_not_there_yet_is_remembered_as_briefly_as_anything)
{
	create((struct link_record){.not_before_ms = NOW + 10 * NEGATIVE_MS});
	assert_not_found(resolve(NOBODY));
	assert_absence_is_cached_until(NOW + NEGATIVE_MS);
}

TEST(the_late_are_sent_elsewhere)
{
	create((struct link_record){
	    .expires_ms = NOW, .expired_url = STR("https://late.example/"), .redirect_status = 308});
	assert_sends(resolve_as((struct link_resolve){0}, NOW - 1), LINK_OPEN, "308 https://a.example/");
	assert_int_equal(cached()->expires_ms, NOW);
	assert_false(cached()->late);
	struct link_resolve r = resolve(NOBODY);
	assert_sends(r, LINK_LATE, "302 https://late.example/");
	assert_false(r.expired);
	assert_non_null(r.budget);
	assert_true(cached()->late);
	assert_int_equal(cached()->expires_ms, NOW + LINK_LATE_MS);
	assert_true(str_eq(str_n(cache_entry_response(cached()), cached()->response_len), r.response));
}

TEST(in_the_end_there_is_no_place_for_the_late_either)
{
	create((struct link_record){.expires_ms = NOW, .expired_url = STR("https://late.example/")});
	assert_sends(resolve_as((struct link_resolve){0}, NOW + LINK_LATE_MS - 1), LINK_LATE,
	             "302 https://late.example/");
	struct link_resolve r = resolve_as((struct link_resolve){0}, NOW + LINK_LATE_MS);
	assert_not_found(r);
	assert_true(r.expired);
}

TEST(a_link_that_ended_without_a_place_for_the_late_is_not_found)
{
	create((struct link_record){.expires_ms = NOW});
	struct link_resolve r = resolve(NOBODY);
	assert_not_found(r);
	assert_true(r.expired);
	assert_absence_is_cached_until(NOW + NEGATIVE_MS);
}

/* Private links */

TEST(a_private_link_is_for_its_owner_its_list_and_admins)
{
	create((struct link_record){.is_private = true});
	let(STORE_PERMIT, fx.friend);
	assert_verdict(resolve(NOBODY), LINK_SIGN_IN);
	assert_verdict(resolve(fx.stranger), LINK_FORBIDDEN);
	assert_sends(resolve(fx.owner), LINK_OPEN, "307 https://a.example/");
	assert_sends(resolve(fx.friend), LINK_OPEN, "307 https://a.example/");
	assert_sends(resolve_as((struct link_resolve){.user = fx.stranger, .sees_all = true}, NOW), LINK_OPEN,
	             "307 https://a.example/");
	assert_sends(resolve_as((struct link_resolve){.sees_all = true}, NOW), LINK_OPEN,
	             "307 https://a.example/");
	assert_null(cached());
	let(STORE_FORBID, fx.friend);
	assert_verdict(resolve(fx.friend), LINK_FORBIDDEN);
}

/* Made on the machine itself: nobody who is not signed in may pass for its owner. */
TEST(a_private_link_without_an_owner_is_for_admins)
{
	create((struct link_record){.is_private = true});
	change(LINK_OWNER, (struct link_record){.owner = 0});
	assert_verdict(resolve(NOBODY), LINK_SIGN_IN);
	assert_verdict(resolve(fx.owner), LINK_FORBIDDEN);
	assert_verdict(resolve_as((struct link_resolve){.sees_all = true}, NOW), LINK_OPEN);
}

TEST(those_who_ask_together_are_distinguished)
{
	create((struct link_record){.is_private = true});
	let(STORE_PERMIT, fx.friend);
	struct link_resolve who[] = {
	    {.user = fx.friend}, {.user = NOBODY}, {.user = fx.stranger}, {.user = fx.owner}};
	struct link_resolve *wanted[ARRAY_LEN(who)];
	static const enum link_verdict expected[] = {LINK_OPEN, LINK_SIGN_IN, LINK_FORBIDDEN, LINK_OPEN};
	for (size_t i = 0; i < ARRAY_LEN(who); i++) {
		who[i].key = STR("k");
		who[i].arena = &fx.arena;
		wanted[i] = &who[i];
	}
	links_resolve(fx.links, wanted, ARRAY_LEN(who), NOW, fx.metrics);
	for (size_t i = 0; i < ARRAY_LEN(who); i++)
		assert_verdict(who[i], expected[i]);
}

TEST(a_link_that_becomes_private_leaves_the_cache)
{
	create((struct link_record){0});
	assert_verdict(resolve(NOBODY), LINK_OPEN);
	assert_non_null(cached());
	change(LINK_PRIVATE, (struct link_record){.is_private = true});
	assert_null(cached());
	assert_verdict(resolve(NOBODY), LINK_SIGN_IN);
}

TEST(a_change_of_the_list_leaves_nothing_in_the_cache)
{
	static const enum store_write_kind kinds[] = {STORE_PERMIT, STORE_FORBID};
	create((struct link_record){0});
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		assert_verdict(resolve(NOBODY), LINK_OPEN);
		assert_non_null(cached());
		let(kinds[i], fx.friend);
		assert_null(cached());
	}
}

TEST(what_is_private_but_not_there_is_not_found_for_everybody)
{
	create((struct link_record){.is_private = true, .not_before_ms = NOW + 1});
	assert_not_found(resolve(NOBODY));
	assert_not_found(resolve(fx.owner));
	assert_absence_is_cached_until(NOW + 1);
	change(LINK_ENABLED | LINK_NOT_BEFORE, (struct link_record){.enabled = false});
	assert_not_found(resolve(NOBODY));
	assert_not_found(resolve_as((struct link_resolve){.sees_all = true}, NOW));
}

TEST(a_private_link_asks_who_it_is_before_it_sends_the_late_elsewhere)
{
	create((struct link_record){
	    .is_private = true, .expires_ms = NOW, .expired_url = STR("https://late.example/")});
	assert_verdict(resolve(NOBODY), LINK_SIGN_IN);
	assert_verdict(resolve(fx.stranger), LINK_FORBIDDEN);
	assert_sends(resolve(fx.owner), LINK_LATE, "302 https://late.example/");
	assert_null(cached());
}

/* Passwords */

TEST(a_password_is_asked_for_even_of_admins)
{
	create((struct link_record){.password = SECRET});
	assert_verdict(resolve(NOBODY), LINK_LOCKED);
	assert_verdict(resolve(fx.owner), LINK_LOCKED);
	assert_verdict(resolve_as((struct link_resolve){.sees_all = true}, NOW), LINK_LOCKED);
	assert_verdict(resolve_as((struct link_resolve){.unlocked = STR("$argon2id$former")}, NOW),
	               LINK_LOCKED);
	assert_verdict(resolve_as((struct link_resolve){.unlocked = STR("")}, NOW), LINK_LOCKED);
	assert_sends(resolve_as((struct link_resolve){.unlocked = SECRET}, NOW), LINK_OPEN,
	             "307 https://a.example/");
	assert_null(cached());
}

TEST(a_private_link_asks_who_it_is_before_its_password)
{
	create((struct link_record){.is_private = true, .password = SECRET});
	assert_verdict(resolve_as((struct link_resolve){.unlocked = SECRET}, NOW), LINK_SIGN_IN);
	assert_verdict(resolve_as((struct link_resolve){.user = fx.stranger, .unlocked = SECRET}, NOW),
	               LINK_FORBIDDEN);
	assert_verdict(resolve(fx.owner), LINK_LOCKED);
	assert_verdict(resolve_as((struct link_resolve){.user = fx.owner, .unlocked = SECRET}, NOW),
	               LINK_OPEN);
}

TEST(the_late_are_not_asked_for_a_password)
{
	create((struct link_record){
	    .password = SECRET, .expires_ms = NOW, .expired_url = STR("https://late.example/")});
	assert_sends(resolve(NOBODY), LINK_LATE, "302 https://late.example/");
	assert_null(cached());
}

TEST(the_answer_to_a_form_is_see_other_and_is_not_cached)
{
	create((struct link_record){.expires_ms = 2 * NOW, .expired_url = STR("https://late.example/")});
	assert_sends(resolve_as((struct link_resolve){.see_other = true}, NOW), LINK_OPEN,
	             "303 https://a.example/");
	assert_sends(resolve_as((struct link_resolve){.see_other = true}, 2 * NOW), LINK_LATE,
	             "303 https://late.example/");
	assert_null(cached());
}

/* Clicks */

static void count(struct click_limit *gate, uint64_t used)
{
	click_limit_count(gate, click_limit_round(gate), used);
}

/* A new link is known to have had no click. After a change of its limit, or a new start, it is counted. */
static uint64_t create_uncounted(struct link_record link)
{
	uint64_t id = create(link);
	change(LINK_MAX_CLICKS, (struct link_record){.max_clicks = link.max_clicks});
	return id;
}

TEST(a_limit_of_clicks_is_counted_before_anybody_is_sent_on)
{
	uint64_t id = create_uncounted((struct link_record){.max_clicks = 3});
	struct link_resolve r = resolve(NOBODY);
	assert_verdict(r, LINK_UNCOUNTED);
	assert_int_equal(r.limit->link, id);
	assert_int_equal(r.max_clicks, 3);
	assert_null(cached());
	count(r.limit, 1);
	struct link_resolve again = resolve_as(r, NOW);
	assert_sends(again, LINK_OPEN, "307 https://a.example/");
	assert_ptr_equal(again.limit, r.limit);
	assert_ptr_equal(cached()->limit, r.limit);
	assert_int_equal(cached()->max_clicks, 3);
	assert_true(click_limit_take(r.limit, 3));
	assert_verdict(resolve(NOBODY), LINK_OPEN); /* asking takes nothing */
	assert_true(click_limit_take(r.limit, 3));
}

TEST(a_link_without_clicks_left_is_not_found)
{
	create_uncounted((struct link_record){.max_clicks = 3});
	count(resolve(NOBODY).limit, 3);
	struct link_resolve r = resolve(NOBODY);
	assert_not_found(r);
	assert_false(r.expired); /* it stays: the limit may be raised */
	assert_absence_is_cached_until(NOW + NEGATIVE_MS);
	change(LINK_MAX_CLICKS, (struct link_record){.max_clicks = 4});
	assert_null(cached());
	r = resolve(NOBODY);
	assert_verdict(r, LINK_UNCOUNTED); /* before a change there may have been clicks without the gate */
	count(r.limit, 3);
	assert_verdict(resolve(NOBODY), LINK_OPEN);
	change(LINK_MAX_CLICKS, (struct link_record){0});
	r = resolve(NOBODY);
	assert_verdict(r, LINK_OPEN);
	assert_null(r.limit);
	assert_null(cached()->limit);
	change(LINK_MAX_CLICKS, (struct link_record){.max_clicks = 9});
	assert_verdict(resolve(NOBODY), LINK_UNCOUNTED);
}

TEST(without_clicks_left_all_are_late)
{
	create_uncounted((struct link_record){.max_clicks = 3, .expired_url = STR("https://late.example/")});
	count(resolve(NOBODY).limit, 3);
	struct link_resolve r = resolve(NOBODY);
	assert_sends(r, LINK_LATE, "302 https://late.example/");
	assert_null(r.limit);
	assert_true(cached()->late);
	assert_null(cached()->limit);
	assert_int_equal(cached()->expires_ms, NOW + NEGATIVE_MS); /* one may be given back */
}

TEST(an_ended_link_is_late_whatever_its_clicks)
{
	create_uncounted((struct link_record){
	    .max_clicks = 3, .expires_ms = NOW, .expired_url = STR("https://late.example/")});
	struct link_resolve r = resolve(NOBODY);
	assert_sends(r, LINK_LATE, "302 https://late.example/");
	assert_null(r.limit);
	assert_int_equal(cached()->expires_ms, NOW + LINK_LATE_MS);
}

TEST(that_a_private_links_clicks_are_used_up_is_for_those_who_may_know)
{
	create_uncounted((struct link_record){.is_private = true, .max_clicks = 1});
	count(resolve(fx.owner).limit, 1);
	assert_not_found(resolve(fx.owner));
	assert_null(cached());
	assert_verdict(resolve(NOBODY), LINK_SIGN_IN);
}

TEST(a_password_is_asked_for_before_clicks_are_counted)
{
	create_uncounted((struct link_record){.password = SECRET, .max_clicks = 1});
	assert_verdict(resolve(NOBODY), LINK_LOCKED);
	struct link_resolve r = resolve_as((struct link_resolve){.unlocked = SECRET}, NOW);
	assert_verdict(r, LINK_UNCOUNTED);
	count(r.limit, 1);
	assert_not_found(resolve(NOBODY)); /* nobody is asked for a password that opens nothing */
	assert_not_found(resolve_as((struct link_resolve){.unlocked = SECRET}, NOW));
	assert_null(cached());
}

/* Removal */

static int reap_row(uint64_t id, int64_t now_ms)
{
	struct store_lookup read = {.ref.id = id, .arena = &fx.arena};
	assert_int_equal(links_get(fx.links, &read, 1, fx.metrics), 0);
	if (read.result != 0)
		return read.result;
	struct store_write w = {.kind = STORE_LINK_SWEEP,
	                        .now_ms = now_ms,
	                        .arena = &fx.arena,
	                        .ref = links_ref(fx.links, read.link.key)};
	links_apply(fx.links, &w, 1, fx.metrics);
	if (w.result == 0)
		assert_non_null(w.link.key.ptr);
	return w.result;
}

TEST(a_link_removed_by_its_row_leaves_the_cache)
{
	struct cache *cache = links_cache(fx.links);
	uint64_t alias = create((struct link_record){.expires_ms = NOW}), generated;
	assert_int_equal(create_at((struct link_record){.expires_ms = NOW}, 1000, &generated), 0);
	char key[7];
	key_encode(links_cipher(fx.links), generated, key);
	struct str generated_key = str_n(key, sizeof(key));
	assert_verdict(resolve_as((struct link_resolve){0}, NOW - 1), LINK_OPEN);
	assert_verdict(resolve_as((struct link_resolve){.key = generated_key}, NOW - 1), LINK_OPEN);
	assert_int_equal(reap_row(alias, NOW - 1), ERR_CONFLICT);
	assert_non_null(cached());
	assert_int_equal(reap_row(alias, NOW), 0);
	assert_null(cached());
	assert_non_null(cache_find(cache, generated_key));
	assert_int_equal(reap_row(generated, NOW), 0);
	assert_null(cache_find(cache, generated_key));
	assert_int_equal(reap_row(generated, NOW), ERR_NOT_FOUND);
}

TEST(the_alias_of_a_removed_link_is_quarantined_as_the_settings_say)
{
	struct link_record other = {.key = STR("k"), .owner = fx.stranger};
	assert_int_equal(reap_row(create((struct link_record){.expires_ms = NOW}), NOW), 0);
	assert_int_equal(create_at(other, NOW + REST_MS - 1, NULL), ERR_CONFLICT);
	assert_int_equal(create_at(other, NOW + REST_MS, NULL), 0);
}

TEST(an_alias_is_quarantined_too_when_it_is_wanted_before_it_was_swept)
{
	struct link_record other = {.key = STR("k"), .owner = fx.stranger}, own = {.key = STR("k")};
	create((struct link_record){.expires_ms = NOW});
	assert_int_equal(create_at(other, NOW + REST_MS - 1, NULL), ERR_CONFLICT);
	assert_int_equal(create_at(own, NOW + REST_MS - 1, NULL), 0);
}

TEST(links_that_may_go_are_reported)
{
	uint64_t ids[4], id = create((struct link_record){.expires_ms = NOW});
	struct store_expired over = {.now_ms = NOW - 1, .max = ARRAY_LEN(ids), .ids = ids};
	assert_int_equal(store_expired(fx.store, &over), 0);
	assert_int_equal(over.count, 0);
	over.now_ms = NOW;
	assert_int_equal(store_expired(fx.store, &over), 0);
	assert_int_equal(over.count, 1);
	assert_int_equal(ids[0], id);
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.setup = setup, .teardown = teardown);
}
