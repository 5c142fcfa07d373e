/* The rules of the store, without a store: rows and changes in, outcomes and rows out. */
#include "lib/store_kit.h"
#include "lib/test.h"
#include "store/decide.h"
#include "store/decide_accounts.h"
#include "store/rules.h"

enum { NOW_MS = 1000000, REST_MS = 5000, ME = 7, OTHER = 8, OVER_MS = NOW_MS - 100 };

static struct arena arena;
static const struct store_rules plain = {.hash_seed = 1},
                                keeps_keys = {.hash_seed = 1, .gives_keys_back = true};

static int teardown(void **state)
{
	arena_release(&arena);
	return 0;
}

static struct store_write create(uint64_t id, const char *name, bool is_alias)
{
	struct store_write w = is_alias ? kit_alias(&arena, id, name) : kit_generated(&arena, id);
	w.now_ms = NOW_MS;
	w.quarantine_ms = REST_MS;
	w.link.owner = ME;
	return w;
}

static struct store_write on(enum store_write_kind kind, const char *name, uint64_t id)
{
	return (struct store_write){.kind = kind,
	                            .now_ms = NOW_MS,
	                            .quarantine_ms = REST_MS,
	                            .arena = &arena,
	                            .ref = {.id = id, .key = str_of(name)}};
}

static struct link_record *link_of(uint64_t id, const char *alias, uint64_t owner, int64_t expires_ms)
{
	struct link_record *link = arena_zalloc(&arena, sizeof(*link));
	*link = (struct link_record){.id = id,
	                             .is_alias = alias != NULL,
	                             .key = str_of(alias),
	                             .owner = owner,
	                             .url = STR("https://old.example/"),
	                             .expires_ms = expires_ms};
	return link;
}

/* Of one batch; the view is the caller's to look at and release. */
static void decide(struct view *v, const struct store_write *writes, size_t n, struct store_outcome *outcomes)
{
	memset(outcomes, 0, n * sizeof(*outcomes));
	assert_int_equal(decide_links(v, writes, n, outcomes), 0);
}

/* --- may the name be taken? --- */

enum holder {
	HOLDER_NONE,
	HOLDER_LIVES,
	HOLDER_OVER_MINE,
	HOLDER_OVER_OTHERS,
	HOLDER_RESTED,
	HOLDER_GENERATED,
	HOLDERS
};
enum rest { REST_NONE, REST_MINE, REST_OTHERS, REST_ENDED, RESTS };

static const struct link_record *holder_make(enum holder holder)
{
	switch (holder) {
	case HOLDER_LIVES: return link_of(3, "name", OTHER, NOW_MS + 1);
	case HOLDER_OVER_MINE: return link_of(3, "name", ME, OVER_MS);
	case HOLDER_OVER_OTHERS: return link_of(3, "name", OTHER, OVER_MS);
	case HOLDER_RESTED: return link_of(3, "name", OTHER, NOW_MS - REST_MS);
	case HOLDER_GENERATED: return link_of(3, NULL, ME, OVER_MS);
	default: return NULL;
	}
}

/* The sentences of store.h, said another way. */
static bool is_free(enum holder holder, enum rest rest, bool is_spent, bool decodes_to_spent, bool reuse)
{
	bool held = holder == HOLDER_LIVES || holder == HOLDER_GENERATED ||
	            (holder == HOLDER_OVER_OTHERS && !reuse);
	bool quarantined = rest == REST_OTHERS && !reuse;
	bool was_given_out = (is_spent || decodes_to_spent) && !reuse;
	return !held && !quarantined && !was_given_out;
}

TEST(a_name_is_free_or_taken_as_the_rules_say)
{
	for (unsigned i = 0; i < HOLDERS * RESTS * 8; i++) {
		enum holder holder = i % HOLDERS;
		enum rest rest = i / HOLDERS % RESTS;
		bool is_spent = i / (HOLDERS * RESTS) & 1, decodes = i / (HOLDERS * RESTS) & 2,
		     reuse = i / (HOLDERS * RESTS) & 4;
		struct store_write w = create(9, "name", true);
		w.was_issued = decodes;
		w.reuse = reuse;
		struct view v;
		struct store_outcome out;
		assert_int_equal(view_init(&v, &keeps_keys, &w, 1), 0);
		v.names[0].before = (struct name_state){
		    .link = holder_make(holder),
		    .key_id = holder == HOLDER_GENERATED ? 3 : 0,
		    .quarantined = rest != REST_NONE,
		    .quarantine_owner = rest == REST_MINE ? ME : OTHER,
		    .quarantined_until_ms = rest == REST_ENDED ? NOW_MS : NOW_MS + 1,
		    .spent_id = is_spent ? 4 : 0,
		};
		decide(&v, &w, 1, &out);
		bool free = is_free(holder, rest, is_spent, decodes, reuse);
		assert_int_equal(out.result, free ? 0 : ERR_CONFLICT);
		assert_int_equal(name_gains_link(&v.names[0]), free);
		assert_int_equal(name_loses_link(&v.names[0]), free && holder != HOLDER_NONE);
		if (free)
			assert_false(v.names[0].now.quarantined);
		else
			assert_memory_equal(&v.names[0].now, &v.names[0].before, sizeof(v.names[0].now));
		view_release(&v);
	}
}

TEST(a_lost_insert_counts_as_taken_when_it_is_decided_again)
{
	struct store_write w[] = {create(1, "g1", false), create(2, "other", true)};
	struct view v;
	struct store_outcome out[2];
	assert_int_equal(view_init(&v, &plain, w, 2), 0);
	assert_true(v.names[0].is_generated);
	assert_false(v.names[1].is_generated);
	decide(&v, w, 2, out);
	view_name(&v, STR("g1"))->is_lost = true;
	assert_true(view_lost(&v, &w[0]));
	decide(&v, w, 2, out);
	assert_int_equal(out[0].result, ERR_CONFLICT);
	assert_int_equal(out[1].result, 0);
	struct str feed;
	assert_true(view_feed(&v, true, &arena, &feed));
	struct feed_entry e;
	assert_int_equal(feed_entry_take(&feed, &e), 1);
	assert_int_equal(e.id, 2);
	assert_int_equal(feed_entry_take(&feed, &e), 0);
	view_release(&v);
}

/* --- what becomes of a name --- */

static struct name_state removed(enum store_write_kind kind, const struct store_rules *rules,
                                 const struct link_record *link, uint64_t key_id, int *ret_result)
{
	struct store_write w = on(kind, "name", key_id);
	struct view v;
	struct store_outcome out;
	assert_int_equal(view_init(&v, rules, &w, 1), 0);
	v.names[0].before = (struct name_state){.link = link, .key_id = key_id};
	decide(&v, &w, 1, &out);
	struct name_state now = v.names[0].now;
	*ret_result = out.result;
	view_release(&v);
	return now;
}

TEST(an_alias_is_quarantined_after_its_end_and_free_after_a_delete)
{
	int result;
	struct name_state now = removed(STORE_LINK_SWEEP, &keeps_keys, link_of(3, "name", OTHER, OVER_MS), 0,
	                                &result);
	assert_int_equal(result, 0);
	assert_null(now.link);
	assert_true(now.quarantined);
	assert_int_equal(now.quarantine_owner, OTHER);
	assert_int_equal(now.quarantined_until_ms, OVER_MS + REST_MS);
	now = removed(STORE_LINK_DELETE, &keeps_keys, link_of(3, "name", OTHER, OVER_MS), 0, &result);
	assert_int_equal(result, 0);
	assert_false(now.quarantined);
	now = removed(STORE_LINK_SWEEP, &keeps_keys, link_of(3, "name", OTHER, NOW_MS - REST_MS), 0, &result);
	assert_int_equal(result, 0);
	assert_false(now.quarantined); /* it has rested already */
	now = removed(STORE_LINK_SWEEP, &keeps_keys, link_of(3, "name", OTHER, NOW_MS + 1), 0, &result);
	assert_int_equal(result, ERR_CONFLICT); /* it lives */
	assert_non_null(now.link);
	now = removed(STORE_LINK_SWEEP, &keeps_keys, NULL, 0, &result);
	assert_int_equal(result, ERR_NOT_FOUND);
}

TEST(a_generated_key_is_spent_and_comes_back_only_after_its_end)
{
	int result;
	struct name_state now = removed(STORE_LINK_SWEEP, &keeps_keys, link_of(3, NULL, ME, OVER_MS), 3,
	                                &result);
	assert_int_equal(result, 0);
	assert_int_equal(now.spent_id, 3);
	assert_int_equal(now.spent_end_ms, OVER_MS);
	assert_false(now.quarantined);
	now = removed(STORE_LINK_DELETE, &keeps_keys, link_of(3, NULL, ME, OVER_MS), 3, &result);
	assert_int_equal(now.spent_end_ms, SPENT_FOR_GOOD);
	now = removed(STORE_LINK_DELETE, &plain, link_of(3, NULL, ME, OVER_MS), 3, &result);
	assert_int_equal(now.spent_id, 0); /* the counter tells it */
}

/* --- whose it is --- */

TEST(a_change_finds_its_link_by_owner_and_id)
{
	const struct {
		bool is_alias;
		uint64_t ref_id, owner;
		int result;
	} cases[] = {{true, 0, 0, 0},
	             {true, 99, ME, 0},
	             {true, 0, OTHER, ERR_NOT_FOUND},
	             {false, 3, 0, 0},
	             {false, 4, 0, ERR_NOT_FOUND},
	             {false, 3, OTHER, ERR_NOT_FOUND}};
	static const enum store_write_kind kinds[] = {STORE_LINK_UPDATE, STORE_PERMIT, STORE_FORBID,
	                                              STORE_LINK_DELETE, STORE_LINK_SWEEP};
	for (size_t i = 0; i < ARRAY_LEN(cases) * ARRAY_LEN(kinds); i++) {
		const enum store_write_kind kind = kinds[i % ARRAY_LEN(kinds)];
		const size_t c = i / ARRAY_LEN(kinds);
		const bool is_update = kind == STORE_LINK_UPDATE;
		struct store_write w = on(kind, "name", cases[c].ref_id);
		w.owner = cases[c].owner;
		w.user = 70;
		w.fields = LINK_TITLE;
		w.link.title = STR("new");
		struct view v;
		struct store_outcome out;
		assert_int_equal(view_init(&v, &plain, &w, 1), 0);
		v.names[0].before.link = link_of(3, cases[c].is_alias ? "name" : NULL, ME,
		                                 kind == STORE_LINK_SWEEP ? OVER_MS : 0);
		decide(&v, &w, 1, &out);
		assert_int_equal(out.result, cases[c].result);
		assert_int_equal(name_changes_link(&v.names[0]), is_update && out.result == 0);
		if (is_update && out.result == 0) {
			assert_string_equal(out.link.title.ptr, "new");
			assert_string_equal(out.link.url.ptr, "https://old.example/");
			assert_int_equal(out.link.updated_ms, NOW_MS);
		}
		view_release(&v);
	}
}

TEST(an_end_by_default_follows_the_start_and_a_link_that_never_opens_is_refused)
{
	const struct link_record made = {.created_ms = 500, .not_before_ms = 0};
	const struct link_record later = {.created_ms = 500, .not_before_ms = 900};
	const int64_t by_default = link_default_expiry_ms(&made);
	const struct {
		int64_t expires_ms; /* before */
		unsigned fields;
		int64_t not_before_ms, new_expires_ms;
		int result;
		int64_t ends_ms; /* afterwards */
	} cases[] = {
	    {by_default, LINK_NOT_BEFORE, 900, 0, 0, link_default_expiry_ms(&later)},
	    {by_default, LINK_NOT_BEFORE, by_default + 1, 0, 0, 2 * by_default - 500 + 1},
	    {by_default, LINK_NOT_BEFORE | LINK_EXPIRES, 900, 2000, 0, 2000},
	    {by_default, LINK_NOT_BEFORE | LINK_EXPIRES, 900, 0, 0, 0},
	    {by_default, LINK_TITLE, 0, 0, 0, by_default},
	    {2000, LINK_NOT_BEFORE, 900, 0, 0, 2000},
	    {2000, LINK_NOT_BEFORE, 2000, 0, ERR_INVALID, 2000},
	    {0, LINK_NOT_BEFORE, 900, 0, 0, 0},
	    {by_default, LINK_NOT_BEFORE | LINK_EXPIRES, 900, 900, ERR_INVALID, by_default},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct store_write w = on(STORE_LINK_UPDATE, "name", 0);
		w.fields = cases[i].fields;
		w.link.not_before_ms = cases[i].not_before_ms;
		w.link.expires_ms = cases[i].new_expires_ms;
		struct link_record *link = link_of(3, "name", ME, cases[i].expires_ms);
		link->created_ms = made.created_ms;
		struct view v;
		struct store_outcome out;
		assert_int_equal(view_init(&v, &plain, &w, 1), 0);
		v.names[0].before = (struct name_state){.link = link};
		decide(&v, &w, 1, &out);
		assert_int_equal(out.result, cases[i].result);
		assert_int_equal(v.names[0].now.link->expires_ms, cases[i].ends_ms);
		view_release(&v);
	}
}

/* --- batches --- */

TEST(each_change_sees_those_before_it)
{
	struct store_write rename = on(STORE_LINK_UPDATE, "name", 0);
	rename.fields = LINK_TITLE;
	rename.link.title = STR("twice");
	struct store_write w[] = {
	    create(1, "name", true),          create(2, "name", true),          rename,
	    on(STORE_LINK_DELETE, "name", 0), on(STORE_LINK_DELETE, "name", 0), create(3, "name", true)};
	const int results[] = {0, ERR_CONFLICT, 0, 0, ERR_NOT_FOUND, 0};
	struct view v;
	struct store_outcome out[ARRAY_LEN(w)];
	assert_int_equal(view_init(&v, &plain, w, ARRAY_LEN(w)), 0);
	assert_int_equal(v.name_count, 1);
	decide(&v, w, ARRAY_LEN(w), out);
	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		assert_int_equal(out[i].result, results[i]);
	assert_string_equal(out[3].link.title.ptr, "twice");
	assert_int_equal(v.names[0].now.link->id, 3);
	view_release(&v);
}

/* --- idempotency keys --- */

static struct store_write idempotent(uint64_t id, uint8_t fingerprint)
{
	struct store_write w = create(id, NULL, false);
	w.idempotency_key = STR("key");
	w.idempotency_owner = ME;
	memset(w.fingerprint, fingerprint, sizeof(w.fingerprint));
	return w;
}

TEST(a_create_is_repeated_refused_or_made)
{
	uint8_t print[FINGERPRINT_BYTES];
	memset(print, 1, sizeof(print));
	const struct {
		int64_t age_ms; /* -1: there is none */
		uint8_t fingerprint;
		bool is_gone, replay_only;
		int result;
		bool replayed;
	} cases[] = {{-1, 1, false, false, 0, false},
	             {-1, 1, false, true, ERR_LIMIT, false},
	             {0, 1, false, false, 0, true},
	             {REPLAY_MS - 1, 1, false, true, 0, true},
	             {REPLAY_MS, 1, false, false, 0, false},
	             {REPLAY_MS, 1, false, true, ERR_LIMIT, false},
	             {0, 2, false, false, ERR_INVALID, false},
	             {REPLAY_MS, 2, false, false, 0, false},
	             {0, 1, true, false, ERR_NOT_FOUND, true}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct store_write w = idempotent(9, cases[i].fingerprint);
		w.replay_only = cases[i].replay_only;
		struct view v;
		struct store_outcome out;
		assert_int_equal(view_init(&v, &plain, &w, 1), 0);
		assert_int_equal(v.replay_count, 1);
		v.replays[0].before = (struct replay_state){
		    .is_there = cases[i].age_ms >= 0,
		    .fingerprint = str_n((char *)print, sizeof(print)),
		    .made_ms = NOW_MS - cases[i].age_ms,
		    .link_id = 5};
		v.replays[0].link = cases[i].is_gone ? NULL : link_of(5, "old", ME, 0);
		decide(&v, &w, 1, &out);
		assert_int_equal(out.result, cases[i].result);
		assert_int_equal(out.replayed, cases[i].replayed);
		bool made = out.result == 0 && !out.replayed;
		assert_int_equal(name_gains_link(&v.names[0]), made);
		assert_int_equal(v.replays[0].name != NULL, made);
		if (cases[i].replayed && out.result == 0)
			assert_int_equal(out.link.id, 5);
		view_release(&v);
	}
}

/* --- permissions --- */

TEST(a_list_grows_to_its_bound_and_not_by_nobody)
{
	const struct {
		enum store_write_kind kind;
		bool listed;
		uint64_t user;
		uint64_t permitted;
		int result;
		bool now;
	} cases[] = {{STORE_PERMIT, false, 70, 0, 0, true},
	             {STORE_PERMIT, true, 70, PERMITTED_MAX, 0, true},
	             {STORE_PERMIT, false, 70, PERMITTED_MAX, ERR_LIMIT, false},
	             {STORE_PERMIT, false, 70, PERMITTED_MAX - 1, 0, true},
	             {STORE_PERMIT, false, 0, 0, ERR_INVALID, false},
	             {STORE_PERMIT, false, UINT64_MAX, 0, ERR_INVALID, false},
	             {STORE_FORBID, true, 70, 1, 0, false},
	             {STORE_FORBID, false, 0, 0, 0, false}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct store_write w = on(cases[i].kind, "name", 0);
		w.user = cases[i].user;
		struct view v;
		struct store_outcome out;
		assert_int_equal(view_init(&v, &plain, &w, 1), 0);
		v.names[0].before = (struct name_state){.link = link_of(3, "name", ME, 0),
		                                        .permitted = cases[i].permitted};
		v.permissions[0].before = cases[i].listed;
		decide(&v, &w, 1, &out);
		assert_int_equal(out.result, cases[i].result);
		assert_int_equal(v.permissions[0].now, cases[i].now);
		assert_int_equal(v.names[0].now.permitted,
		                 cases[i].permitted + cases[i].now - cases[i].listed);
		view_release(&v);
	}
}

/* --- accounts --- */

static struct user_record admin(void)
{
	return (struct user_record){.id = 1,
	                            .role = ROLE_ADMIN,
	                            .enabled = true,
	                            .email = STR("a@b.example"),
	                            .password = STR("hash"),
	                            .generation = 4};
}

/* All ways to change an admin, with all that may let one in. */
TEST(the_last_admin_is_not_shut_out)
{
	static const struct {
		unsigned fields;
		struct user_record to;
		bool keeps_password, keeps_key; /* what the admin can still get in with */
	} changes[] = {
	    {USER_ROLE, {.role = ROLE_EDITOR}, false, false},
	    {USER_ROLE, {.role = ROLE_ADMIN}, true, true},
	    {USER_ENABLED, {.enabled = false}, false, false},
	    {USER_ENABLED, {.enabled = true}, true, true},
	    {USER_EMAIL, {.email = {NULL, 0}}, false, true},
	    {USER_PASSWORD, {.password = {NULL, 0}}, false, true},
	    {USER_END_SESSIONS, {.id = 0}, true, true},
	};
	for (unsigned i = 0; i < ARRAY_LEN(changes) * 8; i++) {
		unsigned c = i / 8;
		bool has_password = i & 1, has_key = i & 2, has_other = i & 4;
		struct user_record before = admin();
		if (!has_password)
			before.password = STR_NULL;
		struct account_rows rows = {
		    .user = &before, .has_admin_key = has_key, .has_other_admin = has_other};
		struct registry_write w = {.kind = REGISTRY_USER_UPDATE,
		                           .now_ms = NOW_MS,
		                           .arena = &arena,
		                           .user = changes[c].to,
		                           .user_fields = changes[c].fields};
		struct account_outcome out = {0};
		int edits = decide_account(&rows, &w, &out);
		bool could = has_password || has_key;
		bool can = (changes[c].keeps_password && has_password) || (changes[c].keeps_key && has_key);
		int result = could && !can && !has_other ? ERR_BUSY : 0;
		assert_int_equal(out.result, result);
		assert_int_equal(edits, result ? 0 : EDIT_USER_UPDATE);
		if (result == 0) {
			bool ends = changes[c].fields & (USER_PASSWORD | USER_END_SESSIONS) ||
			            (changes[c].fields & USER_ENABLED && !changes[c].to.enabled);
			assert_int_equal(out.user.generation, 4 + ends);
		}
	}
}

TEST(an_email_address_is_one_users)
{
	struct user_record before = admin();
	const struct {
		enum registry_write_kind kind;
		uint64_t holder;
		int result;
	} cases[] = {{REGISTRY_USER_CREATE, 0, 0},
	             {REGISTRY_USER_CREATE, 2, ERR_CONFLICT},
	             {REGISTRY_USER_UPDATE, 0, 0},
	             {REGISTRY_USER_UPDATE, 1, 0},
	             {REGISTRY_USER_UPDATE, 2, ERR_CONFLICT},
	             {REGISTRY_KEY_CREATE, 2, ERR_CONFLICT}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct registry_write w = {.kind = cases[i].kind,
		                           .arena = &arena,
		                           .user = {.email = STR("x@y.example"), .role = ROLE_VIEWER},
		                           .user_fields = USER_EMAIL};
		struct account_rows rows = {
		    .user = &before, .email_holder = cases[i].holder, .has_other_admin = true};
		struct account_outcome out = {0};
		assert_true(account_needs(&w) & NEEDS_EMAIL);
		int edits = decide_account(&rows, &w, &out);
		assert_int_equal(out.result, cases[i].result);
		assert_int_equal(edits != 0, cases[i].result == 0);
	}
}

TEST(a_key_is_revoked_by_its_owner_once_and_not_the_last_admins)
{
	const struct {
		uint64_t user;
		int64_t revoked_ms;
		uint64_t admin_keys[2];
		size_t count;
		int result, edits;
	} cases[] = {{0, 0, {9}, 1, 0, EDIT_KEY_REVOKE}, {5, 0, {9}, 1, 0, EDIT_KEY_REVOKE},
	             {6, 0, {9}, 1, ERR_NOT_FOUND, 0},   {0, 3, {3}, 1, 0, 0},
	             {0, 0, {3}, 1, ERR_CONFLICT, 0},    {0, 0, {3, 9}, 2, 0, EDIT_KEY_REVOKE},
	             {0, 0, {0}, 0, 0, EDIT_KEY_REVOKE}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct key_record key = {
		    .id = 3, .user = 5, .name = STR("k"), .revoked_ms = cases[i].revoked_ms};
		struct account_rows rows = {.key = &key, .admin_key_count = cases[i].count};
		memcpy(rows.admin_keys, cases[i].admin_keys, sizeof(rows.admin_keys));
		struct registry_write w = {.kind = REGISTRY_KEY_REVOKE,
		                           .now_ms = NOW_MS,
		                           .arena = &arena,
		                           .key = {.id = 3, .user = cases[i].user}};
		struct account_outcome out = {0};
		assert_int_equal(decide_account(&rows, &w, &out), cases[i].edits);
		assert_int_equal(out.result, cases[i].result);
		if (out.result == 0)
			assert_int_equal(out.key.revoked_ms, cases[i].revoked_ms ? 3 : NOW_MS);
	}
}

TEST_MAIN(.teardown = teardown)
