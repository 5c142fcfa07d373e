#include "cmd/ask.h"

#include <unistd.h>

/* A line for each call; on a terminal the next one overwrites it. */
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
		return cmd_fail("%llu expired links remain, and the last call removed none of them; see the "
		                "server's log",
		                remaining);
	return r;
}

static int sweep(struct client *c, struct args *a)
{
	unsigned long long removed = 0;
	int r = sweep_all(c, &removed);
	if (r == 0 && args_has(a, "--json"))
		printf("{\"removed\":%llu}\n", removed);
	else if (r == 0)
		printf("removed %llu link%s\n", removed, removed == 1 ? "" : "s");
	return r;
}

const struct command sweep_command = {
    .name = "sweep",
    .summary = "Remove expired links now",
    .details = "A running server does this by itself, every sweep.interval. Progress goes to standard error.",
    .ask = sweep,
};
