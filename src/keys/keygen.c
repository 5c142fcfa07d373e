#include "keys/keygen.h"

#include "obs/log.h"

#include <stdlib.h>

enum { BATCH = KEYS_DB_KEYS_MAX };

struct keygen {
	struct keygen_config config;
	struct leased_worker *leased_worker;
	bool *filling;           /* a stock between the marks is filled if it was below the lower one */
	uint64_t *stocked;       /* as last counted */
	struct source_key *keys; /* that were made, and are in no stock */
	size_t kept;             /* so many */
	struct keygen_sums sums;
	uint64_t made_before; /* at the last status */
};

static int lease_of(void *ctx, size_t place, struct leases **ret, char name[LEASE_NAME_BYTES], struct err *e)
{
	struct keygen *g = ctx;
	char own[KEYS_DB_NAME_BYTES];
	int r = keys_db_name(g->config.dbs[place], own, e);
	if (r < 0)
		return r;
	leased_worker_name("keygen", str_of(own), name);
	*ret = g->config.leases;
	return 0;
}

/* From now on the database refuses whoever looked after it before. */
static int begin(void *ctx, size_t place, uint64_t fence, struct err *e)
{
	const struct keygen *g = ctx;
	size_t none;
	g->filling[place] = false;
	return keys_db_add(g->config.dbs[place], fence, NULL, 0, &none, e);
}

static int add(struct keygen *g, size_t place, uint64_t fence, size_t count, struct err *e)
{
	struct keys_db *db = g->config.dbs[place];
	size_t added = 0;
	int r = keys_db_add(db, fence, g->keys, count, &added, e);
	if (r < 0 && r != ERR_UNCERTAIN)
		return r;
	g->kept -= count; /* they are in the stock, or may be */
	memmove(g->keys, g->keys + count, g->kept * sizeof(*g->keys));
	if (r == ERR_UNCERTAIN) {
		g->sums.lost += count;
		log_error("keys", "%zu keys may be lost: stock %.*s does not say whether it has them (%s)",
		          count, STR_ARG(keys_db_address(db)), e->text);
		return r;
	}
	if (added < count) /* the belt has held something that the braces should have */
		log_warn("keys", "stock %.*s: %zu of %zu new keys were there already",
		         STR_ARG(keys_db_address(db)), count - added, count);
	g->sums.made += added;
	g->stocked[place] += added;
	g->filling[place] = g->stocked[place] < g->config.high;
	return 1;
}

static int visit(void *ctx, size_t place, uint64_t fence, struct err *e)
{
	struct keygen *g = ctx;
	uint64_t stocked = 0;
	int r = keys_db_count(g->config.dbs[place], &stocked, e);
	if (r < 0)
		return r;
	g->stocked[place] = stocked;
	g->filling[place] = stocked < (g->filling[place] ? g->config.high : g->config.low);
	if (!g->filling[place])
		return 0;
	size_t count = MIN((size_t)BATCH, g->config.high - stocked);
	while (g->kept < count) {
		struct key_source *origin = g->config.origin;
		size_t some = 0;
		r = origin->ops->take(origin, g->keys + g->kept, count - g->kept, &some, e);
		if (r < 0)
			return r;
		g->kept += some;
	}
	return add(g, place, fence, count, e);
}

static void status(void *ctx, const bool *held, uint64_t ms)
{
	struct keygen *g = ctx;
	for (size_t i = 0; i < g->config.db_count; i++) {
		if (held[i])
			log_info("keys", "stock %.*s: %ju keys", STR_ARG(keys_db_address(g->config.dbs[i])),
			         (uintmax_t)g->stocked[i]);
	}
	log_info("keys", "keygen: %ju keys made, %ju a second of late; %ju lost", (uintmax_t)g->sums.made,
	         (uintmax_t)((g->sums.made - g->made_before) * 1000 / MAX(ms, 1)), (uintmax_t)g->sums.lost);
	g->made_before = g->sums.made;
}

static struct str address(void *ctx, size_t place)
{
	const struct keygen *g = ctx;
	return keys_db_address(g->config.dbs[place]);
}

static const struct leased_worker_ops keygen_ops = {
    .lease = lease_of,
    .begin = begin,
    .visit = visit,
    .status = status,
    .address = address,
};

int keygen_start(const struct keygen_config *config, struct keygen **ret, struct err *e)
{
	struct keygen *g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(e, ERR_NOMEM, "out of memory");
	g->config = *config;
	g->filling = calloc(config->db_count, sizeof(*g->filling));
	g->stocked = calloc(config->db_count, sizeof(*g->stocked));
	g->keys = calloc(BATCH, sizeof(*g->keys));
	const struct leased_worker_config leased_worker = {
	    .ops = &keygen_ops,
	    .ctx = g,
	    .task = "keygen",
	    .what = "stock",
	    .places = config->db_count,
	    .held_max = config->held_max,
	    .lease_ms = config->lease_ms,
	};
	int r = g->filling && g->stocked && g->keys ? 0 : err_set(e, ERR_NOMEM, "out of memory");
	if (r == 0)
		r = leased_worker_start(&leased_worker, &g->leased_worker, e);
	if (r < 0) {
		struct keygen_sums none;
		keygen_stop(g, &none);
		return r;
	}
	*ret = g;
	return 0;
}

void keygen_stop(struct keygen *g, struct keygen_sums *ret)
{
	*ret = (struct keygen_sums){0};
	if (!g)
		return;
	leased_worker_stop(g->leased_worker);
	*ret = g->sums;
	ret->lost += g->kept;
	free(g->filling);
	free(g->stocked);
	free(g->keys);
	free(g);
}
