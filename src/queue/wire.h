/*
 * The JSON encoding of events as Kafka messages (docs/kafka.md). Other programs may read them and, for
 * impressions, write them. Pure functions over memory.
 *
 * A text that is not UTF-8 is sent twice: with U+FFFD for each invalid byte, and in hexadecimal under its
 * name followed by "Hex". So every event is decoded as it was, except that a country which is not two capital
 * letters is left out.
 */
#pragma once

#include "base/buf.h"
#include "base/position.h"
#include "event/format.h"

enum wire_topic { WIRE_IMPRESSIONS, WIRE_VISITS, WIRE_TOPICS };
extern const char *const wire_topic_names[WIRE_TOPICS];

enum {
	WIRE_KEY_BYTES_MAX = EVENT_FIELD_BYTES_MAX,
	/* A visit's texts, with each byte as U+FFFD and once as it is; and short fields. */
	WIRE_SCRATCH_BYTES = 4 * (3 * EVENT_STRING_BYTES_MAX + EVENT_KEY_BYTES_MAX) + 512,
};

/* The texts of a visit; STR_NULL: none. */
struct wire_texts {
	struct str agent, referrer, language;
};

/* Other events are internal to the log. */
bool wire_is_sent(const struct event *ev);
enum wire_topic wire_topic_of(const struct event *ev);

/* The key that selects the partition: the id of an impression, the link of a visit. Points into the event or
 * `scratch`. An event has the same key whenever it is sent. */
struct str wire_key(const struct event *ev, char scratch[WIRE_KEY_BYTES_MAX]);

void wire_encode(struct buf *out, struct event_id id, const struct event *ev, const struct wire_texts *texts);

/* A decoded message. Its strings point into the message or into `scratch`. */
struct wire_message {
	struct event event;
	struct wire_texts texts;
	bool has_id; /* false for events of other programs */
	struct event_id id;
	size_t scratch_used;
	char scratch[WIRE_SCRATCH_BYTES];
};

/* `time_ms` is Kafka's timestamp, used for impressions without a time of receipt. Invalid messages become
 * EVENT_UNUSABLE. */
void wire_decode(enum wire_topic topic, struct str value, int64_t time_ms, struct wire_message *ret);
