/*
 * The contract, /api/v1/openapi.json. It is the file that was compiled in, but for the members "$fields":
 * they stand for the fields of a link, a user or an API key as they are shown, created or changed, and become
 * `required` and `properties` from the rows of store/fields.h.
 */
#include "api/handlers.h"
#include "api/input.h"
#include "api/problem.h"
#include "base/json_out.h"
#include "web/assets.h"

#include <pthread.h>

static const struct {
	const char *name;
	const struct fields *fields;
	unsigned when; /* FIELD_CREATE, FIELD_PATCH; 0: as shown */
} marks[] = {
    {"link", &link_fields, 0},
    {"link create", &link_fields, FIELD_CREATE},
    {"link patch", &link_fields, FIELD_PATCH},
    {"user", &user_fields, 0},
    {"user create", &user_fields, FIELD_CREATE},
    {"user patch", &user_fields, FIELD_PATCH},
    {"key", &key_fields, 0},
    {"key create", &key_fields, FIELD_CREATE},
};

static void type_put(struct buf *b, const char *type, bool may_be_null)
{
	buf_printf(b,
	           may_be_null         ? "\"type\":[%s,\"null\"]"
	           : strchr(type, ',') ? "\"type\":[%s]"
	                               : "\"type\":%s",
	           type);
}

static void words_put(struct buf *b, const struct field *f, const char *quote)
{
	for (size_t i = 0; f->words[i]; i++)
		buf_printf(b, "%s%s%s%s", i ? "," : ",\"enum\":[", quote, f->words[i], quote);
	buf_char(b, ']');
}

static void text_put(struct buf *b, const struct field *f, bool may_be_null)
{
	type_put(b, "\"string\"", may_be_null);
	if (f->min)
		buf_printf(b, ",\"minLength\":%llu", (unsigned long long)f->min);
	if (f->max)
		buf_printf(b, ",\"maxLength\":%llu", (unsigned long long)f->max);
}

static void number_put(struct buf *b, const struct field *f, bool may_be_null)
{
	type_put(b, "\"integer\"", may_be_null);
	if (f->words)
		words_put(b, f, "");
	else
		buf_printf(b, ",\"minimum\":%llu", (unsigned long long)f->min);
	if (f->max)
		buf_printf(b, ",\"maximum\":%llu", (unsigned long long)f->max);
}

static void schema_put(struct buf *b, const struct field *f, unsigned when)
{
	bool may_be_null = f->flags & FIELD_NULL && (!when || !(f->flags & FIELD_REQUIRED));
	switch (f->type) {
	case FIELD_BOOL: buf_str(b, STR("\"type\":\"boolean\"")); return;
	case FIELD_ENUM:
		type_put(b, "\"string\"", false);
		words_put(b, f, "\"");
		return;
	case FIELD_SET:
		buf_str(b, STR("\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"string\""));
		words_put(b, f, "\"");
		buf_char(b, '}');
		return;
	case FIELD_TIME:
		type_put(b, "\"string\"", may_be_null);
		buf_str(b, STR(",\"format\":\"date-time\""));
		return;
	case FIELD_USER: /* a name where it may be missing, otherwise an id */
		if (when)
			type_put(b, "\"string\",\"integer\"", may_be_null && when == FIELD_CREATE);
		else
			type_put(b, may_be_null ? "\"string\"" : "\"integer\"", may_be_null);
		return;
	case FIELD_TEXT:
	case FIELD_STRING: text_put(b, f, may_be_null); return;
	case FIELD_TAGS:
		buf_printf(
		    b,
		    "\"type\":\"array\",\"maxItems\":%d,\"items\":{\"type\":\"string\",\"minLength\":1,"
		    "\"maxLength\":%d}",
		    INPUT_STRINGS_MAX, INPUT_ITEM_BYTES_MAX);
		return;
	case FIELD_SECRET:
		if (!when) {
			buf_str(b, STR("\"type\":\"boolean\""));
			return;
		}
		text_put(b, f, may_be_null);
		buf_str(b, STR(",\"writeOnly\":true"));
		return;
	case FIELD_VIRTUAL: buf_str(b, str_of(f->schema)); return;
	default: number_put(b, f, may_be_null); return;
	}
}

static bool is_meant(const struct field *f, unsigned when)
{
	return when ? (f->flags & when) != 0 : field_is_shown(f);
}

static void fields_put(struct buf *b, const struct fields *s, unsigned when)
{
	const char *before = "";
	if (when != FIELD_PATCH)
		buf_str(b, STR("\"required\":["));
	for (size_t i = 0; when != FIELD_PATCH && i < s->count; i++) {
		const struct field *f = &s->rows[i];
		if (is_meant(f, when) && (!when || f->flags & FIELD_REQUIRED)) {
			buf_printf(b, "%s\"%s%s\"", before, !when && f->type == FIELD_SECRET ? "has_" : "",
			           f->name);
			before = ",";
		}
	}
	buf_str(b, when == FIELD_PATCH ? STR("\"properties\":{") : STR("],\"properties\":{"));
	before = "";
	for (size_t i = 0; i < s->count; i++) {
		const struct field *f = &s->rows[i];
		if (!is_meant(f, when))
			continue;
		buf_printf(b, "%s\"%s%s\":{", before, !when && f->type == FIELD_SECRET ? "has_" : "",
		           f->name);
		before = ",";
		schema_put(b, f, when);
		if (f->help) {
			buf_str(b, STR(",\"description\":"));
			json_out_str(b, str_of(f->help));
		}
		buf_char(b, '}');
	}
	buf_char(b, '}');
}

static struct buf contract;

static void contract_make(void)
{
	static const struct str mark = STR("\"$fields\": \"");
	struct str rest = asset_openapi();
	for (const char *at; (at = memmem(rest.ptr, rest.len, mark.ptr, mark.len));) {
		buf_append(&contract, rest.ptr, (size_t)(at - rest.ptr));
		rest = str_n(at + mark.len, rest.len - (size_t)(at - rest.ptr) - mark.len);
		struct str name = str_cut(&rest, '"');
		for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
			if (str_eq(name, str_of(marks[i].name)))
				fields_put(&contract, marks[i].fields, marks[i].when);
		}
	}
	buf_str(&contract, rest);
}

void openapi_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct route_match *match)
{
	(void)w, (void)req, (void)match;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, contract_make);
	const struct http_response r = {
	    .status = 200, .content_type = STR("application/json"), .body = buf_view(&contract)};
	if (contract.failed)
		problem_reply_store(c, ERR_NOMEM);
	else
		http_reply(c, &r);
}
