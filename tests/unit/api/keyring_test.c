#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/keyring.h"
#include "os/reclaim.h"
#include "store/backends.h"

#include <pthread.h>
#include <sodium.h>

static struct {
	struct store *store;
	struct budgets *budgets;
	struct keyring *ring;
	struct arena arena;
} fx;

static const struct keyring_defaults defaults = {.creates_max = 11, .redirects_max = 12, .period_ms = 13000};

static int start(void **state)
{
	(void)state;
	assert_int_equal(store_memory_open(&fx.store, NULL), 0);
	fx.budgets = budgets_new();
	assert_int_equal(keyring_new(fx.store, fx.budgets, &defaults, &fx.ring, NULL), 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	keyring_free(fx.ring);
	budgets_free(fx.budgets);
	store_free(fx.store);
	arena_release(&fx.arena);
	return 0;
}

static uint64_t add(const char *text, struct key_record record)
{
	struct store_write w = {.kind = STORE_KEY_CREATE, .now_ms = 1, .arena = &fx.arena, .key = record};
	if (!w.key.name.ptr)
		w.key.name = str_of(text);
	w.key.created_ms = 1;
	api_key_digest(str_of(text), w.key.digest);
	assert_int_equal(store_apply(fx.store, &w, 1), 0);
	assert_int_equal(w.result, 0);
	assert_int_equal(keyring_reload(fx.ring), 0);
	return w.key.id;
}

static void revoke(uint64_t id)
{
	struct store_write w = {.kind = STORE_KEY_REVOKE, .now_ms = 2, .arena = &fx.arena, .key.id = id};
	assert_int_equal(store_apply(fx.store, &w, 1), 0);
	assert_int_equal(keyring_reload(fx.ring), 0);
}

static void a_key_is_found_by_its_text_alone(void **state)
{
	(void)state;
	struct api_key found;
	uint64_t id = add("first-key", (struct key_record){.admin = true});
	uint64_t other = add("second-key", (struct key_record){0});
	assert_true(keyring_find(fx.ring, STR("first-key"), &found));
	assert_int_equal(found.id, id);
	assert_true(found.admin);
	assert_true(str_eq(found.name, STR("first-key")));
	assert_true(keyring_find(fx.ring, STR("second-key"), &found));
	assert_int_equal(found.id, other);
	assert_false(found.admin);
	assert_false(keyring_find(fx.ring, STR("third-key"), &found));
	assert_false(keyring_find(fx.ring, STR("first-ke"), &found));
	assert_false(keyring_find(fx.ring, STR(""), &found));
}

static void a_revoked_key_is_unknown_but_its_name_is_remembered(void **state)
{
	(void)state;
	struct api_key found;
	uint64_t id = add("key-text", (struct key_record){.name = STR("bob")});
	revoke(id);
	assert_false(keyring_find(fx.ring, STR("key-text"), &found));
	assert_true(str_eq(keyring_name(fx.ring, id), STR("bob")));
	assert_null(keyring_name(fx.ring, id + 1).ptr);
}

static void limits_of_its_own_win_over_the_defaults(void **state)
{
	(void)state;
	struct api_key found;
	add("plain", (struct key_record){0});
	add("limited", (struct key_record){.creates_max = 5, .period_ms = 60000});
	assert_true(keyring_find(fx.ring, STR("plain"), &found));
	assert_int_equal(found.budget->creates.max, 11);
	assert_int_equal(found.budget->redirects.max, 12);
	assert_int_equal(found.budget->creates.period_ms, 13000);
	assert_true(keyring_find(fx.ring, STR("limited"), &found));
	assert_int_equal(found.budget->creates.max, 5);
	assert_int_equal(found.budget->redirects.max, 12);
	assert_int_equal(found.budget->creates.period_ms, 60000);
}

static void a_reload_does_not_give_a_used_budget_back(void **state)
{
	(void)state;
	struct api_key found;
	add("limited", (struct key_record){.creates_max = 1, .period_ms = 60000});
	assert_true(keyring_find(fx.ring, STR("limited"), &found));
	assert_true(meter_take(&found.budget->creates, 1000, NULL));
	assert_int_equal(keyring_reload(fx.ring), 0);
	assert_true(keyring_find(fx.ring, STR("limited"), &found));
	assert_false(meter_take(&found.budget->creates, 1000, NULL));
}

static void the_local_key_is_an_admins_and_in_no_store(void **state)
{
	(void)state;
	struct api_key found;
	struct key_record *keys;
	size_t count;
	keyring_set_local(fx.ring, STR("local-token"));
	assert_true(keyring_find(fx.ring, STR("local-token"), &found));
	assert_true(found.admin);
	assert_int_equal(found.id, 0);
	assert_int_equal(store_keys(fx.store, &fx.arena, &keys, &count), 0);
	assert_int_equal(count, 0);
}

static void made_keys_are_long_different_and_have_their_digest(void **state)
{
	(void)state;
	char a[API_KEY_TEXT_BYTES], b[API_KEY_TEXT_BYTES];
	uint8_t digest_a[KEY_DIGEST_BYTES], digest_b[KEY_DIGEST_BYTES], again[KEY_DIGEST_BYTES];
	api_key_make(a, digest_a);
	api_key_make(b, digest_b);
	assert_string_not_equal(a, b);
	assert_true(strlen(a) >= 40);
	api_key_digest(str_of(a), again);
	assert_memory_equal(again, digest_a, KEY_DIGEST_BYTES);
	assert_memory_not_equal(digest_b, digest_a, KEY_DIGEST_BYTES);
}

static _Atomic bool stop_reading;
static _Atomic int missed;

static void *reader(void *arg)
{
	(void)arg;
	reclaim_reader_register();
	while (!stop_reading) {
		struct api_key found;
		if (!keyring_find(fx.ring, STR("steady"), &found) || !str_eq(found.name, STR("steady")))
			missed++;
		reclaim_reader_quiescent();
	}
	reclaim_reader_unregister();
	return NULL;
}

static void readers_see_whole_snapshots_while_keys_come_and_go(void **state)
{
	(void)state;
	pthread_t threads[2];
	add("steady", (struct key_record){0});
	stop_reading = false;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reader, NULL), 0);
	for (int i = 0; i < 200; i++) {
		char text[16] = "coming-and-";
		text[11] = (char)('a' + i % 26);
		text[12] = (char)('a' + i / 26);
		revoke(add(text, (struct key_record){0}));
	}
	stop_reading = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(missed, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_key_is_found_by_its_text_alone),
	    TEST(a_revoked_key_is_unknown_but_its_name_is_remembered),
	    TEST(limits_of_its_own_win_over_the_defaults),
	    TEST(a_reload_does_not_give_a_used_budget_back),
	    TEST(the_local_key_is_an_admins_and_in_no_store),
	    TEST(made_keys_are_long_different_and_have_their_digest),
	    TEST(readers_see_whole_snapshots_while_keys_come_and_go),
	};
	return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
