/* Help texts, docs/cli.md and curt(1): one walk over the table of commands, in three formats. */
#include "api/metrics_page.h"
#include "cmd/command.h"
#include "config/config.h"
#include "server/settings.h"

#include <stdio.h>

enum help_format { TEXT, MARKDOWN, MAN };
enum { TEXT_COLUMN = 24 };

struct help_output {
	enum help_format format;
	struct buf *out;
};

struct term {
	const char *name, *text;
};

struct topic {
	const char *title;
	const struct term *terms;
};

/* What holds for every command. */
static const struct topic topics[] = {
    {"Exit status",
     (const struct term[]){{"0", "Success."},
                           {"1", "Failure; the reason is on standard error."},
                           {"2",
                            "Wrong usage: an unknown command or option, a wrong number of arguments, or a "
                            "value of the wrong form. Nothing was done."},
                           {NULL, NULL}}},
    {"Files",
     (const struct term[]){
         {"configuration", "--config FILE, else CURT_CONFIG, else " SETTINGS_FILE " when it exists."},
         {"data folder", "--data DIR, else CURT_DATA, else serve.data in the configuration. When none is "
                         "set: $STATE_DIRECTORY, which systemd sets, else $XDG_STATE_HOME/curt, else "
                         "~/.local/state/curt."},
         {NULL, NULL}}},
    {"Environment",
     (const struct term[]){
         {"CURT_CONFIG", "The configuration file."},
         {"CURT_DATA", "The data folder."},
         {"CURT_SECTION_NAME",
          "Any setting, such as CURT_STORE_URL. CURT_SERVE_LISTEN may be written CURT_LISTEN."},
         {"CURT_URL", "The server that commands ask, as --server."},
         {"CURT_API_KEY", "The API key for that server, as --api-key."},
         {"CURT_ADMIN_KEY",
          "The admin's API key on the first start; otherwise curt makes one. Later starts log a "
          "warning when it is not an admin key of the store."},
         {NULL, NULL}}},
};

/* Escapes what roff would read as a request or print as another character. */
static void put_man(struct buf *out, struct str text)
{
	static const char special[] = "-\\'~^";
	static const char *const escapes[] = {"\\-", "\\e", "\\(aq", "\\(ti", "\\(ha"};
	buf_str(out, str_starts(text, STR(".")) ? STR("\\&") : STR(""));
	for (size_t i = 0; i < text.len; i++) {
		const char *at = strchr(special, text.ptr[i]);
		if (at)
			buf_str(out, str_of(escapes[at - special]));
		else
			buf_char(out, text.ptr[i]);
	}
	buf_char(out, '\n');
}

static size_t width(const struct help_output *p)
{
	return p->format == TEXT ? 80 : 100;
}

/* Level 0 is a label within a command. */
static void put_heading(const struct help_output *p, int level, const char *title)
{
	if (p->format == TEXT || (p->format == MARKDOWN && level == 0))
		buf_printf(p->out, "\n%s:\n%s", title, p->format == TEXT ? "" : "\n");
	else if (p->format == MARKDOWN)
		buf_printf(p->out, "\n%.*s %s\n\n", level + 1, "###", title);
	else if (level == 0)
		buf_printf(p->out, ".PP\n%s:\n", title);
	else
		buf_printf(p->out, ".%s %s\n", level == 1 ? "SH" : "SS", title);
}

static void put_paragraph(const struct help_output *p, struct str text)
{
	buf_str(p->out, p->format == MAN ? STR(".PP\n") : STR("\n"));
	if (p->format == MAN)
		put_man(p->out, text);
	else
		conf_wrap(p->out, text, 0, 0, width(p));
}

/* A line to type. */
static void put_code(const struct help_output *p, struct str text)
{
	if (p->format != MAN) {
		buf_printf(p->out, "%s%.*s\n", p->format == TEXT ? "  " : "    ", STR_ARG(text));
		return;
	}
	buf_str(p->out, STR(".PP\n.EX\n"));
	put_man(p->out, text);
	buf_str(p->out, STR(".EE\n"));
}

static void put_item(const struct help_output *p, const char *term, const char *text)
{
	switch (p->format) {
	case TEXT:
		if (strlen(term) + 4 > TEXT_COLUMN)
			buf_printf(p->out, "  %s\n%*s", term, TEXT_COLUMN, "");
		else
			buf_printf(p->out, "  %-*s", TEXT_COLUMN - 2, term);
		conf_wrap(p->out, str_of(text), TEXT_COLUMN, TEXT_COLUMN, width(p));
		break;
	case MARKDOWN:
		buf_printf(p->out, "- `%s`: ", term);
		conf_wrap(p->out, str_of(text), strlen(term) + 6, 2, width(p));
		break;
	case MAN:
		buf_str(p->out, STR(".TP\n.B "));
		put_man(p->out, str_of(term));
		put_man(p->out, str_of(text));
	}
}

/* Two flags of one field are one item: "--off, --on". */
static void put_option(void *ctx, const struct command_option *o, const struct field *f)
{
	const struct help_output *p = ctx;
	struct buf CLEANUP(buf_release) text = {0};
	const char *bar = f ? strchr(f->option, '|') : NULL;
	char term[64];
	if (bar && strcmp(o->name, bar + 1) == 0)
		return;
	snprintf(term, sizeof(term), "%.*s%s%s", (int)strcspn(o->name, "|"), o->name, bar ? ", " : "",
	         bar ? bar + 1 : "");
	buf_printf(&text, "%s", o->help);
	if (f && f->none)
		buf_printf(&text, "; '%s' means %s", f->none, f->null);
	if (f && f->type == FIELD_TAGS)
		buf_str(&text, STR("; may be repeated"));
	if (f && field_takes_empty(f))
		buf_str(&text, STR("; '' means none"));
	if (f && f->type == FIELD_SECRET)
		buf_str(&text, STR("; asked for, or read as a line of standard input"));
	if (f)
		buf_char(&text, '.');
	buf_char(&text, '\0');
	put_item(p, term, text.data);
}

static void put_lines(const struct help_output *p, const char *lines,
                      void (*put)(const struct help_output *p, struct str line))
{
	for (struct str rest = str_of(lines); rest.ptr;)
		put(p, str_cut(&rest, '\n'));
}

static bool has_options(const struct command *c)
{
	return c->options || c->fields || c->ask;
}

static void put_usage(const struct command *c, struct buf *to)
{
	buf_printf(to, "curt%s%s%s%s", c->name[0] ? " " : "", c->name, c->arguments ? " " : "",
	           c->arguments ? c->arguments : "");
	if (c->subcommands)
		buf_str(to, STR(" COMMAND [ARGUMENT]..."));
	else if (has_options(c) || c->takes_settings)
		buf_str(to, STR(" [OPTION]..."));
}

static void put_command(const struct help_output *p, const struct command *c)
{
	struct buf CLEANUP(buf_release) sentence = {0};
	buf_printf(&sentence, "%s.", c->summary);
	put_paragraph(p, buf_view(&sentence));
	if (c->details)
		put_lines(p, c->details, put_paragraph);
	if (c->subcommands)
		put_heading(p, 0, "Commands");
	for (const struct command *const *s = c->subcommands; s && *s; s++) {
		char term[64];
		snprintf(term, sizeof(term), "%s%s%s", command_word(*s), (*s)->arguments ? " " : "",
		         (*s)->arguments ? (*s)->arguments : "");
		put_item(p, term, (*s)->summary);
	}
	if (has_options(c)) {
		put_heading(p, 0, "Options");
		command_options(c, put_option, (void *)p);
	}
	if (c->ask)
		put_paragraph(p,
		              STR("All settings of 'curt help serve' are options too, such as --data DIR."));
	if (c->examples) {
		put_heading(p, 0, "Examples");
		put_lines(p, c->examples, put_code);
	}
}

static void put_topics(const struct help_output *p)
{
	for (size_t i = 0; i < ARRAY_LEN(topics); i++) {
		put_heading(p, 1, topics[i].title);
		for (const struct term *t = topics[i].terms; t->name; t++)
			put_item(p, t->name, t->text);
	}
}

/* A command and its subcommands, each under a heading. */
static void put_tree(const struct help_output *p, const struct command *c, int level)
{
	struct buf CLEANUP(buf_release) usage = {0};
	char title[64];
	snprintf(title, sizeof(title), "curt %s", c->name);
	put_usage(c, &usage);
	put_heading(p, level, title);
	put_code(p, buf_view(&usage));
	put_command(p, c);
	if (c->takes_settings)
		put_paragraph(p, STR("All settings are options too; 'curt help serve' lists them."));
	for (const struct command *const *s = c->subcommands; s && *s; s++)
		put_tree(p, *s, level + 1);
}

void help_put(const struct command *c, struct buf *out)
{
	const struct help_output p = {TEXT, out};
	buf_str(out, STR("usage: "));
	put_usage(c, out);
	buf_char(out, '\n');
	put_command(&p, c);
	if (c == &root_command)
		put_topics(&p);
	if (c->subcommands)
		buf_printf(out, "\nSee 'curt help%s%s COMMAND' for one of them.\n", c->name[0] ? " " : "",
		           c->name);
	if (c->takes_settings) {
		buf_char(out, '\n');
		settings_put(conf_help, out);
	}
}

static void put_markdown_page(struct buf *out)
{
	const struct help_output p = {MARKDOWN, out};
	buf_str(out,
	        STR("# Command line\n\n"
	            "`make docs` writes this page from the table of commands. `curt help` prints the same\n"
	            "texts, and `man curt` shows them after `make install`.\n"));
	put_topics(&p);
	for (const struct command *const *c = root_command.subcommands; *c; c++)
		put_tree(&p, *c, 1);
}

static void put_man_page(struct buf *out)
{
	const struct help_output p = {MAN, out};
	buf_str(out, STR(".TH CURT 1 \"\" \"curt " CURT_VERSION "\" \"User Commands\"\n"
	                 ".SH NAME\ncurt \\- "));
	put_man(out, str_of(root_command.summary));
	buf_str(out, STR(".SH SYNOPSIS\n.B curt\n.I COMMAND\n.RI [ ARGUMENT ]...\n.SH COMMANDS\n"));
	for (const struct command *const *c = root_command.subcommands; *c; c++)
		put_tree(&p, *c, 2);
	put_topics(&p);
}

static int print(struct args *a)
{
	struct buf CLEANUP(buf_release) out = {0};
	const char *shell = args_value(a, "--completion");
	const struct command *c = &root_command;
	if (a->given_count + (a->word_count > 0) > 1)
		return cmd_usage(
		    "'curt help' takes the name of a command or one option, not both; see 'curt help help'");
	for (int i = 0; i < a->word_count; i++) {
		struct suggestion nearest;
		const struct command *next = command_find(c, a->words[i], &nearest);
		if (!next)
			return cmd_unknown(c, a->words[i], &nearest);
		c = next;
	}
	if (shell && !completion_put(shell, &out))
		return cmd_usage("--completion takes bash, zsh or fish, not '%s'", shell);
	if (args_has(a, "--markdown"))
		put_markdown_page(&out);
	else if (args_has(a, "--man"))
		put_man_page(&out);
	else if (args_has(a, "--metrics"))
		metrics_markdown_page(&out);
	else if (args_has(a, "--settings"))
		settings_put(conf_markdown, &out);
	else if (!shell)
		help_put(c, &out);
	fwrite(out.data, 1, out.len, stdout);
	return 0;
}

const struct command help_command = {
    .name = "help",
    .arguments = "[COMMAND] [SUBCOMMAND]",
    .summary = "Explain a command, or list all of them",
    .options = (const struct command_option[]){{"--man", "Print the manual page curt(1)."},
                                               {"--markdown", "Print docs/cli.md."},
                                               {"--settings", "Print docs/configuration.md."},
                                               {"--metrics", "Print docs/metrics.md."},
                                               {"--completion SHELL",
                                                "Print the completion of bash, zsh or fish."},
                                               {NULL, NULL}},
    .examples = "curt help link create\n"
                "curt help --completion bash >~/.local/share/bash-completion/completions/curt",
    .run = print,
};
