#include "cmd/ask.h"
#include "cmd/command.h"
#include "cmd/record.h"

#include <stdlib.h>

static const char usage[] = "usage: curt key create NAME [KEY OPTION]...\n"
                            "       curt key list\n"
                            "       curt key revoke ID\n"
                            "\n"
                            "A key is shown once, when it is made.\n"
                            "\n"
                            "key options:\n";
static const char usage_end[] =
    "common options: --json, --data DIR, --server URL, --api-key KEY; see 'curt link --help'\n";

static int create(struct client *c, const struct args *a)
{
	json_t *body = record_body(a->ctx, "name", a->words[1]), *key;
	if (!body)
		return 1;
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

static int list(struct client *c, const struct args *a)
{
	json_t *keys;
	int r = ask_all(c, "/api/v1/keys", "keys", a->json, &keys);
	if (keys)
		printf("%-6s %-20s %-6s %-31s %-10s %-10s %-10s %-10s %-19s %s\n", "ID", "NAME", "USER",
		       "SCOPES", "CREATES", "REDIRECTS", "PERIOD", "EXPIRES", "USED", "REVOKED");
	for (size_t i = 0; i < json_array_size(keys); i++)
		print_key(json_array_get(keys, i));
	json_decref(keys);
	return r;
}

static int revoke(struct client *c, const struct args *a)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/keys/", a->words[1], "");
	return ask_and_say(c, a, "DELETE", path, "revoked %s", a->words[1]);
}

static const struct arg_verb verbs[] = {
    {"create", 2, 2, record_prepare, create},
    {"list", 1, 1, NULL, list},
    {"revoke", 2, 2, NULL, revoke},
};

int cmd_key(int argc, char **argv)
{
	struct record_options o = {.fields = &key_fields};
	const struct arg_command command = {
	    .record = &o,
	    .usage = usage,
	    .usage_end = usage_end,
	    .name = "key",
	    .verbs = verbs,
	    .verb_count = ARRAY_LEN(verbs),
	};
	return args_run(&command, argc, argv, &o);
}
