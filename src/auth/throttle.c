/*
 * An entry is a word: tag (20 bits), count (20), end of its period (24) in sixteenths of a second. Having the
 * end there, and not the beginning, anybody can tell whether a period is over without knowing whose it is.
 * A word of 0 is free.
 *
 * Time. 24 bits of sixteenths wrap around after 12 days; as a difference with a sign they are right for six.
 * So that no old entry comes back to life, those that are over are scrubbed from the table by the first try
 * after a day and a half. When nobody tried for three days, all are over, whatever their bits say.
 *
 * A name has at most one entry that counts, although the words of a set change independently. Whoever finds
 * none puts one with a count of 0 there: a claim. It becomes an entry, by its first try, when somebody who
 * has seen the claim looks at the other words after that and finds none of the same tag. Of two claims one
 * was placed later, and who settles that one sees the other, if it is still there: then the claim in the
 * higher place goes, or the one beside an entry that counts. All these accesses are sequentially consistent
 * for that.
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
	_Atomic int64_t scrubbed;       /* when, in units; NEVER: nothing was ever kept */
	_Atomic int64_t spent_until_ms; /* after that no name is spent */
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
static uint64_t tag_of(uint64_t name)
{
	return MAX(name >> (64 - TAG_BITS), 1);
}

static _Atomic uint64_t *set_of(const struct throttle *t, uint64_t name)
{
	return &t->words[(name & ((1U << SET_BITS) - 1)) * WAYS];
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

/* In full, for a word that is less than six days from now. */
static int64_t word_end(uint64_t word, int64_t now)
{
	uint32_t apart = ((uint32_t)word - (uint32_t)now) << (32 - TIME_BITS);
	return now + ((int32_t)apart >> (32 - TIME_BITS));
}

static bool entry_is_expired(uint64_t word, int64_t now)
{
	return word_end(word, now) <= now;
}

static bool word_change(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(word, &from, to);
}

/* Time */

static int64_t units_of(int64_t ms)
{
	return ms * UNITS_PER_SECOND / 1000;
}

/* The first millisecond that has come to that unit. */
static int64_t ms_of(int64_t units)
{
	return (units * 1000 + UNITS_PER_SECOND - 1) / UNITS_PER_SECOND;
}

static bool all_expired(const struct throttle *t, int64_t now)
{
	int64_t scrubbed = atomic_load(&t->scrubbed);
	return scrubbed == NEVER || now - scrubbed >= ALL_EXPIRED_AFTER;
}

/* Several may do this at once. A word that was there before the first of them was done is old; so whoever
 * sees that one is done touches nothing any more. */
static void scrub(struct throttle *t, int64_t now)
{
	int64_t last = atomic_load(&t->scrubbed);
	bool all = all_expired(t, now);
	for (size_t i = 0; last != NEVER && i < (size_t)WAYS << SET_BITS; i++) {
		uint64_t word = atomic_load(&t->words[i]);
		if (word == 0)
			continue;
		if (atomic_load(&t->scrubbed) != last)
			return;
		if (all || entry_is_expired(word, now))
			word_change(&t->words[i], word, 0);
	}
	atomic_compare_exchange_strong(&t->scrubbed, &last, now);
}

static void scrub_when_due(struct throttle *t, int64_t now)
{
	int64_t scrubbed = atomic_load(&t->scrubbed);
	if (scrubbed == NEVER || now - scrubbed >= SCRUB_AFTER)
		scrub(t, now);
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

/* The first of that tag other than in place `but`, or NONE. */
static int way_find(_Atomic uint64_t *set, uint64_t tag, int but, uint64_t *ret_word)
{
	for (int i = 0; i < WAYS; i++) {
		uint64_t word = atomic_load(&set[i]);
		if (i != but && word != 0 && word_tag(word) == tag) {
			*ret_word = word;
			return i;
		}
	}
	return NONE;
}

/* The larger, the more it should stay: free, over, then by tries, and of as many the one that ends first. A
 * claim stands for a first try that is under way. */
static uint64_t worth(uint64_t word, int64_t now)
{
	if (word == 0)
		return 0;
	if (entry_is_expired(word, now))
		return 1;
	return (uint64_t)MAX(word_count(word), 1U) << 32 | (uint64_t)(word_end(word, now) - now);
}

/* Puts a claim where it costs least. NONE: somebody was quicker. */
static int claim_place(_Atomic uint64_t *set, uint64_t claim, int64_t now)
{
	int least = 0;
	uint64_t words[WAYS];
	for (int i = 0; i < WAYS; i++) {
		words[i] = atomic_load(&set[i]);
		if (worth(words[i], now) < worth(words[least], now))
			least = i;
	}
	return word_change(&set[least], words[least], claim) ? least : NONE;
}

/* Makes the claim an entry with a first try, unless it is not the only one of its tag: then one goes. */
static bool claim_settle(_Atomic uint64_t *set, int place, uint64_t claim, uint64_t entry)
{
	uint64_t other;
	int at = way_find(set, word_tag(claim), place, &other);
	if (at == NONE)
		return word_change(&set[place], claim, entry);
	if (word_count(other) > 0 || at < place)
		word_change(&set[place], claim, 0);
	else
		word_change(&set[at], other, 0);
	return false;
}

/* Trying */

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

/* Takes one from the set; the word as it is then. False: none was left. */
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
		if (claimed != NONE && claimed != place) { /* it was not needed, and is in others' way */
			word_change(&set[claimed], claim, 0);
			claimed = NONE;
		}
		if (word_count(word) == 0) {
			*ret_word = first;
			if (claim_settle(set, place, word, first))
				return true;
			continue;
		}
		bool over = entry_is_expired(word, now);
		*ret_word = word;
		if (!over && word_count(word) >= max)
			return false;
		*ret_word = over ? first : word + (1ULL << TIME_BITS);
		if (word_change(&set[place], word, *ret_word))
			return true;
	}
}

bool throttle_take(struct throttle *t, uint64_t name, const struct throttle_rule *rule, int64_t mono_ms,
                   struct meter_reading *ret)
{
	uint32_t max = MIN(rule->max, (uint32_t)THROTTLE_MAX);
	int64_t now = units_of(mono_ms);
	uint64_t word = 0;
	if (max == 0) {
		reading_set(ret, 0, 0, now, mono_ms);
		return true;
	}
	scrub_when_due(t, now);
	bool taken = set_take(set_of(t, name), tag_of(name), max, now, MAX(PERIOD_UNITS(rule), 1), &word);
	if (word_count(word) >= max)
		note_spent(t, ms_of(word_end(word, now)));
	reading_set(ret, max, word, now, mono_ms);
	return taken;
}

/* The name's entry, if its period is not over; otherwise NONE, and a word of 0. */
static int entry_find(const struct throttle *t, uint64_t name, int64_t now, uint64_t *ret_word)
{
	_Atomic uint64_t *set = set_of(t, name);
	bool none = all_expired(t, now);
	for (int i = 0; !none && i < WAYS; i++) {
		uint64_t word = atomic_load(&set[i]);
		if (word_tag(word) == tag_of(name) && word_count(word) > 0 && !entry_is_expired(word, now)) {
			*ret_word = word;
			return i;
		}
	}
	*ret_word = 0;
	return NONE;
}

void throttle_refund(struct throttle *t, uint64_t name, const struct throttle_rule *rule, int64_t mono_ms)
{
	uint64_t word;
	int place;
	while (rule->max > 0 && (place = entry_find(t, name, units_of(mono_ms), &word)) != NONE) {
		uint64_t less = word_count(word) > 1 ? word - (1ULL << TIME_BITS) : 0;
		if (word_change(&set_of(t, name)[place], word, less))
			return;
	}
}

bool throttle_is_spent(const struct throttle *t, uint64_t name, const struct throttle_rule *rule,
                       int64_t mono_ms, struct meter_reading *ret)
{
	uint32_t max = MIN(rule->max, (uint32_t)THROTTLE_MAX);
	int64_t now = units_of(mono_ms);
	uint64_t word = 0;
	if (max > 0)
		entry_find(t, name, now, &word);
	reading_set(ret, max, word, now, mono_ms);
	return max > 0 && word_count(word) >= max;
}
