/* What a text must contain, in lower case, for a regular expression to match it. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct required_literal {
	struct required_literal *next;
	struct str text;
};

struct agent_need { /* one of its words must be there */
	struct agent_need *next;
	struct required_literal *words;
};

/* All needs must be met, so none (NULL) promises nothing. What is not understood is not promised;
 * `regex` must be one that PCRE accepts. Everything is in `mem`. ERR_NOMEM. */
int required_literals_find(struct arena *mem, struct str regex, struct agent_need **ret,
                           bool *ret_names_fixed);
