#include "cmd/ask.h"
#include "cmd/command.h"

#include <stdlib.h>

static const char usage[] =
    "usage: curt key create NAME [--admin] [--creates N] [--redirects N] [--period SECONDS]\n"
    "       curt key list\n"
    "       curt key revoke ID\n"
    "\n"
    "A key is shown once, when it is made. --creates and --redirects limit how many links it may make, and "
    "how often its links\n"
    "may be followed, in a period.\n"
    "\n"
    "common options: --json, --data DIR, --server URL, --api-key KEY; see 'curt link --help'\n";

struct key_options {
	const char *creates, *redirects, *period;
	bool admin;
};

/* Puts a number into the body; false when the text is not one. */
static bool set_number(json_t *body, const char *name, const char *text)
{
	uint64_t n;
	if (!text)
		return true;
	if (!str_u64(str_of(text), &n) || n > INT64_MAX)
		return false;
	json_object_set_new(body, name, json_integer((json_int_t)n));
	return true;
}

static int create(struct client *c, const struct args *a, const struct key_options *o)
{
	json_t *body = json_object(), *key;
	json_object_set_new(body, "admin", json_boolean(o->admin));
	if (!ask_set_text(body, "name", a->words[1])) {
		json_decref(body);
		return cmd_fail("the name is not UTF-8 text; check the terminal's encoding");
	}
	if (!set_number(body, "creates_limit", o->creates) ||
	    !set_number(body, "redirects_limit", o->redirects) ||
	    !set_number(body, "limit_period_s", o->period)) {
		json_decref(body);
		return cmd_fail("--creates, --redirects and --period take whole numbers");
	}
	int r = ask(c, "POST", "/api/v1/keys", body, a->json, &key);
	if (key)
		printf("%s\n", ask_text(key, "key"));
	json_decref(key);
	return r;
}

static int list(struct client *c, const struct args *a)
{
	json_t *answer;
	int r = ask(c, "GET", "/api/v1/keys", NULL, a->json, &answer);
	json_t *keys = json_object_get(answer, "keys");
	if (keys)
		printf("%-6s %-20s %-6s %-10s %-10s %-10s %s\n", "ID", "NAME", "ADMIN", "CREATES",
		       "REDIRECTS", "PERIOD", "REVOKED");
	for (size_t i = 0; i < json_array_size(keys); i++) {
		const json_t *key = json_array_get(keys, i);
		printf("%-6lld %-20s %-6s %-10lld %-10lld %-10lld %.10s\n",
		       json_integer_value(json_object_get(key, "id")), ask_text(key, "name"),
		       json_is_true(json_object_get(key, "admin")) ? "yes" : "no",
		       json_integer_value(json_object_get(key, "creates_limit")),
		       json_integer_value(json_object_get(key, "redirects_limit")),
		       json_integer_value(json_object_get(key, "limit_period_s")),
		       ask_text(key, "revoked_at"));
	}
	json_decref(answer);
	return r;
}

static int revoke(struct client *c, const struct args *a)
{
	char path[256];
	char *segment = ask_segment(a->words[1]);
	json_t *none;
	snprintf(path, sizeof(path), "/api/v1/keys/%.200s", segment);
	free(segment);
	int r = ask(c, "DELETE", path, NULL, false, &none);
	json_decref(none);
	if (r == 0 && !a->json)
		printf("revoked %s\n", a->words[1]);
	return r;
}

static int run(const struct args *a, const void *ctx)
{
	const struct key_options *o = ctx;
	const char *verb = a->words[0];
	bool is_create = strcmp(verb, "create") == 0, is_list = strcmp(verb, "list") == 0,
	     is_revoke = strcmp(verb, "revoke") == 0;
	if (!is_create && !is_list && !is_revoke)
		return cmd_fail("there is no 'curt key %s'; see 'curt key --help'", verb);
	if (a->word_count != (is_list ? 1 : 2))
		return cmd_fail("wrong number of arguments for 'curt key %s'; see 'curt key --help'", verb);
	struct err e;
	struct client c;
	if (client_open(&c, &a->client, &e) < 0)
		return cmd_fail("%s", e.text);
	int r = is_create ? create(&c, a, o) : is_list ? list(&c, a) : revoke(&c, a);
	client_close(&c);
	return r;
}

int cmd_key(int argc, char **argv)
{
	struct key_options o = {0};
	const struct arg_option options[] = {
	    {.name = "--admin", .flag = &o.admin},
	    {.name = "--creates", .value = &o.creates},
	    {.name = "--redirects", .value = &o.redirects},
	    {.name = "--period", .value = &o.period},
	};
	const struct arg_command command = {
	    .options = options,
	    .option_count = ARRAY_LEN(options),
	    .usage = usage,
	    .words_min = 1,
	    .words_max = ARGS_WORDS_MAX,
	    .run = run,
	};
	return args_run(&command, argc, argv, &o);
}
