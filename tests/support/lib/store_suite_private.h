/* What the parts of the store's conformance suite share. For lib/store_suite*.c only, after cmocka.h. */
#pragma once

#include "lib/store_kit.h"
#include "lib/store_suite.h"
#include "lib/test.h"

/* The store that the test under way works on, and where strings go until it ends. */
struct suite {
	const struct store_backend *backend;
	struct store *store;
	struct arena arena;
};

extern struct suite suite;

/* Each part runs its tests and returns how many failed. */
int store_suite_names_run(const char *name);    /* ends of links, and what becomes of their names */
int store_suite_access_run(const char *name);   /* private links and their permissions */
int store_suite_accounts_run(const char *name); /* users, sessions, API keys */
int store_suite_feed_run(const char *name);     /* what the feed of changes tells */

static inline int suite_setup(void **state)
{
	suite.store = suite.backend->open();
	return suite.store ? 0 : -1;
}

static inline int suite_teardown(void **state)
{
	suite.backend->close(suite.store);
	arena_release(&suite.arena);
	return 0;
}

static inline void assert_str(struct str actual, struct str expected)
{
	assert_int_equal(actual.ptr != NULL, expected.ptr != NULL);
	assert_int_equal(actual.len, expected.len);
	if (expected.len > 0)
		assert_memory_equal(actual.ptr, expected.ptr, expected.len);
}

/* All but the key's text, which a store keeps for aliases only. */
static inline void assert_link(const struct link_record *actual, const struct link_record *expected)
{
	assert_int_equal(actual->id, expected->id);
	assert_int_equal(actual->is_alias, expected->is_alias);
	assert_str(actual->key, expected->is_alias ? expected->key : STR_NULL);
	assert_int_equal(actual->owner, expected->owner);
	assert_int_equal(actual->api_key, expected->api_key);
	assert_str(actual->user_name, expected->user_name);
	assert_str(actual->url, expected->url);
	assert_int_equal(actual->created_ms, expected->created_ms);
	assert_int_equal(actual->updated_ms, expected->updated_ms);
	assert_int_equal(actual->not_before_ms, expected->not_before_ms);
	assert_int_equal(actual->expires_ms, expected->expires_ms);
	assert_str(actual->expired_url, expected->expired_url);
	assert_int_equal(actual->max_clicks, expected->max_clicks);
	assert_int_equal(actual->redirect_status, expected->redirect_status);
	assert_int_equal(actual->enabled, expected->enabled);
	assert_int_equal(actual->is_private, expected->is_private);
	assert_str(actual->password, expected->password);
	assert_str(actual->title, expected->title);
	assert_str(actual->note, expected->note);
	assert_str(actual->tags, expected->tags);
	assert_str(actual->external_id, expected->external_id);
	assert_int_equal(actual->clicks, expected->clicks);
}

static inline void assert_user(const struct user_record *actual, const struct user_record *expected)
{
	assert_int_equal(actual->id, expected->id);
	assert_str(actual->email, expected->email);
	assert_str(actual->first_name, expected->first_name);
	assert_str(actual->middle_name, expected->middle_name);
	assert_str(actual->last_name, expected->last_name);
	assert_int_equal(actual->role, expected->role);
	assert_int_equal(actual->enabled, expected->enabled);
	assert_str(actual->password, expected->password);
	assert_int_equal(actual->generation, expected->generation);
	assert_int_equal(actual->created_ms, expected->created_ms);
	assert_int_equal(actual->updated_ms, expected->updated_ms);
}

static inline void assert_key(const struct key_record *actual, const struct key_record *expected)
{
	assert_int_equal(actual->id, expected->id);
	assert_int_equal(actual->user, expected->user);
	assert_str(actual->name, expected->name);
	assert_memory_equal(actual->digest, expected->digest, KEY_DIGEST_BYTES);
	assert_int_equal(actual->rights, expected->rights);
	assert_int_equal(actual->created_ms, expected->created_ms);
	assert_int_equal(actual->expires_ms, expected->expires_ms);
	assert_int_equal(actual->revoked_ms, expected->revoked_ms);
	assert_int_equal(actual->used_ms, expected->used_ms);
	assert_int_equal(actual->creates_max, expected->creates_max);
	assert_int_equal(actual->redirects_max, expected->redirects_max);
	assert_int_equal(actual->period_ms, expected->period_ms);
}

static inline void create_generated(uint64_t id)
{
	struct store_write w = kit_generated(&suite.arena, id);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

static inline void create_alias(uint64_t id, const char *name)
{
	struct store_write w = kit_alias(&suite.arena, id, name);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

static inline int find(uint64_t id, const char *key, struct link_record *ret)
{
	return kit_find(suite.store, &suite.arena, id, key, ret);
}

static inline struct store_write on_generated(enum store_write_kind kind, uint64_t id)
{
	return (struct store_write){
	    .kind = kind,
	    .now_ms = KIT_NOW_MS + 5,
	    .arena = &suite.arena,
	    .ref = {.id = id, .key = arena_printf(&suite.arena, "g%llu", (unsigned long long)id)}};
}

static inline struct store_write on_alias(enum store_write_kind kind, const char *name)
{
	return (struct store_write){
	    .kind = kind, .now_ms = KIT_NOW_MS + 5, .arena = &suite.arena, .ref = {.key = str_of(name)}};
}

/* A new user's id. */
static inline uint64_t create_user(const char *email, enum user_role role)
{
	struct registry_write w = kit_user(&suite.arena, email, role);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	return w.user.id;
}
