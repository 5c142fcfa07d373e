/*
 * The table of commands: what each is called, takes and does. The parser (args.c), the help texts,
 * docs/cli.md, curt(1) (help.c) and the completion of shells (completion.c) all come from it.
 *
 * Exit status: 0 success, EXIT_FAILED, EXIT_USAGE when the command line is wrong.
 */
#pragma once

#include "cmd/secret.h"
#include "config/suggest.h"
#include "store/fields.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct args;
struct client;

struct command_option {
	const char *name; /* "--all", or "--limit N" with a value */
	const char *help;
};

struct command {
	const char *name;                     /* in full: "link create" */
	const char *arguments;                /* "KEY USER", "KEY...", "[KEY]"; NULL: none */
	const char *summary;                  /* one line: a sentence without its full stop */
	const char *details;                  /* paragraphs, one a line; NULL: none */
	const char *examples;                 /* command lines, one a line; NULL: none */
	const struct command_option *options; /* up to one without a name; NULL: none */
	const struct fields *fields;          /* these are options too: of a link, a user or an API key, */
	unsigned field_flag;                  /* that have this flag: FIELD_CREATE or FIELD_PATCH, */
	const char *argument_field;           /* except the one that the first argument gives */
	bool takes_settings;                  /* reads all settings: its help lists them */
	const struct command *const
	    *subcommands;               /* up to NULL; a command with subcommands does nothing else */
	int (*prepare)(struct args *a); /* before a server is asked: NULL, or checks and passwords */
	int (*ask)(struct client *c, struct args *a); /* asks a server; or: */
	int (*run)(struct args *a);
};

/* All commands; its name is empty. */
extern const struct command root_command;

extern const struct command serve_command, link_command, stats_command, user_command, key_command,
    sweep_command, worker_command, keygen_command, keysync_command, reshard_command, verify_command,
    doctor_command, help_command, version_command;

/* The subcommand `word` of `parent`; NULL: there is none, and `nearest` has the nearest. */
const struct command *command_find(const struct command *parent, const char *word,
                                   struct suggestion *nearest);
const char *command_word(const struct command *c);    /* the last word of its name */
bool command_takes_settings(const struct command *c); /* or asks a server, which may be its own */

/* Calls `visit` for each option of a command but --help and settings. Field options have a `field`. */
typedef void option_visit(void *ctx, const struct command_option *o, const struct field *field);
void command_options(const struct command *c, option_visit *visit, void *ctx);
size_t option_len(const char *name); /* without its value, and of two flags the first */

void help_put(const struct command *c, struct buf *out); /* what `curt help` prints of it */
/* False: the shell is not bash, zsh or fish. */
bool completion_put(const char *shell, struct buf *out);

/* Does an empty value of its option mean none? Where "none" could be meant as a value. */
static inline bool field_takes_empty(const struct field *f)
{
	return f->type == FIELD_TAGS || (f->type == FIELD_TEXT && f->flags & FIELD_NULL && !f->none);
}

/* What follows the command's name, checked against the table. */
struct args {
	const struct command *command;
	const char **words; /* the arguments */
	int word_count;
	struct arg_given {
		struct str name;   /* "--alias" */
		const char *value; /* NULL: the option takes none */
	} * given;
	size_t given_count;
	char **settings; /* flags of settings and their values */
	int setting_count;
	struct secret secret; /* a password that the user has typed */
};

/* Runs the command that the arguments name; returns the exit status. */
int args_run(int argc, char **argv);

/* The value of an option, the last one when it was repeated; NULL: it was not given. */
const char *args_value(const struct args *a, const char *option);
bool args_has(const struct args *a, const char *option);

/* Prints "curt: ..." on standard error and returns the status. */
int cmd_end(int status, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define cmd_fail(...)  cmd_end(EXIT_FAILED, __VA_ARGS__)
#define cmd_usage(...) cmd_end(EXIT_USAGE, __VA_ARGS__)

/* EXIT_USAGE for a word that is no subcommand or option of `parent`. */
int cmd_unknown(const struct command *parent, const char *word, struct suggestion *nearest);

/* EXIT_USAGE, with the nearest, unless the text is one of the words. `option` is "--step", or an argument. */
int cmd_check_word(struct str option, struct str text, const char *const *words);

/* Flushes standard output: 0, or EXIT_FAILED with a message when the output could not be written. */
int cmd_flush(void);
