#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/store_kit.h"
#include "lib/store_ledger.h"

#include <stdlib.h>

enum { FILLER_URL_BYTES = 8000 };

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

static struct store_write filler_write(struct arena *a, unsigned b, size_t i)
{
	struct store_write w = kit_generated(a, 1000000ULL * b + i);
	char *url = arena_alloc(a, FILLER_URL_BYTES);
	memset(url, 'a' + (int)(b % 26), FILLER_URL_BYTES);
	w.link.url = str_n(url, FILLER_URL_BYTES);
	return w;
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
	for (size_t i = 0; i < filler; i++)
		batch[4 + i] = filler_write(a, b, i);
}

int ledger_apply(struct ledger *ledger, struct store *store, unsigned b, size_t filler)
{
	assert_true(b > 0 && b < LEDGER_BATCHES);
	CLEANUP(arena_release) struct arena a = {0};
	struct store_write *batch = calloc(4 + filler, sizeof(*batch));
	batch_fill(&a, b, batch, filler);
	int r = store_apply(store, batch, 4 + filler);
	if (r == 0) {
		assert_int_equal(batch[0].result, 0);
		assert_int_equal(batch[1].result, 0);
	}
	free(batch);
	ledger->batches[b] = r == 0 ? LEDGER_DONE : r == ERR_UNCERTAIN ? LEDGER_UNCERTAIN : LEDGER_REFUSED;
	return r;
}

int ledger_lease(struct ledger *ledger, struct store *store)
{
	uint64_t first;
	int r = store_lease(store, STR("numbers"), 10, &first);
	if (r != 0)
		return r;
	assert_true(first >= ledger->leased_end);
	ledger->leased_end = first + 10;
	return 0;
}

/* A link and its tags come together or not at all. */
static void tags_check(struct store *store, struct arena *a, const bool *happened)
{
	uint64_t ids[LEDGER_BATCHES + 1], one[2];
	size_t count, at = 0;
	assert_int_equal(store_tagged(store, STR("all"), ARRAY_LEN(ids), ids, &count), 0);
	for (unsigned b = LEDGER_BATCHES - 1; b > 0; b--) {
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

void ledger_check(struct ledger *ledger, struct store *store)
{
	CLEANUP(arena_release) struct arena a = {0};
	bool happened[LEDGER_BATCHES + 2] = {false};
	for (unsigned b = 1; b < LEDGER_BATCHES; b++) {
		happened[b] = kit_find_generated(store, &a, link_id(b)) == 0;
		if (ledger->batches[b] == LEDGER_DONE)
			assert_true(happened[b]);
		else if (ledger->batches[b] != LEDGER_UNCERTAIN)
			assert_false(happened[b]);
	}
	for (unsigned b = 1; b < LEDGER_BATCHES; b++) {
		bool named = happened[b] && !happened[b + 2];
		struct link_record link;
		assert_int_equal(kit_find(store, &a, 0, alias_name(&a, b), NULL), named ? 0 : ERR_NOT_FOUND);
		if (!happened[b])
			continue;
		struct str key = arena_printf(&a, "g%llu", (unsigned long long)link_id(b));
		assert_int_equal(kit_find(store, &a, link_id(b), key.ptr, &link), 0);
		struct str expected = happened[b + 1] ? title(&a, b + 1) : STR_NULL;
		assert_true(str_eq(link.title, expected));
	}
	tags_check(store, &a, happened);
	assert_int_equal(ledger_lease(ledger, store), 0);
}
