#include "handler/input.h"

#include "base/rfc3339.h"
#include "handler/problem.h"

#include <jansson.h>
#include <stdlib.h>

static const char *type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER:
	case JSON_REAL: return "a number";
	case JSON_NULL: return "null";
	default: return "a boolean";
	}
}

static int wrong_type(const struct input_field *f, const json_t *v, const char *wanted, struct err *e)
{
	return err_set(e, ERR_INVALID, "the field '%s' must be %s, not %s", f->name, wanted, type_name(v));
}

/* Control characters of ASCII and Latin-1 harm terminals. Newlines and tabs are allowed. */
static bool has_control(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];
		unsigned char next = i + 1 < s.len ? (unsigned char)s.ptr[i + 1] : 0;
		if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || (c == 0xc2 && next < 0xa0))
			return true;
	}
	return false;
}

static struct str json_str(const json_t *v)
{
	return str_n(json_string_value(v), json_string_length(v));
}

static int read_string(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	struct str s;
	*(struct str *)f->ret = STR_NULL;
	if (f->may_be_null && json_is_null(v))
		return 0;
	if (f->type == FIELD_USER && json_is_integer(v)) {
		s = arena_printf(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		*(struct str *)f->ret = s;
		return s.ptr ? 0 : ERR_NOMEM;
	}
	if (!json_is_string(v))
		return wrong_type(f, v, f->may_be_null ? "a string or null" : "a string", e);
	s = json_str(v);
	if (f->bytes_max && s.len > f->bytes_max)
		return err_set(e, ERR_INVALID, "the field '%s' has %zu bytes; it may have at most %zu",
		               f->name, s.len, f->bytes_max);
	if (f->type == FIELD_TEXT && has_control(s))
		return err_set(e, ERR_INVALID, "the field '%s' contains a control character; remove it",
		               f->name);
	if (f->row && f->type == FIELD_TEXT && s.len < f->row->min)
		return err_set(e, ERR_INVALID, "the field '%s' has %zu bytes; it must have %llu to %zu",
		               f->name, s.len, (unsigned long long)f->row->min, f->bytes_max);
	if (f->row && f->row->flags & FIELD_BLANK && s.len == 0)
		return 0;
	s = arena_str(arena, s);
	*(struct str *)f->ret = s;
	return s.ptr ? 0 : ERR_NOMEM;
}

static int wrong_word(const struct input_field *f, const char *what, struct err *e)
{
	struct buf CLEANUP(buf_release) words = {0};
	field_words_list(&words, f->row);
	return err_set(e, ERR_INVALID, "%s '%s' must be %.*s", what, f->name, STR_ARG(buf_view(&words)));
}

/* The member of a row's number may have any width. */
static int number_put(const struct input_field *f, uint64_t n)
{
	if (f->row)
		field_set_int(f->row, (char *)f->ret - f->row->offset, (int64_t)n);
	else
		*(uint64_t *)f->ret = n;
	return 0;
}

static int read_number(const struct input_field *f, const json_t *v, struct err *e)
{
	uint64_t which;
	char digits[24];
	if (f->may_be_null && json_is_null(v))
		return number_put(f, 0);
	if (!json_is_integer(v))
		return wrong_type(f, v, f->may_be_null ? "a whole number or null" : "a whole number", e);
	json_int_t n = json_integer_value(v);
	if (n < 0)
		return err_set(e, ERR_INVALID, "the field '%s' is %lld; it must not be negative", f->name,
		               (long long)n);
	if (f->may_be_null && n == 0)
		return err_set(e, ERR_INVALID, "the field '%s' is 0; it must be at least 1, or null for none",
		               f->name);
	if (f->row && f->row->max && (uint64_t)n > f->row->max)
		return err_set(e, ERR_INVALID, "the field '%s' is %lld; it may be at most %llu", f->name,
		               (long long)n, (unsigned long long)f->row->max);
	snprintf(digits, sizeof(digits), "%" JSON_INTEGER_FORMAT, n);
	if (f->row && f->row->words && !field_value(f->row, str_of(digits), &which))
		return wrong_word(f, "the field", e);
	return number_put(f, (uint64_t)n * (f->type == FIELD_SECONDS ? 1000 : 1));
}

static int read_enum(const struct input_field *f, const json_t *v, struct err *e)
{
	uint64_t value;
	if (!json_is_string(v))
		return wrong_type(f, v, "a string", e);
	return field_value(f->row, json_str(v), &value) ? number_put(f, value)
	                                                : wrong_word(f, "the field", e);
}

static int read_time(const struct input_field *f, const json_t *v, struct err *e)
{
	if (json_is_null(v)) {
		*(int64_t *)f->ret = 0;
		return 0;
	}
	if (json_is_integer(v) ? !time_from_number(json_integer_value(v), f->ret)
	                       : !json_is_string(v) || !time_parse(json_str(v), f->ret))
		return err_set(e, ERR_INVALID, "the field '%s' is not a time; " TIME_HINT, f->name);
	*(int64_t *)f->ret = MAX(*(int64_t *)f->ret, 1); /* 0 is "never" */
	return 0;
}

static int check_strings(const struct input_field *f, const json_t *v, struct err *e)
{
	if (!json_is_array(v))
		return wrong_type(f, v, "an array of strings", e);
	if (json_array_size(v) > INPUT_STRINGS_MAX)
		return err_set(e, ERR_INVALID, "the field '%s' has %zu entries; it may have at most %d",
		               f->name, json_array_size(v), INPUT_STRINGS_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		const json_t *item = json_array_get(v, i);
		if (!json_is_string(item))
			return err_set(e, ERR_INVALID, "entry %zu of the field '%s' must be a string, not %s",
			               i + 1, f->name, type_name(item));
		size_t len = json_string_length(item);
		if (len == 0 || len > INPUT_ITEM_BYTES_MAX)
			return err_set(e, ERR_INVALID,
			               "entry %zu of the field '%s' has %zu bytes; it must have 1 to %d",
			               i + 1, f->name, len, INPUT_ITEM_BYTES_MAX);
		if (has_control(str_n(json_string_value(item), len)))
			return err_set(e, ERR_INVALID,
			               "entry %zu of the field '%s' contains a control character; remove it",
			               i + 1, f->name);
	}
	return 0;
}

static int read_strings(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	int r = check_strings(f, v, e);
	if (r < 0)
		return r;
	char *text = json_dumps(v, JSON_COMPACT);
	struct str s = text ? arena_str(arena, str_of(text)) : STR_NULL;
	free(text);
	*(struct str *)f->ret = s;
	return s.ptr ? 0 : ERR_NOMEM;
}

static int read_set(const struct input_field *f, const json_t *v, struct err *e)
{
	uint64_t which, set = 0;
	int r = check_strings(f, v, e);
	for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
		struct str word = json_str(json_array_get(v, i));
		if (!field_value(f->row, word, &which))
			return err_set(e, ERR_INVALID, "the field '%s' has an unknown entry '%.*s'", f->name,
			               STR_ARG(word));
		set |= 1ULL << which;
	}
	number_put(f, set);
	return r == 0 && set == 0 ? wrong_word(f, "an entry of the field", e) : r;
}

static int read_field(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	switch (f->type) {
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return wrong_type(f, v, "true or false", e);
		*(bool *)f->ret = json_is_true(v);
		return 0;
	case FIELD_TIME: return read_time(f, v, e);
	case FIELD_ENUM: return read_enum(f, v, e);
	case FIELD_SET: return read_set(f, v, e);
	case FIELD_TAGS: return read_strings(f, v, arena, e);
	case FIELD_USER:
	case FIELD_TEXT:
	case FIELD_STRING:
	case FIELD_SECRET: return read_string(f, v, arena, e);
	default: return read_number(f, v, e);
	}
}

static const struct input_field *field_named(const struct input_field *fields, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(fields[i].name, name) == 0)
			return &fields[i];
	}
	return NULL;
}

static int unknown_field(const char *name, const struct input_field *fields, size_t count, struct err *e)
{
	char known[400] = "";
	size_t at = 0;
	for (size_t i = 0; i < count && at < sizeof(known) - 1; i++)
		at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", fields[i].name);
	return err_set(e, ERR_INVALID, "unknown field '%.64s'; the fields are: %s", name, known);
}

int input_parse(struct str body, struct input *ret, struct err *e)
{
	json_error_t where;
	*ret = (struct input){0};
	if (body.len == 0)
		return err_set(e, ERR_INVALID, "the body is empty; send a JSON object");
	json_t *object = json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, &where);
	if (!object)
		return err_set(e, ERR_INVALID, "the body is not JSON: %s (line %d, column %d)", where.text,
		               where.line, where.column);
	ret->json = object;
	if (!json_is_object(object))
		return err_set(e, ERR_INVALID, "the body must be a JSON object, not %s", type_name(object));
	return 0;
}

void input_release(struct input *in)
{
	json_decref(in->json);
	in->json = NULL;
}

bool input_has(const struct input *in, const char *name)
{
	return json_object_get(in->json, name) != NULL;
}

struct str input_peek(const struct input *in, const char *name)
{
	const json_t *value = json_object_get(in->json, name);
	return json_is_string(value) ? str_n(json_string_value(value), json_string_length(value)) : STR_NULL;
}

int input_fields(const struct input *in, const struct input_field *fields, size_t count, struct arena *arena,
                 struct err *e)
{
	const char *name;
	json_t *value;
	for (size_t i = 0; i < count; i++) {
		if (fields[i].ret_given)
			*fields[i].ret_given = false;
	}
	json_object_foreach((json_t *)in->json, name, value)
	{
		const struct input_field *f = field_named(fields, count, name);
		if (!f)
			return unknown_field(name, fields, count, e);
		int r = read_field(f, value, arena, e);
		if (r < 0)
			return r;
		if (f->ret_given)
			*f->ret_given = true;
	}
	for (size_t i = 0; i < count; i++) {
		if (fields[i].required && !json_object_get(in->json, fields[i].name))
			return err_set(e, ERR_INVALID, "the field '%s' is missing", fields[i].name);
	}
	return 0;
}

int input_read(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
               struct err *e)
{
	struct input CLEANUP(input_release) in;
	int r = input_parse(body, &in, e);
	return r < 0 ? r : input_fields(&in, fields, count, arena, e);
}

/* Records */

static struct input_field row_input(const struct field *f, struct input_record *r)
{
	struct input_field in = {
	    .name = f->name,
	    .type = f->type,
	    .ret = (char *)r->record + f->offset,
	    .required = f->flags & FIELD_REQUIRED && r->when == FIELD_CREATE,
	    .may_be_null = f->flags & FIELD_NULL && !(f->flags & FIELD_REQUIRED),
	    .bytes_max = f->type == FIELD_TEXT ? f->max : 0,
	    .row = f,
	};
	if (f->type == FIELD_SECRET)
		in.ret = &r->secret;
	if (f->type == FIELD_USER) {
		in.ret = &r->user;
		in.may_be_null &= r->when == FIELD_CREATE; /* a record keeps an owner */
	}
	return in;
}

int input_record_read(struct str body, struct input *in, struct input_record *r, struct arena *arena,
                      struct err *e)
{
	struct input_field inputs[FIELDS_MAX] = {0};
	size_t n = 0;
	for (const struct field *f = r->fields->rows; f < r->fields->rows + r->fields->count; f++) {
		if (f->flags & r->when)
			inputs[n++] = f->type == FIELD_VIRTUAL ? *field_named(r->own, r->own_count, f->name)
			                                       : row_input(f, r);
	}
	int result = input_parse(body, in, e);
	if (result == 0)
		result = input_fields(in, inputs, n, arena, e);
	for (size_t i = n; result == 0 && i-- > 0;) {
		const struct field *f = inputs[i].row;
		if (!f || !input_has(in, f->name))
			continue;
		r->bits |= f->bit;
		r->for_admins = f->flags & FIELD_ADMIN ? f : r->for_admins;
	}
	return result;
}

/* Paged lists */

bool input_limit(struct http_conn *c, struct str query, uint64_t otherwise, uint64_t max, uint64_t *ret)
{
	struct str limit = http_query_param(query, STR("limit"));
	*ret = otherwise;
	if (!limit.ptr || (str_u64(limit, ret) && *ret >= 1 && *ret <= max))
		return true;
	problem_reply(c, 400, "invalid-limit",
	              "The parameter 'limit' is '%.*s'; it must be a number from 1 to %llu.",
	              (int)MIN(limit.len, (size_t)32), limit.ptr, (unsigned long long)max);
	return false;
}

bool input_page(struct http_conn *c, struct str query, uint64_t limit_otherwise, uint64_t limit_max,
                struct page_input *ret)
{
	struct str cursor = http_query_param(query, STR("cursor"));
	*ret = (struct page_input){0};
	if (!input_limit(c, query, limit_otherwise, limit_max, &ret->limit))
		return false;
	if (!cursor.ptr || (str_u64(cursor, &ret->after) && ret->after <= INT64_MAX))
		return true;
	problem_reply_cursor(c);
	return false;
}
