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
	const void *ctx; /* where the values of the command's options are */
};

/* What stands behind a command's name and does the work: `curt link create`. */
struct arg_verb {
	const char *name;
	int words_min, words_max; /* with the verb itself */
	/* Before a server is asked: are the options right, and what is the password? NULL: no question. */
	int (*prepare)(const struct args *a);
	int (*run)(struct client *c, const struct args *a);
};

size_t args_option_len(const char *name);

struct record_options;

/* A subcommand: its options, what `--help` says, and what it does with its words: `run`, or what the first of
 * them says, with a server to ask. With too few or too many words the usage is an error. */
struct arg_command {
	const struct arg_option *options;
	size_t option_count;
	struct record_options *record; /* and options of a record's fields; NULL: none */
	const char *usage;             /* up to these */
	const char *usage_end;         /* NULL: there is no more to say */
	const struct arg_verb *verbs;  /* NULL: there are none */
	size_t verb_count;
	const char *name; /* with verbs: of the command */
	int words_max;    /* without */
	int (*run)(const struct args *a);
};

/* The exit status. */
int args_run(const struct arg_command *command, int argc, char **argv, const void *ctx);
