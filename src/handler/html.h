/* The few small pages that the engine itself serves: no scripts, no outside resources. */
#pragma once

#include "base/buf.h"
#include "http/request.h"

/* Content-Security-Policy for these pages. */
extern const struct http_field html_policy;

/* For pages with a form: browsers hold the policy against the redirect that follows it, too, and that one may
 * lead anywhere. */
extern const struct http_field html_form_policy;

void html_page_begin(struct buf *b, struct str title);
void html_page_end(struct buf *b);
void html_text(struct buf *b, struct str s); /* escaped, for text and attribute values in double quotes */
