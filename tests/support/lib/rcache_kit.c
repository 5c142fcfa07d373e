#include "lib/rcache_kit.h"

#include "lib/test.h"
#include "os/clock.h"

static void hear_changed(void *ctx, struct str key)
{
	struct rcache_kit *k = ctx;
	pthread_mutex_lock(&k->lock);
	snprintf(k->last_changed[k->changed % RCACHE_KIT_LAST], sizeof(k->last_changed[0]), "%.*s",
	         STR_ARG(key));
	k->changed++;
	pthread_cond_broadcast(&k->heard);
	pthread_mutex_unlock(&k->lock);
}

static void hear_told(void *ctx, struct str topic)
{
	struct rcache_kit *k = ctx;
	pthread_mutex_lock(&k->lock);
	k->told++;
	snprintf(k->last_told, sizeof(k->last_told), "%.*s", STR_ARG(topic));
	pthread_cond_broadcast(&k->heard);
	pthread_mutex_unlock(&k->lock);
}

static void hear_lost(void *ctx)
{
	struct rcache_kit *k = ctx;
	pthread_mutex_lock(&k->lock);
	k->lost++;
	pthread_cond_broadcast(&k->heard);
	pthread_mutex_unlock(&k->lock);
}

void rcache_kit_open(struct rcache_kit *k, const char *urls, bool listening)
{
	*k = (struct rcache_kit){.cache = NULL};
	pthread_mutex_init(&k->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&k->heard, &attr);
	pthread_condattr_destroy(&attr);
	const struct rcache_listener listener = {
	    .changed = hear_changed, .notified = hear_told, .lost = hear_lost, .ctx = k};
	MUST(rcache_redis_open(urls, "test", &listener, &k->cache, &why));
	if (!listening)
		return;
	rcache_kit_wait_listening(k, true);
	rcache_kit_wait_lost(k, (unsigned)k->cache->ops->stats(k->cache).nodes); /* each said so */
}

void rcache_kit_close(struct rcache_kit *k)
{
	k->cache->ops->free(k->cache);
	pthread_cond_destroy(&k->heard);
	pthread_mutex_destroy(&k->lock);
}

typedef bool condition(const struct rcache_kit *k, unsigned count, const char *text);

static void wait_for(struct rcache_kit *k, condition *met, unsigned count, const char *text)
{
	struct timespec end = clock_mono_after(UNTIL_MS);
	int late = 0;
	pthread_mutex_lock(&k->lock);
	while (!met(k, count, text) && late == 0)
		late = pthread_cond_timedwait(&k->heard, &k->lock, &end);
	bool ok = met(k, count, text);
	pthread_mutex_unlock(&k->lock);
	if (!ok)
		fail_msg("heard only of %u changes, not lately of '%s', %u topics, %u losses", k->changed,
		         text ? text : "", k->told, k->lost);
}

/* What comes from another node, told earlier, may come later. */
static bool changed_met(const struct rcache_kit *k, unsigned count, const char *text)
{
	bool heard = !text;
	for (size_t i = 0; !heard && i < RCACHE_KIT_LAST; i++)
		heard = strcmp(k->last_changed[i], text) == 0;
	return k->changed >= count && heard;
}

static bool told_met(const struct rcache_kit *k, unsigned count, const char *text)
{
	(void)count;
	return strcmp(k->last_told, text) == 0;
}

static bool lost_met(const struct rcache_kit *k, unsigned count, const char *text)
{
	(void)text;
	return k->lost >= count;
}

void rcache_kit_wait_changed(struct rcache_kit *k, unsigned count, const char *lately)
{
	wait_for(k, changed_met, count, lately);
}

static bool news_met(const struct rcache_kit *k, unsigned count, const char *text)
{
	(void)text;
	return k->changed + k->lost >= count;
}

void rcache_kit_wait_news(struct rcache_kit *k, unsigned count)
{
	wait_for(k, news_met, count, NULL);
}

void rcache_kit_wait_told(struct rcache_kit *k, const char *topic)
{
	wait_for(k, told_met, 0, topic);
}

void rcache_kit_wait_lost(struct rcache_kit *k, unsigned count)
{
	wait_for(k, lost_met, count, NULL);
}

unsigned rcache_kit_lost(struct rcache_kit *k)
{
	pthread_mutex_lock(&k->lock);
	unsigned lost = k->lost;
	pthread_mutex_unlock(&k->lock);
	return lost;
}

unsigned rcache_kit_changed(struct rcache_kit *k)
{
	pthread_mutex_lock(&k->lock);
	unsigned changed = k->changed;
	pthread_mutex_unlock(&k->lock);
	return changed;
}

void rcache_kit_wait_listening(struct rcache_kit *k, bool listening)
{
	UNTIL(k->cache->ops->stats(k->cache).listening == listening);
}

enum rcache_state rcache_kit_get(struct rcache_kit *k, const char *key, const char *value)
{
	struct arena arena = {0};
	struct rcache_get get = {.key = str_of(key), .arena = &arena};
	k->cache->ops->get(k->cache, &get, 1);
	if (get.state == RCACHE_HIT && value)
		assert_true(str_eq(get.value, str_of(value)));
	arena_release(&arena);
	return get.state;
}

void rcache_kit_wait_state(struct rcache_kit *k, const char *key, enum rcache_state state)
{
	UNTIL(rcache_kit_get(k, key, NULL) == state);
}

void rcache_kit_fill(struct rcache_kit *k, const char *key, const char *value, uint64_t life_ms)
{
	const struct rcache_fill fill = {.key = str_of(key), .value = str_of(value), .life_ms = life_ms};
	k->cache->ops->fill(k->cache, &fill, 1, clock_mono_ms());
}

void rcache_kit_change(struct rcache_kit *k, const char *key)
{
	const struct str one = str_of(key);
	k->cache->ops->change(k->cache, &one, 1);
}

void rcache_kit_fill_many(struct rcache_kit *k, unsigned n)
{
	struct arena arena = {0};
	struct rcache_fill *fills = calloc(n, sizeof(*fills));
	for (unsigned i = 0; i < n; i++) {
		fills[i].key = fills[i].value = arena_printf(&arena, "k%u", i);
		fills[i].life_ms = 600000;
	}
	k->cache->ops->fill(k->cache, fills, n, clock_mono_ms());
	free(fills);
	arena_release(&arena);
}

unsigned rcache_kit_hits_of_many(struct rcache_kit *k, unsigned n)
{
	struct arena arena = {0};
	struct rcache_get *gets = calloc(n, sizeof(*gets));
	unsigned hits = 0;
	for (unsigned i = 0; i < n; i++) {
		gets[i].key = arena_printf(&arena, "k%u", i);
		gets[i].arena = &arena;
	}
	k->cache->ops->get(k->cache, gets, n);
	for (unsigned i = 0; i < n; i++) {
		hits += gets[i].state == RCACHE_HIT;
		if (gets[i].state == RCACHE_HIT)
			assert_true(str_eq(gets[i].value, gets[i].key));
	}
	free(gets);
	arena_release(&arena);
	return hits;
}
