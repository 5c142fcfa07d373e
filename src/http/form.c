#include "http/form.h"

bool http_is_form(const struct http_request *req)
{
	struct str type = http_request_field(req, STR("content-type"));
	/* curl and others send any body as a form unless a type is given. */
	if (str_starts(str_trim(req->body), STR("{")))
		return false;
	return str_eq_nocase(str_trim(str_cut(&type, ';')), STR("application/x-www-form-urlencoded"));
}

/* Takes one character, decoded; -1 for a malformed escape or a NUL in any form. `s` is not empty. */
static int take(struct str *s)
{
	bool is_space = s->ptr[0] == '+';
	int c = str_take_decoded(s);
	return c == 0 ? -1 : is_space ? ' ' : c;
}

static bool is_named(struct str encoded, struct str name)
{
	for (size_t i = 0; i < name.len; i++) {
		if (encoded.len == 0 || take(&encoded) != (unsigned char)name.ptr[i])
			return false;
	}
	return encoded.len == 0;
}

static struct str decode(struct str encoded, struct arena *arena)
{
	char *text = arena_alloc(arena, encoded.len + 1);
	size_t len = 0;
	if (!text)
		return STR_NULL;
	while (encoded.len > 0) {
		int c = take(&encoded);
		if (c < 0)
			return STR_NULL;
		text[len++] = (char)c;
	}
	text[len] = '\0';
	return str_n(text, len);
}

struct str http_form_field(struct str body, struct str name, struct arena *arena)
{
	while (body.ptr) {
		struct str value = str_cut(&body, '&');
		struct str key = str_cut(&value, '=');
		if (is_named(key, name))
			return decode(value, arena);
	}
	return STR_NULL;
}
