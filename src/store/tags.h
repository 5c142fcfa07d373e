/* A link's tags, read one by one. For backends only. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * Calls `fn` for each name in a link's tags (`link_record.tags`, a JSON array of strings), in order; one that
 * is named twice comes twice. The name is decoded and valid during the call. At anything that does not belong
 * into such an array it ends, so the same text always gives the same names.
 *
 * 0; or what `fn` returned when that was not 0, at once; or ERR_NOMEM, after which some may not have come.
 */
int tags_each(struct str tags, int (*fn)(void *ctx, struct str name), void *ctx);
