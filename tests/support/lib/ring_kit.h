/*
 * A store of several parts for tests: three stores in memory, each behind a proxy that can be made to fail,
 * and rings over them. A ring that a test leaves open, as one that fails does, ends with the test.
 */
#pragma once

#include "lib/store_kit.h"
#include "lib/store_proxy.h"
#include "store/backends.h"
#include "store/reshard.h"

enum { RING_PARTS = 3, RING_LINKS = 3000, RING_OPEN_MAX = 8 };

struct ring_kit {
	struct store *inner[RING_PARTS];
	struct store_proxy proxies[RING_PARTS];
	struct store *open[RING_OPEN_MAX];
	struct arena arena; /* of the test */
	struct err e;       /* what the last call said */
};
extern struct ring_kit ring;
extern const struct str ring_kit_addresses[RING_PARTS];

/* A test's setup and teardown. */
int ring_kit_setup(void **state);
int ring_kit_teardown(void **state);
#define RING_TEST(f) cmocka_unit_test_setup_teardown(f, ring_kit_setup, ring_kit_teardown)

/* A ring over those parts; over the first n, which must work; and over all three, after there were two with
 * RING_LINKS links. */
int ring_kit_over(const size_t *which, size_t n, struct store **ret);
struct store *ring_kit_first(size_t n);
struct store *ring_kit_grown(void);
void ring_kit_close(struct store *s);

/* Does ring.e have the word in it? */
void ring_kit_assert_said(const char *word);

/* Links of the kit's, numbered from `first`: makes them; they are all there; how many are in a part. */
void ring_kit_links_make(struct store *s, uint64_t first, uint64_t count);
void ring_kit_links_check(struct store *s, uint64_t first, uint64_t count);
size_t ring_kit_links_in(size_t part);

/* The first of the kit's keys that lies in the part. */
uint64_t ring_kit_id_in(struct store *s, size_t part, uint64_t from);

/* A lookup of one of the kit's keys, ready to hand in. */
struct store_lookup ring_kit_lookup_of(uint64_t id);

/* Moves all that must move, and prints why not. */
int ring_kit_reshard(struct store *s, struct reshard *ret);
