/* Parses the tags of a link. For backends. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * Calls `fn` for each name in link_record.tags, a JSON array of strings, in order and with duplicates. The
 * name is decoded, and valid during the call. Parsing stops at the first invalid byte, so the same text
 * always yields the same names.
 *
 * Returns 0, the first nonzero result of `fn`, or ERR_NOMEM (then names may be missing).
 */
int tags_each(struct str tags, int (*fn)(void *ctx, struct str name), void *ctx);
