#include "config/names.h"

#include <stdio.h>

static void replace(char *text, char from, char to)
{
	for (; *text; text++) {
		if (*text == from)
			*text = to;
	}
}

void conf_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES])
{
	snprintf(out, CONF_NAME_BYTES, "--%s-%s", row->section, row->name);
	replace(out, '_', '-');
}

void conf_short_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES])
{
	out[0] = '\0';
	if (strcmp(row->section, "serve") == 0) {
		snprintf(out, CONF_NAME_BYTES, "--%s", row->name);
		replace(out, '_', '-');
	}
}

void conf_env_name(const struct conf_row *row, char out[CONF_NAME_BYTES])
{
	snprintf(out, CONF_NAME_BYTES, "CURT_%s_%s", row->section, row->name);
	for (char *c = out; *c; c++) {
		if (*c >= 'a' && *c <= 'z')
			*c = (char)(*c - 'a' + 'A');
	}
}

/* How many letters must be added, removed or changed. Names beyond the bound are near to nothing. */
static unsigned edit_distance(struct str a, struct str b)
{
	unsigned row[CONF_NAME_BYTES];
	if (a.len >= CONF_NAME_BYTES || b.len >= CONF_NAME_BYTES)
		return CONF_NAME_BYTES;
	for (unsigned j = 0; j <= b.len; j++)
		row[j] = j;
	for (unsigned i = 1; i <= a.len; i++) {
		unsigned diagonal = row[0];
		row[0] = i;
		for (unsigned j = 1; j <= b.len; j++) {
			unsigned above = row[j];
			unsigned change = diagonal + (a.ptr[i - 1] != b.ptr[j - 1]);
			unsigned other = MIN(above, row[j - 1]) + 1;
			row[j] = MIN(change, other);
			diagonal = above;
		}
	}
	return row[b.len];
}

void conf_nearest_init(struct conf_nearest *n, struct str typed)
{
	/* A third of the letters may be wrong, but one always may, and four never. */
	unsigned allowed = (unsigned)MIN(MAX(typed.len / 3, 1), 3);
	*n = (struct conf_nearest){.typed = typed, .distance = allowed + 1};
}

void conf_nearest_offer(struct conf_nearest *n, const char *known)
{
	unsigned distance = edit_distance(n->typed, str_of(known));
	if (distance < n->distance) {
		n->distance = distance;
		snprintf(n->best, sizeof(n->best), "%s", known);
	}
}
