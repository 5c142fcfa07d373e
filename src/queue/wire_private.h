/* What both directions of the wire format know. */
#pragma once

#include "queue/wire.h"

extern const char *const wire_kind_names[EVENT_VISIT_KINDS];
extern const char *const wire_source_names[EVENT_SOURCES];
#define WIRE_TALLY "tally" /* the kind of what is no visit */

static inline bool wire_is_country(const char country[2])
{
	return country[0] >= 'A' && country[0] <= 'Z' && country[1] >= 'A' && country[1] <= 'Z';
}
