#include "config/names.h"

#include <stdio.h>

/* The prefix, the section unless it is "serve", and the name, with `joint` between and inside them. */
static void join(const struct conf_row *row, const char *prefix, char joint, char out[CONF_NAME_BYTES])
{
	if (strcmp(row->section, "serve") == 0)
		snprintf(out, CONF_NAME_BYTES, "%s%s", prefix, row->name);
	else
		snprintf(out, CONF_NAME_BYTES, "%s%s_%s", prefix, row->section, row->name);
	for (char *c = out; *c; c++) {
		if (*c == '_')
			*c = joint;
	}
}

void conf_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES])
{
	join(row, "--", '-', out);
}

void conf_env_name(const struct conf_row *row, char out[CONF_NAME_BYTES])
{
	join(row, "CURT_", '_', out);
	for (char *c = out; *c; c++) {
		if (*c >= 'a' && *c <= 'z')
			*c = (char)(*c - 'a' + 'A');
	}
}
