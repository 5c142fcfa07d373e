#include "base/findings.h"

#include <stdarg.h>
#include <stdio.h>

enum { DETAIL_BYTES = 8192 };

void findings_add(struct findings *f, enum verdict verdict, const char *name, const char *fmt, ...)
{
	char detail[DETAIL_BYTES];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	f->bad_count += verdict == VERDICT_BAD;
	f->found(f, verdict, name, detail);
}
