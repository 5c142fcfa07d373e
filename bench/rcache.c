/*
 * What looking up in the shared cache costs: batches through the role `rcache`, beside as many single GETs on
 * one connection. One thread; rounds alternate. A line of JSON for each round.
 *
 *   rcache URLS ROUNDS CALLS
 */
#include "client/redis.h"
#include "os/clock.h"
#include "rcache/backends.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEYS = 64, VALUE_BYTES = 200 };

struct cost {
	double calls_per_s;
	double cpu_us_per_key; /* of the calling thread */
};

static void must(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "rcache: %s\n", what);
	exit(1);
}

static void nothing_of(void *ctx, struct str text)
{
	(void)ctx;
	(void)text;
}

static void nothing(void *ctx)
{
	(void)ctx;
}

static double cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static struct str key_name(unsigned i, char out[16])
{
	return str_n(out, (size_t)snprintf(out, 16, "bench%u", i));
}

static void get_batch(struct rcache *cache)
{
	struct arena arena = {0};
	struct rcache_get gets[KEYS];
	char names[KEYS][16];
	for (unsigned i = 0; i < KEYS; i++)
		gets[i] = (struct rcache_get){.key = key_name(i, names[i]), .arena = &arena};
	cache->ops->get(cache, gets, KEYS);
	for (unsigned i = 0; i < KEYS; i++)
		must(gets[i].state == RCACHE_HIT && gets[i].value.len == VALUE_BYTES, "a key is missing");
	arena_release(&arena);
}

static void get_singly(struct redis *redis)
{
	struct redis_reply reply;
	struct redis_conn *c = redis_take(redis, NULL);
	must(c, "the node is away");
	for (unsigned i = 0; i < KEYS; i++) {
		char key[32];
		snprintf(key, sizeof(key), "curt:l:bench:bench%u", i);
		int r = redis_ask(c, REDIS_ARGS(STR("GET"), str_of(key)), &reply);
		must(r == 0 && (reply.type == REDIS_STR || reply.type == REDIS_NIL), "no answer");
	}
	redis_return(c);
}

static struct cost measure(struct rcache *cache, struct redis *redis, unsigned calls)
{
	int64_t began_ns = clock_mono_ns();
	double began_us = cpu_us();
	for (unsigned i = 0; i < calls; i++) {
		if (cache)
			get_batch(cache);
		else
			get_singly(redis);
	}
	return (struct cost){.calls_per_s = calls / ((double)(clock_mono_ns() - began_ns) / 1e9),
	                     .cpu_us_per_key = (cpu_us() - began_us) / calls / KEYS};
}

static void fill(struct rcache *cache)
{
	char names[KEYS][16], value[VALUE_BYTES];
	struct rcache_fill fills[KEYS];
	memset(value, 'x', sizeof(value));
	for (unsigned i = 0; i < KEYS; i++)
		fills[i] = (struct rcache_fill){.key = key_name(i, names[i]),
		                                .value = str_n(value, sizeof(value)),
		                                .life_ms = 3600 * 1000};
	cache->ops->fill(cache, fills, KEYS, clock_mono_ms());
}

int main(int argc, char **argv)
{
	must(argc == 4, "usage: rcache URLS ROUNDS CALLS");
	struct err e = {""};
	struct rcache *cache;
	struct redis *redis;
	const struct rcache_listener listener = {
	    .changed = nothing_of, .notified = nothing_of, .lost = nothing};
	struct str urls = str_of(argv[1]);
	must(rcache_redis_open(argv[1], "bench", &listener, &cache, &e) == 0, e.text);
	must(redis_new(str_cut(&urls, ','), &redis, &e) == 0, e.text);
	fill(cache);
	unsigned rounds = (unsigned)atoi(argv[2]), calls = (unsigned)atoi(argv[3]);
	for (unsigned i = 0; i < rounds; i++) {
		struct cost batch = measure(cache, NULL, calls);
		struct cost single = measure(NULL, redis, calls / 8);
		printf("{\"batch_calls_s\": %.0f, \"batch_cpu_us\": %.3f, \"single_calls_s\": %.0f, "
		       "\"single_cpu_us\": %.3f}\n",
		       batch.calls_per_s, batch.cpu_us_per_key, single.calls_per_s, single.cpu_us_per_key);
		fflush(stdout);
	}
	cache->ops->free(cache);
	redis_free(redis);
	return 0;
}
