#include "store/fields.h"

#include "base/err.h"
#include "base/json_out.h"

static const char *const redirect_statuses[] = {"301", "302", "307", "308", NULL};
static const char *const visibilities[] = {"public", "private", NULL};
static const char *const user_roles[] = {"viewer", "editor", "admin", NULL};
static const char *const right_names[] = {"read", "stats", "create", "delete", "admin", NULL};

_Static_assert(RIGHT_READ == 1 && RIGHT_STATS == 2 && RIGHT_CREATE == 4 && RIGHT_DELETE == 8 &&
                   RIGHT_ADMIN == 16,
               "right_names says so");
_Static_assert(sizeof(bool) == 1 && sizeof(enum user_role) == 4, "field_int says so");

#define ROW(column_, fixed_, member, TYPE, ...)       \
	{.column = (column_),                         \
	 .type = FIELD_##TYPE,                        \
	 .offset = offsetof(RECORD, member),          \
	 .size = sizeof(((const RECORD *)0)->member), \
	 .fixed = (fixed_),                           \
	 __VA_ARGS__},
#define FIXED(column_, ...)  ROW(#column_, true, __VA_ARGS__)
#define STORED(column_, ...) ROW(#column_, false, __VA_ARGS__)
#define SHOWN(...)           ROW(NULL, true, __VA_ARGS__)

#define RECORD struct link_record
static const struct field link_rows[] = {LINK_FIELDS(FIXED, FIXED, STORED, SHOWN)};
#undef RECORD
#define RECORD struct user_record
static const struct field user_rows[] = {USER_FIELDS(FIXED, FIXED, STORED, SHOWN)};
#undef RECORD
#define RECORD struct key_record
static const struct field key_rows[] = {KEY_FIELDS(FIXED, FIXED, STORED, SHOWN)};

_Static_assert(ARRAY_LEN(link_rows) <= FIELDS_MAX, "fields_differ has a bit for each");

const struct fields link_fields = {link_rows, ARRAY_LEN(link_rows)};
const struct fields user_fields = {user_rows, ARRAY_LEN(user_rows)};
const struct fields key_fields = {key_rows, ARRAY_LEN(key_rows)};

#define FIELDS_EACH(f, s) for (const struct field *f = (s)->rows, *f##_end = f + (s)->count; f < f##_end; f++)

/* --- one field --- */

const char *field_word(const struct field *f, uint64_t value)
{
	return value >= f->min && value <= f->max ? f->words[value - f->min] : NULL;
}

bool field_value(const struct field *f, struct str word, uint64_t *ret)
{
	for (size_t i = 0; f->words[i]; i++) {
		*ret = f->min + i;
		if (str_eq(word, str_of(f->words[i])))
			return true;
	}
	return false;
}

void field_words_list(struct buf *b, const struct field *f)
{
	for (size_t i = 0; f->words[i]; i++)
		buf_printf(b, "%s%s", i == 0 ? "" : f->words[i + 1] ? ", " : " or ", f->words[i]);
}

/* --- whole records --- */

const struct field *fields_find(const struct fields *s, struct str name)
{
	FIELDS_EACH(f, s)
	{
		if (f->name && str_eq(name, str_of(f->name)))
			return f;
	}
	return NULL;
}

void fields_copy(const struct fields *s, unsigned bits, const void *from, void *to)
{
	FIELDS_EACH(f, s)
	{
		if (f->bit & bits)
			memcpy((char *)to + f->offset, (const char *)from + f->offset, f->size);
	}
}

int fields_own(const struct fields *s, struct arena *arena, void *record)
{
	int r = 0;
	FIELDS_EACH(f, s)
	{
		struct str *own = field_str_in(f, record);
		if (!field_is_str(f) || !own->ptr)
			continue;
		*own = arena_str(arena, *own);
		r = own->ptr ? r : ERR_NOMEM;
	}
	return r;
}

size_t fields_bytes(const struct fields *s, const void *record)
{
	size_t bytes = 0;
	FIELDS_EACH(f, s) bytes += field_is_str(f) ? field_str(f, record)->len : 0;
	return bytes;
}

static bool is_same(const struct field *f, const void *a, const void *b)
{
	if (!field_is_str(f))
		return memcmp((const char *)a + f->offset, (const char *)b + f->offset, f->size) == 0;
	const struct str *x = field_str(f, a), *y = field_str(f, b);
	return !x->ptr == !y->ptr && str_eq(*x, *y);
}

uint64_t fields_differ(const struct fields *s, const void *a, const void *b)
{
	uint64_t differ = 0;
	for (size_t i = 0; i < s->count; i++) {
		if (s->rows[i].type != FIELD_VIRTUAL && !is_same(&s->rows[i], a, b))
			differ |= 1ULL << i;
	}
	return differ;
}

/* --- JSON --- */

static void set_json(struct buf *b, const struct field *f, uint64_t set)
{
	const char *before = "[";
	for (size_t i = 0; f->words[i]; i++) {
		if (set & (1ULL << i)) {
			buf_printf(b, "%s\"%s\"", before, f->words[i]);
			before = ",";
		}
	}
	buf_str(b, *before == ',' ? STR("]") : STR("[]"));
}

void field_json(struct buf *b, const struct field *f, const void *record)
{
	switch (f->type) {
	case FIELD_TEXT:
	case FIELD_STRING: json_out_str_or_null(b, *field_str(f, record)); return;
	case FIELD_TAGS:
		buf_str(b, field_str(f, record)->len > 0 ? *field_str(f, record) : STR("[]"));
		return;
	case FIELD_SECRET: buf_str(b, field_str(f, record)->ptr ? STR("true") : STR("false")); return;
	case FIELD_DIGEST:
	case FIELD_VIRTUAL: buf_str(b, STR("null")); return;
	default: break;
	}
	uint64_t v = (uint64_t)field_int(f, record);
	switch (f->type) {
	case FIELD_TIME: json_out_time(b, (int64_t)v); return;
	case FIELD_BOOL: buf_str(b, v ? STR("true") : STR("false")); return;
	case FIELD_ENUM: json_out_str_or_null(b, str_of(field_word(f, v))); return;
	case FIELD_SET: set_json(b, f, v); return;
	default: break;
	}
	if (v == 0 && f->flags & FIELD_NULL)
		buf_str(b, STR("null"));
	else
		json_out_u64(b, f->type == FIELD_SECONDS ? v / 1000 : v);
}

bool field_is_shown(const struct field *f)
{
	return f->name && !(f->flags & FIELD_HIDDEN);
}

void field_name_json(struct buf *b, const struct field *f)
{
	buf_str(b, f->type == FIELD_SECRET ? STR("\"has_") : STR("\""));
	buf_str(b, str_of(f->name));
	buf_str(b, STR("\":"));
}

void fields_json(struct buf *b, const struct fields *s, const void *record, field_json_fn *own,
                 const void *ctx)
{
	const char *before = "";
	FIELDS_EACH(f, s)
	{
		if (!field_is_shown(f))
			continue;
		buf_str(b, str_of(before));
		field_name_json(b, f);
		before = ",";
		if (!own || (f->type != FIELD_VIRTUAL && f->type != FIELD_USER) || !own(b, f, record, ctx))
			field_json(b, f, record);
	}
}

static void side_json(struct buf *b, const struct field *f, const void *record)
{
	if (record)
		field_json(b, f, record);
	else
		buf_str(b, STR("null"));
}

void fields_changes_json(struct buf *b, const struct fields *s, const void *before, const void *after)
{
	const char *separator = "{";
	uint64_t differ = before && after ? fields_differ(s, before, after) : ~0ULL;
	for (size_t i = 0; i < s->count; i++) {
		const struct field *f = &s->rows[i];
		if (!f->name || f->bit == 0 || !(differ & (1ULL << i)))
			continue;
		buf_str(b, str_of(separator));
		field_name_json(b, f);
		buf_char(b, '[');
		side_json(b, f, before);
		buf_char(b, ',');
		side_json(b, f, after);
		buf_char(b, ']');
		separator = ",";
	}
	buf_str(b, *separator == ',' ? STR("}") : STR("{}"));
}

/* --- SQL --- */

int fields_sql(struct buf *b, const struct fields *s, enum fields_which which,
               const struct fields_pattern *pattern, int first)
{
	const char *before = "";
	FIELDS_EACH(f, s)
	{
		if (!field_is_stored(f, which))
			continue;
		buf_str(b, str_of(before));
		before = ", ";
		const char *at = field_is_str(f) || f->type == FIELD_DIGEST ? pattern->text
		                 : f->size == 1                             ? pattern->flag
		                                                            : pattern->number;
		for (; *at; at++) {
			if (*at == '@')
				buf_str(b, str_of(f->column));
			else if (*at == '#')
				buf_printf(b, "%d", first);
			else
				buf_char(b, *at);
		}
		first++;
	}
	return first;
}
