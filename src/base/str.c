#include "base/str.h"

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
