/*
 * Fills a link store as creating one by one would have, only faster. No server may be running on it; it must
 * have been made by one, so that keys have their secret and there is an owner.
 *
 *   links STORE-FILE LIVING ENDED KEYS-FILE
 *
 * The ended ones are spread evenly between the others, every one of them ended within the last day, and every
 * eighth has an alias. The keys of the living go to the file, one in a line.
 */
#include "link/links.h"
#include "base/arena.h"
#include "link/budget.h"
#include "os/clock.h"
#include "store/backends.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2000, DAY_MS = 24 * 3600 * 1000, ALIAS_EVERY = 8 };

static void must(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "links: %s\n", what);
	exit(1);
}

/* The number-th of all: true when it has ended. */
static bool is_ended(uint64_t number, uint64_t ended, uint64_t all)
{
	return (number + 1) * ended / all != number * ended / all;
}

static struct store_write make_write(uint64_t number, bool ended, int64_t now_ms, struct arena *arena)
{
	char *url = arena_alloc(arena, 80), *name = arena_alloc(arena, 32);
	must(url && name, "out of memory");
	struct store_write w = {.kind = STORE_LINK_CREATE, .now_ms = now_ms, .arena = arena};
	w.link = (struct link_record){
	    .url = str_n(url, (size_t)snprintf(url, 80, "https://example.com/bench/%" PRIu64, number)),
	    .owner = 1,
	    .created_ms = now_ms - 2 * DAY_MS,
	    .updated_ms = now_ms - 2 * DAY_MS,
	    .expires_ms = ended ? now_ms - 1 - (int64_t)(number % DAY_MS) : now_ms + 365LL * DAY_MS,
	    .redirect_status = 302,
	    .enabled = true,
	};
	if (number % ALIAS_EVERY == 0) {
		w.link.is_alias = true;
		w.link.key = str_n(name, (size_t)snprintf(name, 32, "alias-%" PRIu64, number));
	}
	return w;
}

int main(int argc, char **argv)
{
	must(argc == 5, "usage: links STORE-FILE LIVING ENDED KEYS-FILE");
	uint64_t ended = strtoull(argv[3], NULL, 10), all = strtoull(argv[2], NULL, 10) + ended;
	must(all > ended, "LIVING must be above zero");
	FILE *keys = fopen(argv[4], "w");
	must(keys, "the keys cannot be written");
	struct err e;
	struct links_config config = {.budgets = budgets_new(), .id_block = BATCH};
	config.settings.quarantine_ms = 90ULL * DAY_MS;
	must(store_sqlite_open(argv[1], &config.store, &e) == 0, "the store cannot be opened");
	struct links *links;
	must(links_new(&config, &links, &e) == 0, "the store's keys cannot be read");
	struct metrics *metrics = metrics_register();
	int64_t now_ms = clock_real_ms();
	struct store_write *writes = calloc(BATCH, sizeof(*writes));
	must(writes && metrics, "out of memory");
	for (uint64_t done = 0; done < all;) {
		struct arena arena = {0};
		size_t n = 0;
		for (; n < BATCH && done + n < all; n++)
			writes[n] = make_write(done + n, is_ended(done + n, ended, all), now_ms, &arena);
		links_apply(links, writes, n, metrics);
		for (size_t i = 0; i < n; i++) {
			must(writes[i].result == 0, "a link could not be made");
			if (!is_ended(done + i, ended, all))
				fprintf(keys, "%.*s\n", STR_ARG(writes[i].link.key));
		}
		arena_release(&arena);
		done += n;
	}
	free(writes);
	links_free(links);
	store_free(config.store);
	budgets_free(config.budgets);
	must(fclose(keys) == 0, "the keys cannot be written");
	return 0;
}
