#include "lib/store_kit.h"
#include "lib/test.h"
#include "store/backends.h"

static struct arena arena;

static int release_arena(void **state)
{
	arena_release(&arena);
	return 0;
}

static struct store *memory_open(void)
{
	struct store *s = NULL;
	s = kit_store_new();
	return s;
}

static struct store *fault_open(const char *spec)
{
	struct store *s = NULL;
	MUST(store_fault_open(spec, memory_open(), &s, &why));
	return s;
}

static int call(struct store *s, const char *op)
{
	struct store_lookup read = {.ref = {.id = 1, .key = STR("g1")}, .arena = &arena};
	struct store_list page = {.limit = 1, .arena = &arena};
	struct registry_page users = {.limit = 1, .arena = &arena};
	struct store_expired expired = {.now_ms = 1};
	struct user_record user;
	struct registry_page keys = {.limit = 1, .arena = &arena};
	size_t count;
	uint64_t first, id, *ids;
	const struct store_count clicks = {.id = 1, .clicks = 1};
	char value[1] = {0};
	if (strcmp(op, "lookup") == 0)
		return store_lookup(s, &read, 1);
	if (strcmp(op, "apply") == 0)
		return store_apply(s, NULL, 0);
	if (strcmp(op, "list") == 0)
		return store_list(s, &page);
	if (strcmp(op, "tagged") == 0)
		return store_tagged(s, STR("t"), 1, &id, &count);
	if (strcmp(op, "clicks") == 0)
		return store_set_clicks(s, 1, &clicks, 1);
	if (strcmp(op, "permitted") == 0)
		return store_permitted(s, 1, &arena, &ids, &count);
	if (strcmp(op, "over") == 0)
		return store_expired(s, &expired);
	if (strcmp(op, "users") == 0)
		return registry_users(s->registry, &users);
	if (strcmp(op, "accounts") == 0) {
		int r = registry_user(s->registry, 1, STR_NULL, &arena, &user);
		return r == ERR_NOT_FOUND ? 0 : r; /* so says the store inside */
	}
	if (strcmp(op, "keys") == 0)
		return registry_keys(s->registry, &keys);
	if (strcmp(op, "lease") == 0)
		return registry_lease(s->registry, STR("c"), 1, &first);
	if (strcmp(op, "constant") == 0)
		return registry_constant(s->registry, STR("k"), value, 1);
	assert_string_equal(op, "ping");
	return store_ping(s, NULL);
}

TEST(every_operation_fails_with_every_error_and_no_other_does)
{
	static const char *const ops[] = {"lookup",    "apply",    "list",  "tagged", "clicks",
	                                  "permitted", "over",     "users", "keys",   "accounts",
	                                  "lease",     "constant", "ping"};
	static const int errors[] = {ERR_UNAVAILABLE, ERR_UNCERTAIN, ERR_CORRUPT, ERR_BUSY, ERR_NOMEM};
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		for (size_t j = 0; j < ARRAY_LEN(errors); j++) {
			struct str spec = arena_printf(&arena, "%s=%s", ops[i], err_name(errors[j]));
			struct store *s = fault_open(spec.ptr);
			for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
				for (int times = 0; times < 3; times++)
					assert_int_equal(call(s, ops[k]), k == i ? errors[j] : 0);
			}
			store_free(s);
		}
	}
}

static int shared_claim(struct store *s, int64_t now_ms, uint64_t quarantine_ms, size_t max,
                        uint64_t *ret_ids, size_t *ret_count)
{
	(void)s, (void)now_ms, (void)quarantine_ms, (void)max;
	ret_ids[0] = 9;
	*ret_count = 1;
	return 0;
}

static void shared_free(struct store *s)
{
	(void)s;
}

TEST(claims_fail_when_told_to)
{
	static const struct store_ops ops = {.free = shared_free, .claim = shared_claim};
	struct registry registry = {0};
	struct store shared = {.ops = &ops, .registry = &registry}, *s;
	uint64_t id = 0;
	size_t count = 0;
	assert_int_equal(store_fault_open("claim=unavailable@2", &shared, &s, NULL), 0);
	assert_int_equal(store_claim(s, 0, 0, 1, &id, &count), 0);
	assert_int_equal(id, 9);
	assert_int_equal(store_claim(s, 0, 0, 1, &id, &count), ERR_UNAVAILABLE);
	store_free(s);
}

TEST(a_number_is_the_first_call_that_fails)
{
	struct store *s = fault_open("lookup=busy@3");
	assert_int_equal(call(s, "lookup"), 0);
	assert_int_equal(call(s, "ping"), 0); /* another operation's calls do not count */
	assert_int_equal(call(s, "lookup"), 0);
	assert_int_equal(call(s, "lookup"), ERR_BUSY);
	assert_int_equal(call(s, "lookup"), ERR_BUSY);
	store_free(s);
}

TEST(a_number_with_a_mark_is_the_only_call_that_fails)
{
	struct store *s = fault_open("lease=corrupt@2!");
	assert_int_equal(call(s, "lease"), 0);
	assert_int_equal(call(s, "lease"), ERR_CORRUPT);
	assert_int_equal(call(s, "lease"), 0);
	store_free(s);
}

TEST(of_several_rules_the_first_that_meets_a_call_decides)
{
	struct store *s = fault_open("keys=busy@1!,keys=corrupt@3,keys=unavailable@2,ping=no-memory@1!");
	assert_int_equal(call(s, "keys"), ERR_BUSY);
	assert_int_equal(call(s, "keys"), ERR_UNAVAILABLE);
	assert_int_equal(call(s, "keys"), ERR_CORRUPT);
	assert_int_equal(call(s, "ping"), ERR_NOMEM);
	assert_int_equal(call(s, "ping"), 0);
	store_free(s);
}

TEST(an_apply_that_fails_does_nothing)
{
	struct store *s = fault_open("apply=unavailable@1!");
	struct store_write w = kit_generated(&arena, 1);
	assert_int_equal(store_apply(s, &w, 1), ERR_UNAVAILABLE);
	assert_int_equal(kit_find_generated(s, &arena, 1), ERR_NOT_FOUND);
	assert_int_equal(kit_apply(s, &w), 0);
	assert_int_equal(kit_find_generated(s, &arena, 1), 0);
	store_free(s);
}

TEST(an_uncertain_apply_does_the_work_and_gives_nothing_back)
{
	struct store *s = fault_open("apply=uncertain@2!");
	struct store_write first = kit_generated(&arena, 1);
	first.idempotency_key = STR("key");
	assert_int_equal(kit_apply(s, &first), 0);
	struct store_write batch[] = {kit_generated(&arena, 2), kit_generated(&arena, 3)};
	batch[0].idempotency_key = STR("key"); /* replays the first */
	batch[1].result = 12345;
	assert_int_equal(store_apply(s, batch, 2), ERR_UNCERTAIN);
	assert_int_equal(kit_find_generated(s, &arena, 3), 0);
	assert_int_equal(batch[1].result, 12345);
	assert_false(batch[0].replayed);
	assert_int_equal(batch[0].link.id, 2);
	store_free(s);
}

TEST(a_lease_that_fails_leaves_its_output_alone)
{
	uint64_t first = 77;
	struct store *s = fault_open("lease=uncertain");
	assert_int_equal(registry_lease(s->registry, STR("c"), 5, &first), ERR_UNCERTAIN);
	assert_int_equal(first, 77);
	store_free(s);
}

TEST(a_ping_that_fails_has_a_sentence)
{
	struct err e = {""};
	struct store *s = fault_open("ping=unavailable");
	assert_int_equal(store_ping(s, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "unavailable"));
	store_free(s);
}

TEST(a_spec_that_makes_no_sense_is_refused_with_a_sentence)
{
	static const char *const specs[] = {
	    "lookup",
	    "lookup=",
	    "=busy",
	    "lookup=not-found",
	    "read=busy",
	    "lookup=busy@",
	    "lookup=busy@0",
	    "lookup=busy@x",
	    "lookup=busy@-1",
	    "lookup=busy@!",
	    "lookup=busy@1!!",
	    "lookup=busy@1 ",
	    ",",
	    "lookup=busy,",
	    ",lookup=busy",
	    "lookup=busy@99999999999999999999",
	    "LOOKUP=busy",
	    "lookup=ok",
	    "lookup=busy,,ping=busy",
	};
	struct store *inner = memory_open();
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct store *s = NULL;
		struct err e = {""};
		assert_int_equal(store_fault_open(specs[i], inner, &s, &e), ERR_INVALID);
		assert_null(s);
		assert_true(strlen(e.text) > 0);
	}
	assert_int_equal(store_ping(inner, NULL), 0); /* it is still ours */
	store_free(inner);
}

TEST(too_many_rules_are_refused)
{
	struct str spec = STR("ping=busy");
	for (int i = 0; i < 40; i++)
		spec = arena_printf(&arena, "%s,ping=busy", spec.ptr);
	struct store *inner = memory_open(), *s = NULL;
	assert_int_equal(store_fault_open(spec.ptr, inner, &s, NULL), ERR_INVALID);
	store_free(inner);
}

TEST_MAIN(.group_teardown = release_arena)
