/* Bodies of HTML forms: application/x-www-form-urlencoded. */
#pragma once

#include "base/arena.h"
#include "http/request.h"

/* Whether the request says that its body is a form. A JSON object is not, whatever the request says. */
bool http_is_form(const struct http_request *req);

/* The first field of that name, decoded into the arena. STR_NULL when it is absent or malformed, or memory
 * ran out. */
struct str http_form_field(struct str body, struct str name, struct arena *arena);
