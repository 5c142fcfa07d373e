#include "queue/queue_kafka_private.h"

#include "base/grow.h"
#include "obs/log.h"
#include "os/clock.h"

#include <stdlib.h>

enum { WAIT_MS = 200 }; /* per round, for messages that exist and are not fetched yet */

static struct queue_kafka *self(struct queue *base)
{
	return container_of(base, struct queue_kafka, base);
}

/* Rounds */

static void lags_update(struct queue_kafka *q)
{
	pthread_mutex_lock(&q->lock);
	q->lag_count = 0;
	for (size_t i = 0; i < q->partition_count; i++) {
		const struct kafka_partition *p = q->partitions[i];
		int64_t end = kafka_consumer_end(q->consumer, p->topic, p->partition);
		int64_t behind = p->state == PARTITION_READY ? end - p->committed : 0;
		q->lags[q->lag_count++] = (struct queue_lag){q->topics.names[p->topic], p->partition,
		                                             (uint64_t)MAX(behind, (int64_t)0)};
	}
	pthread_mutex_unlock(&q->lock);
}

static int kafka_refresh(struct queue *base)
{
	struct queue_kafka *q = self(base);
	q->is_over = false;
	q->wait_until_ms = clock_mono_ms() + WAIT_MS;
	if (q->needs_resume)
		partitions_resume(q);
	lags_update(q);
	return 0;
}

static bool kafka_is_behind(const struct queue *base)
{
	const struct queue_kafka *q = container_of(base, const struct queue_kafka, base);
	if (q->at < q->message_count)
		return true;
	for (size_t i = 0; i < q->partition_count; i++) {
		const struct kafka_partition *p = q->partitions[i];
		if (p->state == PARTITION_READY &&
		    kafka_consumer_end(q->consumer, p->topic, p->partition) > p->read)
			return true;
	}
	return false;
}

static bool fetch(struct queue_kafka *q)
{
	int64_t left_ms = q->wait_until_ms - clock_mono_ms();
	uint64_t wait_ms = left_ms > 0 && kafka_is_behind(&q->base) ? (uint64_t)left_ms : 0;
	q->at = 0;
	q->message_count = 0; /* partitions may be revoked during the call */
	q->message_count = kafka_consumer_read(q->consumer, wait_ms, &q->messages);
	/* Messages fetched before a partition was revoked and assigned again have no owner. */
	struct kafka_partition *p = NULL;
	for (size_t i = 0; i < q->message_count; i++) {
		const struct kafka_message *m = &q->messages[i];
		if (!p || p->partition != m->partition || p->topic != m->topic)
			p = partition_find(q, m->topic, m->partition);
		q->owners[i] = p && p->state == PARTITION_READY ? p : NULL;
	}
	return q->message_count > 0;
}

/* 1: a new event; 0: a repetition. */
static int message_check(struct queue_kafka *q, struct kafka_partition *p, const struct kafka_message *m)
{
	struct wire_message *w = &q->message;
	if (UNLIKELY(m->offset < p->read))
		log_warn("events",
		         "offsets went back, messages were lost: topic=%s partition=%d from=%lld to=%lld",
		         q->topics.names[p->topic], p->partition, (long long)p->read, (long long)m->offset);
	else if (UNLIKELY(m->offset > p->read)) {
		/* Offsets have gaps, for example from transactions. Only messages before the first one are
		 * lost. */
		int64_t first = kafka_consumer_first(q->consumer, p->topic, p->partition);
		if (first > p->read)
			partition_lose(q, p, MIN(first, m->offset));
	}
	p->read = m->offset + 1;
	q->watermark_moved = w->has_id;
	if (!w->has_id) {
		w->id = (struct event_id){p->node, 0, (uint64_t)m->offset};
		w->event.position = w->id.position;
		return 1;
	}
	int r = watermarks_advance(q->watermarks, p->stream.number, w->id);
	if (r == 0)
		metric_add(&q->metrics->queue_duplicates, 1);
	return r;
}

static int room_for_advances(struct queue_kafka *q)
{
	size_t need = q->partition_count + watermarks_changes_max(q->watermarks);
	return ARRAY_ROOM(q->advances, q->advance_room, MAX(need, 1)) ? 0 : ERR_NOMEM;
}

static int message_deliver(struct queue_kafka *q, struct kafka_partition *p, const struct kafka_message *m,
                           struct queue_event *ret)
{
	struct wire_message *w = &q->message;
	wire_decode(m->topic, m->value, m->time_ms, w);
	int r = message_check(q, p, m);
	if (r > 0 && room_for_advances(q) < 0)
		r = ERR_NOMEM;
	if (r <= 0)
		return r;
	*ret = (struct queue_event){
	    .id = w->id,
	    .stream = &p->stream,
	    .event = &w->event,
	    .has_texts = true,
	    .agent = w->texts.agent,
	    .referrer = w->texts.referrer,
	    .language = w->texts.language,
	};
	return 1;
}

static int kafka_next(struct queue *base, struct queue_event *ret)
{
	struct queue_kafka *q = self(base);
	while (!q->is_over && !q->is_revoked) {
		if (q->at == q->message_count && (!fetch(q) || q->needs_resume))
			break;
		if (q->at == q->message_count)
			continue;
		size_t i = q->at++;
		int r = q->owners[i] ? message_deliver(q, q->owners[i], &q->messages[i], ret) : 0;
		if (r != 0)
			return r;
	}
	if (q->is_revoked)
		return ERR_UNCERTAIN;
	int r = q->is_out_of_memory ? ERR_NOMEM : 0;
	q->is_out_of_memory = false;
	return r;
}

static void kafka_put_back(struct queue *base)
{
	struct queue_kafka *q = self(base);
	q->at--;
	q->owners[q->at]->read = q->messages[q->at].offset;
	if (q->watermark_moved)
		watermarks_undo(q->watermarks);
	q->is_over = true;
}

static size_t kafka_advances(struct queue *base, const struct advance **ret)
{
	struct queue_kafka *q = self(base);
	size_t n = 0;
	*ret = NULL;
	if (room_for_advances(q) < 0) /* message_deliver has failed as well */
		return 0;
	for (size_t i = 0; i < q->partition_count; i++) {
		const struct kafka_partition *p = q->partitions[i];
		if (p->read != p->committed)
			q->advances[n++] = (struct advance){p->stream.number, p->stored, (uint64_t)p->read};
	}
	if (n > 0)
		n += watermarks_changes(q->watermarks, q->advances + n);
	*ret = q->advances;
	return n;
}

/* Impressions are keyed by their ids, so one id is always in the same partition of their topic. */
static size_t kafka_partition_advances(struct queue *base, const struct advance **ret)
{
	struct queue_kafka *q = self(base);
	size_t n = 0;
	for (size_t i = 0; i < q->partition_count; i++) {
		const struct kafka_partition *p = q->partitions[i];
		if (p->topic == WIRE_IMPRESSIONS && p->read != p->committed)
			q->partition_advances[n++] = (struct advance){
			    p->stream.partition, (uint64_t)p->committed, (uint64_t)p->read};
	}
	*ret = q->partition_advances;
	return n;
}

static int kafka_commit(struct queue *base)
{
	struct queue_kafka *q = self(base);
	size_t n = 0;
	for (size_t i = 0; i < q->partition_count; i++) {
		struct kafka_partition *p = q->partitions[i];
		if (p->read == p->committed)
			continue;
		p->committed = p->read;
		p->stored = (uint64_t)p->read;
		q->places[n++] = place_of(p, p->read);
	}
	watermarks_commit(q->watermarks);
	if (n > 0)
		kafka_consumer_commit(q->consumer, q->places, n);
	lags_update(q);
	return 0;
}

/* Also after the sink refused a commit because its positions differ: the next round reads them. */
static void kafka_rewind(struct queue *base)
{
	struct queue_kafka *q = self(base);
	for (size_t i = 0; i < q->partition_count; i++) {
		if (q->partitions[i]->state != PARTITION_ASSIGNED)
			q->partitions[i]->state = PARTITION_RESUME;
		q->partitions[i]->read = q->partitions[i]->committed;
	}
	watermarks_rewind(q->watermarks);
	q->at = q->message_count = 0;
	q->is_revoked = false;
	q->needs_resume = true;
}

static int kafka_trouble(struct queue *base, struct err *e)
{
	struct queue_kafka *q = self(base);
	int r = kafka_consumer_trouble(q->consumer, e);
	if (r == 0 && q->resume_error.text[0])
		r = err_set(e, ERR_UNAVAILABLE, "%s", q->resume_error.text);
	return r;
}

static uint64_t kafka_source(const struct queue *base)
{
	return container_of(base, const struct queue_kafka, base)->source;
}

static void kafka_free(struct queue *base)
{
	struct queue_kafka *q = self(base);
	kafka_consumer_free(q->consumer);
	partitions_release(q);
	free(q->advances);
	watermarks_free(q->watermarks);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

static const struct queue_ops kafka_ops = {
    .free = kafka_free,
    .source = kafka_source,
    .refresh = kafka_refresh,
    .next = kafka_next,
    .put_back = kafka_put_back,
    .advances = kafka_advances,
    .partition_advances = kafka_partition_advances,
    .commit = kafka_commit,
    .rewind = kafka_rewind,
    .is_behind = kafka_is_behind,
    .trouble = kafka_trouble,
};

int queue_kafka_new(const struct queue_kafka_config *config, struct queue **ret, struct err *e)
{
	struct queue_kafka *q = calloc(1, sizeof(*q));
	if (!q || !(q->metrics = metrics_register()) || watermarks_new(&q->watermarks) < 0) {
		free(q);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	q->base.ops = &kafka_ops;
	q->config = *config;
	pthread_mutex_init(&q->lock, NULL);
	const struct kafka_listener listener = {partitions_assigned, partitions_revoked, q};
	int r = topics_init(&q->topics, config->settings, e)
	            ?: kafka_consumer_new(&q->topics.kafka, config->settings->group, &listener, &q->consumer,
	                                  e);
	if (r < 0) {
		kafka_free(&q->base);
		return r;
	}
	*ret = &q->base;
	return 0;
}

size_t queue_kafka_lags(struct queue *queue, struct queue_lag *ret, size_t max)
{
	struct queue_kafka *q = self(queue);
	pthread_mutex_lock(&q->lock);
	size_t n = MIN(q->lag_count, max);
	for (size_t i = 0; i < n; i++)
		ret[i] = q->lags[i];
	pthread_mutex_unlock(&q->lock);
	return n;
}
