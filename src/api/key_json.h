/* API keys as the outside sees them, in both directions. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

/* `text` is the key itself, shown once; STR_NULL leaves it out. */
void key_json(struct buf *b, const struct key_record *key, struct str text);

/* {"name", "admin"?, "creates_limit"?, "redirects_limit"?, "limit_period_s"?} */
int key_input_read(struct str body, struct arena *arena, struct key_record *ret, struct err *e);

/* The same bounds for the command line. */
int key_input_check(const struct key_record *key, struct err *e);
