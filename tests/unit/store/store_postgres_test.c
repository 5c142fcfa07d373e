/* What is the PostgreSQL store's own; what it shares with all stores is in the conformance suite. */
#include "lib/database_kit.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "store/backends.h"

enum { OVER_MS = KIT_NOW_MS + 100, REST_MS = 1000 };

static const char *const url = database_kit_urls[0];
static struct store *store;
static struct arena arena;

static int setup(void **state)
{
	if (!url[0])
		return 0;
	postgres_kit_database_empty(url);
	store = database_kit_store(url);
	return 0;
}

static int teardown(void **state)
{
	store_free(store);
	store = NULL;
	arena_release(&arena);
	return 0;
}

static void need_no_citus(void)
{
	if (postgres_kit_has_citus()) {
		print_message("the server has Citus: none can be feigned\n");
		skip();
	}
}

/* --- opening --- */

static void *open_and_close(void *arg)
{
	(void)arg;
	store_free(database_kit_store(url));
	return NULL;
}

TEST(servers_that_start_at_once_on_an_empty_database_all_come_up)
{
	database_kit_need();
	pthread_t threads[4];
	store_free(store);
	store = NULL;
	postgres_kit_database_remove(url);
	postgres_kit_database_make(database_kit_urls[0]);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	store = database_kit_store(url);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM account_version"), 1);
}

TEST(a_database_of_a_newer_version_is_refused)
{
	database_kit_need();
	struct store *s = NULL;
	struct err e = {""};
	const struct store_shards_config config = {.urls = (struct str[]){str_of(url)}, .count = 1};
	postgres_kit_run(url, "UPDATE layout_version SET version = version + 1");
	assert_int_equal(store_shards_open(&config, &s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "newer version"));
	postgres_kit_run(url, "UPDATE layout_version SET version = version - 1");
}

TEST(a_citus_none_of_whose_nodes_may_hold_rows_is_refused_with_what_to_do)
{
	database_kit_need();
	char feigned[POSTGRES_KIT_URL_BYTES];
	struct store *s = NULL;
	struct err e = {""};
	need_no_citus();
	postgres_kit_database_make(feigned);
	const struct store_shards_config config = {.urls = (struct str[]){str_of(feigned)}, .count = 1};
	postgres_kit_citus_feign(feigned);
	postgres_kit_run(feigned, "CREATE OR REPLACE VIEW pg_dist_node AS SELECT false AS shouldhaveshards,"
	                          " true AS isactive, 'primary'::text AS noderole");
	assert_int_equal(store_shards_open(&config, &s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "citus_add_node"));
	assert_int_equal(
	    postgres_kit_ask(feigned, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), 0);
	postgres_kit_database_remove(feigned);
}

TEST(with_citus_a_store_is_no_shard_and_has_no_replicas)
{
	database_kit_need();
	char with_citus[POSTGRES_KIT_URL_BYTES];
	struct store *s = NULL;
	struct err e = {""};
	postgres_kit_database_make(with_citus);
	postgres_kit_citus_feign(with_citus);
	const struct str urls[] = {str_of(with_citus), str_of(url)};
	struct store_shards_config config = {.urls = urls, .count = 2};
	assert_int_equal(store_shards_open(&config, &s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "without Citus"));
	config.count = 1;
	assert_int_equal(store_shards_open(&config, &s, &e), 0);
	assert_int_equal(store_shard_count(s), 1);
	store_free(s);
	config.replicas = urls;
	config.replica_count = 1;
	assert_int_equal(store_shards_open(&config, &s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "store.replicas"));
	postgres_kit_database_remove(with_citus);
}

/* Tables that were made before the extension came stay where they are, and rows are locked many at once. */
TEST(a_database_that_citus_came_to_later_is_used_as_before)
{
	database_kit_need();
	struct store_write writes[] = {kit_generated(&arena, 1), kit_generated(&arena, 2)};
	need_no_citus();
	postgres_kit_citus_feign(url);
	postgres_kit_run(url,
	                 "CREATE OR REPLACE VIEW pg_dist_partition AS SELECT NULL::regclass AS logicalrelid");
	store_free(store);
	store = database_kit_store(url);
	assert_int_equal(store_apply(store, writes, ARRAY_LEN(writes)), 0);
	assert_int_equal(writes[1].result, 0);
	postgres_kit_run(
	    url, "DROP VIEW pg_dist_node; DROP VIEW pg_dist_partition; SET allow_system_table_mods = on;"
	         " DELETE FROM pg_extension WHERE extname = 'citus'; DROP FUNCTION create_distributed_table");
}

TEST(a_wrong_url_and_a_server_that_is_down_are_distinguished)
{
	struct store *s = NULL;
	struct err e = {""};
	struct str at = STR("postgres://me:geheim@h/d?nonsense=1");
	const struct store_shards_config config = {.urls = &at, .count = 1};
	assert_int_equal(store_shards_open(&config, &s, &e), ERR_INVALID);
	assert_null(strstr(e.text, "geheim"));
	at = STR("postgres://me:geheim@127.0.0.1:1/d");
	assert_int_equal(store_shards_open(&config, &s, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "127.0.0.1"));
	assert_null(strstr(e.text, "geheim"));
}

/* --- keys that are spent, and those that come back --- */

static struct store_write on_key(enum store_write_kind kind, uint64_t id, int64_t now_ms)
{
	struct str key = arena_printf(&arena, "g%llu", (unsigned long long)id);
	return (struct store_write){
	    .kind = kind, .now_ms = now_ms, .arena = &arena, .ref = {id, key}, .quarantine_ms = REST_MS};
}

static void create_mortal(uint64_t id)
{
	struct store_write w = kit_generated(&arena, id);
	w.link.expires_ms = OVER_MS;
	assert_int_equal(kit_apply(store, &w), 0);
}

static void reap(uint64_t id)
{
	struct store_write w = on_key(STORE_LINK_SWEEP, id, OVER_MS);
	assert_int_equal(kit_apply(store, &w), 0);
}

static size_t claim(int64_t now_ms, size_t max, uint64_t *ret)
{
	size_t count = 77;
	assert_int_equal(store_claim(store, now_ms, REST_MS, max, ret, &count), 0);
	assert_true(count <= max);
	return count;
}

TEST(a_generated_key_whose_link_was_deleted_is_never_given_out_again)
{
	database_kit_need();
	uint64_t ids[4];
	struct store_write w = kit_generated(&arena, 3);
	assert_int_equal(kit_apply(store, &w), 0);
	w = on_key(STORE_LINK_DELETE, 3, KIT_NOW_MS);
	assert_int_equal(kit_apply(store, &w), 0);
	w = kit_generated(&arena, 3);
	assert_int_equal(kit_apply(store, &w), ERR_CONFLICT);
	w = kit_alias(&arena, 4,
	              "g3"); /* not as an alias either, also when the counter knows nothing of it */
	w.ref.id = 3;
	assert_int_equal(kit_apply(store, &w), ERR_CONFLICT);
	assert_int_equal(claim(1LL << 60, 4, ids), 0);
}

TEST(a_swept_key_comes_back_once_after_its_quarantine)
{
	database_kit_need();
	uint64_t ids[4];
	create_mortal(3);
	reap(3);
	struct store_write w = kit_generated(&arena, 3);
	assert_int_equal(kit_apply(store, &w), ERR_CONFLICT);
	assert_int_equal(claim(OVER_MS + REST_MS - 1, 4, ids), 0);
	assert_int_equal(claim(OVER_MS + REST_MS, 4, ids), 1);
	assert_int_equal(ids[0], 3);
	assert_int_equal(claim(1LL << 60, 4, ids), 0);
}

TEST(a_key_whose_link_waits_to_be_swept_comes_back_too)
{
	database_kit_need();
	uint64_t ids[4];
	create_mortal(3);
	struct store_write alias = kit_alias(&arena, 4, "name"); /* is nobody's to claim */
	alias.link.expires_ms = OVER_MS;
	assert_int_equal(kit_apply(store, &alias), 0);
	assert_int_equal(claim(OVER_MS + REST_MS - 1, 4, ids), 0);
	assert_int_equal(kit_find_generated(store, &arena, 3), 0);
	assert_int_equal(claim(OVER_MS + REST_MS, 4, ids), 1);
	assert_int_equal(ids[0], 3);
	assert_int_equal(kit_find_generated(store, &arena, 3), ERR_NOT_FOUND);
	assert_int_equal(kit_find(store, &arena, 0, "name", NULL), 0);
}

static struct store_write reuse(uint64_t row, uint64_t id)
{
	struct store_write w = kit_alias(&arena, row,
	                                 arena_printf(&arena, "g%llu", (unsigned long long)id).ptr);
	w.ref.id = id;
	w.reuse = true;
	w.quarantine_ms = REST_MS;
	return w;
}

TEST(a_key_that_came_back_names_a_link_again_and_can_come_back_again)
{
	database_kit_need();
	uint64_t ids[4], first;
	struct link_record link;
	assert_int_equal(registry_lease(store->registry, STORE_LINK_COUNTER, 10, &first), 0);
	create_mortal(3);
	const struct store_count clicks = {.id = 3, .clicks = 41};
	assert_int_equal(store_set_clicks(store, 1, &clicks, 1), 0);
	assert_int_equal(claim(OVER_MS + REST_MS, 4, ids), 1);
	struct store_write w = reuse(77, 3);
	w.link.expires_ms = OVER_MS + 5000;
	assert_int_equal(kit_apply(store, &w), 0);
	assert_int_equal(kit_find(store, &arena, 3, "g3", &link), 0);
	assert_int_equal(link.id, 77);
	assert_int_equal(link.clicks, 0);
	struct store_write taken = reuse(78, 3);
	assert_int_equal(kit_apply(store, &taken), ERR_CONFLICT);
	taken = kit_alias(&arena, 79, "g3"); /* it does not yield when it is over, as a chosen name would */
	taken.ref.id = 3;
	taken.now_ms = OVER_MS + 50000;
	assert_int_equal(kit_apply(store, &taken), ERR_CONFLICT);
	struct store_write gone = on_key(STORE_LINK_SWEEP, 3, OVER_MS + 5000);
	assert_int_equal(kit_apply(store, &gone), 0);
	assert_int_equal(claim(OVER_MS + 5000 + REST_MS, 4, ids), 1);
	assert_int_equal(ids[0], 3);
}

enum { CLAIMED = 400, CLAIMERS = 4 };

static void *claim_all(void *arg)
{
	uint64_t *ids = arg;
	size_t count = 0, more = 1;
	while (more > 0 && count < CLAIMED) {
		assert_int_equal(
		    store_claim(store, 1LL << 60, 0, MIN(7, CLAIMED - count), ids + count, &more), 0);
		count += more;
	}
	return NULL;
}

TEST(no_two_claimers_get_the_same_key)
{
	database_kit_need();
	static uint64_t ids[CLAIMERS][CLAIMED];
	static unsigned seen[CLAIMED + 1];
	pthread_t threads[CLAIMERS];
	memset(ids, 0, sizeof(ids));
	memset(seen, 0, sizeof(seen));
	struct store_write *batch = calloc(CLAIMED, sizeof(*batch));
	for (uint64_t i = 0; i < CLAIMED; i++) {
		batch[i] = kit_generated(&arena, i + 1);
		batch[i].link.expires_ms = OVER_MS;
	}
	assert_int_equal(store_apply(store, batch, CLAIMED), 0);
	for (uint64_t i = 0; i < CLAIMED / 2; i++)
		batch[i] = on_key(STORE_LINK_SWEEP, i + 1, OVER_MS);
	assert_int_equal(store_apply(store, batch, CLAIMED / 2), 0);
	free(batch);
	for (size_t i = 0; i < CLAIMERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, claim_all, ids[i]), 0);
	for (size_t i = 0; i < CLAIMERS; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < CLAIMERS; i++) {
		for (size_t k = 0; k < CLAIMED && ids[i][k]; k++)
			seen[ids[i][k]]++;
	}
	for (size_t id = 1; id <= CLAIMED; id++)
		assert_int_equal(seen[id], 1);
}

/* --- several nodes --- */

static uint64_t clicks_of(uint64_t id)
{
	struct link_record link;
	assert_int_equal(
	    kit_find(store, &arena, id, arena_printf(&arena, "g%llu", (unsigned long long)id).ptr, &link), 0);
	return link.clicks;
}

TEST(a_links_clicks_are_the_sum_over_the_nodes)
{
	database_kit_need();
	struct store_write w = kit_generated(&arena, 1);
	assert_int_equal(kit_apply(store, &w), 0);
	struct store_count count = {.id = 1, .clicks = 40};
	assert_int_equal(store_set_clicks(store, 1, &count, 1), 0);
	count.clicks = 2;
	assert_int_equal(store_set_clicks(store, UINT64_MAX, &count, 1), 0);
	assert_int_equal(clicks_of(1), 42);
	count.clicks = 50;
	assert_int_equal(store_set_clicks(store, 1, &count, 1), 0);
	assert_int_equal(clicks_of(1), 52);
	count.clicks = INT64_MAX;
	assert_int_equal(store_set_clicks(store, 1, &count, 1), 0);
	assert_true(clicks_of(1) == INT64_MAX);
}

enum { NODES = 4, COUNTED = 20, COUNTS = 30 };

static void *count_up(void *arg)
{
	uint64_t node = (uint64_t)(uintptr_t)arg;
	struct store_count counts[COUNTED];
	for (uint64_t round = 1; round <= COUNTS; round++) {
		for (uint64_t i = 0; i < COUNTED; i++) /* each node in an order of its own */
			counts[i] = (struct store_count){.id = 1 + (node % 2 ? i : COUNTED - 1 - i),
			                                 .clicks = round};
		assert_int_equal(store_set_clicks(store, node, counts, COUNTED), 0);
	}
	return NULL;
}

TEST(nodes_that_count_at_once_lose_nothing)
{
	database_kit_need();
	pthread_t threads[NODES];
	for (uint64_t id = 1; id <= COUNTED; id++) {
		struct store_write w = kit_generated(&arena, id);
		assert_int_equal(kit_apply(store, &w), 0);
	}
	for (uintptr_t i = 0; i < NODES; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, (void *)(i + 1)), 0);
	for (size_t i = 0; i < NODES; i++)
		pthread_join(threads[i], NULL);
	for (uint64_t id = 1; id <= COUNTED; id++)
		assert_int_equal(clicks_of(id), NODES * COUNTS);
}

/* --- two servers, one rule --- */

struct demotion {
	struct store *store;
	uint64_t user;
	pthread_barrier_t *start;
	int result;
};

static void *demote(void *arg)
{
	struct demotion *d = arg;
	struct arena own = {0};
	struct registry_write w = {.kind = REGISTRY_USER_UPDATE,
	                           .now_ms = KIT_NOW_MS,
	                           .arena = &own,
	                           .user = {.id = d->user, .role = ROLE_VIEWER},
	                           .user_fields = USER_ROLE};
	pthread_barrier_wait(d->start);
	d->result = kit_apply(d->store, &w);
	arena_release(&own);
	return NULL;
}

TEST(of_two_admins_who_demote_each_other_one_stays)
{
	database_kit_need();
	struct store *second = database_kit_store(database_kit_urls[0]);
	struct registry_write admins[2];
	pthread_barrier_t start;
	for (size_t i = 0; i < 2; i++) {
		admins[i] = kit_user(&arena, i ? "b@admin.example" : "a@admin.example", ROLE_ADMIN);
		admins[i].user.password = STR("hashed");
		assert_int_equal(kit_apply(store, &admins[i]), 0);
	}
	assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
	for (int round = 0; round < 20; round++) {
		struct demotion both[2] = {{store, admins[0].user.id, &start, 1},
		                           {second, admins[1].user.id, &start, 1}};
		pthread_t threads[2];
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, demote, &both[i]), 0);
		for (size_t i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(MIN(both[0].result, both[1].result), ERR_BUSY);
		assert_int_equal(MAX(both[0].result, both[1].result), 0);
		for (size_t i = 0; i < 2; i++) {
			struct registry_write again = {.kind = REGISTRY_USER_UPDATE,
			                               .arena = &arena,
			                               .user = {.id = admins[i].user.id, .role = ROLE_ADMIN},
			                               .user_fields = USER_ROLE};
			assert_int_equal(kit_apply(store, &again), 0);
		}
	}
	pthread_barrier_destroy(&start);
	store_free(second);
}

struct hoarder {
	struct store *store;
	uint64_t user;
	uint8_t first;
	unsigned made;
};

static void *hoard(void *arg)
{
	struct hoarder *h = arg;
	for (unsigned i = 0; i < ACCOUNT_KEYS_MAX; i++) {
		struct arena own = {0};
		struct registry_write w = kit_key(&own, 0, h->user);
		w.key.digest[1] = h->first;
		w.key.digest[2] = (uint8_t)i;
		int r = kit_apply(h->store, &w);
		assert_true(r == 0 || r == ERR_LIMIT);
		h->made += r == 0;
		arena_release(&own);
	}
	return NULL;
}

TEST(two_servers_together_make_no_more_keys_than_a_user_may_have)
{
	database_kit_need();
	struct store *second = database_kit_store(database_kit_urls[0]);
	struct registry_write user = kit_user(&arena, "hoarder@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(store, &user), 0);
	struct hoarder both[2] = {{store, user.user.id, 1, 0}, {second, user.user.id, 2, 0}};
	pthread_t threads[2];
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hoard, &both[i]), 0);
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(both[0].made + both[1].made, ACCOUNT_KEYS_MAX);
	store_free(second);
}

/* --- two servers, one idempotency key --- */

enum { RACERS = 4, RACES = 20 };

struct racer {
	struct store *store;
	unsigned number;
	uint64_t ids[RACES]; /* of the link that each race gave */
};

static void *race(void *arg)
{
	struct racer *r = arg;
	for (unsigned i = 0; i < RACES; i++) {
		struct arena own = {0};
		struct store_write w = kit_generated(&own, 1 + r->number * RACES + i);
		w.idempotency_key = arena_printf(&own, "race%u", i);
		w.idempotency_owner = 5;
		assert_int_equal(kit_apply(r->store, &w), 0);
		r->ids[i] = w.link.id;
		arena_release(&own);
	}
	return NULL;
}

TEST(of_creates_with_one_idempotency_key_one_is_made)
{
	database_kit_need();
	struct racer racers[RACERS];
	pthread_t threads[RACERS];
	for (unsigned i = 0; i < RACERS; i++) {
		racers[i] = (struct racer){.store = database_kit_store(url), .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
	}
	for (unsigned i = 0; i < RACERS; i++) {
		pthread_join(threads[i], NULL);
		store_free(racers[i].store);
	}
	for (unsigned i = 0; i < RACES; i++) {
		for (unsigned k = 1; k < RACERS; k++)
			assert_int_equal(racers[k].ids[i], racers[0].ids[i]);
	}
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link"), RACES);
}

/* Two servers that name the same links in one batch each, one of them in the opposite order. */
enum { RIVALS = 2, BATCH = 16, ROUNDS = 3 };

struct rival {
	struct store *store;
	unsigned number;
	enum store_write_kind kind;
	size_t done; /* of all that was asked for */
};

static struct store_write rival_write(const struct rival *r, struct arena *a, unsigned round, unsigned at)
{
	unsigned name = round * BATCH + (r->number == 0 ? at : BATCH - 1 - at);
	struct str key = arena_printf(a, "name%u", name);
	struct store_write w = kit_alias(a, 1 + (uint64_t)name * RIVALS + r->number, key.ptr);
	if (r->kind != STORE_LINK_CREATE)
		w = (struct store_write){
		    .kind = r->kind, .now_ms = KIT_NOW_MS, .arena = a, .ref = {.key = key}};
	if (r->kind == STORE_LINK_UPDATE) {
		w.fields = LINK_TITLE;
		w.link.title = arena_printf(a, "%u", r->number);
	}
	return w;
}

static void *contend(void *arg)
{
	struct rival *r = arg;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct arena own = {0};
		struct store_write batch[BATCH];
		for (unsigned i = 0; i < BATCH; i++)
			batch[i] = rival_write(r, &own, round, i);
		assert_int_equal(store_apply(r->store, batch, BATCH), 0);
		for (unsigned i = 0; i < BATCH; i++)
			r->done += batch[i].result == 0;
		arena_release(&own);
	}
	return NULL;
}

/* How many of their changes were done. */
static size_t contest(enum store_write_kind kind)
{
	struct rival rivals[RIVALS];
	pthread_t threads[RIVALS];
	size_t done = 0;
	for (unsigned i = 0; i < RIVALS; i++) {
		rivals[i] = (struct rival){.store = database_kit_store(url), .number = i, .kind = kind};
		assert_int_equal(pthread_create(&threads[i], NULL, contend, &rivals[i]), 0);
	}
	for (unsigned i = 0; i < RIVALS; i++) {
		pthread_join(threads[i], NULL);
		store_free(rivals[i].store);
		done += rivals[i].done;
	}
	return done;
}

TEST(servers_that_change_the_same_links_at_once_lose_nothing)
{
	database_kit_need();
	assert_int_equal(contest(STORE_LINK_CREATE), ROUNDS * BATCH); /* each name is one server's */
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link"), ROUNDS * BATCH);
	assert_int_equal(contest(STORE_LINK_UPDATE), RIVALS * ROUNDS * BATCH);
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link WHERE title IN ('0', '1')"),
	                 ROUNDS * BATCH);
	assert_int_equal(contest(STORE_LINK_DELETE), ROUNDS * BATCH); /* each is deleted once */
	assert_int_equal(postgres_kit_ask(url, "SELECT count(*) FROM link"), 0);
}

static int feigned_setup(void **state)
{
	int r = database_kit_one(state);
	if (!url[0])
		return r;
	postgres_kit_citus_feign(url);
	/* Who waits in a circle hears of it soon. */
	postgres_kit_run(url,
	                 "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''10ms''',"
	                 " current_database()); END $$");
	return r;
}

int main(void)
{
	/* What Citus has statements of its own for. */
#define AGAIN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest as_with_citus[] = {
	    AGAIN(a_generated_key_whose_link_was_deleted_is_never_given_out_again),
	    AGAIN(a_swept_key_comes_back_once_after_its_quarantine),
	    AGAIN(a_key_whose_link_waits_to_be_swept_comes_back_too),
	    AGAIN(no_two_claimers_get_the_same_key),
	    AGAIN(nodes_that_count_at_once_lose_nothing),
	    AGAIN(servers_that_change_the_same_links_at_once_lose_nothing),
	};
	int failed = RUN_TESTS(.group_setup = database_kit_one, .group_teardown = database_kit_down,
	                       .setup = setup, .teardown = teardown);
	return failed + cmocka_run_group_tests(as_with_citus, feigned_setup, database_kit_down);
}
