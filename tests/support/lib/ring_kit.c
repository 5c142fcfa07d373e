#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/ring_kit.h"

#include "lib/os_fault.h"

#include <stdlib.h>

enum { IDS_TRIED_MAX = 1000 };

struct ring_kit ring;
const struct str ring_kit_addresses[RING_PARTS] = {STR("a:1/x"), STR("b:2/x"), STR("c:3/x")};

int ring_kit_setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < RING_PARTS; i++) {
		if (store_memory_open(&ring.inner[i], NULL) != 0)
			return -1;
		store_proxy_init(&ring.proxies[i], ring.inner[i]);
	}
	return 0;
}

int ring_kit_teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < RING_PARTS; i++)
		store_proxy_behave(&ring.proxies[i]);
	for (size_t i = 0; i < RING_OPEN_MAX; i++)
		store_free(steal(ring.open[i]));
	for (size_t i = 0; i < RING_PARTS; i++)
		store_free(ring.inner[i]);
	os_fault_reset();
	arena_release(&ring.arena);
	return 0;
}

static void remember(struct store *s)
{
	size_t i = 0;
	while (i < RING_OPEN_MAX && ring.open[i])
		i++;
	assert_true(i < RING_OPEN_MAX);
	ring.open[i] = s;
}

int ring_kit_over(const size_t *which, size_t n, struct store **ret)
{
	struct store_ring_part parts[RING_PARTS];
	for (size_t i = 0; i < n; i++)
		parts[i] = (struct store_ring_part){.store = &ring.proxies[which[i]].base,
		                                    .address = ring_kit_addresses[which[i]]};
	ring.e.text[0] = '\0';
	int r = store_ring_open(parts, n, true, ret, &ring.e);
	if (r == 0)
		remember(*ret);
	return r;
}

struct store *ring_kit_first(size_t n)
{
	static const size_t first[RING_PARTS] = {0, 1, 2};
	struct store *s = NULL;
	if (ring_kit_over(first, n, &s) != 0)
		fail_msg("%s", ring.e.text);
	return s;
}

struct store *ring_kit_grown(void)
{
	struct store *s = ring_kit_first(2);
	ring_kit_links_make(s, 1, RING_LINKS);
	ring_kit_close(s);
	return ring_kit_first(3);
}

void ring_kit_close(struct store *s)
{
	for (size_t i = 0; i < RING_OPEN_MAX; i++) {
		if (ring.open[i] == s)
			ring.open[i] = NULL;
	}
	store_free(s);
}

void ring_kit_assert_said(const char *word)
{
	if (!strstr(ring.e.text, word))
		fail_msg("no '%s' in: %s", word, ring.e.text);
}

void ring_kit_links_make(struct store *s, uint64_t first, uint64_t count)
{
	struct store_write *writes = calloc(count, sizeof(*writes));
	for (uint64_t i = 0; i < count; i++)
		writes[i] = kit_generated(&ring.arena, first + i);
	assert_int_equal(store_apply(s, writes, count), 0);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(writes[i].result, 0);
	free(writes);
}

struct store_lookup ring_kit_lookup_of(uint64_t id)
{
	return (struct store_lookup){.ref = kit_generated(&ring.arena, id).ref, .arena = &ring.arena};
}

void ring_kit_links_check(struct store *s, uint64_t first, uint64_t count)
{
	struct store_lookup *reads = calloc(count, sizeof(*reads));
	for (uint64_t i = 0; i < count; i++)
		reads[i] = ring_kit_lookup_of(first + i);
	assert_int_equal(store_lookup(s, reads, count), 0);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(reads[i].result, 0);
		assert_int_equal(reads[i].link.id, first + i);
	}
	free(reads);
}

size_t ring_kit_links_in(size_t part)
{
	struct store *inner = ring.inner[part];
	struct str keys[64];
	char after[KEY_BYTES_MAX];
	size_t count, sum = 0;
	struct str last = STR_NULL;
	do {
		struct arena here = {0};
		assert_int_equal(inner->ops->part->keys_after(inner, last, 64, &here, keys, &count), 0);
		if (count > 0) {
			memcpy(after, keys[count - 1].ptr, keys[count - 1].len);
			last = str_n(after, keys[count - 1].len);
		}
		sum += count;
		arena_release(&here);
	} while (count > 0);
	return sum;
}

uint64_t ring_kit_id_in(struct store *s, size_t part, uint64_t from)
{
	CLEANUP(arena_release) struct arena here = {0};
	for (uint64_t id = from; id < from + IDS_TRIED_MAX; id++) {
		unsigned long before = atomic_load(&ring.proxies[part].lookups);
		(void)kit_find_generated(s, &here, id);
		if (atomic_load(&ring.proxies[part].lookups) > before)
			return id;
	}
	fail_msg("no key lies in part %zu", part);
	return 0;
}

int ring_kit_reshard(struct store *s, struct reshard *ret)
{
	*ret = (struct reshard){.leave = NULL};
	int r = store_reshard(s, ret, &ring.e);
	if (r != 0)
		print_error("%s\n", ring.e.text);
	return r;
}
