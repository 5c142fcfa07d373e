/*
 * "did you mean ...?": the known name nearest to a mistyped one, by edit distance. Commands, options, flags,
 * variables, sections and file keys all use it.
 */
#pragma once

#include "base/str.h"

enum { SUGGEST_BYTES = 96 };

struct suggestion {
	struct str typed;
	unsigned distance;        /* of `best`; a name must be nearer than this to replace it */
	char best[SUGGEST_BYTES]; /* "": no name is near */
	char text[SUGGEST_BYTES + 16];
};

void suggest_init(struct suggestion *s, struct str typed);
void suggest_offer(struct suggestion *s, const char *known); /* call it for every known name */

/* "did you mean NAME?", or `otherwise` when no name is near. Lives as long as `s`. */
const char *suggest_text(struct suggestion *s, const char *otherwise);
