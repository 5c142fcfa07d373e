/*
 * The filter on Redis. An impression that was counted is a field of a hash: its fingerprint; the value says
 * when it was received and which event it was. Fingerprints are spread over BUCKETS hashes, so that a batch
 * needs few commands, and each bucket has a new hash in every period of the window and MARGIN_MS; a hash ends
 * two periods later. So a mark lives for one period at least. A bucket lies on the node of the ring that its
 * name belongs to.
 *
 * What is not there was never counted only if the node was told everything since long enough. So each node
 * also keeps, for every lane, how far it was told, since when without a gap, and which life of the server
 * that was (`run_id`): a server that was started again, or has taken over from another, may have lost the
 * last of it. A lane that is to be read from beyond where the node was told has a gap; one that is read from
 * before that is only read again. The record is asked for last: a server that is flushed meanwhile has none.
 */
#include "base/hash.h"
#include "client/redis_ring.h"
#include "seen/backends.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	MARGIN_MS = 60 * 60 * 1000, /* an event that waited longer is for the sink to judge */
	SLACK_MS = 5 * 60 * 1000,   /* clocks of servers and workers may differ so much */
	BUCKETS = 1024,
	PERIODS_MAX = 3,  /* that are asked about: this one, the one before, and at its end the next one */
	PENDING_MAX = 64, /* buckets whose answers are on their way */
	PREFIX_BYTES_MAX = 64,
	KEY_BYTES_MAX = PREFIX_BYTES_MAX + 32,
	VALUE_BYTES = 16,
	RUN_ID_BYTES = 48,
	LANES_MAX = 1024,
	FIELD_BYTES = 40,
	REPEATED_MAX = 100 * 1000 * 1000, /* a lane is not read again from so far back: it is another one */
};

/* What a node remembers of a lane. */
struct lane {
	uint64_t number;
	bool is_whole;    /* there is no gap, as far as we know */
	int64_t since_ms; /* the first moment from which on it was told everything */
};

struct node {
	bool answers;              /* at the last asking */
	char run_id[RUN_ID_BYTES]; /* then */
	struct lane *lanes;        /* LANES_MAX; as many as the batch has */
	struct redis_conn *conn;   /* while it is asked */
};

struct seen_redis {
	struct seen base;
	struct redis_ring ring;
	char prefix[PREFIX_BYTES_MAX];
	char lanes_key[KEY_BYTES_MAX];
	uint64_t window_ms;
	bool is_fresh;
	struct node *nodes;
	uint8_t node_of[BUCKETS];
	/* The batch by buckets: */
	uint32_t begins[BUCKETS + 1]; /* of each bucket in `order` */
	uint32_t *order;              /* numbers of items */
	bool *has_later;              /* of each item: a later one is known, which must stay */
	struct str *args;
	char (*values)[VALUE_BYTES];
	size_t cap;           /* items that there is room for */
	pthread_mutex_t lock; /* of what follows */
	struct err trouble;
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
	int64_t now = period_of(s, now_ms), next = period_of(s, now_ms + SLACK_MS);
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

static bool within(const struct seen_redis *s, int64_t a_ms, int64_t b_ms)
{
	return (uint64_t)(a_ms > b_ms ? a_ms - b_ms : b_ms - a_ms) < s->window_ms;
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
	return within(s, received_ms, item->received_ms) ? SEEN_DUPLICATE : SEEN_UNKNOWN;
}

/* Trouble */

static void trouble_set(struct seen_redis *s, const struct err *why)
{
	pthread_mutex_lock(&s->lock);
	if (why)
		s->trouble = *why;
	else
		s->trouble.text[0] = '\0';
	pthread_mutex_unlock(&s->lock);
}

static int redis_trouble(struct seen *base, struct err *e)
{
	struct seen_redis *s = self(base);
	pthread_mutex_lock(&s->lock);
	int r = s->trouble.text[0]
	            ? err_set(e, ERR_UNAVAILABLE, "%s; the sink is asked for duplicates meanwhile",
	                      s->trouble.text)
	            : 0;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Asking */

static void write_bucket(struct seen_redis *s, const struct seen_batch *b, unsigned bucket, int64_t period,
                         struct redis_conn *c)
{
	char key[KEY_BYTES_MAX];
	size_t n = 0;
	s->args[n++] = STR("HMGET");
	s->args[n++] = bucket_key(s, bucket, period, key);
	for (uint32_t i = s->begins[bucket]; i < s->begins[bucket + 1]; i++)
		s->args[n++] = print_of(&b->items[s->order[i]]);
	redis_write(c, s->args, n);
}

/* What several periods say is added up: one that is the same, or a duplicate, stays so. */
static int read_bucket(struct seen_redis *s, struct seen_batch *b, unsigned bucket, struct redis_conn *c)
{
	struct redis_reply reply;
	if (redis_read(c, &reply) < 0 || reply.type != REDIS_ARRAY || reply.count != bucket_count(s, bucket))
		return ERR_UNAVAILABLE;
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

static int ask_buckets(struct seen_redis *s, struct seen_batch *b, size_t node, struct redis_conn *c)
{
	int64_t periods[PERIODS_MAX];
	unsigned buckets[PENDING_MAX];
	size_t period_count = periods_of(s, b->now_ms, periods), n;
	for (unsigned at = 0; (n = next_buckets(s, node, &at, buckets)) > 0;) {
		for (size_t i = 0; i < n * period_count; i++)
			write_bucket(s, b, buckets[i / period_count], periods[i % period_count], c);
		for (size_t i = 0; i < n * period_count; i++) {
			if (read_bucket(s, b, buckets[i / period_count], c) < 0)
				return ERR_UNAVAILABLE;
		}
	}
	return 0;
}

static struct str lane_field(const struct seen_batch *b, size_t lane, char out[FIELD_BYTES])
{
	int n = snprintf(out, FIELD_BYTES, "%016llx:%llx", (unsigned long long)b->source,
	                 (unsigned long long)b->lanes[lane].stream);
	return str_n(out, (size_t)n);
}

static void write_lanes(struct seen_redis *s, const struct seen_batch *b, size_t node)
{
	char fields[LANES_MAX][FIELD_BYTES];
	struct str args[2 + LANES_MAX] = {STR("HMGET"), str_of(s->lanes_key)};
	for (size_t i = 0; i < b->lane_count; i++)
		args[2 + i] = lane_field(b, i, fields[i]);
	redis_write(s->nodes[node].conn, args, 2 + b->lane_count);
	redis_write(s->nodes[node].conn, REDIS_ARGS(STR("INFO"), STR("server")));
}

static bool run_id_read(struct node *n, struct str info)
{
	static const char name[] = "run_id:";
	const char *at = memmem(info.ptr, info.len, name, sizeof(name) - 1);
	if (!at)
		return false;
	at += sizeof(name) - 1;
	size_t len = strcspn(at, "\r\n");
	if (len == 0 || len >= sizeof(n->run_id) || at + len > info.ptr + info.len)
		return false;
	memcpy(n->run_id, at, len);
	n->run_id[len] = '\0';
	return true;
}

/* A lane's record: how far, since when, of which life. */
struct record {
	unsigned long long offset;
	long long since_ms;
	char run_id[RUN_ID_BYTES];
};

static bool record_read(const struct redis_reply *reply, struct record *ret)
{
	char text[128];
	if (reply->type != REDIS_STR || reply->text.len >= sizeof(text))
		return false;
	memcpy(text, reply->text.ptr, reply->text.len);
	text[reply->text.len] = '\0';
	return sscanf(text, "%llu %lld %47s", &ret->offset, &ret->since_ms, ret->run_id) == 3;
}

/* Goes on where the record ends, or begins anew now. A filter that has no record of a fresh installation was
 * told everything: nothing. */
static void lane_judge(const struct seen_redis *s, const struct node *n, const struct seen_batch *b, size_t i,
                       const struct record *record)
{
	const struct advance *a = &b->lanes[i];
	struct lane *lane = &n->lanes[i];
	lane->number = a->stream;
	lane->is_whole = record && strcmp(record->run_id, n->run_id) == 0 && record->offset >= a->from &&
	                 record->offset - a->from < REPEATED_MAX;
	if (lane->is_whole)
		lane->since_ms = record->since_ms;
	else if (!record && s->is_fresh && a->from == 0) {
		lane->is_whole = true;
		lane->since_ms = INT64_MIN / 2;
	} else
		lane->since_ms = b->now_ms + SLACK_MS;
}

static int read_lanes(const struct seen_redis *s, const struct seen_batch *b, struct node *n)
{
	struct redis_reply reply, info;
	struct record records[LANES_MAX];
	bool has[LANES_MAX];
	if (redis_read(n->conn, &reply) < 0 || reply.type != REDIS_ARRAY || reply.count != b->lane_count)
		return ERR_UNAVAILABLE;
	for (size_t i = 0; i < b->lane_count; i++) {
		struct redis_reply one = redis_reply_at(&reply, i);
		has[i] = record_read(&one, &records[i]);
	}
	if (redis_read(n->conn, &info) < 0 || info.type != REDIS_STR || !run_id_read(n, info.text))
		return ERR_UNAVAILABLE;
	for (size_t i = 0; i < b->lane_count; i++)
		lane_judge(s, n, b, i, has[i] ? &records[i] : NULL);
	return 0;
}

static const struct lane *lane_find(const struct node *n, size_t count, uint64_t number)
{
	for (size_t i = 0; i < count; i++) {
		if (n->lanes[i].number == number)
			return &n->lanes[i];
	}
	return NULL;
}

/* What the node does not know was never counted, if it was told everything that could matter. */
static void conclude(struct seen_redis *s, struct seen_batch *b, size_t node)
{
	for (size_t i = 0; i < b->count; i++) {
		struct seen_item *item = &b->items[i];
		if (s->node_of[bucket_of(item)] != node || item->verdict != SEEN_UNKNOWN)
			continue;
		const struct lane *lane = lane_find(&s->nodes[node], b->lane_count, item->lane);
		if (lane && lane->is_whole && item->received_ms - (int64_t)s->window_ms >= lane->since_ms &&
		    b->now_ms - item->received_ms <= MARGIN_MS)
			item->verdict = SEEN_NEVER;
	}
}

static int ask_node(struct seen_redis *s, struct seen_batch *b, size_t node)
{
	struct node *n = &s->nodes[node];
	if (ask_buckets(s, b, node, n->conn) < 0)
		return ERR_UNAVAILABLE;
	write_lanes(s, b, node);
	return read_lanes(s, b, n);
}

static void forget_verdicts(const struct seen_redis *s, struct seen_batch *b, size_t node)
{
	for (size_t i = 0; i < b->count; i++) {
		if (s->node_of[bucket_of(&b->items[i])] == node)
			b->items[i].verdict = SEEN_UNKNOWN;
	}
}

static void redis_seen_ask(struct seen *base, struct seen_batch *b)
{
	struct seen_redis *s = self(base);
	struct err why = {""};
	bool well = true;
	for (size_t i = 0; i < b->count; i++)
		b->items[i].verdict = SEEN_UNKNOWN;
	if (b->lane_count == 0 || b->lane_count > LANES_MAX || buckets_fill(s, b) < 0)
		return;
	for (size_t node = 0; node < s->ring.count; node++) {
		struct node *n = &s->nodes[node];
		n->conn = redis_take(s->ring.nodes[node], &why);
		n->answers = n->conn && ask_node(s, b, node) == 0;
		if (n->conn && !n->answers)
			err_set(&why, ERR_UNAVAILABLE, "the Redis of seen.url does not answer: %s",
			        redis_why(n->conn));
		redis_return(n->conn);
		n->conn = NULL;
		if (n->answers)
			conclude(s, b, node);
		else
			forget_verdicts(s, b, node);
		well &= n->answers;
	}
	trouble_set(s, well ? NULL : &why);
}

/* Marking */

static int read_all(struct redis_conn *c, size_t count)
{
	struct redis_reply reply;
	for (size_t i = 0; i < count; i++) {
		if (redis_read(c, &reply) < 0 || reply.type == REDIS_ERROR)
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

static int mark_items(struct seen_redis *s, const struct seen_batch *b, size_t node, struct redis_conn *c)
{
	unsigned buckets[PENDING_MAX];
	size_t n;
	for (unsigned at = 0; (n = next_buckets(s, node, &at, buckets)) > 0;) {
		size_t waiting = 0;
		for (size_t i = 0; i < n; i++)
			waiting += write_marks(s, b, buckets[i], c);
		if (read_all(c, waiting) < 0)
			return ERR_UNAVAILABLE;
	}
	return 0;
}

/* Only when all marks are there: otherwise the gap shows the next time. */
static int mark_lanes(struct seen_redis *s, const struct seen_batch *b, const struct node *n,
                      struct redis_conn *c)
{
	for (size_t i = 0; i < b->lane_count; i++) {
		char field[FIELD_BYTES], record[128];
		int len = snprintf(record, sizeof(record), "%llu %lld %s", (unsigned long long)b->lanes[i].to,
		                   (long long)n->lanes[i].since_ms, n->run_id);
		redis_write(c, REDIS_ARGS(STR("HSET"), str_of(s->lanes_key), lane_field(b, i, field),
		                          str_n(record, (size_t)len)));
	}
	return read_all(c, b->lane_count);
}

/* A node that did not answer when it was asked is not told of the lanes: what it knows of them is unknown. */
static void redis_seen_mark(struct seen *base, const struct seen_batch *b)
{
	struct seen_redis *s = self(base);
	if (b->lane_count > LANES_MAX || b->count > s->cap)
		return;
	for (size_t node = 0; node < s->ring.count; node++) {
		struct node *n = &s->nodes[node];
		struct redis_conn *c = n->answers ? redis_take(s->ring.nodes[node], NULL) : NULL;
		if (c && mark_items(s, b, node, c) == 0)
			mark_lanes(s, b, n, c);
		redis_return(c);
	}
}

/* Opening and closing */

static void redis_seen_free(struct seen *base)
{
	struct seen_redis *s = self(base);
	for (size_t i = 0; s->nodes && i < s->ring.count; i++)
		free(s->nodes[i].lanes);
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
	for (size_t i = 0; s->nodes && i < s->ring.count; i++) {
		s->nodes[i].lanes = calloc(LANES_MAX, sizeof(struct lane));
		if (!s->nodes[i].lanes)
			return ERR_NOMEM;
	}
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
	s->is_fresh = config->is_fresh;
	pthread_mutex_init(&s->lock, NULL);
	snprintf(s->prefix, sizeof(s->prefix), "curt:seen:%s:", config->installation);
	snprintf(s->lanes_key, sizeof(s->lanes_key), "%slanes", s->prefix);
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
