#include "keys/keygen.h"

#include "obs/log.h"

#include <stdlib.h>

enum { BATCH = KEYS_DB_KEYS_MAX };

struct keygen {
	struct keygen_config config;
	struct leased_worker *leased_worker;
	bool *filling;           /* per database: being filled; between the marks it continues */
	uint64_t *counts;        /* at the last count */
	struct source_key *keys; /* made, but in no database */
	size_t spare;            /* number of `keys` */
	struct keygen_sums sums;
	uint64_t made_before; /* at the last status line */
};

static int lease_of(void *ctx, size_t resource, struct leases **ret, char name[LEASE_NAME_BYTES],
                    struct err *e)
{
	struct keygen *g = ctx;
	char own[KEYS_DB_NAME_BYTES];
	int r = keys_db_name(g->config.dbs[resource], own, e);
	if (r < 0)
		return r;
	leased_worker_name("keygen", str_of(own), name);
	*ret = g->config.leases;
	return 0;
}

/* From now on the database refuses the previous holder of the lease. */
static int begin(void *ctx, size_t resource, uint64_t fence, struct err *e)
{
	const struct keygen *g = ctx;
	size_t none;
	g->filling[resource] = false;
	return keys_db_add(g->config.dbs[resource], fence, NULL, 0, &none, e);
}

static int add(struct keygen *g, size_t resource, uint64_t fence, size_t count, struct err *e)
{
	struct keys_db *db = g->config.dbs[resource];
	size_t added = 0;
	int r = keys_db_add(db, fence, g->keys, count, &added, e);
	if (r < 0 && r != ERR_UNCERTAIN)
		return r;
	g->spare -= count; /* they are in the database, or may be */
	memmove(g->keys, g->keys + count, g->spare * sizeof(*g->keys));
	if (r == ERR_UNCERTAIN) {
		g->sums.lost += count;
		log_error("keys", "keys may be lost count=%zu database=%.*s error=\"%s\"", count,
		          STR_ARG(keys_db_address(db)), e->text);
		return r;
	}
	if (added < count) /* never expected: the source is unique */
		log_warn("keys", "new keys already existed database=%.*s count=%zu of=%zu",
		         STR_ARG(keys_db_address(db)), count - added, count);
	g->sums.made += added;
	g->counts[resource] += added;
	g->filling[resource] = g->counts[resource] < g->config.high;
	return 1;
}

static int visit(void *ctx, size_t resource, uint64_t fence, struct err *e)
{
	struct keygen *g = ctx;
	uint64_t counts = 0;
	int r = keys_db_count(g->config.dbs[resource], &counts, e);
	if (r < 0)
		return r;
	g->counts[resource] = counts;
	g->filling[resource] = counts < (g->filling[resource] ? g->config.high : g->config.low);
	if (!g->filling[resource])
		return 0;
	size_t count = MIN((size_t)BATCH, g->config.high - counts);
	while (g->spare < count) {
		struct key_source *origin = g->config.origin;
		size_t some = 0;
		r = origin->ops->take(origin, g->keys + g->spare, count - g->spare, &some, e);
		if (r < 0)
			return r;
		g->spare += some;
	}
	return add(g, resource, fence, count, e);
}

static void status(void *ctx, const bool *held, uint64_t ms)
{
	struct keygen *g = ctx;
	for (size_t i = 0; i < g->config.db_count; i++) {
		if (held[i])
			log_info("keys", "keys database=%.*s count=%ju",
			         STR_ARG(keys_db_address(g->config.dbs[i])), (uintmax_t)g->counts[i]);
	}
	log_info("keys", "keygen status made=%ju per_second=%ju lost=%ju", (uintmax_t)g->sums.made,
	         (uintmax_t)((g->sums.made - g->made_before) * 1000 / MAX(ms, 1)), (uintmax_t)g->sums.lost);
	g->made_before = g->sums.made;
}

static struct str address(void *ctx, size_t resource)
{
	const struct keygen *g = ctx;
	return keys_db_address(g->config.dbs[resource]);
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
	g->counts = calloc(config->db_count, sizeof(*g->counts));
	g->keys = calloc(BATCH, sizeof(*g->keys));
	const struct leased_worker_config leased_worker = {
	    .ops = &keygen_ops,
	    .ctx = g,
	    .task = "keygen",
	    .what = "database",
	    .resources = config->db_count,
	    .held_max = config->held_max,
	    .lease_ms = config->lease_ms,
	};
	int r = g->filling && g->counts && g->keys ? 0 : err_set(e, ERR_NOMEM, "out of memory");
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
	ret->lost += g->spare;
	free(g->filling);
	free(g->counts);
	free(g->keys);
	free(g);
}
