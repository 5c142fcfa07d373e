#include "lib/store_ledger.h"
#include "lib/store_kit.h"
#include "lib/test.h"

enum {
	FILLER_URL_BYTES = 8000,
	CHANGES = 7, /* of links in a batch, beside the filler */
	ACCOUNT_CHANGES = 5,
	FIRST = 1, /* the id of the first user, and of the first key */
	OWNER = 7, /* of the kit's links */
	REST_MS = 1000,
};

static uint64_t link_id(unsigned b)
{
	return 10ULL * b + 1;
}

static const char *alias_name(struct arena *a, unsigned b)
{
	return arena_printf(a, "alias-%u", b).ptr;
}

static struct str title(struct arena *a, unsigned b)
{
	return arena_printf(a, "title by %u", b);
}

static const char *mortal_name(struct arena *a, unsigned b)
{
	return arena_printf(a, "mortal-%u", b).ptr;
}

static const char *address(struct arena *a, unsigned b)
{
	return arena_printf(a, "user-%u@example.com", b).ptr;
}

static struct store_write filler_write(struct arena *a, unsigned b, size_t i)
{
	struct store_write w = kit_generated(a, 1000000ULL * b + i);
	char *url = arena_alloc(a, FILLER_URL_BYTES);
	memset(url, 'a' + (int)(b % 26), FILLER_URL_BYTES);
	w.link.url = str_n(url, FILLER_URL_BYTES);
	return w;
}

static void accounts_fill(struct arena *a, unsigned b, struct registry_write batch[ACCOUNT_CHANGES])
{
	batch[0] = kit_user(a, address(a, b), ROLE_EDITOR);
	batch[1] = kit_key(a, (uint8_t)b, 0);
	batch[2] = (struct registry_write){
	    .kind = REGISTRY_USER_UPDATE, .arena = a, .user.id = FIRST, .user_fields = USER_END_SESSIONS};
	batch[3] = (struct registry_write){.kind = REGISTRY_KEY_USED, .key = {.id = FIRST, .used_ms = b}};
	batch[4] = (struct registry_write){
	    .kind = REGISTRY_SESSION_CREATE,
	    .session = {.id = {(uint8_t)b}, .user = FIRST, .expires_ms = KIT_NOW_MS}};
}

/* Which may not have happened. */
static bool is_about_another_batch(size_t change)
{
	return change == 2 || change == 3 || change == 6;
}

static void batch_fill(struct arena *a, unsigned b, struct store_write *batch, size_t filler)
{
	batch[0] = kit_generated(a, link_id(b));
	batch[0].link.tags = arena_printf(a, "[\"all\",\"by-%u\"]", b);
	batch[1] = kit_alias(a, link_id(b) + 1, alias_name(a, b));
	batch[2] = (struct store_write){.kind = STORE_LINK_UPDATE,
	                                .arena = a,
	                                .ref = kit_generated(a, link_id(b - 1)).ref,
	                                .fields = LINK_TITLE,
	                                .link.title = title(a, b)};
	batch[3] = (struct store_write){
	    .kind = STORE_LINK_DELETE, .arena = a, .ref = {.key = str_of(alias_name(a, b - 2))}};
	batch[4] = (struct store_write){
	    .kind = STORE_PERMIT, .arena = a, .ref = kit_generated(a, link_id(b)).ref, .user = FIRST};
	batch[5] = kit_alias(a, link_id(b) + 2, mortal_name(a, b));
	batch[5].link.expires_ms = KIT_NOW_MS;
	batch[6] = (struct store_write){.kind = STORE_LINK_SWEEP,
	                                .now_ms = KIT_NOW_MS,
	                                .arena = a,
	                                .ref = {.key = str_of(mortal_name(a, b - 1))},
	                                .quarantine_ms = REST_MS};
	for (size_t i = 0; i < filler; i++)
		batch[CHANGES + i] = filler_write(a, b, i);
}

static enum ledger_said said(int r)
{
	return r == 0 ? LEDGER_DONE : r == ERR_UNCERTAIN ? LEDGER_UNCERTAIN : LEDGER_REFUSED;
}

static int accounts_apply(struct ledger *ledger, struct store *store, unsigned b, struct arena *a)
{
	struct registry_write batch[ACCOUNT_CHANGES] = {0};
	accounts_fill(a, b, batch);
	int r = registry_apply(store->registry, batch, ACCOUNT_CHANGES);
	ledger->accounts[b] = said(r);
	return r;
}

int ledger_apply(struct ledger *ledger, struct store *store, unsigned b, size_t filler)
{
	assert_true(b > 0 && b < LEDGER_BATCHES);
	CLEANUP(arena_release) struct arena a = {0};
	struct store_write *batch = calloc(CHANGES + filler, sizeof(*batch));
	batch_fill(&a, b, batch, filler);
	int r = store_apply(store, batch, CHANGES + filler);
	for (size_t i = 0; r == 0 && i < CHANGES; i++) {
		if (!is_about_another_batch(i))
			assert_int_equal(batch[i].result, 0);
	}
	free(batch);
	ledger->batches[b] = said(r);
	int accounts = accounts_apply(ledger, store, b, &a);
	return r ? r : accounts;
}

int ledger_lease(struct ledger *ledger, struct store *store)
{
	uint64_t first;
	int r = registry_lease(store->registry, STR("numbers"), 10, &first);
	if (r != 0)
		return r;
	assert_true(first >= ledger->leased_end);
	ledger->leased_end = first + 10;
	return 0;
}

/* A link and its tags come together or not at all. */
static void tags_check(struct store *store, struct arena *a, unsigned last, const bool *happened)
{
	uint64_t ids[LEDGER_BATCHES + 1], one[2];
	size_t count, at = 0;
	assert_int_equal(store_tagged(store, STR("all"), ARRAY_LEN(ids), ids, &count), 0);
	for (unsigned b = last; b > 0; b--) {
		size_t own;
		assert_int_equal(store_tagged(store, arena_printf(a, "by-%u", b), 2, one, &own), 0);
		assert_int_equal(own, happened[b]);
		if (happened[b]) {
			assert_true(at < count);
			assert_int_equal(ids[at++], link_id(b));
		}
	}
	assert_int_equal(at, count);
}

static bool happened_as_said(enum ledger_said said, bool happened)
{
	return said == LEDGER_UNCERTAIN || happened == (said == LEDGER_DONE);
}

/* Each user, key, use and session of what happened, and none besides. */
static void accounts_check(const struct ledger *ledger, struct store *store, struct arena *a)
{
	struct user_record user;
	struct session_record session;
	struct registry_page page = {.limit = 4 * LEDGER_BATCHES, .arena = a};
	size_t batches = 0, key_count;
	assert_int_equal(registry_users(store->registry, &page), 0);
	struct key_record *keys = kit_keys(store, a, &key_count);
	int64_t used_ms = 0;
	for (unsigned b = 1; b < LEDGER_BATCHES; b++) {
		uint8_t id[SESSION_ID_BYTES] = {(uint8_t)b};
		bool happened = kit_session(store, a, id, &session) == 0;
		assert_true(happened_as_said(ledger->accounts[b], happened));
		if (!happened)
			continue;
		assert_int_equal(registry_user(store->registry, 0, str_of(address(a, b)), a, &user), 0);
		assert_true(batches < key_count);
		assert_int_equal(keys[batches].creates_max, b);
		used_ms = b;
		batches++;
	}
	assert_int_equal(page.count, 2 * batches);
	assert_int_equal(key_count, batches);
	if (batches > 0) {
		assert_int_equal(keys[0].used_ms, used_ms);
		assert_int_equal(page.users[0].generation, page.users[1].generation + batches);
	}
}

/* A name that was reaped is gone, and nobody else gets it while it rests. */
static void mortal_check(struct store *store, struct arena *a, unsigned b, const bool *happened)
{
	const char *name = mortal_name(a, b);
	bool there = happened[b] && !happened[b + 1];
	assert_int_equal(kit_find(store, a, 0, name, NULL), there ? 0 : ERR_NOT_FOUND);
	if (!happened[b])
		return;
	struct store_write thief = kit_alias(a, 5, name);
	thief.link.owner = OWNER + 1;
	thief.quarantine_ms = REST_MS;
	assert_int_equal(kit_apply(store, &thief), ERR_CONFLICT);
}

static void link_check(struct store *store, struct arena *a, unsigned b, const bool *happened)
{
	struct link_record link;
	uint64_t *users;
	size_t count;
	struct str key = arena_printf(a, "g%llu", (unsigned long long)link_id(b));
	assert_int_equal(kit_find(store, a, link_id(b), key.ptr, &link), 0);
	struct str expected = happened[b + 1] ? title(a, b + 1) : STR_NULL;
	assert_true(str_eq(link.title, expected));
	assert_int_equal(store_permitted(store, link_id(b), a, &users, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(users[0], FIRST);
}

/* The last batch that was tried. */
static unsigned ledger_last(const struct ledger *ledger)
{
	unsigned last = LEDGER_BATCHES - 1;
	while (last > 0 && ledger->batches[last] == LEDGER_NOTHING)
		last--;
	return last;
}

void ledger_check(struct ledger *ledger, struct store *store)
{
	CLEANUP(arena_release) struct arena a = {0};
	bool happened[LEDGER_BATCHES + 2] = {false};
	unsigned last = ledger_last(ledger);
	for (unsigned b = 1; b <= last; b++) {
		happened[b] = kit_find_generated(store, &a, link_id(b)) == 0;
		assert_true(happened_as_said(ledger->batches[b], happened[b]));
	}
	for (unsigned b = 1; b <= last; b++) {
		bool named = happened[b] && !happened[b + 2];
		assert_int_equal(kit_find(store, &a, 0, alias_name(&a, b), NULL), named ? 0 : ERR_NOT_FOUND);
		mortal_check(store, &a, b, happened);
		if (happened[b])
			link_check(store, &a, b, happened);
	}
	tags_check(store, &a, last, happened);
	accounts_check(ledger, store, &a);
	assert_int_equal(ledger_lease(ledger, store), 0);
}
