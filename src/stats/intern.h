/*
 * Texts that came with visits, and what was made of them: each is looked at once, however often it is
 * mentioned. Bounded: when there are too many, all are forgotten (intern_reset), and numbers given out before
 * mean nothing any more.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "base/arena.h"
#include "stats/agent.h"

enum { INTERN_MAX = 1 << 16, INTERN_BYTES_MAX = 16 << 20, INTERN_NONE = 0 };

struct interned {
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

struct intern {
	struct agents *agents;
	uint64_t seed;
	struct interned *list; /* from 1 on; INTERN_MAX of them */
	uint32_t count;
	uint32_t *slots;
	struct arena arena;
	size_t bytes;
	int64_t agent_ns_left; /* see intern_allow */
};

int intern_init(struct intern *w, struct agents *agents);
void intern_release(struct intern *w);
void intern_reset(struct intern *w);
bool intern_is_full(const struct intern *w); /* time for a reset, between two batches */

/* The number of a text: INTERN_NONE for an empty one, and when memory ran out. */
uint32_t intern_add(struct intern *w, struct str text);

static inline struct interned *intern_at(struct intern *w, uint32_t number)
{
	return &w->list[number];
}
static inline struct str intern_text(const struct intern *w, uint32_t number)
{
	return number == INTERN_NONE ? STR_NULL : w->list[number].text;
}

/* Time for looking at new user agents. When it is used up they are "Other", until there is more: a flood of
 * made-up agents must not hold up everybody's statistics. */
void intern_allow(struct intern *w, int64_t agent_ns);

/* What a text is as a user agent: sets the word's browser, os, device and bot. Also for INTERN_NONE. */
const struct interned *intern_agent(struct intern *w, uint32_t number);

/* The host of a referrer, and the language of a preference ("en" of "en-US"); INTERN_NONE when it is none. */
uint32_t intern_host(struct intern *w, uint32_t number);
uint32_t intern_language(struct intern *w, uint32_t number);
