/* A row's names on the outside, and the known name that a mistyped one most resembles. */
#pragma once

#include "config/config.h"

enum { CONF_NAME_BYTES = 96 };

void conf_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES]); /* "--events-flush-ms" */
void conf_env_name(const struct conf_row *row, char out[CONF_NAME_BYTES]);  /* "CURT_EVENTS_FLUSH_MS" */

/* Rows of section "serve" also answer to "--name": then this is that; otherwise "". */
void conf_short_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES]);

/* Offer every known name; `best` is "" when none is near. */
struct conf_nearest {
	struct str typed;
	unsigned distance;
	char best[CONF_NAME_BYTES];
};

void conf_nearest_init(struct conf_nearest *n, struct str typed);
void conf_nearest_offer(struct conf_nearest *n, const char *known);
