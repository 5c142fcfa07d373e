// needs: src/queue/wire.c src/event/format.c
// packages: libsodium
// flags: -max_len=1024
/* Messages of Kafka, from any sender: what is taken for an event can be sent again, and is the same.
 */
#include "queue/wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(enum wire_topic topic, struct str value)
{
	static struct wire_message m, again;
	struct buf text = {0};
	wire_decode(topic, value, 1789000000000LL, &m);
	if (!wire_is_sent(&m.event)) {
		ASSERT(m.event.kind == EVENT_UNUSABLE && m.event.unusable.reason);
		return;
	}
	/* As a forwarder has it: texts are within their bounds, and a time is one. */
	if (m.event.kind == EVENT_IMPRESSION && (m.event.impression.id.len > EVENT_FIELD_BYTES_MAX ||
	                                         m.event.impression.user.len > EVENT_FIELD_BYTES_MAX ||
	                                         m.event.impression.ad.len > EVENT_FIELD_BYTES_MAX))
		return;
	wire_encode(&text, (struct event_id){1, 2, 3}, &m.event, &m.texts);
	ASSERT(!text.failed);
	wire_decode(topic, buf_view(&text), 1789000000000LL, &again);
	ASSERT(again.event.kind == m.event.kind && again.has_id);
	ASSERT(str_eq(again.texts.agent, m.texts.agent) && str_eq(again.texts.referrer, m.texts.referrer));
	if (m.event.kind == EVENT_IMPRESSION)
		ASSERT(str_eq(again.event.impression.id, m.event.impression.id) &&
		       str_eq(again.event.impression.ad, m.event.impression.ad) &&
		       again.event.impression.time_ms == m.event.impression.time_ms);
	if (m.event.kind == EVENT_VISIT)
		ASSERT(str_eq(again.event.visit.key, m.event.visit.key) &&
		       again.event.visit.link == m.event.visit.link &&
		       again.event.visit.address_len == m.event.visit.address_len &&
		       memcmp(again.event.visit.address, m.event.visit.address,
		              sizeof(m.event.visit.address)) == 0);
	buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* Of its exact size, so that the sanitizer sees every byte too far. */
	char *copy = malloc(len ? len : 1);
	ASSERT(copy);
	memcpy(copy, data, len);
	for (unsigned topic = 0; topic < WIRE_TOPICS; topic++)
		check(topic, str_n(copy, len));
	free(copy);
	return 0;
}
