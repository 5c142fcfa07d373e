/* The rules of uap-core, https://github.com/ua-parser/uap-core, which are linked into the program. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "stats/agent_rules.h"

/* Appends struct agent_rule items to `rules`; their texts are in `mem`. ERR_NOMEM, ERR_CORRUPT. */
int uap_rules_read(struct arena *mem, struct buf *rules);
