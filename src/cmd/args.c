#include "cmd/args.h"

#include "cmd/command.h"
#include "cmd/record.h"

#include <stdio.h>
#include <stdlib.h>

size_t args_option_len(const char *name)
{
	return strcspn(name, " |");
}

static const struct arg_option *option_named(const struct arg_option *options, size_t count, const char *name,
                                             size_t len)
{
	for (size_t i = 0; i < count; i++) {
		if (args_option_len(options[i].name) == len && memcmp(options[i].name, name, len) == 0)
			return &options[i];
	}
	return NULL;
}

static int option_take(const struct arg_option *o, const char *value, struct err *e)
{
	if (o->value) {
		*o->value = value;
		return 0;
	}
	for (size_t i = 0; i < ARGS_REPEATS_MAX; i++) {
		if (!o->repeat[i]) {
			o->repeat[i] = value;
			return 0;
		}
	}
	return err_set(e, ERR_INVALID, "%.*s may be given at most %d times", (int)args_option_len(o->name),
	               o->name, ARGS_REPEATS_MAX);
}

static int parse_one(struct args *a, int argc, char **argv, int *at, const struct arg_option *options,
                     size_t count, struct err *e)
{
	const char *arg = argv[*at];
	if (strncmp(arg, "--", 2) != 0) {
		if (a->word_count == ARGS_WORDS_MAX)
			return err_set(e, ERR_INVALID, "too many arguments at '%s'", arg);
		a->words[a->word_count++] = arg;
		return 0;
	}
	const char *equals = strchr(arg, '=');
	const struct arg_option *o = option_named(options, count, arg,
	                                          equals ? (size_t)(equals - arg) : strlen(arg));
	if (!o) { /* a setting, and its value if that stands apart */
		a->client.settings[a->client.setting_count++] = argv[*at];
		if (!equals && *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0)
			a->client.settings[a->client.setting_count++] = argv[++*at];
		return 0;
	}
	if (o->flag) {
		*o->flag = true;
		return equals ? err_set(e, ERR_INVALID, "%.*s takes no value", (int)args_option_len(o->name),
		                        o->name)
		              : 0;
	}
	if (equals)
		return option_take(o, equals + 1, e);
	if (*at + 1 == argc)
		return err_set(e, ERR_INVALID, "%.*s needs a value behind it", (int)args_option_len(o->name),
		               o->name);
	return option_take(o, argv[++*at], e);
}

static int args_parse(struct args *a, int argc, char **argv, const struct arg_command *command, struct err *e)
{
	enum { COMMON = 4 };
	size_t count = command->option_count;
	*a = (struct args){0};
	a->client.settings = calloc((size_t)argc + 1, sizeof(*a->client.settings));
	struct arg_option *all = calloc(count + RECORD_OPTIONS_MAX + COMMON, sizeof(*all));
	if (!all || !a->client.settings) {
		free(all);
		free(steal(a->client.settings));
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	if (count > 0)
		memcpy(all, command->options, count * sizeof(*all));
	if (command->record)
		count += record_options_add(command->record, all + count);
	all[count] = (struct arg_option){.name = "--json", .flag = &a->json};
	all[count + 1] = (struct arg_option){.name = "--help", .flag = &a->help};
	all[count + 2] = (struct arg_option){.name = "--server", .value = &a->client.server};
	all[count + 3] = (struct arg_option){.name = "--api-key", .value = &a->client.api_key};
	int r = 0;
	for (int i = 0; r == 0 && i < argc; i++)
		r = parse_one(a, argc, argv, &i, all, count + COMMON, e);
	free(all);
	if (r < 0)
		free(steal(a->client.settings));
	return r;
}

/* Wrong options are told before somebody types a password, not after. */
static int prepare(const struct arg_verb *verb, const struct args *a)
{
	struct err e;
	struct settings settings = {0};
	if (!verb->prepare)
		return 0;
	if (settings_load(&settings, a->client.settings, a->client.setting_count, &e) < 0)
		return cmd_fail("%s", e.text);
	settings_release(&settings);
	return verb->prepare(a);
}

static int verb_run(const struct arg_command *command, const struct args *a)
{
	const struct arg_verb *verb = command->verbs, *end = verb + command->verb_count;
	while (verb < end && strcmp(verb->name, a->words[0]) != 0)
		verb++;
	if (verb == end)
		return cmd_fail("there is no 'curt %s %s'; see 'curt %s --help'", command->name, a->words[0],
		                command->name);
	if (a->word_count < verb->words_min || a->word_count > verb->words_max)
		return cmd_fail("wrong number of arguments for 'curt %s %s'; see 'curt %s --help'",
		                command->name, verb->name, command->name);
	int r = prepare(verb, a);
	if (r != 0)
		return r;
	struct err e;
	struct client c;
	if (client_open(&c, &a->client, &e) < 0)
		return cmd_fail("%s", e.text);
	r = verb->run(&c, a);
	client_close(&c);
	return r;
}

int args_run(const struct arg_command *command, int argc, char **argv, const void *ctx)
{
	struct args a;
	struct err e;
	if (args_parse(&a, argc, argv, command, &e) < 0)
		return cmd_fail("%s", e.text);
	int r;
	bool fits = command->verbs ? a.word_count > 0 : a.word_count <= command->words_max;
	if (a.help || !fits) {
		FILE *to = a.help ? stdout : stderr;
		fputs(command->usage, to);
		if (command->record)
			record_options_help(command->record->fields, to);
		if (command->usage_end)
			fputs(command->usage_end, to);
		r = a.help ? 0 : 2;
	} else {
		a.ctx = ctx;
		r = command->verbs ? verb_run(command, &a) : command->run(&a);
	}
	free(a.client.settings);
	return r;
}
