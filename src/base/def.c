#include "base/def.h"

#include <stdio.h>
#include <stdlib.h>

void freep(char **p)
{
	free(*p);
}

void assert_failed(const char *what, const char *file, int line)
{
	fprintf(stderr, "curt: bug: %s is false at %s:%d\n", what, file, line);
	abort();
}
