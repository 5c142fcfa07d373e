/*
 * Parses a regular expression once, part by part. A part is known either by all texts that it can match
 * (while they are few, in lower case), or by sets of words of which every match contains one. Consecutive
 * parts multiply their texts while these stay few ("Black[bB]erry" is one, "UC? ?Browser" is four).
 * Alternatives add them up. Optional parts, and parts that are not understood, add nothing.
 */
#include "stats/required_literals.h"

enum {
	TEXTS_MAX = 128,     /* a part with more texts is no longer known by its texts */
	CLASS_CHARS_MAX = 4, /* a [class] with more is unknown */
	WORD_BYTES_MIN = 2,  /* shorter words are in nearly every text */
	DEPTH_MAX = 32,      /* of nested groups */
};

struct reader {
	struct arena *mem;
	const char *at;
	const char *end;
	unsigned depth;
	unsigned groups;
	bool names_fixed; /* group 1 is known by its texts */
	bool lost;        /* found something that is not understood: nothing is required */
	bool failed;      /* memory ran out */
};

/* What is known of a part of an expression. */
struct part {
	bool exact;
	struct required_literal *texts; /* exact: all that it can match */
	struct literal_set *needs;      /* otherwise: what every match contains */
};

static const struct part unknown = {0};

static struct part read_alternatives(struct reader *r);

/* Gives up: moves to the end, so that every loop ends. */
static struct part reader_lose(struct reader *r)
{
	r->lost = true;
	r->at = r->end;
	return unknown;
}

static size_t words_count(const struct required_literal *w)
{
	size_t count = 0;
	for (; w; w = w->next)
		count++;
	return count;
}

static size_t words_shortest(const struct required_literal *w)
{
	size_t shortest = w ? SIZE_MAX : 0;
	for (; w; w = w->next)
		shortest = MIN(shortest, w->text.len);
	return shortest;
}

static bool words_have(const struct required_literal *w, struct str text)
{
	while (w && !str_eq(w->text, text))
		w = w->next;
	return w;
}

/* `words` and a + b. */
static struct required_literal *words_add(struct reader *r, struct required_literal *words, struct str a,
                                          struct str b)
{
	struct required_literal *added = arena_alloc(r->mem, sizeof(*added) + a.len + b.len);
	if (!added) {
		r->failed = true;
		return words;
	}
	char *text = (char *)(added + 1);
	memcpy(text, a.ptr, a.len);
	memcpy(text + a.len, b.ptr, b.len);
	*added = (struct required_literal){.next = words, .text = str_n(text, a.len + b.len)};
	return words_have(words, added->text) ? words : added;
}

static struct required_literal *words_union(struct reader *r, struct required_literal *a,
                                            const struct required_literal *b)
{
	for (; b; b = b->next)
		a = words_add(r, a, b->text, STR(""));
	return a;
}

static struct required_literal *words_product(struct reader *r, const struct required_literal *a,
                                              const struct required_literal *b)
{
	struct required_literal *all = NULL;
	for (; a; a = a->next)
		for (const struct required_literal *w = b; w; w = w->next)
			all = words_add(r, all, a->text, w->text);
	return all;
}

static struct part part_exact(struct reader *r, struct str text)
{
	return (struct part){.exact = true, .texts = words_add(r, NULL, text, STR(""))};
}

/* `needs` and one more set, unless its words are too short. */
static struct literal_set *needs_add(struct reader *r, struct literal_set *needs,
                                     struct required_literal *words)
{
	if (words_shortest(words) < WORD_BYTES_MIN)
		return needs;
	struct literal_set *n = arena_alloc(r->mem, sizeof(*n));
	if (!n) {
		r->failed = true;
		return needs;
	}
	*n = (struct literal_set){.next = needs, .words = words};
	return n;
}

static struct literal_set *part_needs(struct reader *r, const struct part *p)
{
	return p->exact ? needs_add(r, NULL, p->texts) : p->needs;
}

/* The words of the most selective set: a guess, the one with the longest words. */
static struct required_literal *part_words(struct reader *r, const struct part *p)
{
	struct required_literal *best = NULL;
	for (struct literal_set *n = part_needs(r, p); n; n = n->next)
		if (words_shortest(n->words) > words_shortest(best))
			best = n->words;
	return best;
}

static struct part part_either(struct reader *r, const struct part *a, const struct part *b)
{
	if (a->exact && b->exact && words_count(a->texts) + words_count(b->texts) <= TEXTS_MAX)
		return (struct part){.exact = true, .texts = words_union(r, a->texts, b->texts)};
	struct required_literal *of_a = part_words(r, a);
	struct required_literal *of_b = part_words(r, b);
	if (!of_a || !of_b)
		return unknown;
	return (struct part){.needs = needs_add(r, NULL, words_union(r, of_a, of_b))};
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static unsigned read_number(const char **at, const char *end)
{
	unsigned n = 0;
	for (; *at < end && is_digit(**at); (*at)++)
		n = MIN(n * 10 + (unsigned)(**at - '0'), 65536);
	return n;
}

/* "{2}", "{2,}" or "{2,5}" at r->at; anything else is text. */
static bool read_braces(struct reader *r, unsigned *min, unsigned *max)
{
	const char *at = r->at + 1;
	if (at < r->end && *at == ',') {
		reader_lose(r); /* text to some versions of PCRE, a repetition to others */
		return false;
	}
	if (at == r->end || !is_digit(*at))
		return false;
	*min = *max = read_number(&at, r->end);
	if (at < r->end && *at == ',') {
		at++;
		*max = at < r->end && is_digit(*at) ? read_number(&at, r->end) : UINT32_MAX;
	}
	if (at == r->end || *at != '}')
		return false;
	r->at = at + 1;
	return true;
}

static bool read_repetition(struct reader *r, unsigned *min, unsigned *max)
{
	if (r->at == r->end)
		return false;
	switch (*r->at) {
	case '?':
		*min = 0;
		*max = 1;
		break;
	case '*':
	case '+':
		*min = *r->at == '+';
		*max = UINT32_MAX;
		break;
	case '{': return read_braces(r, min, max);
	default: return false;
	}
	r->at++;
	return true;
}

static struct part read_repeated(struct reader *r, struct part p)
{
	unsigned min, max;
	if (!read_repetition(r, &min, &max))
		return p;
	if (r->at < r->end && (*r->at == '?' || *r->at == '+'))
		r->at++; /* lazy or possessive: the same texts or fewer */
	if (min == 1 && max == 1)
		return p;
	if (min > 0)
		return (struct part){.needs = part_needs(r, &p)};
	if (max == 1 && p.exact && words_count(p.texts) < TEXTS_MAX)
		return (struct part){.exact = true, .texts = words_add(r, p.texts, STR(""), STR(""))};
	return unknown;
}

static bool is_escaped_text(char c)
{
	return !is_digit(c) && (ascii_lower(c) < 'a' || ascii_lower(c) > 'z');
}

static struct part read_escape(struct reader *r)
{
	if (r->at == r->end)
		return reader_lose(r);
	char c = *r->at++;
	if (is_escaped_text(c))
		return part_exact(r, str_n(&c, 1));
	switch (c) {
	case 'd':
	case 'D':
	case 'w':
	case 'W':
	case 's':
	case 'S': return unknown;
	case 'b':
	case 'B': return part_exact(r, STR(""));
	default: return reader_lose(r);
	}
}

/* Behind the "[". Alternatives of one character when it lists a few, otherwise unknown. */
static struct part read_class(struct reader *r)
{
	struct part chars = {.exact = true};
	bool listed = true;
	if (r->at < r->end && *r->at == '^') {
		listed = false;
		r->at++;
	}
	for (const char *first = r->at;; r->at++) {
		if (r->at == r->end)
			return reader_lose(r);
		char c = *r->at;
		char next = r->at + 1 < r->end ? r->at[1] : '\0';
		if (c == ']' && r->at > first)
			break;
		if (c == '[' && (next == ':' || next == '.' || next == '='))
			return reader_lose(r);
		if (c == '\\') {
			if (++r->at == r->end)
				return reader_lose(r);
			c = next;
			listed = listed && is_escaped_text(c);
		} else if (c == '-' && r->at > first && next != ']') {
			listed = false; /* a range */
		}
		c = ascii_lower(c);
		chars.texts = words_add(r, chars.texts, str_n(&c, 1), STR(""));
	}
	r->at++;
	return listed && words_count(chars.texts) <= CLASS_CHARS_MAX ? chars : unknown;
}

static bool read_prefix(struct reader *r, struct str prefix)
{
	if (!str_starts(str_n(r->at, (size_t)(r->end - r->at)), prefix))
		return false;
	r->at += prefix.len;
	return true;
}

/* Behind the "(". */
static struct part read_group(struct reader *r)
{
	bool looks_around = read_prefix(r, STR("?=")) || read_prefix(r, STR("?!")) ||
	                    read_prefix(r, STR("?<=")) || read_prefix(r, STR("?<!"));
	bool captures = !looks_around && !read_prefix(r, STR("?:"));
	if (r->at == r->end || *r->at == '?' || *r->at == '*' || r->depth == DEPTH_MAX)
		return reader_lose(r);
	unsigned number = captures ? ++r->groups : 0;
	r->depth++;
	struct part inside = read_alternatives(r);
	r->depth--;
	if (r->at == r->end)
		return reader_lose(r);
	r->at++; /* the ")" */
	if (number == 1)
		r->names_fixed = inside.exact;
	return looks_around ? part_exact(r, STR("")) : inside;
}

static struct part read_atom(struct reader *r)
{
	char c = *r->at++;
	switch (c) {
	case '(': return read_group(r);
	case '[': return read_class(r);
	case '\\': return read_escape(r);
	case '.': return unknown;
	case '^':
	case '$': return part_exact(r, STR(""));
	default: c = ascii_lower(c); return part_exact(r, str_n(&c, 1));
	}
}

/* Plain text in one go, up to a character that has a repetition behind it. False when there is none. */
static bool read_text(struct reader *r, struct part *ret)
{
	char text[64];
	size_t len = 0;
	while (r->at < r->end && len < sizeof(text)) {
		if (*r->at != '\0' && strchr("\\^$.|?*+()[{", *r->at))
			break;
		if (r->at + 1 < r->end && r->at[1] != '\0' && strchr("?*+{", r->at[1]))
			break;
		text[len++] = ascii_lower(*r->at++);
	}
	if (len > 0)
		*ret = part_exact(r, str_n(text, len));
	return len > 0;
}

static struct part read_sequence(struct reader *r)
{
	/* `texts` are those of the parts since the last inexact one. */
	struct part whole = part_exact(r, STR(""));
	while (r->at < r->end && *r->at != '|' && *r->at != ')') {
		struct part next;
		if (!read_text(r, &next))
			next = read_repeated(r, read_atom(r));
		if (next.exact && words_count(whole.texts) * words_count(next.texts) <= TEXTS_MAX) {
			whole.texts = words_product(r, whole.texts, next.texts);
			continue;
		}
		whole.exact = false;
		whole.needs = needs_add(r, whole.needs, whole.texts);
		whole.texts = next.exact ? next.texts : part_exact(r, STR("")).texts;
		for (const struct literal_set *n = next.exact ? NULL : next.needs; n; n = n->next)
			whole.needs = needs_add(r, whole.needs, n->words);
	}
	if (!whole.exact)
		whole.needs = needs_add(r, whole.needs, whole.texts);
	return whole;
}

static struct part read_alternatives(struct reader *r)
{
	struct part all = read_sequence(r);
	while (r->at < r->end && *r->at == '|') {
		r->at++;
		struct part next = read_sequence(r);
		all = part_either(r, &all, &next);
	}
	return all;
}

int required_literals_find(struct arena *mem, struct str regex, struct literal_set **ret,
                           bool *ret_names_fixed)
{
	struct reader r = {.mem = mem, .at = regex.ptr, .end = regex.ptr + regex.len};
	struct part whole = read_alternatives(&r);
	struct literal_set *needs = part_needs(&r, &whole);
	if (r.failed)
		return ERR_NOMEM;
	if (r.at < r.end)
		reader_lose(&r); /* a ")" too many */
	*ret = r.lost ? NULL : needs;
	*ret_names_fixed = !r.lost && r.names_fixed;
	return 0;
}
