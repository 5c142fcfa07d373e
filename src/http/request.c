#include "http/request.h"

bool http_request_copy(const struct http_request *req, struct arena *arena, struct http_request *ret)
{
	bool done = true;
	*ret = *req;
	struct str *const texts[] = {&ret->target, &ret->path, &ret->query, &ret->host};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct str copy = arena_str(arena, *texts[i]);
		done &= copy.ptr || !texts[i]->ptr;
		*texts[i] = copy;
	}
	if (!req->body_stays) {
		ret->body = arena_str(arena, req->body);
		done &= ret->body.ptr || !req->body.ptr;
	}
	for (size_t i = 0; i < ret->field_count; i++) {
		ret->fields[i].name = arena_str(arena, req->fields[i].name);
		ret->fields[i].value = arena_str(arena, req->fields[i].value);
		done &= ret->fields[i].name.ptr && ret->fields[i].value.ptr;
	}
	ret->is_copy = true;
	return done;
}

struct str http_request_field(const struct http_request *req, struct str name)
{
	for (size_t i = 0; i < req->field_count; i++) {
		if (str_eq_nocase(req->fields[i].name, name))
			return req->fields[i].value;
	}
	return STR_NULL;
}

const char *http_method_name(enum http_method m)
{
	static const char *const names[HTTP_METHOD_COUNT] = {
	    [HTTP_GET] = "GET",         [HTTP_HEAD] = "HEAD",          [HTTP_POST] = "POST",
	    [HTTP_PUT] = "PUT",         [HTTP_PATCH] = "PATCH",        [HTTP_DELETE] = "DELETE",
	    [HTTP_OPTIONS] = "OPTIONS", [HTTP_METHOD_OTHER] = "OTHER",
	};
	ASSERT((unsigned)m < HTTP_METHOD_COUNT);
	return names[m];
}

struct str http_query_param(struct str query, struct str name)
{
	while (query.ptr) {
		struct str value = str_cut(&query, '&');
		struct str key = str_cut(&value, '=');
		if (str_eq(key, name))
			return value.ptr ? value : str_n(key.ptr + key.len, 0);
	}
	return STR_NULL;
}
