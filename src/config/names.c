#include "config/names.h"

#include <stdio.h>

void conf_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES])
{
	if (strcmp(row->section, "serve") == 0)
		snprintf(out, CONF_NAME_BYTES, "--%s", row->name);
	else
		snprintf(out, CONF_NAME_BYTES, "--%s-%s", row->section, row->name);
	for (char *c = out; *c; c++) {
		if (*c == '_')
			*c = '-';
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
