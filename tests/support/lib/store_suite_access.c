/* The conformance suite's tests of private links and of the permissions of those who may follow them. */
#include "lib/store_suite_private.h"
#include "lib/test.h"

static void create_private(uint64_t id)
{
	struct store_write w = kit_generated(&suite.arena, id);
	w.link.is_private = true;
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

static int change_list(enum store_write_kind kind, uint64_t id, uint64_t user)
{
	struct store_write w = on_generated(kind, id);
	w.user = user;
	return kit_apply(suite.store, &w);
}

static size_t list_length(uint64_t link)
{
	uint64_t *users;
	size_t count = 99;
	assert_int_equal(store_permitted(suite.store, link, &suite.arena, &users, &count), 0);
	return count;
}

TEST(a_private_link_tells_whether_somebody_is_on_its_list)
{
	uint64_t guest = create_user("guest@example.com", ROLE_VIEWER);
	uint64_t other = create_user("other@example.com", ROLE_ADMIN);
	create_private(1);
	create_private(2);
	create_generated(3);
	assert_int_equal(change_list(STORE_PERMIT, 1, guest), 0);
	assert_int_equal(change_list(STORE_PERMIT, 3, guest), 0);
	const struct {
		uint64_t link, user;
		bool permitted;
	} cases[] = {{1, guest, true},  {1, other, false}, {1, 0, false},         {2, guest, false},
	             {3, guest, false}, {9, guest, false}, {1, UINT64_MAX, false}};
	struct store_lookup reads[ARRAY_LEN(cases)];
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		reads[i] = (struct store_lookup){.ref = on_generated(STORE_PERMIT, cases[i].link).ref,
		                                 .user = cases[i].user,
		                                 .arena = &suite.arena,
		                                 .permitted = !cases[i].permitted};
		struct store_lookup alone = reads[i];
		assert_int_equal(store_lookup(suite.store, &alone, 1), 0);
		assert_int_equal(alone.permitted, cases[i].permitted);
	}
	assert_int_equal(store_lookup(suite.store, reads, ARRAY_LEN(reads)), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(reads[i].result, cases[i].link == 9 ? ERR_NOT_FOUND : 0);
		assert_int_equal(reads[i].permitted, cases[i].permitted);
	}
}

TEST(a_private_link_is_recognised_by_its_name_and_by_its_row)
{
	uint64_t guest = create_user(NULL, ROLE_VIEWER);
	struct store_write w = kit_alias(&suite.arena, 1ULL << 33, "name");
	w.link.is_private = true;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	w = on_alias(STORE_PERMIT, "name");
	w.user = guest;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	struct store_lookup reads[] = {
	    {.ref = {.key = STR("name")}, .user = guest, .arena = &suite.arena},
	    {.ref = {.id = 1ULL << 33}, .user = guest, .arena = &suite.arena},
	};
	assert_int_equal(store_lookup(suite.store, reads, 2), 0);
	assert_true(reads[0].permitted);
	assert_true(reads[1].permitted);
}

TEST(permitting_and_forbidding_twice_is_as_good_as_once)
{
	uint64_t guest = create_user(NULL, ROLE_VIEWER);
	struct store_write made = kit_generated(&suite.arena, 1);
	made.link.is_private = true;
	made.link.title = STR("title");
	assert_int_equal(kit_apply(suite.store, &made), 0);
	static const enum store_write_kind kinds[] = {STORE_FORBID, STORE_PERMIT, STORE_PERMIT,
	                                              STORE_FORBID, STORE_FORBID, STORE_PERMIT};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct store_write w = on_generated(kinds[i], 1);
		w.user = guest;
		assert_int_equal(kit_apply(suite.store, &w), 0);
		assert_link(&w.link, &made.link); /* it comes back, and has not changed */
		assert_int_equal(list_length(1), kinds[i] == STORE_PERMIT);
	}
}

TEST(a_list_comes_by_user_id)
{
	enum { USERS = 40 };
	uint64_t users[USERS];
	create_private(1);
	create_private(2);
	create_private(1ULL << 40);
	for (size_t i = 0; i < USERS; i++)
		users[i] = create_user(NULL, ROLE_VIEWER);
	for (size_t i = USERS; i > 0; i--) {
		assert_int_equal(change_list(STORE_PERMIT, 1ULL << 40, users[i - 1]), 0);
		assert_int_equal(change_list(STORE_PERMIT, 1 + i % 2, users[i - 1]), 0);
	}
	uint64_t *ids = NULL;
	size_t count;
	assert_int_equal(store_permitted(suite.store, 1ULL << 40, &suite.arena, &ids, &count), 0);
	assert_int_equal(count, USERS);
	assert_memory_equal(ids, users, sizeof(users));
	assert_int_equal(list_length(1), USERS / 2);
	assert_int_equal(list_length(2), USERS / 2);
	assert_int_equal(list_length(3), 0);
	assert_int_equal(list_length(0), 0);
	assert_int_equal(list_length(UINT64_MAX), 0);
}

TEST(a_list_stays_when_its_link_becomes_public_for_a_while)
{
	uint64_t guest = create_user(NULL, ROLE_VIEWER);
	create_private(1);
	assert_int_equal(change_list(STORE_PERMIT, 1, guest), 0);
	for (int private = 0; private < 2; private ++) {
		struct store_write w = on_generated(STORE_LINK_UPDATE, 1);
		w.fields = LINK_PRIVATE;
		w.link.is_private = private;
		assert_int_equal(kit_apply(suite.store, &w), 0);
		struct store_lookup read = {.ref = w.ref, .user = guest, .arena = &suite.arena};
		assert_int_equal(store_lookup(suite.store, &read, 1), 0);
		assert_int_equal(read.link.is_private, private);
		assert_int_equal(read.permitted, private);
	}
}

TEST(a_list_goes_with_its_link)
{
	uint64_t guests[] = {create_user(NULL, ROLE_VIEWER), create_user(NULL, ROLE_VIEWER)};
	for (uint64_t id = 1; id <= 4; id++) {
		struct store_write w = kit_alias(&suite.arena, id,
		                                 arena_printf(&suite.arena, "a%d", (int)id).ptr);
		w.link.is_private = true;
		w.link.expires_ms = KIT_NOW_MS + 1;
		struct store_write let[] = {w, w, w};
		for (size_t i = 0; i < 2; i++) {
			let[i + 1].kind = STORE_PERMIT;
			let[i + 1].user = guests[i];
		}
		assert_int_equal(store_apply(suite.store, let, 3), 0);
		assert_int_equal(list_length(id), 2);
	}
	struct store_write heir = kit_alias(&suite.arena, 9, "a3");
	heir.now_ms = KIT_NOW_MS + 1;
	struct store_write gone[] = {on_alias(STORE_LINK_DELETE, "a1"), on_alias(STORE_LINK_SWEEP, "a2"),
	                             heir};
	assert_int_equal(store_apply(suite.store, gone, 3), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(gone[i].result, 0);
	for (uint64_t id = 1; id <= 4; id++)
		assert_int_equal(list_length(id), id == 4 ? 2 : 0);
	assert_int_equal(list_length(9), 0);
	create_private(1); /* and does not come back with its row */
	assert_int_equal(list_length(1), 0);
	assert_int_equal(change_list(STORE_PERMIT, 1, guests[0]), 0);
	assert_int_equal(list_length(1), 1);
}

TEST(a_batch_of_all_kinds_is_done_in_order)
{
	uint64_t guest = create_user("guest@example.com", ROLE_VIEWER);
	struct store_write link = kit_alias(&suite.arena, 1, "name");
	link.link.is_private = true;
	link.link.expires_ms = KIT_NOW_MS + 5;
	struct store_write on_link = on_alias(STORE_PERMIT, "name");
	on_link.user = guest;
	struct store_write off_link = on_alias(STORE_FORBID, "name");
	off_link.user = guest;
	struct store_write nobody = on_alias(STORE_PERMIT, "name");
	struct store_write reap = on_alias(STORE_LINK_SWEEP, "name");
	const struct {
		struct store_write write;
		int result;
	} steps[] = {
	    {on_link, ERR_NOT_FOUND}, /* not made yet */
	    {link, 0},
	    {on_link, 0},
	    {nobody, ERR_INVALID},
	    {off_link, 0},
	    {reap, 0},
	    {reap, ERR_NOT_FOUND},
	    {on_link, ERR_NOT_FOUND},
	};
	struct store_write batch[ARRAY_LEN(steps)];
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		batch[i] = steps[i].write;
		batch[i].result = 12345;
	}
	assert_int_equal(store_apply(suite.store, batch, ARRAY_LEN(batch)), 0);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		assert_int_equal(batch[i].result, steps[i].result);
	assert_link(&batch[2].link, &link.link);
	assert_link(&batch[5].link, &link.link);
}

/* In parts, each of which a busy machine answers in time. */
static void apply_all(struct store_write *batch, size_t n)
{
	enum { PART = 100 };
	for (size_t at = 0; at < n; at += PART)
		assert_int_equal(store_apply(suite.store, batch + at, MIN(n - at, (size_t)PART)), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(batch[i].result, 0);
}

TEST(a_list_has_an_end)
{
	struct store_write *batch = calloc(PERMITTED_MAX + 1, sizeof(*batch));
	uint64_t *users = calloc(PERMITTED_MAX + 1, sizeof(*users));
	create_private(1);
	create_private(2);
	for (size_t i = 0; i <= PERMITTED_MAX; i++) {
		users[i] = 100 + i;
		batch[i] = on_generated(STORE_PERMIT, 1);
		batch[i].user = users[i];
	}
	apply_all(batch, PERMITTED_MAX);
	assert_int_equal(change_list(STORE_PERMIT, 1, users[PERMITTED_MAX]), ERR_LIMIT);
	assert_int_equal(list_length(1), PERMITTED_MAX);
	assert_int_equal(change_list(STORE_PERMIT, 1, users[0]), 0); /* is there already */
	assert_int_equal(change_list(STORE_PERMIT, 1, UINT64_MAX), ERR_INVALID);
	assert_int_equal(change_list(STORE_PERMIT, 2, users[PERMITTED_MAX]), 0); /* another list */
	assert_int_equal(change_list(STORE_FORBID, 1, users[7]), 0);
	assert_int_equal(change_list(STORE_FORBID, 1, users[7]), 0);
	assert_int_equal(change_list(STORE_PERMIT, 1, users[PERMITTED_MAX]), 0);
	assert_int_equal(change_list(STORE_PERMIT, 1, users[7]), ERR_LIMIT);
	struct store_write gone = on_generated(STORE_LINK_DELETE, 1);
	assert_int_equal(kit_apply(suite.store, &gone), 0);
	assert_int_equal(list_length(1), 0);
	assert_int_equal(list_length(2), 1);
	free(users);
	free(batch);
}

TEST(a_link_given_to_another_is_listed_and_changed_by_them)
{
	create_generated(1);
	create_generated(2);
	struct store_write w = on_generated(STORE_LINK_UPDATE, 1);
	w.owner = 7;
	w.fields = LINK_OWNER;
	w.link.owner = 8;
	assert_int_equal(kit_apply(suite.store, &w), 0);
	assert_int_equal(w.link.owner, 8);
	assert_int_equal(kit_apply(suite.store, &w), ERR_NOT_FOUND); /* it is no longer 7's */
	for (uint64_t owner = 7; owner <= 8; owner++) {
		struct store_list page = {.owner = owner, .limit = 5, .arena = &suite.arena};
		assert_int_equal(store_list(suite.store, &page), 0);
		assert_int_equal(page.count, 1);
		assert_int_equal(page.links[0].id, owner == 7 ? 2 : 1);
	}
	w = on_generated(STORE_LINK_DELETE, 1);
	w.owner = 8;
	assert_int_equal(kit_apply(suite.store, &w), 0);
}

int store_suite_access_run(const char *name)
{
	return RUN_TESTS(.name = name, .setup = suite_setup, .teardown = suite_teardown);
}
