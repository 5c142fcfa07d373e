#include "api/input.h"

#include "base/rfc3339.h"

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

/* They have no place in names and notes, and do harm on terminals; lines and tabs do have one. Also those of
 * Latin-1. */
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

static int read_string(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	bool may_be_null = f->type == INPUT_STRING_OR_NULL || f->type == INPUT_TEXT_OR_NULL;
	bool is_text = f->type == INPUT_TEXT || f->type == INPUT_TEXT_OR_NULL;
	if (may_be_null && json_is_null(v)) {
		*(struct str *)f->ret = STR_NULL;
		return 0;
	}
	if (!json_is_string(v))
		return wrong_type(f, v, may_be_null ? "a string or null" : "a string", e);
	struct str s = str_n(json_string_value(v), json_string_length(v));
	if (f->bytes_max && s.len > f->bytes_max)
		return err_set(e, ERR_INVALID, "the field '%s' has %zu bytes; it may have at most %zu",
		               f->name, s.len, f->bytes_max);
	if (is_text && has_control(s))
		return err_set(e, ERR_INVALID, "the field '%s' has a control character in it; remove it",
		               f->name);
	s = arena_str(arena, s);
	*(struct str *)f->ret = s;
	return s.ptr ? 0 : ERR_NOMEM;
}

static int read_uint(const struct input_field *f, const json_t *v, struct err *e)
{
	bool may_be_null = f->type == INPUT_UINT_OR_NULL;
	if (may_be_null && json_is_null(v)) {
		*(uint64_t *)f->ret = 0;
		return 0;
	}
	if (!json_is_integer(v))
		return wrong_type(f, v, may_be_null ? "a whole number or null" : "a whole number", e);
	json_int_t n = json_integer_value(v);
	if (n < 0)
		return err_set(e, ERR_INVALID, "the field '%s' must not be negative", f->name);
	if (may_be_null && n == 0)
		return err_set(e, ERR_INVALID, "the field '%s' must be at least 1, or null for none",
		               f->name);
	*(uint64_t *)f->ret = (uint64_t)n;
	return 0;
}

static int read_time(const struct input_field *f, const json_t *v, struct err *e)
{
	if (json_is_null(v)) {
		*(int64_t *)f->ret = 0;
		return 0;
	}
	if (!json_is_string(v))
		return wrong_type(f, v, "a time as text, or null", e);
	if (!rfc3339_parse(str_n(json_string_value(v), json_string_length(v)), f->ret))
		return err_set(
		    e, ERR_INVALID,
		    "the field '%s' is not a time; write it like 2027-01-31T12:00:00Z or 2027-01-31",
		    f->name);
	*(int64_t *)f->ret = MAX(*(int64_t *)f->ret, 1); /* the very first instant is not "never" */
	return 0;
}

static int read_user(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	struct input_field text = *f;
	text.type = f->type == INPUT_USER ? INPUT_STRING : INPUT_STRING_OR_NULL;
	if (!json_is_integer(v))
		return read_string(&text, v, arena, e);
	*(struct str *)f->ret = arena_printf(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	return ((struct str *)f->ret)->ptr ? 0 : ERR_NOMEM;
}

static int read_strings(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	if (!json_is_array(v))
		return wrong_type(f, v, "an array of strings", e);
	if (json_array_size(v) > INPUT_STRINGS_MAX)
		return err_set(e, ERR_INVALID, "the field '%s' may have at most %d entries", f->name,
		               INPUT_STRINGS_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		const json_t *item = json_array_get(v, i);
		if (!json_is_string(item))
			return err_set(e, ERR_INVALID, "entry %zu of the field '%s' must be a string, not %s",
			               i, f->name, type_name(item));
		size_t len = json_string_length(item);
		if (len == 0 || len > INPUT_ITEM_BYTES_MAX)
			return err_set(e, ERR_INVALID, "entry %zu of the field '%s' must have 1 to %d bytes",
			               i, f->name, INPUT_ITEM_BYTES_MAX);
		if (has_control(str_n(json_string_value(item), len)))
			return err_set(e, ERR_INVALID,
			               "entry %zu of the field '%s' has a control character in it", i,
			               f->name);
	}
	char *text = json_dumps(v, JSON_COMPACT);
	struct str s = text ? arena_str(arena, str_of(text)) : STR_NULL;
	free(text);
	*(struct str *)f->ret = s;
	return s.ptr ? 0 : ERR_NOMEM;
}

static int read_field(const struct input_field *f, const json_t *v, struct arena *arena, struct err *e)
{
	switch (f->type) {
	case INPUT_STRING:
	case INPUT_STRING_OR_NULL:
	case INPUT_TEXT:
	case INPUT_TEXT_OR_NULL: return read_string(f, v, arena, e);
	case INPUT_BOOL:
		if (!json_is_boolean(v))
			return wrong_type(f, v, "true or false", e);
		*(bool *)f->ret = json_is_true(v);
		return 0;
	case INPUT_UINT:
	case INPUT_UINT_OR_NULL: return read_uint(f, v, e);
	case INPUT_TIME_OR_NULL: return read_time(f, v, e);
	case INPUT_USER:
	case INPUT_USER_OR_NULL: return read_user(f, v, arena, e);
	case INPUT_STRINGS: return read_strings(f, v, arena, e);
	}
	return ERR_INVALID;
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

/* What a field is read into before it goes to the record. */
union input_value {
	uint64_t number;
	int64_t time_ms;
	bool flag;
	struct str text;
};

static struct input_field field_input(const struct field *f, unsigned when, union input_value *ret)
{
	bool may_be_null = f->flags & FIELD_NULL && !(f->flags & FIELD_REQUIRED);
	struct input_field in = {
	    .name = f->name, .ret = ret, .required = f->flags & FIELD_REQUIRED && when == FIELD_CREATE};
	switch (f->type) {
	case FIELD_TIME: in.type = INPUT_TIME_OR_NULL; break;
	case FIELD_BOOL: in.type = INPUT_BOOL; break;
	case FIELD_TEXT:
		in.type = may_be_null ? INPUT_TEXT_OR_NULL : INPUT_TEXT;
		in.bytes_max = f->max;
		break;
	case FIELD_STRING:
	case FIELD_SECRET: in.type = may_be_null ? INPUT_STRING_OR_NULL : INPUT_STRING; break;
	case FIELD_ENUM: in.type = INPUT_STRING; break;
	case FIELD_SET:
	case FIELD_TAGS: in.type = INPUT_STRINGS; break;
	case FIELD_USER: /* nothing is nobody's, so a PATCH cannot give it to nobody */
		in.type = may_be_null && when == FIELD_CREATE ? INPUT_USER_OR_NULL : INPUT_USER;
		in.bytes_max = USER_EMAIL_BYTES_MAX;
		break;
	default: in.type = may_be_null ? INPUT_UINT_OR_NULL : INPUT_UINT; break;
	}
	return in;
}

static int wrong_word(const struct field *f, struct err *e)
{
	struct buf CLEANUP(buf_release) words = {0};
	field_words_list(&words, f);
	return err_set(e, ERR_INVALID, "the field '%s' must be %.*s", f->name, STR_ARG(buf_view(&words)));
}

static int put_number(const struct field *f, uint64_t n, void *record, struct err *e)
{
	uint64_t at;
	char digits[24];
	if (f->words) {
		int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
		if (!field_value(f, str_n(digits, (size_t)len), &at))
			return wrong_word(f, e);
	}
	if (f->max && n > f->max)
		return err_set(e, ERR_INVALID, "the field '%s' may be at most %llu", f->name,
		               (unsigned long long)f->max);
	field_set_int(f, record, (int64_t)(f->type == FIELD_SECONDS ? n * 1000 : n));
	return 0;
}

/* `text` is an array of strings, as INPUT_STRINGS gives it. */
static int put_set(const struct field *f, struct str text, void *record, struct err *e)
{
	json_t *words = json_loadb(text.ptr, text.len, 0, NULL);
	uint64_t set = 0, at;
	int r = words ? 0 : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < json_array_size(words); i++) {
		const json_t *item = json_array_get(words, i);
		struct str word = str_n(json_string_value(item), json_string_length(item));
		if (!field_value(f, word, &at)) {
			struct buf CLEANUP(buf_release) known = {0};
			field_words_list(&known, f);
			r = err_set(e, ERR_INVALID,
			            "the field '%s' has an unknown entry '%.*s'; an entry is %.*s", f->name,
			            STR_ARG(word), STR_ARG(buf_view(&known)));
		} else {
			set |= 1ULL << at;
		}
	}
	json_decref(words);
	if (r == 0 && set == 0)
		r = err_set(e, ERR_INVALID, "the field '%s' must not be empty", f->name);
	field_set_int(f, record, (int64_t)set);
	return r;
}

static int field_put(const struct field *f, const union input_value *v, struct input_record *r, struct err *e)
{
	uint64_t value;
	switch (f->type) {
	case FIELD_TIME: field_set_int(f, r->record, v->time_ms); return 0;
	case FIELD_BOOL: field_set_int(f, r->record, v->flag); return 0;
	case FIELD_USER: r->user = v->text; return 0;
	case FIELD_SECRET: r->secret = v->text; return 0;
	case FIELD_SET: return put_set(f, v->text, r->record, e);
	case FIELD_ENUM:
		if (!field_value(f, v->text, &value))
			return wrong_word(f, e);
		field_set_int(f, r->record, (int64_t)value);
		return 0;
	case FIELD_TEXT:
		if (v->text.ptr && v->text.len < f->min)
			return err_set(e, ERR_INVALID, "the field '%s' must have %llu to %llu bytes", f->name,
			               (unsigned long long)f->min, (unsigned long long)f->max);
		*field_str_in(f, r->record) = f->flags & FIELD_BLANK && v->text.len == 0 ? STR_NULL : v->text;
		return 0;
	case FIELD_STRING:
	case FIELD_TAGS: *field_str_in(f, r->record) = v->text; return 0;
	default: return put_number(f, v->number, r->record, e);
	}
}

int input_record_read(const struct input *in, struct input_record *r, struct arena *arena, struct err *e)
{
	struct input_field inputs[FIELDS_MAX] = {0};
	const struct field *rows[FIELDS_MAX];
	union input_value values[FIELDS_MAX];
	bool given[FIELDS_MAX];
	size_t n = 0;
	for (size_t i = 0; i < r->fields->count; i++) {
		const struct field *f = &r->fields->rows[i];
		if (!(f->flags & r->when))
			continue;
		if (f->type == FIELD_VIRTUAL)
			inputs[n] = *field_named(r->own, r->own_count, f->name);
		else
			inputs[n] = field_input(f, r->when, &values[n]);
		if (f->type != FIELD_VIRTUAL)
			inputs[n].ret_given = &given[n];
		rows[n++] = f;
	}
	r->code = "invalid-body";
	int result = input_fields(in, inputs, n, arena, e);
	for (size_t i = 0; result == 0 && i < n; i++) {
		if (rows[i]->type == FIELD_VIRTUAL || !given[i])
			continue;
		r->code = "invalid-field";
		result = field_put(rows[i], &values[i], r, e);
		r->bits |= rows[i]->bit;
		if (rows[i]->flags & FIELD_ADMIN && !r->for_admins)
			r->for_admins = rows[i];
	}
	return result;
}
