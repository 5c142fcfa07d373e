#include "queue/queue_kafka_private.h"

#include "base/grow.h"
#include "obs/log.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASK_MS = 500 };

static uint64_t hash_for_good(const char *text, size_t len)
{
	static const uint8_t key[crypto_shorthash_KEYBYTES];
	uint64_t hash;
	crypto_shorthash((uint8_t *)&hash, (const uint8_t *)text, len, key);
	return hash;
}

/* Parts */

struct partition *partition_find(const struct queue_kafka *q, unsigned topic, int32_t partition)
{
	for (size_t i = 0; i < q->partition_count; i++) {
		struct partition *p = q->partitions[i];
		if (p->partition == partition && p->topic == topic)
			return p;
	}
	return NULL;
}

/* They grow alike, so one number says for how many there is room. */
static bool partitions_grow(struct queue_kafka *q)
{
	size_t need = q->partition_count + 1, room[5];
	for (size_t i = 0; i < ARRAY_LEN(room); i++)
		room[i] = q->partition_room;
	pthread_mutex_lock(&q->lock); /* of the lags */
	bool has_grown = ARRAY_ROOM(q->lags, room[0], need);
	pthread_mutex_unlock(&q->lock);
	if (!has_grown || !ARRAY_ROOM(q->partitions, room[1], need) ||
	    !ARRAY_ROOM(q->places, room[2], need) || !ARRAY_ROOM(q->bounds, room[3], need) ||
	    !ARRAY_ROOM(q->partition_advances, room[4], need))
		return false;
	q->partition_room = room[0];
	return true;
}

static void partition_add(struct queue_kafka *q, const struct kafka_place *place)
{
	char name[sizeof(q->topics.names[0]) + 16];
	struct partition *p = partitions_grow(q) ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		q->is_short = true;
		return;
	}
	int len = snprintf(name, sizeof(name), "%s/%d", q->topics.names[place->topic], place->partition);
	uint64_t number = (uint64_t)(place->topic + 1) << 32 | (uint32_t)place->partition;
	*p = (struct partition){
	    .stream.number = number,
	    .stream.partition = number,
	    .topic = place->topic,
	    .partition = place->partition,
	    .state = PARTITION_GIVEN,
	    .node = hash_for_good(name, (size_t)len),
	    .committed = KAFKA_OFFSET_NONE,
	    .read = KAFKA_OFFSET_NONE,
	};
	q->partitions[q->partition_count++] = p;
	q->is_unsettled = true;
}

static void partition_free(struct partition *p)
{
	if (p->stream.reader_data)
		p->stream.reader_data_free(p->stream.reader_data);
	free(p);
}

static void partition_remove(struct queue_kafka *q, const struct kafka_place *place)
{
	for (size_t i = 0; i < q->partition_count; i++) {
		struct partition *p = q->partitions[i];
		if (p->topic != place->topic || p->partition != place->partition)
			continue;
		q->is_lost |= p->read != p->committed;
		marks_forget(q->marks, p->stream.number);
		partition_free(p);
		q->partitions[i] = q->partitions[--q->partition_count];
		return;
	}
}

/*
 * librdkafka pauses what we keep while partitions come and go, throws away what it had fetched of it, and
 * goes on behind that (2.0.2 does): messages would be missing. So each is told where we are.
 */
static void partitions_shake(struct queue_kafka *q)
{
	for (size_t i = 0; i < q->partition_count; i++) {
		if (q->partitions[i]->state == PARTITION_READY)
			q->partitions[i]->state = PARTITION_SHAKEN;
	}
	q->is_unsettled = true;
}

void partitions_given(void *ctx, const struct kafka_place *places, size_t count)
{
	partitions_shake(ctx);
	for (size_t i = 0; i < count; i++)
		partition_add(ctx, &places[i]);
}

void partitions_taken(void *ctx, const struct kafka_place *places, size_t count)
{
	partitions_shake(ctx);
	for (size_t i = 0; i < count; i++)
		partition_remove(ctx, &places[i]);
}

/* Where to begin */

/* Which streams these are: of this cluster, and these topics. */
static bool source_learn(struct queue_kafka *q)
{
	char text[1024];
	if (q->source != 0)
		return true;
	struct str cluster = kafka_consumer_cluster(q->consumer, ASK_MS);
	if (!cluster.ptr)
		return false;
	int len = snprintf(text, sizeof(text), "%.*s", STR_ARG(cluster));
	for (unsigned i = 0; i < WIRE_TOPICS; i++)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "/%s", q->topics.names[i]);
	q->source = hash_for_good(text, (size_t)len);
	return true;
}

/* What the sink has decides. */
static void partition_aim(struct queue_kafka *q, struct partition *p, const struct position *kept,
                          size_t count)
{
	if (q->config.resume) {
		marks_forget(q->marks, p->stream.number);
		p->committed = KAFKA_OFFSET_NONE;
		p->stored = 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (kept[i].stream == p->stream.number) {
			p->committed = (int64_t)kept[i].offset;
			p->stored = kept[i].offset;
		}
	}
	p->read = p->committed;
}

/* What is read again after a rewind was told of before. */
void partition_lose(struct queue_kafka *q, struct partition *p, int64_t to)
{
	int64_t from = MAX(p->read, p->lost_to);
	p->read = to;
	if (from >= to)
		return;
	p->lost_to = to;
	log_error(
	    "events",
	    "%lld messages of partition %d of %s were removed before they were read, from %lld on: Kafka "
	    "keeps them for too short a time, or nobody has read them for too long",
	    (long long)(to - from), p->partition, q->topics.names[p->topic], (long long)from);
	metric_add(&q->metrics->queue_lost, (uint64_t)(to - from));
}

/*
 * Offsets of the group go with a topic that is deleted. So when the sink has a place and the group has none,
 * it is that of another topic of the same name: this one is read from its beginning, and what was counted all
 * the same is left out by the marks. A sink without a place has no events, whatever the group says.
 */
static void partition_place(struct queue_kafka *q, struct partition *p, const struct kafka_bounds *known)
{
	bool is_other = p->committed != KAFKA_OFFSET_NONE && known->group == KAFKA_OFFSET_NONE;
	if (q->config.resume && p->state == PARTITION_GIVEN && is_other) {
		log_warn(
		    "events",
		    "the sink has partition %d of %s up to %lld, but the group %s has no offset there: the "
		    "topic was made again, or the group is new; it is read from the beginning",
		    p->partition, q->topics.names[p->topic], (long long)p->committed,
		    q->config.settings->group);
		p->committed = known->first;
	}
	if (p->committed == KAFKA_OFFSET_NONE && !q->config.resume)
		p->committed = known->group;
	if (p->committed == KAFKA_OFFSET_NONE)
		p->committed = known->first;
	p->read = p->committed;
	if (p->read < known->first)
		partition_lose(q, p, known->first);
}

struct kafka_place place_of(const struct partition *p, int64_t offset)
{
	return (struct kafka_place){p->topic, p->partition, offset};
}

static bool is_to_resume(const struct partition *p)
{
	return p->state == PARTITION_GIVEN || p->state == PARTITION_REWOUND;
}

/* Kafka waits until all that was given has begun, and only then goes on with the others. */
static void partitions_start(struct queue_kafka *q)
{
	size_t given = 0;
	for (size_t i = 0; i < q->partition_count; i++) {
		if (q->partitions[i]->state == PARTITION_GIVEN)
			q->places[given++] = place_of(q->partitions[i], q->partitions[i]->read);
	}
	if (given > 0 && kafka_consumer_start(q->consumer, q->places, given))
		return;
	/* They were begun without us: they must go where we want them, too. */
	for (size_t i = 0; i < q->partition_count; i++) {
		if (q->partitions[i]->state == PARTITION_GIVEN)
			q->partitions[i]->state = PARTITION_SHAKEN;
	}
}

static int partitions_begin(struct queue_kafka *q)
{
	size_t n = 0;
	for (size_t i = 0; i < q->partition_count; i++) {
		if (is_to_resume(q->partitions[i]))
			q->places[n++] = place_of(q->partitions[i], 0);
	}
	int r = kafka_consumer_find(q->consumer, q->places, n, q->bounds, ASK_MS);
	n = 0;
	for (size_t i = 0; r == 0 && i < q->partition_count; i++) {
		if (is_to_resume(q->partitions[i]))
			partition_place(q, q->partitions[i], &q->bounds[n++]);
	}
	if (r == 0)
		partitions_start(q);
	for (size_t i = 0; r == 0 && i < q->partition_count; i++) {
		struct partition *p = q->partitions[i];
		struct kafka_place place = place_of(p, p->read);
		if (p->state == PARTITION_REWOUND || p->state == PARTITION_SHAKEN)
			r = kafka_consumer_seek(q->consumer, &place);
		if (r == 0)
			p->state = PARTITION_READY;
	}
	return r;
}

static int partitions_try(struct queue_kafka *q, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	if (!source_learn(q))
		return err_set(e, ERR_UNAVAILABLE, "Kafka at %s does not say which cluster it is",
		               q->topics.kafka.brokers);
	struct position *kept = NULL;
	size_t count = 0;
	int r = 0;
	if (q->config.resume)
		r = q->config.resume(q->config.ctx, q->source, &arena, &kept, &count);
	if (r == 0 && q->config.resume)
		r = marks_load(q->marks, kept, count);
	for (size_t i = 0; r == 0 && i < q->partition_count; i++) {
		if (is_to_resume(q->partitions[i]))
			partition_aim(q, q->partitions[i], kept, count);
	}
	if (r < 0)
		return err_set(e, r, "the sink does not say how far it has the events (%s)", err_name(r));
	r = partitions_begin(q);
	if (r < 0)
		return err_set(e, r, "Kafka at %s does not say where to go on", q->topics.kafka.brokers);
	return 0;
}

void partitions_settle(struct queue_kafka *q)
{
	q->is_unsettled = partitions_try(q, &q->unsettled) < 0;
	if (!q->is_unsettled)
		q->unsettled.text[0] = '\0';
}

void partitions_release(struct queue_kafka *q)
{
	for (size_t i = 0; i < q->partition_count; i++)
		partition_free(q->partitions[i]);
	free(q->partitions);
	free(q->places);
	free(q->bounds);
	free(q->partition_advances);
	free(q->lags);
}
