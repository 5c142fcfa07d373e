#include "stats/batch.h"

#include "base/hash.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
	AGENT_NS_MAX = 100 * 1000 * 1000, /* a batch's time for agents that nobody has seen before */
	SET_PARTS = 9,
	DIMENSION_SETS_MAX = 1 << 16, /* in one batch; one with more is handed over early */
	SET_SLOTS = 2 * DIMENSION_SETS_MAX,
	PLACE_SLOTS = 8192,
};
#define TIME_MS_MAX 253402300799999LL /* the last of the year 9999 */

/* The numbers of the words that make up a shape: compared instead of the texts. */
struct set_key {
	uint32_t parts[SET_PARTS];
};

/* What was found about a network, for the words as they are numbered now. */
struct place_slot {
	uint8_t address[8]; /* with its length in the last byte; length 0: empty */
	uint32_t country, place;
};

struct batch {
	struct batch_config config;
	struct intern intern;
	uint32_t stamp;
	uint32_t generation; /* grows when the words are forgotten */
	struct arena arena;  /* texts of this round */

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
	struct stats_recent recent[BATCH_RECENT_MAX];
	size_t recent_count;
	size_t taken; /* records of this round, duplicates and unusable ones too */
	bool closed;  /* the next record must not be in the same batch as those before */
	struct sink_batch result;
};

/* position -> word */
struct notes_slot {
	uint32_t position; /* 0: empty */
	uint32_t word;
};

/* Of a stream that keeps texts apart: which words they are. */
struct notes {
	uint32_t generation;
	size_t count, slot_count;
	struct notes_slot *slots;
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
	b->notes = malloc(2 * config->events_max * sizeof(*b->notes)); /* a tally is two */
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

const struct stats_recent *batch_recent(const struct batch *b, size_t *ret_count)
{
	*ret_count = b->recent_count;
	return b->recent;
}

/* Strings */

static void notes_free(void *arg)
{
	struct notes *n = arg;
	free(n->slots);
	free(n);
}

/* NULL when memory ran out: then every text is fetched. Words that were forgotten are forgotten here, too. */
static struct notes *notes_of(const struct batch *b, struct queue_stream *stream)
{
	if (UNLIKELY(!stream->notes)) {
		stream->notes = calloc(1, sizeof(struct notes));
		stream->notes_free = notes_free;
	}
	struct notes *n = stream->notes;
	if (UNLIKELY(n && n->generation != b->generation)) {
		n->generation = b->generation;
		n->count = 0;
		if (n->slot_count > 0)
			memset(n->slots, 0, n->slot_count * sizeof(*n->slots));
	}
	return n;
}

static size_t slot_of(const struct notes *n, uint32_t position)
{
	size_t i = hash_u64(position, 0) & (n->slot_count - 1);
	while (n->slots[i].position != 0 && n->slots[i].position != position)
		i = (i + 1) & (n->slot_count - 1);
	return i;
}

static bool notes_grow(struct notes *n)
{
	struct notes larger = {.slot_count = MAX(n->slot_count * 2, (size_t)256)};
	larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
	if (!larger.slots)
		return false;
	for (size_t i = 0; i < n->slot_count; i++) {
		if (n->slots[i].position != 0)
			larger.slots[slot_of(&larger, n->slots[i].position)] = n->slots[i];
	}
	free(n->slots);
	n->slots = larger.slots;
	n->slot_count = larger.slot_count;
	return true;
}

static void note(struct notes *n, uint32_t position, uint32_t word)
{
	if (!n || (2 * (n->count + 1) > n->slot_count && !notes_grow(n)))
		return; /* it will be read again */
	size_t i = slot_of(n, position);
	n->count += n->slots[i].position == 0;
	n->slots[i] = (struct notes_slot){position, word};
}

/* The word that is mentioned. A string that was defined before we began to read here is fetched. */
static uint32_t mentioned(struct batch *b, struct queue *q, struct queue_stream *stream, uint32_t position)
{
	char text[EVENT_STRING_BYTES_MAX];
	if (position == 0)
		return INTERN_NONE;
	struct notes *n = notes_of(b, stream);
	if (LIKELY(n && n->slot_count > 0)) {
		const struct notes_slot *slot = &n->slots[slot_of(n, position)];
		if (LIKELY(slot->position == position))
			return slot->word;
	}
	uint32_t word = intern_add(&b->intern, q->ops->text(q, stream, position, text));
	note(n, position, word);
	return word;
}

/* What a visit brought along, as words. */
struct brought {
	uint32_t agent, referrer, language;
};

static struct brought brought_with(struct batch *b, struct queue *q, const struct queue_event *ev)
{
	const struct event_visit *v = &ev->event->visit;
	if (ev->has_texts)
		return (struct brought){intern_add(&b->intern, ev->agent),
		                        intern_add(&b->intern, ev->referrer),
		                        intern_add(&b->intern, ev->language)};
	return (struct brought){mentioned(b, q, ev->stream, v->agent),
	                        mentioned(b, q, ev->stream, v->referrer),
	                        mentioned(b, q, ev->stream, v->language)};
}

/* A word's number among the texts of this round. */
static uint32_t text_of(struct batch *b, uint32_t word)
{
	if (word == INTERN_NONE)
		return SINK_NO_TEXT;
	struct interned *w = intern_at(&b->intern, word);
	if (w->stamp != b->stamp) {
		w->stamp = b->stamp;
		w->text_index = (uint32_t)b->result.text_count;
		b->texts[b->result.text_count++] = w->text;
	}
	return w->text_index;
}

/* What became of events that are neither visits nor impressions of the batch. */
static void take_note(struct batch *b, const struct queue_event *ev, enum sink_note_kind kind,
                      int64_t time_ms, uint64_t count)
{
	b->notes[b->result.note_count++] = (struct sink_note){
	    .event = ev->id, .kind = kind, .time_ms = time_ms, .count = count};
}

static void letter(struct batch *b, const struct queue_event *ev, const char *reason)
{
	if (b->config.dead_letters)
		dead_letters_add(b->config.dead_letters, ev->id, ev->event, reason);
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
		struct place found = {0};
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
	const struct intern *w = &b->intern;
	set->kind = key->parts[0];
	set->dims[DIM_SOURCE] = key->parts[1] == EVENT_SOURCE_QR ? STR("qr") : STR("link");
	set->dims[DIM_COUNTRY] = intern_text(w, key->parts[2]);
	set->dims[DIM_BROWSER] = intern_text(w, key->parts[3]);
	set->dims[DIM_OS] = intern_text(w, key->parts[4]);
	set->dims[DIM_DEVICE] = intern_text(w, key->parts[5]);
	set->dims[DIM_BOT] = intern_text(w, key->parts[6]);
	set->dims[DIM_REFERRER] = intern_text(w, key->parts[7]);
	set->dims[DIM_LANGUAGE] = intern_text(w, key->parts[8]);
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
		take_note(b, ev, orphan ? NOTE_UNUSABLE_ORPHAN : NOTE_UNUSABLE_CLICK, v->time_ms, 1);
		letter(b, ev, reason);
		return 0;
	}
	struct brought with = brought_with(b, q, ev);
	struct place_slot place = place_of(b, v);
	uint32_t country = country_is_wellformed(v->country) ? intern_add(&b->intern, str_n(v->country, 2))
	                                                     : place.country;
	const struct interned *known = intern_agent(&b->intern, with.agent);
	const struct set_key key = {{v->kind, v->source, country, known->browser, known->os, known->device,
	                             known->bot, intern_host(&b->intern, with.referrer),
	                             intern_language(&b->intern, with.language)}};
	note_recent(b, v->key);
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

static int add_impression(struct batch *b, const struct queue_event *ev)
{
	const struct event_impression *i = &ev->event->impression;
	const char *reason = impression_is_unusable(i);
	if (UNLIKELY(reason != NULL)) {
		b->result.tally.impressions++;
		b->result.tally.unusable_impressions++;
		take_note(b, ev, NOTE_UNUSABLE_IMPRESSION, i->received_ms, 1);
		letter(b, ev, reason);
		return 0;
	}
	uint8_t print[SINK_FINGERPRINT_BYTES];
	fingerprint(b, i, print);
	uint32_t *slot = fingerprint_slot(b, print);
	bool stays = b->config.keeps_doubtful && ev->in_doubt;
	if (*slot != 0) {
		if (!within_window(b, b->impressions[*slot - 1].received_ms, i->received_ms)) {
			b->closed = true;
			return ERR_LIMIT;
		}
		if (!stays) {
			b->result.tally.impressions++;
			b->result.tally.duplicates++;
			take_note(b, ev, NOTE_DUPLICATE, i->received_ms, 1);
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
		take_note(b, ev, NOTE_REJECTED, t->time_ms, t->rejected);
	if (t->dropped > 0)
		take_note(b, ev, NOTE_DROPPED, t->time_ms, t->dropped);
}

static void add_unusable(struct batch *b, const struct queue_event *ev)
{
	const struct event_unusable *u = &ev->event->unusable;
	struct sink_tally *t = &b->result.tally;
	*(u->is_impression ? &t->impressions : &t->clicks) += 1;
	*(u->is_impression ? &t->unusable_impressions : &t->unusable_clicks) += 1;
	take_note(b, ev, u->is_impression ? NOTE_UNUSABLE_IMPRESSION : NOTE_UNUSABLE_CLICK, u->time_ms, 1);
	letter(b, ev, u->reason);
}

int batch_add(struct batch *b, struct queue *queue, const struct queue_event *ev)
{
	const struct event *e = ev->event;
	b->taken += e->kind != EVENT_STRING && e->kind != EVENT_END;
	switch (e->kind) {
	case EVENT_STRING:
		note(notes_of(b, ev->stream), (uint32_t)e->position, intern_add(&b->intern, e->string));
		return 0;
	case EVENT_VISIT: return add_visit(b, queue, ev);
	case EVENT_IMPRESSION: return add_impression(b, ev);
	case EVENT_TALLY: add_tally(b, ev); return 0;
	case EVENT_UNUSABLE: add_unusable(b, ev); return 0;
	case EVENT_END: return 0;
	}
	return 0;
}
