/* What a check of many things found: for each a name, a verdict and a sentence. */
#pragma once

#include "base/def.h"

enum verdict {
	VERDICT_OK,
	VERDICT_NOTE, /* nothing is wrong, but people should know */
	VERDICT_BAD,
};

struct findings {
	/* One thing was checked. */
	void (*found)(struct findings *, enum verdict, const char *name, const char *detail);
	/* The check of a thing begins or goes on; NULL: nobody watches. */
	void (*busy)(struct findings *, const char *name);
	size_t bad_count;
};

void findings_add(struct findings *f, enum verdict verdict, const char *name, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

static inline void findings_busy(struct findings *f, const char *name)
{
	if (f->busy)
		f->busy(f, name);
}
