/*
 * Texts that came with visits, and what was made of them: each is looked at once, however often it is
 * mentioned. Bounded: when there are too many, all are forgotten (words_reset), and numbers given out before
 * mean nothing any more.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "base/arena.h"
#include "stats/agent.h"

enum { WORDS_MAX = 1 << 16, WORDS_BYTES_MAX = 16 << 20, WORD_NONE = 0 };

struct word {
	struct str text;
	uint64_t hash;

	/* as a user agent; 0: not asked yet */
	bool agent_known;
	uint32_t browser, os, device, bot;

	/* as a referrer, as a language */
	bool host_known, language_known;
	uint32_t host, language;

	/* the batch's own: its number there, when `stamp` is that batch's */
	uint32_t stamp;
	uint32_t text_index;
};

struct words {
	struct agents *agents;
	uint64_t seed;
	struct word *list; /* from 1 on; WORDS_MAX of them */
	uint32_t count;
	uint32_t *slots;
	struct arena arena;
	size_t bytes;
	int64_t agent_ns_left; /* see words_allow */
};

int words_init(struct words *w, struct agents *agents);
void words_release(struct words *w);
void words_reset(struct words *w);
bool words_are_many(const struct words *w); /* time for a reset, between two batches */

/* The number of a text: WORD_NONE for an empty one, and when memory ran out. */
uint32_t words_of(struct words *w, struct str text);

static inline struct word *words_at(struct words *w, uint32_t number)
{
	return &w->list[number];
}
static inline struct str words_text(const struct words *w, uint32_t number)
{
	return number == WORD_NONE ? STR_NULL : w->list[number].text;
}

/* Time for looking at new user agents. When it is used up they are "Other", until there is more: a flood of
 * made-up agents must not hold up everybody's statistics. */
void words_allow(struct words *w, int64_t agent_ns);

/* What a text is as a user agent: sets the word's browser, os, device and bot. Also for WORD_NONE. */
const struct word *words_agent(struct words *w, uint32_t number);

/* The host of a referrer, and the language of a preference ("en" of "en-US"); WORD_NONE when it is none. */
uint32_t words_host(struct words *w, uint32_t number);
uint32_t words_language(struct words *w, uint32_t number);
