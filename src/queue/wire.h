/*
 * Events as messages of Kafka: JSON objects that other teams' programs can read and, for impressions, write
 * (docs/kafka.md). Pure functions over memory.
 *
 * A text that is not UTF-8 goes out twice: as far as it can be read, with U+FFFD for each byte that is none,
 * and byte for byte in hexadecimal under its name followed by "Hex". So every event comes back as it was,
 * but for a country that is not two capital letters: that is left out.
 */
#pragma once

#include "base/buf.h"
#include "base/position.h"
#include "event/format.h"

enum wire_topic { WIRE_IMPRESSIONS, WIRE_VISITS, WIRE_TOPICS };
extern const char *const wire_topic_names[WIRE_TOPICS];

enum {
	WIRE_KEY_BYTES_MAX = EVENT_FIELD_BYTES_MAX,
	/* A visit's texts, each byte as a U+FFFD and once more by itself; and the short ones. */
	WIRE_SCRATCH_BYTES = 4 * (3 * EVENT_STRING_BYTES_MAX + EVENT_KEY_BYTES_MAX) + 512,
};

/* What a visit brought along; STR_NULL: nothing. */
struct wire_texts {
	struct str agent, referrer, language;
};

/* Is it one that goes out at all? The others are the log's own. */
bool wire_is_sent(const struct event *ev);
enum wire_topic wire_topic_of(const struct event *ev);

/* What decides on the partition: the id of an impression, the link of a visit, so that either stay together.
 * Points into the event or `scratch`. The same for an event whenever it is sent. */
struct str wire_key(const struct event *ev, char scratch[WIRE_KEY_BYTES_MAX]);

void wire_encode(struct buf *out, struct event_id id, const struct event *ev, const struct wire_texts *texts);

/* A message that was read. Its strings point into the message or into the scratch. */
struct wire_message {
	struct event event;
	struct wire_texts texts;
	bool has_id; /* somebody else's events have none */
	struct event_id id;
	size_t scratch_used;
	char scratch[WIRE_SCRATCH_BYTES];
};

/* `time_ms` is when Kafka had it: for an impression that does not say when it was received. What cannot be
 * read becomes an EVENT_UNUSABLE. */
void wire_decode(enum wire_topic topic, struct str value, int64_t time_ms, struct wire_message *ret);
