#include "handler/query_params.h"

#include "base/utf8.h"
#include "config/suggest.h"
#include "handler/problem.h"

#include <stdio.h>

enum { HINT_BYTES = 256 }; /* of what to do */

/* Takes the first of the names off `*names`, which is STR_NULL after the last one. */
static struct str next_name(struct str *names)
{
	return str_trim(str_cut(names, ','));
}

static bool is_known(struct str name, struct str known)
{
	while (known.len > 0) {
		if (str_eq(next_name(&known), name))
			return true;
	}
	return false;
}

static void reply_unknown(struct http_conn *c, struct str name, struct str known)
{
	struct suggestion nearest;
	struct echo shown;
	char hint[HINT_BYTES];
	if (known.len > 0)
		snprintf(hint, sizeof(hint), "the parameters are: %.*s.", STR_ARG(known));
	else
		snprintf(hint, sizeof(hint), "this address takes none.");
	suggest_init(&nearest, name);
	while (known.len > 0) {
		char text[SUGGEST_BYTES];
		struct str one = next_name(&known);
		snprintf(text, sizeof(text), "%.*s", STR_ARG(one));
		suggest_offer(&nearest, text);
	}
	problem_reply(c, 400, "invalid-parameter", "The parameter '%s' is unknown; %s", echo(&shown, name),
	              suggest_text(&nearest, hint));
}

bool query_params_check(struct http_conn *c, struct str query, const char *known)
{
	if (str_eq(str_of(known), STR(QUERY_ANY)))
		return true;
	while (query.ptr) {
		struct str value = str_cut(&query, '&');
		if (value.len == 0)
			continue;
		struct str name = str_cut(&value, '=');
		if (!is_known(name, str_of(known))) {
			reply_unknown(c, name, str_of(known));
			return false;
		}
		if (http_query_param(query, name).ptr) {
			problem_reply(c, 400, "invalid-parameter",
			              "The parameter '%.*s' appears twice; send it once.", STR_ARG(name));
			return false;
		}
	}
	return true;
}

int query_param_text(struct str query, const char *name, struct arena *arena, struct str *ret, struct err *e)
{
	struct str raw = http_query_param(query, str_of(name));
	*ret = STR_NULL;
	if (!raw.ptr)
		return 0;
	char *text = arena_alloc(arena, raw.len + 1);
	if (!text)
		return ERR_NOMEM;
	size_t len;
	if (!str_percent_decode(raw, text, &len))
		return err_set(
		    e, ERR_INVALID,
		    "The parameter '%s' has a '%%' without two hexadecimal digits, or a NUL; write "
		    "'%%' as '%%25'.",
		    name);
	*ret = str_n(text, len);
	return 0;
}
