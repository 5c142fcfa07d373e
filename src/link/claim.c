#include "link/claim.h"

#include "link/ids.h"
#include "link/key_row.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	CLAIM_MAX = 64,
	AGAIN_MS = 1000,
	BACK_MAX = 1024, /* of each kind */
	LATER_MAX = 4,   /* of those given back for later, so many are tried at once */
};

struct claim {
	struct key_source base;
	struct claim_config config;
	struct key_cipher cipher;
	struct ids ids;
	_Atomic int64_t again_ms; /* monotonic; the store had none: not to be asked before */

	pthread_mutex_t lock; /* guards what follows */
	struct source_key back_keys[BACK_MAX], later_keys[BACK_MAX];
	struct key_row back, later;
	int64_t later_ms; /* monotonic; those for later are not to be tried before */
	uint64_t taken, lost;
	uint64_t pending; /* of `taken` so many were given back: the next ones are not counted */
};

static struct claim *self(struct key_source *s)
{
	return container_of(s, struct claim, base);
}

static void source_free(struct key_source *s)
{
	struct claim *c = self(s);
	ids_release(&c->ids);
	pthread_mutex_destroy(&c->lock);
	explicit_bzero(&c->cipher, sizeof(c->cipher));
	free(c);
}

static void key_of(const struct claim *c, uint64_t id, bool used_before, struct source_key *ret)
{
	*ret = (struct source_key){.len = (uint8_t)c->cipher.length, .used_before = used_before};
	key_encode(&c->cipher, id, ret->text);
}

/* None is no failure: then new ones are made. */
static size_t claim_some(struct claim *c, struct source_key *ret, size_t n)
{
	uint64_t ids[CLAIM_MAX];
	size_t found = 0, count = 0;
	int64_t now_ms = clock_mono_ms();
	if (now_ms < atomic_load_explicit(&c->again_ms, memory_order_relaxed))
		return 0;
	int r = store_claim(c->config.store, clock_real_ms(), c->config.quarantine_ms,
	                    MIN(n, (size_t)CLAIM_MAX), ids, &found);
	if (r < 0 || found == 0)
		atomic_store_explicit(&c->again_ms, now_ms + AGAIN_MS, memory_order_relaxed);
	for (size_t i = 0; r == 0 && i < found; i++) {
		if (ids[i] > 0 && ids[i] < c->cipher.count)
			key_of(c, ids[i], true, &ret[count++]);
	}
	return count;
}

static int make_one(struct claim *c, struct source_key *ret, struct err *e)
{
	uint64_t id;
	do {
		int r = ids_next(&c->ids, &id);
		if (r < 0)
			return err_set(e, r, "the store gives no numbers for new keys (%s)", err_name(r));
		key_of(c, id, false, ret);
	} while (key_is_reserved(str_n(ret->text, ret->len)));
	return 0;
}

static size_t take_back(struct claim *c, struct source_key *ret, size_t n)
{
	pthread_mutex_lock(&c->lock);
	size_t count = key_row_take(&c->back, ret, n);
	if (count == 0 && clock_mono_ms() >= c->later_ms)
		count = key_row_take(&c->later, ret, MIN(n, (size_t)LATER_MAX));
	pthread_mutex_unlock(&c->lock);
	return count;
}

static void source_give_back(struct key_source *s, const struct source_key *keys, size_t n, bool later)
{
	struct claim *c = self(s);
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < n; i++) {
		bool dropped = later && !keys[i].used_before;
		if (!dropped && key_row_put(later ? &c->later : &c->back, &keys[i], 1) == 0)
			c->lost++;
	}
	c->pending += n;
	if (later)
		c->later_ms = clock_mono_ms() + AGAIN_MS;
	pthread_mutex_unlock(&c->lock);
}

static void count_taken(struct claim *c, size_t count)
{
	pthread_mutex_lock(&c->lock);
	size_t again = (size_t)MIN(c->pending, count);
	c->pending -= again;
	c->taken += count - again;
	pthread_mutex_unlock(&c->lock);
}

static int source_take(struct key_source *s, struct source_key *ret, size_t n, size_t *ret_count,
                       struct err *e)
{
	struct claim *c = self(s);
	size_t count = take_back(c, ret, n);
	if (count == 0)
		count = claim_some(c, ret, n);
	if (count == 0) {
		int r = make_one(c, &ret[0], e);
		if (r < 0)
			return r;
		count = 1;
	}
	count_taken(c, count);
	*ret_count = count;
	return 0;
}

static struct source_stats source_stats(struct key_source *s)
{
	struct claim *c = self(s);
	pthread_mutex_lock(&c->lock);
	struct source_stats stats = {
	    .available = c->back.count, .aside = c->later.count, .taken = c->taken, .lost = c->lost};
	pthread_mutex_unlock(&c->lock);
	return stats;
}

static const struct key_source_ops ops = {
    .free = source_free,
    .take = source_take,
    .give_back = source_give_back,
    .stats = source_stats,
};

int claim_new(const struct claim_config *config, struct key_source **ret, struct err *e)
{
	if (!config->store->is_shared)
		return err_set(e, ERR_INVALID,
		               "keys.source = claim needs a store that gives keys out again: PostgreSQL "
		               "(store.url = postgres://...); for this one write keys.source = cipher");
	struct claim *c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory");
	c->base.ops = &ops;
	c->config = *config;
	c->cipher = *config->cipher;
	pthread_mutex_init(&c->lock, NULL);
	c->back = (struct key_row){.keys = c->back_keys, .room = BACK_MAX};
	c->later = (struct key_row){.keys = c->later_keys, .room = BACK_MAX};
	ids_init(&c->ids, config->store->registry, config->id_block, c->cipher.count);
	*ret = &c->base;
	return 0;
}
