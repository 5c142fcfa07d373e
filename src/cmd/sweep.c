#include "cmd/ask.h"
#include "cmd/command.h"

#include <unistd.h>

static const char usage[] =
    "usage: curt sweep [--json]\n"
    "\n"
    "Removes links whose time is over, a second's worth at a time, until none is left. A running server does "
    "this by itself\n"
    "(sweep.interval); it does no harm to do it now. Progress goes to the standard error.\n"
    "\n"
    "common options: --json, --data DIR, --server URL, --api-key KEY; see 'curt link --help'\n";

/* A line for each call; on a terminal the next one is written over it. */
static void print_progress(bool on_terminal, unsigned long long removed, unsigned long long remaining)
{
	fprintf(stderr, "removed %llu, %llu remain%s", removed, remaining, on_terminal ? "\033[K\r" : "\n");
}

static int sweep_all(struct client *c, unsigned long long *ret_removed)
{
	bool on_terminal = isatty(STDERR_FILENO);
	unsigned long long removed, remaining;
	int r;
	do {
		json_t *answer;
		r = ask(c, "POST", "/api/v1/sweep", NULL, false, &answer);
		removed = (unsigned long long)json_integer_value(json_object_get(answer, "removed"));
		remaining = (unsigned long long)json_integer_value(json_object_get(answer, "remaining"));
		json_decref(answer);
		*ret_removed += removed;
		if (r == 0)
			print_progress(on_terminal, *ret_removed, remaining);
	} while (r == 0 && remaining > 0 && removed > 0);
	if (on_terminal && r == 0)
		fputc('\n', stderr);
	if (r == 0 && remaining > 0)
		return cmd_fail("%llu links whose time is over remain, and the last call removed none of "
		                "them; look at the server's log",
		                remaining);
	return r;
}

static int run(const struct args *a)
{
	struct err e;
	struct client c;
	unsigned long long removed = 0;
	if (client_open(&c, &a->client, &e) < 0)
		return cmd_fail("%s", e.text);
	int r = sweep_all(&c, &removed);
	client_close(&c);
	if (r == 0 && a->json)
		printf("{\"removed\":%llu}\n", removed);
	else if (r == 0)
		printf("removed %llu link%s\n", removed, removed == 1 ? "" : "s");
	return r;
}

int cmd_sweep(int argc, char **argv)
{
	const struct arg_command command = {.usage = usage, .run = run};
	return args_run(&command, argc, argv, NULL);
}
