/*
 * The literals of all rules form an Aho-Corasick automaton: a trie with failure links. Walking it along a
 * text passes every literal that the text contains. A literal leads to the requirements that it satisfies, a
 * requirement to its rule. A rule whose last requirement is satisfied becomes a candidate. Literals are
 * matched in lower case, so that case-sensitive rules share the trie: that admits a few more candidates and
 * loses none.
 */
#include "stats/agent_rules.h"

#include "base/buf.h"
#include "stats/required_literals.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
	NEEDS_MAX = 8,       /* requirements of one rule */
	WORD_BYTES_MAX = 24, /* in the trie; a prefix of a required literal is required too */

	MATCH_STEPS_MAX = 60000, /* uap-core's own examples take up to 50000, and 10000 as machine code */
	MATCH_HEAP_KIB_MAX = 512,
	SKIPPED_PER_TEXT_MAX = 2, /* runs that exceed a limit; then no further rule is tried */
};

/* ---- the trie ---- */

/* Links are indexes; 0 is the root, and as a link it means "none". */
struct trie_node {
	uint32_t child; /* the first; the others follow as its siblings */
	uint32_t sibling;
	uint32_t fail; /* the node of the longest proper suffix */
	uint32_t word; /* the next node along the failure links at which a literal ends */
	uint32_t uses; /* of the literal that ends here; 0: none ends here */
	unsigned char byte;
};

/* A requirement that a literal satisfies. Uses of one literal are chained; index 0 is not used. */
struct trie_use {
	uint32_t next;
	uint32_t need;
};

struct trie {
	struct buf nodes; /* of struct trie_node */
	struct buf uses;  /* of struct trie_use */
	uint32_t root[256];
};

static struct trie_node *trie_nodes(const struct trie *t)
{
	return (struct trie_node *)(void *)t->nodes.data;
}

static uint32_t trie_count(const struct trie *t)
{
	return (uint32_t)(t->nodes.len / sizeof(struct trie_node));
}

static uint32_t node_child(const struct trie_node *nodes, uint32_t at, unsigned char byte)
{
	uint32_t n = nodes[at].child;
	while (n && nodes[n].byte != byte)
		n = nodes[n].sibling;
	return n;
}

static void trie_add(struct trie *t, struct str word, uint32_t need)
{
	uint32_t at = 0;
	for (size_t i = 0; i < MIN(word.len, WORD_BYTES_MAX) && !t->nodes.failed; i++) {
		unsigned char byte = (unsigned char)word.ptr[i];
		uint32_t child = node_child(trie_nodes(t), at, byte);
		if (!child) {
			child = trie_count(t);
			struct trie_node node = {.byte = byte, .sibling = trie_nodes(t)[at].child};
			buf_append(&t->nodes, &node, sizeof(node));
			if (!t->nodes.failed)
				trie_nodes(t)[at].child = child;
		}
		at = child;
	}
	if (t->nodes.failed)
		return;
	struct trie_use use = {.next = trie_nodes(t)[at].uses, .need = need};
	trie_nodes(t)[at].uses = (uint32_t)(t->uses.len / sizeof(use));
	buf_append(&t->uses, &use, sizeof(use));
}

static uint32_t trie_step(const struct trie *t, uint32_t at, unsigned char byte)
{
	const struct trie_node *nodes = trie_nodes(t);
	for (; at; at = nodes[at].fail) {
		uint32_t child = node_child(nodes, at, byte);
		if (child)
			return child;
	}
	return t->root[byte];
}

/* Sets the failure links breadth-first, as a link leads to a node closer to the root. */
static int trie_link(struct trie *t)
{
	if (t->nodes.failed || t->uses.failed)
		return ERR_NOMEM;
	struct trie_node *nodes = trie_nodes(t);
	uint32_t *queue = malloc(trie_count(t) * sizeof(*queue));
	if (!queue)
		return ERR_NOMEM;
	uint32_t in = 0;
	for (uint32_t n = nodes[0].child; n; n = nodes[n].sibling) {
		t->root[nodes[n].byte] = n;
		queue[in++] = n;
	}
	for (uint32_t out = 0; out < in; out++) {
		const struct trie_node *parent = &nodes[queue[out]];
		for (uint32_t n = parent->child; n; n = nodes[n].sibling) {
			nodes[n].fail = trie_step(t, parent->fail, nodes[n].byte);
			uint32_t fail = nodes[n].fail;
			nodes[n].word = nodes[fail].uses ? fail : nodes[fail].word;
			queue[in++] = n;
		}
	}
	free(queue);
	return 0;
}

/* ---- rules ---- */

/* A compiled rule. */
struct program {
	pcre2_code *code; /* NULL until the first run */
	bool broken;      /* cannot be compiled */
};

struct agent_rules {
	struct agent_rule *rules; /* list by list */
	size_t count;
	size_t first[AGENT_LISTS + 1]; /* where each list begins, and the end */
	struct program *programs;      /* one for each rule */
	pcre2_match_context *limits;
	pcre2_match_data *match;

	struct trie trie;
	struct buf needs;    /* of uint16_t: the rule of each requirement */
	uint8_t *needs_left; /* requirements of each rule */
	uint8_t *left;       /* those not yet satisfied by the current text */
	uint64_t *met;       /* bits: requirements that the text satisfies */
	uint64_t *ready;     /* bits: rules whose requirements are all satisfied */
	uint64_t *always;    /* bits: rules without requirements */
	size_t met_words;
	size_t ready_words;

	struct agent_rules_stats stats;
};

static void bit_set(uint64_t *bits, size_t i)
{
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}

/* Adds the literals of one rule to the trie. */
static int rule_index(struct agent_rules *r, uint16_t index)
{
	CLEANUP(arena_release) struct arena scratch = {0};
	struct agent_rule *rule = &r->rules[index];
	struct literal_set *needs;
	int result = required_literals_find(&scratch, rule->regex, &needs, &rule->names_fixed);
	if (result < 0)
		return result;
	for (; needs && r->needs_left[index] < NEEDS_MAX; needs = needs->next, r->needs_left[index]++) {
		for (const struct required_literal *w = needs->words; w; w = w->next)
			trie_add(&r->trie, w->text, (uint32_t)(r->needs.len / sizeof(index)));
		buf_append(&r->needs, &index, sizeof(index));
	}
	if (r->needs_left[index] == 0)
		bit_set(r->always, index);
	return 0;
}

static int rules_index(struct agent_rules *r)
{
	buf_append(&r->trie.nodes, &(struct trie_node){0}, sizeof(struct trie_node));
	buf_append(&r->trie.uses, &(struct trie_use){0}, sizeof(struct trie_use));
	int result = 0;
	for (size_t i = 0; result == 0 && i < r->count; i++)
		result = rule_index(r, (uint16_t)i);
	if (result == 0)
		result = trie_link(&r->trie);
	if (result < 0 || r->needs.failed)
		return ERR_NOMEM;
	r->met_words = r->needs.len / sizeof(uint16_t) / 64 + 1;
	r->met = calloc(r->met_words, sizeof(*r->met));
	return r->met ? 0 : ERR_NOMEM;
}

static int rules_allocate(struct agent_rules *r)
{
	r->ready_words = r->count / 64 + 1;
	r->rules = calloc(r->count + 1, sizeof(*r->rules));
	r->programs = calloc(r->count + 1, sizeof(*r->programs));
	r->needs_left = calloc(r->count + 1, 1);
	r->left = calloc(r->count + 1, 1);
	r->ready = calloc(r->ready_words, sizeof(*r->ready));
	r->always = calloc(r->ready_words, sizeof(*r->always));
	r->limits = pcre2_match_context_create(NULL);
	r->match = pcre2_match_data_create(AGENT_GROUPS, NULL);
	if (!r->rules || !r->programs || !r->needs_left || !r->left || !r->ready || !r->always ||
	    !r->limits || !r->match)
		return ERR_NOMEM;
	pcre2_set_match_limit(r->limits, MATCH_STEPS_MAX);
	pcre2_set_heap_limit(r->limits, MATCH_HEAP_KIB_MAX);
	return 0;
}

int agent_rules_new(const struct agent_rule *rules, size_t count, struct agent_rules **ret)
{
	ASSERT(count <= AGENT_RULES_MAX);
	struct agent_rules *r = calloc(1, sizeof(*r));
	if (!r)
		return ERR_NOMEM;
	r->count = count;
	int result = rules_allocate(r);
	size_t at = 0;
	for (enum agent_list list = 0; result == 0 && list < AGENT_LISTS; list++) {
		r->first[list] = at;
		for (size_t i = 0; i < count; i++)
			if (rules[i].list == list)
				r->rules[at++] = rules[i];
	}
	r->first[AGENT_LISTS] = at;
	if (result == 0)
		result = rules_index(r);
	if (result < 0)
		agent_rules_free(r);
	else
		*ret = r;
	return result;
}

void agent_rules_free(struct agent_rules *r)
{
	if (!r)
		return;
	for (size_t i = 0; r->programs && i < r->count; i++)
		pcre2_code_free(r->programs[i].code);
	pcre2_match_context_free(r->limits);
	pcre2_match_data_free(r->match);
	buf_release(&r->trie.nodes);
	buf_release(&r->trie.uses);
	buf_release(&r->needs);
	free(r->programs);
	free(r->needs_left);
	free(r->left);
	free(r->met);
	free(r->ready);
	free(r->always);
	free(r->rules);
	free(r);
}

struct agent_rules_stats agent_rules_read_stats(const struct agent_rules *r)
{
	return r->stats;
}

/* ---- matching ---- */

static void need_meet(struct agent_rules *r, uint32_t need)
{
	if (r->met[need / 64] >> (need % 64) & 1)
		return;
	bit_set(r->met, need);
	uint16_t rule = ((const uint16_t *)(const void *)r->needs.data)[need];
	if (--r->left[rule] == 0)
		bit_set(r->ready, rule);
}

static bool program_prepare(struct agent_rules *r, struct program *p, const struct agent_rule *rule)
{
	if (p->code || p->broken)
		return p->code;
	uint32_t options = PCRE2_DOLLAR_ENDONLY | (rule->ignore_case ? PCRE2_CASELESS : 0);
	int error;
	PCRE2_SIZE where;
	p->code = pcre2_compile((PCRE2_SPTR)rule->regex.ptr, rule->regex.len, options, &error, &where, NULL);
	p->broken = !p->code;
	if (!p->code)
		return false;
	r->stats.compiled++;
	/* Where the system forbids generated machine code, PCRE interprets the program. */
	pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
	return true;
}

static bool rule_run(struct agent_rules *r, size_t index, struct str text, struct str ret[AGENT_GROUPS])
{
	struct program *p = &r->programs[index];
	r->stats.runs++;
	if (!program_prepare(r, p, &r->rules[index])) {
		r->stats.skipped++;
		return false;
	}
	int found = pcre2_match(p->code, (PCRE2_SPTR)text.ptr, text.len, 0, 0, r->match, r->limits);
	if (found < 0) {
		r->stats.skipped += found != PCRE2_ERROR_NOMATCH;
		return false;
	}
	/* `found` is one more than the highest group, or 0 if there is no room for all groups. */
	const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(r->match);
	for (size_t i = 0; i < AGENT_GROUPS; i++) {
		bool matched = (found == 0 || i < (size_t)found) && ends[2 * i] != PCRE2_UNSET;
		ret[i] = matched ? str_n(text.ptr + ends[2 * i], ends[2 * i + 1] - ends[2 * i]) : STR_NULL;
	}
	return true;
}

/* The next ready rule from `i` on; `end`: none. */
static size_t rules_next_ready(const struct agent_rules *r, size_t i, size_t end)
{
	while (i < end) {
		uint64_t bits = r->ready[i / 64] >> (i % 64);
		if (bits)
			return MIN(i + (size_t)__builtin_ctzll(bits), end);
		i = (i / 64 + 1) * 64;
	}
	return end;
}

void agent_rules_match(struct agent_rules *r, struct str text, struct agent_match ret[AGENT_LISTS])
{
	uint64_t skipped_max = r->stats.skipped + SKIPPED_PER_TEXT_MAX;
	/* One pass over the text finds the rules that may match. */
	const struct trie_node *nodes = trie_nodes(&r->trie);
	const struct trie_use *uses = (const struct trie_use *)(const void *)r->trie.uses.data;
	memcpy(r->left, r->needs_left, r->count);
	memset(r->met, 0, r->met_words * sizeof(*r->met));
	memcpy(r->ready, r->always, r->ready_words * sizeof(*r->ready));
	uint32_t at = 0;
	for (size_t i = 0; i < text.len; i++) {
		at = trie_step(&r->trie, at, (unsigned char)ascii_lower(text.ptr[i]));
		for (uint32_t word = at; word; word = nodes[word].word)
			for (uint32_t u = nodes[word].uses; u; u = uses[u].next)
				need_meet(r, uses[u].need);
	}
	for (int list = 0; list < AGENT_LISTS; list++) {
		ret[list].rule = NULL;
		size_t end = r->first[list + 1];
		size_t i = rules_next_ready(r, r->first[list], end);
		for (; i < end && r->stats.skipped < skipped_max; i = rules_next_ready(r, i + 1, end)) {
			if (rule_run(r, i, text, ret[list].groups)) {
				ret[list].rule = &r->rules[i];
				break;
			}
		}
	}
}
