#include "cmd/wording.h"

#include <stdio.h>

/* Advice that only a client of the API can follow, and what to do here. */
static const struct {
	struct str api, here;
} phrases[] = {
    {STR("GET /api/v1/links lists"), STR("'curt link list' lists")},
    {STR("GET /api/v1/users lists"), STR("'curt user list' lists")},
    {STR("GET /api/v1/keys lists"), STR("'curt key list' lists")},
    {STR(" in the path"), STR("")},
    {STR("a 'next' of this list"), STR("one that 'curt link list' has printed")},
    {STR("null for none"), STR("'never'")}, /* of the optional fields, only times come here */
    {STR("(by="), STR("(--step ")},
    {STR("; send "), STR("; give ")},
};

/* What may stand before a quoted name, the longest first. */
static const struct str before_names[] = {
    STR("the parameter "), STR("The parameter "), STR("the fields "), STR("The fields "),
    STR("the field "),     STR("The field "),     STR("field "),      STR(""),
};

struct option_named {
	struct str name;
	char option[64]; /* "": the command has none */
};

static void named_visit(void *ctx, const struct command_option *o, const struct field *f)
{
	struct option_named *n = ctx;
	struct str option = str_n(o->name, option_len(o->name));
	bool is_it = f ? str_eq(n->name, str_of(f->name))
	               : str_eq(n->name, str_n(option.ptr + 2, option.len - 2));
	if (is_it && !n->option[0])
		snprintf(n->option, sizeof(n->option), "%.*s", STR_ARG(option));
}

/* The option that sets a field or a parameter, or the argument of that name: "ROLE" for 'role'. */
static void option_find(const struct command *c, struct option_named *n)
{
	command_options(c, named_visit, n);
	bool is_first = c->argument_field && str_eq(n->name, str_of(c->argument_field));
	for (struct str rest = str_of(c->arguments); !n->option[0] && rest.ptr;) {
		struct str word = str_cut(&rest, ' ');
		if (is_first || str_eq_nocase(word, n->name))
			snprintf(n->option, sizeof(n->option), "%.*s", STR_ARG(word));
	}
}

static struct str str_from(struct str s, size_t at)
{
	return str_n(s.ptr + at, s.len - at);
}

/* Returns how many bytes of `text` are a name that was put as an option; 0: none. A quoted word alone is one only if
 * it looks like one: it may also be a value. */
static size_t put_name(struct buf *out, const struct command *c, struct str text, bool after_name)
{
	for (size_t i = 0; i < ARRAY_LEN(before_names); i++) {
		struct str before = before_names[i];
		if (!str_starts(text, before) || text.len <= before.len || text.ptr[before.len] != '\'')
			continue;
		struct str rest = str_from(text, before.len + 1);
		struct option_named n = {.name = str_cut(&rest, '\'')};
		bool is_name = before.len > 0 || after_name || memchr(n.name.ptr, '_', n.name.len);
		if (rest.ptr && is_name && n.name.len > 0)
			option_find(c, &n);
		if (!n.option[0])
			return 0;
		buf_str(out, str_of(n.option));
		return (size_t)(rest.ptr - text.ptr);
	}
	return 0;
}

static size_t put_phrase(struct buf *out, struct str text)
{
	for (size_t i = 0; i < ARRAY_LEN(phrases); i++) {
		if (!str_starts(text, phrases[i].api))
			continue;
		buf_str(out, phrases[i].here);
		return phrases[i].api.len;
	}
	return 0;
}

void wording_put(struct buf *out, const struct command *c, struct str detail)
{
	static const struct str and = STR(" and ");
	bool after_name = false; /* in "the fields 'admin' and 'scopes'", the second */
	while (detail.len > 0) {
		size_t len = put_name(out, c, detail, after_name);
		after_name = len > 0 && str_starts(str_from(detail, len), and);
		if (after_name) {
			buf_str(out, and);
			len += and.len;
		}
		if (len == 0)
			len = put_phrase(out, detail);
		if (len == 0) {
			buf_char(out, detail.ptr[0]);
			len = 1;
		}
		detail = str_from(detail, len);
	}
}
