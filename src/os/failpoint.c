#include "os/failpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

bool failpoint_is_set;
static char wanted[64];
static _Atomic long passes_left;

void failpoint_init(void)
{
	const char *spec = getenv("CURT_FAILPOINT");
	if (!spec)
		return;
	const char *at = strchrnul(spec, '@');
	size_t len = (size_t)(at - spec);
	if (len == 0 || len >= sizeof(wanted))
		return;
	memcpy(wanted, spec, len);
	passes_left = *at ? strtol(at + 1, NULL, 10) : 1;
	failpoint_is_set = true;
}

void failpoint_pass(const char *name)
{
	if (strcmp(name, wanted) == 0 && atomic_fetch_sub(&passes_left, 1) == 1)
		raise(SIGKILL);
}
