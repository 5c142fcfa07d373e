/*
 * The filter on Redis. An impression that was counted is a field of a hash: its fingerprint; the value says
 * when it was received and which event it was. Fingerprints are spread over BUCKETS hashes, so that a batch
 * needs few commands, and each bucket has a new hash in every period of the window and MARGIN_MS; a hash ends
 * two periods later. So a mark lives for one period at least. A bucket lies on the node of the ring that its
 * name belongs to.
 *
 * What is not there was never counted if the node was told everything (told.h). It is asked about that last:
 * a server that is flushed meanwhile was told nothing.
 */
#include "base/hash.h"
#include "client/redis_ring.h"
#include "seen/backends.h"
#include "seen/coverage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	MARGIN_MS = 60 * 60 * 1000, /* an event that waited longer is for the sink to judge */
	BUCKETS = 1024,
	PERIODS_MAX = 3,  /* that are asked about: this one, the one before, and at its end the next one */
	PENDING_MAX = 64, /* buckets whose answers are on their way */
	PREFIX_BYTES_MAX = 64,
	KEY_BYTES_MAX = PREFIX_BYTES_MAX + 32,
	VALUE_BYTES = 16,
};

struct node {
	bool answers;             /* at the last asking */
	struct coverage coverage; /* then */
	struct redis_conn *conn;  /* while it is asked */
};

struct seen_redis {
	struct seen base;
	struct redis_ring ring;
	char prefix[PREFIX_BYTES_MAX];
	char coverage_key[KEY_BYTES_MAX];
	uint64_t window_ms;
	struct coverage_config coverage;
	struct node *nodes;
	uint8_t node_of[BUCKETS];
	/* The batch by buckets: */
	uint32_t begins[BUCKETS + 1]; /* of each bucket in `order` */
	uint32_t *order;              /* numbers of items */
	bool *has_later;              /* of each item: a later one is known, which must stay */
	struct str *args;
	char (*values)[VALUE_BYTES];
	size_t cap;                 /* items that there is room for */
	bool is_asked;              /* the batch is sorted in, and may be marked */
	pthread_mutex_t lock;       /* of what follows */
	struct err asking, marking; /* what is wrong with it; empty: nothing */
};

static struct seen_redis *self(struct seen *base)
{
	return container_of(base, struct seen_redis, base);
}

/* Buckets and periods */

static unsigned bucket_of(const struct seen_item *item)
{
	uint16_t bits;
	memcpy(&bits, item->fingerprint, sizeof(bits));
	return bits % BUCKETS;
}

static int64_t period_of(const struct seen_redis *s, int64_t now_ms)
{
	return now_ms / ((int64_t)s->window_ms + MARGIN_MS);
}

static struct str bucket_name(const struct seen_redis *s, unsigned bucket, char out[KEY_BYTES_MAX])
{
	int n = snprintf(out, KEY_BYTES_MAX, "%s%03x", s->prefix, bucket);
	return str_n(out, (size_t)n);
}

static struct str bucket_key(const struct seen_redis *s, unsigned bucket, int64_t period,
                             char out[KEY_BYTES_MAX])
{
	int n = snprintf(out, KEY_BYTES_MAX, "%s%03x:%lld", s->prefix, bucket, (long long)period);
	return str_n(out, (size_t)n);
}

/* The periods whose marks may matter now. */
static size_t periods_of(const struct seen_redis *s, int64_t now_ms, int64_t ret[PERIODS_MAX])
{
	int64_t now = period_of(s, now_ms), next = period_of(s, now_ms + COVERAGE_SLACK_MS);
	ret[0] = now;
	ret[1] = now - 1;
	ret[2] = next;
	return next == now ? 2 : 3;
}

static int room_make(struct seen_redis *s, size_t count)
{
	if (count <= s->cap && s->args)
		return 0;
	size_t cap = MAX(count, (size_t)1024);
	free(s->order), free(s->has_later), free(s->args), free(s->values);
	s->order = malloc(cap * sizeof(*s->order));
	s->has_later = malloc(cap * sizeof(*s->has_later));
	s->args = malloc((2 * cap + 2) * sizeof(*s->args));
	s->values = malloc(cap * sizeof(*s->values));
	s->cap = s->order && s->has_later && s->args && s->values ? cap : 0;
	return s->cap ? 0 : ERR_NOMEM;
}

/* Sorts the batch into its buckets. */
static int buckets_fill(struct seen_redis *s, const struct seen_batch *b)
{
	uint32_t at[BUCKETS];
	if (room_make(s, b->count) < 0)
		return ERR_NOMEM;
	memset(s->begins, 0, sizeof(s->begins));
	memset(s->has_later, 0, b->count * sizeof(*s->has_later));
	for (size_t i = 0; i < b->count; i++)
		s->begins[bucket_of(&b->items[i]) + 1]++;
	for (unsigned k = 0; k < BUCKETS; k++) {
		at[k] = s->begins[k];
		s->begins[k + 1] += s->begins[k];
	}
	for (size_t i = 0; i < b->count; i++)
		s->order[at[bucket_of(&b->items[i])]++] = (uint32_t)i;
	return 0;
}

static size_t bucket_count(const struct seen_redis *s, unsigned bucket)
{
	return s->begins[bucket + 1] - s->begins[bucket];
}

static struct str print_of(const struct seen_item *item)
{
	return str_n((const char *)item->fingerprint, SEEN_FINGERPRINT_BYTES);
}

/* Values */

static void value_of(const struct seen_item *item, char out[VALUE_BYTES])
{
	uint64_t event = hash_bytes(&item->event, sizeof(item->event), 0);
	memcpy(out, &item->received_ms, 8);
	memcpy(out + 8, &event, 8);
}

static bool is_later(const struct redis_reply *value, const struct seen_item *item)
{
	int64_t received_ms;
	if (value->text.len != VALUE_BYTES)
		return false;
	memcpy(&received_ms, value->text.ptr, sizeof(received_ms));
	return received_ms > item->received_ms;
}

/* What a value says about the item; what is further away than the window says nothing. */
static enum seen_verdict judge(const struct seen_redis *s, const struct seen_item *item,
                               const struct redis_reply *value)
{
	char own[VALUE_BYTES];
	int64_t received_ms;
	if (value->type != REDIS_STR || value->text.len != VALUE_BYTES)
		return SEEN_UNKNOWN;
	value_of(item, own);
	if (memcmp(value->text.ptr, own, VALUE_BYTES) == 0)
		return SEEN_ITSELF;
	memcpy(&received_ms, value->text.ptr, 8);
	int64_t apart_ms = received_ms - item->received_ms;
	uint64_t distance_ms = (uint64_t)(apart_ms > 0 ? apart_ms : -apart_ms);
	return distance_ms < s->window_ms ? SEEN_DUPLICATE : SEEN_UNKNOWN;
}

/* Trouble */

static void trouble_set(struct seen_redis *s, struct err *which, const struct err *why)
{
	pthread_mutex_lock(&s->lock);
	*which = *why;
	pthread_mutex_unlock(&s->lock);
}

static int redis_trouble(struct seen *base, struct err *e)
{
	struct seen_redis *s = self(base);
	pthread_mutex_lock(&s->lock);
	const char *why = s->asking.text[0] ? s->asking.text : s->marking.text;
	int r = why[0] ? err_set(e, ERR_UNAVAILABLE, "%s; the sink is asked for duplicates meanwhile", why)
	               : 0;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Asking */

/* What several periods say is added up: one that is the same, or a duplicate, stays so. */
static int read_bucket(struct seen_redis *s, struct seen_batch *b, unsigned bucket, struct redis_conn *c,
                       struct err *why)
{
	struct redis_reply reply;
	if (coverage_reply(c, REDIS_ARRAY, &reply, why) < 0)
		return ERR_UNAVAILABLE;
	if (reply.count != bucket_count(s, bucket))
		return err_set(why, ERR_UNAVAILABLE, "the Redis of seen.url gives too short an answer");
	for (size_t i = 0; i < reply.count; i++) {
		uint32_t at = s->order[s->begins[bucket] + i];
		struct seen_item *item = &b->items[at];
		struct redis_reply value = redis_reply_at(&reply, i);
		if (item->verdict == SEEN_UNKNOWN)
			item->verdict = judge(s, item, &value);
		s->has_later[at] |= value.type == REDIS_STR && is_later(&value, item);
	}
	return 0;
}

/* The buckets from `*at` on that lie on the node and have items, as many as are asked about in one go. */
static size_t next_buckets(const struct seen_redis *s, size_t node, unsigned *at, unsigned ret[PENDING_MAX])
{
	size_t n = 0;
	for (; *at < BUCKETS && n < PENDING_MAX; ++*at) {
		if (s->node_of[*at] == node && bucket_count(s, *at) > 0)
			ret[n++] = *at;
	}
	return n;
}

static int ask_buckets(struct seen_redis *s, struct seen_batch *b, size_t node, struct redis_conn *c,
                       struct err *why)
{
	int64_t periods[PERIODS_MAX];
	unsigned buckets[PENDING_MAX];
	size_t period_count = periods_of(s, b->now_ms, periods), n;
	for (unsigned at = 0; (n = next_buckets(s, node, &at, buckets)) > 0;) {
		for (size_t i = 0; i < n * period_count; i++) {
			unsigned bucket = buckets[i / period_count];
			char key[KEY_BYTES_MAX];
			size_t args = 0;
			s->args[args++] = STR("HMGET");
			s->args[args++] = bucket_key(s, bucket, periods[i % period_count], key);
			for (uint32_t k = s->begins[bucket]; k < s->begins[bucket + 1]; k++)
				s->args[args++] = print_of(&b->items[s->order[k]]);
			redis_write(c, s->args, args);
		}
		for (size_t i = 0; i < n * period_count; i++) {
			if (read_bucket(s, b, buckets[i / period_count], c, why) < 0)
				return ERR_UNAVAILABLE;
		}
	}
	return 0;
}

static int ask_node(struct seen_redis *s, struct seen_batch *b, size_t node, struct err *why)
{
	struct node *n = &s->nodes[node];
	if (ask_buckets(s, b, node, n->conn, why) < 0)
		return ERR_UNAVAILABLE;
	return coverage_ask(&n->coverage, &s->coverage, b, n->conn, why);
}

/* What the node does not know was never counted, if it was told everything that could matter. One that was
 * received in the future says nothing about when it was. What a node said before it fell silent is forgotten.
 */
static void conclude(struct seen_redis *s, struct seen_batch *b, size_t node)
{
	const struct node *n = &s->nodes[node];
	for (size_t i = 0; i < b->count; i++) {
		struct seen_item *item = &b->items[i];
		if (s->node_of[bucket_of(item)] != node || (n->answers && item->verdict != SEEN_UNKNOWN))
			continue;
		const struct coverage_partition *partition = n->answers ? coverage_partition_find(&n->coverage, item->partition)
		                                              : NULL;
		bool never = partition && partition->is_whole &&
		             item->received_ms - (int64_t)s->window_ms >= partition->since_ms &&
		             b->now_ms - item->received_ms <= MARGIN_MS &&
		             item->received_ms - b->now_ms <= COVERAGE_SLACK_MS;
		item->verdict = never ? SEEN_NEVER : SEEN_UNKNOWN;
	}
}

/* A batch without partitions has no impressions. */
static void redis_seen_ask(struct seen *base, struct seen_batch *b)
{
	struct seen_redis *s = self(base);
	struct err trouble = {""};
	for (size_t i = 0; i < b->count; i++)
		b->items[i].verdict = SEEN_UNKNOWN;
	s->is_asked = b->partition_count > 0 && buckets_fill(s, b) == 0;
	if (!s->is_asked)
		return;
	for (size_t node = 0; node < s->ring.count; node++) {
		struct node *n = &s->nodes[node];
		struct err why = {""};
		n->conn = redis_take(s->ring.nodes[node], &why);
		n->answers = n->conn && ask_node(s, b, node, &why) == 0;
		redis_return(n->conn);
		n->conn = NULL;
		conclude(s, b, node);
		if (!n->answers)
			trouble = why;
	}
	trouble_set(s, &s->asking, &trouble);
}

/* Marking */

static int read_all(struct redis_conn *c, size_t count, struct err *why)
{
	struct redis_reply reply;
	for (size_t i = 0; i < count; i++) {
		if (coverage_reply(c, REDIS_INT, &reply, why) < 0)
			return ERR_UNAVAILABLE;
	}
	return 0;
}

/* How many commands were written. */
static size_t write_marks(struct seen_redis *s, const struct seen_batch *b, unsigned bucket,
                          struct redis_conn *c)
{
	char key[KEY_BYTES_MAX], life[24];
	size_t n = 2;
	for (uint32_t i = s->begins[bucket]; i < s->begins[bucket + 1]; i++) {
		uint32_t at = s->order[i];
		const struct seen_item *item = &b->items[at];
		if (s->has_later[at] || item->verdict == SEEN_DUPLICATE || item->verdict == SEEN_ITSELF)
			continue;
		value_of(item, s->values[at]);
		s->args[n++] = print_of(item);
		s->args[n++] = str_n(s->values[at], VALUE_BYTES);
	}
	if (n == 2)
		return 0;
	s->args[0] = STR("HSET");
	s->args[1] = bucket_key(s, bucket, period_of(s, b->now_ms), key);
	redis_write(c, s->args, n);
	snprintf(life, sizeof(life), "%llu", 2 * ((unsigned long long)s->window_ms + MARGIN_MS));
	redis_write(c, REDIS_ARGS(STR("PEXPIRE"), s->args[1], str_of(life)));
	return 2;
}

static int mark_items(struct seen_redis *s, const struct seen_batch *b, size_t node, struct redis_conn *c,
                      struct err *why)
{
	unsigned buckets[PENDING_MAX];
	size_t n;
	for (unsigned at = 0; (n = next_buckets(s, node, &at, buckets)) > 0;) {
		size_t waiting = 0;
		for (size_t i = 0; i < n; i++)
			waiting += write_marks(s, b, buckets[i], c);
		if (read_all(c, waiting, why) < 0)
			return ERR_UNAVAILABLE;
	}
	return 0;
}

/* A node that did not answer when it was asked is not told of the partitions: what it knows of them is unknown.
 * Nor is one that has not taken all marks: the gap shows the next time. */
static void redis_seen_mark(struct seen *base, const struct seen_batch *b)
{
	struct seen_redis *s = self(base);
	struct err trouble = {""};
	for (size_t node = 0; s->is_asked && node < s->ring.count; node++) {
		struct node *n = &s->nodes[node];
		struct err why = {""};
		struct redis_conn *c = n->answers ? redis_take(s->ring.nodes[node], &why) : NULL;
		bool well = c && mark_items(s, b, node, c, &why) == 0 &&
		            coverage_write(&n->coverage, &s->coverage, b, c, &why) == 0;
		redis_return(c);
		if (!well && n->answers)
			trouble = why;
	}
	trouble_set(s, &s->marking, &trouble);
}

/* Opening and closing */

static void redis_seen_free(struct seen *base)
{
	struct seen_redis *s = self(base);
	for (size_t i = 0; s->nodes && i < s->ring.count; i++)
		coverage_release(&s->nodes[i].coverage);
	free(s->nodes);
	free(s->order);
	free(s->has_later);
	free(s->args);
	free(s->values);
	redis_ring_release(&s->ring);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static const struct seen_ops redis_seen_ops = {
    .free = redis_seen_free,
    .ask = redis_seen_ask,
    .mark = redis_seen_mark,
    .trouble = redis_trouble,
};

static int nodes_make(struct seen_redis *s)
{
	s->nodes = calloc(s->ring.count, sizeof(*s->nodes));
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
		char name[KEY_BYTES_MAX];
		s->node_of[bucket] = (uint8_t)redis_ring_find(&s->ring, bucket_name(s, bucket, name));
	}
	return s->nodes ? 0 : ERR_NOMEM;
}

int seen_redis_open(const struct seen_redis_config *config, struct seen **ret, struct err *e)
{
	struct seen_redis *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->base.ops = &redis_seen_ops;
	s->window_ms = config->window_ms;
	s->coverage = (struct coverage_config){.key = s->coverage_key,
	                                       .window_ms = config->window_ms,
	                                       .sink_is_empty = config->sink_is_empty,
	                                       .ctx = config->ctx};
	pthread_mutex_init(&s->lock, NULL);
	snprintf(s->prefix, sizeof(s->prefix), "curt:seen:%s:", config->installation);
	snprintf(s->coverage_key, sizeof(s->coverage_key), "%slanes", s->prefix);
	int r = redis_ring_open(str_of(config->urls), &s->ring, e);
	if (r == 0 && nodes_make(s) < 0)
		r = err_set(e, ERR_NOMEM, "out of memory");
	if (r < 0) {
		redis_seen_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
