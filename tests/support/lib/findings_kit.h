/* Collects what a check found, as text: one line of name and detail for each. */
#pragma once

#include "base/buf.h"
#include "base/findings.h"

#include <stdio.h>

struct findings_kit {
	struct findings base;
	struct buf *report; /* NULL: what is BAD goes to standard error */
};

static inline void findings_kit_found(struct findings *f, enum verdict verdict, const char *name,
                                      const char *detail)
{
	struct buf *report = container_of(f, struct findings_kit, base)->report;
	if (report)
		buf_printf(report, "%s: %s\n", name, detail);
	else if (verdict == VERDICT_BAD)
		fprintf(stderr, "%s: %s\n", name, detail);
}

static inline struct findings_kit findings_kit(struct buf *report_or_null)
{
	return (struct findings_kit){.base = {.found = findings_kit_found}, .report = report_or_null};
}
