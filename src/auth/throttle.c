/*
 * An entry is one 64-bit word; 0 is free:
 *
 *   tag 20 bits | count 20 | end of the period 24, in sixteenths of a second
 *
 * The word has the end of the period and not its beginning, so any thread can tell whether an entry has
 * expired without knowing its rule.
 *
 * Time. 24 bits of sixteenths wrap after 12 days; a signed difference is right for six. So that no old entry
 * comes back to life, the first attempt after a day and a half scrubs expired entries from the table. After
 * three days without an attempt all entries have expired, whatever their bits say.
 *
 * One entry per key. The words of a set change independently, so two threads could both insert a key. An
 * insert therefore has two steps. A thread that finds no entry places a claim: a word with a count of 0. A
 * thread that has seen a claim then looks at the other words of the set, and makes the claim an entry if none
 * has the same tag. Of two claims, the thread that settles the later one sees the other. Then the claim in
 * the higher place is removed, or the claim beside an entry. These accesses are sequentially consistent.
 */
#include "auth/throttle.h"

#include "base/hash.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
	SET_BITS = 16,
	WAYS = 4,
	TAG_BITS = 20,
	COUNT_BITS = 20,
	TIME_BITS = 24,
	UNITS_PER_SECOND = 16,
	SCRUB_AFTER = 1 << (TIME_BITS - 3),  /* units: a day and a half */
	ALL_EXPIRED_AFTER = 2 * SCRUB_AFTER, /* the last entry was made before SCRUB_AFTER */
	NONE = -1,
};

#define TABLE_BYTES ((size_t)WAYS * sizeof(uint64_t) << SET_BITS)
#define NEVER       INT64_MIN
#define PERIOD_UNITS(r) \
	((int64_t)MIN((r)->period_ms, (uint32_t)THROTTLE_PERIOD_MS_MAX) * UNITS_PER_SECOND / 1000)

_Static_assert(TAG_BITS + COUNT_BITS + TIME_BITS == 64, "an entry is one word");
_Static_assert(THROTTLE_MAX < 1 << COUNT_BITS, "the count fits");
_Static_assert((int64_t)THROTTLE_PERIOD_MS_MAX *UNITS_PER_SECOND / 1000 < SCRUB_AFTER, "over when scrubbed");

struct throttle {
	uint64_t seed;
	_Atomic uint64_t *words;
	_Atomic int64_t scrubbed;       /* when, in units; NEVER: the table was never used */
	_Atomic int64_t spent_until_ms; /* after that no key is used up */
};

struct throttle *throttle_new(void)
{
	struct throttle *t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	void *words = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (words == MAP_FAILED) {
		free(t);
		return NULL;
	}
	t->words = words;
	atomic_init(&t->scrubbed, NEVER);
	atomic_init(&t->spent_until_ms, NEVER);
	randombytes_buf(&t->seed, sizeof(t->seed));
	return t;
}

void throttle_free(struct throttle *t)
{
	if (!t)
		return;
	munmap(t->words, TABLE_BYTES);
	free(t);
}

uint64_t throttle_key(const struct throttle *t, unsigned kind, const void *bytes, size_t len)
{
	return hash_bytes(bytes, len, hash_u64(kind + 1, t->seed));
}

/* Words */

/* Never 0, so that no entry is a free word. */
static uint64_t tag_of(uint64_t key)
{
	return MAX(key >> (64 - TAG_BITS), 1);
}

static _Atomic uint64_t *set_of(const struct throttle *t, uint64_t key)
{
	return &t->words[(key & ((1U << SET_BITS) - 1)) * WAYS];
}

static uint64_t word_make(uint64_t tag, uint64_t count, int64_t end)
{
	return tag << (COUNT_BITS + TIME_BITS) | count << TIME_BITS |
	       ((uint64_t)end & ((1U << TIME_BITS) - 1));
}

static uint64_t word_tag(uint64_t word)
{
	return word >> (COUNT_BITS + TIME_BITS);
}

static uint32_t word_count(uint64_t word)
{
	return (uint32_t)(word >> TIME_BITS) & ((1U << COUNT_BITS) - 1);
}

/* The whole time, for a word within six days of now. */
static int64_t word_end(uint64_t word, int64_t now)
{
	uint32_t difference = ((uint32_t)word - (uint32_t)now) << (32 - TIME_BITS);
	return now + ((int32_t)difference >> (32 - TIME_BITS));
}

static bool entry_is_expired(uint64_t word, int64_t now)
{
	return word_end(word, now) <= now;
}

static bool word_replace(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(word, &from, to);
}

/* Time */

static int64_t units_of(int64_t ms)
{
	return ms * UNITS_PER_SECOND / 1000;
}

/* The first millisecond of that unit. */
static int64_t ms_of(int64_t units)
{
	return (units * 1000 + UNITS_PER_SECOND - 1) / UNITS_PER_SECOND;
}

static bool all_expired(const struct throttle *t, int64_t now)
{
	int64_t scrubbed = atomic_load(&t->scrubbed);
	return scrubbed == NEVER || now - scrubbed >= ALL_EXPIRED_AFTER;
}

/* Several threads may scrub at once. Only words from before the first of them finished are old, so each
 * stops when another has finished. */
static void scrub_if_due(struct throttle *t, int64_t now)
{
	int64_t last = atomic_load(&t->scrubbed);
	bool all = all_expired(t, now);
	if (last != NEVER && now - last < SCRUB_AFTER)
		return;
	for (size_t i = 0; last != NEVER && i < (size_t)WAYS << SET_BITS; i++) {
		uint64_t word = atomic_load(&t->words[i]);
		if (word == 0)
			continue;
		if (atomic_load(&t->scrubbed) != last)
			return;
		if (all || entry_is_expired(word, now))
			word_replace(&t->words[i], word, 0);
	}
	atomic_compare_exchange_strong(&t->scrubbed, &last, now);
}

static void note_spent(struct throttle *t, int64_t until_ms)
{
	int64_t known = atomic_load_explicit(&t->spent_until_ms, memory_order_relaxed);
	while (known < until_ms &&
	       !atomic_compare_exchange_weak_explicit(&t->spent_until_ms, &known, until_ms,
	                                              memory_order_relaxed, memory_order_relaxed))
		;
}

bool throttle_any_spent(const struct throttle *t, int64_t mono_ms)
{
	return mono_ms < atomic_load_explicit(&t->spent_until_ms, memory_order_relaxed);
}

/* Sets */

/* The place of the first word with that tag, except `skip`; or NONE. */
static int way_find(_Atomic uint64_t *set, uint64_t tag, int skip, uint64_t *ret_word)
{
	for (int i = 0; i < WAYS; i++) {
		uint64_t word = atomic_load(&set[i]);
		if (i != skip && word != 0 && word_tag(word) == tag) {
			*ret_word = word;
			return i;
		}
	}
	return NONE;
}

/* The smallest is evicted: free words, expired ones, then those with the fewest attempts; of equals the one
 * that ends first. A claim counts as one attempt, which is under way. */
static uint64_t eviction_order(uint64_t word, int64_t now)
{
	if (word == 0)
		return 0;
	if (entry_is_expired(word, now))
		return 1;
	return (uint64_t)MAX(word_count(word), 1U) << 32 | (uint64_t)(word_end(word, now) - now);
}

/* Places a claim, evicting if needed. NONE: another thread was faster. */
static int claim_place(_Atomic uint64_t *set, uint64_t claim, int64_t now)
{
	int least = 0;
	uint64_t words[WAYS];
	for (int i = 0; i < WAYS; i++) {
		words[i] = atomic_load(&set[i]);
		if (eviction_order(words[i], now) < eviction_order(words[least], now))
			least = i;
	}
	return word_replace(&set[least], words[least], claim) ? least : NONE;
}

/* Makes the claim an entry with its first attempt. If another word has its tag, removes one of them
 * instead. */
static bool claim_settle(_Atomic uint64_t *set, int place, uint64_t claim, uint64_t entry)
{
	uint64_t other;
	int at = way_find(set, word_tag(claim), place, &other);
	if (at == NONE)
		return word_replace(&set[place], claim, entry);
	if (word_count(other) > 0 || at < place)
		word_replace(&set[place], claim, 0);
	else
		word_replace(&set[at], other, 0);
	return false;
}

/* Attempts */

static void reading_set(struct meter_reading *ret, uint32_t max, uint64_t word, int64_t now, int64_t mono_ms)
{
	uint32_t count = word_count(word);
	if (!ret)
		return;
	*ret = (struct meter_reading){.limit = max, .remaining = max - MIN(count, max)};
	if (count > 0) {
		ret->reset_ms = (uint32_t)MAX(ms_of(word_end(word, now)) - mono_ms, 0);
		ret->period = (uint32_t)word & ((1U << TIME_BITS) - 1);
	}
}

/* Takes one attempt; *ret_word is the entry afterwards. False: none was left. */
static bool set_take(_Atomic uint64_t *set, uint64_t tag, uint32_t max, int64_t now, int64_t period,
                     uint64_t *ret_word)
{
	uint64_t word, claim = word_make(tag, 0, now + period), first = word_make(tag, 1, now + period);
	int claimed = NONE;
	for (;;) {
		int place = way_find(set, tag, NONE, &word);
		if (place == NONE) {
			claimed = claim_place(set, claim, now);
			continue;
		}
		if (claimed != NONE && claimed != place) { /* not needed any more */
			word_replace(&set[claimed], claim, 0);
			claimed = NONE;
		}
		if (word_count(word) == 0) {
			*ret_word = first;
			if (claim_settle(set, place, word, first))
				return true;
			continue;
		}
		bool expired = entry_is_expired(word, now);
		*ret_word = word;
		if (!expired && word_count(word) >= max)
			return false;
		*ret_word = expired ? first : word + (1ULL << TIME_BITS);
		if (word_replace(&set[place], word, *ret_word))
			return true;
	}
}

bool throttle_take(struct throttle *t, uint64_t key, const struct throttle_rule *rule, int64_t mono_ms,
                   struct meter_reading *ret)
{
	uint32_t max = MIN(rule->max, (uint32_t)THROTTLE_MAX);
	int64_t now = units_of(mono_ms);
	uint64_t word = 0;
	if (max == 0) {
		reading_set(ret, 0, 0, now, mono_ms);
		return true;
	}
	scrub_if_due(t, now);
	bool taken = set_take(set_of(t, key), tag_of(key), max, now, MAX(PERIOD_UNITS(rule), 1), &word);
	if (word_count(word) >= max)
		note_spent(t, ms_of(word_end(word, now)));
	reading_set(ret, max, word, now, mono_ms);
	return taken;
}

/* The place of the key's entry, if it has not expired; otherwise NONE, and a word of 0. */
static int entry_find(const struct throttle *t, uint64_t key, int64_t now, uint64_t *ret_word)
{
	_Atomic uint64_t *set = set_of(t, key);
	bool none = all_expired(t, now);
	for (int i = 0; !none && i < WAYS; i++) {
		uint64_t word = atomic_load(&set[i]);
		if (word_tag(word) == tag_of(key) && word_count(word) > 0 && !entry_is_expired(word, now)) {
			*ret_word = word;
			return i;
		}
	}
	*ret_word = 0;
	return NONE;
}

void throttle_refund(struct throttle *t, uint64_t key, const struct throttle_rule *rule, int64_t mono_ms)
{
	uint64_t word;
	int place;
	while (rule->max > 0 && (place = entry_find(t, key, units_of(mono_ms), &word)) != NONE) {
		uint64_t less = word_count(word) > 1 ? word - (1ULL << TIME_BITS) : 0;
		if (word_replace(&set_of(t, key)[place], word, less))
			return;
	}
}

bool throttle_is_spent(const struct throttle *t, uint64_t key, const struct throttle_rule *rule,
                       int64_t mono_ms, struct meter_reading *ret)
{
	uint32_t max = MIN(rule->max, (uint32_t)THROTTLE_MAX);
	int64_t now = units_of(mono_ms);
	uint64_t word = 0;
	if (max > 0)
		entry_find(t, key, now, &word);
	reading_set(ret, max, word, now, mono_ms);
	return max > 0 && word_count(word) >= max;
}
