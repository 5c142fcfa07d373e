/*
 * The filter on Redis. A counted impression is a field of a hash: the fingerprint is its name, the value has
 * the time of receipt and a hash of the event's id. Fingerprints are spread over BUCKETS hashes, so that a
 * batch needs few commands. Each bucket has a new hash in every period of the window plus MARGIN_MS, which
 * expires two periods later. So an entry lives for at least one period. The name of a bucket selects its node
 * on the ring.
 *
 *	key                               contents
 *	curt:seen:ID:BUCKET:PERIOD        fingerprint -> 8 bytes time of receipt, 8 bytes hash of the event's
 *	                                  id
 *	curt:seen:ID:lanes                the coverage of each partition (coverage.h)
 *
 * A missing entry was never counted if the node has received all updates (coverage.h). Coverage is read last:
 * if the server is flushed in between, it has none.
 */
#include "base/hash.h"
#include "client/redis_ring.h"
#include "seen/backends.h"
#include "seen/coverage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	MARGIN_MS = 60 * 60 * 1000, /* events that waited longer are left to the sink */
	BUCKETS = 1024,
	PERIODS_MAX = 3,  /* that are read: the current, the previous and, at its end, the next one */
	PENDING_MAX = 64, /* buckets whose replies are pending */
	PREFIX_BYTES_MAX = 64,
	KEY_BYTES_MAX = PREFIX_BYTES_MAX + 32,
	VALUE_BYTES = 16,
};

struct seen_node {
	bool answers;             /* at the last check */
	struct coverage coverage; /* then */
	struct redis_conn *conn;  /* during a check */
};

struct seen_redis {
	struct seen base;
	struct redis_ring ring;
	char prefix[PREFIX_BYTES_MAX];
	char coverage_key[KEY_BYTES_MAX];
	uint64_t window_ms;
	struct coverage_config coverage;
	struct seen_node *nodes;
	uint8_t node_of[BUCKETS];
	/* The batch by buckets: */
	uint32_t begins[BUCKETS + 1]; /* of each bucket in `order` */
	uint32_t *order;              /* numbers of items */
	bool *has_later;              /* per item: Redis has a later entry, which must stay */
	struct str *args;
	char (*values)[VALUE_BYTES];
	size_t cap;                           /* items */
	bool is_checked;                      /* the batch is sorted, and may be recorded */
	pthread_mutex_t lock;                 /* guards what follows */
	struct err check_error, record_error; /* of the last call; empty: none */
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

static struct str bucket_key(const struct seen_redis *s, unsigned bucket, int64_t period,
                             char out[KEY_BYTES_MAX])
{
	int n = snprintf(out, KEY_BYTES_MAX, "%s%03x:%lld", s->prefix, bucket, (long long)period);
	return str_n(out, (size_t)n);
}

/* The periods whose entries may matter now. */
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

/* The verdict of a value; values further away than the window do not count. */
static enum seen_verdict judge(const struct seen_redis *s, const struct seen_item *item,
                               const struct redis_reply *value)
{
	char own[VALUE_BYTES];
	int64_t received_ms;
	if (value->type != REDIS_STR || value->text.len != VALUE_BYTES)
		return SEEN_UNKNOWN;
	value_of(item, own);
	if (memcmp(value->text.ptr, own, VALUE_BYTES) == 0)
		return SEEN_REPLAY;
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
	const char *why = s->check_error.text[0] ? s->check_error.text : s->record_error.text;
	int r = why[0] ? err_set(e, ERR_UNAVAILABLE, "%s; the sink is queried for duplicates meanwhile", why)
	               : 0;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Checking */

/* Combines the periods: a verdict of one period stays. */
static int read_bucket(struct seen_redis *s, struct seen_batch *b, unsigned bucket, struct redis_conn *c,
                       struct err *why)
{
	struct redis_reply reply;
	if (coverage_reply(c, REDIS_ARRAY, &reply, why) < 0)
		return ERR_UNAVAILABLE;
	if (reply.count != bucket_count(s, bucket))
		return err_set(why, ERR_UNAVAILABLE, "seen.url: Redis sent too short a reply");
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

/* The next buckets of the node that have items, as many as are read in one round trip. */
static size_t next_buckets(const struct seen_redis *s, size_t node, unsigned *at, unsigned ret[PENDING_MAX])
{
	size_t n = 0;
	for (; *at < BUCKETS && n < PENDING_MAX; ++*at)
		if (s->node_of[*at] == node && bucket_count(s, *at) > 0)
			ret[n++] = *at;
	return n;
}

static int read_buckets(struct seen_redis *s, struct seen_batch *b, size_t node, struct redis_conn *c,
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
		for (size_t i = 0; i < n * period_count; i++)
			if (read_bucket(s, b, buckets[i / period_count], c, why) < 0)
				return ERR_UNAVAILABLE;
	}
	return 0;
}

/* A missing entry was never counted, if the node has received all updates that matter. A time of receipt in
 * the future is not trusted. Verdicts of a node that failed later are dropped. */
static void conclude(struct seen_redis *s, struct seen_batch *b, size_t node)
{
	const struct seen_node *n = &s->nodes[node];
	for (size_t i = 0; i < b->count; i++) {
		struct seen_item *item = &b->items[i];
		if (s->node_of[bucket_of(item)] != node || (n->answers && item->verdict != SEEN_UNKNOWN))
			continue;
		const struct coverage_partition *partition =
		    n->answers ? coverage_partition_find(&n->coverage, item->partition) : NULL;
		bool never = partition && partition->is_complete &&
		             item->received_ms - (int64_t)s->window_ms >= partition->since_ms &&
		             b->now_ms - item->received_ms <= MARGIN_MS &&
		             item->received_ms - b->now_ms <= COVERAGE_SLACK_MS;
		item->verdict = never ? SEEN_NEVER : SEEN_UNKNOWN;
	}
}

static void redis_seen_check(struct seen *base, struct seen_batch *b)
{
	struct seen_redis *s = self(base);
	struct err trouble = {""};
	for (size_t i = 0; i < b->count; i++)
		b->items[i].verdict = SEEN_UNKNOWN;
	s->is_checked = b->partition_count > 0 && buckets_fill(s, b) == 0;
	if (!s->is_checked)
		return;
	for (size_t node = 0; node < s->ring.count; node++) {
		struct seen_node *n = &s->nodes[node];
		struct err why = {""};
		n->conn = redis_take(s->ring.nodes[node], &why);
		n->answers = n->conn && read_buckets(s, b, node, n->conn, &why) == 0 &&
		             coverage_read(&n->coverage, &s->coverage, b, n->conn, &why) == 0;
		redis_return(n->conn);
		n->conn = NULL;
		conclude(s, b, node);
		if (!n->answers)
			trouble = why;
	}
	trouble_set(s, &s->check_error, &trouble);
}

/* Recording */

static int read_all(struct redis_conn *c, size_t count, struct err *why)
{
	struct redis_reply reply;
	for (size_t i = 0; i < count; i++)
		if (coverage_reply(c, REDIS_INT, &reply, why) < 0)
			return ERR_UNAVAILABLE;
	return 0;
}

/* Returns the number of commands sent. */
static size_t write_bucket(struct seen_redis *s, const struct seen_batch *b, unsigned bucket,
                           struct redis_conn *c)
{
	char key[KEY_BYTES_MAX], life[24];
	size_t n = 2;
	for (uint32_t i = s->begins[bucket]; i < s->begins[bucket + 1]; i++) {
		uint32_t at = s->order[i];
		const struct seen_item *item = &b->items[at];
		if (s->has_later[at] || item->verdict == SEEN_DUPLICATE || item->verdict == SEEN_REPLAY)
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

static int write_items(struct seen_redis *s, const struct seen_batch *b, size_t node, struct redis_conn *c,
                       struct err *why)
{
	unsigned buckets[PENDING_MAX];
	size_t n;
	for (unsigned at = 0; (n = next_buckets(s, node, &at, buckets)) > 0;) {
		size_t waiting = 0;
		for (size_t i = 0; i < n; i++)
			waiting += write_bucket(s, b, buckets[i], c);
		if (read_all(c, waiting, why) < 0)
			return ERR_UNAVAILABLE;
	}
	return 0;
}

/* The coverage of a node is not updated if it did not answer the check, as it is unknown, nor if it has not
 * accepted all entries: the next check finds the gap. */
static void redis_seen_record(struct seen *base, const struct seen_batch *b)
{
	struct seen_redis *s = self(base);
	struct err trouble = {""};
	for (size_t node = 0; s->is_checked && node < s->ring.count; node++) {
		struct seen_node *n = &s->nodes[node];
		struct err why = {""};
		struct redis_conn *c = n->answers ? redis_take(s->ring.nodes[node], &why) : NULL;
		bool well = c && write_items(s, b, node, c, &why) == 0 &&
		            coverage_write(&n->coverage, &s->coverage, b, c, &why) == 0;
		redis_return(c);
		if (!well && n->answers)
			trouble = why;
	}
	trouble_set(s, &s->record_error, &trouble);
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
    .check = redis_seen_check,
    .record = redis_seen_record,
    .trouble = redis_trouble,
};

static int nodes_make(struct seen_redis *s)
{
	s->nodes = calloc(s->ring.count, sizeof(*s->nodes));
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
		char name[KEY_BYTES_MAX];
		snprintf(name, sizeof(name), "%s%03x", s->prefix, bucket);
		s->node_of[bucket] = (uint8_t)redis_ring_find(&s->ring, str_of(name));
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
