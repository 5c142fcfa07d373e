#include "handler/input.h"

#include "base/json_in.h"
#include "base/json_out.h"
#include "base/rfc3339.h"
#include "base/utf8.h"
#include "handler/problem.h"

#include <stdarg.h>
#include <stdio.h>

int input_wrong_body(struct input_err *e, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	*e = (struct input_err){.code = "invalid-body"};
	vsnprintf(e->sentence.text, sizeof(e->sentence.text), fmt, ap);
	va_end(ap);
	return ERR_INVALID;
}

int input_wrong_field(struct input_err *e, const char *field, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	*e = (struct input_err){.code = "invalid-field", .has_field = true};
	snprintf(e->field, sizeof(e->field), "%s", field);
	vsnprintf(e->sentence.text, sizeof(e->sentence.text), fmt, ap);
	va_end(ap);
	return ERR_INVALID;
}

void input_reply_failed(struct http_conn *c, int err, const struct input_err *e)
{
	if (err != ERR_INVALID) {
		problem_reply_store(c, err);
		return;
	}
	const struct problem p = {.status = 400, .code = e->code, .field = e->has_field ? e->field : NULL};
	problem_reply_with(c, &p, "%s", e->sentence.text);
}

/* Values. The body has been checked, so reading it only fails for lack of memory. */

static const char *kind_name(enum json_in_kind kind)
{
	switch (kind) {
	case JSON_IN_OBJECT: return "an object";
	case JSON_IN_ARRAY: return "an array";
	case JSON_IN_STRING: return "a string";
	case JSON_IN_NUMBER: return "a number";
	case JSON_IN_NULL: return "null";
	default: return "a boolean";
	}
}

static int wrong_type(const struct input_field *f, struct json_in *in, const char *wanted,
                      struct input_err *e)
{
	return input_wrong_field(e, f->name, "the field '%s' must be %s, not %s", f->name, wanted,
	                         kind_name(json_in_peek(in)));
}

/* Takes null, if it comes. */
static bool take_null(struct json_in *in)
{
	return json_in_peek(in) == JSON_IN_NULL && json_in_skip(in);
}

/* Takes a string, decoded, into the arena. */
static int take_string(struct json_in *in, struct arena *arena, struct str *ret)
{
	struct json_in ahead = *in;
	bool whole = true;
	json_in_string(&ahead, NULL, 0, ret, &whole);
	if (whole) {
		*in = ahead;
		*ret = arena_str(arena, *ret);
		return ret->ptr ? 0 : ERR_NOMEM;
	}
	size_t room = (size_t)(ahead.at - in->at);
	char *text = arena_alloc(arena, room);
	if (!text)
		return ERR_NOMEM;
	json_in_string(in, text, room, ret, &whole);
	text[ret->len] = '\0'; /* it had quotes */
	return 0;
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

/* What is wrong with the characters of a string; NULL: nothing. */
static const char *wrong_characters(struct str s, bool is_text)
{
	if (memchr(s.ptr, '\0', s.len))
		return "must not contain a NUL character";
	return is_text && has_control(s) ? "contains a control character; remove it" : NULL;
}

static int read_string(const struct input_field *f, struct json_in *in, struct arena *arena,
                       struct input_err *e)
{
	struct str *ret = f->ret;
	size_t min = f->row && (f->type == FIELD_TEXT || f->type == FIELD_SECRET) ? f->row->min : 0;
	*ret = STR_NULL;
	if (f->may_be_null && take_null(in))
		return 0;
	int64_t id;
	struct json_in ahead = *in;
	if (f->type == FIELD_USER && json_in_peek(&ahead) == JSON_IN_NUMBER &&
	    json_in_number(&ahead, &id) == JSON_IN_INTEGER) {
		*in = ahead;
		*ret = arena_printf(arena, "%lld", (long long)id);
		return ret->ptr ? 0 : ERR_NOMEM;
	}
	if (json_in_peek(in) != JSON_IN_STRING)
		return wrong_type(f, in, f->may_be_null ? "a string or null" : "a string", e);
	int r = take_string(in, arena, ret);
	if (r < 0)
		return r;
	const char *wrong = wrong_characters(*ret, f->type == FIELD_TEXT);
	if (wrong)
		return input_wrong_field(e, f->name, "the field '%s' %s", f->name, wrong);
	if (min > 0 && (ret->len < min || ret->len > f->bytes_max))
		return input_wrong_field(e, f->name, "the field '%s' has %zu bytes; it must have %zu to %zu",
		                         f->name, ret->len, min, f->bytes_max);
	if (f->bytes_max && ret->len > f->bytes_max)
		return input_wrong_field(e, f->name, "the field '%s' has %zu bytes; it may have at most %zu",
		                         f->name, ret->len, f->bytes_max);
	if (f->row && f->row->flags & FIELD_BLANK && ret->len == 0)
		*ret = STR_NULL;
	return 0;
}

static int wrong_word(const struct input_field *f, const char *what, struct input_err *e)
{
	struct buf CLEANUP(buf_release) words = {0};
	field_words_list(&words, f->row);
	return input_wrong_field(e, f->name, "%s '%s' must be %.*s", what, f->name,
	                         STR_ARG(buf_view(&words)));
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

static int read_number(const struct input_field *f, struct json_in *in, struct input_err *e)
{
	uint64_t min = f->may_be_null ? 1 : 0, max = f->row && f->row->max ? f->row->max : INT64_MAX, which;
	char digits[24];
	struct echo shown;
	int64_t n;
	if (f->may_be_null && take_null(in))
		return number_put(f, 0);
	if (json_in_peek(in) != JSON_IN_NUMBER)
		return wrong_type(f, in, f->may_be_null ? "a whole number or null" : "a whole number", e);
	const char *from = in->at;
	bool is_whole = json_in_number(in, &n) == JSON_IN_INTEGER;
	snprintf(digits, sizeof(digits), "%lld", is_whole ? (long long)n : -1);
	if (f->row && f->row->words && !field_value(f->row, str_of(digits), &which))
		return wrong_word(f, "the field", e);
	if (!is_whole || n < (int64_t)min || (uint64_t)n > max)
		return input_wrong_field(
		    e, f->name, "the field '%s' is %s; it must be a whole number from %llu to %llu%s",
		    f->name, echo(&shown, str_n(from, (size_t)(in->at - from))), (unsigned long long)min,
		    (unsigned long long)max, f->may_be_null ? ", or null for none" : "");
	return number_put(f, (uint64_t)n * (f->type == FIELD_SECONDS ? 1000 : 1));
}

static int read_enum(const struct input_field *f, struct json_in *in, struct arena *arena,
                     struct input_err *e)
{
	uint64_t value;
	struct str word;
	if (json_in_peek(in) != JSON_IN_STRING)
		return wrong_type(f, in, "a string", e);
	int r = take_string(in, arena, &word);
	if (r < 0)
		return r;
	return field_value(f->row, word, &value) ? number_put(f, value) : wrong_word(f, "the field", e);
}

static int read_bool(const struct input_field *f, struct json_in *in, struct input_err *e)
{
	enum json_in_kind kind = json_in_peek(in);
	if (kind != JSON_IN_TRUE && kind != JSON_IN_FALSE)
		return wrong_type(f, in, "true or false", e);
	*(bool *)f->ret = kind == JSON_IN_TRUE;
	json_in_skip(in);
	return 0;
}

static int read_time(const struct input_field *f, struct json_in *in, struct arena *arena,
                     struct input_err *e)
{
	struct str text;
	*(int64_t *)f->ret = 0;
	if (take_null(in))
		return 0;
	int64_t n;
	bool is_time;
	if (json_in_peek(in) == JSON_IN_NUMBER) {
		is_time = json_in_number(in, &n) == JSON_IN_INTEGER && time_from_number(n, f->ret);
	} else if (json_in_peek(in) == JSON_IN_STRING) {
		int r = take_string(in, arena, &text);
		if (r < 0)
			return r;
		is_time = time_parse(text, f->ret);
	} else {
		return wrong_type(f, in, "a time, or null", e);
	}
	if (!is_time)
		return input_wrong_field(e, f->name, "the field '%s' is not a time; " TIME_HINT, f->name);
	*(int64_t *)f->ret = MAX(*(int64_t *)f->ret, 1); /* 0 is "never" */
	return 0;
}

/* Calls `fn` for each entry of an array of strings. */
static int each_string(const struct input_field *f, struct json_in *in, struct arena *arena,
                       struct input_err *e, int (*fn)(void *ctx, struct str entry), void *ctx)
{
	bool first = true;
	size_t n = 0;
	if (json_in_peek(in) != JSON_IN_ARRAY)
		return wrong_type(f, in, "an array of strings", e);
	json_in_enter(in, '[');
	while (json_in_more(in, '[', &first)) {
		struct str entry;
		if (++n > INPUT_STRINGS_MAX)
			return input_wrong_field(e, f->name, "the field '%s' may have at most %d entries",
			                         f->name, INPUT_STRINGS_MAX);
		if (json_in_peek(in) != JSON_IN_STRING)
			return input_wrong_field(e, f->name,
			                         "entry %zu of the field '%s' must be a string, not %s", n,
			                         f->name, kind_name(json_in_peek(in)));
		int r = take_string(in, arena, &entry);
		if (r < 0)
			return r;
		if (entry.len == 0 || entry.len > INPUT_ITEM_BYTES_MAX)
			return input_wrong_field(
			    e, f->name, "entry %zu of the field '%s' has %zu bytes; it must have 1 to %d", n,
			    f->name, entry.len, INPUT_ITEM_BYTES_MAX);
		const char *wrong = wrong_characters(entry, true);
		if (wrong)
			return input_wrong_field(e, f->name, "entry %zu of the field '%s' %s", n, f->name,
			                         wrong);
		r = fn(ctx, entry);
		if (r < 0)
			return r;
	}
	return 0;
}

static int tag_put(void *ctx, struct str entry)
{
	json_out_next(ctx);
	json_out_str(ctx, entry);
	return 0;
}

static int read_tags(const struct input_field *f, struct json_in *in, struct arena *arena,
                     struct input_err *e)
{
	struct buf CLEANUP(buf_release) text = {0};
	buf_char(&text, '[');
	int r = each_string(f, in, arena, e, tag_put, &text);
	if (r < 0)
		return r;
	buf_char(&text, ']');
	struct str s = text.failed ? STR_NULL : arena_str(arena, buf_view(&text));
	*(struct str *)f->ret = s;
	return s.ptr ? 0 : ERR_NOMEM;
}

struct set_input {
	const struct input_field *field;
	uint64_t set;
	struct input_err *e;
};

static int set_put(void *ctx, struct str entry)
{
	struct set_input *in = ctx;
	uint64_t which;
	struct echo shown;
	if (!field_value(in->field->row, entry, &which))
		return input_wrong_field(in->e, in->field->name, "the field '%s' has an unknown entry '%s'",
		                         in->field->name, echo(&shown, entry));
	in->set |= 1ULL << which;
	return 0;
}

static int read_set(const struct input_field *f, struct json_in *in, struct arena *arena, struct input_err *e)
{
	struct set_input to = {.field = f, .e = e};
	int r = each_string(f, in, arena, e, set_put, &to);
	if (r < 0)
		return r;
	return to.set ? number_put(f, to.set) : wrong_word(f, "an entry of the field", e);
}

static int read_field(const struct input_field *f, struct json_in *in, struct arena *arena,
                      struct input_err *e)
{
	if (f->row && f->row->flags & FIELD_DEFAULT && take_null(in))
		return 0; /* the record has the default */
	switch (f->type) {
	case FIELD_BOOL: return read_bool(f, in, e);
	case FIELD_TIME: return read_time(f, in, arena, e);
	case FIELD_ENUM: return read_enum(f, in, arena, e);
	case FIELD_SET: return read_set(f, in, arena, e);
	case FIELD_TAGS: return read_tags(f, in, arena, e);
	case FIELD_USER:
	case FIELD_TEXT:
	case FIELD_STRING:
	case FIELD_SECRET: return read_string(f, in, arena, e);
	default: return read_number(f, in, e);
	}
}

/* Objects */

static const struct input_field *field_named(const struct input_field *fields, size_t count, struct str name)
{
	for (size_t i = 0; i < count; i++) {
		if (str_eq(name, str_of(fields[i].name)))
			return &fields[i];
	}
	return NULL;
}

/* `name` is STR_NULL if it was too long to decode. */
static int unknown_field(struct str name, const struct input_field *fields, size_t count, struct input_err *e)
{
	char known[400] = "";
	struct echo shown;
	size_t at = 0;
	for (size_t i = 0; i < count && at < sizeof(known) - 1; i++)
		at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", fields[i].name);
	if (!name.ptr)
		return input_wrong_body(e, "a field has a name of more than %d bytes; the fields are: %s",
		                        INPUT_ITEM_BYTES_MAX, known);
	echo(&shown, name);
	return input_wrong_field(e, shown.text, "unknown field '%s'; the fields are: %s", shown.text, known);
}

int input_check(struct str body, struct input_err *e)
{
	struct json_in in = json_in_begin(body.ptr ? body : STR(""));
	if (json_in_at_end(&in))
		return input_wrong_body(e, "the body is empty; send a JSON object");
	enum json_in_kind kind = json_in_peek(&in);
	if (!json_in_skip(&in) || !json_in_finish(&in)) {
		*e = (struct input_err){.code = "invalid-body"};
		return json_in_err(&in, "the body", &e->sentence);
	}
	if (kind != JSON_IN_OBJECT)
		return input_wrong_body(e, "the body must be a JSON object, not %s", kind_name(kind));
	return 0;
}

/* The place of a member's value; false: there is none. */
static bool member_find(struct str body, const char *name, struct json_in *ret)
{
	char scratch[INPUT_ITEM_BYTES_MAX];
	struct str found;
	bool first = true;
	*ret = json_in_begin(body);
	json_in_enter(ret, '{');
	while (json_in_more(ret, '{', &first) && json_in_name(ret, scratch, sizeof(scratch), &found)) {
		if (str_eq(found, str_of(name)))
			return true;
		json_in_skip(ret);
	}
	return false;
}

bool input_has(struct str body, const char *name)
{
	struct json_in at;
	return member_find(body, name, &at);
}

struct str input_peek(struct str body, const char *name, struct arena *arena)
{
	struct json_in at;
	struct str text;
	bool is_string = member_find(body, name, &at) && json_in_peek(&at) == JSON_IN_STRING;
	return is_string && take_string(&at, arena, &text) == 0 ? text : STR_NULL;
}

static int read_members(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
                        struct input_err *e, uint64_t *ret_given)
{
	char scratch[INPUT_ITEM_BYTES_MAX];
	struct str name;
	struct json_in in = json_in_begin(body);
	bool first = true;
	*ret_given = 0;
	ASSERT(count <= 64);
	json_in_enter(&in, '{');
	while (json_in_more(&in, '{', &first) && json_in_name(&in, scratch, sizeof(scratch), &name)) {
		const struct input_field *f = field_named(fields, count, name);
		if (!f)
			return unknown_field(name, fields, count, e);
		uint64_t bit = 1ULL << (f - fields);
		if (*ret_given & bit)
			return input_wrong_field(e, f->name, "the field '%s' appears twice; send it once",
			                         f->name);
		*ret_given |= bit;
		int r = read_field(f, &in, arena, e);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < count; i++) {
		bool given = *ret_given & 1ULL << i;
		if (fields[i].required && !given)
			return input_wrong_field(e, fields[i].name, "the field '%s' is missing",
			                         fields[i].name);
		if (fields[i].ret_given)
			*fields[i].ret_given = given;
	}
	return 0;
}

int input_fields(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
                 struct input_err *e)
{
	uint64_t given;
	return read_members(body, fields, count, arena, e, &given);
}

int input_read(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
               struct input_err *e)
{
	int r = input_check(body, e);
	return r < 0 ? r : input_fields(body, fields, count, arena, e);
}

/* Records */

static struct input_field row_input(const struct field *f, struct input_record *r)
{
	bool has_bound = f->type == FIELD_TEXT || f->type == FIELD_SECRET;
	return (struct input_field){
	    .name = f->name,
	    .type = f->type,
	    .ret = f->type == FIELD_SECRET ? (char *)&r->secret
	           : f->type == FIELD_USER ? (char *)&r->user
	                                   : (char *)r->record + f->offset,
	    .required = f->flags & FIELD_REQUIRED && r->when == FIELD_CREATE,
	    .may_be_null = f->flags & FIELD_NULL && !(f->flags & FIELD_REQUIRED),
	    .bytes_max = has_bound ? f->max : 0,
	    .row = f,
	};
}

int input_record_read(struct str body, struct input_record *r, struct arena *arena, struct input_err *e)
{
	struct input_field inputs[FIELDS_MAX] = {0};
	uint64_t given = 0;
	size_t n = 0;
	for (const struct field *f = r->fields->rows; f < r->fields->rows + r->fields->count; f++) {
		if (f->flags & r->when)
			inputs[n++] = f->type == FIELD_VIRTUAL
			                  ? *field_named(r->own, r->own_count, str_of(f->name))
			                  : row_input(f, r);
	}
	int result = input_check(body, e);
	if (result == 0)
		result = read_members(body, inputs, n, arena, e, &given);
	for (size_t i = n; result == 0 && i-- > 0;) {
		const struct field *f = inputs[i].row;
		if (!f || !(given & 1ULL << i))
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
	struct echo shown;
	*ret = otherwise;
	if (!limit.ptr || (str_u64(limit, ret) && *ret >= 1 && *ret <= max))
		return true;
	problem_reply(c, 400, "invalid-limit",
	              "The parameter 'limit' is '%s'; it must be a number from 1 to %llu.",
	              echo(&shown, limit), (unsigned long long)max);
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
