/*
 * Query parameters of API routes. A route declares those that it takes (api/routes.c). An unknown parameter
 * must not be ignored: a misspelt filter would give numbers of everything.
 */
#pragma once

#include "http/conn.h"

/* For routes that take any query, such as addresses that visitors and monitoring request. */
#define QUERY_ANY "*"

/* `known`: the names, separated by commas. False: a parameter is unknown or appears twice, answered with
 * 400. */
bool query_params_check(struct http_conn *c, struct str query, const char *known);

/* A parameter, decoded, in the arena; STR_NULL: not given. ERR_INVALID with a sentence, or ERR_NOMEM. */
int query_param_text(struct str query, const char *name, struct arena *arena, struct str *ret, struct err *e);
