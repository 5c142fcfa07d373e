#include "lib/rcache_double.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/links.h"
#include "os/clock.h"
#include "store/backends.h"

/* The store of several servers: a memory store that says what it was asked. */
struct watched_store {
	struct store base;
	struct store *inner;
	struct store_ops ops;
	unsigned lookups; /* links */
	unsigned fresh;   /* of them */
	bool old;         /* a replica answers, while the primary is down */
	int fail;         /* what lookups fail with; 0: they do not */
	int apply_fail;   /* what changes come to after they are done */
};

static struct {
	struct watched_store store;
	struct rcache_double rcache;
	struct budgets *budgets;
	struct links *links, *other; /* two servers */
	struct metrics *metrics;
	struct arena arena;
} fx;

static int watched_lookup(struct store *s, struct store_lookup *reads, size_t n)
{
	struct watched_store *w = container_of(s, struct watched_store, base);
	w->lookups += (unsigned)n;
	for (size_t i = 0; i < n; i++)
		w->fresh += reads[i].fresh;
	int r = w->fail ? w->fail : store_lookup(w->inner, reads, n);
	for (size_t i = 0; i < n; i++)
		reads[i].old = w->old;
	return r;
}

static int watched_apply(struct store *s, struct store_write *writes, size_t n)
{
	struct watched_store *w = container_of(s, struct watched_store, base);
	int r = store_apply(w->inner, writes, n);
	return w->apply_fail ? w->apply_fail : r;
}

static int render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	buf_str(out, link->url);
	*ret_date_at = 0;
	return 0;
}

static struct links *server(struct key_source *source, uint64_t negative_ms)
{
	struct links *links = NULL;
	const struct links_config config = {
	    .store = &fx.store.base,
	    .budgets = fx.budgets,
	    .rcache = &fx.rcache.base,
	    .source = source,
	    .settings = {.alphabet = KEY_BASE62,
	                 .cache_bytes = 1 << 20,
	                 .negative_ms = negative_ms,
	                 .life_ms = 5000,
	                 .shared_life_ms = 60000},
	    .id_block = 10,
	    .cache_seed = 1,
	    .render = render,
	};
	assert_int_equal(links_new(&config, &links, NULL), 0);
	return links;
}

static int start(void **state)
{
	fx.store = (struct watched_store){.ops = {.lookup = watched_lookup, .apply = watched_apply},
	                                  .inner = kit_store_new()};
	fx.store.base = (struct store){
	    .ops = &fx.store.ops, .registry = fx.store.inner->registry, .is_shared = true};
	rcache_double_init(&fx.rcache);
	fx.budgets = budgets_new();
	if (!fx.metrics)
		fx.metrics = metrics_register();
	fx.links = server(NULL, 1000);
	fx.other = server(NULL, 1000);
	return 0;
}

static int stop(void **state)
{
	links_free(fx.links);
	links_free(fx.other);
	rcache_double_release(&fx.rcache);
	budgets_free(fx.budgets);
	store_free(fx.store.inner);
	arena_release(&fx.arena);
	return 0;
}

static struct str create_as(struct link_record with)
{
	struct store_write w = kit_creation(&fx.arena, "https://a.example/", NULL);
	w.link.is_private = with.is_private;
	w.link.password = with.password;
	w.link.max_clicks = with.max_clicks;
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
	rcache_double_settle(&fx.rcache);
	return w.link.key;
}

static struct str create(void)
{
	return create_as((struct link_record){0});
}

static int resolve(struct links *links, struct str key, struct str *ret)
{
	struct link_resolve r = {.key = key, .arena = &fx.arena}, *wanted = &r;
	links_resolve(links, &wanted, 1, 2000, fx.metrics);
	click_limit_unpin(r.limit);
	if (ret)
		*ret = r.response;
	return r.result;
}

static int change_url(struct links *links, struct str key, const char *url)
{
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = 1500,
	                        .arena = &fx.arena,
	                        .ref = links_ref(links, key),
	                        .fields = LINK_URL,
	                        .link.url = str_of(url)};
	links_apply(links, &w, 1, fx.metrics);
	return w.result;
}

/* The shared cache */

TEST(what_one_server_has_looked_up_another_need_not)
{
	struct str response, key = create();
	uint64_t life_ms = 0;
	assert_int_equal(resolve(fx.links, key, NULL), 0);
	assert_int_equal(fx.store.lookups, 1);
	assert_non_null(rcache_double_value(&fx.rcache, key, &life_ms).ptr);
	assert_int_equal(life_ms, 60000);
	assert_int_equal(resolve(fx.other, key, &response), 0);
	assert_true(str_eq(response, STR("https://a.example/")));
	assert_int_equal(fx.store.lookups, 1);
	const struct cache_entry *e = cache_find(links_cache(fx.other), key);
	assert_non_null(e);
	assert_ptr_equal(e->budget, budgets_of_user(fx.budgets, 7));
}

TEST(that_there_is_no_link_is_shared_for_a_short_time)
{
	uint64_t life_ms = 0;
	assert_int_equal(resolve(fx.links, STR("nobody"), NULL), ERR_NOT_FOUND);
	assert_non_null(rcache_double_value(&fx.rcache, STR("nobody"), &life_ms).ptr);
	assert_int_equal(life_ms, 1000);
	assert_int_equal(resolve(fx.other, STR("nobody"), NULL), ERR_NOT_FOUND);
	assert_int_equal(fx.store.lookups, 1);
}

TEST(what_is_not_the_same_for_everybody_is_not_shared)
{
	const struct link_record kinds[] = {
	    {.is_private = true}, {.password = STR("$argon2id$")}, {.max_clicks = 3}};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct str key = create_as(kinds[i]);
		assert_int_equal(resolve(fx.links, key, NULL), 0);
		assert_null(rcache_double_value(&fx.rcache, key, NULL).ptr);
	}
}

TEST(a_batch_asks_the_store_only_for_what_the_cache_lacks)
{
	struct str keys[4], responses[4];
	struct link_resolve resolves[4], *wanted[4];
	for (size_t i = 0; i < 4; i++) {
		keys[i] = create();
		char url[64];
		snprintf(url, sizeof(url), "https://%zu.example/", i);
		assert_int_equal(change_url(fx.links, keys[i], url), 0);
	}
	rcache_double_settle(&fx.rcache);
	resolve(fx.links, keys[1], NULL);
	resolve(fx.links, keys[3], NULL);
	fx.store.lookups = 0;
	for (size_t i = 0; i < 4; i++) {
		resolves[i] = (struct link_resolve){.key = keys[i], .arena = &fx.arena};
		wanted[i] = &resolves[i];
	}
	links_resolve(fx.other, wanted, 4, 2000, fx.metrics);
	assert_int_equal(fx.store.lookups, 2);
	for (size_t i = 0; i < 4; i++) {
		char url[64];
		snprintf(url, sizeof(url), "https://%zu.example/", i);
		responses[i] = resolves[i].response;
		assert_true(str_eq(responses[i], str_of(url)));
		assert_non_null(rcache_double_value(&fx.rcache, keys[i], NULL).ptr);
	}
}

TEST(a_link_that_has_just_changed_is_asked_for_where_nothing_lags_and_is_not_shared)
{
	struct str response, key = create();
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	assert_int_equal(change_url(fx.links, key, "https://b.example/"), 0);
	fx.store.fresh = 0;
	assert_int_equal(resolve(fx.other, key, &response), 0);
	assert_true(str_eq(response, STR("https://b.example/")));
	assert_int_equal(fx.store.fresh, 1);
	assert_null(rcache_double_value(&fx.rcache, key, NULL).ptr);
	rcache_double_settle(&fx.rcache);
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	assert_int_equal(fx.store.fresh, 1);
	assert_non_null(rcache_double_value(&fx.rcache, key, NULL).ptr);
}

TEST(what_may_be_old_is_not_shared_and_soon_asked_for_again)
{
	struct str key = create(), disabled = create();
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = 1500,
	                        .arena = &fx.arena,
	                        .ref = links_ref(fx.links, disabled),
	                        .fields = LINK_ENABLED};
	links_apply(fx.links, &w, 1, fx.metrics);
	rcache_double_settle(&fx.rcache);
	fx.store.old = true;
	int64_t began_ms = clock_mono_ms();
	struct links *lasting = server(NULL, 3600000);
	assert_int_equal(resolve(lasting, key, NULL), 0);
	assert_int_equal(resolve(lasting, disabled, NULL), ERR_NOT_FOUND);
	assert_null(rcache_double_value(&fx.rcache, key, NULL).ptr);
	assert_null(rcache_double_value(&fx.rcache, disabled, NULL).ptr);
	struct cache_entry *e = cache_find(links_cache(lasting), key);
	assert_non_null(e);
	assert_in_range(e->due_ms, began_ms, clock_mono_ms() + 1000);
	e = cache_find(links_cache(lasting), disabled);
	assert_non_null(e);
	assert_int_equal(e->expires_ms, 2000 + 1000);
	fx.store.old = false;
	assert_int_equal(resolve(lasting, key, NULL), 0);
	assert_non_null(rcache_double_value(&fx.rcache, key, NULL).ptr);
	links_free(lasting);
}

TEST(records_and_what_a_password_opens_are_asked_for_where_nothing_lags)
{
	struct str key = create();
	struct store_lookup read = {.ref = links_ref(fx.links, key), .arena = &fx.arena};
	assert_int_equal(links_get(fx.links, &read, 1, fx.metrics), 0);
	assert_int_equal(fx.store.fresh, 1);
	struct link_resolve r = {.key = key, .arena = &fx.arena, .see_other = true}, *wanted = &r;
	links_resolve(fx.links, &wanted, 1, 2000, fx.metrics);
	assert_int_equal(r.result, 0);
	assert_int_equal(fx.store.fresh, 2);
}

TEST(bytes_that_are_no_value_are_a_miss)
{
	struct str response, key = create();
	rcache_double_put(&fx.rcache, key, STR("\1\2\3 whatever"));
	assert_int_equal(resolve(fx.links, key, &response), 0);
	assert_true(str_eq(response, STR("https://a.example/")));
}

TEST(a_failure_of_the_store_is_not_shared)
{
	struct str key = create();
	fx.store.fail = ERR_UNAVAILABLE;
	assert_int_equal(resolve(fx.links, key, NULL), ERR_UNAVAILABLE);
	assert_null(rcache_double_value(&fx.rcache, key, NULL).ptr);
	assert_null(cache_find(links_cache(fx.links), key));
}

TEST(a_sick_shared_cache_costs_nothing_but_lookups)
{
	struct str key = create();
	fx.rcache.is_sick = true;
	assert_int_equal(resolve(fx.links, key, NULL), 0);
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	assert_int_equal(fx.store.lookups, 2);
}

static struct str watched_key;

/* Who misses here afterwards must find the mark: so it is there before our own entry goes. */
static void our_own_entry_is_still_there(void *ctx)
{
	(void)ctx;
	assert_non_null(cache_find(links_cache(fx.links), watched_key));
}

TEST(a_change_is_published_before_the_own_cache_forgets)
{
	watched_key = create();
	assert_int_equal(resolve(fx.links, watched_key, NULL), 0);
	fx.rcache.on_change = our_own_entry_is_still_there;
	assert_int_equal(change_url(fx.links, watched_key, "https://b.example/"), 0);
	assert_null(cache_find(links_cache(fx.links), watched_key));
	assert_true(rcache_double_is_marked(&fx.rcache, watched_key));
}

TEST(an_uncertain_change_is_published_too)
{
	struct str key = create();
	assert_int_equal(resolve(fx.links, key, NULL), 0);
	fx.store.apply_fail = ERR_UNCERTAIN;
	assert_int_equal(change_url(fx.links, key, "https://b.example/"), ERR_UNCERTAIN);
	assert_true(rcache_double_is_marked(&fx.rcache, key));
	assert_null(cache_find(links_cache(fx.links), key));
}

TEST(a_change_that_did_not_happen_is_not_published)
{
	struct str key = create();
	fx.rcache.changes = 0;
	fx.store.apply_fail = ERR_UNAVAILABLE;
	assert_int_equal(change_url(fx.links, key, "https://b.example/"), ERR_UNAVAILABLE);
	assert_int_equal(fx.rcache.changes, 0);
}

TEST(one_call_tells_a_whole_batch_creations_and_swept_links_too)
{
	struct store_write ended = kit_creation(&fx.arena, "https://a.example/", "ended");
	ended.link.expires_ms = 1200;
	struct store_write batch[] = {ended, kit_creation(&fx.arena, "https://b.example/", "second")};
	links_apply(fx.links, batch, 2, fx.metrics);
	assert_int_equal(batch[0].result, 0);
	assert_int_equal(fx.rcache.changes, 1);
	assert_true(rcache_double_is_marked(&fx.rcache, STR("second")));
	rcache_double_settle(&fx.rcache);
	struct store_write reap = {.kind = STORE_LINK_SWEEP,
	                           .now_ms = 5000,
	                           .arena = &fx.arena,
	                           .ref = links_ref(fx.links, STR("ended"))};
	links_apply(fx.links, &reap, 1, fx.metrics);
	assert_int_equal(reap.result, 0);
	assert_true(rcache_double_is_marked(&fx.rcache, STR("ended")));
}

/* What others say, and age */

TEST(a_change_elsewhere_removes_the_entry_and_ends_lookups_under_way)
{
	struct str key = create();
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	uint32_t epoch = cache_epoch(links_cache(fx.other), key);
	links_changed_elsewhere(fx.other, key);
	assert_null(cache_find(links_cache(fx.other), key));
	assert_true(cache_epoch(links_cache(fx.other), key) != epoch);
}

TEST(entries_have_a_life_when_others_write_too)
{
	struct str key = create();
	int64_t before_ms = clock_mono_ms();
	assert_int_equal(resolve(fx.links, key, NULL), 0);
	int64_t due_ms = cache_find(links_cache(fx.links), key)->due_ms;
	assert_in_range(due_ms, before_ms + 5000, clock_mono_ms() + 5000);
	assert_int_equal(links_grace_ms(fx.links), 5000);
}

TEST(without_others_entries_stay_for_ever)
{
	fx.store.base.is_shared = false;
	struct links *alone = server(NULL, 1000);
	struct str key = create();
	assert_int_equal(resolve(alone, key, NULL), 0);
	assert_int_equal(cache_find(links_cache(alone), key)->due_ms, INT64_MAX);
	links_free(alone);
}

TEST(when_messages_were_lost_every_entry_is_due)
{
	struct str one = create(), two = create();
	resolve(fx.links, one, NULL);
	resolve(fx.links, two, NULL);
	resolve(fx.links, STR("nobody"), NULL);
	uint32_t epoch = cache_epoch(links_cache(fx.links), one);
	links_feed_lost(fx.links);
	int64_t now_ms = clock_mono_ms();
	assert_true(cache_find(links_cache(fx.links), one)->due_ms <= now_ms);
	assert_true(cache_find(links_cache(fx.links), two)->due_ms <= now_ms);
	assert_true(cache_find(links_cache(fx.links), STR("nobody"))->due_ms <= now_ms);
	assert_true(cache_epoch(links_cache(fx.links), one) != epoch);
}

TEST(an_entry_goes_when_the_store_has_the_link_no_more_and_absence_is_not_kept)
{
	struct links *forgetful = server(NULL, 0);
	struct str key = create();
	assert_int_equal(resolve(forgetful, key, NULL), 0);
	struct store_write gone = {
	    .kind = STORE_LINK_DELETE, .now_ms = 1500, .arena = &fx.arena, .ref = links_ref(fx.links, key)};
	links_apply(fx.links, &gone, 1, fx.metrics); /* and the message to the other is lost */
	assert_non_null(cache_find(links_cache(forgetful), key));
	assert_int_equal(resolve(forgetful, key, NULL), ERR_NOT_FOUND);
	assert_null(cache_find(links_cache(forgetful), key));
	links_free(forgetful);
}

TEST(an_entry_goes_when_its_link_has_become_private)
{
	struct str key = create();
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = 1500,
	                        .arena = &fx.arena,
	                        .ref = links_ref(fx.links, key),
	                        .fields = LINK_PRIVATE,
	                        .link.is_private = true};
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	assert_null(cache_find(links_cache(fx.other), key));
}

/* Click limits */

TEST(a_limited_link_is_used_up_when_all_servers_together_have_counted_so_many)
{
	struct str key = create_as((struct link_record){.max_clicks = 3});
	struct link_resolve r = {.key = key, .arena = &fx.arena}, *wanted = &r;
	links_resolve(fx.other, &wanted, 1, 2000, fx.metrics);
	assert_int_equal(r.result, 0);
	click_limit_unpin(r.limit);
	struct store_count count = {.id = r.link, .clicks = 2};
	assert_int_equal(store_set_clicks(fx.store.inner, 1, &count, 1), 0);
	assert_int_equal(resolve(fx.other, key, NULL), 0);
	count.clicks = 3;
	assert_int_equal(store_set_clicks(fx.store.inner, 1, &count, 1), 0);
	assert_int_equal(resolve(fx.other, key, NULL), ERR_NOT_FOUND);
}

static void set_limit(struct links *links, struct str key, uint64_t max_clicks)
{
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = 1500,
	                        .arena = &fx.arena,
	                        .ref = links_ref(links, key),
	                        .fields = LINK_MAX_CLICKS,
	                        .link.max_clicks = max_clicks};
	links_apply(links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
	rcache_double_settle(&fx.rcache);
}

static struct link_resolve resolved(struct links *links, struct str key)
{
	struct link_resolve r = {.key = key, .arena = &fx.arena}, *wanted = &r;
	links_resolve(links, &wanted, 1, 2000, fx.metrics);
	assert_int_equal(r.result, 0);
	return r;
}

TEST(a_limit_that_comes_back_elsewhere_is_counted_again)
{
	struct str key = create_as((struct link_record){.max_clicks = 5});
	struct link_resolve r = resolved(fx.other, key);
	assert_int_equal(r.verdict, LINK_UNCOUNTED);
	click_limit_count(r.limit, click_limit_round(r.limit), 3);
	click_limit_unpin(r.limit);
	set_limit(fx.links, key, 7); /* the gate has seen every click that went by here */
	links_changed_elsewhere(fx.other, key);
	r = resolved(fx.other, key);
	assert_int_equal(r.verdict, LINK_OPEN);
	click_limit_unpin(r.limit);
	set_limit(fx.links, key, 0);
	links_changed_elsewhere(fx.other, key);
	r = resolved(fx.other, key);
	assert_null(r.limit); /* from now on clicks go by that it does not see */
	set_limit(fx.links, key, 50);
	links_changed_elsewhere(fx.other, key);
	r = resolved(fx.other, key);
	assert_int_equal(r.verdict, LINK_UNCOUNTED);
	click_limit_unpin(r.limit);
}

TEST_MAIN(.setup = start, .teardown = stop)
