#include "cmd/client.h"
#include "cmd/command.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Commands that ask a server have these too. */
static const struct command_option client_options[] = {
    {"--json", "Print the answer as JSON; nothing when the answer is empty."},
    {"--server URL", "Ask this server, instead of the one of the data folder; or set CURT_URL."},
    {"--api-key KEY", "The API key for --server; or set CURT_API_KEY."},
    {NULL, NULL},
};

int cmd_end(int status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fflush(stdout); /* both may go to one place, in order */
	fputs("curt: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	return status;
}

int cmd_flush(void)
{
	static bool is_reported;
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	if (is_reported)
		return EXIT_FAILED;
	is_reported = true;
	return cmd_fail("cannot write the output: %s", errno ? strerror(errno) : "an earlier write failed");
}

int cmd_unknown(const struct command *parent, const char *word, struct suggestion *nearest)
{
	char see[SUGGEST_BYTES];
	const char *space = parent->name[0] ? " " : "";
	snprintf(see, sizeof(see), "see 'curt help%s%s'", space, parent->name);
	if (word[0] == '-') /* without its value, which may be a secret */
		return cmd_usage("unknown option '%.*s'; %s", (int)strcspn(word, "="), word,
		                 suggest_text(nearest, see));
	return cmd_usage("unknown command '%s%s%s'; %s", parent->name, space, word,
	                 suggest_text(nearest, see));
}

int cmd_check_word(struct str option, struct str text, const char *const *words)
{
	struct buf CLEANUP(buf_release) takes = {0};
	struct suggestion nearest;
	suggest_init(&nearest, text);
	for (size_t i = 0; words[i]; i++) {
		if (str_eq(text, str_of(words[i])))
			return 0;
		suggest_offer(&nearest, words[i]);
	}
	field_words_list(&takes, &(struct field){.words = words});
	const char *hint = suggest_text(&nearest, "");
	return cmd_usage("%.*s takes %.*s, not '%.*s'%s%s", STR_ARG(option), STR_ARG(buf_view(&takes)),
	                 STR_ARG(text), hint[0] ? "; " : "", hint);
}

size_t option_len(const char *name)
{
	return strcspn(name, " |");
}

const char *command_word(const struct command *c)
{
	const char *space = strrchr(c->name, ' ');
	return space ? space + 1 : c->name;
}

const struct command *command_find(const struct command *parent, const char *word, struct suggestion *nearest)
{
	suggest_init(nearest, str_of(word));
	for (const struct command *const *c = parent->subcommands; c && *c; c++) {
		if (strcmp(command_word(*c), word) == 0)
			return *c;
		suggest_offer(nearest, command_word(*c));
	}
	return NULL;
}

static void visit_list(const struct command_option *o, option_visit *visit, void *ctx)
{
	for (; o && o->name; o++)
		visit(ctx, o, NULL);
}

void command_options(const struct command *c, option_visit *visit, void *ctx)
{
	visit_list(c->options, visit, ctx);
	for (size_t i = 0; c->fields && i < c->fields->count; i++) {
		const struct field *f = &c->fields->rows[i];
		if (!f->option || !(f->flags & c->field_flag) ||
		    (c->argument_field && strcmp(f->name, c->argument_field) == 0))
			continue;
		const char *bar = strchr(f->option, '|'); /* two flags */
		visit(ctx, &(struct command_option){f->option, f->help ? f->help : f->name}, f);
		if (bar)
			visit(ctx, &(struct command_option){bar + 1, f->help ? f->help : f->name}, f);
	}
	if (c->ask)
		visit_list(client_options, visit, ctx);
}

/* An option that is searched for among those of a command. */
struct option_search {
	struct str name;
	bool found, has_value;
	struct suggestion nearest;
};

static void search_visit(void *ctx, const struct command_option *o, const struct field *field)
{
	struct option_search *s = ctx;
	(void)field;
	char name[SUGGEST_BYTES];
	snprintf(name, sizeof(name), "%.*s", (int)option_len(o->name), o->name);
	suggest_offer(&s->nearest, name);
	if (!str_eq(s->name, str_of(name)))
		return;
	s->found = true;
	s->has_value = o->name[option_len(o->name)] == ' ';
}

bool command_takes_settings(const struct command *c)
{
	return c->takes_settings || c->ask;
}

static int take_setting(struct args *a, int argc, char **argv, int *at, struct option_search *s)
{
	struct err e;
	struct suggestion nearest = {0};
	int from = *at;
	int r = command_takes_settings(a->command) ? settings_check_flag(argv, argc, at, &nearest, &e)
	                                           : ERR_NOT_FOUND;
	if (r == ERR_NOT_FOUND) {
		if (nearest.best[0])
			suggest_offer(&s->nearest, nearest.best);
		return cmd_unknown(a->command, argv[from], &s->nearest);
	}
	if (r < 0)
		return cmd_usage("%s", e.text);
	while (from <= *at)
		a->settings[a->setting_count++] = argv[from++];
	return 0;
}

static int take_option(struct args *a, int argc, char **argv, int *at)
{
	const char *arg = argv[*at], *equals = strchr(arg, '=');
	struct option_search s = {.name = str_n(arg, equals ? (size_t)(equals - arg) : strlen(arg))};
	suggest_init(&s.nearest, s.name);
	command_options(a->command, search_visit, &s);
	if (!s.found)
		return take_setting(a, argc, argv, at, &s);
	if (!s.has_value && equals)
		return cmd_usage("%.*s takes no value", STR_ARG(s.name));
	if (s.has_value && !equals && (*at + 1 == argc || strncmp(argv[*at + 1], "--", 2) == 0))
		return cmd_usage("%.*s needs a value: write '%.*s VALUE' or '%.*s=VALUE'", STR_ARG(s.name),
		                 STR_ARG(s.name), STR_ARG(s.name));
	a->given[a->given_count++] = (struct arg_given){
	    .name = s.name,
	    .value = !s.has_value ? NULL
	             : equals     ? equals + 1
	                          : argv[++*at],
	};
	return 0;
}

/* "KEY USER" is 2, "[KEY]" 0 or 1, "KEY..." 1 or more. The message quotes no argument: one may be the rest of a
 * secret with a space in it. */
static int check_words(const struct args *a)
{
	const struct command *c = a->command;
	int min = 0, max = 0;
	for (struct str rest = str_of(c->arguments ? c->arguments : ""); rest.ptr && rest.len;) {
		struct str word = str_cut(&rest, ' ');
		min += word.ptr[0] != '[';
		max = str_ends(word, STR("...")) ? INT_MAX : max + 1;
	}
	for (int i = 0; i < a->word_count; i++) {
		if (!a->words[i][0])
			return cmd_usage("'curt %s' takes %s, but argument %d is empty", c->name,
			                 c->arguments ? c->arguments : "no arguments", i + 1);
	}
	if (a->word_count >= min && a->word_count <= max)
		return 0;
	return cmd_usage("'curt %s' takes %s, but got %d argument%s; see 'curt help %s'", c->name,
	                 c->arguments ? c->arguments : "no arguments", a->word_count,
	                 a->word_count == 1 ? "" : "s", c->name);
}

static int print_help(const struct command *c, FILE *to)
{
	struct buf CLEANUP(buf_release) text = {0};
	help_put(c, &text);
	fwrite(text.data, 1, text.len, to);
	return 0;
}

static int parse(struct args *a, int argc, char **argv, bool *ret_help)
{
	int r = 0;
	for (int i = 0; r == 0 && i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			*ret_help = true;
			return 0;
		}
		if (strncmp(argv[i], "--", 2) == 0)
			r = take_option(a, argc, argv, &i);
		else
			a->words[a->word_count++] = argv[i];
	}
	return r;
}

static int ask_server(struct args *a)
{
	struct err e;
	struct client c;
	struct settings settings = {0};
	bool is_remote = client_is_remote(a);
	if (client_check(a, &e) < 0)
		return cmd_usage("%s", e.text);
	if (is_remote && a->setting_count > 0)
		return cmd_usage("%.*s does not apply: %s names the server, which has its own settings",
		                 (int)strcspn(a->settings[0], "="), a->settings[0],
		                 args_has(a, "--server") ? "--server" : "CURT_URL");
	if (a->command->prepare) { /* wrong settings are reported before the user types a password */
		if (!is_remote && settings_load(&settings, a->settings, a->setting_count, &e) < 0)
			return cmd_fail("%s", e.text);
		if (!is_remote)
			settings_release(&settings);
		int r = a->command->prepare(a);
		if (r != 0)
			return r;
	}
	if (client_open(&c, a, &e) < 0)
		return cmd_fail("%s", e.text);
	int r = a->command->ask(&c, a);
	client_close(&c);
	return r;
}

static int run(const struct command *c, int argc, char **argv)
{
	struct args a = {.command = c};
	bool help = false;
	a.words = calloc((size_t)argc + 1, sizeof(*a.words));
	a.given = calloc((size_t)argc + 1, sizeof(*a.given));
	a.settings = calloc((size_t)argc + 1, sizeof(*a.settings));
	int r = a.words && a.given && a.settings ? parse(&a, argc, argv, &help) : cmd_fail("out of memory");
	if (r == 0 && help)
		r = print_help(c, stdout);
	else if (r == 0 && (r = check_words(&a)) == 0)
		r = c->ask ? ask_server(&a) : c->run(&a);
	secret_wipe(&a.secret);
	free(a.words);
	free(a.given);
	free(a.settings);
	return r;
}

int args_run(int argc, char **argv)
{
	const struct command *c = &root_command;
	struct suggestion nearest;
	for (; c->subcommands; argc--, argv++) {
		const char *word = argc > 0 ? argv[0] : NULL;
		if (!word) {
			print_help(c, stderr);
			return EXIT_USAGE;
		}
		if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
			return print_help(c, stdout);
		if (c == &root_command && strcmp(word, "--version") == 0)
			word = "version";
		const struct command *next = command_find(c, word, &nearest);
		if (!next)
			return cmd_unknown(c, word, &nearest);
		c = next;
	}
	return run(c, argc, argv);
}

static const struct arg_given *find_given(const struct args *a, const char *option)
{
	for (size_t i = a->given_count; i > 0; i--) {
		if (str_eq(a->given[i - 1].name, str_n(option, option_len(option))))
			return &a->given[i - 1];
	}
	return NULL;
}

const char *args_value(const struct args *a, const char *option)
{
	const struct arg_given *given = find_given(a, option);
	return given ? given->value : NULL;
}

bool args_has(const struct args *a, const char *option)
{
	return find_given(a, option) != NULL;
}
