/* Finds the route of a request in one explicit table. */
#pragma once

#include "http/request.h"

enum { ROUTE_PARAMS_MAX = 4 };

/* A segment of `pattern` is literal, or a parameter such as `{key}`, which takes one non-empty segment. */
struct route {
	enum http_method method;
	const char *pattern;
	const void *target; /* the caller's */
};

struct route_match {
	const struct route *route; /* NULL: see `allowed` */
	unsigned allowed;          /* bits 1 << http_method: methods that the path has; 0: no such path */
	struct str params[ROUTE_PARAMS_MAX];
};

/* HEAD matches a GET route. A literal segment wins over a parameter, whatever the table's order. */
struct route_match route_find(const struct route *routes, size_t count, enum http_method method,
                              struct str path);

/* "GET, HEAD, POST" for the Allow field, from `allowed` (HEAD goes with GET, OPTIONS always); returns the
 * length. */
size_t route_allow(unsigned allowed, char out[96]);
