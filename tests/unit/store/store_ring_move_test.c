/*
 * Keys move between the parts of a ring while threads of two servers read and change links. Each thread has
 * keys of its own, so it knows what must come of every call; others look for links that are always there.
 * Steps take random time, and movers die half way now and then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/postgres_kit.h"
#include "lib/store_kit.h"
#include "lib/store_proxy.h"
#include "store/backends.h"
#include "store/reshard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	PARTS = 3,
	SERVERS = 2,
	WRITERS = 4,
	READERS = 2,
	NAMES = 60,     /* of each writer */
	STANDING = 400, /* links that are always there */
	PAUSE_US = 300,
};

static struct store *inner[PARTS];
static struct store_proxy proxies[PARTS], movers[PARTS]; /* as the servers see them, and the mover */
static const struct str addresses[PARTS] = {STR("a:1/x"), STR("b:2/x"), STR("c:3/x")};
static struct store *servers[SERVERS];
static uint64_t listed_user;
static atomic_bool ends;

/* --- a thread with links of its own --- */

struct name {
	uint64_t id; /* 0: there is none */
	unsigned title;
	bool listed;
};

struct writer {
	pthread_t thread;
	unsigned number, seed;
	struct store *s;
	struct name names[NAMES];
	uint64_t ids, calls, wrong;
	char first_wrong[200];
};

static unsigned draw(struct writer *me, unsigned below)
{
	return (unsigned)rand_r(&me->seed) % below;
}

static void expect(struct writer *me, bool right, const char *what, unsigned i, int result)
{
	me->calls++;
	if (!right && me->wrong++ == 0)
		snprintf(me->first_wrong, sizeof(me->first_wrong), "writer %u, name %u: %s gave %d",
		         me->number, i, what, result);
}

static struct str name_text(const struct writer *me, struct arena *a, unsigned i)
{
	return arena_printf(a, "w%u-%u", me->number, i);
}

static struct str title_text(struct arena *a, unsigned title)
{
	return arena_printf(a, "title %u", title);
}

static struct store_write change_of(const struct writer *me, struct arena *a, unsigned i,
                                    enum store_write_kind kind)
{
	return (struct store_write){
	    .kind = kind, .now_ms = KIT_NOW_MS, .arena = a, .ref.key = name_text(me, a, i)};
}

static int apply_one(struct writer *me, struct store_write *w)
{
	int r = store_apply(me->s, w, 1);
	return r ? r : w->result;
}

static void create(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = kit_alias(a, (me->number + 1) * 1000000ULL + ++me->ids,
	                                 name_text(me, a, i).ptr);
	unsigned title = draw(me, 1000);
	w.link.is_private = true;
	w.link.title = title_text(a, title);
	w.link.expires_ms = draw(me, 2) ? KIT_NOW_MS : 0; /* so that it may be reaped */
	w.link.expired_url = w.link.expires_ms ? STR("https://late.example/") : STR_NULL;
	uint64_t id = w.link.id;
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? ERR_CONFLICT : 0), "create", i, r);
	if (r == 0)
		*name = (struct name){.id = id, .title = title};
}

static void update(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = change_of(me, a, i, STORE_LINK_UPDATE);
	unsigned title = draw(me, 1000);
	w.fields = LINK_TITLE;
	w.link.title = title_text(a, title);
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND) && (r != 0 || w.link.id == name->id), "update", i, r);
	if (r == 0)
		name->title = title;
}

static void permit(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = change_of(me, a, i, name->listed ? STORE_FORBID : STORE_PERMIT);
	w.user.id = listed_user;
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND), "permit", i, r);
	if (r == 0)
		name->listed = !name->listed;
}

static void delete (struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = change_of(me, a, i, STORE_LINK_DELETE);
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND) && (r != 0 || w.link.id == name->id), "delete", i, r);
	if (r == 0)
		*name = (struct name){.id = 0};
}

/* Long after it ended. */
static void reap(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = {.kind = STORE_LINK_REAP,
	                        .now_ms = KIT_NOW_MS + LINK_LATE_MS,
	                        .arena = a,
	                        .ref.key = name_text(me, a, i)};
	int r = apply_one(me, &w);
	expect(me, name->id ? r == 0 || r == ERR_CONFLICT : r == ERR_NOT_FOUND, "reap", i, r);
	if (r == 0)
		*name = (struct name){.id = 0};
}

static void look(struct writer *me, struct arena *a, unsigned i)
{
	const struct name *name = &me->names[i];
	bool by_row = name->id && draw(me, 4) == 0;
	struct store_lookup read = {.ref = {.id = by_row ? name->id : 0, .key = name_text(me, a, i)},
	                            .user = listed_user,
	                            .arena = a};
	if (by_row)
		read.ref.key = STR_NULL;
	int r = store_lookup(me->s, &read, 1);
	r = r ? r : read.result;
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND), by_row ? "lookup by row" : "lookup", i, r);
	if (r == 0) {
		expect(me, read.link.id == name->id, "id", i, (int)read.link.id);
		expect(me, str_eq(read.link.title, title_text(a, name->title)), "title", i, 0);
		expect(me, read.permitted == name->listed, "permitted", i, read.permitted);
	}
}

static void *writer_run(void *arg)
{
	struct writer *me = arg;
	static void (*const steps[])(struct writer *, struct arena *, unsigned) = {
	    create, create, create, look, look, look, look, update, update, permit, delete, reap};
	while (!atomic_load(&ends)) {
		struct arena a = {0};
		steps[draw(me, ARRAY_LEN(steps))](me, &a, draw(me, NAMES));
		arena_release(&a);
	}
	for (unsigned i = 0; i < NAMES; i++) {
		struct arena a = {0};
		look(me, &a, i);
		arena_release(&a);
	}
	return NULL;
}

/* --- a thread that looks for what is always there --- */

struct reader {
	pthread_t thread;
	struct store *s;
	unsigned seed;
	uint64_t calls, missed;
};

static void read_batch(struct reader *me, struct arena *a)
{
	struct store_lookup reads[32];
	for (size_t i = 0; i < ARRAY_LEN(reads); i++)
		reads[i] = (struct store_lookup){
		    .ref = kit_generated(a, 1 + (unsigned)rand_r(&me->seed) % STANDING).ref, .arena = a};
	int r = store_lookup(me->s, reads, ARRAY_LEN(reads));
	for (size_t i = 0; i < ARRAY_LEN(reads); i++)
		me->missed += r != 0 || reads[i].result != 0;
	me->calls += ARRAY_LEN(reads);
}

/* All that are always there stand in every list of everybody's links. */
static void read_list(struct reader *me, struct arena *a)
{
	struct store_list page = {.owner = 77, .limit = STANDING, .arena = a};
	int r = store_list(me->s, &page);
	me->missed += r != 0 || page.count != STANDING || page.next.ptr;
	me->calls++;
}

static void *reader_run(void *arg)
{
	struct reader *me = arg;
	while (!atomic_load(&ends)) {
		struct arena a = {0};
		if (rand_r(&me->seed) % 16 == 0)
			read_list(me, &a);
		else
			read_batch(me, &a);
		arena_release(&a);
	}
	return NULL;
}

/* --- moves --- */

static bool stop_sometimes(void *ctx, const struct reshard_progress *progress)
{
	(void)progress;
	unsigned *seed = ctx;
	return rand_r(seed) % 12 != 0;
}

/* To all three, or to all but `leave`; stopped and killed now and then until it is done. */
static uint64_t move_until_done(struct store *s, const struct str *leave, unsigned *seed)
{
	struct err e = {""};
	uint64_t moved = 0;
	int result;
	do {
		for (size_t i = 0; i < PARTS; i++)
			atomic_store(&movers[i].forgets_moves, rand_r(seed) % 4 == 0);
		struct reshard r = {
		    .leave = leave, .leave_count = leave ? 1 : 0, .progress = stop_sometimes, .ctx = seed};
		result = store_reshard(s, &r, &e);
		moved += r.moved;
		for (size_t i = 0; i < PARTS; i++)
			atomic_store(&movers[i].forgets_moves, false);
	} while (result == ERR_BUSY || result == ERR_UNAVAILABLE);
	if (result != 0)
		print_error("%s\n", e.text);
	assert_int_equal(result, 0);
	return moved;
}

static struct store *ring_over(struct store_proxy *part, size_t n)
{
	struct store_ring_part parts[PARTS];
	struct store *s = NULL;
	struct err e = {""};
	for (size_t i = 0; i < n; i++)
		parts[i] = (struct store_ring_part){.store = &part[i].base, .address = addresses[i]};
	if (store_ring_open(parts, n, true, &s, &e) != 0)
		print_error("%s\n", e.text);
	assert_non_null(s);
	return s;
}

static void standing_make(struct store *s, struct arena *a)
{
	struct store_write writes[STANDING];
	for (uint64_t i = 0; i < STANDING; i++) {
		writes[i] = kit_generated(a, i + 1);
		writes[i].link.owner = 77;
	}
	assert_int_equal(store_apply(s, writes, STANDING), 0);
	for (size_t i = 0; i < STANDING; i++)
		assert_int_equal(writes[i].result, 0);
	struct store_write user = kit_user(a, "listed@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(s, &user), 0);
	listed_user = user.user.id;
}

static size_t keys_in_all(void)
{
	static struct str keys[100000];
	struct arena a = {0};
	size_t sum = 0, count;
	for (size_t i = 0; i < PARTS; i++) {
		assert_int_equal(
		    inner[i]->ops->part->keys_after(inner[i], STR_NULL, ARRAY_LEN(keys), &a, keys, &count),
		    0);
		sum += count;
	}
	arena_release(&a);
	return sum;
}

static void nothing_is_missed_or_lost_while_keys_move(int rounds)
{
	struct arena a = {0};
	struct writer writers[WRITERS] = {0};
	struct reader readers[READERS] = {0};
	unsigned seed = 1;
	struct store *s = ring_over(proxies, 2);
	standing_make(s, &a);
	store_free(s);
	for (size_t i = 0; i < SERVERS; i++)
		servers[i] = ring_over(proxies, 3);
	s = ring_over(movers, 3);
	for (size_t i = 0; i < PARTS; i++) {
		atomic_store(&proxies[i].pause_us_max, PAUSE_US);
		atomic_store(&movers[i].pause_us_max, PAUSE_US);
	}
	atomic_store(&ends, false);
	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){.number = i, .seed = i + 1, .s = servers[i % SERVERS]};
		pthread_create(&writers[i].thread, NULL, writer_run, &writers[i]);
	}
	for (unsigned i = 0; i < READERS; i++) {
		readers[i] = (struct reader){.seed = i + 100, .s = servers[i % SERVERS]};
		pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]);
	}
	uint64_t moved = 0;
	for (int i = 0; i < rounds; i++) {
		moved += move_until_done(s, NULL, &seed);
		moved += move_until_done(s, &addresses[i % 2 ? 1 : 2], &seed);
	}
	atomic_store(&ends, true);
	uint64_t changes = 0, lookups = 0, there = STANDING;
	for (size_t i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		if (writers[i].wrong)
			print_error("%s, and %llu more\n", writers[i].first_wrong,
			            (unsigned long long)writers[i].wrong - 1);
		assert_int_equal(writers[i].wrong, 0);
		changes += writers[i].calls;
		for (size_t k = 0; k < NAMES; k++)
			there += writers[i].names[k].id != 0;
	}
	for (size_t i = 0; i < READERS; i++) {
		pthread_join(readers[i].thread, NULL);
		assert_int_equal(readers[i].missed, 0);
		lookups += readers[i].calls;
	}
	print_message("%llu keys moved under %llu checked calls and %llu lookups\n",
	              (unsigned long long)moved, (unsigned long long)changes, (unsigned long long)lookups);
	assert_true(moved > 0 && changes > 0 && lookups > 0);
	assert_int_equal(keys_in_all(), there);
	store_free(s);
	for (size_t i = 0; i < SERVERS; i++)
		store_free(servers[i]);
	arena_release(&a);
}

static void with_parts(int rounds)
{
	for (size_t i = 0; i < PARTS; i++) {
		store_proxy_init(&proxies[i], inner[i]);
		store_proxy_init(&movers[i], inner[i]);
	}
	nothing_is_missed_or_lost_while_keys_move(rounds);
	for (size_t i = 0; i < PARTS; i++)
		store_free(inner[i]);
}

static void nothing_is_missed_or_lost_while_keys_move_in_memory(void **state)
{
	(void)state;
	for (size_t i = 0; i < PARTS; i++)
		assert_int_equal(store_memory_open(&inner[i], NULL), 0);
	with_parts(8);
}

static void nothing_is_missed_or_lost_while_keys_move_on_postgres(void **state)
{
	(void)state;
	static char urls[PARTS][POSTGRES_KIT_URL_BYTES];
	if (!postgres_kit_is_there())
		skip();
	for (size_t i = 0; i < PARTS; i++) {
		struct err e = {""};
		postgres_kit_database_make(urls[i]);
		struct store_postgres_config config = {.url = str_of(urls[i]), .readers = 8, .writers = 8};
		if (store_postgres_open(&config, &inner[i], &e) != 0)
			print_error("%s\n", e.text);
		assert_non_null(inner[i]);
	}
	with_parts(2);
	for (size_t i = 0; i < PARTS; i++)
		postgres_kit_database_remove(urls[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_is_missed_or_lost_while_keys_move_in_memory),
	    cmocka_unit_test(nothing_is_missed_or_lost_while_keys_move_on_postgres),
	};
	return cmocka_run_group_tests_name("store_ring_move", tests, NULL, NULL);
}
