/* What the feed of changes tells. */
#include "lib/store_suite_private.h"
#include "lib/test.h"

enum { ACTOR = 77 };

static struct feed_page feed_read(bool accounts, struct feed_page page)
{
	page.arena = &suite.arena;
	page.max = 100;
	assert_int_equal(
	    (accounts ? registry_feed(suite.store->registry, &page) : store_feed(suite.store, &page)), 0);
	return page;
}

/* Waits for open transactions, also those of other tests on the same server: until they end, the feed repeats
 * what it told. */
static struct feed_page feed_since(bool accounts, struct feed_cursor cursor)
{
	struct feed_page page;
	UNTIL((page = feed_read(accounts, (struct feed_page){.cursor = cursor, .settled = true})).count ==
	      feed_read(accounts, (struct feed_page){.cursor = cursor}).count);
	return page;
}

static struct feed_cursor feed_end(bool accounts)
{
	struct feed_page page = feed_read(accounts, (struct feed_page){.from_end = true});
	assert_int_equal(page.count, 0);
	return feed_since(accounts, page.cursor).cursor;
}

static void assert_entry(const struct feed_entry *e, enum feed_kind kind, uint64_t id, const char *name,
                         const char *changes)
{
	assert_int_equal(e->kind, kind);
	assert_int_equal(e->id, id);
	assert_int_equal(e->actor, ACTOR);
	assert_str(e->name, str_of(name));
	assert_str(e->changes, str_of(changes));
}

static struct store_write by_actor(struct store_write w)
{
	w.actor = ACTOR;
	return w;
}

TEST(a_change_is_told_with_who_made_it_and_what_it_was_before)
{
	struct feed_cursor cursor = feed_end(false);
	struct store_write made = by_actor(kit_alias(&suite.arena, 1, "name"));
	assert_int_equal(kit_apply(suite.store, &made), 0);
	struct store_write change = by_actor(on_alias(STORE_LINK_UPDATE, "name"));
	change.fields = LINK_TITLE;
	change.link.title = STR("new");
	assert_int_equal(kit_apply(suite.store, &change), 0);
	struct feed_page page = feed_since(false, cursor);
	assert_int_equal(page.count, 2);
	assert_false(page.lost);
	assert_entry(&page.entries[0], FEED_LINK_MADE, 1, "name", NULL);
	assert_int_equal(page.entries[0].at_ms, made.now_ms);
	assert_int_equal(page.entries[1].kind, FEED_LINK_CHANGED);
	assert_non_null(memmem(page.entries[1].changes.ptr, page.entries[1].changes.len, "\"title\":[", 9));
	assert_non_null(memmem(page.entries[1].changes.ptr, page.entries[1].changes.len, "\"new\"]", 6));

	struct store_write gone = by_actor(on_alias(STORE_LINK_DELETE, "name"));
	assert_int_equal(kit_apply(suite.store, &gone), 0);
	page = feed_since(false, page.cursor);
	assert_int_equal(page.count, 1);
	assert_int_equal(page.entries[0].kind, FEED_LINK_REMOVED);
	assert_non_null(memmem(page.entries[0].changes.ptr, page.entries[0].changes.len, ",null]", 6));
	page = feed_since(false, page.cursor);
	assert_int_equal(page.count, 0);
}

TEST(what_failed_is_not_told)
{
	create_alias(1, "name");
	struct feed_cursor cursor = feed_end(false);
	struct store_write batch[] = {
	    kit_alias(&suite.arena, 2, "name"), on_alias(STORE_LINK_DELETE, "other"),
	    by_actor(kit_generated(&suite.arena, 3)), kit_generated(&suite.arena, 1)};
	/* The last one's row is the alias's, if that is looked for. */
	assert_int_equal(store_apply(suite.store, batch, suite.backend->has_parts ? 3 : 4), 0);
	assert_int_equal(batch[0].result, ERR_CONFLICT);
	assert_int_equal(batch[3].result, suite.backend->has_parts ? 0 : ERR_CONFLICT);
	struct feed_page page = feed_since(false, cursor);
	assert_int_equal(page.count, 1);
	assert_entry(&page.entries[0], FEED_LINK_MADE, 3, "g3", NULL);
}

TEST(changes_of_one_batch_are_reported_in_their_order)
{
	create_alias(1, "old");
	struct feed_cursor cursor = feed_end(false);
	struct store_write change = on_alias(STORE_LINK_UPDATE, "new");
	change.fields = LINK_NOTE;
	change.link.note = STR("x");
	struct store_write batch[] = {on_alias(STORE_LINK_DELETE, "old"), kit_alias(&suite.arena, 2, "old"),
	                              kit_alias(&suite.arena, 3, "new"), change};
	assert_int_equal(store_apply(suite.store, batch, 4), 0);
	struct feed_page page = feed_since(false, cursor);
	const enum feed_kind kinds[] = {FEED_LINK_REMOVED, FEED_LINK_MADE, FEED_LINK_MADE, FEED_LINK_CHANGED};
	assert_int_equal(page.count, ARRAY_LEN(kinds));
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		assert_int_equal(page.entries[i].kind, kinds[i]);
}

TEST(secrets_are_not_told)
{
	create_alias(1, "name");
	struct feed_cursor cursor = feed_end(false);
	struct store_write change = on_alias(STORE_LINK_UPDATE, "name");
	change.fields = LINK_PASSWORD;
	change.link.password = STR("$argon2id$secret");
	assert_int_equal(kit_apply(suite.store, &change), 0);
	struct feed_page page = feed_since(false, cursor);
	assert_int_equal(page.count, 1);
	assert_null(memmem(page.entries[0].changes.ptr, page.entries[0].changes.len, "secret", 6));
	assert_non_null(memmem(page.entries[0].changes.ptr, page.entries[0].changes.len, "has_password", 12));
}

TEST(accounts_have_a_feed_of_their_own)
{
	struct feed_cursor links = feed_end(false), cursor = feed_end(true);
	struct registry_write user = kit_user(&suite.arena, "a@b.example", ROLE_ADMIN);
	user.actor = ACTOR;
	assert_int_equal(kit_apply(suite.store, &user), 0);
	struct registry_write key = kit_key(&suite.arena, 5, user.user.id);
	assert_int_equal(kit_apply(suite.store, &key), 0);
	struct feed_page page = feed_since(true, cursor);
	assert_int_equal(page.count, 2);
	assert_int_equal(page.entries[0].kind, FEED_USER);
	assert_int_equal(page.entries[0].id, user.user.id);
	assert_int_equal(page.entries[0].actor, ACTOR);
	assert_int_equal(page.entries[1].kind, FEED_KEY);
	assert_int_equal(page.entries[1].id, key.key.id);
	assert_str(page.entries[1].name, str_n((const char *)key.key.digest, KEY_DIGEST_BYTES));
	struct registry_write used = {.kind = REGISTRY_KEY_USED, .key = {.id = key.key.id, .used_ms = 9}};
	assert_int_equal(kit_apply(suite.store, &used), 0);
	page = feed_since(true, page.cursor);
	assert_int_equal(page.count, 0); /* a key's use is no change */
	page = feed_since(false, links);
	assert_int_equal(page.count, 0);
}

TEST(pages_cover_the_feed_once)
{
	enum { CHANGES = 25 };
	struct feed_cursor cursor = feed_end(false);
	for (uint64_t i = 1; i <= CHANGES; i++)
		create_generated(i);
	assert_int_equal(feed_since(false, cursor).count, CHANGES);
	uint64_t next = 1;
	for (bool more = true; more;) {
		struct feed_page page = {.cursor = cursor, .arena = &suite.arena, .max = 7, .settled = true};
		assert_int_equal(store_feed(suite.store, &page), 0);
		for (size_t i = 0; i < page.count; i++)
			assert_int_equal(page.entries[i].id, next++);
		cursor = page.cursor;
		more = page.more;
	}
	assert_int_equal(next, CHANGES + 1);
}

TEST(a_reader_behind_what_was_pruned_gets_an_error)
{
	create_generated(1);
	struct feed_cursor early = feed_end(false);
	for (uint64_t i = 2; i <= 5; i++)
		create_generated(i);
	struct feed_cursor late = feed_since(false, early).cursor;
	struct store_write w = kit_generated(&suite.arena, 6);
	w.now_ms = KIT_NOW_MS + 1000;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	size_t gone;
	assert_int_equal(store_feed_prune(suite.store, KIT_NOW_MS + 500, &gone), 0);
	assert_int_equal(gone, 5);
	struct feed_page page = feed_since(false, early);
	assert_true(page.lost);
	page = feed_since(false, late);
	assert_false(page.lost);
	assert_int_equal(page.count, 1);
	assert_int_equal(page.entries[0].id, 6);
	assert_int_equal(store_feed_prune(suite.store, KIT_NOW_MS + 500, &gone), 0);
	assert_int_equal(gone, 0);
}

TEST(what_was_pruned_stays_known_when_clocks_differ)
{
	size_t gone;
	const int64_t at_ms[] = {105, 100, 200}; /* the first by a clock that is ahead */
	for (unsigned i = 0; i < ARRAY_LEN(at_ms); i++) {
		struct store_write w = kit_generated(&suite.arena, i + 1);
		w.now_ms = at_ms[i];
		assert_int_equal(kit_apply(suite.store, &w), 0);
	}
	struct feed_page page = {.arena = &suite.arena, .max = 1, .settled = true};
	UNTIL(store_feed(suite.store, &page) == 0 && page.count > 0);
	assert_int_equal(page.entries[0].id, 1);
	for (int64_t until_ms = 103; until_ms <= 110; until_ms += 7) {
		assert_int_equal(store_feed_prune(suite.store, until_ms, &gone), 0);
		assert_int_equal(gone, 1);
		assert_true(feed_since(false, page.cursor).lost);
	}
}

int store_suite_feed_run(const char *name)
{
	return RUN_TESTS(.name = name, .setup = suite_setup, .teardown = suite_teardown);
}
