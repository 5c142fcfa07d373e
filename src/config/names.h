/* The flag and the variable of a row. Flags of section "serve" leave it out: --data; their variables may. */
#pragma once

#include "config/config.h"
#include "config/suggest.h"

enum { CONF_NAME_BYTES = SUGGEST_BYTES };

void conf_flag_name(const struct conf_row *row, char out[CONF_NAME_BYTES]); /* "--events-flush-ms" */
void conf_env_name(const struct conf_row *row, char out[CONF_NAME_BYTES]);  /* "CURT_EVENTS_FLUSH_MS" */
