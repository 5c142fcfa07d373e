#include "queue/queue_kafka_private.h"

#include "base/grow.h"
#include "obs/log.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASK_MS = 500 };

static uint64_t stable_hash(const char *text, size_t len)
{
	static const uint8_t key[crypto_shorthash_KEYBYTES];
	uint64_t hash;
	crypto_shorthash((uint8_t *)&hash, (const uint8_t *)text, len, key);
	return hash;
}

struct kafka_partition *partition_find(const struct queue_kafka *q, unsigned topic, int32_t partition)
{
	for (size_t i = 0; i < q->partition_count; i++) {
		struct kafka_partition *p = q->partitions[i];
		if (p->partition == partition && p->topic == topic)
			return p;
	}
	return NULL;
}

/* The arrays grow together, so they share one capacity. */
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
	struct kafka_partition *p = partitions_grow(q) ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		q->is_out_of_memory = true;
		return;
	}
	int len = snprintf(name, sizeof(name), "%s/%d", q->topics.names[place->topic], place->partition);
	uint64_t number = (uint64_t)(place->topic + 1) << 32 | (uint32_t)place->partition;
	*p = (struct kafka_partition){
	    .stream.number = number,
	    .stream.partition = number,
	    .topic = place->topic,
	    .partition = place->partition,
	    .state = PARTITION_ASSIGNED,
	    .node = stable_hash(name, (size_t)len),
	    .committed = KAFKA_OFFSET_NONE,
	    .read = KAFKA_OFFSET_NONE,
	};
	q->partitions[q->partition_count++] = p;
	q->needs_resume = true;
}

static void partition_free(struct kafka_partition *p)
{
	if (p->stream.reader_data)
		p->stream.reader_data_free(p->stream.reader_data);
	free(p);
}

static void partition_remove(struct queue_kafka *q, const struct kafka_place *place)
{
	for (size_t i = 0; i < q->partition_count; i++) {
		struct kafka_partition *p = q->partitions[i];
		if (p->topic != place->topic || p->partition != place->partition)
			continue;
		q->is_revoked |= p->read != p->committed;
		watermarks_forget(q->watermarks, p->stream.number);
		partition_free(p);
		q->partitions[i] = q->partitions[--q->partition_count];
		return;
	}
}

/*
 * While partitions are assigned and revoked, librdkafka (2.0.2) pauses the remaining ones, discards messages
 * it had fetched, and continues after them: messages would be missing. So each partition must seek to its
 * position.
 */
static void partitions_mark_seek(struct queue_kafka *q)
{
	for (size_t i = 0; i < q->partition_count; i++)
		if (q->partitions[i]->state == PARTITION_READY)
			q->partitions[i]->state = PARTITION_SEEK;
	q->needs_resume = true;
}

void partitions_assigned(void *ctx, const struct kafka_place *places, size_t count)
{
	partitions_mark_seek(ctx);
	for (size_t i = 0; i < count; i++)
		partition_add(ctx, &places[i]);
}

void partitions_revoked(void *ctx, const struct kafka_place *places, size_t count)
{
	partitions_mark_seek(ctx);
	for (size_t i = 0; i < count; i++)
		partition_remove(ctx, &places[i]);
}

/* Start positions */

/* The source identifies the cluster and the topics. */
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
	q->source = stable_hash(text, (size_t)len);
	return true;
}

/* Takes the sink's position, if the sink keeps positions. */
static void partition_load(struct queue_kafka *q, struct kafka_partition *p, const struct position *kept,
                           size_t count)
{
	if (q->config.resume) {
		watermarks_forget(q->watermarks, p->stream.number);
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

/* Messages that are missed again after a rewind are not logged again. */
void partition_lose(struct queue_kafka *q, struct kafka_partition *p, int64_t to)
{
	int64_t from = MAX(p->read, p->lost_to);
	p->read = to;
	if (from >= to)
		return;
	p->lost_to = to;
	log_error("events",
	          "Kafka removed messages before they were read, increase the topic's retention:"
	          " topic=%s partition=%d from=%lld messages=%lld",
	          q->topics.names[p->topic], p->partition, (long long)from, (long long)(to - from));
	metric_add(&q->metrics->queue_lost, (uint64_t)(to - from));
}

/*
 * The group's offsets are deleted with a topic. So if the sink has a position and the group has no offset,
 * the position is of an earlier topic with the same name. This one is read from its beginning, and the
 * watermarks skip what was counted. A sink without a position has no events, whatever the group's offset is.
 */
static void partition_set_start(struct queue_kafka *q, struct kafka_partition *p,
                                const struct kafka_bounds *known)
{
	bool is_other = p->committed != KAFKA_OFFSET_NONE && known->group == KAFKA_OFFSET_NONE;
	if (q->config.resume && p->state == PARTITION_ASSIGNED && is_other) {
		log_warn("events",
		         "new topic or consumer group, reading the partition from its beginning:"
		         " topic=%s partition=%d group=%s sink_position=%lld",
		         q->topics.names[p->topic], p->partition, q->config.settings->group,
		         (long long)p->committed);
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

struct kafka_place place_of(const struct kafka_partition *p, int64_t offset)
{
	return (struct kafka_place){p->topic, p->partition, offset};
}

static bool is_to_resume(const struct kafka_partition *p)
{
	return p->state == PARTITION_ASSIGNED || p->state == PARTITION_RESUME;
}

/* librdkafka continues with other partitions only when all assigned ones are started. */
static void partitions_start(struct queue_kafka *q)
{
	size_t given = 0;
	for (size_t i = 0; i < q->partition_count; i++)
		if (q->partitions[i]->state == PARTITION_ASSIGNED)
			q->places[given++] = place_of(q->partitions[i], q->partitions[i]->read);
	if (given > 0 && kafka_consumer_start(q->consumer, q->places, given))
		return;
	/* They were started elsewhere: they must seek to their positions as well. */
	for (size_t i = 0; i < q->partition_count; i++)
		if (q->partitions[i]->state == PARTITION_ASSIGNED)
			q->partitions[i]->state = PARTITION_SEEK;
}

static int partitions_begin(struct queue_kafka *q)
{
	size_t n = 0;
	for (size_t i = 0; i < q->partition_count; i++)
		if (is_to_resume(q->partitions[i]))
			q->places[n++] = place_of(q->partitions[i], 0);
	int r = kafka_consumer_find(q->consumer, q->places, n, q->bounds, ASK_MS);
	n = 0;
	for (size_t i = 0; r == 0 && i < q->partition_count; i++)
		if (is_to_resume(q->partitions[i]))
			partition_set_start(q, q->partitions[i], &q->bounds[n++]);
	if (r == 0)
		partitions_start(q);
	for (size_t i = 0; r == 0 && i < q->partition_count; i++) {
		struct kafka_partition *p = q->partitions[i];
		struct kafka_place place = place_of(p, p->read);
		if (p->state == PARTITION_RESUME || p->state == PARTITION_SEEK)
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
		return err_set(e, ERR_UNAVAILABLE,
		               "queue.url: cannot read the cluster id from Kafka at %s; check the brokers",
		               q->topics.kafka.brokers);
	struct position *kept = NULL;
	size_t count = 0;
	int r = 0;
	if (q->config.resume)
		r = q->config.resume(q->config.ctx, q->source, &arena, &kept, &count);
	if (r == 0 && q->config.resume)
		r = watermarks_load(q->watermarks, kept, count);
	for (size_t i = 0; r == 0 && i < q->partition_count; i++)
		if (is_to_resume(q->partitions[i]))
			partition_load(q, q->partitions[i], kept, count);
	if (r < 0)
		return err_set(e, r, "cannot read the positions of the queue from the sink (%s)",
		               err_name(r));
	r = partitions_begin(q);
	if (r < 0)
		return err_set(e, r, "queue.url: cannot read offsets from Kafka at %s; check the brokers",
		               q->topics.kafka.brokers);
	return 0;
}

void partitions_resume(struct queue_kafka *q)
{
	q->needs_resume = partitions_try(q, &q->resume_error) < 0;
	if (!q->needs_resume)
		q->resume_error.text[0] = '\0';
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
