#include "config/value.h"

#include "base/utf8.h"

#include <stdlib.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* In rising order, the usual spelling last: put_number takes the last unit that divides the number. */
static const struct unit byte_units[] = {
    {"", 1},        {"KiB", 1 << 10}, {"K", 1 << 10}, {"k", 1 << 10}, {"MiB", 1 << 20}, {"M", 1 << 20},
    {"m", 1 << 20}, {"GiB", 1 << 30}, {"G", 1 << 30}, {"g", 1 << 30}, {NULL, 0},
};
static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
};
static const struct unit plain_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(const struct conf_row *row)
{
	switch (row->type) {
	case CONF_BYTES: return byte_units;
	case CONF_DURATION: return duration_units;
	default: return plain_units;
	}
}

static bool scale(const struct unit *units, struct str suffix, uint64_t *number)
{
	for (; units->name; units++) {
		if (str_eq(str_of(units->name), suffix))
			return !__builtin_mul_overflow(*number, units->factor, number);
	}
	return false;
}

static bool parse_number(const struct conf_row *row, struct str text, uint64_t *ret)
{
	size_t digits = 0;
	while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9')
		digits++;
	struct str suffix = str_n(text.ptr + digits, text.len - digits);
	return str_u64(str_n(text.ptr, digits), ret) && scale(units_of(row), suffix, ret) &&
	       *ret >= row->min && (row->max == 0 || *ret <= row->max);
}

static bool parse_bool(struct str text, bool *ret)
{
	static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (str_eq(text, str_of(words[i]))) {
			*ret = i % 2;
			return true;
		}
	}
	return false;
}

static bool parse_choice(const struct conf_row *row, struct str text, int *ret)
{
	for (int i = 0; row->choices[i]; i++) {
		if (str_eq(text, str_of(row->choices[i]))) {
			*ret = i;
			return true;
		}
	}
	return false;
}

/* Numbers in the unit a person would choose. */
static void put_number(const struct conf_row *row, uint64_t number, struct buf *out)
{
	const struct unit *best = units_of(row);
	for (const struct unit *u = best; u->name; u++) {
		if (number > 0 && number % u->factor == 0)
			best = u;
	}
	buf_printf(out, "%llu%s", (unsigned long long)(number / best->factor), best->name);
}

static void put_bounds(const struct conf_row *row, struct buf *out)
{
	if (row->max > 0) {
		buf_str(out, STR(" from "));
		put_number(row, row->min, out);
		buf_str(out, STR(" to "));
		put_number(row, row->max, out);
	} else if (row->min > 0) {
		buf_str(out, STR(" of at least "));
		put_number(row, row->min, out);
	}
}

void conf_value_expected(const struct conf_row *row, struct buf *out)
{
	switch (row->type) {
	case CONF_BOOL: buf_str(out, STR("true or false")); break;
	case CONF_UINT:
		buf_str(out, STR("a whole number"));
		put_bounds(row, out);
		break;
	case CONF_BYTES:
		buf_str(out, STR("a number of bytes"));
		put_bounds(row, out);
		buf_str(out, STR(", such as 65536, 64k, 16m or 2GiB"));
		break;
	case CONF_DURATION:
		buf_str(out, STR("a duration"));
		put_bounds(row, out);
		buf_str(out, STR(" with its unit, such as 250ms, 5s, 2m, 1h or 7d"));
		break;
	case CONF_STRING: buf_str(out, STR("text without control characters")); break;
	case CONF_ENUM:
		buf_str(out, STR("one of "));
		for (int i = 0; row->choices[i]; i++)
			buf_printf(out, "%s%s", i ? ", " : "", row->choices[i]);
		break;
	}
}

bool conf_text_is_printable(struct str text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static int refuse(const struct conf_row *row, struct str text, const char *where, struct err *e)
{
	CLEANUP(buf_release) struct buf right = {0};
	conf_value_expected(row, &right);
	buf_char(&right, '\0');
	const char *expected = right.failed ? "something else" : right.data;
	const struct str shown = utf8_prefix(text, CONF_BYTES_SHOWN);
	if ((row->flags & CONF_SECRET) || !conf_text_is_printable(text))
		return err_set(e, ERR_INVALID, "%s: %s.%s must be %s", where, row->section, row->name,
		               expected);
	if (text.len == 0)
		return err_set(e, ERR_INVALID, "%s: %s.%s must be %s, and it is empty", where, row->section,
		               row->name, expected);
	return err_set(e, ERR_INVALID, "%s: %s.%s must be %s, not '%.*s'%s", where, row->section, row->name,
	               expected, STR_ARG(shown), shown.len < text.len ? "..." : "");
}

static int copy_string(struct str text, char **ret, struct err *e)
{
	char *copy = malloc(text.len + 1);
	if (!copy)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (text.len > 0)
		memcpy(copy, text.ptr, text.len);
	copy[text.len] = '\0';
	*ret = copy;
	return 0;
}

int conf_value_parse(const struct conf_row *row, struct str text, const char *where, struct conf_value *ret,
                     struct err *e)
{
	struct conf_value v = {0};
	bool right = false;
	switch (row->type) {
	case CONF_BOOL: right = parse_bool(text, &v.flag); break;
	case CONF_UINT:
	case CONF_BYTES:
	case CONF_DURATION: right = parse_number(row, text, &v.number); break;
	case CONF_ENUM: right = parse_choice(row, text, &v.choice); break;
	case CONF_STRING: right = conf_text_is_printable(text); break;
	}
	if (!right)
		return refuse(row, text, where, e);
	if (row->type == CONF_STRING) {
		int r = copy_string(text, &v.string, e);
		if (r < 0)
			return r;
	}
	*ret = v;
	return 0;
}

void conf_value_release(const struct conf_row *row, struct conf_value *v)
{
	if (row->type == CONF_STRING)
		free(steal(v->string));
}

void conf_value_store(const struct conf_row *row, void *target, struct conf_value *v)
{
	void *field = (char *)target + row->offset;
	switch (row->type) {
	case CONF_BOOL: *(bool *)field = v->flag; break;
	case CONF_UINT:
	case CONF_BYTES:
	case CONF_DURATION: *(uint64_t *)field = v->number; break;
	case CONF_ENUM: *(int *)field = v->choice; break;
	case CONF_STRING: *(char **)field = steal(v->string); break;
	}
}

struct conf_value conf_value_peek(const struct conf_row *row, const void *target)
{
	const void *field = (const char *)target + row->offset;
	switch (row->type) {
	case CONF_BOOL: return (struct conf_value){.flag = *(const bool *)field};
	case CONF_ENUM: return (struct conf_value){.choice = *(const int *)field};
	case CONF_STRING: return (struct conf_value){.string = *(char *const *)field};
	default: return (struct conf_value){.number = *(const uint64_t *)field};
	}
}

bool conf_value_eq(const struct conf_row *row, const struct conf_value *a, const struct conf_value *b)
{
	switch (row->type) {
	case CONF_BOOL: return a->flag == b->flag;
	case CONF_ENUM: return a->choice == b->choice;
	case CONF_STRING: return str_eq(str_of(a->string), str_of(b->string));
	default: return a->number == b->number;
	}
}
