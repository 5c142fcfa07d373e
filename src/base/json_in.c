#include "base/json_in.h"

#include "base/utf8.h"

struct json_in json_in_begin(struct str text)
{
	return (struct json_in){.at = text.ptr, .end = text.ptr + text.len, .start = text.ptr};
}

static bool fail(struct json_in *in, const char *what)
{
	if (!in->wrong)
		in->wrong = what;
	in->end = in->at; /* nothing comes after an error */
	return false;
}

static void skip_space(struct json_in *in)
{
	while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\r' || *in->at == '\t'))
		in->at++;
}

bool json_in_at_end(struct json_in *in)
{
	skip_space(in);
	return !in->wrong && in->at == in->end;
}

bool json_in_finish(struct json_in *in)
{
	return json_in_at_end(in) || fail(in, "the text must end after the value");
}

int json_in_err(const struct json_in *in, const char *what, struct err *e)
{
	size_t line = 1, column = 1;
	for (const char *c = in->start; c < in->at; c++) {
		bool ends_line = *c == '\n';
		line += ends_line;
		column = ends_line ? 1 : column + ((*c & 0xc0) != 0x80); /* of characters */
	}
	return err_set(e, ERR_INVALID, "%s cannot be read as JSON: at line %zu, column %zu, %s", what, line,
	               column, in->wrong);
}

static const struct str byte_order_mark = STR("\xef\xbb\xbf");

enum json_in_kind json_in_peek(struct json_in *in)
{
	skip_space(in);
	if (in->at == in->end) {
		fail(in, "a value was expected, not the end");
		return JSON_IN_NONE;
	}
	switch (*in->at) {
	case '{': return JSON_IN_OBJECT;
	case '[': return JSON_IN_ARRAY;
	case '"': return JSON_IN_STRING;
	case 't': return JSON_IN_TRUE;
	case 'f': return JSON_IN_FALSE;
	case 'n': return JSON_IN_NULL;
	case '-':
	case '0' ... '9': return JSON_IN_NUMBER;
	default: break;
	}
	fail(in, in->at == in->start && str_starts(str_n(in->at, (size_t)(in->end - in->at)), byte_order_mark)
	             ? "a byte order mark must be removed"
	             : "a value was expected");
	return JSON_IN_NONE;
}

static bool take(struct json_in *in, char c, const char *what)
{
	skip_space(in);
	if (in->at == in->end || *in->at != c)
		return fail(in, what);
	in->at++;
	return true;
}

bool json_in_enter(struct json_in *in, char bracket)
{
	return take(in, bracket, "a bracket was expected");
}

bool json_in_more(struct json_in *in, char bracket, bool *first)
{
	char closing = bracket == '{' ? '}' : ']';
	bool was_first = *first;
	*first = false;
	skip_space(in);
	if (in->at < in->end && *in->at == closing) {
		in->at++;
		return false;
	}
	return was_first ? !in->wrong && (in->at < in->end || fail(in, "the closing bracket is missing"))
	                 : take(in, ',', "a comma or a closing bracket was expected");
}

/* Strings */

static bool take_hex4(struct json_in *in, unsigned *ret)
{
	*ret = 0;
	if (in->end - in->at < 4)
		return fail(in, "a \\u escape is cut short");
	for (int i = 0; i < 4; i++) {
		int digit = ascii_hex(*in->at);
		if (digit < 0)
			return fail(in, "a \\u escape needs four hexadecimal digits");
		in->at++;
		*ret = *ret << 4 | (unsigned)digit;
	}
	return true;
}

static bool take_unicode(struct json_in *in, unsigned *ret)
{
	const char *from = in->at - 2; /* of the backslash */
	unsigned low = 0;
	if (!take_hex4(in, ret))
		return false;
	if (*ret < 0xd800 || *ret > 0xdfff)
		return true;
	bool is_high = *ret < 0xdc00 && in->end - in->at >= 2 && in->at[0] == '\\' && in->at[1] == 'u';
	if (is_high) {
		in->at += 2;
		if (!take_hex4(in, &low))
			return false;
	}
	if (low < 0xdc00 || low > 0xdfff) {
		in->at = from;
		return fail(in, "a \\u escape is half of a surrogate pair");
	}
	*ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

static size_t encode(unsigned c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* What follows a backslash, as UTF-8; 0 on an error. */
static size_t take_escape(struct json_in *in, char out[4])
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	unsigned c;
	if (in->at == in->end)
		return fail(in, "a string has no end");
	char letter = *in->at++;
	if (letter == 'u')
		return take_unicode(in, &c) ? encode(c, out) : 0;
	const char *found = letter ? strchr(names, letter) : NULL;
	if (!found)
		return fail(in, "a backslash must be followed by one of \"\\/bfnrtu");
	out[0] = values[found - names];
	return 1;
}

/* Bytes that stand for themselves, up to a quote or a backslash. */
static bool take_plain(struct json_in *in, struct str *ret)
{
	const char *from = in->at;
	bool ascii = true;
	while (in->at < in->end && *in->at != '"' && *in->at != '\\') {
		unsigned char c = (unsigned char)*in->at;
		if (c < 0x20)
			return fail(in, "a string has a control character");
		ascii &= c < 0x80;
		in->at++;
	}
	*ret = str_n(from, (size_t)(in->at - from));
	for (size_t i = 0; !ascii && i < ret->len;) {
		size_t n = utf8_first(str_n(ret->ptr + i, ret->len - i));
		if (n == 0) {
			in->at = ret->ptr + i;
			return fail(in, "a string has a byte that is not UTF-8");
		}
		i += n;
	}
	return true;
}

bool json_in_string(struct json_in *in, char *scratch, size_t room, struct str *ret, bool *ret_whole)
{
	struct str plain;
	size_t len = 0;
	*ret_whole = true;
	if (!take(in, '"', "a string was expected") || !take_plain(in, &plain))
		return false;
	if (in->at < in->end && *in->at == '"') {
		in->at++;
		*ret = plain;
		return true;
	}
	for (;;) {
		char escaped[4];
		if (in->at == in->end)
			return fail(in, "a string has no end");
		*ret_whole &= len + plain.len <= room;
		if (*ret_whole && plain.len > 0)
			memcpy(scratch + len, plain.ptr, plain.len);
		len += *ret_whole ? plain.len : 0;
		if (*in->at++ == '"')
			break;
		size_t n = take_escape(in, escaped);
		if (n == 0)
			return false;
		*ret_whole &= len + n <= room;
		if (*ret_whole)
			memcpy(scratch + len, escaped, n);
		len += *ret_whole ? n : 0;
		if (!take_plain(in, &plain))
			return false;
	}
	*ret = str_n(scratch, len);
	return true;
}

bool json_in_name(struct json_in *in, char *scratch, size_t room, struct str *ret)
{
	bool whole;
	skip_space(in);
	if (in->at < in->end && *in->at != '"')
		return fail(in, "a name in double quotes was expected");
	if (!json_in_string(in, scratch, room, ret, &whole) || !take(in, ':', "a colon was expected"))
		return false;
	if (!whole)
		*ret = STR_NULL;
	return true;
}

/* Numbers and the rest */

static size_t take_digits(struct json_in *in)
{
	const char *from = in->at;
	while (in->at < in->end && *in->at >= '0' && *in->at <= '9')
		in->at++;
	return (size_t)(in->at - from);
}

/* The value of DIGITS.FRACTION times ten to the power of `exponent`. False: it is not whole, or too large. */
static bool whole_value(struct str digits, struct str fraction, int64_t exponent, int64_t *ret)
{
	int64_t value = 0, before_point = (int64_t)digits.len + exponent;
	for (size_t i = 0; i < digits.len + fraction.len; i++, before_point--) {
		int digit = (i < digits.len ? digits.ptr[i] : fraction.ptr[i - digits.len]) - '0';
		if (before_point <= 0 ? digit != 0
		                      : __builtin_mul_overflow(value, 10, &value) ||
		                            __builtin_add_overflow(value, digit, &value))
			return false;
	}
	for (; value != 0 && before_point > 0; before_point--) {
		if (__builtin_mul_overflow(value, 10, &value))
			return false;
	}
	*ret = value;
	return true;
}

static bool take_exponent(struct json_in *in, int64_t *ret)
{
	bool negative = in->at < in->end && *in->at == '-';
	in->at += in->at < in->end && (*in->at == '+' || *in->at == '-');
	const char *from = in->at;
	uint64_t n = 0;
	if (take_digits(in) == 0)
		return false;
	if (!str_u64(str_n(from, (size_t)(in->at - from)), &n) || n > INT32_MAX)
		n = INT32_MAX; /* more than any text has digits */
	*ret = negative ? -(int64_t)n : (int64_t)n;
	return true;
}

enum json_in_kind json_in_number(struct json_in *in, int64_t *ret)
{
	skip_space(in);
	bool negative = in->at < in->end && *in->at == '-';
	in->at += negative;
	struct str digits = str_n(in->at, 0), fraction = {0};
	int64_t exponent = 0;
	digits.len = take_digits(in);
	if (digits.len == 0)
		return fail(in, "a digit was expected"), JSON_IN_NONE;
	if (digits.len > 1 && *digits.ptr == '0') {
		in->at = digits.ptr;
		return fail(in, "a number must not begin with 0"), JSON_IN_NONE;
	}
	if (in->at < in->end && *in->at == '.') {
		fraction.ptr = ++in->at;
		fraction.len = take_digits(in);
		if (fraction.len == 0)
			return fail(in, "a number needs a digit after its point"), JSON_IN_NONE;
	}
	if (in->at < in->end && (*in->at == 'e' || *in->at == 'E')) {
		in->at++;
		if (!take_exponent(in, &exponent))
			return fail(in, "a number needs a digit in its exponent"), JSON_IN_NONE;
	}
	int64_t value;
	if (!whole_value(digits, fraction, exponent, &value))
		return JSON_IN_NUMBER;
	*ret = negative ? -value : value;
	return JSON_IN_INTEGER;
}

static bool skip_word(struct json_in *in, struct str word)
{
	if ((size_t)(in->end - in->at) < word.len || memcmp(in->at, word.ptr, word.len) != 0)
		return fail(in, "a value was expected");
	in->at += word.len;
	return true;
}

static bool skip_scalar(struct json_in *in, enum json_in_kind kind)
{
	struct str ignored;
	bool whole;
	int64_t number;
	switch (kind) {
	case JSON_IN_STRING: return json_in_string(in, NULL, 0, &ignored, &whole);
	case JSON_IN_NUMBER: return json_in_number(in, &number) != JSON_IN_NONE;
	case JSON_IN_TRUE: return skip_word(in, STR("true"));
	case JSON_IN_FALSE: return skip_word(in, STR("false"));
	case JSON_IN_NULL: return skip_word(in, STR("null"));
	default: return false;
	}
}

bool json_in_skip(struct json_in *in)
{
	char open[JSON_IN_DEPTH_MAX];
	size_t depth = 0;
	bool first = false;
	struct str name;
	for (;;) {
		enum json_in_kind kind = json_in_peek(in);
		if (kind == JSON_IN_OBJECT || kind == JSON_IN_ARRAY) {
			if (depth == JSON_IN_DEPTH_MAX)
				return fail(in, "values are nested too deeply");
			open[depth++] = *in->at++;
			first = true;
		} else if (!skip_scalar(in, kind)) {
			return false;
		}
		while (depth > 0 && !json_in_more(in, open[depth - 1], &first)) {
			if (in->wrong)
				return false;
			depth--;
		}
		if (depth == 0)
			return !in->wrong;
		if (open[depth - 1] == '{' && !json_in_name(in, NULL, 0, &name))
			return false;
	}
}
