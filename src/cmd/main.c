#include "base/def.h"
#include "cmd/command.h"
#include "os/failpoint.h"

#include <jansson.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
    {"serve", cmd_serve, "serve redirects and the API"},
    {"link", cmd_link, "create, get, list, update or delete links; say who may follow them"},
    {"stats", cmd_stats, "show clicks and impressions"},
    {"user", cmd_user, "add, list, change, disable or sign out users"},
    {"key", cmd_key, "create, list or revoke API keys"},
    {"sweep", cmd_sweep, "remove links whose time is over"},
    {"worker", cmd_worker, "take events from the queue and count them"},
    {"keygen", cmd_keygen, "keep databases filled with keys for new links"},
    {"keysync", cmd_keysync, "keep Redis servers filled with keys from the databases"},
    {"reshard", cmd_reshard, "spread the links over other databases"},
    {"verify", cmd_verify, "check the event log and the databases for damage"},
    {"doctor", cmd_doctor, "look for problems with this machine and the data folder"},
    {"version", cmd_version, "print the version"},
};

int cmd_fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("curt: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	return 1;
}

static void print_usage(FILE *to)
{
	fputs("usage: curt COMMAND [ARGUMENT]...\n\n", to);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].help);
	fputs("\n'curt COMMAND --help' tells more about one of them.\n", to);
}

int main(int argc, char **argv)
{
	if (sodium_init() < 0)
		return cmd_fail("the system gives no random numbers");
	failpoint_init();
	json_object_seed(0); /* before threads: jansson would seed itself lazily */
	if (argc < 2) {
		print_usage(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		print_usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0)
		return cmd_version(0, NULL);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 2, argv + 2);
	}
	cmd_fail("there is no command '%s'", argv[1]);
	print_usage(stderr);
	return 2;
}
