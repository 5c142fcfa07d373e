#include "cmd/command.h"
#include "os/failpoint.h"

#include <jansson.h>
#include <sodium.h>

const struct command root_command = {
    .name = "",
    .summary = "URL shortener with click and impression analytics",
    .subcommands = (const struct command *const[]){&serve_command, &link_command, &stats_command,
                                                   &user_command, &key_command, &sweep_command,
                                                   &worker_command, &keygen_command, &keysync_command,
                                                   &reshard_command, &verify_command, &doctor_command,
                                                   &help_command, &version_command, NULL},
};

int main(int argc, char **argv)
{
	if (sodium_init() < 0)
		return cmd_fail("the system gives no random numbers");
	failpoint_init();
	json_object_seed(0); /* before threads: jansson would seed itself lazily */
	int r = args_run(argc - 1, argv + 1);
	int flushed = cmd_flush();
	return r ? r : flushed;
}
