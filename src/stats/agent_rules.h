/*
 * Lists of regular expressions over user agents. In each list the first rule that matches has the say.
 *
 * There are more than a thousand rules, and nearly all of them cannot match a given text because a
 * word that they need is not in it. So each rule's needs are worked out when the rules are loaded
 * ("a|b & c": a or b must be there, and c); one pass over a text finds all needed words at once, and only
 * rules whose needs are met are tried, in their order. A rule is compiled when it is first tried.
 * The answer is the one that trying every rule gives, but for texts on which a rule runs into its
 * limit of steps: that rule counts as not matching.
 *
 * For one thread.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum agent_list {
	AGENT_LIST_BROWSER, /* uap-core's three */
	AGENT_LIST_OS,
	AGENT_LIST_DEVICE,
	AGENT_LIST_BOT, /* the caller's two */
	AGENT_LIST_SHAPE,
	AGENT_LISTS,
};

enum {
	AGENT_GROUPS = 5, /* the whole match, and $1 to $4 */
	AGENT_RULES_MAX = UINT16_MAX,
};

struct agent_rule {
	enum agent_list list;
	bool ignore_case;
	bool names_fixed; /* group 1 is one of a few names that stand in the rule; set when loaded */
	struct str regex; /* in PCRE's syntax */
	struct str value; /* the answer, with $1 to $4 for groups; STR_NULL: group 1 itself */
	struct str brand; /* devices only; the same */
};

struct agent_match {
	const struct agent_rule *rule; /* NULL when no rule of the list matches; lives as long as the rules */
	struct str groups[AGENT_GROUPS]; /* inside the text; STR_NULL when not part of the match */
};

struct agent_rules_stats {
	uint64_t compiled; /* rules, so far */
	uint64_t runs;     /* of rules over texts */
	uint64_t skipped;  /* runs that met a limit, and rules that could not be compiled */
};

struct agent_rules;

/* Keeps the order of the rules inside each list. Their strings must outlive `*ret`. ERR_NOMEM. */
int agent_rules_new(const struct agent_rule *rules, size_t count, struct agent_rules **ret);
void agent_rules_free(struct agent_rules *r);

/* The first matching rule of each list. Texts longer than 512 bytes are the caller's to cut. */
void agent_rules_match(struct agent_rules *r, struct str text, struct agent_match ret[AGENT_LISTS]);

struct agent_rules_stats agent_rules_read_stats(const struct agent_rules *r);
