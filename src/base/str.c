#include "base/str.h"

int str_order(struct str a, struct str b)
{
	size_t len = MIN(a.len, b.len);
	int order = len > 0 ? memcmp(a.ptr, b.ptr, len) : 0;
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

bool str_eq_nocase(struct str a, struct str b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++) {
		if (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[i]))
			return false;
	}
	return true;
}

bool str_starts(struct str s, struct str prefix)
{
	return s.len >= prefix.len && str_eq(str_n(s.ptr, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
	return s.len >= suffix.len && str_eq(str_n(s.ptr + s.len - suffix.len, suffix.len), suffix);
}

struct str str_trim(struct str s)
{
	while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
		s.ptr++;
		s.len--;
	}
	while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
		s.len--;
	return s;
}

struct str str_cut(struct str *s, char sep)
{
	struct str whole = *s;
	const char *at = whole.len ? memchr(whole.ptr, sep, whole.len) : NULL;
	if (!at) {
		*s = STR_NULL;
		return whole;
	}
	size_t before = (size_t)(at - whole.ptr);
	*s = str_n(at + 1, whole.len - before - 1);
	return str_n(whole.ptr, before);
}

static bool begins_with_scheme(struct str s)
{
	size_t len = 0;
	while (len < s.len &&
	       ((ascii_lower(s.ptr[len]) >= 'a' && ascii_lower(s.ptr[len]) <= 'z') || s.ptr[len] == '+'))
		len++;
	return len > 0 && str_starts(str_n(s.ptr + len, s.len - len), STR("://"));
}

struct str str_cut_url(struct str *s)
{
	for (size_t i = 0; i < s->len; i++) {
		struct str rest = str_n(s->ptr + i + 1, s->len - i - 1);
		if (s->ptr[i] != ',' || !begins_with_scheme(str_trim(rest)))
			continue;
		struct str first = str_n(s->ptr, i);
		*s = rest;
		return str_trim(first);
	}
	struct str last = *s;
	*s = STR_NULL;
	return str_trim(last);
}

bool str_u64(struct str s, uint64_t *ret)
{
	uint64_t value = 0;
	if (s.len == 0)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		unsigned digit = (unsigned)(s.ptr[i] - '0');
		if (digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	*ret = value;
	return true;
}

int str_take_decoded(struct str *s)
{
	size_t used = 1;
	int c = (unsigned char)s->ptr[0];
	if (c == '%') {
		int high = s->len > 2 ? ascii_hex(s->ptr[1]) : -1;
		int low = high >= 0 ? ascii_hex(s->ptr[2]) : -1;
		if (low < 0)
			return -1;
		c = high << 4 | low;
		used = 3;
	}
	*s = str_n(s->ptr + used, s->len - used);
	return c;
}

bool str_percent_decode(struct str s, char *out, size_t *ret_len)
{
	size_t len = 0;
	while (s.len > 0) {
		bool is_encoded = *s.ptr == '%';
		int c = str_take_decoded(&s);
		if (c < 0 || (c == 0 && is_encoded))
			return false;
		out[len++] = (char)c;
	}
	*ret_len = len;
	return true;
}
