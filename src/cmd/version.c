#include "cmd/command.h"
#include "server/backends.h"

#include <stdio.h>

#ifndef CURT_COMMIT
#define CURT_COMMIT "" /* built without git */
#endif

static int print(struct args *a)
{
	(void)a;
	struct buf CLEANUP(buf_release) backends = {0};
	backend_list(&backends);
	printf("curt %s%s%s\n%.*s", CURT_VERSION, CURT_COMMIT[0] ? ", commit " : "", CURT_COMMIT,
	       STR_ARG(buf_view(&backends)));
	return 0;
}

const struct command version_command = {
    .name = "version",
    .summary = "Print the version, the commit it was built from, and the backends it has",
    .run = print,
};
