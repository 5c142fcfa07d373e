/*
 * Lists of regular expressions over user agents. In each list, the first rule that matches counts.
 *
 * There are more than a thousand rules, and nearly all cannot match a given text, because it lacks a literal
 * that they require. So the required literals of each rule are derived when it is loaded ("a|b & c": a or b,
 * and c). One pass over a text finds all literals at once, and only rules whose literals are present are
 * tried, in order. A rule is compiled when it is first tried. The result equals that of trying every rule,
 * except that a rule which exceeds its limit of steps counts as not matching.
 *
 * Not thread-safe.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum agent_list {
	AGENT_LIST_BROWSER, /* of uap-core, with the next two */
	AGENT_LIST_OS,
	AGENT_LIST_DEVICE,
	AGENT_LIST_BOT,  /* of agent.c */
	AGENT_LIST_FORM, /* form factors; of agent.c */
	AGENT_LISTS,
};

enum {
	AGENT_GROUPS = 5, /* the whole match, and $1 to $4 */
	AGENT_RULES_MAX = UINT16_MAX,
};

struct agent_rule {
	enum agent_list list;
	bool ignore_case;
	bool names_fixed; /* group 1 is one of a few names in the rule; set when loaded */
	struct str regex; /* in PCRE's syntax */
	struct str value; /* the result, with $1 to $4 for groups; STR_NULL: group 1 */
	struct str brand; /* devices only; likewise */
};

struct agent_match {
	const struct agent_rule *rule;   /* NULL when no rule matches; lives as long as the rules */
	struct str groups[AGENT_GROUPS]; /* point into the text; STR_NULL when not part of the match */
};

struct agent_rules_stats {
	uint64_t compiled; /* rules, so far */
	uint64_t runs;     /* of rules over texts */
	uint64_t skipped;  /* runs that exceeded a limit, and rules that could not be compiled */
};

struct agent_rules;

/* Keeps the order of the rules inside each list. Their strings must outlive `*ret`. ERR_NOMEM. */
int agent_rules_new(const struct agent_rule *rules, size_t count, struct agent_rules **ret);
void agent_rules_free(struct agent_rules *r);

/* The first matching rule of each list. The caller limits the text to 512 bytes. */
void agent_rules_match(struct agent_rules *r, struct str text, struct agent_match ret[AGENT_LISTS]);

struct agent_rules_stats agent_rules_read_stats(const struct agent_rules *r);
