/* The literals that a text must contain, in lower case, for a regular expression to match it. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct required_literal {
	struct required_literal *next;
	struct str text;
};

struct literal_set { /* at least one of its words is required */
	struct literal_set *next;
	struct required_literal *words;
};

/* A list of sets, all of which are required; NULL: nothing is. Constructs that are not understood add
 * nothing. `regex` must be valid for PCRE. All memory is from `mem`. ERR_NOMEM. */
int required_literals_find(struct arena *mem, struct str regex, struct literal_set **ret,
                           bool *ret_names_fixed);
