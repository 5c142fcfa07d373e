#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/accounts.h"
#include "lib/store_kit.h"
#include "os/clock.h"
#include "os/reclaim.h"
#include "store/backends.h"

#include <pthread.h>
#include <sodium.h>

enum { NOW_MS = 5000000, HOUR_MS = 3600000 };

static struct {
	struct store *store;
	struct budgets *budgets;
	struct accounts *accounts;
	struct arena arena;
} fx;

static const struct account_limits limits = {.creates_max = 11, .redirects_max = 12, .period_ms = 13000};

static int start(void **state)
{
	(void)state;
	fx.store = kit_store_new();
	fx.budgets = budgets_new();
	assert_int_equal(accounts_new(fx.store, fx.budgets, &limits, &fx.accounts, NULL), 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	accounts_free(fx.accounts);
	budgets_free(fx.budgets);
	store_free(fx.store);
	arena_release(&fx.arena);
	return 0;
}

static struct store_write applied(struct store_write w)
{
	w.now_ms = w.now_ms ? w.now_ms : 2;
	w.arena = &fx.arena;
	assert_int_equal(store_apply(fx.store, &w, 1), 0);
	assert_int_equal(w.result, 0);
	assert_int_equal(accounts_reload(fx.accounts), 0);
	return w;
}

static struct user_record add_user(const char *email, enum user_role role)
{
	struct user_record user = {.email = str_of(email), .role = role, .enabled = true, .created_ms = 1};
	return applied((struct store_write){.kind = STORE_USER_CREATE, .user = user}).user;
}

static struct user_record change_user(struct user_record user, unsigned fields)
{
	return applied((struct store_write){.kind = STORE_USER_UPDATE, .user = user, .user_fields = fields})
	    .user;
}

/* A key of the user; 0 gives it one of its own. */
static struct key_record add(const char *text, uint64_t user, struct key_record record)
{
	record.user = user;
	record.name = record.name.ptr ? record.name : str_of(text);
	record.created_ms = 1;
	api_key_digest(str_of(text), record.digest);
	struct store_write w = {.kind = STORE_KEY_CREATE, .key = record};
	w.user = (struct user_record){
	    .first_name = record.name, .role = ROLE_EDITOR, .enabled = true, .created_ms = 1};
	return applied(w).key;
}

static const struct key_record all_rights = {.rights = RIGHTS_ALL};

static void revoke(uint64_t id)
{
	applied((struct store_write){.kind = STORE_KEY_REVOKE, .key.id = id});
}

static bool finds(const char *text, struct caller *ret)
{
	return accounts_find_key(fx.accounts, str_of(text), NOW_MS, ret);
}

/* Keys */

static void a_key_is_found_by_its_text_alone(void **state)
{
	(void)state;
	struct caller found;
	struct key_record first = add("first-key", 0, all_rights), second = add("second-key", 0, all_rights);
	assert_true(finds("first-key", &found));
	assert_int_equal(found.key, first.id);
	assert_int_equal(found.user, first.user);
	assert_false(found.by_session);
	assert_true(finds("second-key", &found));
	assert_int_equal(found.key, second.id);
	assert_int_not_equal(found.user, first.user);
	assert_false(finds("third-key", &found));
	assert_false(finds("first-ke", &found));
	assert_false(finds("", &found));
}

static void a_key_has_the_rights_that_both_it_and_its_users_role_have(void **state)
{
	(void)state;
	struct caller found;
	uint64_t viewer = add_user("v@example.com", ROLE_VIEWER).id,
	         admin = add_user("a@example.com", ROLE_ADMIN).id;
	add("viewers", viewer, all_rights);
	add("admins", admin, all_rights);
	add("readers", admin, (struct key_record){.rights = RIGHT_READ});
	assert_true(finds("viewers", &found));
	assert_int_equal(found.rights, RIGHT_READ | RIGHT_STATS);
	assert_true(finds("admins", &found));
	assert_true(caller_is_admin(&found));
	assert_int_equal(found.rights, RIGHTS_ALL);
	assert_true(finds("readers", &found));
	assert_int_equal(found.rights, RIGHT_READ);
	assert_false(caller_is_admin(&found));
}

static void a_revoked_key_is_unknown_but_its_users_name_is_remembered(void **state)
{
	(void)state;
	struct caller found;
	struct key_record key = add("key-text", 0,
	                            (struct key_record){.name = STR("bob"), .rights = RIGHT_READ});
	revoke(key.id);
	assert_false(finds("key-text", &found));
	assert_true(str_eq(accounts_name(fx.accounts, key.user), STR("bob")));
	assert_null(accounts_name(fx.accounts, key.user + 1).ptr);
}

static void a_key_ends_at_its_very_time_without_a_reload(void **state)
{
	(void)state;
	struct caller found;
	add("short", 0, (struct key_record){.rights = RIGHT_READ, .expires_ms = NOW_MS});
	assert_true(accounts_find_key(fx.accounts, STR("short"), NOW_MS - 1, &found));
	assert_int_equal(found.expires_ms, NOW_MS);
	assert_false(accounts_find_key(fx.accounts, STR("short"), NOW_MS, &found));
}

static void limits_of_its_own_win_over_the_defaults(void **state)
{
	(void)state;
	struct caller found;
	add("plain", 0, all_rights);
	add("limited", 0, (struct key_record){.rights = RIGHTS_ALL, .creates_max = 5, .period_ms = 60000});
	assert_true(finds("plain", &found));
	assert_int_equal(found.budget->creates.max, 11);
	assert_int_equal(found.budget->redirects.max, 12);
	assert_int_equal(found.budget->creates.period_ms, 13000);
	assert_true(finds("limited", &found));
	assert_int_equal(found.budget->creates.max, 5);
	assert_int_equal(found.budget->redirects.max, 12);
	assert_int_equal(found.budget->creates.period_ms, 60000);
}

static void keys_without_limits_of_their_own_share_their_users_budget(void **state)
{
	(void)state;
	struct caller one, two, limited;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	add("one", ada.id, all_rights);
	add("two", ada.id, all_rights);
	struct key_record own = add("limited", ada.id,
	                            (struct key_record){.rights = RIGHTS_ALL, .redirects_max = 5});
	assert_true(finds("one", &one) && finds("two", &two) && finds("limited", &limited));
	assert_ptr_equal(one.budget, budgets_of(fx.budgets, budget_of_user(ada.id)));
	assert_ptr_equal(two.budget, one.budget);
	assert_int_equal(one.limit_key, 0);
	assert_ptr_equal(limited.budget, budgets_of(fx.budgets, own.id));
	assert_int_equal(limited.limit_key, own.id);
	for (int i = 0; i < 11; i++)
		assert_true(meter_take(i % 2 ? &one.budget->creates : &two.budget->creates, 1000, NULL));
	assert_false(meter_take(&one.budget->creates, 1000, NULL));
	assert_true(meter_take(&limited.budget->creates, 1000, NULL));
}

static void any_of_the_three_limits_is_one_of_its_own(void **state)
{
	(void)state;
	const struct key_record some[] = {
	    {.rights = RIGHTS_ALL, .creates_max = 1},
	    {.rights = RIGHTS_ALL, .redirects_max = 1},
	    {.rights = RIGHTS_ALL, .period_ms = 1000},
	};
	for (size_t i = 0; i < ARRAY_LEN(some); i++) {
		char text[] = {(char)('a' + i), '\0'};
		struct caller found;
		uint64_t id = add(text, 0, some[i]).id;
		assert_true(finds(text, &found));
		assert_int_equal(found.limit_key, id);
		assert_ptr_equal(found.budget, budgets_of(fx.budgets, id));
	}
}

static void a_key_without_limits_keeps_a_budget_for_the_links_it_made_before(void **state)
{
	(void)state;
	struct key_record key = add("old", 0, all_rights);
	assert_int_equal(budgets_of(fx.budgets, key.id)->redirects.max, 12);
}

static void keys_in_force_are_counted(void **state)
{
	(void)state;
	const int64_t now_ms = clock_real_ms(), later_ms = now_ms + HOUR_MS;
	uint64_t ada = add_user("ada@example.com", ROLE_EDITOR).id,
	         bob = add_user("bob@example.com", ROLE_EDITOR).id;
	add("bobs", bob, all_rights);
	add("expired", ada, (struct key_record){.rights = RIGHT_READ, .expires_ms = now_ms});
	revoke(add("revoked", ada, all_rights).id);
	assert_int_equal(accounts_user(fx.accounts, ada)->live_keys, 0);
	assert_int_equal(accounts_user(fx.accounts, bob)->live_keys, 1);
	assert_int_equal(accounts_user(fx.accounts, bob)->live_until_ms, 0);
	add("latest", ada, (struct key_record){.rights = RIGHT_READ, .expires_ms = later_ms + 1});
	add("later", ada, (struct key_record){.rights = RIGHT_READ, .expires_ms = later_ms});
	add("ever", ada, all_rights);
	assert_int_equal(accounts_user(fx.accounts, ada)->live_keys, 3);
	assert_int_equal(accounts_user(fx.accounts, ada)->live_until_ms, later_ms);
}

static void an_account_has_room_until_it_has_too_many_keys_or_one_expires(void **state)
{
	(void)state;
	struct account a = {.live_keys = ACCOUNT_KEYS_MAX - 1};
	assert_true(account_has_room(&a, NOW_MS));
	a.live_keys++;
	assert_false(account_has_room(&a, NOW_MS));
	a.live_until_ms = NOW_MS + 1;
	assert_false(account_has_room(&a, NOW_MS));
	assert_true(account_has_room(&a, NOW_MS + 1));
}

static void a_reload_does_not_give_a_used_budget_back(void **state)
{
	(void)state;
	struct caller found;
	add("limited", 0, (struct key_record){.rights = RIGHTS_ALL, .creates_max = 1, .period_ms = 60000});
	assert_true(finds("limited", &found));
	assert_true(meter_take(&found.budget->creates, 1000, NULL));
	add("another", 0, all_rights);
	assert_true(finds("limited", &found));
	assert_ptr_equal(found.budget, budgets_of(fx.budgets, found.key));
	assert_false(meter_take(&found.budget->creates, 1000, NULL));
}

static void the_local_key_is_an_admins_and_in_no_store(void **state)
{
	(void)state;
	struct caller found;
	struct key_record *keys;
	size_t count;
	accounts_set_local(fx.accounts, STR("local-token"));
	assert_true(finds("local-token", &found));
	assert_true(caller_is_admin(&found));
	assert_int_equal(found.user, 0);
	assert_int_equal(found.key, 0);
	assert_non_null(found.budget);
	assert_true(accounts_in_force(fx.accounts, &found, NOW_MS));
	assert_true(str_eq(accounts_name(fx.accounts, 0), STR("local")));
	assert_int_equal(store_keys(fx.store, &fx.arena, &keys, &count), 0);
	assert_int_equal(count, 0);
	assert_false(finds("local-toke", &found));
}

static void nobody_is_in_force(void **state)
{
	(void)state;
	assert_false(accounts_in_force(fx.accounts, &(struct caller){0}, NOW_MS));
	accounts_set_local(fx.accounts, STR("local-token"));
	assert_false(accounts_in_force(fx.accounts, &(struct caller){0}, NOW_MS));
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

/* Uses */

static void uses_are_told_once_and_no_more_often_than_each_second(void **state)
{
	(void)state;
	struct caller found;
	struct key_record one = add("one", 0, all_rights), two = add("two", 0, all_rights);
	struct store_write writes[4] = {0};
	assert_int_equal(accounts_uses(fx.accounts, writes, 4), 0);
	assert_true(accounts_find_key(fx.accounts, STR("two"), NOW_MS, &found));
	assert_true(accounts_find_key(fx.accounts, STR("two"), NOW_MS + 999, &found));
	assert_int_equal(accounts_key_used_ms(fx.accounts, two.id), NOW_MS);
	assert_int_equal(accounts_key_used_ms(fx.accounts, one.id), 0);
	assert_int_equal(accounts_uses(fx.accounts, writes, 4), 1);
	assert_int_equal(writes[0].kind, STORE_KEY_USED);
	assert_int_equal(writes[0].key.id, two.id);
	assert_int_equal(writes[0].key.used_ms, NOW_MS);
	assert_int_equal(accounts_uses(fx.accounts, writes, 4), 0);
	assert_true(accounts_find_key(fx.accounts, STR("two"), NOW_MS + 1000, &found));
	assert_int_equal(accounts_uses(fx.accounts, writes, 4), 1);
	assert_int_equal(writes[0].key.used_ms, NOW_MS + 1000);
}

static void uses_beyond_the_room_for_them_come_the_next_time(void **state)
{
	(void)state;
	struct caller found;
	uint64_t ids[3];
	for (int i = 0; i < 3; i++) {
		char text[2] = {(char)('a' + i), '\0'};
		ids[i] = add(text, 0, all_rights).id;
		assert_true(finds(text, &found));
	}
	struct store_write writes[2] = {0};
	assert_int_equal(accounts_uses(fx.accounts, writes, 2), 2);
	assert_int_equal(writes[1].key.id, ids[1]);
	assert_int_equal(accounts_uses(fx.accounts, writes, 2), 1);
	assert_int_equal(writes[0].key.id, ids[2]);
}

static void a_use_that_the_store_did_not_take_is_told_again_after_a_reload(void **state)
{
	(void)state;
	struct caller found;
	struct store_write write = {0};
	add("one", 0, all_rights);
	assert_true(finds("one", &found));
	assert_int_equal(accounts_uses(fx.accounts, &write, 1), 1);
	assert_int_equal(accounts_reload(fx.accounts), 0);
	assert_int_equal(accounts_uses(fx.accounts, &write, 1), 1);
	applied(write);
	assert_int_equal(accounts_uses(fx.accounts, &write, 1), 0);
}

/* Sessions */

static char token[SESSION_TEXT_BYTES];
static uint8_t session_id[SESSION_ID_BYTES];

static void sign_in(const struct user_record *user)
{
	session_make(fx.accounts, user->id, user->generation, NOW_MS + HOUR_MS, token, session_id);
}

static bool finds_session(struct caller *ret)
{
	return accounts_find_session(fx.accounts, str_of(token), NOW_MS, ret);
}

static void a_session_says_who_it_is(void **state)
{
	(void)state;
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	assert_true(finds_session(&found));
	assert_int_equal(found.user, ada.id);
	assert_int_equal(found.key, 0);
	assert_true(found.by_session);
	assert_int_equal(found.rights, RIGHT_READ | RIGHT_STATS);
	assert_int_equal(found.expires_ms, NOW_MS + HOUR_MS);
	assert_memory_equal(found.session, session_id, sizeof(session_id));
	assert_ptr_equal(found.budget, budgets_of(fx.budgets, budget_of_user(ada.id)));
	assert_int_equal(found.budget->creates.max, 11);
	assert_true(accounts_in_force(fx.accounts, &found, NOW_MS));
	token[0] = 'B';
	assert_false(finds_session(&found));
}

static void a_session_ends_at_its_time(void **state)
{
	(void)state;
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	assert_true(finds_session(&found));
	assert_true(accounts_find_session(fx.accounts, str_of(token), NOW_MS + HOUR_MS - 1, &found));
	assert_false(accounts_find_session(fx.accounts, str_of(token), NOW_MS + HOUR_MS, &found));
	assert_false(accounts_in_force(fx.accounts, &found, NOW_MS + HOUR_MS));
}

static void an_ended_session_is_over_and_another_of_the_same_user_is_not(void **state)
{
	(void)state;
	struct caller ended, other;
	char other_token[SESSION_TEXT_BYTES];
	uint8_t other_id[SESSION_ID_BYTES];
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	session_make(fx.accounts, ada.id, ada.generation, NOW_MS + HOUR_MS, other_token, other_id);
	assert_true(finds_session(&ended));
	/* the store forgets those that are over by the real clock */
	struct session_record end = {.expires_ms = clock_real_ms() + HOUR_MS};
	memcpy(end.id, session_id, sizeof(session_id));
	struct store_write w = {.kind = STORE_SESSION_END, .now_ms = 2, .arena = &fx.arena, .session = end};
	assert_int_equal(store_apply(fx.store, &w, 1), 0);
	assert_int_equal(accounts_reload_sessions(fx.accounts), 0);
	assert_false(finds_session(&other));
	assert_false(accounts_in_force(fx.accounts, &ended, NOW_MS));
	assert_true(accounts_find_session(fx.accounts, str_of(other_token), NOW_MS, &other));
}

static void a_new_password_ends_all_sessions_of_a_user_and_no_others(void **state)
{
	(void)state;
	struct caller found, bobs;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER),
	                   bob = add_user("bob@example.com", ROLE_VIEWER);
	sign_in(&bob);
	assert_true(finds_session(&bobs));
	sign_in(&ada);
	ada.password = STR("another");
	struct user_record after = change_user(ada, USER_PASSWORD);
	assert_false(finds_session(&found));
	sign_in(&after);
	assert_true(finds_session(&found));
	assert_true(accounts_in_force(fx.accounts, &bobs, NOW_MS));
}

static void a_disabled_users_keys_and_sessions_are_worth_nothing(void **state)
{
	(void)state;
	struct caller by_key, by_session, found;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	add("adas", ada.id, all_rights);
	sign_in(&ada);
	assert_true(finds("adas", &by_key));
	assert_true(finds_session(&by_session));
	add_user("boss@example.com", ROLE_ADMIN);
	ada.enabled = false;
	change_user(ada, USER_ENABLED);
	assert_false(finds("adas", &found));
	assert_false(finds_session(&found));
	assert_false(accounts_in_force(fx.accounts, &by_key, NOW_MS));
	assert_false(accounts_in_force(fx.accounts, &by_session, NOW_MS));
	ada.enabled = true;
	change_user(ada, USER_ENABLED);
	assert_true(finds("adas", &found));
	assert_false(finds_session(&found)); /* it has ended for good */
}

static void who_has_lost_a_right_is_not_in_force_any_more(void **state)
{
	(void)state;
	struct caller key, session;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	add("adas", ada.id, all_rights);
	sign_in(&ada);
	assert_true(finds("adas", &key));
	assert_true(finds_session(&session));
	assert_true(accounts_in_force(fx.accounts, &key, NOW_MS));
	ada.role = ROLE_ADMIN;
	change_user(ada, USER_ROLE);
	assert_true(accounts_in_force(fx.accounts, &key, NOW_MS));
	add("bosses", add_user("boss@example.com", ROLE_ADMIN).id, all_rights);
	ada.role = ROLE_VIEWER;
	change_user(ada, USER_ROLE);
	assert_false(accounts_in_force(fx.accounts, &key, NOW_MS));
	assert_false(accounts_in_force(fx.accounts, &session, NOW_MS));
}

static void sessions_outlive_the_process_and_are_bound_to_the_store(void **state)
{
	(void)state;
	struct caller found;
	struct accounts *again;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	assert_int_equal(accounts_new(fx.store, fx.budgets, &limits, &again, NULL), 0);
	assert_true(accounts_find_session(again, str_of(token), NOW_MS, &found));
	accounts_free(again);
	stop(NULL);
	fx.arena = (struct arena){0};
	start(NULL);
	assert_int_equal(add_user("ada@example.com", ROLE_VIEWER).id, ada.id);
	assert_false(finds_session(&found));
}

static void a_token_against_forgery_is_its_sessions_own(void **state)
{
	(void)state;
	uint8_t one[SESSION_ID_BYTES] = {1}, two[SESSION_ID_BYTES] = {2};
	char text[CSRF_TEXT_BYTES], other[CSRF_TEXT_BYTES];
	session_csrf(fx.accounts, one, text);
	session_csrf(fx.accounts, two, other);
	assert_string_not_equal(text, other);
	assert_true(session_csrf_is(fx.accounts, one, str_of(text)));
	assert_false(session_csrf_is(fx.accounts, two, str_of(text)));
	assert_false(session_csrf_is(fx.accounts, one, str_n(text, strlen(text) - 1)));
	assert_false(session_csrf_is(fx.accounts, one, STR("")));
	assert_false(session_csrf_is(fx.accounts, one, STR_NULL));
}

/* Users */

static void a_user_is_found_by_id_and_by_email_address_in_any_case(void **state)
{
	(void)state;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	char id[24];
	snprintf(id, sizeof(id), "%llu", (unsigned long long)ada.id);
	assert_int_equal(accounts_user_named(fx.accounts, STR("Ada@Example.COM"))->id, ada.id);
	assert_int_equal(accounts_user_named(fx.accounts, str_of(id))->id, ada.id);
	assert_int_equal(accounts_user(fx.accounts, ada.id)->role, ROLE_EDITOR);
	assert_true(str_eq(accounts_user(fx.accounts, ada.id)->email, STR("ada@example.com")));
	assert_null(accounts_user_named(fx.accounts, STR("ada@example.co")));
	assert_null(accounts_user_named(fx.accounts, STR("")));
	assert_null(accounts_user_named(fx.accounts, STR_NULL));
	char long_name[400];
	memset(long_name, 'x', sizeof(long_name));
	assert_null(accounts_user_named(fx.accounts, str_n(long_name, sizeof(long_name))));
	assert_null(accounts_user(fx.accounts, ada.id + 1));
	assert_null(accounts_user(fx.accounts, 0));
}

static void a_user_is_called_by_their_email_address_otherwise_by_their_names(void **state)
{
	(void)state;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	assert_true(str_eq(accounts_name(fx.accounts, ada.id), STR("ada@example.com")));
	struct user_record bob = {
	    .role = ROLE_VIEWER, .enabled = true, .first_name = STR("Bob"), .last_name = STR("Bee")};
	bob = applied((struct store_write){.kind = STORE_USER_CREATE, .user = bob}).user;
	assert_true(str_eq(accounts_name(fx.accounts, bob.id), STR("Bob Bee")));
	struct user_record none = {.role = ROLE_VIEWER, .enabled = true};
	none = applied((struct store_write){.kind = STORE_USER_CREATE, .user = none}).user;
	assert_true(str_starts(accounts_name(fx.accounts, none.id), STR("user ")));
}

static void there_may_be_more_users_than_one_page_holds(void **state)
{
	(void)state;
	enum { USERS = 2500 };
	struct store_write *writes = calloc(USERS, sizeof(*writes));
	for (unsigned i = 0; i < USERS; i++) {
		writes[i] = (struct store_write){.kind = STORE_USER_CREATE, .now_ms = 1, .arena = &fx.arena};
		writes[i].user.email = arena_printf(&fx.arena, "u%u@example.com", i);
		writes[i].user.role = ROLE_VIEWER;
	}
	assert_int_equal(store_apply(fx.store, writes, USERS), 0);
	assert_int_equal(accounts_reload(fx.accounts), 0);
	for (unsigned i = 0; i < USERS; i++) {
		assert_int_equal(accounts_user_named(fx.accounts, writes[i].user.email)->id,
		                 writes[i].user.id);
		assert_true(
		    str_eq(accounts_user(fx.accounts, writes[i].user.id)->email, writes[i].user.email));
	}
	free(writes);
}

static void a_store_that_fails_leaves_what_was_known(void **state)
{
	(void)state;
	struct caller found;
	struct store *broken;
	struct accounts *accounts;
	add("steady", 0, all_rights);
	assert_int_equal(store_fault_open("keys=unavailable@2", fx.store, &broken, NULL), 0);
	fx.store = broken;
	assert_int_equal(accounts_new(broken, fx.budgets, &limits, &accounts, NULL), 0);
	assert_int_equal(accounts_reload(accounts), ERR_UNAVAILABLE);
	assert_true(accounts_find_key(accounts, STR("steady"), NOW_MS, &found));
	accounts_free(accounts);
	struct err e;
	assert_int_equal(accounts_new(broken, fx.budgets, &limits, &accounts, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "accounts"));
}

/* Many threads */

static _Atomic bool stop_reading;
static _Atomic int missed;

static void *reader(void *arg)
{
	const struct user_record *user = arg;
	reclaim_reader_register();
	while (!stop_reading) {
		struct caller found;
		bool there = finds("steady", &found) && finds_session(&found) &&
		             str_eq(accounts_name(fx.accounts, user->id), STR("ada@example.com"));
		missed += !there;
		reclaim_reader_quiescent();
	}
	reclaim_reader_unregister();
	return NULL;
}

static void *teller(void *arg)
{
	(void)arg;
	while (!stop_reading) {
		struct store_write write = {0};
		missed += accounts_uses(fx.accounts, &write, 1) > 1;
	}
	return NULL;
}

static void readers_see_whole_snapshots_while_keys_come_and_go(void **state)
{
	(void)state;
	pthread_t threads[3];
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	add("steady", ada.id, all_rights);
	sign_in(&ada);
	stop_reading = false;
	missed = 0;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? reader : teller, &ada), 0);
	for (int i = 0; i < 200; i++) {
		char text[16] = "coming-and-";
		text[11] = (char)('a' + i % 26);
		text[12] = (char)('a' + i / 26);
		revoke(add(text, 0, all_rights).id);
		assert_int_equal(accounts_reload_sessions(fx.accounts), 0);
	}
	stop_reading = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(missed, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_key_is_found_by_its_text_alone),
	    TEST(a_key_has_the_rights_that_both_it_and_its_users_role_have),
	    TEST(a_revoked_key_is_unknown_but_its_users_name_is_remembered),
	    TEST(a_key_ends_at_its_very_time_without_a_reload),
	    TEST(limits_of_its_own_win_over_the_defaults),
	    TEST(keys_without_limits_of_their_own_share_their_users_budget),
	    TEST(any_of_the_three_limits_is_one_of_its_own),
	    TEST(a_key_without_limits_keeps_a_budget_for_the_links_it_made_before),
	    TEST(keys_in_force_are_counted),
	    TEST(an_account_has_room_until_it_has_too_many_keys_or_one_expires),
	    TEST(a_reload_does_not_give_a_used_budget_back),
	    TEST(the_local_key_is_an_admins_and_in_no_store),
	    TEST(nobody_is_in_force),
	    TEST(made_keys_are_long_different_and_have_their_digest),
	    TEST(uses_are_told_once_and_no_more_often_than_each_second),
	    TEST(uses_beyond_the_room_for_them_come_the_next_time),
	    TEST(a_use_that_the_store_did_not_take_is_told_again_after_a_reload),
	    TEST(a_session_says_who_it_is),
	    TEST(a_session_ends_at_its_time),
	    TEST(an_ended_session_is_over_and_another_of_the_same_user_is_not),
	    TEST(a_new_password_ends_all_sessions_of_a_user_and_no_others),
	    TEST(a_disabled_users_keys_and_sessions_are_worth_nothing),
	    TEST(who_has_lost_a_right_is_not_in_force_any_more),
	    TEST(sessions_outlive_the_process_and_are_bound_to_the_store),
	    TEST(a_token_against_forgery_is_its_sessions_own),
	    TEST(a_user_is_found_by_id_and_by_email_address_in_any_case),
	    TEST(a_user_is_called_by_their_email_address_otherwise_by_their_names),
	    TEST(there_may_be_more_users_than_one_page_holds),
	    TEST(a_store_that_fails_leaves_what_was_known),
	    TEST(readers_see_whole_snapshots_while_keys_come_and_go),
	};
	return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
