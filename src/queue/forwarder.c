#include "queue/forwarder.h"

#include "base/hash.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "queue/topics.h"

#include <stdlib.h>

enum {
	INTERVAL_MS = 100,
	SEND_MS = 2000, /* one attempt; a stopping forwarder waits no longer */
	MESSAGES_MAX = 32768,
	BATCH_BYTES_MAX = 16 << 20,
	TEXT_SLOTS = 4096, /* cached texts */
};

/* A message's key and value, one after the other in the batch's bytes, which may move while the batch
 * grows. */
struct message_span {
	size_t at;
	uint32_t key_len, value_len;
};

/* A cached text of the log, by its position. */
struct text_slot {
	uint64_t segment;
	uint32_t position; /* 0: empty */
	uint32_t len;
	char text[EVENT_STRING_BYTES_MAX];
};

struct forwarder {
	struct forwarder_config config;
	struct topics topics;
	struct metrics *metrics;
	struct queue_consumer *consumer;
	struct kafka_producer *producer; /* NULL: to be created */
	struct err refused;              /* why the last batch was not delivered */
	struct buf bytes;
	struct message_span *spans;
	struct kafka_outgoing *messages; /* one per span */
	size_t count;
	bool is_addressed; /* the messages point to their bytes */
	struct text_slot *slots;
};

/* Texts */

static struct text_slot *slot_of(struct forwarder *f, uint64_t segment, uint32_t position)
{
	return &f->slots[hash_u64(position, segment) % TEXT_SLOTS];
}

static void text_remember(struct forwarder *f, uint64_t segment, uint32_t position, struct str text)
{
	struct text_slot *s = slot_of(f, segment, position);
	s->segment = segment;
	s->position = position;
	s->len = (uint32_t)MIN(text.len, sizeof(s->text));
	if (s->len > 0)
		memcpy(s->text, text.ptr, s->len);
}

/* Copied, since the next text may take its slot. STR_NULL: none. */
static struct str text_find(struct forwarder *f, struct queue *q, const struct queue_event *ev,
                            uint32_t position, char out[EVENT_STRING_BYTES_MAX])
{
	if (position == 0)
		return STR_NULL;
	const struct text_slot *s = slot_of(f, ev->id.segment, position);
	if (LIKELY(s->position == position && s->segment == ev->id.segment)) {
		memcpy(out, s->text, s->len);
		return str_n(out, s->len);
	}
	struct str text = q->ops->text(q, ev->stream, position, out);
	text_remember(f, ev->id.segment, position, text);
	return text;
}

/* Batches */

static void producer_drop(struct forwarder *f)
{
	kafka_producer_free(f->producer);
	f->producer = NULL;
}

/* A producer with messages on their way still uses the bytes of the previous batch. */
static void forwarder_begin(void *ctx)
{
	struct forwarder *f = ctx;
	for (size_t i = 0; i < f->count; i++) {
		if (f->is_addressed && f->messages[i].state == MESSAGE_SENT) {
			producer_drop(f);
			break;
		}
	}
	f->count = 0;
	f->bytes.len = 0;
	f->bytes.failed = false;
	f->is_addressed = false;
	if (f->config.watch)
		f->config.watch->begin(f->config.watch->ctx);
}

static bool forwarder_is_full(void *ctx)
{
	const struct forwarder *f = ctx;
	return f->count == MESSAGES_MAX || f->bytes.len >= BATCH_BYTES_MAX;
}

static int forwarder_add(void *ctx, struct queue *queue, const struct queue_event *ev)
{
	struct forwarder *f = ctx;
	char agent[EVENT_STRING_BYTES_MAX], referrer[EVENT_STRING_BYTES_MAX],
	    language[EVENT_STRING_BYTES_MAX];
	struct queue_event with = *ev;
	if (ev->event->kind == EVENT_STRING)
		text_remember(f, ev->id.segment, (uint32_t)ev->event->position, ev->event->string);
	if (!wire_is_sent(ev->event))
		return 0;
	if (ev->event->kind == EVENT_VISIT) {
		const struct event_visit *v = &ev->event->visit;
		with.has_texts = true;
		with.agent = text_find(f, queue, ev, v->agent, agent);
		with.referrer = text_find(f, queue, ev, v->referrer, referrer);
		with.language = text_find(f, queue, ev, v->language, language);
	}
	const struct wire_texts texts = {with.agent, with.referrer, with.language};
	char scratch[WIRE_KEY_BYTES_MAX];
	struct message_span *span = &f->spans[f->count];
	struct str key = wire_key(ev->event, scratch);
	span->at = f->bytes.len;
	span->key_len = (uint32_t)key.len;
	buf_str(&f->bytes, key);
	wire_encode(&f->bytes, ev->id, ev->event, &texts);
	if (f->bytes.failed)
		return ERR_NOMEM;
	span->value_len = (uint32_t)(f->bytes.len - span->at - key.len);
	f->messages[f->count++].topic = wire_topic_of(ev->event);
	if (f->config.watch)
		f->config.watch->event(f->config.watch->ctx, &with);
	return 0;
}

static int messages_send(struct forwarder *f)
{
	int r = 0;
	if (!f->producer)
		r = kafka_producer_new(&f->topics.kafka, &f->producer, &f->refused);
	if (r == 0)
		r = kafka_producer_send(f->producer, f->messages, f->count, SEND_MS, &f->refused);
	if (r != ERR_UNCERTAIN)
		return r;
	log_warn("events", "replacing the Kafka producer: error=%s", f->refused.text);
	producer_drop(f);
	for (size_t i = 0; i < f->count; i++)
		if (f->messages[i].state == MESSAGE_SENT)
			f->messages[i].state = MESSAGE_NEW;
	metric_add(&f->metrics->queue_producers_replaced, 1);
	return ERR_UNAVAILABLE;
}

/* The log keeps its positions itself. */
static int forwarder_commit(void *ctx, const struct advance *advances, size_t count)
{
	struct forwarder *f = ctx;
	(void)advances;
	(void)count;
	if (!f->is_addressed) {
		for (size_t i = 0; i < f->count; i++) {
			const struct message_span *p = &f->spans[i];
			struct kafka_outgoing *l = &f->messages[i];
			l->key = str_n(f->bytes.data + p->at, p->key_len);
			l->value = str_n(f->bytes.data + p->at + p->key_len, p->value_len);
			l->state = MESSAGE_NEW;
		}
		f->is_addressed = true;
	}
	int r = f->count > 0 ? messages_send(f) : 0;
	if (r < 0) {
		metric_add(&f->metrics->queue_send_failures, 1);
		return r;
	}
	metric_add(&f->metrics->queue_sent, f->count);
	if (f->count > 0 && f->config.watch)
		f->config.watch->delivered(f->config.watch->ctx);
	return 0;
}

static void forwarder_finish(void *ctx)
{
	producer_drop(ctx);
}

static const struct batch_handler handler = {
    .begin = forwarder_begin,
    .is_full = forwarder_is_full,
    .add = forwarder_add,
    .commit = forwarder_commit,
    .finish = forwarder_finish,
};

/* Starting and stopping */

/* Creates a producer at once, so that wrong options are reported at the start. */
static int parts_make(struct forwarder *f, struct err *e)
{
	int r = topics_init(&f->topics, f->config.settings, e)
	            ?: kafka_producer_new(&f->topics.kafka, &f->producer, e);
	if (r < 0)
		return r;
	f->metrics = metrics_register();
	f->spans = malloc(MESSAGES_MAX * sizeof(*f->spans));
	f->messages = malloc(MESSAGES_MAX * sizeof(*f->messages));
	f->slots = calloc(TEXT_SLOTS, sizeof(*f->slots));
	if (!f->metrics || !f->spans || !f->messages || !f->slots)
		return err_set(e, ERR_NOMEM, "out of memory for the forwarder");
	return 0;
}

int forwarder_start(const struct forwarder_config *config, struct forwarder **ret, struct err *e)
{
	struct forwarder *f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(e, ERR_NOMEM, "out of memory for the forwarder");
	f->config = *config;
	const struct queue_consumer_config consumer_config = {
	    .name = "forwarder",
	    .refuses = f->refused.text,
	    .queue = config->queue,
	    .handler = &handler,
	    .ctx = f,
	    .interval_ms = INTERVAL_MS,
	};
	int r = parts_make(f, e) ?: queue_consumer_start(&consumer_config, &f->consumer, e);
	if (r < 0) {
		forwarder_stop(f);
		return r;
	}
	*ret = f;
	return 0;
}

struct queue_consumer *forwarder_consumer(struct forwarder *f)
{
	return f->consumer;
}

void forwarder_stop(struct forwarder *f)
{
	if (!f)
		return;
	queue_consumer_stop(f->consumer);
	kafka_producer_free(f->producer);
	buf_release(&f->bytes);
	free(f->spans);
	free(f->messages);
	free(f->slots);
	free(f);
}
