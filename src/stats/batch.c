#include "stats/batch.h"

#include "base/hash.h"
#include "stats/string_map.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
	AGENT_NS_MAX = 100 * 1000 * 1000, /* CPU time per batch for classifying new user agents */
	SET_PARTS = 9,
	DIMENSION_SETS_MAX = 1 << 16, /* per batch; a batch with more is committed early */
	SET_SLOTS = 2 * DIMENSION_SETS_MAX,
	PLACE_SLOTS = 8192,
};
#define TIME_MS_MAX 253402300799999LL /* the last of the year 9999 */

/* The interned ids of a dimension set: compared instead of the texts. */
struct set_key {
	uint32_t parts[SET_PARTS];
};

/* The place of a network, as interned ids. */
struct place_slot {
	uint8_t address[8]; /* with its length in the last byte; length 0: empty */
	uint32_t country, place;
};

struct batch {
	struct batch_config config;
	struct intern intern;
	uint32_t stamp;
	uint32_t generation; /* incremented when the interned texts are reset */
	struct arena arena;  /* texts of this batch */

	struct sink_visit *visits;
	struct sink_impression *impressions;
	struct sink_note *notes;
	struct dimension_set *sets;
	struct set_key *set_keys;
	uint32_t *set_slots; /* 1 + index */
	struct str *texts;
	size_t text_cap;
	uint32_t *fingerprint_slots; /* 1 + index into impressions */
	size_t fingerprint_slot_count;
	struct place_slot *places;
	struct live_visit recent[BATCH_RECENT_MAX];
	size_t recent_count;
	size_t taken; /* events of this batch, duplicates and unusable ones included */
	bool closed;  /* the next event must not be in this batch */
	struct sink_batch result;
};

int batch_new(const struct batch_config *config, struct batch **ret)
{
	struct batch *b = calloc(1, sizeof(*b));
	if (!b)
		return ERR_NOMEM;
	b->config = *config;
	b->text_cap = 4 * config->events_max;
	for (b->fingerprint_slot_count = 64; b->fingerprint_slot_count < 2 * config->events_max;)
		b->fingerprint_slot_count *= 2;
	b->visits = malloc(config->events_max * sizeof(*b->visits));
	b->impressions = malloc(config->events_max * sizeof(*b->impressions));
	b->notes = malloc(2 * config->events_max * sizeof(*b->notes)); /* a tally makes two */
	b->sets = malloc(DIMENSION_SETS_MAX * sizeof(*b->sets));
	b->set_keys = malloc(DIMENSION_SETS_MAX * sizeof(*b->set_keys));
	b->set_slots = calloc(SET_SLOTS, sizeof(*b->set_slots));
	b->texts = malloc(b->text_cap * sizeof(*b->texts));
	b->fingerprint_slots = calloc(b->fingerprint_slot_count, sizeof(*b->fingerprint_slots));
	b->places = calloc(PLACE_SLOTS, sizeof(*b->places));
	if (intern_init(&b->intern, config->agents) < 0 || !b->visits || !b->impressions || !b->notes ||
	    !b->sets || !b->set_keys || !b->set_slots || !b->texts || !b->fingerprint_slots || !b->places) {
		batch_free(b);
		return ERR_NOMEM;
	}
	*ret = b;
	return 0;
}

void batch_free(struct batch *b)
{
	if (!b)
		return;
	intern_release(&b->intern);
	arena_release(&b->arena);
	free(b->visits);
	free(b->impressions);
	free(b->notes);
	free(b->sets);
	free(b->set_keys);
	free(b->set_slots);
	free(b->texts);
	free(b->fingerprint_slots);
	free(b->places);
	free(b);
}

void batch_begin(struct batch *b, int64_t now_ms)
{
	if (b->result.impression_count > 0)
		memset(b->fingerprint_slots, 0, b->fingerprint_slot_count * sizeof(*b->fingerprint_slots));
	if (b->result.set_count > 0)
		memset(b->set_slots, 0, SET_SLOTS * sizeof(*b->set_slots));
	arena_release(&b->arena);
	if (intern_is_full(&b->intern)) {
		intern_reset(&b->intern);
		memset(b->places, 0, PLACE_SLOTS * sizeof(*b->places));
		b->generation++;
	}
	b->stamp++;
	b->recent_count = 0;
	b->taken = 0;
	b->closed = false;
	intern_allow(&b->intern, AGENT_NS_MAX);
	b->result = (struct sink_batch){.now_ms = now_ms};
}

bool batch_is_full(const struct batch *b)
{
	return b->closed || b->taken >= b->config.events_max ||
	       b->result.set_count >= DIMENSION_SETS_MAX - 1 || b->result.text_count + 4 > b->text_cap ||
	       intern_is_full(&b->intern);
}

const struct sink_batch *batch_result(struct batch *b)
{
	b->result.visits = b->visits;
	b->result.impressions = b->impressions;
	b->result.notes = b->notes;
	b->result.sets = b->sets;
	b->result.texts = b->texts;
	return &b->result;
}

const struct live_visit *batch_recent(const struct batch *b, size_t *ret_count)
{
	*ret_count = b->recent_count;
	return b->recent;
}

/* Strings */

/* The interned id of the string at a position of the stream. One that was written before this process began
 * to read the stream is fetched. */
static uint32_t string_at(struct batch *b, struct queue *q, struct queue_stream *stream, uint32_t position)
{
	char text[EVENT_STRING_BYTES_MAX];
	uint32_t id;
	if (position == 0)
		return INTERN_NONE;
	if (LIKELY(string_map_find(stream, b->generation, position, &id)))
		return id;
	id = intern_add(&b->intern, q->ops->text(q, stream, position, text));
	string_map_put(stream, b->generation, position, id);
	return id;
}

/* The texts of a visit, interned. */
struct visit_texts {
	uint32_t agent, referrer, language;
};

static struct visit_texts texts_of(struct batch *b, struct queue *q, const struct queue_event *ev)
{
	const struct event_visit *v = &ev->event->visit;
	if (ev->has_texts)
		return (struct visit_texts){intern_add(&b->intern, ev->agent),
		                            intern_add(&b->intern, ev->referrer),
		                            intern_add(&b->intern, ev->language)};
	return (struct visit_texts){string_at(b, q, ev->stream, v->agent),
	                            string_at(b, q, ev->stream, v->referrer),
	                            string_at(b, q, ev->stream, v->language)};
}

/* The index of an interned text in the batch. */
static uint32_t text_of(struct batch *b, uint32_t id)
{
	if (id == INTERN_NONE)
		return SINK_NO_TEXT;
	struct interned *t = intern_at(&b->intern, id);
	if (t->stamp != b->stamp) {
		t->stamp = b->stamp;
		t->text_index = (uint32_t)b->result.text_count;
		b->texts[b->result.text_count++] = t->text;
	}
	return t->text_index;
}

static void add_note(struct batch *b, const struct queue_event *ev, enum sink_note_kind kind, int64_t time_ms,
                     uint64_t count)
{
	b->notes[b->result.note_count++] = (struct sink_note){
	    .event = ev->id, .kind = kind, .time_ms = time_ms, .count = count};
}

static void dead_letter(struct batch *b, const struct queue_event *ev, const char *reason)
{
	if (b->config.dead_letters)
		dead_letters_add(b->config.dead_letters, ev->id, ev->event, reason);
}

/* Visits */

static struct place_slot place_of(struct batch *b, const struct event_visit *v)
{
	if (!b->config.places || v->address_len == 0)
		return (struct place_slot){0};
	uint8_t key[8] = {0};
	memcpy(key, v->address, v->address_len);
	key[7] = v->address_len;
	struct place_slot *slot = &b->places[hash_bytes(key, sizeof(key), b->intern.seed) % PLACE_SLOTS];
	if (memcmp(slot->address, key, sizeof(key)) != 0) {
		memcpy(slot->address, key, sizeof(key));
		struct place_info found = {0};
		char text[256];
		places_find(b->config.places, v->address_len == 3 ? AF_INET : AF_INET6, v->address, &found);
		slot->country = intern_add(&b->intern, found.country);
		size_t region = MIN(found.region.len, sizeof(text) / 2 - 1),
		       city = MIN(found.city.len, sizeof(text) / 2);
		if (region > 0)
			memcpy(text, found.region.ptr, region);
		text[region] = '\n';
		if (city > 0)
			memcpy(text + region + 1, found.city.ptr, city);
		slot->place = region + city > 0 ? intern_add(&b->intern, str_n(text, region + 1 + city))
		                                : INTERN_NONE;
	}
	return *slot;
}

static uint32_t set_of(struct batch *b, const struct set_key *key)
{
	size_t i = hash_bytes(key, sizeof(*key), b->intern.seed) % SET_SLOTS;
	for (; b->set_slots[i] != 0; i = (i + 1) % SET_SLOTS) {
		uint32_t index = b->set_slots[i] - 1;
		if (memcmp(&b->set_keys[index], key, sizeof(*key)) == 0)
			return index;
	}
	uint32_t index = (uint32_t)b->result.set_count++;
	b->set_slots[i] = index + 1;
	b->set_keys[index] = *key;
	struct dimension_set *set = &b->sets[index];
	const struct intern *t = &b->intern;
	set->kind = key->parts[0];
	set->dims[DIM_SOURCE] = key->parts[1] == EVENT_SOURCE_QR ? STR("qr") : STR("link");
	set->dims[DIM_COUNTRY] = intern_text(t, key->parts[2]);
	set->dims[DIM_BROWSER] = intern_text(t, key->parts[3]);
	set->dims[DIM_OS] = intern_text(t, key->parts[4]);
	set->dims[DIM_DEVICE] = intern_text(t, key->parts[5]);
	set->dims[DIM_BOT] = intern_text(t, key->parts[6]);
	set->dims[DIM_REFERRER] = intern_text(t, key->parts[7]);
	set->dims[DIM_LANGUAGE] = intern_text(t, key->parts[8]);
	return index;
}

static const char *visit_is_unusable(const struct event_visit *v)
{
	if (v->time_ms <= 0 || v->time_ms > TIME_MS_MAX)
		return "its time is out of range";
	if (!event_is_orphan(v->kind) && v->link == 0)
		return "it names no link";
	if (v->address_len != 0 && v->address_len != 3 && v->address_len != 6)
		return "its address is neither an IPv4 nor an IPv6 network";
	return NULL;
}

_Static_assert((int)EVENT_CLICK == (int)VISIT_CLICK && (int)EVENT_HEAD == (int)VISIT_HEAD &&
                   (int)EVENT_PREFETCH == (int)VISIT_PREFETCH &&
                   (int)EVENT_ORPHAN_KEY == (int)VISIT_UNKNOWN && (int)EVENT_ORPHAN_ROOT == (int)VISIT_ROOT,
               "the log and the sink have the same numbers for kinds of visits");

static int add_path(struct batch *b, struct str path, uint32_t *ret)
{
	*ret = SINK_NO_TEXT;
	if (path.len == 0)
		return 0;
	struct str kept = arena_str(&b->arena, path);
	if (!kept.ptr)
		return ERR_NOMEM;
	*ret = (uint32_t)b->result.text_count;
	b->texts[b->result.text_count++] = kept;
	return 0;
}

static void add_recent(struct batch *b, struct str key)
{
	if (LIKELY(b->recent_count == BATCH_RECENT_MAX))
		return;
	struct live_visit *r = &b->recent[b->recent_count++];
	r->visit = (uint32_t)b->result.visit_count;
	r->key_len = (uint8_t)key.len;
	if (key.len > 0)
		memcpy(r->key, key.ptr, key.len);
}

static int add_visit(struct batch *b, struct queue *q, const struct queue_event *ev)
{
	const struct event_visit *v = &ev->event->visit;
	const char *reason = visit_is_unusable(v);
	bool orphan = event_is_orphan(v->kind);
	uint32_t path = SINK_NO_TEXT;
	if (orphan && !reason && add_path(b, v->key, &path) < 0)
		return ERR_NOMEM;
	b->result.tally.orphans += orphan;
	b->result.tally.clicks += !orphan;
	if (UNLIKELY(reason != NULL)) {
		b->result.tally.unusable_clicks += !orphan;
		add_note(b, ev, orphan ? NOTE_UNUSABLE_ORPHAN : NOTE_UNUSABLE_CLICK, v->time_ms, 1);
		dead_letter(b, ev, reason);
		return 0;
	}
	struct visit_texts with = texts_of(b, q, ev);
	struct place_slot place = place_of(b, v);
	/* Proxies send XX for unknown. */
	bool has_country = event_country_is_valid(v->country) && memcmp(v->country, "XX", 2) != 0;
	uint32_t country = has_country ? intern_add(&b->intern, str_n(v->country, 2)) : place.country;
	const struct interned *known = intern_agent(&b->intern, with.agent);
	const struct set_key key = {{v->kind, v->source, country, known->browser, known->os, known->device,
	                             known->bot, intern_host(&b->intern, with.referrer),
	                             intern_language(&b->intern, with.language)}};
	add_recent(b, v->key);
	struct sink_visit *to = &b->visits[b->result.visit_count++];
	*to = (struct sink_visit){
	    .event = ev->id,
	    .time_ms = v->time_ms,
	    .link = orphan ? 0 : v->link,
	    .visitor = v->visitor,
	    .stream = ev->stream->number,
	    .set = set_of(b, &key),
	    .agent = text_of(b, with.agent),
	    .referrer = text_of(b, with.referrer),
	    .place = text_of(b, place.place),
	    .path = path,
	    .address_len = v->address_len,
	};
	memcpy(to->address, v->address, sizeof(to->address));
	return 0;
}

/* Impressions */

static void fingerprint(const struct batch *b, const struct event_impression *i,
                        uint8_t ret[SINK_FINGERPRINT_BYTES])
{
	uint8_t digest[crypto_shorthash_siphashx24_BYTES];
	if (b->config.dedup_key == DEDUP_ID) {
		crypto_shorthash_siphashx24(digest, (const uint8_t *)i->id.ptr, i->id.len,
		                            b->config.dedup_secret);
	} else {
		/* Lengths in front, so that different tuples have different bytes. */
		uint8_t tuple[16 + 3 * EVENT_FIELD_BYTES_MAX];
		const uint16_t lengths[4] = {(uint16_t)i->id.len, (uint16_t)i->user.len, (uint16_t)i->ad.len,
		                             0};
		memcpy(tuple, lengths, 8);
		memcpy(tuple + 8, &i->time_ms, 8);
		size_t n = 16;
		const struct str parts[] = {i->id, i->user, i->ad};
		for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
			memcpy(tuple + n, parts[p].ptr, parts[p].len);
			n += parts[p].len;
		}
		crypto_shorthash_siphashx24(digest, tuple, n, b->config.dedup_secret);
	}
	memcpy(ret, digest, SINK_FINGERPRINT_BYTES);
}

/* The slot of the impression with this fingerprint, or an empty one. */
static uint32_t *fingerprint_slot(struct batch *b, const uint8_t print[SINK_FINGERPRINT_BYTES])
{
	uint64_t hash;
	memcpy(&hash, print, sizeof(hash));
	size_t i = hash & (b->fingerprint_slot_count - 1);
	while (b->fingerprint_slots[i] != 0 && memcmp(b->impressions[b->fingerprint_slots[i] - 1].fingerprint,
	                                              print, SINK_FINGERPRINT_BYTES) != 0)
		i = (i + 1) & (b->fingerprint_slot_count - 1);
	return &b->fingerprint_slots[i];
}

static const char *impression_is_unusable(const struct event_impression *i)
{
	if (i->time_ms <= 0 || i->time_ms > TIME_MS_MAX || i->received_ms <= 0 ||
	    i->received_ms > TIME_MS_MAX)
		return "its time is out of range";
	if (i->id.len == 0 || i->user.len == 0 || i->ad.len == 0)
		return "it has no id, userId or adId";
	if (i->id.len > EVENT_FIELD_BYTES_MAX || i->user.len > EVENT_FIELD_BYTES_MAX ||
	    i->ad.len > EVENT_FIELD_BYTES_MAX)
		return "one of its texts is too long";
	return NULL;
}

static int add_impression(struct batch *b, const struct queue_event *ev)
{
	const struct event_impression *i = &ev->event->impression;
	const char *reason = impression_is_unusable(i);
	if (UNLIKELY(reason != NULL)) {
		b->result.tally.impressions++;
		b->result.tally.unusable_impressions++;
		add_note(b, ev, NOTE_UNUSABLE_IMPRESSION, i->received_ms, 1);
		dead_letter(b, ev, reason);
		return 0;
	}
	uint8_t print[SINK_FINGERPRINT_BYTES];
	fingerprint(b, i, print);
	uint32_t *slot = fingerprint_slot(b, print);
	bool stays = b->config.keeps_in_doubt && ev->in_doubt;
	if (*slot != 0) {
		int64_t apart_ms = b->impressions[*slot - 1].received_ms - i->received_ms;
		if ((uint64_t)(apart_ms < 0 ? -apart_ms : apart_ms) >= b->config.seen_ms) {
			b->closed = true;
			return ERR_LIMIT;
		}
		if (!stays) {
			b->result.tally.impressions++;
			b->result.tally.duplicates++;
			add_note(b, ev, NOTE_DUPLICATE, i->received_ms, 1);
			return 0;
		}
	}
	char *texts = arena_alloc(&b->arena, i->id.len + i->user.len + i->ad.len);
	if (!texts)
		return ERR_NOMEM;
	b->result.tally.impressions++;
	struct sink_impression *to = &b->impressions[b->result.impression_count];
	to->same_as = *slot;
	to->in_doubt = stays;
	if (*slot == 0)
		*slot = (uint32_t)b->result.impression_count + 1;
	memcpy(to->fingerprint, print, sizeof(print));
	memcpy(texts, i->id.ptr, i->id.len);
	memcpy(texts + i->id.len, i->user.ptr, i->user.len);
	memcpy(texts + i->id.len + i->user.len, i->ad.ptr, i->ad.len);
	to->event = ev->id;
	to->time_ms = i->time_ms;
	to->received_ms = i->received_ms;
	to->partition = ev->stream->partition;
	to->id = str_n(texts, i->id.len);
	to->user = str_n(texts + i->id.len, i->user.len);
	to->ad = str_n(texts + i->id.len + i->user.len, i->ad.len);
	b->result.impression_count++;
	return 0;
}

static void add_tally(struct batch *b, const struct queue_event *ev)
{
	const struct event_tally *t = &ev->event->tally;
	b->result.tally.rejected += t->rejected;
	b->result.tally.dropped_clicks += t->dropped;
	if (t->rejected > 0)
		add_note(b, ev, NOTE_REJECTED, t->time_ms, t->rejected);
	if (t->dropped > 0)
		add_note(b, ev, NOTE_DROPPED, t->time_ms, t->dropped);
}

static void add_unusable(struct batch *b, const struct queue_event *ev)
{
	const struct event_unusable *u = &ev->event->unusable;
	struct sink_tally *t = &b->result.tally;
	*(u->is_impression ? &t->impressions : &t->clicks) += 1;
	*(u->is_impression ? &t->unusable_impressions : &t->unusable_clicks) += 1;
	add_note(b, ev, u->is_impression ? NOTE_UNUSABLE_IMPRESSION : NOTE_UNUSABLE_CLICK, u->time_ms, 1);
	dead_letter(b, ev, u->reason);
}

int batch_add(struct batch *b, struct queue *queue, const struct queue_event *ev)
{
	const struct event *e = ev->event;
	b->taken += e->kind != EVENT_STRING && e->kind != EVENT_END;
	switch (e->kind) {
	case EVENT_STRING:
		string_map_put(ev->stream, b->generation, (uint32_t)e->position,
		               intern_add(&b->intern, e->string));
		return 0;
	case EVENT_VISIT: return add_visit(b, queue, ev);
	case EVENT_IMPRESSION: return add_impression(b, ev);
	case EVENT_TALLY: add_tally(b, ev); return 0;
	case EVENT_UNUSABLE: add_unusable(b, ev); return 0;
	case EVENT_END: return 0;
	}
	return 0;
}
