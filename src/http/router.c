/*
 * A linear walk over the table: it has some dozens of rows, and most differ from a path in the first segment.
 * The path is decided before the method. Where a literal route fits, one with a parameter does not count: so
 * `GET /event` is "wrong method" and not "no such short link".
 */
#include "http/router.h"

#include <stdio.h>

/*
 * A pattern that fits a path. `rank` has a bit for each segment, the first on top, set where the pattern is
 * literal: of two patterns that fit one path, the higher rank is the more literal from the left, and equal
 * ranks mean the same pattern.
 */
struct fit {
	uint64_t rank;
	size_t param_count;
	struct str params[ROUTE_PARAMS_MAX];
};

static bool pattern_fits(const char *pattern, struct str path, struct fit *ret)
{
	const char *at = path.ptr;
	const char *end = path.ptr + path.len;
	ret->rank = 0;
	ret->param_count = 0;
	while (*pattern) {
		if (*pattern == '{') {
			const char *start = at;
			while (at < end && *at != '/')
				at++;
			if (at == start)
				return false;
			ASSERT(ret->param_count < ROUTE_PARAMS_MAX);
			ret->params[ret->param_count++] = str_n(start, (size_t)(at - start));
			ret->rank &= ~(uint64_t)1;
			pattern = strchr(pattern, '}') + 1;
			continue;
		}
		if (at == end || *at != *pattern)
			return false;
		if (*at == '/') /* begins a segment, which is literal unless a parameter comes */
			ret->rank = ret->rank << 1 | 1;
		at++;
		pattern++;
	}
	return at == end;
}

struct route_match route_find(const struct route *routes, size_t count, enum http_method method,
                              struct str path)
{
	struct route_match match = {0};
	uint64_t best = 0;
	for (size_t i = 0; i < count; i++) {
		const struct route *r = &routes[i];
		struct fit fit;
		if (!pattern_fits(r->pattern, path, &fit) || (match.allowed && fit.rank < best))
			continue;
		if (!match.allowed || fit.rank > best) {
			match = (struct route_match){0};
			memcpy(match.params, fit.params, fit.param_count * sizeof(fit.params[0]));
			best = fit.rank;
		}
		match.allowed |= 1U << r->method;
		if (r->method == method || (method == HTTP_HEAD && r->method == HTTP_GET && !match.route))
			match.route = r;
	}
	return match;
}

size_t route_allow(unsigned allowed, char out[96])
{
	int len = 0;
	if (allowed & 1U << HTTP_GET)
		allowed |= 1U << HTTP_HEAD;
	allowed |= 1U << HTTP_OPTIONS;
	for (int m = 0; m < HTTP_METHOD_OTHER; m++) {
		if (allowed & 1U << m)
			len += snprintf(out + len, 96 - (size_t)len, "%s%s", len ? ", " : "",
			                http_method_name((enum http_method)m));
	}
	return (size_t)len;
}
