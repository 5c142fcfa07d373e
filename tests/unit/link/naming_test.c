#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/claim.h"
#include "link/links.h"
#include "store/backends.h"

static struct {
	struct store *store;
	struct budgets *budgets;
	struct links *links;
	struct metrics *metrics;
	struct arena arena;
} fx;

/* A source with a list of keys. */
static struct {
	struct key_source base;
	struct source_key keys[64];
	size_t at, count;
	size_t asked; /* the largest number at once */
	int fail;
	struct source_key back[64];
	size_t back_count, later_count;
} shelf;

static int key_list_take(struct key_source *s, struct source_key *ret, size_t n, size_t *ret_count,
                         struct err *e)
{
	(void)s;
	shelf.asked = MAX(shelf.asked, n);
	if (shelf.fail)
		return err_set(e, shelf.fail, "nobody answers");
	if (shelf.at == shelf.count)
		return err_set(e, ERR_LIMIT, "the shelf is empty");
	size_t count = 0;
	while (count < MIN(n, 2) && shelf.at < shelf.count) /* never more than two at once */
		ret[count++] = shelf.keys[shelf.at++];
	*ret_count = count;
	return 0;
}

static void key_list_give_back(struct key_source *s, const struct source_key *keys, size_t n, bool later)
{
	(void)s;
	for (size_t i = 0; i < n; i++) {
		assert_true(shelf.back_count < ARRAY_LEN(shelf.back));
		shelf.later_count += later ? 1 : 0;
		shelf.back[shelf.back_count++] = keys[i];
	}
}

static const struct key_source_ops key_list_ops = {.take = key_list_take, .put_back = key_list_give_back};

static void shelve(struct str text, bool used_before)
{
	struct source_key *key = &shelf.keys[shelf.count++];
	*key = (struct source_key){.len = (uint8_t)text.len, .used_before = used_before};
	memcpy(key->text, text.ptr, text.len);
}

static void shelve_id(uint64_t id, bool used_before)
{
	char text[7];
	key_encode(links_cipher(fx.links), id, text);
	shelve(str_n(text, sizeof(text)), used_before);
}

/* Ids in the key pool were leased by the generator that made them. */
static void lease_to(uint64_t id)
{
	uint64_t first = 0;
	while (first < id)
		assert_int_equal(registry_lease(fx.store->registry, STORE_LINK_COUNTER, 1, &first), 0);
}

static int start(void **state)
{
	memset(&shelf, 0, sizeof(shelf));
	shelf.base.ops = &key_list_ops;
	fx.store = kit_store_new();
	fx.budgets = budgets_new();
	if (!fx.metrics)
		fx.metrics = metrics_register();
	const struct links_config config = {
	    .store = fx.store, .budgets = fx.budgets, .source = &shelf.base, .id_block = 10};
	assert_int_equal(links_new(&config, &fx.links, NULL), 0);
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

static struct store_write create(const char *alias)
{
	struct store_write w = kit_creation(&fx.arena, "https://a.example/", alias);
	links_apply(fx.links, &w, 1, fx.metrics);
	return w;
}

static int lookup(struct str key, struct link_record *ret)
{
	struct store_lookup read = {.ref = links_ref(fx.links, key), .arena = &fx.arena};
	assert_int_equal(store_lookup(fx.store, &read, 1), 0);
	*ret = read.link;
	return read.result;
}

TEST(a_new_key_is_the_link_of_its_id)
{
	struct link_record link;
	lease_to(100);
	shelve_id(77, false);
	struct store_write w = create(NULL);
	assert_int_equal(w.result, 0);
	assert_int_equal(w.link.id, 77);
	assert_false(w.link.is_alias);
	assert_int_equal(lookup(w.link.key, &link), 0);
	assert_int_equal(link.id, 77);
}

TEST(a_key_that_was_used_before_names_a_link_with_an_id_of_its_own)
{
	struct link_record link;
	char text[7];
	lease_to(100);
	shelve_id(77, true);
	key_encode(links_cipher(fx.links), 77, text);
	struct store_write w = create(NULL);
	assert_int_equal(w.result, 0);
	assert_true(str_eq(w.link.key, str_n(text, 7)));
	assert_true(w.link.id > 100);
	assert_int_equal(lookup(w.link.key, &link), 0);
	assert_int_equal(link.id, w.link.id);
}

TEST(a_key_that_somebody_has_is_passed_over)
{
	lease_to(100);
	shelve_id(5, false);
	shelve_id(5, false); /* as after a failover of Redis */
	shelve_id(5, true);
	shelve_id(6, true);
	assert_int_equal(create(NULL).link.id, 5);
	uint64_t skipped = fx.metrics->keys_skipped;
	struct store_write w = create(NULL);
	assert_int_equal(w.result, 0);
	assert_int_equal(key_decode(links_cipher(fx.links), w.link.key), 6);
	assert_int_equal(fx.metrics->keys_skipped, skipped + 2);
}

TEST(a_key_of_another_store_and_a_reserved_word_are_passed_over)
{
	lease_to(100);
	shelve(STR("short"), false);
	shelve(STR("not-one"), false);
	shelve(STR("healthz"), false);
	shelve_id(9, false);
	assert_int_equal(create(NULL).link.id, 9);
}

TEST(a_batch_takes_exactly_what_it_needs)
{
	lease_to(100);
	for (uint64_t id = 1; id <= 5; id++)
		shelve_id(id, false);
	struct store_write batch[] = {kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", "mine"),
	                              kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL)};
	links_apply(fx.links, batch, ARRAY_LEN(batch), fx.metrics);
	for (size_t i = 0; i < ARRAY_LEN(batch); i++)
		assert_int_equal(batch[i].result, 0);
	assert_int_equal(shelf.asked, 3);
	assert_int_equal(shelf.at, 3);
}

TEST(a_dry_source_refuses_with_its_reason_and_the_rest_of_the_batch_goes_on)
{
	struct err why;
	lease_to(100);
	assert_int_equal(create("first").result, 0);
	assert_false(links_source_trouble(fx.links, &why));
	shelve_id(3, false);
	struct store_write batch[] = {
	    kit_creation(&fx.arena, "https://a.example/", NULL),
	    kit_creation(&fx.arena, "https://a.example/", NULL),
	    kit_creation(&fx.arena, "https://a.example/", "mine"),
	    {.kind = STORE_LINK_DELETE,
	     .now_ms = 1000,
	     .arena = &fx.arena,
	     .ref = links_ref(fx.links, STR("first"))},
	};
	links_apply(fx.links, batch, ARRAY_LEN(batch), fx.metrics);
	assert_int_equal(batch[0].result, 0);
	assert_int_equal(batch[1].result, ERR_BUSY);
	assert_int_equal(batch[2].result, 0);
	assert_int_equal(batch[3].result, 0);
	assert_true(links_source_trouble(fx.links, &why));
	assert_string_equal(why.text, "the shelf is empty");
	shelve_id(4, false);
	assert_int_equal(create(NULL).link.id, 4);
}

TEST(a_source_that_does_not_answer_refuses_likewise)
{
	struct err why;
	shelf.fail = ERR_UNAVAILABLE;
	assert_int_equal(create(NULL).result, ERR_BUSY);
	assert_true(links_source_trouble(fx.links, &why));
	assert_string_equal(why.text, "nobody answers");
}

/* A store of several parts */

static struct {
	struct store base;
	struct store_ops ops;
	struct registry_ops registry_ops;
	unsigned calls;
	bool all_away;
} parts;

/* Even ids lie in a shard that is down. */
static int parts_apply(struct store *s, struct store_write *writes, size_t n)
{
	(void)s;
	parts.calls++;
	if (parts.all_away)
		return ERR_UNAVAILABLE;
	for (size_t i = 0; i < n; i++) {
		writes[i].result = ERR_UNAVAILABLE;
		if (writes[i].ref.id % 2 == 1)
			assert_int_equal(store_apply(fx.store, &writes[i], 1), 0);
	}
	return 0;
}

static struct links *parts_start_with(struct key_source *source)
{
	struct links *links = NULL;
	memset(&parts, 0, sizeof(parts));
	parts.ops = (struct store_ops){.apply = parts_apply};
	parts.registry_ops = *fx.store->registry->ops;
	parts.base = (struct store){.ops = &parts.ops, .registry = fx.store->registry};
	const struct links_config config = {
	    .store = &parts.base, .budgets = fx.budgets, .source = source, .id_block = 10};
	assert_int_equal(links_new(&config, &links, NULL), 0);
	return links;
}

static struct links *parts_start(void)
{
	return parts_start_with(NULL);
}

TEST(with_a_shard_down_new_links_are_made_in_the_others)
{
	struct links *links = parts_start();
	struct store_write batch[] = {kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL)};
	links_apply(links, batch, ARRAY_LEN(batch), fx.metrics);
	for (size_t i = 0; i < ARRAY_LEN(batch); i++) {
		assert_int_equal(batch[i].result, 0);
		assert_int_equal(batch[i].link.id % 2, 1);
	}
	assert_true(parts.calls <= 5); /* together, not one by one */
	links_free(links);
}

TEST(with_a_shard_down_an_alias_and_a_possible_replay_are_refused)
{
	struct links *links = parts_start();
	struct store_write batch[] = {kit_creation(&fx.arena, "https://a.example/", "mine"),
	                              kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL)};
	batch[1].idempotency_key = STR("again");
	batch[2].idempotency_key = STR("and again");
	links_apply(links, batch, ARRAY_LEN(batch), fx.metrics);
	assert_int_equal(batch[0].result, ERR_UNAVAILABLE);
	assert_true(batch[1].result == ERR_UNAVAILABLE || batch[2].result == ERR_UNAVAILABLE);
	assert_int_equal(parts.calls, 1);
	links_free(links);
}

TEST(a_store_that_is_down_as_a_whole_is_asked_once)
{
	struct links *links = parts_start();
	struct store_write w = kit_creation(&fx.arena, "https://a.example/", NULL);
	parts.all_away = true;
	links_apply(links, &w, 1, fx.metrics);
	assert_int_equal(w.result, ERR_UNAVAILABLE);
	assert_int_equal(parts.calls, 1);
	links_free(links);
}

/* Keys that were taken for nothing */

static uint64_t id_given_back(size_t i)
{
	assert_true(i < shelf.back_count);
	return key_decode(links_cipher(fx.links), str_n(shelf.back[i].text, shelf.back[i].len));
}

TEST(a_creation_that_is_repeated_gives_its_key_back)
{
	lease_to(100);
	shelve_id(5, false);
	shelve_id(6, false);
	shelve_id(7, true);
	struct store_write first = kit_creation(&fx.arena, "https://a.example/", NULL),
	                   again = kit_creation(&fx.arena, "https://a.example/", NULL),
	                   other = kit_creation(&fx.arena, "https://a.example/", NULL);
	first.idempotency_key = again.idempotency_key = other.idempotency_key = STR("same");
	other.fingerprint[0] = 1;
	links_apply(fx.links, &first, 1, fx.metrics);
	assert_int_equal(first.link.id, 5);
	assert_int_equal(shelf.back_count, 0);
	links_apply(fx.links, &again, 1, fx.metrics);
	assert_int_equal(again.result, 0);
	assert_true(again.replayed);
	assert_int_equal(again.link.id, 5);
	assert_int_equal(id_given_back(0), 6);
	assert_false(shelf.back[0].used_before);
	links_apply(fx.links, &other, 1, fx.metrics); /* another creation under the same key */
	assert_int_equal(other.result, ERR_INVALID);
	assert_int_equal(id_given_back(1), 7);
	assert_true(shelf.back[1].used_before);
	assert_int_equal(shelf.back_count, 2);
}

TEST(a_key_that_somebody_has_is_not_given_back)
{
	lease_to(100);
	shelve_id(5, false);
	shelve_id(5, false);
	shelve_id(6, false);
	assert_int_equal(create(NULL).link.id, 5);
	assert_int_equal(create(NULL).link.id, 6);
	assert_int_equal(shelf.back_count, 0);
}

TEST(a_store_that_is_down_costs_no_keys)
{
	struct links *links = parts_start_with(&shelf.base);
	lease_to(100);
	shelve_id(5, false);
	shelve_id(6, false);
	struct store_write batch[] = {kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL)};
	parts.all_away = true;
	batch[1].idempotency_key = STR("again"); /* it may have been promised its name */
	links_apply(links, batch, ARRAY_LEN(batch), fx.metrics);
	assert_int_equal(batch[0].result, ERR_UNAVAILABLE);
	assert_int_equal(shelf.back_count, 1);
	assert_int_equal(id_given_back(0), 5);
	links_free(links);
}

static struct store_write create_in(struct links *links)
{
	struct store_write w = kit_creation(&fx.arena, "https://a.example/", NULL);
	links_apply(links, &w, 1, fx.metrics);
	return w;
}

TEST(keys_of_a_shard_that_is_down_come_back_for_later)
{
	struct links *links = parts_start_with(&shelf.base);
	lease_to(100);
	for (uint64_t id = 2; id <= 20; id += 2) /* no luck: all lie in the shard that is down */
		shelve_id(id, false);
	shelve_id(21, false);
	assert_int_equal(create_in(links).link.id, 21);
	assert_int_equal(shelf.back_count, 10);
	assert_int_equal(shelf.later_count, 10);
	assert_int_equal(id_given_back(0), 2);
	for (uint64_t id = 22; id <= 26; id += 2) /* no luck to the end */
		shelve_id(id, false);
	assert_int_equal(create_in(links).result, ERR_BUSY);
	assert_int_equal(shelf.back_count, 13);
	assert_int_equal(shelf.later_count, 13);
	links_free(links);
}

TEST(when_every_shard_is_down_few_keys_are_tried_and_they_stay_at_hand)
{
	struct links *links = parts_start_with(&shelf.base);
	unsigned creations = 0;
	lease_to(200);
	for (uint64_t id = 2; id <= 120; id += 2)
		shelve_id(id, false);
	while (shelf.later_count == shelf.back_count) {
		assert_int_equal(create_in(links).result, ERR_UNAVAILABLE);
		assert_true(++creations <= 4);
	}
	size_t later = shelf.later_count, calls = parts.calls, taken = shelf.at;
	assert_int_equal(create_in(links).result, ERR_UNAVAILABLE);
	assert_int_equal(parts.calls, calls + 1);
	assert_int_equal(shelf.at, taken + 1);
	assert_int_equal(shelf.later_count, later);
	shelf.at = shelf.count = 0;
	shelve_id(121, false); /* a part is back: the next is tried again as before */
	shelve_id(122, false);
	shelve_id(123, false);
	assert_int_equal(create_in(links).link.id, 121);
	assert_int_equal(create_in(links).link.id, 123);
	links_free(links);
}

static int no_lease(struct registry *s, struct str counter, uint64_t count, uint64_t *ret)
{
	(void)s, (void)counter, (void)count, (void)ret;
	return ERR_UNAVAILABLE;
}

TEST(without_numbers_for_its_links_a_batch_gives_all_its_keys_back)
{
	struct links *links = parts_start_with(&shelf.base);
	const struct registry_ops *real = fx.store->registry->ops;
	parts.registry_ops.lease = no_lease;
	fx.store->registry->ops = &parts.registry_ops;
	shelve_id(5, true); /* needs a number */
	shelve_id(6, true);
	struct store_write batch[] = {kit_creation(&fx.arena, "https://a.example/", NULL),
	                              kit_creation(&fx.arena, "https://a.example/", NULL)};
	links_apply(links, batch, ARRAY_LEN(batch), fx.metrics);
	assert_true(batch[0].result < 0);
	assert_true(batch[1].result < 0);
	assert_int_equal(shelf.back_count, 2);
	links_free(links);
	fx.store->registry->ops = real;
}

/* Claiming */

static struct {
	struct store base;
	struct store_ops ops;
	uint64_t ids[8];
	size_t count;
	size_t asked;
	unsigned calls;
	int fail;
} estate;

static int estate_claim(struct store *s, int64_t now_ms, uint64_t quarantine_ms, size_t max,
                        uint64_t *ret_ids, size_t *ret_count)
{
	(void)s, (void)now_ms;
	assert_int_equal(quarantine_ms, 5000);
	estate.calls++;
	estate.asked = max;
	if (estate.fail)
		return estate.fail;
	*ret_count = MIN(max, estate.count);
	for (size_t i = 0; i < *ret_count; i++)
		ret_ids[i] = estate.ids[--estate.count];
	return 0;
}

static struct key_source *claim_start(void)
{
	struct key_source *source = NULL;
	memset(&estate, 0, sizeof(estate));
	estate.ops.claim = estate_claim;
	estate.base = (struct store){.ops = &estate.ops, .registry = fx.store->registry, .is_shared = true};
	const struct claim_config config = {
	    .store = &estate.base, .cipher = links_cipher(fx.links), .quarantine_ms = 5000, .id_block = 10};
	assert_int_equal(claim_new(&config, &source, NULL), 0);
	return source;
}

TEST(ended_keys_are_claimed_first_and_no_more_than_asked_for)
{
	struct source_key keys[3];
	size_t count = 0;
	struct key_source *source = claim_start();
	for (uint64_t id = 1; id <= 5; id++)
		estate.ids[estate.count++] = id;
	assert_int_equal(source->ops->take(source, keys, 3, &count, NULL), 0);
	assert_int_equal(count, 3);
	assert_int_equal(estate.asked, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_true(keys[i].used_before);
		assert_int_equal(key_decode(links_cipher(fx.links), str_n(keys[i].text, keys[i].len)), 5 - i);
	}
	assert_int_equal(source->ops->stats(source).taken, 3);
	source->ops->free(source);
}

TEST(what_comes_back_is_given_out_before_anything_is_claimed)
{
	struct source_key keys[4], again[1500];
	size_t count = 0;
	struct key_source *source = claim_start();
	estate.ids[estate.count++] = 3;
	estate.ids[estate.count++] = 4;
	assert_int_equal(source->ops->take(source, keys, 2, &count, NULL), 0);
	source->ops->put_back(source, keys, 2, false);
	assert_int_equal(source->ops->take(source, again, 4, &count, NULL), 0);
	assert_int_equal(count, 2);
	assert_memory_equal(again, keys, 2 * sizeof(*keys));
	assert_int_equal(estate.calls, 1);
	for (size_t i = 0; i < ARRAY_LEN(again); i++)
		again[i] = keys[0];
	source->ops->put_back(source, again, ARRAY_LEN(again), false); /* more than there is room for */
	assert_int_equal(source->ops->take(source, again, ARRAY_LEN(again), &count, NULL), 0);
	assert_int_equal(count, 1024);
	assert_int_equal(source->ops->stats(source).lost, ARRAY_LEN(again) - 1024);
	assert_int_equal(source->ops->stats(source).taken, 2); /* all others had been given back */
	source->ops->free(source);
}

TEST(a_claimed_key_of_a_shard_that_is_down_is_no_obstacle_and_a_new_one_is_dropped)
{
	struct source_key claimed, made, next;
	size_t count = 0;
	struct key_source *source = claim_start();
	estate.ids[estate.count++] = 3;
	assert_int_equal(source->ops->take(source, &claimed, 1, &count, NULL), 0);
	assert_int_equal(source->ops->take(source, &made, 1, &count, NULL), 0);
	source->ops->put_back(source, &claimed, 1, true);
	source->ops->put_back(source, &made, 1, true);
	assert_int_equal(source->ops->stats(source).deferred, 1);
	assert_int_equal(source->ops->take(source, &next, 1, &count, NULL), 0);
	assert_false(next.used_before);
	assert_memory_not_equal(next.text, made.text, made.len);
	do /* in a second it is tried again */
		assert_int_equal(source->ops->take(source, &next, 1, &count, NULL), 0);
	while (!next.used_before);
	assert_memory_equal(next.text, claimed.text, claimed.len);
	assert_int_equal(source->ops->stats(source).lost, 0);
	source->ops->free(source);
}

TEST(without_ended_keys_new_ones_are_made_and_the_store_is_left_alone)
{
	struct source_key key;
	size_t count = 0;
	struct key_source *source = claim_start();
	for (uint64_t id = 1; id <= 20; id++) {
		assert_int_equal(source->ops->take(source, &key, 1, &count, NULL), 0);
		assert_false(key.used_before);
		assert_int_equal(key_decode(links_cipher(fx.links), str_n(key.text, key.len)), id);
	}
	assert_true(estate.calls >= 1 && estate.calls < 20); /* once a second */
	source->ops->free(source);
}

TEST(a_store_that_cannot_be_asked_does_not_stop_creation)
{
	struct source_key key;
	size_t count = 0;
	struct key_source *source = claim_start();
	estate.fail = ERR_UNAVAILABLE;
	assert_int_equal(source->ops->take(source, &key, 1, &count, NULL), 0);
	assert_false(key.used_before);
	source->ops->free(source);
}

TEST_MAIN(.setup = start, .teardown = stop)
