/*
 * The stores side by side: links made in batches of 512, each one transaction, and looked up in batches of
 * 64, by one thread. `stores FILE URL` fills a SQLite file and a PostgreSQL database; both should be new.
 */
#include "os/clock.h"
#include "store/backends.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 512, BATCHES = 100, LINKS = BATCH * BATCHES, LOOKUPS = 64, ROUNDS = 1000 };

/* As scattered as the keys of the cipher. */
static struct str key_of(struct arena *a, uint64_t id)
{
	return arena_printf(a, "%07llx", (unsigned long long)(id * 2654435761U % (1U << 28)));
}

static void insert(struct store *s, uint64_t first)
{
	static struct store_write writes[BATCH];
	struct arena a = {0};
	for (uint64_t i = 0; i < BATCH; i++) {
		uint64_t id = first + i;
		struct str key = key_of(&a, id);
		writes[i] = (struct store_write){
		    .kind = STORE_LINK_CREATE,
		    .arena = &a,
		    .ref = {id, key},
		    .link = {.id = id,
		             .key = key,
		             .owner = 1,
		             .url = STR("https://example.com/some/path/of/a/usual/length?campaign=1"),
		             .created_ms = (int64_t)id,
		             .redirect_status = 302,
		             .enabled = true},
		};
	}
	int r = store_apply(s, writes, BATCH);
	for (size_t i = 0; i < BATCH; i++)
		ASSERT(r == 0 && writes[i].result == 0);
	arena_release(&a);
}

static void look_up(struct store *s, unsigned *seed)
{
	struct store_lookup reads[LOOKUPS];
	struct arena a = {0};
	for (size_t i = 0; i < LOOKUPS; i++) {
		uint64_t id = (uint64_t)rand_r(seed) % LINKS + 1;
		reads[i] = (struct store_lookup){.ref = {id, key_of(&a, id)}, .arena = &a};
	}
	int r = store_lookup(s, reads, LOOKUPS);
	for (size_t i = 0; i < LOOKUPS; i++)
		ASSERT(r == 0 && reads[i].result == 0);
	arena_release(&a);
}

/* Of the whole process. */
static int64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void measure(const char *name, struct store *s)
{
	unsigned seed = 1;
	int64_t begun_ns = clock_mono_ns(), begun_cpu_ns = cpu_ns();
	for (uint64_t i = 0; i < BATCHES; i++)
		insert(s, i * BATCH + 1);
	int64_t filled_ns = clock_mono_ns(), filled_cpu_ns = cpu_ns();
	for (size_t i = 0; i < ROUNDS; i++)
		look_up(s, &seed);
	int64_t done_ns = clock_mono_ns(), done_cpu_ns = cpu_ns();
	printf("{\"store\": \"%s\", \"made_s\": %.0f, \"looked_up_s\": %.0f, \"made_cpu_us\": %.3f, "
	       "\"looked_up_cpu_us\": %.3f}\n",
	       name, LINKS * 1e9 / (double)(filled_ns - begun_ns),
	       LOOKUPS * ROUNDS * 1e9 / (double)(done_ns - filled_ns),
	       (double)(filled_cpu_ns - begun_cpu_ns) / 1000 / LINKS,
	       (double)(done_cpu_ns - filled_cpu_ns) / 1000 / (LOOKUPS * ROUNDS));
	store_free(s);
}

int main(int argc, char **argv)
{
	struct store *s = NULL;
	struct err e = {""};
	if (argc != 3) {
		fprintf(stderr, "usage: stores FILE URL\n");
		return 2;
	}
	const struct store_shards_config config = {.urls = (struct str[]){str_of(argv[2])}, .count = 1};
	if (store_sqlite_open(argv[1], &s, &e) != 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	measure("sqlite", s);
	if (store_shards_open(&config, &s, &e) != 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	measure("postgres", s);
	return 0;
}
