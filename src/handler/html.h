/* The small HTML pages of the server itself: no scripts, no external resources. */
#pragma once

#include "base/buf.h"
#include "http/request.h"

/* Content-Security-Policy for these pages. */
extern const struct http_field html_policy;

/* For pages with a form. Browsers apply the policy also to the redirect that answers the form, and that may
 * lead to any site. */
extern const struct http_field html_form_policy;

void html_page_begin(struct buf *b, struct str title);
void html_page_end(struct buf *b);
void html_text(struct buf *b, struct str s); /* escaped, for text and attribute values in double quotes */
