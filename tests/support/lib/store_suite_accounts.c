/* The conformance suite's tests of users, sessions that were ended, and API keys. */
#include "lib/store_suite_private.h"
#include "lib/test.h"

/* --- users --- */

static struct user_record user_now(uint64_t id)
{
	struct user_record user;
	assert_int_equal(registry_user(suite.store->registry, id, STR_NULL, &suite.arena, &user), 0);
	return user;
}

static struct registry_write update_user(uint64_t id, unsigned fields)
{
	return (struct registry_write){.kind = REGISTRY_USER_UPDATE,
	                               .now_ms = KIT_NOW_MS + 50,
	                               .arena = &suite.arena,
	                               .user.id = id,
	                               .user_fields = fields};
}

/* Who can sign in when both are given. */
static uint64_t create_admin(const char *email, const char *password)
{
	struct registry_write w = kit_user(&suite.arena, email, ROLE_ADMIN);
	w.user.password = str_of(password);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	return w.user.id;
}

static size_t count_users(void)
{
	struct registry_page page = {.limit = SIZE_MAX, .arena = &suite.arena};
	assert_int_equal(registry_users(suite.store->registry, &page), 0);
	assert_false(page.more);
	return page.count;
}

TEST(users_get_ids_and_are_found_by_id_and_by_address)
{
	struct registry_write full = kit_user(&suite.arena, "j@example.com", ROLE_ADMIN);
	full.user.id = 77; /* overwritten, like the generation */
	full.user.generation = 1000;
	full.user.first_name = STR("J\xc3\xbcrgen");
	full.user.middle_name = STR("");
	full.user.last_name = STR("\xff not text");
	full.user.password = STR("$argon2id$v=19$");
	full.user.created_ms = 1LL << 50;
	full.user.updated_ms = 3;
	full.user.enabled = false;
	struct registry_write bare = kit_user(&suite.arena, NULL, ROLE_VIEWER);
	bare.user.first_name = STR_NULL;
	struct registry_write *both[] = {&full, &bare};
	for (size_t i = 0; i < 2; i++) {
		struct user_record user;
		assert_int_equal(kit_apply(suite.store, both[i]), 0);
		assert_true(both[i]->user.id != 0);
		assert_true(both[i]->user.generation < 1000);
		assert_int_equal(
		    registry_user(suite.store->registry, both[i]->user.id, STR_NULL, &suite.arena, &user), 0);
		assert_user(&user, &both[i]->user);
	}
	assert_true(full.user.id != bare.user.id);
	struct user_record user;
	assert_int_equal(registry_user(suite.store->registry, 0, STR("j@example.com"), &suite.arena, &user),
	                 0);
	assert_user(&user, &full.user);
	assert_int_equal(
	    registry_user(suite.store->registry, bare.user.id, STR("j@example.com"), &suite.arena, &user), 0);
	assert_user(&user, &full.user); /* the address decides */
}

TEST(a_user_who_never_was_is_not_found)
{
	uint64_t last = create_user("a@example.com", ROLE_VIEWER);
	create_user(NULL, ROLE_VIEWER);
	struct user_record user = {.id = 55};
	const uint64_t ids[] = {0, last + 2, INT64_MAX, UINT64_MAX};
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		assert_int_equal(registry_user(suite.store->registry, ids[i], STR_NULL, &suite.arena, &user),
		                 ERR_NOT_FOUND);
		struct registry_write w = update_user(ids[i], USER_NAMES);
		assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
	}
	assert_int_equal(
	    registry_user(suite.store->registry, last, STR("b@example.com"), &suite.arena, &user),
	    ERR_NOT_FOUND);
	assert_int_equal(registry_user(suite.store->registry, last, STR(""), &suite.arena, &user),
	                 ERR_NOT_FOUND);
	assert_int_equal(user.id, 55);
}

TEST(an_address_is_taken_once_and_is_bytes)
{
	create_user("a@example.com", ROLE_VIEWER);
	create_user("A@example.com", ROLE_VIEWER); /* lower case is the caller's business */
	create_user("a@example.co", ROLE_VIEWER);
	create_user(NULL, ROLE_VIEWER);
	create_user(NULL, ROLE_VIEWER);
	struct registry_write w = kit_user(&suite.arena, "a@example.com", ROLE_ADMIN);
	w.user.id = 99;
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	assert_int_equal(w.user.id, 99);
	assert_int_equal(count_users(), 5);
	struct user_record user;
	assert_int_equal(registry_user(suite.store->registry, 0, STR("a@example.com"), &suite.arena, &user),
	                 0);
	assert_int_equal(user.role, ROLE_VIEWER);
}

TEST(what_was_read_of_a_user_stays)
{
	uint64_t id = create_user("a@example.com", ROLE_VIEWER);
	struct user_record before = user_now(id);
	char name[] = "passing";
	struct registry_write w = update_user(id, USER_EMAIL | USER_NAMES);
	w.user.email = STR("b@example.com");
	w.user.last_name = str_of(name);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	memset(name, 'x', sizeof(name) - 1);
	assert_str(w.user.last_name, STR("passing"));
	assert_str(user_now(id).last_name, STR("passing"));
	assert_str(before.email, STR("a@example.com"));
	assert_str(before.first_name, STR("first"));
}

TEST(an_update_of_a_user_sets_the_named_fields_and_no_others)
{
	create_admin("other@example.com", "other"); /* so that the role may go */
	struct registry_write made = kit_user(&suite.arena, "a@example.com", ROLE_ADMIN);
	made.user.password = STR("old");
	assert_int_equal(kit_apply(suite.store, &made), 0);
	struct user_record expected = made.user;
	const struct user_record changes = {.id = made.user.id,
	                                    .email = STR("b@example.com"),
	                                    .middle_name = STR("middle"),
	                                    .last_name = STR("last"),
	                                    .role = ROLE_VIEWER,
	                                    .password = STR("new"),
	                                    .generation = 999,
	                                    .created_ms = 999,
	                                    .updated_ms = 999};
	for (unsigned bit = 0; 1U << bit <= USER_END_SESSIONS; bit++) {
		struct registry_write w = update_user(made.user.id, 1U << bit);
		w.now_ms = KIT_NOW_MS + 100 + bit;
		w.user = changes;
		expected.updated_ms = w.now_ms;
		switch (w.user_fields) {
		case USER_EMAIL: expected.email = changes.email; break;
		case USER_FIRST_NAME: expected.first_name = changes.first_name; break;
		case USER_MIDDLE_NAME: expected.middle_name = changes.middle_name; break;
		case USER_LAST_NAME: expected.last_name = changes.last_name; break;
		case USER_ROLE: expected.role = changes.role; break;
		case USER_ENABLED:
			expected.enabled = false;
			expected.generation++;
			break;
		case USER_PASSWORD:
			expected.password = changes.password;
			expected.generation++;
			break;
		case USER_END_SESSIONS: expected.generation++; break;
		}
		assert_int_equal(kit_apply(suite.store, &w), 0);
		assert_user(&w.user, &expected);
		struct user_record user = user_now(made.user.id);
		assert_user(&user, &expected);
	}
}

TEST(sessions_end_by_password_by_disabling_and_on_request)
{
	uint64_t id = create_user("a@example.com", ROLE_EDITOR);
	uint64_t before = user_now(id).generation;
	const struct {
		unsigned fields;
		bool enabled;
		bool ends;
	} cases[] = {{USER_NAMES | USER_EMAIL | USER_ROLE, false, false},
	             {USER_ENABLED, true, false},
	             {USER_ENABLED, false, true},
	             {USER_ENABLED, true, false},
	             {USER_PASSWORD, false, true},
	             {USER_END_SESSIONS, false, true},
	             {USER_PASSWORD | USER_END_SESSIONS | USER_ENABLED, false, true}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct registry_write w = update_user(id, cases[i].fields);
		w.user.enabled = cases[i].enabled;
		w.user.role = ROLE_EDITOR;
		assert_int_equal(kit_apply(suite.store, &w), 0);
		if (cases[i].ends)
			assert_true(w.user.generation > before);
		else
			assert_int_equal(w.user.generation, before);
		assert_int_equal(user_now(id).generation, w.user.generation);
		before = w.user.generation;
	}
}

/* With all rights. */
static void create_key(uint8_t digest, uint64_t user, int64_t expires_ms)
{
	struct registry_write w = kit_key(&suite.arena, digest, user);
	w.key.expires_ms = expires_ms;
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

/* Each way to shut an admin out; those by password only when there is no key. */
static const struct {
	unsigned fields;
	enum user_role role;
	bool enabled;
	bool by_password;
} falls[] = {
    {USER_ROLE, ROLE_EDITOR, true, false},
    {USER_ROLE | USER_ENABLED, ROLE_VIEWER, true, false},
    {USER_ENABLED, ROLE_ADMIN, false, false},
    {USER_PASSWORD, ROLE_ADMIN, true, true},
    {USER_EMAIL, ROLE_ADMIN, true, true},
    {USER_EMAIL | USER_PASSWORD | USER_NAMES, ROLE_ADMIN, true, true},
};

static struct registry_write fall(uint64_t id, size_t i)
{
	struct registry_write w = update_user(id, falls[i].fields);
	w.user.role = falls[i].role;
	w.user.enabled = falls[i].enabled;
	return w;
}

/* Nobody can take the admin away, and trying changes nothing. */
static void assert_last_admin(uint64_t id, bool has_key)
{
	struct user_record before = user_now(id);
	for (size_t i = 0; i < ARRAY_LEN(falls); i++) {
		if (has_key && falls[i].by_password)
			continue;
		struct registry_write w = fall(id, i);
		assert_int_equal(kit_apply(suite.store, &w), ERR_BUSY);
		struct user_record after = user_now(id);
		assert_user(&after, &before);
	}
}

/* Admins by name only, and an editor who is none with whatever key. */
static void create_admins_who_cannot_get_in(void)
{
	enum { KEYS = 5 };
	create_admin("no-password@example.com", NULL);
	create_admin(NULL, "no address");
	struct registry_write w[KEYS];
	for (size_t i = 0; i < KEYS; i++) {
		w[i] = kit_key(&suite.arena, (uint8_t)(100 + i), 0);
		w[i].user.role = ROLE_ADMIN;
	}
	w[0].key.rights = RIGHTS_ALL & ~RIGHT_ADMIN;
	w[1].key.expires_ms = update_user(0, 0).now_ms;
	w[2].key.revoked_ms = 1;
	w[3].user.enabled = false;
	w[3].user.email = STR("off@example.com");
	w[3].user.password = STR("off");
	w[4].user.role = ROLE_EDITOR;
	w[4].user.email = STR("editor@example.com");
	w[4].user.password = STR("editor");
	assert_int_equal(registry_apply(suite.store->registry, w, KEYS), 0);
	for (size_t i = 0; i < KEYS; i++)
		assert_int_equal(w[i].result, 0);
}

TEST(the_last_admin_who_can_get_in_stays_one)
{
	uint64_t a = create_admin("a@example.com", "a"), b = create_admin("b@example.com", "b");
	create_admins_who_cannot_get_in();
	struct registry_write both[] = {fall(a, 0),
	                                fall(b, 2)}; /* one transaction: the second sees the first */
	assert_int_equal(registry_apply(suite.store->registry, both, 2), 0);
	assert_int_equal(both[0].result, 0);
	assert_int_equal(both[1].result, ERR_BUSY);
	assert_last_admin(b, false);

	struct registry_write same = update_user(b, USER_EMAIL | USER_NAMES | USER_ROLE | USER_ENABLED |
	                                                USER_PASSWORD | USER_END_SESSIONS);
	same.user.email = STR("new@example.com"); /* whatever leaves an admin is fine */
	same.user.password = STR("new");
	same.user.role = ROLE_ADMIN;
	same.user.enabled = true;
	assert_int_equal(kit_apply(suite.store, &same), 0);
	assert_last_admin(b, false);
}

TEST(an_admin_falls_when_another_has_a_password)
{
	uint64_t a = create_admin("a@example.com", "a");
	create_admins_who_cannot_get_in();
	assert_last_admin(a, false);
	create_admin("b@example.com", "b");
	for (size_t i = 0; i < ARRAY_LEN(falls); i++) {
		struct registry_write w = fall(create_admin("c@example.com", "c"), i);
		assert_int_equal(kit_apply(suite.store, &w), 0);
		w = update_user(w.user.id, USER_EMAIL); /* the address is wanted again */
		assert_int_equal(kit_apply(suite.store, &w), 0);
	}
}

TEST(an_admin_falls_when_another_has_a_key_in_force)
{
	const int64_t now_ms = update_user(0, 0).now_ms;
	uint64_t a = create_admin("a@example.com", "a"), b = create_admin(NULL, NULL);
	create_admins_who_cannot_get_in();
	assert_last_admin(a, false);
	create_key(1, b, now_ms + 1);
	struct registry_write w = fall(a, 0);
	w.now_ms = now_ms + 1; /* by then it is not in force any more */
	assert_int_equal(kit_apply(suite.store, &w), ERR_BUSY);
	w.now_ms = now_ms;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_last_admin(b, true);
}

TEST(an_admin_with_a_key_needs_no_password)
{
	const int64_t now_ms = update_user(0, 0).now_ms;
	uint64_t id = create_admin("a@example.com", "a");
	create_admins_who_cannot_get_in();
	create_key(1, id, now_ms + 1);
	for (size_t i = 0; i < ARRAY_LEN(falls); i++) {
		struct registry_write w = fall(id, i);
		if (falls[i].by_password)
			assert_int_equal(kit_apply(suite.store, &w), 0);
	}
	assert_last_admin(id, true);
	struct registry_write w = fall(id, 0);
	w.now_ms = now_ms + 1; /* the key has ended, and with it the last way in: nothing is left to keep */
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

TEST(pages_of_users_cover_everybody_once)
{
	enum { USERS = 50 };
	struct registry_write w[USERS];
	struct registry_page none = {.limit = 5, .arena = &suite.arena, .count = 9, .more = true};
	assert_int_equal(registry_users(suite.store->registry, &none), 0);
	assert_int_equal(none.count, 0);
	assert_false(none.more);
	for (size_t i = 0; i < USERS; i++)
		w[i] = kit_user(&suite.arena, arena_printf(&suite.arena, "u%zu", USERS - i).ptr, ROLE_VIEWER);
	assert_int_equal(registry_apply(suite.store->registry, w, USERS), 0);
	for (size_t limit = 1; limit <= USERS + 1; limit += 7) {
		struct registry_page page = {.limit = limit, .arena = &suite.arena};
		size_t seen = 0;
		do {
			assert_int_equal(registry_users(suite.store->registry, &page), 0);
			assert_int_equal(page.count, MIN(limit, USERS - seen));
			for (size_t i = 0; i < page.count; i++, seen++) {
				assert_user(&page.users[i], &w[seen].user);
				assert_true(page.users[i].id > page.after);
				page.after = page.users[i].id;
			}
			assert_int_equal(page.more, seen < USERS);
		} while (page.more);
		assert_int_equal(seen, USERS);
	}
	const uint64_t beyond[] = {w[USERS - 1].user.id, INT64_MAX, UINT64_MAX};
	for (size_t i = 0; i < ARRAY_LEN(beyond); i++) {
		struct registry_page page = {.after = beyond[i], .limit = SIZE_MAX, .arena = &suite.arena};
		assert_int_equal(registry_users(suite.store->registry, &page), 0);
		assert_int_equal(page.count, 0);
		assert_false(page.more);
	}
}

TEST(a_page_of_users_without_room_is_refused)
{
	struct registry_page page = {.limit = 0, .arena = &suite.arena};
	assert_int_equal(registry_users(suite.store->registry, &page), ERR_INVALID);
}

/* --- sessions --- */

static struct registry_write on_session(enum registry_write_kind kind, uint8_t number, int64_t expires_ms,
                                        int64_t now_ms)
{
	struct registry_write w = {.kind = kind,
	                           .now_ms = now_ms,
	                           .session = {.user = 1,
	                                       .generation = 7,
	                                       .created_ms = now_ms,
	                                       .expires_ms = expires_ms,
	                                       .address = STR("192.0.2.0"),
	                                       .agent = STR("Mozilla/5.0")}};
	memset(w.session.id, number, sizeof(w.session.id));
	return w;
}

static struct registry_write begin_session(uint8_t number, int64_t expires_ms, int64_t now_ms)
{
	return on_session(REGISTRY_SESSION_CREATE, number, expires_ms, now_ms);
}

static int session_now(uint8_t number, struct session_record *ret)
{
	uint8_t id[SESSION_ID_BYTES];
	memset(id, number, sizeof(id));
	return kit_session(suite.store, &suite.arena, id, ret);
}

TEST(a_session_is_there_from_its_beginning_to_its_end)
{
	struct session_record found;
	uint64_t user = create_user("a@example.com", ROLE_VIEWER);
	assert_int_equal(session_now(1, &found), ERR_NOT_FOUND);
	struct registry_write batch[] = {begin_session(1, 100, 5), begin_session(2, 1LL << 50, 6)};
	batch[0].session.user = batch[1].session.user = user;
	assert_int_equal(registry_apply(suite.store->registry, batch, 2), 0);
	assert_int_equal(session_now(2, &found), 0);
	assert_int_equal(found.user, user);
	assert_int_equal(found.generation, 7);
	assert_int_equal(found.created_ms, 6);
	assert_true(found.expires_ms == 1LL << 50);
	for (int twice = 0; twice < 2; twice++) {
		struct registry_write end = on_session(REGISTRY_SESSION_END, 2, 0, 7);
		assert_int_equal(kit_apply(suite.store, &end), 0);
		assert_int_equal(session_now(2, &found), ERR_NOT_FOUND);
	}
	assert_int_equal(session_now(1, &found), 0);
}

TEST(sessions_past_their_time_are_forgotten_and_others_stay)
{
	struct session_record found;
	create_user("a@example.com", ROLE_VIEWER);
	for (uint8_t i = 1; i <= 40; i++) {
		struct registry_write w = begin_session(i, 100 + i, 5);
		assert_int_equal(kit_apply(suite.store, &w), 0);
	}
	for (uint8_t i = 0; i < 20; i++) {
		struct registry_write w = begin_session(50 + i, 900, 120);
		assert_int_equal(kit_apply(suite.store, &w), 0);
	}
	for (uint8_t i = 1; i < 70; i++)
		assert_int_equal(session_now(i, &found), (i > 20 && i <= 40) || i >= 50 ? 0 : ERR_NOT_FOUND);
}

TEST(an_update_begins_a_session_under_the_new_generation)
{
	struct session_record found;
	uint64_t user = create_user("a@example.com", ROLE_VIEWER);
	struct registry_write w = update_user(user, USER_PASSWORD);
	w.user.password = STR("another");
	w.session = begin_session(3, 1LL << 50, 5).session;
	w.session.user = user;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(session_now(3, &found), 0);
	assert_int_equal(found.user, user);
	assert_int_equal(found.generation, w.user.generation);
	struct registry_write nobody = update_user(UINT64_MAX, USER_PASSWORD);
	nobody.session = begin_session(4, 900, 5).session;
	assert_int_equal(kit_apply(suite.store, &nobody), ERR_NOT_FOUND);
	assert_int_equal(session_now(4, &found), ERR_NOT_FOUND);
}

/* --- one account --- */

TEST(accounts_are_found_by_each_of_their_names_in_one_go)
{
	uint64_t user = create_user("a@example.com", ROLE_EDITOR);
	struct registry_write key = kit_key(&suite.arena, 9, user), session = begin_session(5, 900, 5);
	session.session.user = user;
	assert_int_equal(kit_apply(suite.store, &key), 0);
	assert_int_equal(kit_apply(suite.store, &session), 0);
	struct str digest = str_n((const char *)key.key.digest, KEY_DIGEST_BYTES);
	struct str id = str_n((const char *)session.session.id, SESSION_ID_BYTES);
	struct registry_account reads[] = {
	    {.by = BY_USER, .id = user},
	    {.by = BY_EMAIL, .text = STR("a@example.com")},
	    {.by = BY_KEY, .id = key.key.id},
	    {.by = BY_DIGEST, .text = digest},
	    {.by = BY_SESSION, .text = id},
	    {.by = BY_USER, .id = UINT64_MAX},
	    {.by = BY_EMAIL, .text = STR("b@example.com")},
	    {.by = BY_KEY, .id = 0},
	    {.by = BY_DIGEST, .text = id},
	    {.by = BY_SESSION, .text = digest},
	};
	assert_int_equal(registry_accounts(suite.store->registry, reads, ARRAY_LEN(reads), &suite.arena), 0);
	for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
		assert_int_equal(reads[i].result, i < 5 ? 0 : ERR_NOT_FOUND);
		if (i >= 2)
			continue;
		assert_int_equal(reads[i].user.id, user);
		assert_str(reads[i].user.email, STR("a@example.com"));
	}
	assert_key(&reads[2].key, &key.key);
	assert_key(&reads[3].key, &key.key);
	assert_int_equal(reads[4].session.user, user);
	assert_int_equal(registry_accounts(suite.store->registry, reads, 0, &suite.arena), 0);
}

/* --- API keys --- */

static struct key_record key_now(uint64_t id)
{
	size_t count, at = 0;
	struct key_record *keys = kit_keys(suite.store, &suite.arena, &count);
	while (at < count && keys[at].id != id)
		at++;
	assert_true(at < count);
	return keys[at];
}

static size_t count_keys(void)
{
	size_t count;
	kit_keys(suite.store, &suite.arena, &count);
	return count;
}

static struct registry_write revocation(uint64_t id, int64_t now_ms)
{
	return (struct registry_write){
	    .kind = REGISTRY_KEY_REVOKE, .now_ms = now_ms, .arena = &suite.arena, .key.id = id};
}

TEST(api_keys_get_ids_and_come_back_by_id)
{
	size_t count = 99;
	struct key_record *keys = kit_keys(suite.store, &suite.arena, &count);
	assert_int_equal(count, 0);
	uint64_t user = create_user(NULL, ROLE_EDITOR);
	struct registry_write w[40];
	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		w[i] = kit_key(&suite.arena, (uint8_t)(200 - i), i % 3 ? user : 0);
		w[i].key.name = i ? STR("some") : STR("");
		w[i].key.rights = (unsigned)i % (RIGHTS_ALL + 1);
		w[i].key.expires_ms = (int64_t)i << 40;
		w[i].key.used_ms = (int64_t)i << 41;
		w[i].key.redirects_max = UINT64_MAX - i;
	}
	assert_int_equal(registry_apply(suite.store->registry, w, ARRAY_LEN(w)), 0);
	keys = kit_keys(suite.store, &suite.arena, &count);
	assert_int_equal(count, ARRAY_LEN(w));
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(w[i].result, 0);
		assert_true(w[i].key.id > (i ? w[i - 1].key.id : 0));
		assert_key(&keys[i], &w[i].key);
		if (i % 3)
			assert_int_equal(w[i].key.user, user);
	}
}

TEST(a_digest_is_taken_once)
{
	struct registry_write first = kit_key(&suite.arena, 1, 0), second = kit_key(&suite.arena, 1, 0);
	assert_int_equal(kit_apply(suite.store, &first), 0);
	second.key.name = STR("second");
	assert_int_equal(kit_apply(suite.store, &second), ERR_CONFLICT);
	assert_int_equal(count_keys(), 1);
	assert_int_equal(count_users(), 1); /* the second has no user either */
	assert_str(key_now(first.key.id).name, STR("key"));
}

TEST(a_key_of_nobody_gets_a_user_of_its_own)
{
	create_user(NULL, ROLE_VIEWER);
	struct registry_write w = kit_key(&suite.arena, 1, 0);
	w.user.email = STR("k@example.com");
	w.user.role = ROLE_ADMIN;
	w.user.id = 77;
	w.user.generation = 77;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(w.key.user, w.user.id);
	struct user_record user = user_now(w.user.id);
	assert_user(&user, &w.user);
	assert_str(user.email, STR("k@example.com"));
	assert_int_equal(user.role, ROLE_ADMIN);
	assert_int_equal(key_now(w.key.id).user, user.id);
	assert_int_equal(count_users(), 2);

	struct registry_write other = kit_key(&suite.arena, 2, 0);
	other.user.email = STR("k@example.com");
	assert_int_equal(kit_apply(suite.store, &other), ERR_CONFLICT);
	assert_int_equal(other.key.user, 0);
	assert_int_equal(count_keys(), 1);
	assert_int_equal(count_users(), 2);
}

TEST(a_key_of_a_user_who_is_not_there_is_refused)
{
	uint64_t last = create_user(NULL, ROLE_VIEWER);
	const uint64_t ids[] = {last + 1, INT64_MAX, UINT64_MAX};
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		struct registry_write w = kit_key(&suite.arena, 1, ids[i]);
		assert_int_equal(kit_apply(suite.store, &w), ERR_INVALID);
		assert_int_equal(w.key.id, 0);
	}
	assert_int_equal(count_keys(), 0);
	assert_int_equal(count_users(), 1);
	struct registry_write w = kit_key(&suite.arena, 1, last);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(count_users(), 1);
}

/* Of five keys only one is an admin's in force; the others lack one thing each. */
TEST(the_last_admin_key_in_force_cannot_be_revoked)
{
	enum { NOW_MS = 1000, KEYS = 6 };
	uint64_t admin = create_user(NULL, ROLE_ADMIN), editor = create_user(NULL, ROLE_EDITOR);
	struct registry_write idle = kit_user(&suite.arena, NULL, ROLE_ADMIN);
	idle.user.enabled = false;
	assert_int_equal(kit_apply(suite.store, &idle), 0);
	struct registry_write w[KEYS];
	const uint64_t users[KEYS] = {admin, admin, admin, idle.user.id, editor, admin};
	for (size_t i = 0; i < KEYS; i++)
		w[i] = kit_key(&suite.arena, (uint8_t)(i + 1), users[i]);
	w[0].key.expires_ms = NOW_MS + 1;            /* in force until the next millisecond */
	w[1].key.expires_ms = NOW_MS;                /* expired */
	w[2].key.rights = RIGHTS_ALL & ~RIGHT_ADMIN; /* without the right */
	w[5].key.revoked_ms = 1;                     /* revoked */
	assert_int_equal(registry_apply(suite.store->registry, w, KEYS), 0);
	for (size_t i = 0; i < KEYS; i++) {
		struct registry_write out = revocation(w[i].key.id, NOW_MS);
		assert_int_equal(kit_apply(suite.store, &out), i == 0 ? ERR_CONFLICT : 0);
	}
	assert_int_equal(key_now(w[0].key.id).revoked_ms, 0);
	struct registry_write out = revocation(w[0].key.id, NOW_MS + 1); /* by then it is worth nothing */
	assert_int_equal(kit_apply(suite.store, &out), 0);
}

TEST(of_two_admin_keys_one_can_be_revoked)
{
	struct registry_write made[2];
	for (int i = 0; i < 2; i++) {
		made[i] = kit_key(&suite.arena, (uint8_t)(i + 1), 0);
		made[i].user.role = ROLE_ADMIN;
		assert_int_equal(kit_apply(suite.store, &made[i]), 0);
	}
	/* in one transaction, so that neither sees the other's effect only later */
	struct registry_write both[] = {revocation(made[0].key.id, 5), revocation(made[1].key.id, 5)};
	assert_int_equal(registry_apply(suite.store->registry, both, 2), 0);
	assert_int_equal(both[0].result, 0);
	assert_int_equal(both[1].result, ERR_CONFLICT);
	assert_int_equal(key_now(made[1].key.id).revoked_ms, 0);
}

TEST(a_key_that_is_not_there_cannot_be_changed)
{
	struct registry_write made = kit_key(&suite.arena, 1, 0);
	assert_int_equal(kit_apply(suite.store, &made), 0);
	const uint64_t ids[] = {0, made.key.id + 1, UINT64_MAX};
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		struct registry_write w = revocation(ids[i], 5);
		assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
		w.kind = REGISTRY_KEY_USED;
		w.key.used_ms = 7;
		assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
	}
}

TEST(the_last_use_of_a_key_never_goes_back)
{
	struct registry_write made = kit_key(&suite.arena, 1, 0);
	assert_int_equal(kit_apply(suite.store, &made), 0);
	const int64_t used_ms[] = {50, 70, 60, 70, 1LL << 45};
	int64_t latest_ms = 0;
	for (size_t i = 0; i < ARRAY_LEN(used_ms); i++) {
		struct registry_write w = {.kind = REGISTRY_KEY_USED, .now_ms = 3};
		w.key.id = made.key.id;
		w.key.used_ms = used_ms[i];
		assert_int_equal(kit_apply(suite.store, &w), 0);
		latest_ms = MAX(latest_ms, used_ms[i]);
		made.key.used_ms = latest_ms;
		struct key_record key = key_now(made.key.id);
		assert_key(&key, &made.key); /* and nothing else has changed */
	}
}

TEST(uses_come_by_the_hundred)
{
	enum { KEYS = 200, USES = 800 };
	uint64_t user = create_user(NULL, ROLE_EDITOR), ids[KEYS];
	struct registry_write *batch = calloc(USES, sizeof(*batch));
	for (size_t i = 0; i < KEYS; i++)
		batch[i] = kit_key(&suite.arena, (uint8_t)i, user);
	assert_int_equal(registry_apply(suite.store->registry, batch, KEYS), 0);
	for (size_t i = 0; i < KEYS; i++)
		ids[i] = batch[i].key.id;
	for (size_t i = 0; i < USES; i++) {
		batch[i] = (struct registry_write){.kind = REGISTRY_KEY_USED};
		batch[i].key.id = i == 400 ? UINT64_MAX : ids[i % KEYS];
		batch[i].key.used_ms = (int64_t)(i + 1);
	}
	assert_int_equal(registry_apply(suite.store->registry, batch, USES), 0);
	for (size_t i = 0; i < USES; i++)
		assert_int_equal(batch[i].result, i == 400 ? ERR_NOT_FOUND : 0);
	size_t count;
	struct key_record *keys = kit_keys(suite.store, &suite.arena, &count);
	assert_int_equal(count, KEYS);
	for (size_t i = 0; i < KEYS; i++)
		assert_int_equal(keys[i].used_ms, USES - KEYS + i + 1);
	free(batch);
}

TEST(keys_are_read_in_pages_of_all_and_of_one_user)
{
	uint64_t users[2] = {create_user(NULL, ROLE_EDITOR), create_user(NULL, ROLE_EDITOR)};
	uint64_t ids[9];
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		struct registry_write w = kit_key(&suite.arena, (uint8_t)i, users[i % 3 == 0]);
		assert_int_equal(kit_apply(suite.store, &w), 0);
		ids[i] = w.key.id;
	}
	for (size_t limit = 1; limit <= 10; limit++) {
		struct registry_page all = {.limit = limit, .arena = &suite.arena},
		                     one = {.user = users[1], .limit = limit, .arena = &suite.arena};
		size_t seen = 0, of_one = 0;
		do {
			assert_int_equal(registry_keys(suite.store->registry, &all), 0);
			for (size_t i = 0; i < all.count; i++)
				assert_int_equal(all.keys[i].id, ids[seen++]);
			all.after = ids[seen - 1];
		} while (all.more);
		assert_int_equal(seen, 9);
		do {
			assert_int_equal(registry_keys(suite.store->registry, &one), 0);
			for (size_t i = 0; i < one.count; i++)
				assert_int_equal(one.keys[i].id, ids[3 * of_one++]);
			one.after = one.keys[one.count - 1].id;
		} while (one.more);
		assert_int_equal(of_one, 3);
	}
	struct registry_page none = {.limit = 5, .after = UINT64_MAX, .arena = &suite.arena, .more = true};
	assert_int_equal(registry_keys(suite.store->registry, &none), 0);
	assert_true(none.count == 0 && !none.more);
	none.limit = 0;
	assert_int_equal(registry_keys(suite.store->registry, &none), ERR_INVALID);
}

TEST(a_user_with_an_address_has_so_many_keys_in_force_and_no_more)
{
	uint64_t user = create_user("a@example.com", ROLE_VIEWER), robot = create_user(NULL, ROLE_VIEWER);
	uint64_t last = 0;
	for (unsigned i = 0; i < 2 * ACCOUNT_KEYS_MAX + 2; i++) {
		struct registry_write w = kit_key(&suite.arena, 0, i % 2 ? user : robot);
		w.key.digest[1] = (uint8_t)i;
		w.key.expires_ms = i == 1 ? w.now_ms + 10 : i == 3 ? w.now_ms + 1000 : 0;
		bool is_beyond = i == 2 * ACCOUNT_KEYS_MAX + 1;
		assert_int_equal(kit_apply(suite.store, &w), is_beyond ? ERR_LIMIT : 0);
		last = i % 2 && !is_beyond ? w.key.id : last;
	}
	struct registry_write late = kit_key(&suite.arena, 1, user); /* one has expired by then */
	late.now_ms += 10;
	assert_int_equal(kit_apply(suite.store, &late), 0);
	struct registry_write more = kit_key(&suite.arena, 2, user);
	more.now_ms += 10;
	assert_int_equal(kit_apply(suite.store, &more), ERR_LIMIT);
	struct registry_write off = revocation(last, more.now_ms);
	assert_int_equal(kit_apply(suite.store, &off), 0);
	assert_int_equal(kit_apply(suite.store, &more), 0);
}

TEST(dead_keys_are_purged_in_portions_and_their_ids_stay_theirs)
{
	uint64_t user = create_user(NULL, ROLE_EDITOR), ids[8];
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		struct registry_write w = kit_key(&suite.arena, (uint8_t)i, user);
		w.key.expires_ms = i == 0 ? 50 : i == 1 ? 500 : 0;
		assert_int_equal(kit_apply(suite.store, &w), 0);
		ids[i] = w.key.id;
	}
	for (size_t i = 3; i < ARRAY_LEN(ids); i++) {
		struct registry_write off = revocation(ids[i], 60);
		assert_int_equal(kit_apply(suite.store, &off), 0);
	}
	struct registry_write early = {.kind = REGISTRY_KEY_PURGE, .now_ms = 900, .purge = {49, 100}};
	assert_int_equal(kit_apply(suite.store, &early), 0);
	assert_int_equal(count_keys(), 8);
	for (int i = 0; i < 5; i++) {
		struct registry_write purge = {.kind = REGISTRY_KEY_PURGE, .now_ms = 900, .purge = {60, 2}};
		assert_int_equal(kit_apply(suite.store, &purge), 0);
	}
	key_now(ids[1]);
	key_now(ids[2]);
	assert_true(count_keys() <= 3); /* the very last may stay */
	struct registry_write w = kit_key(&suite.arena, 99, user);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_true(w.key.id > ids[7]);
}

/* --- all kinds together --- */

TEST(a_batch_of_all_kinds_is_done_in_order)
{
	uint64_t guest = create_user("guest@example.com", ROLE_VIEWER);
	struct registry_write rename = update_user(guest, USER_EMAIL);
	rename.user.email = STR("other@example.com");
	struct registry_write taken = kit_user(&suite.arena, "guest@example.com", ROLE_VIEWER);
	const struct {
		struct registry_write write;
		int result;
	} steps[] = {
	    {taken, ERR_CONFLICT},
	    {rename, 0},
	    {taken, 0}, /* now it is free */
	    {begin_session(3, 100, 5), 0},
	    {kit_key(&suite.arena, 9, guest), 0},
	    {kit_key(&suite.arena, 9, guest), ERR_CONFLICT},
	};
	struct registry_write batch[ARRAY_LEN(steps)];
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		batch[i] = steps[i].write;
		batch[i].result = 12345;
	}
	assert_int_equal(registry_apply(suite.store->registry, batch, ARRAY_LEN(batch)), 0);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		assert_int_equal(batch[i].result, steps[i].result);
	assert_str(batch[1].user.email, STR("other@example.com"));
	assert_str(batch[1].user.first_name, STR("first"));
	assert_int_equal(count_users(), 2);
	assert_int_equal(count_keys(), 1);
	assert_int_equal(key_now(batch[4].key.id).user, guest);
	struct session_record session;
	assert_int_equal(session_now(3, &session), 0);
}

int store_suite_accounts_run(const char *name)
{
	return RUN_TESTS(.name = name, .setup = suite_setup, .teardown = suite_teardown);
}
