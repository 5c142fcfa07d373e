#include "config/suggest.h"

#include <stdio.h>

/* How many letters must be added, removed, changed, or swapped with the next one. A name beyond the bound is
 * near to nothing. */
static unsigned edit_distance(struct str a, struct str b)
{
	unsigned rows[3][SUGGEST_BYTES]; /* row i is rows[i % 3] */
	if (a.len >= SUGGEST_BYTES || b.len >= SUGGEST_BYTES)
		return SUGGEST_BYTES;
	for (unsigned i = 0; i <= a.len; i++) {
		unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
		row[0] = i;
		for (unsigned j = 1; j <= b.len; j++) {
			row[j] = i == 0 ? j : MIN(above[j], row[j - 1]) + 1;
			if (i > 0)
				row[j] = MIN(row[j], above[j - 1] + (a.ptr[i - 1] != b.ptr[j - 1]));
			if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1])
				row[j] = MIN(row[j], above2[j - 2] + 1);
		}
	}
	return rows[a.len % 3][b.len];
}

void suggest_init(struct suggestion *s, struct str typed)
{
	/* A third of the letters may be wrong: at least one, at most three. */
	unsigned allowed = (unsigned)MIN(MAX(typed.len / 3, 1), 3);
	*s = (struct suggestion){.typed = typed, .distance = allowed + 1};
}

void suggest_offer(struct suggestion *s, const char *known)
{
	unsigned distance = edit_distance(s->typed, str_of(known));
	if (distance < s->distance) {
		s->distance = distance;
		snprintf(s->best, sizeof(s->best), "%s", known);
	}
}

const char *suggest_text(struct suggestion *s, const char *otherwise)
{
	snprintf(s->text, sizeof(s->text), "did you mean %s?", s->best);
	return s->best[0] ? s->text : otherwise;
}
