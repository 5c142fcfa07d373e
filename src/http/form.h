/* Bodies of HTML forms: application/x-www-form-urlencoded. */
#pragma once

#include "base/arena.h"
#include "http/request.h"

/* Does the request say that its body is a form, and is it no JSON object either? */
bool http_is_form(const struct http_request *req);

/* A field's value, decoded into the arena; STR_NULL when it is absent, malformed or memory ran out; the first
 * when there are several. */
struct str http_form_field(struct str body, struct str name, struct arena *arena);
