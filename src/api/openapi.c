/*
 * GET /api/v1/openapi.json: web/openapi.json, with its members "$fields" expanded. Such a member names a
 * record (link, user or key) and an operation, and becomes `required` and `properties` from the rows of
 * store/fields.h.
 */
#include "api/handlers.h"
#include "base/json_out.h"
#include "handler/input.h"
#include "handler/problem.h"
#include "web/assets.h"

#include <pthread.h>

/* Control characters but tab and line feed are refused in texts, and NUL everywhere. */
static const char text_pattern[] = "^[^\\\\u0000-\\\\u0008\\\\u000b-\\\\u001f\\\\u007f-\\\\u009f]*$";
static const char secret_pattern[] = "^[^\\\\u0000]*$";

static const char *pattern_of(const struct field *f)
{
	return f->pattern                ? f->pattern
	       : f->type == FIELD_TEXT   ? text_pattern
	       : f->type == FIELD_SECRET ? secret_pattern
	                                 : NULL;
}

static void words_put(struct buf *b, const struct field *f, bool is_null)
{
	const char *quote = f->type == FIELD_NUMBER ? "" : "\"";
	for (size_t i = 0; f->words[i]; i++)
		buf_printf(b, "%s%s%s%s", i ? "," : ",\"enum\":[", quote, f->words[i], quote);
	buf_str(b, is_null ? STR(",null]") : STR("]"));
}

/* Arrays of strings. */
static void array_put(struct buf *b, const struct field *f, unsigned when)
{
	buf_printf(b, "\"type\":[\"array\"%s],%s\"maxItems\":%d,\"items\":{\"type\":\"string\"",
	           when && f->flags & FIELD_DEFAULT ? ",\"null\"" : "", f->words ? "\"minItems\":1," : "",
	           INPUT_STRINGS_MAX);
	if (f->words)
		words_put(b, f, false);
	else
		buf_printf(b, ",\"minLength\":1,\"maxLength\":%d,\"pattern\":\"%s\"", INPUT_ITEM_BYTES_MAX,
		           text_pattern);
	buf_char(b, '}');
}

static const char *type_of(const struct field *f, unsigned when)
{
	if (f->type == FIELD_BOOL || (f->type == FIELD_SECRET && !when))
		return "\"boolean\"";
	if (f->type == FIELD_USER && when)
		return "\"string\",\"integer\"";
	if (f->type == FIELD_USER) /* the name if it may be missing, otherwise the id */
		return f->flags & FIELD_NULL ? "\"string\"" : "\"integer\"";
	return field_is_str(f) || f->type == FIELD_TIME || f->type == FIELD_ENUM ? "\"string\""
	                                                                         : "\"integer\"";
}

static void schema_put(struct buf *b, const struct field *f, unsigned when)
{
	bool is_null = when ? f->flags & FIELD_DEFAULT ||
	                          (f->flags & FIELD_NULL && !(f->flags & FIELD_REQUIRED))
	                    : f->flags & FIELD_NULL && f->type != FIELD_SECRET;
	const char *bound = field_is_str(f) ? "Length" : "imum";
	if (f->type == FIELD_TIME && when) {
		buf_printf(b, "\"anyOf\":[{\"$ref\":\"#/components/schemas/Time\"}%s]",
		           is_null ? ",{\"type\":\"null\"}" : "");
		return;
	}
	buf_printf(b, "\"type\":[%s%s]", type_of(f, when), is_null ? ",\"null\"" : "");
	if (f->words)
		words_put(b, f, is_null);
	if (f->type == FIELD_TIME)
		buf_str(b, STR(",\"format\":\"date-time\""));
	if (f->type == FIELD_SECRET && when)
		buf_str(b, STR(",\"writeOnly\":true"));
	if (when && pattern_of(f))
		buf_printf(b, ",\"pattern\":\"%s\"", pattern_of(f));
	if (f->max && !f->words && (f->type != FIELD_SECRET || when))
		buf_printf(b, ",\"min%s\":%llu,\"max%s\":%llu", bound, (unsigned long long)f->min, bound,
		           (unsigned long long)f->max);
}

static void help_put(struct buf *b, const struct field *f, unsigned when)
{
	struct buf CLEANUP(buf_release) help = {0};
	if (!f->help || (!when && f->type == FIELD_SECRET))
		return;
	buf_printf(&help, f->null ? "%s; null is %s" : "%s", f->help, f->null);
	if (when && f->flags & FIELD_DEFAULT)
		buf_str(&help, STR("; null is the default"));
	if (when && f->flags & FIELD_ADMIN)
		buf_str(&help, STR(" (admins only)"));
	buf_str(b, STR(",\"description\":"));
	json_out_str(b, buf_view(&help));
}

/* The name as a string, after the separator `before`. */
static void name_put(struct buf *b, const char *before, const struct field *f, unsigned when)
{
	buf_printf(b, "%s\"%s%s\"", before, !when && f->type == FIELD_SECRET ? "has_" : "", f->name);
}

/* `when` is FIELD_CREATE, FIELD_PATCH, or 0 for a response. */
static void fields_put(struct buf *b, const struct fields *s, unsigned when)
{
	const struct field *end = s->rows + s->count;
	const char *before = "\"required\":[";
	for (const struct field *f = s->rows; f < end; f++) {
		if (when ? (f->flags & when && when == FIELD_CREATE && f->flags & FIELD_REQUIRED)
		         : field_is_shown(f)) {
			name_put(b, before, f, when);
			before = ",";
		}
	}
	before = *before == ',' ? "],\"properties\":{" : "\"properties\":{";
	for (const struct field *f = s->rows; f < end; f++) {
		if (when ? !(f->flags & when) : !field_is_shown(f))
			continue;
		name_put(b, before, f, when);
		before = ",";
		buf_str(b, STR(":{"));
		if (f->type == FIELD_VIRTUAL)
			buf_str(b, str_of(f->schema));
		else if (f->type == FIELD_SET || f->type == FIELD_TAGS)
			array_put(b, f, when);
		else
			schema_put(b, f, when);
		help_put(b, f, when);
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
		struct str when = str_cut(&rest, '"'), record = str_cut(&when, ' ');
		fields_put(&contract,
		           str_eq(record, STR("link"))   ? &link_fields
		           : str_eq(record, STR("user")) ? &user_fields
		                                         : &key_fields,
		           !when.ptr                     ? 0
		           : str_eq(when, STR("create")) ? FIELD_CREATE
		                                         : FIELD_PATCH);
	}
	buf_str(&contract, rest);
}

void openapi_get(struct api_call *call)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, contract_make);
	const struct http_response r = {
	    .status = 200, .content_type = STR("application/json"), .body = buf_view(&contract)};
	if (contract.failed)
		problem_reply_store(call->c, ERR_NOMEM);
	else
		http_reply(call->c, &r);
}
