/*
 * Interns the texts of visits, and caches what they were parsed into: each distinct text is parsed once. The
 * table is bounded: when it is full, it is emptied (intern_reset), which invalidates all ids.
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

	/* as a user agent */
	bool agent_known;
	uint32_t browser, os, device, bot;

	/* as a referrer, as a language */
	bool host_known, language_known;
	uint32_t host, language;

	/* its index in the batch with this stamp */
	uint32_t stamp;
	uint32_t text_index;
};

struct intern {
	struct agents *agents;
	uint64_t seed;
	struct interned *list; /* INTERN_MAX of them, from 1 on */
	uint32_t count;
	uint32_t *slots;
	struct arena arena;
	size_t bytes;
	int64_t agent_ns_left; /* see intern_allow */
};

int intern_init(struct intern *t, struct agents *agents);
void intern_release(struct intern *t);
void intern_reset(struct intern *t);
bool intern_is_full(const struct intern *t); /* a reset is due between two batches */

/* The id of a text; INTERN_NONE if it is empty, or memory ran out. */
uint32_t intern_add(struct intern *t, struct str text);

static inline struct interned *intern_at(struct intern *t, uint32_t number)
{
	return &t->list[number];
}
static inline struct str intern_text(const struct intern *t, uint32_t number)
{
	return number == INTERN_NONE ? STR_NULL : t->list[number].text;
}

/* Sets the CPU time for classifying new user agents. When it is used up, they are "Other" until there is
 * more: a flood of made-up user agents must not delay the statistics. */
void intern_allow(struct intern *t, int64_t agent_ns);

/* Parses a text as a user agent: sets browser, os, device and bot. Also for INTERN_NONE. */
const struct interned *intern_agent(struct intern *t, uint32_t number);

/* The host of a referrer, and the language of a preference ("en" of "en-US"); INTERN_NONE: not one. */
uint32_t intern_host(struct intern *t, uint32_t number);
uint32_t intern_language(struct intern *t, uint32_t number);
