#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/links.h"
#include "store/backends.h"

#include <sodium.h>

static struct {
	struct store *store;
	struct budgets *budgets;
	struct links *links;
	struct metrics *metrics;
	struct arena arena;
} fx;

static const struct links_settings settings = {
    .alphabet = KEY_BASE62, .cache_bytes = 1 << 20, .negative_ms = 1000};

/* The response is the URL itself. */
static int render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	buf_str(out, link->url);
	*ret_date_at = 3;
	return 0;
}

static void start_on(struct store *store)
{
	fx.store = store;
	fx.budgets = budgets_new();
	if (!fx.metrics)
		fx.metrics = metrics_register();
	struct links_config config = {.store = store,
	                              .budgets = fx.budgets,
	                              .settings = settings,
	                              .id_block = 10,
	                              .cache_seed = 1,
	                              .render = render};
	assert_int_equal(links_new(&config, &fx.links, NULL), 0);
}

static int start(void **state)
{
	struct store *store = kit_store_new();
	start_on(store);
	return 0;
}

static int stop(void **state)
{
	links_free(fx.links);
	budgets_free(fx.budgets);
	store_free(fx.store);
	arena_release(&fx.arena);
	return 0;
}

static struct str create(const char *url, const char *alias)
{
	struct store_write w = kit_creation(&fx.arena, url, alias);
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
	return w.link.key;
}

static int resolve_at(struct str key, int64_t now_ms, struct str *ret)
{
	struct link_resolve r = {.key = key, .arena = &fx.arena}, *wanted = &r;
	links_resolve(fx.links, &wanted, 1, now_ms, fx.metrics);
	if (ret)
		*ret = r.response;
	return r.result;
}

static int resolve(struct str key, struct str *ret)
{
	return resolve_at(key, 2000, ret);
}

static void change(struct str key, unsigned fields, struct link_record link)
{
	struct store_write w = {.kind = STORE_LINK_UPDATE,
	                        .now_ms = 1500,
	                        .arena = &fx.arena,
	                        .ref = links_ref(fx.links, key),
	                        .fields = fields,
	                        .link = link};
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
}

TEST(a_created_link_resolves_to_its_response_and_is_cached)
{
	struct str response, key = create("https://a.example/", NULL);
	assert_int_equal(key.len, 7);
	assert_null(cache_find(links_cache(fx.links), key));
	assert_int_equal(resolve(key, &response), 0);
	assert_true(str_eq(response, STR("https://a.example/")));
	const struct cache_entry *e = cache_find(links_cache(fx.links), key);
	assert_non_null(e);
	assert_int_equal(e->response_date_at, 3);
	assert_ptr_equal(e->budget, budgets_of_user(fx.budgets, 7));
	assert_null(e->limit);
	assert_false(e->late);
}

TEST(keys_are_the_cipher_of_leased_ids)
{
	for (uint64_t id = 1; id <= 25; id++) {
		struct str key = create("https://a.example/", NULL);
		assert_int_equal(key_decode(links_cipher(fx.links), key), id);
	}
}

TEST(an_alias_resolves_and_its_row_does_not_answer_to_a_generated_key)
{
	struct store_write w = kit_creation(&fx.arena, "https://a.example/", "promo");
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
	assert_true(str_eq(w.link.key, STR("promo")));
	assert_int_equal(resolve(STR("promo"), NULL), 0);
	char generated[7];
	key_encode(links_cipher(fx.links), w.link.id, generated);
	assert_int_equal(resolve(str_n(generated, 7), NULL), ERR_NOT_FOUND);
}

TEST(a_generated_key_that_meets_an_alias_is_skipped)
{
	char next[8] = "";
	key_encode(links_cipher(fx.links), 11, next); /* the first behind the block that is leased by then */
	create("https://alias.example/", next);       /* its own row takes id 1 */
	uint64_t before = fx.metrics->keys_skipped;
	for (uint64_t id = 2; id <= 10; id++)
		assert_int_equal(key_decode(links_cipher(fx.links), create("https://a.example/", NULL)), id);
	assert_int_equal(key_decode(links_cipher(fx.links), create("https://b.example/", NULL)), 12);
	assert_int_equal(fx.metrics->keys_skipped, before + 1);
	struct str response;
	assert_int_equal(resolve(str_of(next), &response), 0);
	assert_true(str_eq(response, STR("https://alias.example/")));
}

TEST(a_batch_keeps_what_is_good_and_refuses_what_is_not)
{
	struct store_write batch[] = {
	    kit_creation(&fx.arena, "https://a.example/", NULL),
	    kit_creation(&fx.arena, "https://b.example/", "same"),
	    kit_creation(&fx.arena, "https://c.example/", "same"),
	    kit_creation(&fx.arena, "https://d.example/", NULL),
	};
	links_apply(fx.links, batch, ARRAY_LEN(batch), fx.metrics);
	assert_int_equal(batch[0].result, 0);
	assert_int_equal(batch[1].result, 0);
	assert_int_equal(batch[2].result, ERR_CONFLICT);
	assert_int_equal(batch[3].result, 0);
	assert_false(str_eq(batch[0].link.key, batch[3].link.key));
	struct str response;
	assert_int_equal(resolve(STR("same"), &response), 0);
	assert_true(str_eq(response, STR("https://b.example/")));
}

TEST(what_is_not_there_is_remembered_until_it_is_created)
{
	assert_int_equal(resolve(STR("soon"), NULL), ERR_NOT_FOUND);
	const struct cache_entry *e = cache_find(links_cache(fx.links), STR("soon"));
	assert_non_null(e);
	assert_int_equal(e->response_len, 0);
	assert_int_equal(e->expires_ms, 2000 + 1000);
	create("https://a.example/", "soon");
	assert_null(cache_find(links_cache(fx.links), STR("soon")));
	assert_int_equal(resolve(STR("soon"), NULL), 0);
}

TEST(a_change_or_deletion_is_seen_by_the_next_lookup)
{
	struct str response;
	create("https://old.example/", "k");
	assert_int_equal(resolve(STR("k"), NULL), 0);
	change(STR("k"), LINK_URL, (struct link_record){.url = STR("https://new.example/")});
	assert_null(cache_find(links_cache(fx.links), STR("k")));
	assert_int_equal(resolve(STR("k"), &response), 0);
	assert_true(str_eq(response, STR("https://new.example/")));

	struct store_write gone = {
	    .kind = STORE_LINK_DELETE, .arena = &fx.arena, .ref = links_ref(fx.links, STR("k"))};
	links_apply(fx.links, &gone, 1, fx.metrics);
	assert_int_equal(gone.result, 0);
	assert_null(cache_find(links_cache(fx.links), STR("k")));
	assert_int_equal(resolve(STR("k"), NULL), ERR_NOT_FOUND);
}

TEST(a_disabled_link_is_not_found_but_stays)
{
	create("https://a.example/", "k");
	change(STR("k"), LINK_ENABLED, (struct link_record){.enabled = false});
	assert_int_equal(resolve(STR("k"), NULL), ERR_NOT_FOUND);
	change(STR("k"), LINK_ENABLED, (struct link_record){.enabled = true});
	assert_int_equal(resolve(STR("k"), NULL), 0);
}

TEST(an_expired_link_is_not_found_and_can_be_swept)
{
	create("https://a.example/", "k");
	change(STR("k"), LINK_EXPIRES, (struct link_record){.expires_ms = 5000});
	assert_int_equal(resolve_at(STR("k"), 4999, NULL), 0);
	struct link_resolve late = {.key = STR("k"), .arena = &fx.arena}, *wanted = &late;
	links_resolve(fx.links, &wanted, 1, 5000, fx.metrics);
	assert_int_equal(late.result, ERR_NOT_FOUND);
	assert_true(late.expired);

	struct store_write reap = {.kind = STORE_LINK_SWEEP,
	                           .now_ms = 5000,
	                           .arena = &fx.arena,
	                           .ref = links_ref(fx.links, STR("k"))};
	uint64_t before = fx.metrics->links_swept;
	links_apply(fx.links, &reap, 1, fx.metrics);
	assert_int_equal(reap.result, 0);
	assert_int_equal(fx.metrics->links_swept, before + 1);
	struct store_lookup read = {.ref = links_ref(fx.links, STR("k")), .arena = &fx.arena};
	assert_int_equal(links_get(fx.links, &read, 1, fx.metrics), 0);
	assert_int_equal(read.result, ERR_NOT_FOUND);
}

TEST(a_link_that_was_prolonged_is_not_swept)
{
	create("https://a.example/", "k");
	change(STR("k"), LINK_EXPIRES, (struct link_record){.expires_ms = 9000});
	struct store_write reap = {.kind = STORE_LINK_SWEEP,
	                           .now_ms = 5000,
	                           .arena = &fx.arena,
	                           .ref = links_ref(fx.links, STR("k"))};
	links_apply(fx.links, &reap, 1, fx.metrics);
	assert_int_equal(reap.result, ERR_CONFLICT);
	assert_int_equal(resolve_at(STR("k"), 5000, NULL), 0);
}

/* Short keys meet real words: they are passed over. */
TEST(a_generated_key_is_never_a_reserved_word)
{
	stop(NULL);
	struct store *store;
	struct links_settings small = settings;
	small.alphabet = KEY_BASE36;
	small.key_length = 4;
	store = kit_store_new();
	fx.store = store;
	fx.budgets = budgets_new();
	struct links_config config = {.store = store,
	                              .budgets = fx.budgets,
	                              .settings = small,
	                              .id_block = 1,
	                              .cache_seed = 1,
	                              .render = render};
	assert_int_equal(links_new(&config, &fx.links, NULL), 0);
	uint64_t help = key_decode(links_cipher(fx.links), STR("help")), leased;
	assert_true(help > 1);
	assert_int_equal(registry_lease(store->registry, STR("link"), help - 1, &leased),
	                 0); /* the next one would be "help" */
	assert_int_equal(key_decode(links_cipher(fx.links), create("https://a.example/", NULL)), help + 1);
}

TEST(a_list_has_keys_newest_first)
{
	struct str first = create("https://a.example/", NULL);
	create("https://b.example/", "alias");
	struct str last = create("https://c.example/", NULL);
	struct store_list page = {.limit = 10, .arena = &fx.arena};
	assert_int_equal(links_list(fx.links, &page), 0);
	assert_int_equal(page.count, 3);
	assert_true(str_eq(page.links[0].key, last));
	assert_true(str_eq(page.links[1].key, STR("alias")));
	assert_true(str_eq(page.links[2].key, first));
}

TEST(another_key_shape_on_the_same_store_is_refused_with_the_fix)
{
	struct links *other;
	struct err e;
	struct links_config config = {
	    .store = fx.store, .budgets = fx.budgets, .settings = settings, .id_block = 1};
	config.settings.key_length = 6;
	assert_int_equal(links_new(&config, &other, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.length = 7"));
	config.settings.key_length = 0;
	config.settings.alphabet = KEY_BASE36;
	assert_int_equal(links_new(&config, &other, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.alphabet = base62"));
	config.settings.alphabet = KEY_BASE62;
	config.settings.key_length = 3;
	assert_int_equal(links_new(&config, &other, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "too short"));
}

TEST(the_secret_stays_with_the_store)
{
	struct links *again;
	struct links_config config = {
	    .store = fx.store, .budgets = fx.budgets, .settings = settings, .id_block = 1};
	assert_int_equal(links_new(&config, &again, NULL), 0);
	assert_memory_equal(links_cipher(again)->secret, links_cipher(fx.links)->secret, KEY_SECRET_BYTES);
	links_free(again);
}

static void on_a_failing_store(const char *spec, void (*then)(void))
{
	struct store *inner, *store;
	stop(NULL);
	inner = kit_store_new();
	assert_int_equal(store_fault_open(spec, inner, &store, NULL), 0);
	start_on(store);
	then();
}

static void lookup_fails(void)
{
	create("https://a.example/", "k");
	assert_int_equal(resolve(STR("k"), NULL), ERR_UNAVAILABLE);
	assert_null(cache_find(links_cache(fx.links), STR("k"))); /* a failure is not an answer to remember */
	assert_int_equal(resolve(STR("k"), NULL), 0);
}

TEST(a_failed_lookup_is_reported_and_not_cached)
{
	on_a_failing_store("lookup=unavailable@1!", lookup_fails);
}

static void apply_is_uncertain(void)
{
	assert_int_equal(resolve(STR("k"), NULL), ERR_NOT_FOUND);
	struct store_write w = kit_creation(&fx.arena, "https://a.example/", "k");
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, ERR_UNCERTAIN);
	assert_null(cache_find(links_cache(fx.links), STR("k"))); /* it may be there: ask again */
	assert_int_equal(resolve(STR("k"), NULL), 0);
}

TEST(after_an_uncertain_write_the_cache_asks_again)
{
	on_a_failing_store("apply=uncertain", apply_is_uncertain);
}

static void lease_fails(void)
{
	struct store_write batch[] = {
	    kit_creation(&fx.arena, "https://a.example/", NULL),
	    {.kind = STORE_LINK_DELETE, .arena = &fx.arena, .now_ms = 1, .ref = {.key = STR("nobody")}},
	};
	links_apply(fx.links, batch, ARRAY_LEN(batch), fx.metrics);
	assert_int_equal(batch[0].result, ERR_UNAVAILABLE);
	assert_int_equal(batch[1].result, ERR_NOT_FOUND);
}

TEST(without_ids_creations_fail_and_other_changes_go_on)
{
	on_a_failing_store("lease=unavailable", lease_fails);
}

/* --- several databases --- */

enum { SHARDS = 3 };

static size_t three(struct store *s)
{
	(void)s;
	return SHARDS;
}

static size_t shard_by_last_byte(struct store *s, struct str name)
{
	(void)s;
	return (unsigned char)name.ptr[name.len - 1] % SHARDS;
}

static size_t shard_of_nobody(struct store *s, struct str name)
{
	(void)s;
	(void)name;
	return 0;
}

/* Makes a batch in the shard; how many of its keys lie there. */
static size_t made_in(size_t shard, size_t n)
{
	struct store_write batch[64];
	size_t found = 0;
	assert_true(n <= ARRAY_LEN(batch));
	for (size_t i = 0; i < n; i++)
		batch[i] = (struct store_write){
		    .kind = STORE_LINK_CREATE,
		    .now_ms = 1000,
		    .arena = &fx.arena,
		    .link = {.url = STR("https://a.example/"), .redirect_status = 302}};
	links_apply_in(fx.links, shard, batch, n, fx.metrics);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(batch[i].result, 0);
		found += shard_by_last_byte(NULL, batch[i].link.key) == shard;
	}
	return found;
}

TEST(a_writer_names_links_that_lie_in_its_own_database)
{
	enum { BATCHES = 30, BATCH = 30 };
	struct store_ops ops = *fx.store->ops;
	const struct store_ops *before = fx.store->ops;
	ops.shard_count = three;
	ops.shard_of = shard_by_last_byte;
	fx.store->ops = &ops;
	size_t found = 0;
	for (size_t i = 0; i < BATCHES; i++)
		found += made_in(i % SHARDS, BATCH);
	/* Few are not found in as many tries; and ids of the others are not wasted. */
	assert_true(found > BATCHES * BATCH * 9 / 10);
	uint64_t next;
	assert_int_equal(registry_lease(fx.store->registry, STORE_LINK_COUNTER, 1, &next), 0);
	assert_true(next < 3 * BATCHES * BATCH);
	ops.shard_of = shard_of_nobody; /* the others have no part of the names yet */
	made_in(2, BATCH);
	fx.store->ops = before;
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.setup = start, .teardown = stop);
}
