#include "cmd/command.h"

#include <stdio.h>

int cmd_version(int argc, char **argv)
{
	(void)argc, (void)argv;
	printf("curt %s\n", CURT_VERSION);
	return 0;
}
