#include "link/claim.h"

#include "link/ids.h"
#include "link/key_fifo.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	CLAIM_MAX = 64,
	RETRY_MS = 1000,
	RETURNED_MAX = 1024, /* of each queue */
	DEFERRED_MAX = 4,    /* deferred keys tried at once */
};

struct claim {
	struct key_source base;
	struct claim_config config;
	struct key_cipher cipher;
	struct ids ids;
	_Atomic int64_t retry_ms; /* monotonic; the store had none: do not ask before */

	pthread_mutex_t lock; /* guards all below */
	struct source_key returned_keys[RETURNED_MAX], deferred_keys[RETURNED_MAX];
	struct key_fifo returned, deferred;
	int64_t deferred_ms; /* monotonic; do not try deferred keys before */
	uint64_t taken, lost;
	uint64_t uncounted; /* returned keys are already in `taken`: so many takes are not counted */
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

/* No key is not an error: then new keys are made. */
static size_t claim_some(struct claim *c, struct source_key *ret, size_t n)
{
	uint64_t ids[CLAIM_MAX];
	size_t found = 0, count = 0;
	int64_t now_ms = clock_mono_ms();
	if (now_ms < atomic_load_explicit(&c->retry_ms, memory_order_relaxed))
		return 0;
	int r = store_claim(c->config.store, clock_real_ms(), c->config.quarantine_ms,
	                    MIN(n, (size_t)CLAIM_MAX), ids, &found);
	if (r < 0 || found == 0)
		atomic_store_explicit(&c->retry_ms, now_ms + RETRY_MS, memory_order_relaxed);
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
			return err_set(e, r, "cannot lease ids for new keys from the store (%s)",
			               err_name(r));
		key_of(c, id, false, ret);
	} while (key_is_reserved(str_n(ret->text, ret->len)));
	return 0;
}

static size_t take_returned(struct claim *c, struct source_key *ret, size_t n)
{
	pthread_mutex_lock(&c->lock);
	size_t count = key_fifo_take(&c->returned, ret, n);
	if (count == 0 && clock_mono_ms() >= c->deferred_ms)
		count = key_fifo_take(&c->deferred, ret, MIN(n, (size_t)DEFERRED_MAX));
	pthread_mutex_unlock(&c->lock);
	return count;
}

static void source_put_back(struct key_source *s, const struct source_key *keys, size_t n, bool deferred)
{
	struct claim *c = self(s);
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < n; i++) {
		bool dropped = deferred && !keys[i].used_before;
		if (!dropped && key_fifo_put(deferred ? &c->deferred : &c->returned, &keys[i], 1) == 0)
			c->lost++;
	}
	c->uncounted += n;
	if (deferred)
		c->deferred_ms = clock_mono_ms() + RETRY_MS;
	pthread_mutex_unlock(&c->lock);
}

static int source_take(struct key_source *s, struct source_key *ret, size_t n, size_t *ret_count,
                       struct err *e)
{
	struct claim *c = self(s);
	size_t count = take_returned(c, ret, n);
	if (count == 0)
		count = claim_some(c, ret, n);
	if (count == 0) {
		int r = make_one(c, &ret[0], e);
		if (r < 0)
			return r;
		count = 1;
	}
	pthread_mutex_lock(&c->lock);
	size_t again = (size_t)MIN(c->uncounted, count);
	c->uncounted -= again;
	c->taken += count - again;
	pthread_mutex_unlock(&c->lock);
	*ret_count = count;
	return 0;
}

static struct source_stats source_stats(struct key_source *s)
{
	struct claim *c = self(s);
	pthread_mutex_lock(&c->lock);
	struct source_stats stats = {.available = c->returned.count,
	                             .deferred = c->deferred.count,
	                             .taken = c->taken,
	                             .lost = c->lost};
	pthread_mutex_unlock(&c->lock);
	return stats;
}

static const struct key_source_ops ops = {
    .free = source_free,
    .take = source_take,
    .put_back = source_put_back,
    .stats = source_stats,
};

int claim_new(const struct claim_config *config, struct key_source **ret, struct err *e)
{
	ASSERT(config->store->is_shared);
	struct claim *c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory");
	c->base.ops = &ops;
	c->config = *config;
	c->cipher = *config->cipher;
	pthread_mutex_init(&c->lock, NULL);
	c->returned = (struct key_fifo){.keys = c->returned_keys, .room = RETURNED_MAX};
	c->deferred = (struct key_fifo){.keys = c->deferred_keys, .room = RETURNED_MAX};
	ids_init(&c->ids, config->store->registry, config->id_block, c->cipher.count);
	*ret = &c->base;
	return 0;
}
