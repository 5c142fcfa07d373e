/*
 * Arguments of the subcommands that ask a server: words, the command's own options, --server, --api-key and
 * --json, and whatever else begins with -- is a setting (settings.h).
 */
#pragma once

#include "cmd/client.h"

enum { ARGS_WORDS_MAX = 8, ARGS_REPEATS_MAX = 32 };

struct arg_option {
	const char *name;    /* "--alias" */
	const char **value;  /* takes a value: it goes here */
	bool *flag;          /* takes none: this becomes true */
	const char **repeat; /* may come several times: ARGS_REPEATS_MAX values at most, then NULL */
};

struct args {
	const char *words[ARGS_WORDS_MAX];
	int word_count;
	bool json;
	bool help;
	struct client_options client;
};

/* The settings' array is the caller's to free (args.client.settings). */
int args_parse(struct args *a, int argc, char **argv, const struct arg_option *options, size_t count,
               struct err *e);
