#include "cmd/ask.h"
#include "cmd/command.h"

#include <stdlib.h>

static const char usage[] =
    "usage: curt key create NAME [--scopes LIST | --admin] [--user USER] [--expires TIME] [--creates N] "
    "[--redirects N] [--period SECONDS]\n"
    "       curt key list\n"
    "       curt key revoke ID\n"
    "\n"
    "A key is shown once, when it is made.\n"
    "\n"
    "  --scopes LIST      what it may do: read, stats, create, delete, admin, separated by commas; all but "
    "admin when not given\n"
    "  --admin            all of them\n"
    "  --user USER        whose it is, by email address or id; it can do no more than they can. Without it "
    "the key is a user\n"
    "                     of its own\n"
    "  --expires TIME     2027-01-31, 2027-01-31T12:00:00Z, or never (the default)\n"
    "  --creates N, --redirects N, --period SECONDS\n"
    "                     how many links it may make, and how often those may be followed, in a period\n"
    "\n"
    "common options: --json, --data DIR, --server URL, --api-key KEY; see 'curt link --help'\n";

struct key_options {
	const char *scopes, *user, *expires, *creates, *redirects, *period;
	bool admin;
};

/* "read,create" as an array; false when it is not UTF-8. */
static bool set_scopes(json_t *body, const char *text)
{
	bool fine = true;
	if (!text)
		return true;
	json_t *scopes = json_array();
	for (struct str rest = str_of(text); fine && rest.ptr;) {
		struct str scope = str_trim(str_cut(&rest, ','));
		fine = json_array_append_new(scopes, json_stringn(scope.ptr, scope.len)) == 0;
	}
	return json_object_set_new(body, "scopes", scopes) == 0 && fine;
}

static int create(struct client *c, const struct args *a, const void *ctx)
{
	const struct key_options *o = ctx;
	json_t *body = json_object(), *key;
	if (o->admin)
		json_object_set_new(body, "admin", json_true());
	if (!ask_set_text(body, "name", a->words[1]) || !set_scopes(body, o->scopes) ||
	    !ask_set_text(body, "user", o->user) ||
	    !ask_set_text_or_none(body, "expires_at", o->expires, "never")) {
		json_decref(body);
		return cmd_fail("an argument is not UTF-8 text; check the terminal's encoding");
	}
	if (!ask_set_number(body, "creates_limit", o->creates) ||
	    !ask_set_number(body, "redirects_limit", o->redirects) ||
	    !ask_set_number(body, "limit_period_s", o->period)) {
		json_decref(body);
		return cmd_fail("--creates, --redirects and --period take whole numbers");
	}
	int r = ask(c, "POST", "/api/v1/keys", body, a->json, &key);
	if (key)
		printf("%s\n", ask_text(key, "key"));
	json_decref(key);
	return r;
}

static void print_scopes(const json_t *key)
{
	char text[64] = "";
	const json_t *scopes = json_object_get(key, "scopes");
	size_t at = 0;
	for (size_t i = 0; i < json_array_size(scopes) && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i ? "," : "",
		                       json_string_value(json_array_get(scopes, i)));
	printf("%-31s ", text);
}

/* 0 is none. */
static void print_limit(const json_t *key, const char *name)
{
	long long limit = json_integer_value(json_object_get(key, name));
	if (limit > 0)
		printf("%-10lld ", limit);
	else
		printf("%-10s ", "-");
}

static void print_key(const json_t *key)
{
	printf("%-6lld %-20s %-6lld ", json_integer_value(json_object_get(key, "id")), ask_text(key, "name"),
	       json_integer_value(json_object_get(key, "user")));
	print_scopes(key);
	print_limit(key, "creates_limit");
	print_limit(key, "redirects_limit");
	print_limit(key, "limit_period_s");
	printf("%-10.10s %-19.19s %.10s\n", ask_text(key, "expires_at"), ask_text(key, "last_used_at"),
	       ask_text(key, "revoked_at"));
}

static int list(struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
	json_t *answer;
	int r = ask(c, "GET", "/api/v1/keys", NULL, a->json, &answer);
	const json_t *keys = json_object_get(answer, "keys");
	if (keys)
		printf("%-6s %-20s %-6s %-31s %-10s %-10s %-10s %-10s %-19s %s\n", "ID", "NAME", "USER",
		       "SCOPES", "CREATES", "REDIRECTS", "PERIOD", "EXPIRES", "USED", "REVOKED");
	for (size_t i = 0; i < json_array_size(keys); i++)
		print_key(json_array_get(keys, i));
	json_decref(answer);
	return r;
}

static int revoke(struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
	char *path CLEANUP(freep) = ask_path("/api/v1/keys/", a->words[1], "");
	return ask_and_say(c, a, "DELETE", path, "revoked %s", a->words[1]);
}

static int run(const struct args *a, const void *ctx)
{
	static const struct ask_verb verbs[] = {
	    {"create", 2, 2, NULL, create},
	    {"list", 1, 1, NULL, list},
	    {"revoke", 2, 2, NULL, revoke},
	};
	return ask_verb_run("key", verbs, ARRAY_LEN(verbs), a, ctx);
}

int cmd_key(int argc, char **argv)
{
	struct key_options o = {0};
	const struct arg_option options[] = {
	    {.name = "--scopes", .value = &o.scopes},   {.name = "--admin", .flag = &o.admin},
	    {.name = "--user", .value = &o.user},       {.name = "--expires", .value = &o.expires},
	    {.name = "--creates", .value = &o.creates}, {.name = "--redirects", .value = &o.redirects},
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
