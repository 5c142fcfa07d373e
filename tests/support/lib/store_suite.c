#include "lib/store_suite.h"
#include "base/buf.h"
#include "lib/store_kit.h"
#include "lib/store_suite_private.h"
#include "lib/test.h"

static const int64_t day_ms = 24LL * 3600 * 1000;

enum { CALLER = 5, OTHER_CALLER = 6 }; /* neither owns a link */

struct suite suite;

/* --- lookup --- */

static struct test_list reopening;

TEST(a_generated_link_is_found_by_its_id)
{
	struct link_record link;
	create_generated(3);
	assert_int_equal(find(3, "g3", &link), 0);
	assert_int_equal(link.id, 3);
	assert_false(link.is_alias);
	assert_null(link.key.ptr);
	assert_str(link.url, STR("https://example.com/3"));
}

TEST(an_alias_is_found_by_its_name)
{
	struct link_record link;
	create_alias(3, "spring");
	assert_int_equal(find(0, "spring", &link), 0);
	assert_int_equal(link.id, 3);
	assert_true(link.is_alias);
	assert_str(link.key, STR("spring"));
}

TEST(an_alias_is_found_by_its_name_when_the_name_decodes_to_an_id)
{
	struct link_record link;
	create_alias(3, "spring");
	create_alias(4, "autumn");
	assert_int_equal(find(99, "spring", &link), 0);
	assert_int_equal(link.id, 3);
	assert_int_equal(find(3, "autumn", &link), 0); /* row 3 is there, but goes by another name */
	assert_int_equal(link.id, 4);
}

TEST(an_alias_is_not_found_by_the_id_of_its_row)
{
	create_alias(3, "spring");
	assert_int_equal(find(3, "g3", NULL), ERR_NOT_FOUND);
}

TEST(without_a_key_a_link_is_found_by_its_row_whatever_its_name)
{
	create_generated(3);
	create_alias(4, "spring");
	struct store_lookup reads[] = {{.ref = {.id = 3}, .arena = &suite.arena},
	                               {.ref = {.id = 4}, .arena = &suite.arena},
	                               {.ref = {.id = 5}, .arena = &suite.arena},
	                               {.ref = {.id = 0}, .arena = &suite.arena}};
	assert_int_equal(store_lookup(suite.store, reads, ARRAY_LEN(reads)), 0);
	assert_int_equal(reads[0].result, 0);
	assert_int_equal(reads[0].link.id, 3);
	assert_int_equal(reads[1].result, 0);
	assert_str(reads[1].link.key, STR("spring"));
	assert_int_equal(reads[2].result, ERR_NOT_FOUND);
	assert_int_equal(reads[3].result, ERR_NOT_FOUND);
}

TEST(what_was_never_made_is_not_found)
{
	create_generated(3);
	assert_int_equal(find(4, "g4", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(0, "g3", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(0, "", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(INT64_MAX, "x", NULL), ERR_NOT_FOUND);
	assert_int_equal(find((uint64_t)INT64_MAX + 4, "x", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(UINT64_MAX, "x", NULL), ERR_NOT_FOUND);
}

TEST(names_are_bytes)
{
	struct link_record link;
	create_alias(1, "Spring");
	create_alias(2, "spring");
	create_alias(3, "spring ");
	create_alias(4, "\xff\xfe");
	assert_int_equal(find(0, "spring", &link), 0);
	assert_int_equal(link.id, 2);
	assert_int_equal(find(0, "\xff\xfe", &link), 0);
	assert_int_equal(link.id, 4);
	assert_int_equal(find(0, "SPRING", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(0, "sprin", NULL), ERR_NOT_FOUND);
}

TEST(every_field_comes_back_as_it_was_given)
{
	char *url = arena_alloc(&suite.arena, 8192);
	memset(url, 'u', 8192);
	struct store_write w = kit_alias(&suite.arena, INT64_MAX, "full");
	w.link = (struct link_record){.id = INT64_MAX,
	                              .is_alias = true,
	                              .key = w.link.key,
	                              .owner = 1ULL << 62,
	                              .api_key = (1ULL << 61) + 1,
	                              .user_name = STR("J\xc3\xbcrgen"),
	                              .url = str_n(url, 8192),
	                              .created_ms = 1,
	                              .updated_ms = 1LL << 50,
	                              .not_before_ms = (1LL << 50) + 3,
	                              .expires_ms = 1LL << 51,
	                              .expired_url = STR("https://late.example/"),
	                              .max_clicks = (1ULL << 60) + 7,
	                              .redirect_status = 65535,
	                              .enabled = false,
	                              .is_private = true,
	                              .password = STR("$argon2id$v=19$m=65536,t=2,p=1$c2FsdA$aGFzaA"),
	                              .title = STR("a \0 in it"),
	                              .note = STR("\xff not text"),
	                              .tags = STR("[\"a\",\"b\"]"),
	                              .external_id = STR("crm-7")};
	struct link_record link;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(find(0, "full", &link), 0);
	assert_link(&link, &w.link);
}

TEST(absent_strings_stay_absent_and_empty_ones_empty)
{
	struct store_write w = kit_generated(&suite.arena, 1);
	w.link.title = STR("");
	w.link.url = STR("");
	w.link.expired_url = STR("");
	struct link_record link;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(find(1, "g1", &link), 0);
	assert_non_null(link.title.ptr);
	assert_int_equal(link.title.len, 0);
	assert_non_null(link.url.ptr);
	assert_non_null(link.expired_url.ptr);
	assert_null(link.user_name.ptr);
	assert_null(link.password.ptr);
	assert_null(link.note.ptr);
	assert_null(link.tags.ptr);
}

TEST(reads_in_one_go_have_results_of_their_own)
{
	create_generated(1);
	create_alias(2, "two");
	struct arena other = {0};
	struct store_lookup reads[] = {
	    {.ref = {1, STR("g1")}, .arena = &suite.arena}, {.ref = {9, STR("g9")}, .arena = &other},
	    {.ref = {0, STR("two")}, .arena = &other},      {.ref = {1, STR("g1")}, .arena = &other},
	    {.ref = {2, STR("g2")}, .arena = &suite.arena},
	};
	assert_int_equal(store_lookup(suite.store, reads, ARRAY_LEN(reads)), 0);
	assert_int_equal(reads[0].result, 0);
	assert_int_equal(reads[0].link.id, 1);
	assert_int_equal(reads[1].result, ERR_NOT_FOUND);
	assert_int_equal(reads[2].result, 0);
	assert_int_equal(reads[2].link.id, 2);
	assert_int_equal(reads[3].result, 0);
	assert_int_equal(reads[3].link.id, 1);
	assert_int_equal(reads[4].result, ERR_NOT_FOUND);
	arena_release(&other);
	assert_str(reads[0].link.url, STR("https://example.com/1"));
	assert_int_equal(store_lookup(suite.store, reads, 0), 0);
}

TEST(what_was_read_stays_when_the_link_goes)
{
	struct link_record link;
	create_alias(1, "one");
	assert_int_equal(find(0, "one", &link), 0);
	struct store_write w = on_alias(STORE_LINK_DELETE, "one");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	for (uint64_t id = 2; id < 20; id++)
		create_generated(id);
	assert_str(link.url, STR("https://example.com/1"));
	assert_str(link.key, STR("one"));
}

/* --- create --- */

TEST(an_alias_is_taken_once)
{
	create_alias(1, "name");
	struct store_write w = kit_alias(&suite.arena, 2, "name");
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	struct link_record link;
	assert_int_equal(find(0, "name", &link), 0);
	assert_int_equal(link.id, 1);
	create_alias(2, "other"); /* the row of the loser was not made */
}

TEST(an_alias_may_not_look_like_a_generated_key_that_is_there)
{
	create_generated(5);
	struct store_write w = kit_alias(&suite.arena, 6, "g5");
	w.ref.id = 5;
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	create_generated(6);
}

TEST(an_alias_may_look_like_a_generated_key_that_is_not_there)
{
	create_alias(5, "five"); /* row 5 is there, but no generated key stands for it */
	struct store_write w = kit_alias(&suite.arena, 6, "g5");
	w.ref.id = 5;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = kit_alias(&suite.arena, 7, "g8");
	w.ref.id = 8;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = kit_alias(&suite.arena, 9, "huge");
	w.ref.id = UINT64_MAX;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct link_record link;
	assert_int_equal(find(5, "g5", &link), 0);
	assert_int_equal(link.id, 6);
}

TEST(a_generated_key_may_not_meet_an_alias_of_its_text)
{
	create_alias(1, "g5");
	struct store_write w = kit_generated(&suite.arena, 5);
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	struct link_record link;
	assert_int_equal(find(5, "g5", &link), 0);
	assert_int_equal(link.id, 1);
	create_alias(5, "row-five-is-free");
}

TEST(a_row_is_taken_once)
{
	if (suite.backend->has_parts)
		return; /* ids come from one counter */
	create_generated(1);
	create_alias(2, "two");
	struct store_write w = kit_generated(&suite.arena, 1);
	w.link.url = STR("https://other.example/");
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = kit_alias(&suite.arena, 1, "one");
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = kit_generated(&suite.arena, 2);
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = kit_alias(&suite.arena, 2, "zwei");
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	assert_int_equal(find(0, "one", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(0, "zwei", NULL), ERR_NOT_FOUND);
	struct link_record link;
	assert_int_equal(find(1, "g1", &link), 0);
	assert_str(link.url, STR("https://example.com/1"));
}

TEST(ids_need_not_come_in_order)
{
	const uint64_t ids[] = {500, 3, 1000000000000, 4, 499, 1};
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		create_generated(ids[i]);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		assert_int_equal(kit_find_generated(suite.store, &suite.arena, ids[i]), 0);
}

TEST(a_change_that_fails_does_not_stop_the_others)
{
	create_alias(1, "taken");
	struct store_write batch[] = {
	    kit_generated(&suite.arena, 2),
	    kit_alias(&suite.arena, 3, "taken"),
	    on_generated(STORE_LINK_DELETE, 77),
	    kit_alias(&suite.arena, 4, "free"),
	};
	assert_int_equal(store_apply(suite.store, batch, ARRAY_LEN(batch)), 0);
	assert_int_equal(batch[0].result, 0);
	assert_int_equal(batch[1].result, ERR_CONFLICT);
	assert_int_equal(batch[2].result, ERR_NOT_FOUND);
	assert_int_equal(batch[3].result, 0);
	assert_int_equal(find(2, "g2", NULL), 0);
	assert_int_equal(find(0, "free", NULL), 0);
	create_generated(3);
}

TEST(a_batch_of_nothing_is_done)
{
	assert_int_equal(store_apply(suite.store, NULL, 0), 0);
}

TEST(a_large_batch_is_made_whole)
{
	enum { MANY = 5000 };
	struct store_write *batch = calloc(MANY, sizeof(*batch));
	struct store_lookup *reads = calloc(MANY, sizeof(*reads));
	for (size_t i = 0; i < MANY; i++) {
		batch[i] = kit_generated(&suite.arena, i + 1);
		reads[i] = (struct store_lookup){.ref = batch[i].ref, .arena = &suite.arena};
	}
	assert_int_equal(store_apply(suite.store, batch, MANY), 0);
	assert_int_equal(store_lookup(suite.store, reads, MANY), 0);
	for (size_t i = 0; i < MANY; i++) {
		assert_int_equal(batch[i].result, 0);
		assert_int_equal(reads[i].result, 0);
		assert_link(&reads[i].link, &batch[i].link);
	}
	free(batch);
	free(reads);
}

/* --- update, delete, reap --- */

TEST(an_update_sets_the_named_fields_and_no_others)
{
	struct store_write w = kit_generated(&suite.arena, 1);
	w.link.user_name = STR("who");
	w.link.title = STR("title");
	w.link.note = STR("note");
	w.link.tags = STR("[]");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct link_record expected = w.link;
	const struct link_record changes = {
	    .id = 99, /* of the first six only the owner is a field to set, with api_key */
	    .is_alias = true,
	    .key = STR("no"),
	    .owner = 99,
	    .api_key = 99,
	    .user_name = STR("no"),
	    .url = STR("https://new.example/"),
	    .created_ms = 99,
	    .updated_ms = 99,
	    .not_before_ms = 66666,
	    .expires_ms = 77777,
	    .expired_url = STR("https://late.example/"),
	    .max_clicks = 5,
	    .redirect_status = 308,
	    .enabled = false,
	    .is_private = true,
	    .password = STR("$argon2id$new"),
	    .title = STR("new title"),
	    .note = STR("new note"),
	    .tags = STR("[\"new\"]")};
	for (unsigned bit = 0; bit < 13; bit++) {
		w = on_generated(STORE_LINK_UPDATE, 1);
		w.now_ms = KIT_NOW_MS + 100 + bit;
		w.fields = 1U << bit;
		w.link = changes;
		expected.updated_ms = w.now_ms;
		switch (w.fields) {
		case LINK_URL: expected.url = changes.url; break;
		case LINK_EXPIRES: expected.expires_ms = changes.expires_ms; break;
		case LINK_STATUS: expected.redirect_status = changes.redirect_status; break;
		case LINK_ENABLED: expected.enabled = changes.enabled; break;
		case LINK_TITLE: expected.title = changes.title; break;
		case LINK_NOTE: expected.note = changes.note; break;
		case LINK_TAGS: expected.tags = changes.tags; break;
		case LINK_NOT_BEFORE: expected.not_before_ms = changes.not_before_ms; break;
		case LINK_EXPIRED_URL: expected.expired_url = changes.expired_url; break;
		case LINK_MAX_CLICKS: expected.max_clicks = changes.max_clicks; break;
		case LINK_PRIVATE: expected.is_private = changes.is_private; break;
		case LINK_PASSWORD: expected.password = changes.password; break;
		case LINK_OWNER:
			expected.owner = changes.owner;
			expected.api_key = changes.api_key;
			break;
		}
		assert_int_equal(kit_apply(suite.store, &w), 0);
		assert_link(&w.link, &expected);
		struct link_record link;
		assert_int_equal(find(1, "g1", &link), 0);
		assert_link(&link, &expected);
	}
}

TEST(an_update_can_take_a_string_away)
{
	struct store_write w = kit_alias(&suite.arena, 1, "name");
	w.link.title = STR("title");
	w.link.note = STR("note");
	w.link.password = STR("secret");
	w.link.expired_url = STR("https://late.example/");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = on_alias(STORE_LINK_UPDATE, "name");
	w.fields = LINK_TITLE | LINK_EXPIRES | LINK_PASSWORD | LINK_EXPIRED_URL;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_null(w.link.title.ptr);
	assert_null(w.link.password.ptr);
	assert_null(w.link.expired_url.ptr);
	assert_str(w.link.note, STR("note"));
	assert_str(w.link.key, STR("name"));
	struct link_record link;
	assert_int_equal(find(0, "name", &link), 0);
	assert_link(&link, &w.link);
}

TEST(what_an_update_gives_back_is_its_own_copy)
{
	create_generated(1);
	char title[] = "passing";
	struct store_write w = on_generated(STORE_LINK_UPDATE, 1);
	w.fields = LINK_TITLE;
	w.link.title = str_of(title);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	memset(title, 'x', sizeof(title) - 1);
	assert_str(w.link.title, STR("passing"));
	struct link_record link;
	assert_int_equal(find(1, "g1", &link), 0);
	assert_str(link.title, STR("passing"));
}

TEST(what_is_not_there_cannot_be_changed)
{
	static const enum store_write_kind kinds[] = {STORE_LINK_UPDATE, STORE_LINK_DELETE, STORE_LINK_SWEEP,
	                                              STORE_PERMIT, STORE_FORBID};
	create_alias(1, "one");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct store_write w = on_generated(kinds[i], 1);
		assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
		w = on_alias(kinds[i], "two");
		assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
	}
	assert_int_equal(find(0, "one", NULL), 0);
}

TEST(a_delete_gives_back_what_it_removed)
{
	struct store_write made[] = {kit_generated(&suite.arena, 1), kit_alias(&suite.arena, 2, "two")};
	made[0].link.title = STR("title");
	made[1].link.tags = STR("[\"x\"]");
	assert_int_equal(store_apply(suite.store, made, 2), 0);
	struct store_write gone[] = {on_generated(STORE_LINK_DELETE, 1), on_alias(STORE_LINK_DELETE, "two")};
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(kit_apply(suite.store, &gone[i]), 0);
		assert_link(&gone[i].link, &made[i].link);
		assert_int_equal(kit_apply(suite.store, &gone[i]), ERR_NOT_FOUND);
	}
	assert_int_equal(find(1, "g1", NULL), ERR_NOT_FOUND);
	assert_int_equal(find(0, "two", NULL), ERR_NOT_FOUND);
	create_alias(3, "two"); /* its name is free again */
}

/* --- idempotency keys --- */

static struct store_write with_key(struct store_write w, const char *key, uint8_t fingerprint)
{
	w.idempotency_key = str_of(key);
	w.idempotency_owner = CALLER;
	memset(w.fingerprint, fingerprint, sizeof(w.fingerprint));
	return w;
}

TEST(the_same_create_again_gives_the_link_of_the_first)
{
	struct store_write first = with_key(kit_generated(&suite.arena, 1), "key", 1);
	first.replayed = true; /* must be overwritten */
	assert_int_equal(kit_apply(suite.store, &first), 0);
	assert_false(first.replayed);
	struct store_write again = with_key(kit_generated(&suite.arena, 2), "key", 1);
	assert_int_equal(kit_apply(suite.store, &again), 0);
	assert_true(again.replayed);
	assert_link(&again.link, &first.link);
	assert_int_equal(find(2, "g2", NULL), ERR_NOT_FOUND);
}

TEST(a_replay_of_an_alias_is_no_conflict_with_itself)
{
	struct store_write first = with_key(kit_alias(&suite.arena, 1, "name"), "key", 1);
	assert_int_equal(kit_apply(suite.store, &first), 0);
	struct store_write again = with_key(kit_alias(&suite.arena, 2, "name"), "key", 1);
	assert_int_equal(kit_apply(suite.store, &again), 0);
	assert_true(again.replayed);
	assert_link(&again.link, &first.link);
}

TEST(another_create_under_the_same_key_is_refused)
{
	struct store_write first = with_key(kit_generated(&suite.arena, 1), "key", 1);
	assert_int_equal(kit_apply(suite.store, &first), 0);
	struct store_write other = with_key(kit_generated(&suite.arena, 2), "key", 2);
	assert_int_equal(kit_apply(suite.store, &other), ERR_INVALID);
	assert_false(other.replayed);
	assert_int_equal(find(2, "g2", NULL), ERR_NOT_FOUND);
}

TEST(idempotency_keys_belong_to_the_caller)
{
	struct store_write mine = with_key(kit_generated(&suite.arena, 1), "key", 1);
	assert_int_equal(kit_apply(suite.store, &mine), 0);
	struct store_write theirs = with_key(kit_generated(&suite.arena, 2), "key", 2);
	theirs.idempotency_owner = OTHER_CALLER; /* for the same owner of the link */
	assert_int_equal(kit_apply(suite.store, &theirs), 0);
	assert_false(theirs.replayed);
	assert_int_equal(find(2, "g2", NULL), 0);
	struct store_write again = with_key(kit_generated(&suite.arena, 3), "key", 1);
	again.link.owner = 8; /* whose link it would be does not matter */
	assert_int_equal(kit_apply(suite.store, &again), 0);
	assert_true(again.replayed);
	assert_link(&again.link, &mine.link);
	again = with_key(kit_generated(&suite.arena, 3), "key", 2);
	again.idempotency_owner = OTHER_CALLER;
	assert_int_equal(kit_apply(suite.store, &again), 0);
	assert_true(again.replayed);
	assert_link(&again.link, &theirs.link);
}

TEST(a_replay_gives_the_link_even_when_its_owner_has_changed)
{
	struct store_write w = with_key(kit_generated(&suite.arena, 1), "key", 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = on_generated(STORE_LINK_UPDATE, 1);
	w.fields = LINK_OWNER;
	w.link.owner = 8;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct store_write again = with_key(kit_generated(&suite.arena, 2), "key", 1);
	assert_int_equal(kit_apply(suite.store, &again), 0);
	assert_true(again.replayed);
	assert_link(&again.link, &w.link);
	assert_int_equal(again.link.owner, 8);
}

TEST(a_replay_of_a_link_that_is_gone_is_not_found)
{
	struct store_write w = with_key(kit_generated(&suite.arena, 1), "key", 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = on_generated(STORE_LINK_DELETE, 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = with_key(kit_generated(&suite.arena, 2), "key", 1);
	assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND);
	assert_true(w.replayed);
	assert_int_equal(find(2, "g2", NULL), ERR_NOT_FOUND);
}

TEST(a_replay_shows_the_link_as_it_is_now)
{
	struct store_write w = with_key(kit_generated(&suite.arena, 1), "key", 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = on_generated(STORE_LINK_UPDATE, 1);
	w.fields = LINK_TITLE;
	w.link.title = STR("since");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = with_key(kit_generated(&suite.arena, 2), "key", 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_str(w.link.title, STR("since"));
}

TEST(a_replay_works_inside_one_batch)
{
	struct store_write batch[] = {with_key(kit_generated(&suite.arena, 1), "key", 1),
	                              with_key(kit_generated(&suite.arena, 2), "key", 1),
	                              with_key(kit_generated(&suite.arena, 3), "key", 9)};
	struct link_record made = batch[0].link;
	assert_int_equal(store_apply(suite.store, batch, 3), 0);
	assert_int_equal(batch[0].result, 0);
	assert_false(batch[0].replayed);
	assert_int_equal(batch[1].result, 0);
	assert_true(batch[1].replayed);
	assert_link(&batch[1].link, &made);
	assert_int_equal(batch[2].result, ERR_INVALID);
}

TEST(old_idempotency_keys_go_and_young_ones_stay)
{
	for (uint64_t i = 1; i <= 60; i++) {
		struct store_write w = with_key(
		    kit_generated(&suite.arena, i),
		    arena_printf(&suite.arena, "k%llu", (unsigned long long)i).ptr, 1);
		w.now_ms = KIT_NOW_MS + (int64_t)i;
		assert_int_equal(kit_apply(suite.store, &w), 0);
	}
	for (uint64_t i = 101; i <= 160; i++) { /* a day after the thirtieth */
		struct store_write w = kit_generated(&suite.arena, i);
		w.now_ms = KIT_NOW_MS + 30 + day_ms;
		assert_int_equal(kit_apply(suite.store, &w), 0);
	}
	for (uint64_t i = 1; i <= 60; i++) {
		struct store_write w = with_key(
		    kit_generated(&suite.arena, 200 + i),
		    arena_printf(&suite.arena, "k%llu", (unsigned long long)i).ptr, 1);
		w.now_ms = KIT_NOW_MS + 30 + day_ms;
		assert_int_equal(kit_apply(suite.store, &w), 0);
		assert_int_equal(w.replayed, i > 30);
	}
}

/* --- permissions --- */

static struct store_list list(uint64_t owner, struct str cursor, size_t limit)
{
	struct store_list page = {.owner = owner, .cursor = cursor, .limit = limit, .arena = &suite.arena};
	assert_int_equal(store_list(suite.store, &page), 0);
	return page;
}

TEST(a_list_of_nothing_is_empty)
{
	struct store_list page = {.limit = 5, .arena = &suite.arena, .count = 9, .next = STR("x")};
	assert_int_equal(store_list(suite.store, &page), 0);
	assert_int_equal(page.count, 0);
	assert_null(page.next.ptr);
	create_generated(1);
	page = list(99, STR_NULL, 5);
	assert_int_equal(page.count, 0);
	assert_null(page.next.ptr);
}

TEST(a_list_is_newest_first_and_whole)
{
	struct store_write w = kit_alias(&suite.arena, 2, "two");
	w.link.title = STR("title");
	create_generated(3);
	create_generated(1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct store_list page = list(0, STR_NULL, 10);
	assert_int_equal(page.count, 3);
	assert_null(page.next.ptr);
	assert_int_equal(page.links[0].id, 3);
	assert_link(&page.links[1], &w.link);
	assert_int_equal(page.links[2].id, 1);
}

/* Ids 1 to `count`; owners 1, 2, 3 in turn. */
static void create_for_three(size_t count)
{
	struct store_write *batch = calloc(count, sizeof(*batch));
	for (size_t i = 0; i < count; i++) {
		batch[i] = kit_generated(&suite.arena, i + 1);
		batch[i].link.owner = i % 3 + 1;
	}
	assert_int_equal(store_apply(suite.store, batch, count), 0);
	free(batch);
}

TEST(pages_cover_everything_once)
{
	enum { COUNT = 100 };
	create_for_three(COUNT);
	for (size_t limit = 1; limit <= COUNT + 1; limit += 9) {
		struct str cursor = STR_NULL;
		uint64_t expected = COUNT;
		do {
			struct store_list page = list(0, cursor, limit);
			assert_int_equal(page.count, MIN(limit, expected));
			for (size_t i = 0; i < page.count; i++)
				assert_int_equal(page.links[i].id, expected--);
			cursor = page.next;
		} while (cursor.ptr);
		assert_int_equal(expected, 0);
	}
}

TEST(a_page_ends_early_at_its_bytes)
{
	create_for_three(50);
	struct str cursor = STR_NULL;
	uint64_t expected = 50;
	do {
		struct store_list page = {
		    .cursor = cursor, .limit = 50, .bytes_max = 60, .arena = &suite.arena};
		assert_int_equal(store_list(suite.store, &page), 0);
		assert_in_range(page.count, 1, 10); /* a URL has some 21 bytes */
		for (size_t i = 0; i < page.count; i++)
			assert_int_equal(page.links[i].id, expected--);
		cursor = page.next;
	} while (cursor.ptr);
	assert_int_equal(expected, 0);
	struct store_list page = {.limit = 50, .bytes_max = 1, .arena = &suite.arena}; /* never none at all */
	assert_int_equal(store_list(suite.store, &page), 0);
	assert_int_equal(page.count, 1);
}

TEST(a_page_that_ends_the_list_exactly_says_so)
{
	create_for_three(10);
	struct store_list page = list(0, STR_NULL, 5);
	assert_non_null(page.next.ptr);
	page = list(0, page.next, 5);
	assert_int_equal(page.count, 5);
	assert_null(page.next.ptr);
}

TEST(an_owner_lists_only_what_is_theirs)
{
	create_for_three(100);
	for (uint64_t owner = 1; owner <= 3; owner++) {
		struct str cursor = STR_NULL;
		size_t seen = 0;
		uint64_t last = UINT64_MAX;
		do {
			struct store_list page = list(owner, cursor, 7);
			for (size_t i = 0; i < page.count; i++, seen++) {
				assert_int_equal(page.links[i].owner, owner);
				assert_true(page.links[i].id < last);
				last = page.links[i].id;
			}
			cursor = page.next;
		} while (cursor.ptr);
		assert_int_equal(seen, owner == 1 ? 34 : 33);
	}
}

TEST(a_page_may_be_larger_than_what_there_is)
{
	create_for_three(50);
	struct store_list page = list(0, STR_NULL, SIZE_MAX);
	assert_int_equal(page.count, 50);
	assert_null(page.next.ptr);
}

TEST(paging_goes_on_when_links_come_and_go)
{
	create_for_three(10);
	struct store_list page = list(0, STR_NULL, 4); /* 10 9 8 7 */
	create_generated(11);
	struct store_write gone[] = {on_generated(STORE_LINK_DELETE, 7), on_generated(STORE_LINK_DELETE, 6)};
	assert_int_equal(store_apply(suite.store, gone, 2), 0);
	page = list(0, page.next, 4);
	assert_int_equal(page.count, 4);
	assert_int_equal(page.links[0].id, 5);
	assert_int_equal(page.links[3].id, 2);
}

TEST(a_cursor_that_never_was_is_refused)
{
	create_for_three(10);
	const struct str cursors[] = {STR(""),
	                              STR("x"),
	                              STR("-1"),
	                              STR("+1"),
	                              STR(" 5"),
	                              STR("5 "),
	                              STR("0"),
	                              STR("05"),
	                              STR("5\0"),
	                              STR("99999999999999999999"),
	                              STR("9223372036854775808"),
	                              STR("5;DROP TABLE link")};
	for (size_t i = 0; i < ARRAY_LEN(cursors); i++) {
		struct store_list page = {
		    .cursor = cursors[i], .limit = 5, .arena = &suite.arena, .count = 77};
		assert_int_equal(store_list(suite.store, &page), ERR_INVALID);
		assert_int_equal(page.count, 77);
	}
}

TEST(a_page_without_room_is_refused)
{
	struct store_list page = {.limit = 0, .arena = &suite.arena};
	assert_int_equal(store_list(suite.store, &page), ERR_INVALID);
}

/* --- tags --- */

static void create_tagged(uint64_t id, const char *tags)
{
	struct store_write w = kit_generated(&suite.arena, id);
	w.link.tags = str_of(tags);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

static void set_tags(uint64_t id, const char *tags)
{
	struct store_write w = on_generated(STORE_LINK_UPDATE, id);
	w.fields = LINK_TAGS;
	w.link.tags = str_of(tags);
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

/* `expected` has the ids, newest first, each followed by a space. */
static void assert_tagged(const char *tag, const char *expected)
{
	uint64_t ids[100];
	size_t count = 77;
	char text[1024] = "";
	assert_int_equal(store_tagged(suite.store, str_of(tag), ARRAY_LEN(ids), ids, &count), 0);
	assert_true(count <= ARRAY_LEN(ids));
	for (size_t i = 0, len = 0; i < count; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%llu ", (unsigned long long)ids[i]);
	assert_string_equal(text, expected);
}

TEST(links_are_found_by_tag_newest_first)
{
	create_tagged(5, "[\"a\"]");
	create_tagged(2, "[\"b\",\"a\"]");
	create_tagged(9, "[\"a\",\"c\"]");
	create_tagged(7, "[]");
	create_generated(8);
	assert_tagged("a", "9 5 2 ");
	assert_tagged("b", "2 ");
	assert_tagged("c", "9 ");
	assert_tagged("A", "");
	assert_tagged("", "");
	assert_tagged("[\"a\"]", "");
}

TEST(no_more_links_of_a_tag_come_than_there_is_room_for)
{
	for (uint64_t id = 1; id <= 30; id++)
		create_tagged(id, "[\"t\"]");
	for (size_t max = 0; max <= 40; max += 5) {
		uint64_t ids[41];
		size_t count = 77;
		memset(ids, 0xff, sizeof(ids));
		assert_int_equal(store_tagged(suite.store, STR("t"), max, ids, &count), 0);
		assert_int_equal(count, MIN(max, 30));
		for (size_t i = 0; i < count; i++)
			assert_int_equal(ids[i], 30 - i);
		assert_int_equal(ids[count], UINT64_MAX);
	}
}

TEST(a_tag_is_what_its_json_stands_for)
{
	create_tagged(1, "[\"say \\\"hi\\\" \\\\ \",\"J\xc3\xbcrgen\"]");
	create_tagged(2, "[ \"J\\u00fcrgen\" , \"twice\", \"twice\" ]");
	create_tagged(3, "[1,null,[\"deep\"],{\"k\":\"v\"}]");
	create_tagged(4, "no JSON at all");
	create_tagged(5, "");
	assert_tagged("say \"hi\" \\ ", "1 ");
	assert_tagged("J\xc3\xbcrgen", "2 1 ");
	assert_tagged("twice", "2 ");
	assert_tagged("deep", "");
	assert_tagged("v", "");
	assert_tagged("1", "");
	set_tags(2, "[\"once\"]");
	set_tags(4, "[\"once\"]");
	assert_tagged("twice", "");
	assert_tagged("once", "4 2 ");
}

TEST(an_update_moves_a_link_from_tag_to_tag)
{
	create_tagged(1, "[\"a\",\"b\"]");
	create_tagged(2, "[\"a\"]");
	set_tags(1, "[\"b\",\"c\"]");
	assert_tagged("a", "2 ");
	assert_tagged("b", "1 ");
	assert_tagged("c", "1 ");
	struct store_write w = on_generated(STORE_LINK_UPDATE, 1);
	w.fields = LINK_TITLE;
	w.link.title = STR("other");
	w.link.tags = STR("[\"not-asked-for\"]");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_tagged("b", "1 ");
	assert_tagged("not-asked-for", "");
	set_tags(1, NULL);
	assert_tagged("b", "");
	assert_tagged("c", "");
	set_tags(1, "[\"a\"]");
	assert_tagged("a", "2 1 ");
}

TEST(a_link_that_goes_takes_its_tags_with_it)
{
	create_tagged(1, "[\"t\"]");
	create_tagged(2, "[\"t\",\"u\"]");
	struct store_write ended = kit_alias(&suite.arena, 3, "name");
	ended.link.tags = STR("[\"t\"]");
	ended.link.expires_ms = KIT_NOW_MS + 1;
	assert_int_equal(kit_apply(suite.store, &ended), 0);
	ended = kit_alias(&suite.arena, 4, "g6");
	ended.link.tags = STR("[\"t\"]");
	ended.link.expires_ms = KIT_NOW_MS + 1;
	assert_int_equal(kit_apply(suite.store, &ended), 0);
	assert_tagged("t", "4 3 2 1 ");

	struct store_write gone = on_generated(STORE_LINK_DELETE, 1);
	assert_int_equal(kit_apply(suite.store, &gone), 0);
	assert_tagged("t", "4 3 2 ");
	struct store_write heir = kit_alias(&suite.arena, 5, "name"); /* the holder of its name has ended */
	heir.now_ms = KIT_NOW_MS + 1;
	assert_int_equal(kit_apply(suite.store, &heir), 0);
	assert_tagged("t", "4 2 ");
	heir = kit_generated(&suite.arena, 6);
	heir.now_ms = KIT_NOW_MS + 1;
	heir.link.tags = STR("[\"u\"]");
	assert_int_equal(kit_apply(suite.store, &heir), 0);
	assert_tagged("t", "2 ");
	assert_tagged("u", "6 2 ");
	struct store_write expire = on_generated(STORE_LINK_UPDATE, 2);
	expire.fields = LINK_EXPIRES;
	expire.link.expires_ms = 1;
	assert_int_equal(kit_apply(suite.store, &expire), 0);
	assert_tagged("t", "2 "); /* ended, and still there */
	struct store_write reap = on_generated(STORE_LINK_SWEEP, 2);
	assert_int_equal(kit_apply(suite.store, &reap), 0);
	assert_tagged("t", "");
	assert_tagged("u", "6 ");
}

TEST(a_create_that_fails_leaves_no_tag)
{
	create_alias(1, "taken");
	struct store_write w = kit_alias(&suite.arena, 2, "taken");
	w.link.tags = STR("[\"t\"]");
	assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	w = kit_alias(&suite.arena, 1, "other");
	w.link.tags = STR("[\"t\"]");
	if (!suite.backend->has_parts)
		assert_int_equal(kit_apply(suite.store, &w), ERR_CONFLICT);
	assert_tagged("t", "");
}

/* --- click totals --- */

static void set_clicks(uint64_t id, uint64_t clicks)
{
	const struct store_count count = {.id = id, .clicks = clicks};
	assert_int_equal(store_set_clicks(suite.store, 1, &count, 1), 0);
}

static uint64_t clicks_of(uint64_t id)
{
	struct link_record link;
	assert_int_equal(find(id, arena_printf(&suite.arena, "g%llu", (unsigned long long)id).ptr, &link), 0);
	return link.clicks;
}

TEST(a_new_link_has_no_clicks_whatever_its_maker_says)
{
	struct store_write w = kit_generated(&suite.arena, 1);
	w.link.clicks = 99;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(clicks_of(1), 0);
}

TEST(a_total_is_shown_wherever_the_link_is)
{
	struct link_record link;
	struct store_write made = with_key(kit_generated(&suite.arena, 1), "key", 1);
	assert_int_equal(kit_apply(suite.store, &made), 0);
	create_alias(2, "two");
	const struct store_count counts[] = {{.id = 2, .clicks = INT64_MAX}, {.id = 1, .clicks = 41}};
	assert_int_equal(store_set_clicks(suite.store, 1, counts, ARRAY_LEN(counts)), 0);
	made.link.clicks = 41;

	assert_int_equal(find(1, "g1", &link), 0);
	assert_link(&link, &made.link); /* and nothing else has changed, updated_ms neither */
	assert_int_equal(find(0, "two", &link), 0);
	assert_true(link.clicks == INT64_MAX);
	struct store_list page = {.limit = 5, .arena = &suite.arena};
	assert_int_equal(store_list(suite.store, &page), 0);
	assert_int_equal(page.links[1].clicks, 41);
	struct store_write w = with_key(kit_generated(&suite.arena, 9), "key", 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(w.link.clicks, 41);
	w = on_generated(STORE_LINK_UPDATE, 1);
	w.fields = LINK_TITLE;
	w.link.clicks = 1000;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(w.link.clicks, 41);
	assert_int_equal(clicks_of(1), 41);
	w = on_generated(STORE_LINK_DELETE, 1);
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(w.link.clicks, 41);
	w = on_alias(STORE_LINK_DELETE, "two");
	assert_int_equal(kit_apply(suite.store, &w), 0);
	create_alias(2, "two"); /* who takes the name begins at 0 */
	assert_int_equal(find(0, "two", &link), 0);
	assert_int_equal(link.clicks, 0);
}

TEST(totals_of_links_that_are_not_there_are_passed_over)
{
	create_generated(1);
	create_generated(3);
	const struct store_count counts[] = {{.id = 0, .clicks = 1},  {.id = 1, .clicks = 10},
	                                     {.id = 2, .clicks = 20}, {.id = UINT64_MAX, .clicks = 5},
	                                     {.id = 3, .clicks = 30}, {.id = 1, .clicks = 11}};
	assert_int_equal(store_set_clicks(suite.store, 1, counts, ARRAY_LEN(counts)), 0);
	assert_int_equal(clicks_of(1), 11);
	assert_int_equal(clicks_of(3), 30);
	assert_int_equal(find(2, "g2", NULL), ERR_NOT_FOUND);
	assert_int_equal(store_set_clicks(suite.store, 1, NULL, 0), 0);
}

TEST(a_total_may_be_set_again_and_may_fall)
{
	create_generated(1);
	set_clicks(1, 5);
	set_clicks(1, 5);
	assert_int_equal(clicks_of(1), 5);
	set_clicks(1, 2);
	assert_int_equal(clicks_of(1), 2);
}

TEST(as_many_totals_as_are_allowed_are_set_at_once)
{
	struct store_write batch[STORE_COUNTS_MAX];
	struct store_count counts[STORE_COUNTS_MAX];
	for (size_t i = 0; i < STORE_COUNTS_MAX; i++) {
		batch[i] = kit_generated(&suite.arena, i + 1);
		counts[i] = (struct store_count){.id = STORE_COUNTS_MAX - i, .clicks = 3 * i + 1};
	}
	assert_int_equal(store_apply(suite.store, batch, STORE_COUNTS_MAX), 0);
	assert_int_equal(store_set_clicks(suite.store, 1, counts, STORE_COUNTS_MAX), 0);
	for (size_t i = 0; i < STORE_COUNTS_MAX; i++)
		assert_int_equal(clicks_of(counts[i].id), counts[i].clicks);
}

/* --- random changes against a model --- */

enum { MODEL_IDS = 24, MODEL_TAGS = 5, MODEL_STEPS = 1500 };

struct model {
	bool there;
	unsigned tags; /* a set of bits */
	uint64_t clicks;
};

static struct model model[MODEL_IDS + 1];

static uint32_t random_state;

static uint32_t random_below(uint32_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	random_state ^= random_state << 5;
	return random_state % bound;
}

static struct str tags_text(unsigned tags)
{
	CLEANUP(buf_release) struct buf b = {0};
	for (unsigned i = 0; i < MODEL_TAGS; i++) {
		if (tags & 1U << i)
			buf_printf(&b, "%s\"t%u\"", b.len ? "," : "[", i);
	}
	if (b.len == 0)
		return random_below(2) ? STR("[]") : STR_NULL;
	buf_char(&b, ']');
	return arena_str(&suite.arena, buf_view(&b));
}

/* The model's links come and go under names that were chosen: a generated key is never given out twice. */
static const char *model_name(uint64_t id)
{
	return arena_printf(&suite.arena, "m%llu", (unsigned long long)id).ptr;
}

static void model_create(uint64_t id)
{
	struct model *m = &model[id];
	unsigned tags = random_below(1U << MODEL_TAGS);
	struct store_write w = kit_alias(&suite.arena, id, model_name(id));
	w.link.tags = tags_text(tags);
	w.link.clicks = 7;
	assert_int_equal(kit_apply(suite.store, &w), m->there ? ERR_CONFLICT : 0);
	if (!m->there)
		*m = (struct model){.there = true, .tags = tags};
}

static void model_update(uint64_t id)
{
	struct model *m = &model[id];
	struct store_write w = on_alias(STORE_LINK_UPDATE, model_name(id));
	unsigned tags = random_below(1U << MODEL_TAGS);
	w.fields = random_below(4) ? LINK_TAGS : LINK_NOTE;
	w.link.tags = tags_text(tags);
	assert_int_equal(kit_apply(suite.store, &w), m->there ? 0 : ERR_NOT_FOUND);
	if (m->there && w.fields == LINK_TAGS)
		m->tags = tags;
}

static void model_remove(uint64_t id)
{
	struct model *m = &model[id];
	struct store_write w = on_alias(STORE_LINK_DELETE, model_name(id));
	assert_int_equal(kit_apply(suite.store, &w), m->there ? 0 : ERR_NOT_FOUND);
	if (m->there)
		assert_int_equal(w.link.clicks, m->clicks);
	*m = (struct model){0};
}

static void model_count(void)
{
	struct store_count counts[4];
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		counts[i].id = 1 + random_below(MODEL_IDS);
		counts[i].clicks = random_below(1000);
		if (model[counts[i].id].there)
			model[counts[i].id].clicks = counts[i].clicks;
	}
	assert_int_equal(store_set_clicks(suite.store, 1, counts, ARRAY_LEN(counts)), 0);
}

static void assert_model(void)
{
	for (unsigned tag = 0; tag < MODEL_TAGS; tag++) {
		CLEANUP(buf_release) struct buf expected = {0};
		for (uint64_t id = MODEL_IDS; id > 0; id--) {
			if (model[id].there && model[id].tags & 1U << tag)
				buf_printf(&expected, "%llu ", (unsigned long long)id);
		}
		buf_append(&expected, "", 1);
		assert_tagged(arena_printf(&suite.arena, "t%u", tag).ptr, expected.data);
	}
	for (uint64_t id = 1; id <= MODEL_IDS; id++) {
		struct link_record link;
		assert_int_equal(find(0, model_name(id), &link), model[id].there ? 0 : ERR_NOT_FOUND);
		if (model[id].there)
			assert_int_equal(link.clicks, model[id].clicks);
	}
}

TEST(tags_and_totals_are_right_after_any_changes)
{
	memset(model, 0, sizeof(model));
	random_state = 20261115;
	for (int step = 0; step < MODEL_STEPS; step++) {
		uint64_t id = 1 + random_below(MODEL_IDS);
		switch (random_below(8)) {
		case 0:
		case 1:
		case 2: model_create(id); break;
		case 3:
		case 4: model_update(id); break;
		case 5: model_remove(id); break;
		default: model_count(); break;
		}
		if (step % 25 == 0) {
			assert_model();
			arena_release(&suite.arena);
		}
	}
	assert_model();
}

/* --- counters and constants --- */

static uint64_t lease(const char *counter, uint64_t count)
{
	uint64_t first = 0;
	assert_int_equal(registry_lease(suite.store->registry, str_of(counter), count, &first), 0);
	return first;
}

TEST(a_counter_starts_at_one_and_goes_on)
{
	assert_int_equal(lease("links", 1), 1);
	assert_int_equal(lease("links", 1000), 2);
	assert_int_equal(lease("links", 5), 1002);
	assert_int_equal(lease("others", 3), 1);
	assert_int_equal(lease("links", 1), 1007);
	assert_int_equal(lease("others", 1), 4);
}

TEST(a_counter_has_an_end)
{
	uint64_t first = 77;
	assert_int_equal(registry_lease(suite.store->registry, STR("c"), UINT64_MAX, &first), ERR_LIMIT);
	assert_int_equal(registry_lease(suite.store->registry, STR("c"), INT64_MAX, &first), ERR_LIMIT);
	assert_int_equal(registry_lease(suite.store->registry, STR("c"), INT64_MAX - 2, &first), 0);
	assert_int_equal(first, 1);
	assert_int_equal(registry_lease(suite.store->registry, STR("c"), 2, &first), ERR_LIMIT);
	assert_int_equal(first, 1);
	assert_int_equal(lease("c", 1), INT64_MAX - 1);
}

TEST(a_lease_of_nothing_is_refused)
{
	uint64_t first = 77;
	assert_int_equal(registry_lease(suite.store->registry, STR("c"), 0, &first), ERR_INVALID);
	assert_int_equal(registry_lease(suite.store->registry, STR(""), 1, &first), ERR_INVALID);
	assert_int_equal(first, 77);
}

TEST(the_first_value_of_a_constant_stays)
{
	char first[4] = {1, 0, 2, 0}, second[4] = {9, 9, 9, 9}, other[2] = {5, 6};
	assert_int_equal(registry_constant(suite.store->registry, STR("a"), first, 4), 0);
	assert_memory_equal(first, ((char[]){1, 0, 2, 0}), 4);
	assert_int_equal(registry_constant(suite.store->registry, STR("b"), other, 2), 0);
	assert_int_equal(registry_constant(suite.store->registry, STR("a"), second, 4), 0);
	assert_memory_equal(second, first, 4);
}

TEST(constants_are_forgotten_by_their_names)
{
	const struct str names[] = {STR("b-"), STR("b-1"), STR("b-2"), STR("b-3"), STR("a-2"), STR("c-2")};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(registry_constant(suite.store->registry, names[i], (char[]){"old"}, 3), 0);
	for (int again = 0; again < 2; again++)
		assert_int_equal(registry_forget(suite.store->registry, STR("b-"), STR("b-3")), 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char value[3] = "new";
		assert_int_equal(registry_constant(suite.store->registry, names[i], value, 3), 0);
		assert_memory_equal(value, i < 3 ? "new" : "old", 3);
	}
}

TEST(a_constant_of_another_length_is_corrupt)
{
	char value[4] = "abc", longer[5] = "wxyz", shorter[3] = "uv";
	assert_int_equal(registry_constant(suite.store->registry, STR("a"), value, 4), 0);
	assert_int_equal(registry_constant(suite.store->registry, STR("a"), longer, 5), ERR_CORRUPT);
	assert_int_equal(registry_constant(suite.store->registry, STR("a"), shorter, 3), ERR_CORRUPT);
	assert_string_equal(longer, "wxyz");
	assert_int_equal(registry_constant(suite.store->registry, STR("a"), value, 4), 0);
	assert_string_equal(value, "abc");
}

TEST(a_store_that_works_answers_a_ping)
{
	struct err e = {"untouched"};
	assert_int_equal(store_ping(suite.store, &e), 0);
	assert_int_equal(store_ping(suite.store, NULL), 0);
	assert_string_equal(e.text, "untouched");
}

/* --- what is kept --- */

TEST_IN(reopening, everything_acknowledged_is_there_after_reopening)
{
	uint64_t guest = create_user("guest@example.com", ROLE_VIEWER);
	struct store_write rested = kit_alias(&suite.arena, 4, "rested");
	rested.link.expires_ms = KIT_NOW_MS + 1;
	struct store_write made[] = {
	    kit_generated(&suite.arena, 1),       with_key(kit_alias(&suite.arena, 2, "two"), "key", 1),
	    kit_generated(&suite.arena, 3),       on_generated(STORE_LINK_DELETE, 3),
	    on_generated(STORE_LINK_UPDATE, 1),   rested,
	    on_alias(STORE_LINK_SWEEP, "rested"), on_generated(STORE_PERMIT, 1),
	};
	struct registry_write accounts[] = {
	    kit_key(&suite.arena, 1, guest),
	    kit_key(&suite.arena, 2, 0),
	    {.kind = REGISTRY_SESSION_CREATE,
	     .now_ms = 5,
	     .session = {.id = {7}, .user = guest, .generation = 3, .created_ms = 5, .expires_ms = 900}},
	};
	assert_int_equal(registry_apply(suite.store->registry, accounts, ARRAY_LEN(accounts)), 0);
	for (size_t i = 0; i < ARRAY_LEN(accounts); i++)
		assert_int_equal(accounts[i].result, 0);
	made[4].fields = LINK_NOTE | LINK_PRIVATE | LINK_PASSWORD | LINK_EXPIRES | LINK_EXPIRED_URL;
	made[4].link = (struct link_record){.note = STR("kept"),
	                                    .is_private = true,
	                                    .password = STR("secret"),
	                                    .expires_ms = KIT_NOW_MS + 1,
	                                    .expired_url = STR("https://late.example/")};
	made[0].link.tags = STR("[\"kept\"]");
	made[2].link.tags = STR("[\"kept\"]");
	made[6].quarantine_ms = 1000;
	made[7].user = guest;
	assert_int_equal(store_apply(suite.store, made, ARRAY_LEN(made)), 0);
	for (size_t i = 0; i < ARRAY_LEN(made); i++)
		assert_int_equal(made[i].result, 0);
	struct registry_write revoke = {
	    .kind = REGISTRY_KEY_REVOKE, .now_ms = 9, .arena = &suite.arena, .key.id = accounts[0].key.id};
	assert_int_equal(kit_apply(suite.store, &revoke), 0);
	struct registry_write used = {.kind = REGISTRY_KEY_USED,
	                              .key = {.id = accounts[1].key.id, .used_ms = 33}};
	assert_int_equal(kit_apply(suite.store, &used), 0);
	accounts[1].key.used_ms = 33;
	set_clicks(1, 77);
	made[4].link.clicks = 77;
	assert_int_equal(lease("c", 10), 1);
	char value[3] = "ab";
	assert_int_equal(registry_constant(suite.store->registry, STR("k"), value, 3), 0);

	for (int i = 0; i < 2; i++) {
		suite.store = suite.backend->reopen(suite.store);
		assert_non_null(suite.store);
		struct store_lookup read = {.ref = {1, STR("g1")}, .user = guest, .arena = &suite.arena};
		assert_int_equal(store_lookup(suite.store, &read, 1), 0);
		assert_link(&read.link, &made[4].link);
		assert_true(read.permitted);
		struct link_record link;
		assert_tagged("kept", "1 ");
		assert_int_equal(find(0, "two", &link), 0);
		assert_link(&link, &made[1].link);
		assert_int_equal(find(3, "g3", NULL), ERR_NOT_FOUND);
		struct store_write again = with_key(kit_generated(&suite.arena, 9), "key", 1);
		assert_int_equal(kit_apply(suite.store, &again), 0);
		assert_true(again.replayed);
		struct store_write thief = kit_alias(&suite.arena, 8, "rested");
		thief.link.owner = 8;
		assert_int_equal(kit_apply(suite.store, &thief), ERR_CONFLICT);
		uint64_t id;
		struct store_expired expired = {
		    .now_ms = KIT_NOW_MS + 1 + LINK_LATE_MS, .max = 1, .ids = &id, .count_all = true};
		assert_int_equal(store_expired(suite.store, &expired), 0);
		assert_int_equal(expired.total, 1);
		assert_int_equal(id, 1);
		size_t count;
		struct key_record *keys = kit_keys(suite.store, &suite.arena, &count);
		assert_int_equal(count, 2);
		assert_key(&keys[0], &revoke.key);
		assert_key(&keys[1], &accounts[1].key);
		struct user_record user = {0};
		assert_int_equal(
		    registry_user(suite.store->registry, accounts[1].user.id, STR_NULL, &suite.arena, &user),
		    0);
		assert_user(&user, &accounts[1].user);
		assert_int_equal(
		    registry_user(suite.store->registry, 0, STR("guest@example.com"), &suite.arena, &user),
		    0);
		assert_int_equal(user.id, guest);
		struct session_record session;
		assert_int_equal(kit_session(suite.store, &suite.arena, accounts[2].session.id, &session), 0);
		assert_memory_equal(&session, &accounts[2].session, sizeof(session));
		assert_int_equal(lease("c", 1), 11 + i);
		memset(value, 'x', 2);
		assert_int_equal(registry_constant(suite.store->registry, STR("k"), value, 3), 0);
		assert_string_equal(value, "ab");
	}
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 60, PER_ROUND = 8, CONTESTED = 40 };

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t firsts[ROUNDS]; /* of the numbers it leased */
	unsigned won;            /* contested names that it got */
	unsigned wrong;          /* cmocka's asserts work in the main thread only */
};

static atomic_uint at_start;
static uint64_t somebody; /* a user, made before the threads start */

static void wait_for_all(void)
{
	atomic_fetch_add(&at_start, 1);
	while (atomic_load(&at_start) < THREADS)
		sched_yield();
}

static void round_of_leased_links(struct worker *me, struct arena *a, unsigned round)
{
	struct store_write writes[PER_ROUND];
	struct store_lookup reads[PER_ROUND];
	uint64_t first = 0;
	me->wrong += registry_lease(suite.store->registry, STR("ids"), PER_ROUND, &first) != 0;
	me->firsts[round] = first;
	for (size_t i = 0; i < PER_ROUND; i++) {
		writes[i] = kit_generated(a, first + i);
		writes[i].link.tags = STR("[\"shared\"]");
		reads[i] = (struct store_lookup){.ref = writes[i].ref, .arena = a};
	}
	me->wrong += store_apply(suite.store, writes, PER_ROUND) != 0;
	me->wrong += store_lookup(suite.store, reads, PER_ROUND) !=
	             0; /* one's own writes are there at once */
	for (size_t i = 0; i < PER_ROUND; i++) {
		me->wrong += writes[i].result != 0;
		me->wrong += reads[i].result != 0 || reads[i].link.id != first + i ||
		             !str_eq(reads[i].link.url, writes[i].link.url);
	}
	struct store_list page = {.limit = 10, .arena = a};
	me->wrong += store_list(suite.store, &page) != 0 || page.count == 0;
	me->wrong += store_ping(suite.store, NULL) != 0;
	const struct store_count count = {.id = first, .clicks = round};
	uint64_t ids[4], *listed;
	size_t found;
	struct store_write let = {.kind = STORE_PERMIT, .arena = a, .ref = writes[0].ref, .user = somebody};
	me->wrong += store_apply(suite.store, &let, 1) != 0 || let.result != 0;
	me->wrong += store_permitted(suite.store, first, a, &listed, &found) != 0 || found != 1;
	me->wrong += store_set_clicks(suite.store, 1, &count, 1) != 0;
	me->wrong += store_tagged(suite.store, STR("shared"), ARRAY_LEN(ids), ids, &found) != 0 || found == 0;
}

static void contest(struct worker *me, struct arena *a, unsigned i)
{
	struct store_write w = kit_alias(a, 1000000 + me->number * 1000 + i,
	                                 arena_printf(a, "name-%u", i).ptr);
	me->wrong += store_apply(suite.store, &w, 1) != 0;
	if (w.result == 0)
		me->won++;
	else
		me->wrong += w.result != ERR_CONFLICT;
}

static void *work(void *arg)
{
	struct worker *me = arg;
	struct arena a = {0};
	wait_for_all();
	for (unsigned i = 0; i < ROUNDS; i++) {
		round_of_leased_links(me, &a, i);
		if (i < CONTESTED)
			contest(me, &a, i);
		arena_release(&a);
	}
	arena_release(&a);
	return NULL;
}

static int order_firsts(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

TEST(threads_share_a_store_and_no_number_is_leased_twice)
{
	static struct worker workers[THREADS];
	uint64_t firsts[(size_t)THREADS * ROUNDS];
	unsigned won = 0;
	somebody = create_user(NULL, ROLE_VIEWER);
	atomic_store(&at_start, 0);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.number = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		memcpy(&firsts[i * (size_t)ROUNDS], workers[i].firsts, sizeof(workers[i].firsts));
		won += workers[i].won;
		assert_int_equal(workers[i].wrong, 0);
	}
	assert_int_equal(won, CONTESTED);
	qsort(firsts, ARRAY_LEN(firsts), sizeof(firsts[0]), order_firsts);
	for (size_t i = 0; i < ARRAY_LEN(firsts); i++)
		assert_int_equal(firsts[i], 1 + i * PER_ROUND);
	for (uint64_t id = 1; id <= ARRAY_LEN(firsts) * PER_ROUND; id += 97)
		assert_int_equal(kit_find_generated(suite.store, &suite.arena, id), 0);
}

struct watch {
	pthread_t thread;
	atomic_bool expired;
	unsigned wrong;
};

/* One at a time: each look is by itself at one moment. */
static void *look_for_alias(void *arg)
{
	struct watch *w = arg;
	struct arena a = {0};
	while (!atomic_load(&w->expired)) {
		struct store_lookup read = {.ref.key = STR("fickle"), .arena = &a};
		w->wrong += store_lookup(suite.store, &read, 1) != 0;
		w->wrong += read.result != 0 && read.result != ERR_NOT_FOUND;
		arena_release(&a);
	}
	return NULL;
}

TEST(threads_see_a_link_that_comes_and_goes_whole_or_not_at_all)
{
	struct watch w = {0};
	assert_int_equal(pthread_create(&w.thread, NULL, look_for_alias, &w), 0);
	for (uint64_t id = 1; id <= 400; id++) {
		struct store_write come = kit_alias(&suite.arena, id, "fickle");
		assert_int_equal(kit_apply(suite.store, &come), 0);
		struct store_write go = {
		    .kind = STORE_LINK_DELETE, .arena = &suite.arena, .ref = {.key = STR("fickle")}};
		assert_int_equal(kit_apply(suite.store, &go), 0);
	}
	atomic_store(&w.expired, true);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.wrong, 0);
}

int store_suite_run(const struct store_backend *of)
{
	suite.backend = of;
	int failed = RUN_TESTS(.name = of->name, .setup = suite_setup, .teardown = suite_teardown);
	failed += store_suite_names_run(of->name);
	failed += store_suite_access_run(of->name);
	failed += store_suite_accounts_run(of->name);
	if (of->has_feed)
		failed += store_suite_feed_run(of->name);
	if (of->reopen)
		failed += RUN_LIST(reopening, .name = of->name, .setup = suite_setup,
		                   .teardown = suite_teardown);
	return failed;
}
