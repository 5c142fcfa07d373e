/*
 * Arguments of the subcommands that ask a server: words, the command's own options, --server, --api-key and
 * --json, and whatever else begins with -- is a setting (settings.h).
 */
#pragma once

#include "cmd/client.h"

enum { ARGS_WORDS_MAX = 8, ARGS_REPEATS_MAX = 32 };

struct arg_option {
	const char *name;    /* "--alias"; what follows a space or | is no part of it */
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

size_t args_option_len(const char *name);

struct record_options;

/* A subcommand: its options, what `--help` says, and what it does with its words. `run` gets `ctx`, where the
 * options' values are, and returns the exit status. With too few or too many words the usage is an error. */
struct arg_command {
	const struct arg_option *options;
	size_t option_count;
	struct record_options *record; /* and options of a record's fields; NULL: none */
	const char *usage;             /* up to these */
	const char *usage_end;         /* NULL: there is no more to say */
	int words_min, words_max;
	int (*run)(const struct args *a, const void *ctx);
};

int args_run(const struct arg_command *command, int argc, char **argv, const void *ctx);
