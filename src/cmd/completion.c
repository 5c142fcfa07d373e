/*
 * Completion of commands, subcommands, options and settings' flags. The script for bash and zsh is one `case`
 * over the command that the line holds so far; fish has a line for each word.
 */
#include "cmd/command.h"
#include "server/settings.h"

static void put_name(void *ctx, const struct command_option *o, const struct field *f)
{
	(void)f;
	buf_printf(ctx, " %.*s", (int)option_len(o->name), o->name);
}

/* A branch for each command: what may come next. */
static void put_branches(const struct command *c, struct buf *out)
{
	buf_printf(out, "\t'%s') commands='", c->name);
	for (const struct command *const *s = c->subcommands; s && *s; s++)
		buf_printf(out, "%s%s", s == c->subcommands ? "" : " ", command_word(*s));
	buf_str(out, STR("' options='--help"));
	command_options(c, put_name, out);
	buf_printf(out, "'%s ;;\n", command_takes_settings(c) ? " flags=1" : "");
	for (const struct command *const *s = c->subcommands; s && *s; s++)
		put_branches(*s, out);
}

/* From `line`, the words before the cursor, and `current`, the one at it, to `offers`. */
static void put_cases(struct buf *out)
{
	buf_str(out, STR("\tlocal at= word commands= options= flags= offers\n"
	                 "\tfor word in \"${line[@]}\"; do\n"
	                 "\t\tcase \"${at:+$at }$word\" in\n\t\t"));
	for (const struct command *const *c = root_command.subcommands; *c; c++) {
		buf_printf(out, "%s'%s'", c == root_command.subcommands ? "" : " | ", (*c)->name);
		for (const struct command *const *s = (*c)->subcommands; s && *s; s++)
			buf_printf(out, " | '%s'", (*s)->name);
	}
	buf_str(out, STR(") at=${at:+$at }$word ;;\n\t\tesac\n\tdone\n\tcase $at in\n"));
	put_branches(&root_command, out);
	buf_str(out, STR("\tesac\n\t[ -z \"$flags\" ] || options=\"$options --config "));
	settings_put(conf_flags, out);
	buf_str(out,
	        STR("\"\n\tcase $current in\n\t-*) offers=$options ;;\n\t*) offers=$commands ;;\n\tesac\n"));
}

static void put_bash(struct buf *out)
{
	buf_str(out, STR("# bash completion for curt\n_curt()\n{\n"
	                 "\tlocal current=$2 line=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n"));
	put_cases(out);
	/* Without an offer, bash completes file names. */
	buf_str(out, STR("\tmapfile -t COMPREPLY < <(compgen -W \"$offers\" -- \"$current\")\n"
	                 "}\ncomplete -o default -F _curt curt\n"));
}

static void put_zsh(struct buf *out)
{
	buf_str(out, STR("#compdef curt\n_curt()\n{\n"
	                 "\tlocal current=$PREFIX line=(\"${words[@]:1:$((CURRENT - 2))}\")\n"));
	put_cases(out);
	buf_str(out, STR("\tif [ -n \"$offers\" ]; then compadd -- ${=offers}; else _files; fi\n"
	                 "}\n_curt \"$@\"\n"));
}

/* 'text' with its quotes escaped. */
static void put_quoted(struct buf *out, const char *text)
{
	buf_char(out, '\'');
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			buf_char(out, '\\');
		buf_char(out, *text);
	}
	buf_char(out, '\'');
}

struct fish {
	const struct command *command;
	struct buf *out;
};

/* Holds when the line is at this command. */
static void put_condition(const struct command *c, struct buf *out)
{
	const char *space = strchr(c->name, ' ');
	if (!c->name[0]) {
		buf_str(out, STR("complete -c curt -n __fish_use_subcommand"));
		return;
	}
	buf_printf(out, "complete -c curt -n '__fish_seen_subcommand_from %.*s", (int)strcspn(c->name, " "),
	           c->name);
	if (space)
		buf_printf(out, "; and __fish_seen_subcommand_from%s", space);
	if (c->subcommands)
		buf_str(out, STR("; and not __fish_seen_subcommand_from"));
	for (const struct command *const *s = c->subcommands; s && *s; s++)
		buf_printf(out, " %s", command_word(*s));
	buf_char(out, '\'');
}

static void put_fish_option(void *ctx, const struct command_option *o, const struct field *f)
{
	const struct fish *fish = ctx;
	(void)f;
	put_condition(fish->command, fish->out);
	buf_printf(fish->out, " -l %.*s%s -d ", (int)option_len(o->name) - 2, o->name + 2,
	           strchr(o->name, ' ') ? " -r" : "");
	put_quoted(fish->out, o->help);
	buf_char(fish->out, '\n');
}

static void put_fish(const struct command *c, struct buf *out)
{
	struct fish fish = {c, out};
	for (const struct command *const *s = c->subcommands; s && *s; s++) {
		put_condition(c, out);
		buf_printf(out, " -f -a %s -d ", command_word(*s));
		put_quoted(out, (*s)->summary);
		buf_char(out, '\n');
	}
	put_fish_option(&fish, &(struct command_option){"--help", "Explain this command."}, NULL);
	command_options(c, put_fish_option, &fish);
	for (const struct command *const *s = c->subcommands; s && *s; s++)
		put_fish(*s, out);
}

/* Settings are written once, for all commands that take them. */
static void put_fish_settings(struct buf *out)
{
	struct buf CLEANUP(buf_release) flags = {0};
	buf_str(&flags, STR("--config "));
	settings_put(conf_flags, &flags);
	for (struct str rest = buf_view(&flags); rest.ptr;) {
		struct str flag = str_cut(&rest, ' ');
		buf_str(out, STR("complete -c curt -n '__fish_seen_subcommand_from"));
		for (const struct command *const *c = root_command.subcommands; *c; c++) {
			if (command_takes_settings(*c) || (*c)->subcommands)
				buf_printf(out, " %s", (*c)->name);
		}
		buf_printf(out, "' -l %.*s -r\n", (int)flag.len - 2, flag.ptr + 2);
	}
}

bool completion_put(const char *shell, struct buf *out)
{
	if (strcmp(shell, "bash") == 0) {
		put_bash(out);
	} else if (strcmp(shell, "zsh") == 0) {
		put_zsh(out);
	} else if (strcmp(shell, "fish") == 0) {
		buf_str(out, STR("# fish completion for curt\n"));
		put_fish(&root_command, out);
		put_fish_settings(out);
	} else {
		return false;
	}
	return true;
}
