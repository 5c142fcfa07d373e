#include "auth/accounts.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "os/clock.h"
#include "os/reclaim.h"
#include "store/backends.h"

#include <sodium.h>

enum { HOUR_MS = 3600000, STALE_MS = 60000, CACHE_BYTES = 4 << 20 };

/* Accounts on a store whose reads are counted, and which others may write to. */
static struct {
	struct store *store;
	const struct registry_ops *real;
	struct registry_ops ops; /* the real ones, but for those below */
	struct budgets *budgets;
	struct accounts *accounts;
	struct arena arena;
	_Atomic unsigned reads; /* of accounts */
	_Atomic int feed_result, read_result;
	int64_t now_ms;
} fx;

static const struct budget_limits limits = {.creates_max = 11, .redirects_max = 12, .period_ms = 13000};

static int counted(struct registry *r, struct registry_account *reads, size_t n, struct arena *arena)
{
	fx.reads += (unsigned)n;
	return fx.read_result ? fx.read_result : fx.real->accounts(r, reads, n, arena);
}

static int feed(struct registry *r, struct feed_page *page)
{
	return fx.feed_result ? fx.feed_result : fx.real->feed(r, page);
}

static struct accounts *accounts_open(uint64_t cache_bytes)
{
	struct accounts *a = NULL;
	const struct accounts_config config = {
	    .store = fx.store, .budgets = fx.budgets, .cache_bytes = cache_bytes, .stale_ms = STALE_MS};
	assert_int_equal(accounts_new(&config, &a, NULL), 0);
	return a;
}

static int start(void **state)
{
	fx.store = kit_store_new();
	fx.real = fx.store->registry->ops;
	fx.ops = *fx.real;
	fx.ops.accounts = counted;
	fx.store->is_shared = true;
	fx.ops.feed = feed;
	fx.store->registry->ops = &fx.ops;
	fx.reads = 0;
	fx.feed_result = fx.read_result = 0;
	fx.now_ms = clock_real_ms();
	fx.budgets = budgets_new();
	budgets_limit(fx.budgets, &limits);
	fx.accounts = accounts_open(CACHE_BYTES);
	return 0;
}

static int stop(void **state)
{
	accounts_free(fx.accounts);
	budgets_free(fx.budgets);
	store_free(fx.store);
	arena_release(&fx.arena);
	fx.arena = (struct arena){0};
	return 0;
}

/* By another process, which does not tell. */
static struct registry_write applied_elsewhere(struct registry_write w)
{
	w.now_ms = w.now_ms ? w.now_ms : 2;
	w.arena = &fx.arena;
	assert_int_equal(registry_apply(fx.store->registry, &w, 1), 0);
	assert_int_equal(w.result, 0);
	return w;
}

static struct registry_write applied(struct registry_write w)
{
	w = applied_elsewhere(w);
	accounts_update_cache(fx.accounts, &w);
	return w;
}

static struct user_record add_user(const char *email, enum user_role role)
{
	struct user_record user = {.email = str_of(email), .role = role, .enabled = true, .created_ms = 1};
	return applied((struct registry_write){.kind = REGISTRY_USER_CREATE, .user = user}).user;
}

static struct user_record change_user(struct user_record user, unsigned fields)
{
	return applied(
	           (struct registry_write){.kind = REGISTRY_USER_UPDATE, .user = user, .user_fields = fields})
	    .user;
}

/* A key of the user; 0 gives it one of its own. */
static struct key_record add(const char *text, uint64_t user, struct key_record record)
{
	record.user = user;
	record.name = record.name.ptr ? record.name : str_of(text);
	record.created_ms = 1;
	api_key_digest(str_of(text), record.digest);
	struct registry_write w = {.kind = REGISTRY_KEY_CREATE, .key = record};
	w.user = (struct user_record){
	    .first_name = record.name, .role = ROLE_EDITOR, .enabled = true, .created_ms = 1};
	return applied(w).key;
}

static const struct key_record all_rights = {.rights = RIGHTS_ALL};

static void revoke_key(uint64_t id)
{
	applied((struct registry_write){.kind = REGISTRY_KEY_REVOKE, .key.id = id});
}

static struct account_time now(void)
{
	return (struct account_time){fx.now_ms, clock_mono_ms()};
}

/* What a request that is held does: reads what is wanted, and asks again. */
#define READ_UNTIL(find)                                                           \
	({                                                                         \
		struct account_ref want;                                           \
		enum account_found found_;                                         \
		while ((found_ = (find)) == ACCOUNT_UNCACHED) {                    \
			const struct account_ref *const wants[] = {&want};         \
			assert_int_equal(accounts_read(fx.accounts, wants, 1), 0); \
		}                                                                  \
		found_;                                                            \
	})

static bool finds(const char *text, struct caller *ret)
{
	return READ_UNTIL(accounts_find_key(fx.accounts, str_of(text), now(), ret, &want)) == ACCOUNT_FOUND;
}

static enum account_found in_force(const struct caller *c)
{
	return READ_UNTIL(accounts_recheck(fx.accounts, c, now(), &want));
}

static bool holds(const struct caller *c)
{
	bool by_store;
	bool found = in_force(c) == ACCOUNT_FOUND;
	assert_int_equal(accounts_recheck_stored(fx.accounts, c, fx.now_ms, &by_store), 0);
	assert_int_equal(by_store, found); /* both ways to ask say the same */
	return found;
}

static struct account user_of(uint64_t id)
{
	struct account user = {0};
	enum account_found found = READ_UNTIL(accounts_find_user(fx.accounts, id, now(), &user, &want));
	assert_int_equal(found, user.id ? ACCOUNT_FOUND : ACCOUNT_NONE);
	return user;
}

static struct account user_named(struct str text)
{
	struct account user = {0};
	enum account_found found = READ_UNTIL(
	    accounts_find_user_named(fx.accounts, text, now(), &user, &want));
	return found == ACCOUNT_FOUND ? user : (struct account){0};
}

/* Reading */

TEST(what_was_read_is_kept_and_what_is_unknown_too)
{
	struct caller found;
	uint64_t ada = add_user("ada@example.com", ROLE_EDITOR).id;
	add("adas", ada, all_rights);
	fx.reads = 0;
	for (int i = 0; i < 3; i++)
		assert_true(finds("adas", &found));
	assert_int_equal(fx.reads, 2); /* the key and its user */
	for (int i = 0; i < 3; i++)
		assert_false(finds("none", &found));
	assert_int_equal(fx.reads, 3);
	struct account_time later = now(); /* that it is unknown is kept for a moment only */
	struct account_ref want;
	later.mono_ms += 20000;
	assert_int_equal(accounts_find_key(fx.accounts, STR("none"), later, &found, &want), ACCOUNT_UNCACHED);
	assert_int_equal(accounts_find_key(fx.accounts, STR("adas"), later, &found, &want), ACCOUNT_FOUND);
}

TEST(a_miss_says_what_to_read_and_reads_nothing)
{
	struct caller found;
	struct account_ref want;
	add("one", 0, all_rights);
	fx.reads = 0;
	assert_int_equal(accounts_find_key(fx.accounts, STR("one"), now(), &found, &want), ACCOUNT_UNCACHED);
	assert_int_equal(want.by, BY_DIGEST);
	assert_int_equal(fx.reads, 0);
	assert_false(accounts_is_unknown(fx.accounts, &want, clock_mono_ms()));
}

TEST(the_cache_is_bounded_and_what_was_evicted_is_read_again)
{
	enum { KEYS = 6000 };
	struct caller found;
	struct registry_write *writes = calloc(KEYS, sizeof(*writes));
	accounts_free(fx.accounts);
	fx.accounts = accounts_open(1 << 20);
	for (unsigned i = 0; i < KEYS; i++) {
		struct str text = arena_printf(&fx.arena, "key-%u", i);
		writes[i] = (struct registry_write){
		    .kind = REGISTRY_KEY_CREATE, .now_ms = 1, .arena = &fx.arena};
		writes[i].key.rights = RIGHT_READ;
		writes[i].key.name = text;
		writes[i].user = (struct user_record){.role = ROLE_EDITOR, .enabled = true};
		api_key_digest(text, writes[i].key.digest);
	}
	assert_int_equal(registry_apply(fx.store->registry, writes, KEYS), 0);
	for (unsigned round = 0; round < 2; round++) {
		fx.reads = 0;
		for (unsigned i = 0; i < KEYS; i++) {
			assert_true(finds(writes[i].key.name.ptr, &found));
			assert_int_equal(found.key, writes[i].key.id);
		}
		assert_true(fx.reads > KEYS); /* they do not all fit */
	}
	free(writes);
}

TEST(a_read_that_began_before_a_change_is_not_kept)
{
	struct caller found;
	struct account_ref want;
	struct key_record key = add("one", 0, all_rights);
	uint64_t before;
	assert_int_equal(accounts_find_key(fx.accounts, STR("one"), now(), &found, &want), ACCOUNT_UNCACHED);
	before = accounts_epoch(fx.accounts, &want);
	assert_true(finds("one", &found));
	assert_int_equal(accounts_epoch(fx.accounts, &want), before); /* reading changes nothing */
	revoke_key(key.id);
	assert_true(accounts_epoch(fx.accounts, &want) != before);
	assert_false(finds("one", &found));
}

TEST(a_change_here_is_known_at_once_and_costs_no_read)
{
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	struct key_record key = add("adas", ada.id, all_rights);
	assert_true(finds("adas", &found));
	fx.reads = 0;
	ada.role = ROLE_VIEWER;
	change_user(ada, USER_ROLE);
	assert_true(finds("adas", &found));
	assert_int_equal(found.rights, RIGHT_READ | RIGHT_STATS);
	revoke_key(key.id);
	assert_false(finds("adas", &found));
	assert_int_equal(fx.reads, 0);
}

TEST(a_revocation_that_is_not_sure_is_looked_up_again)
{
	struct caller found;
	struct key_record key = add("one", 0, all_rights);
	assert_true(finds("one", &found));
	struct registry_write w = applied_elsewhere(
	    (struct registry_write){.kind = REGISTRY_KEY_REVOKE, .key.id = key.id});
	assert_true(finds("one", &found));
	w = (struct registry_write){.kind = REGISTRY_KEY_REVOKE, .key.id = key.id, .result = ERR_UNCERTAIN};
	accounts_update_cache(fx.accounts, &w);
	assert_false(finds("one", &found));
}

TEST(changes_elsewhere_are_known_when_the_feed_is_read)
{
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	add("adas", ada.id, all_rights);
	assert_true(finds("adas", &found));
	ada.enabled = false;
	applied_elsewhere(
	    (struct registry_write){.kind = REGISTRY_USER_UPDATE, .user = ada, .user_fields = USER_ENABLED});
	assert_true(finds("adas", &found)); /* nobody has said anything */
	assert_int_equal(accounts_poll_feed(fx.accounts), 0);
	assert_false(finds("adas", &found));
	fx.reads = 0;
	assert_int_equal(accounts_poll_feed(fx.accounts), 0);
	assert_false(finds("adas", &found));
	assert_int_equal(fx.reads, 0);
}

TEST(without_word_of_changes_nothing_kept_counts_after_a_while)
{
	struct caller found, local;
	struct account user;
	struct account_ref want;
	uint64_t ada = add_user("ada@example.com", ROLE_EDITOR).id;
	add("adas", ada, all_rights);
	accounts_set_local(fx.accounts, STR("local-token"));
	assert_true(finds("adas", &found) && finds("local-token", &local));
	fx.feed_result = ERR_UNAVAILABLE;
	assert_int_equal(accounts_poll_feed(fx.accounts), ERR_UNAVAILABLE);
	assert_int_equal(in_force(&found), ACCOUNT_FOUND);
	struct account_time late = now();
	late.mono_ms += STALE_MS + 1;
	assert_int_equal(accounts_find_key(fx.accounts, STR("adas"), late, &found, &want), ACCOUNT_STALE);
	assert_int_equal(accounts_find_key(fx.accounts, STR("none"), late, &found, &want), ACCOUNT_STALE);
	assert_int_equal(accounts_recheck(fx.accounts, &found, late, &want), ACCOUNT_STALE);
	assert_int_equal(accounts_find_user(fx.accounts, ada, late, &user, &want), ACCOUNT_STALE);
	assert_int_equal(accounts_find_user_named(fx.accounts, STR("ada@example.com"), late, &user, &want),
	                 ACCOUNT_STALE);
	assert_int_equal(accounts_find_key(fx.accounts, STR("local-token"), late, &local, &want),
	                 ACCOUNT_FOUND);
	fx.feed_result = 0;
	assert_int_equal(accounts_poll_feed(fx.accounts), 0);
	assert_true(finds("adas", &found));
	late.mono_ms = clock_mono_ms() + STALE_MS - 1000;
	assert_int_equal(accounts_find_key(fx.accounts, STR("adas"), late, &found, &want), ACCOUNT_FOUND);
}

TEST(a_store_of_our_own_is_never_stale)
{
	struct caller found;
	struct account_ref want;
	accounts_free(fx.accounts);
	fx.store->is_shared = false;
	fx.accounts = accounts_open(CACHE_BYTES);
	add("one", 0, all_rights);
	assert_true(finds("one", &found));
	assert_int_equal(accounts_poll_feed(fx.accounts), 0);
	const struct account_time late = {fx.now_ms, INT64_MAX - 1};
	assert_int_equal(accounts_find_key(fx.accounts, STR("one"), late, &found, &want), ACCOUNT_FOUND);
}

/* Keys */

TEST(a_key_is_found_by_its_text_alone)
{
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

TEST(a_key_has_the_rights_that_both_it_and_its_users_role_have)
{
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

TEST(a_revoked_key_is_unknown_but_its_users_name_is_remembered)
{
	struct caller found;
	struct key_record key = add("key-text", 0,
	                            (struct key_record){.name = STR("bob"), .rights = RIGHT_READ});
	revoke_key(key.id);
	assert_false(finds("key-text", &found));
	assert_true(str_eq(user_of(key.user).name, STR("bob")));
	assert_int_equal(user_of(key.user + 1).id, 0);
}

TEST(a_key_ends_at_its_very_time)
{
	struct caller found;
	int64_t end_ms = fx.now_ms;
	add("short", 0, (struct key_record){.rights = RIGHT_READ, .expires_ms = end_ms});
	fx.now_ms = end_ms - 1;
	assert_true(finds("short", &found));
	assert_int_equal(found.expires_ms, end_ms);
	fx.now_ms = end_ms;
	assert_false(finds("short", &found));
}

TEST(limits_of_its_own_win_over_the_defaults)
{
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

TEST(keys_without_limits_of_their_own_share_their_users_budget)
{
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

TEST(any_of_the_three_limits_is_one_of_its_own)
{
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

TEST(reading_again_does_not_give_a_used_budget_back)
{
	struct caller found;
	add("limited", 0, (struct key_record){.rights = RIGHTS_ALL, .creates_max = 1, .period_ms = 60000});
	assert_true(finds("limited", &found));
	assert_true(meter_take(&found.budget->creates, 1000, NULL));
	assert_int_equal(accounts_poll_feed(fx.accounts), 0);
	assert_true(finds("limited", &found));
	assert_ptr_equal(found.budget, budgets_of(fx.budgets, found.key));
	assert_false(meter_take(&found.budget->creates, 1000, NULL));
}

TEST(the_local_key_is_an_admins_and_in_no_store)
{
	struct caller found;
	size_t count;
	accounts_set_local(fx.accounts, STR("local-token"));
	assert_true(finds("local-token", &found));
	assert_true(caller_is_admin(&found));
	assert_int_equal(found.user, 0);
	assert_int_equal(found.key, 0);
	assert_non_null(found.budget);
	assert_true(holds(&found));
	assert_true(str_eq(account_display_name(&fx.arena, &(struct user_record){0}), STR("local")));
	kit_keys(fx.store, &fx.arena, &count);
	assert_int_equal(count, 0);
	assert_false(finds("local-toke", &found));
}

TEST(nobody_is_in_force)
{
	assert_false(holds(&(struct caller){0}));
	accounts_set_local(fx.accounts, STR("local-token"));
	assert_false(holds(&(struct caller){0}));
}

TEST(made_keys_are_long_different_and_have_their_digest)
{
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

TEST(uses_are_told_once_and_no_more_often_than_each_second)
{
	struct caller found;
	struct key_record one = add("one", 0, all_rights), two = add("two", 0, all_rights);
	struct registry_write writes[4] = {0};
	size_t at = 0;
	int64_t first_ms = fx.now_ms;
	assert_int_equal(accounts_take_key_uses(fx.accounts, &at, writes, 4), 0);
	assert_true(finds("two", &found));
	fx.now_ms += 999;
	assert_true(finds("two", &found));
	assert_int_equal(accounts_key_used_ms(fx.accounts, two.id), first_ms);
	assert_int_equal(accounts_key_used_ms(fx.accounts, one.id), 0);
	at = 0;
	assert_int_equal(accounts_take_key_uses(fx.accounts, &at, writes, 4), 1);
	assert_int_equal(writes[0].kind, REGISTRY_KEY_USED);
	assert_int_equal(writes[0].key.id, two.id);
	assert_int_equal(writes[0].key.used_ms, first_ms);
	at = 0;
	assert_int_equal(accounts_take_key_uses(fx.accounts, &at, writes, 4), 0);
	fx.now_ms++;
	assert_true(finds("two", &found));
	at = 0;
	assert_int_equal(accounts_take_key_uses(fx.accounts, &at, writes, 4), 1);
	assert_int_equal(writes[0].key.used_ms, first_ms + 1000);
}

TEST(uses_beyond_the_room_for_them_come_with_the_next_portion)
{
	struct caller found;
	uint64_t sum = 0;
	size_t at = 0;
	for (int i = 0; i < 3; i++) {
		char text[2] = {(char)('a' + i), '\0'};
		sum += add(text, 0, all_rights).id;
		assert_true(finds(text, &found));
	}
	struct registry_write writes[2] = {0};
	assert_int_equal(accounts_take_key_uses(fx.accounts, &at, writes, 2), 2);
	sum -= writes[0].key.id + writes[1].key.id;
	assert_int_equal(accounts_take_key_uses(fx.accounts, &at, writes, 2), 1);
	assert_int_equal(writes[0].key.id, sum);
}

/* Sessions */

static char token[SESSION_TEXT_BYTES];
static struct session_record session;

static void sign_in(const struct user_record *user)
{
	session = (struct session_record){.user = user->id,
	                                  .generation = user->generation,
	                                  .created_ms = fx.now_ms,
	                                  .expires_ms = fx.now_ms + HOUR_MS};
	randombytes_buf(session.id, sizeof(session.id));
	applied((struct registry_write){.kind = REGISTRY_SESSION_CREATE, .session = session});
	accounts_session_token(fx.accounts, &session, token);
}

static bool finds_session(struct caller *ret)
{
	return READ_UNTIL(accounts_find_session(fx.accounts, str_of(token), now(), ret, &want)) ==
	       ACCOUNT_FOUND;
}

TEST(a_session_says_who_it_is)
{
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	assert_true(finds_session(&found));
	assert_int_equal(found.user, ada.id);
	assert_int_equal(found.key, 0);
	assert_true(found.by_session);
	assert_int_equal(found.rights, RIGHT_READ | RIGHT_STATS);
	assert_int_equal(found.expires_ms, session.expires_ms);
	assert_memory_equal(found.session, session.id, sizeof(session.id));
	assert_ptr_equal(found.budget, budgets_of(fx.budgets, budget_of_user(ada.id)));
	assert_int_equal(found.budget->creates.max, 11);
	assert_true(holds(&found));
	fx.reads = 0;
	token[0] = 'B';
	assert_false(finds_session(&found));
	assert_int_equal(fx.reads, 0); /* what nobody made is not looked for */
}

TEST(a_session_ends_at_its_time)
{
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	fx.now_ms = session.expires_ms - 1;
	assert_true(finds_session(&found));
	fx.now_ms = session.expires_ms;
	assert_false(finds_session(&found));
	assert_false(holds(&found));
}

TEST(an_ended_session_is_over_and_another_of_the_same_user_is_not)
{
	struct caller ended, other;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	assert_true(finds_session(&other));
	sign_in(&ada);
	assert_true(finds_session(&ended));
	applied((struct registry_write){.kind = REGISTRY_SESSION_END, .session = session});
	assert_false(finds_session(&ended));
	assert_int_equal(accounts_poll_feed(fx.accounts), 0);
	assert_false(finds_session(&ended));
	assert_false(holds(&ended));
	assert_true(holds(&other));
}

TEST(a_token_without_a_row_is_invalid)
{
	struct caller found;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	session.id[0]++;
	accounts_session_token(fx.accounts, &session, token);
	assert_false(finds_session(&found));
}

TEST(a_new_password_ends_all_sessions_of_a_user_and_no_others)
{
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
	assert_true(holds(&bobs));
}

TEST(a_disabled_users_keys_and_sessions_are_worth_nothing)
{
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
	assert_false(holds(&by_key));
	assert_false(holds(&by_session));
	ada.enabled = true;
	change_user(ada, USER_ENABLED);
	assert_true(finds("adas", &found));
	assert_false(finds_session(&found)); /* it has ended for good */
}

TEST(who_has_lost_a_right_is_not_in_force_any_more)
{
	struct caller key, signed_in;
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	add("adas", ada.id, all_rights);
	sign_in(&ada);
	assert_true(finds("adas", &key));
	assert_true(finds_session(&signed_in));
	assert_true(holds(&key));
	ada.role = ROLE_ADMIN;
	change_user(ada, USER_ROLE);
	assert_true(holds(&key));
	add("bosses", add_user("boss@example.com", ROLE_ADMIN).id, all_rights);
	ada.role = ROLE_VIEWER;
	change_user(ada, USER_ROLE);
	assert_false(holds(&key));
	assert_false(holds(&signed_in));
}

TEST(sessions_outlive_the_process_and_are_bound_to_the_store)
{
	struct caller found;
	struct accounts *again;
	struct user_record ada = add_user("ada@example.com", ROLE_VIEWER);
	sign_in(&ada);
	again = accounts_open(CACHE_BYTES);
	accounts_free(fx.accounts);
	fx.accounts = again;
	assert_true(finds_session(&found));
	stop(NULL);
	start(NULL);
	assert_int_equal(add_user("ada@example.com", ROLE_VIEWER).id, ada.id);
	assert_false(finds_session(&found));
}

TEST(a_token_against_forgery_is_its_sessions_own)
{
	uint8_t one[SESSION_ID_BYTES] = {1}, two[SESSION_ID_BYTES] = {2};
	char text[CSRF_TEXT_BYTES], other[CSRF_TEXT_BYTES];
	accounts_csrf_token(fx.accounts, one, text);
	accounts_csrf_token(fx.accounts, two, other);
	assert_string_not_equal(text, other);
	assert_true(accounts_csrf_matches(fx.accounts, one, str_of(text)));
	assert_false(accounts_csrf_matches(fx.accounts, two, str_of(text)));
	assert_false(accounts_csrf_matches(fx.accounts, one, str_n(text, strlen(text) - 1)));
	assert_false(accounts_csrf_matches(fx.accounts, one, STR("")));
	assert_false(accounts_csrf_matches(fx.accounts, one, STR_NULL));
}

/* Users */

TEST(a_user_is_found_by_id_and_by_email_address_in_any_case)
{
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	char id[24];
	snprintf(id, sizeof(id), "%llu", (unsigned long long)ada.id);
	assert_int_equal(user_named(STR("Ada@Example.COM")).id, ada.id);
	assert_int_equal(user_named(str_of(id)).id, ada.id);
	assert_int_equal(user_of(ada.id).role, ROLE_EDITOR);
	assert_true(str_eq(user_of(ada.id).email, STR("ada@example.com")));
	assert_int_equal(user_named(STR("ada@example.co")).id, 0);
	assert_int_equal(user_named(STR("")).id, 0);
	assert_int_equal(user_named(STR_NULL).id, 0);
	char long_name[400];
	memset(long_name, 'x', sizeof(long_name));
	assert_int_equal(user_named(str_n(long_name, sizeof(long_name))).id, 0);
	assert_int_equal(user_named(str_n(long_name, USER_EMAIL_BYTES_MAX)).id, 0);
	assert_int_equal(user_of(ada.id + 1).id, 0);
	assert_int_equal(user_of(0).id, 0);
}

TEST(an_address_stands_for_its_current_user)
{
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	assert_int_equal(user_named(STR("bob@example.com")).id, 0);
	assert_int_equal(user_named(STR("ada@example.com")).id, ada.id);
	ada.email = STR("bob@example.com");
	change_user(ada, USER_EMAIL);
	assert_int_equal(user_named(STR("ada@example.com")).id, 0);
	assert_int_equal(user_named(STR("bob@example.com")).id, ada.id);
	uint64_t other = add_user("ada@example.com", ROLE_EDITOR).id;
	assert_int_equal(user_named(STR("ada@example.com")).id, other);
}

TEST(a_user_is_called_by_their_email_address_otherwise_by_their_names)
{
	struct user_record ada = add_user("ada@example.com", ROLE_EDITOR);
	assert_true(str_eq(user_of(ada.id).name, STR("ada@example.com")));
	struct user_record bob = {
	    .role = ROLE_VIEWER, .enabled = true, .first_name = STR("Bob"), .last_name = STR("Bee")};
	bob = applied((struct registry_write){.kind = REGISTRY_USER_CREATE, .user = bob}).user;
	assert_true(str_eq(user_of(bob.id).name, STR("Bob Bee")));
	assert_null(user_of(bob.id).email.ptr);
	struct user_record none = {.role = ROLE_VIEWER, .enabled = true};
	none = applied((struct registry_write){.kind = REGISTRY_USER_CREATE, .user = none}).user;
	assert_true(str_starts(user_of(none.id).name, STR("user ")));
}

TEST(users_are_read_by_the_hundred)
{
	enum { USERS = 700 };
	uint64_t ids[USERS];
	struct user_record users[USERS];
	uint64_t ada = add_user("ada@example.com", ROLE_EDITOR).id;
	for (size_t i = 0; i < USERS; i++)
		ids[i] = i % 3 ? ada : 99;
	assert_int_equal(accounts_read_users(fx.accounts, ids, USERS, &fx.arena, users), 0);
	for (size_t i = 0; i < USERS; i++)
		assert_int_equal(users[i].id, i % 3 ? ada : 0);
}

TEST(a_store_that_fails_says_so_and_leaves_what_was_known)
{
	struct caller found;
	struct account_ref want;
	const struct account_ref *const wants[] = {&want};
	add("steady", 0, all_rights);
	assert_true(finds("steady", &found));
	fx.read_result = fx.feed_result = ERR_UNAVAILABLE;
	assert_int_equal(accounts_find_key(fx.accounts, STR("other"), now(), &found, &want),
	                 ACCOUNT_UNCACHED);
	assert_int_equal(accounts_read(fx.accounts, wants, 1), ERR_UNAVAILABLE);
	assert_true(finds("steady", &found));
	const struct accounts_config config = {
	    .store = fx.store, .budgets = fx.budgets, .cache_bytes = CACHE_BYTES};
	struct accounts *accounts;
	struct err e;
	assert_int_equal(accounts_new(&config, &accounts, &e), ERR_UNAVAILABLE);
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
		struct account ada;
		struct account_ref want;
		missed += accounts_find_key(fx.accounts, STR("steady"), now(), &found, &want) == ACCOUNT_NONE;
		missed += accounts_find_session(fx.accounts, str_of(token), now(), &found, &want) ==
		          ACCOUNT_NONE;
		if (accounts_find_user(fx.accounts, user->id, now(), &ada, &want) == ACCOUNT_FOUND)
			missed += !str_eq(ada.name, STR("ada@example.com"));
		reclaim_reader_quiescent();
	}
	reclaim_reader_unregister();
	return NULL;
}

static void *teller(void *arg)
{
	(void)arg;
	while (!stop_reading) {
		struct registry_write write = {0};
		size_t at = 0;
		missed += accounts_take_key_uses(fx.accounts, &at, &write, 1) > 1;
		accounts_poll_feed(fx.accounts);
	}
	return NULL;
}

TEST(readers_see_whole_accounts_while_they_come_and_go)
{
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
		revoke_key(add(text, 0, all_rights).id);
		change_user(ada, USER_NAMES);
		struct account_ref want;
		struct caller found;
		if (accounts_find_key(fx.accounts, STR("steady"), now(), &found, &want) == ACCOUNT_UNCACHED) {
			const struct account_ref *const wants[] = {&want};
			assert_int_equal(accounts_read(fx.accounts, wants, 1), 0);
		}
	}
	stop_reading = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(missed, 0);
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.setup = start, .teardown = stop);
}
