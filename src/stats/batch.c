#include "stats/batch.h"

#include "base/hash.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
	AGENT_NS_MAX = 100 * 1000 * 1000, /* a batch's time for agents that nobody has seen before */
	SHAPE_PARTS = 9,
	SHAPES_MAX = 1 << 16, /* in one batch; one with more is handed over early */
	SHAPE_SLOTS = 2 * SHAPES_MAX,
	PLACE_SLOTS = 8192,
};
#define TIME_MS_MAX 253402300799999LL /* the last of the year 9999 */

/* The numbers of the words that make up a shape: compared instead of the texts. */
struct shape_key {
	uint32_t parts[SHAPE_PARTS];
};

/* What was found about a network, for the words as they are numbered now. */
struct place_slot {
	uint8_t address[8]; /* with its length in the last byte; length 0: empty */
	uint32_t country, place;
};

struct batch {
	struct batch_config config;
	struct words words;
	uint32_t stamp;
	uint32_t generation; /* grows when the words are forgotten */
	struct arena arena;  /* texts of this round */

	struct sink_visit *visits;
	struct sink_impression *impressions;
	struct visit_shape *shapes;
	struct shape_key *shape_keys;
	uint32_t *shape_slots; /* 1 + index */
	struct str *texts;
	size_t text_cap;
	uint32_t *fingerprint_slots; /* 1 + index into impressions */
	size_t fingerprint_slot_count;
	struct place_slot *places;
	struct stats_recent recent[BATCH_RECENT_MAX];
	size_t recent_count;
	size_t taken; /* records of this round, duplicates and unusable ones too */
	bool closed;  /* the next record must not be in the same batch as those before */
	struct sink_batch result;
};

/* position -> word, for the strings of one segment */
struct segment_slot {
	uint32_t position; /* 0: empty */
	uint32_t word;
};

struct batch_segment {
	uint32_t generation;
	size_t count, slot_count;
	struct segment_slot *slots;
};

static size_t power_of_two_above(size_t n)
{
	size_t p = 64;
	while (p < n)
		p *= 2;
	return p;
}

int batch_new(const struct batch_config *config, struct batch **ret)
{
	struct batch *b = calloc(1, sizeof(*b));
	if (!b)
		return ERR_NOMEM;
	b->config = *config;
	b->text_cap = 4 * config->events_max;
	b->fingerprint_slot_count = power_of_two_above(2 * config->events_max);
	b->visits = malloc(config->events_max * sizeof(*b->visits));
	b->impressions = malloc(config->events_max * sizeof(*b->impressions));
	b->shapes = malloc(SHAPES_MAX * sizeof(*b->shapes));
	b->shape_keys = malloc(SHAPES_MAX * sizeof(*b->shape_keys));
	b->shape_slots = calloc(SHAPE_SLOTS, sizeof(*b->shape_slots));
	b->texts = malloc(b->text_cap * sizeof(*b->texts));
	b->fingerprint_slots = calloc(b->fingerprint_slot_count, sizeof(*b->fingerprint_slots));
	b->places = calloc(PLACE_SLOTS, sizeof(*b->places));
	if (words_init(&b->words, config->agents) < 0 || !b->visits || !b->impressions || !b->shapes ||
	    !b->shape_keys || !b->shape_slots || !b->texts || !b->fingerprint_slots || !b->places) {
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
	words_release(&b->words);
	arena_release(&b->arena);
	free(b->visits);
	free(b->impressions);
	free(b->shapes);
	free(b->shape_keys);
	free(b->shape_slots);
	free(b->texts);
	free(b->fingerprint_slots);
	free(b->places);
	free(b);
}

struct batch_segment *batch_segment_new(void)
{
	return calloc(1, sizeof(struct batch_segment));
}

void batch_segment_free(struct batch_segment *s)
{
	if (!s)
		return;
	free(s->slots);
	free(s);
}

void batch_begin(struct batch *b, int64_t now_ms)
{
	if (b->result.impression_count > 0)
		memset(b->fingerprint_slots, 0, b->fingerprint_slot_count * sizeof(*b->fingerprint_slots));
	if (b->result.shape_count > 0)
		memset(b->shape_slots, 0, SHAPE_SLOTS * sizeof(*b->shape_slots));
	arena_release(&b->arena);
	if (words_are_many(&b->words)) {
		words_reset(&b->words);
		memset(b->places, 0, PLACE_SLOTS * sizeof(*b->places));
		b->generation++;
	}
	b->stamp++;
	b->recent_count = 0;
	b->taken = 0;
	b->closed = false;
	words_allow(&b->words, AGENT_NS_MAX);
	b->result = (struct sink_batch){.now_ms = now_ms};
}

bool batch_is_full(const struct batch *b)
{
	return b->closed || b->taken >= b->config.events_max || b->result.shape_count >= SHAPES_MAX - 1 ||
	       b->result.text_count + 4 > b->text_cap || words_are_many(&b->words);
}

const struct sink_batch *batch_result(struct batch *b)
{
	b->result.visits = b->visits;
	b->result.impressions = b->impressions;
	b->result.shapes = b->shapes;
	b->result.texts = b->texts;
	return &b->result;
}

const struct stats_recent *batch_recent(const struct batch *b, size_t *ret_count)
{
	*ret_count = b->recent_count;
	return b->recent;
}

/* Strings */

static size_t slot_of(const struct batch_segment *s, uint32_t position)
{
	size_t i = hash_u64(position, 0) & (s->slot_count - 1);
	while (s->slots[i].position != 0 && s->slots[i].position != position)
		i = (i + 1) & (s->slot_count - 1);
	return i;
}

static bool segment_grow(struct batch_segment *s)
{
	struct batch_segment larger = {.slot_count = MAX(s->slot_count * 2, (size_t)256), .count = s->count};
	larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
	if (!larger.slots)
		return false;
	for (size_t i = 0; i < s->slot_count; i++) {
		if (s->slots[i].position != 0)
			larger.slots[slot_of(&larger, s->slots[i].position)] = s->slots[i];
	}
	free(s->slots);
	s->slots = larger.slots;
	s->slot_count = larger.slot_count;
	return true;
}

static void segment_note(struct batch_segment *s, uint32_t position, uint32_t word)
{
	if (2 * (s->count + 1) > s->slot_count && !segment_grow(s))
		return; /* it will be read again */
	size_t i = slot_of(s, position);
	s->count += s->slots[i].position == 0;
	s->slots[i] = (struct segment_slot){position, word};
}

static void segment_refresh(const struct batch *b, struct batch_segment *s)
{
	if (LIKELY(s->generation == b->generation))
		return;
	s->generation = b->generation;
	s->count = 0;
	if (s->slot_count > 0)
		memset(s->slots, 0, s->slot_count * sizeof(*s->slots));
}

/* The word that is mentioned. A string that was defined before we began to read here is fetched. */
static uint32_t mentioned(struct batch *b, struct event_reader *r, struct batch_segment *s, uint32_t position)
{
	char text[EVENT_STRING_BYTES_MAX];
	if (position == 0)
		return WORD_NONE;
	if (LIKELY(s->slot_count > 0)) {
		const struct segment_slot *slot = &s->slots[slot_of(s, position)];
		if (LIKELY(slot->position == position))
			return slot->word;
	}
	uint32_t word = words_of(&b->words, event_reader_string(r, position, text));
	segment_note(s, position, word);
	return word;
}

/* A word's number among the texts of this round. */
static uint32_t text_of(struct batch *b, uint32_t word)
{
	if (word == WORD_NONE)
		return SINK_NO_TEXT;
	struct word *w = words_at(&b->words, word);
	if (w->stamp != b->stamp) {
		w->stamp = b->stamp;
		w->text_index = (uint32_t)b->result.text_count;
		b->texts[b->result.text_count++] = w->text;
	}
	return w->text_index;
}

/* Visits */

static bool country_is_wellformed(const char country[2])
{
	for (int i = 0; i < 2; i++) {
		if (country[i] < 'A' || country[i] > 'Z')
			return false;
	}
	return memcmp(country, "XX", 2) != 0; /* what proxies say when they do not know */
}

static void place_look_up(struct batch *b, const struct event_visit *v, struct place_slot *slot)
{
	struct place found = {0};
	char text[256];
	places_find(b->config.places, v->address_len == 3 ? AF_INET : AF_INET6, v->address, &found);
	slot->country = words_of(&b->words, found.country);
	size_t region = MIN(found.region.len, sizeof(text) / 2 - 1),
	       city = MIN(found.city.len, sizeof(text) / 2);
	if (region > 0)
		memcpy(text, found.region.ptr, region);
	text[region] = '\n';
	if (city > 0)
		memcpy(text + region + 1, found.city.ptr, city);
	slot->place = region + city > 0 ? words_of(&b->words, str_n(text, region + 1 + city)) : WORD_NONE;
}

static struct place_slot place_of(struct batch *b, const struct event_visit *v)
{
	if (!b->config.places || v->address_len == 0)
		return (struct place_slot){0};
	uint8_t key[8] = {0};
	memcpy(key, v->address, v->address_len);
	key[7] = v->address_len;
	struct place_slot *slot = &b->places[hash_bytes(key, sizeof(key), b->words.seed) % PLACE_SLOTS];
	if (memcmp(slot->address, key, sizeof(key)) != 0) {
		memcpy(slot->address, key, sizeof(key));
		place_look_up(b, v, slot);
	}
	return *slot;
}

static void shape_fill(struct batch *b, const struct shape_key *key, struct visit_shape *ret)
{
	const struct words *w = &b->words;
	ret->kind = key->parts[0];
	ret->dims[DIM_SOURCE] = key->parts[1] == EVENT_SOURCE_QR ? STR("qr") : STR("link");
	ret->dims[DIM_COUNTRY] = words_text(w, key->parts[2]);
	ret->dims[DIM_BROWSER] = words_text(w, key->parts[3]);
	ret->dims[DIM_OS] = words_text(w, key->parts[4]);
	ret->dims[DIM_DEVICE] = words_text(w, key->parts[5]);
	ret->dims[DIM_BOT] = words_text(w, key->parts[6]);
	ret->dims[DIM_REFERRER] = words_text(w, key->parts[7]);
	ret->dims[DIM_LANGUAGE] = words_text(w, key->parts[8]);
}

static uint32_t shape_of(struct batch *b, const struct shape_key *key)
{
	size_t i = hash_bytes(key, sizeof(*key), b->words.seed) % SHAPE_SLOTS;
	for (; b->shape_slots[i] != 0; i = (i + 1) % SHAPE_SLOTS) {
		uint32_t index = b->shape_slots[i] - 1;
		if (memcmp(&b->shape_keys[index], key, sizeof(*key)) == 0)
			return index;
	}
	uint32_t index = (uint32_t)b->result.shape_count++;
	b->shape_slots[i] = index + 1;
	b->shape_keys[index] = *key;
	shape_fill(b, key, &b->shapes[index]);
	return index;
}

static const char *visit_is_unusable(const struct event_visit *v)
{
	if (v->time_ms <= 0 || v->time_ms > TIME_MS_MAX)
		return "its time is out of range";
	if (!event_is_orphan(v->kind) && v->link == 0)
		return "it names no link";
	if (v->address_len != 0 && v->address_len != 3 && v->address_len != 6)
		return "its address is neither of IPv4 nor of IPv6";
	return NULL;
}

_Static_assert((int)EVENT_CLICK == (int)VISIT_CLICK && (int)EVENT_HEAD == (int)VISIT_HEAD &&
                   (int)EVENT_PREFETCH == (int)VISIT_PREFETCH &&
                   (int)EVENT_ORPHAN_KEY == (int)VISIT_UNKNOWN && (int)EVENT_ORPHAN_ROOT == (int)VISIT_ROOT,
               "the log and the sink number the kinds of visits alike");

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

static void note_recent(struct batch *b, struct str key)
{
	if (LIKELY(b->recent_count == BATCH_RECENT_MAX))
		return;
	struct stats_recent *r = &b->recent[b->recent_count++];
	r->visit = (uint32_t)b->result.visit_count;
	r->key_len = (uint8_t)key.len;
	memcpy(r->key, key.ptr, key.len);
}

static int add_visit(struct batch *b, struct event_reader *r, struct batch_segment *s, const struct event *ev)
{
	const struct event_visit *v = &ev->visit;
	const char *reason = visit_is_unusable(v);
	bool orphan = event_is_orphan(v->kind);
	uint32_t path = SINK_NO_TEXT;
	if (orphan && !reason && add_path(b, v->key, &path) < 0)
		return ERR_NOMEM;
	b->result.tally.orphans += orphan;
	b->result.tally.clicks += !orphan;
	if (UNLIKELY(reason != NULL)) {
		b->result.tally.unusable_clicks += !orphan;
		dead_letters_add(b->config.dead_letters, r->segment, ev, reason);
		return 0;
	}
	uint32_t agent = mentioned(b, r, s, v->agent);
	uint32_t referrer = mentioned(b, r, s, v->referrer);
	struct place_slot place = place_of(b, v);
	uint32_t country = country_is_wellformed(v->country) ? words_of(&b->words, str_n(v->country, 2))
	                                                     : place.country;
	const struct word *known = words_agent(&b->words, agent);
	const struct shape_key key = {{v->kind, v->source, country, known->browser, known->os, known->device,
	                               known->bot, words_host(&b->words, referrer),
	                               words_language(&b->words, mentioned(b, r, s, v->language))}};
	note_recent(b, v->key);
	struct sink_visit *to = &b->visits[b->result.visit_count++];
	*to = (struct sink_visit){
	    .time_ms = v->time_ms,
	    .link = orphan ? 0 : v->link,
	    .visitor = v->visitor,
	    .shape = shape_of(b, &key),
	    .agent = text_of(b, agent),
	    .referrer = text_of(b, referrer),
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
		/* Lengths in front, so that no two tuples read the same. */
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

/* The slot of the fingerprint: that of the impression which has it, or an empty one. */
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

static bool within_window(const struct batch *b, int64_t a_ms, int64_t b_ms)
{
	return (uint64_t)(a_ms > b_ms ? a_ms - b_ms : b_ms - a_ms) < b->config.seen_ms;
}

static const char *impression_is_unusable(const struct event_impression *i)
{
	if (i->time_ms <= 0 || i->time_ms > TIME_MS_MAX || i->received_ms <= 0 ||
	    i->received_ms > TIME_MS_MAX)
		return "its time is out of range";
	if (i->id.len == 0 || i->user.len == 0 || i->ad.len == 0)
		return "it lacks its id, userId or adId";
	if (i->id.len > EVENT_FIELD_BYTES_MAX || i->user.len > EVENT_FIELD_BYTES_MAX ||
	    i->ad.len > EVENT_FIELD_BYTES_MAX)
		return "one of its texts is too long";
	return NULL;
}

static int add_impression(struct batch *b, struct event_reader *r, const struct event *ev)
{
	const struct event_impression *i = &ev->impression;
	const char *reason = impression_is_unusable(i);
	if (UNLIKELY(reason != NULL)) {
		b->result.tally.impressions++;
		b->result.tally.unusable_impressions++;
		dead_letters_add(b->config.dead_letters, r->segment, ev, reason);
		return 0;
	}
	uint8_t print[SINK_FINGERPRINT_BYTES];
	fingerprint(b, i, print);
	uint32_t *slot = fingerprint_slot(b, print);
	if (*slot != 0) {
		if (!within_window(b, b->impressions[*slot - 1].received_ms, i->received_ms)) {
			b->closed = true;
			return ERR_LIMIT;
		}
		b->result.tally.impressions++;
		b->result.tally.duplicates++;
		return 0;
	}
	char *texts = arena_alloc(&b->arena, i->id.len + i->user.len + i->ad.len);
	if (!texts)
		return ERR_NOMEM;
	b->result.tally.impressions++;
	*slot = (uint32_t)b->result.impression_count + 1;
	struct sink_impression *to = &b->impressions[b->result.impression_count];
	memcpy(to->fingerprint, print, sizeof(print));
	memcpy(texts, i->id.ptr, i->id.len);
	memcpy(texts + i->id.len, i->user.ptr, i->user.len);
	memcpy(texts + i->id.len + i->user.len, i->ad.ptr, i->ad.len);
	to->time_ms = i->time_ms;
	to->received_ms = i->received_ms;
	to->id = str_n(texts, i->id.len);
	to->user = str_n(texts + i->id.len, i->user.len);
	to->ad = str_n(texts + i->id.len + i->user.len, i->ad.len);
	b->result.impression_count++;
	return 0;
}

int batch_add(struct batch *b, struct event_reader *r, struct batch_segment *s, const struct event *ev)
{
	segment_refresh(b, s);
	b->taken += ev->kind == EVENT_VISIT || ev->kind == EVENT_IMPRESSION;
	switch (ev->kind) {
	case EVENT_STRING: segment_note(s, (uint32_t)ev->position, words_of(&b->words, ev->string)); return 0;
	case EVENT_VISIT: return add_visit(b, r, s, ev);
	case EVENT_IMPRESSION: return add_impression(b, r, ev);
	case EVENT_TALLY:
		b->result.tally.rejected += ev->tally.rejected;
		b->result.tally.dropped_clicks += ev->tally.dropped;
		return 0;
	case EVENT_END: return 0;
	}
	return 0;
}
