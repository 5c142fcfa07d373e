#include "cmd/ask.h"
#include "cmd/record.h"

#include <stdlib.h>

static int create(struct client *c, struct args *a)
{
	return record_create(c, a, "/api/v1/keys", "key");
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

/* 0: no limit. */
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
	printf("%-6lld ", json_integer_value(json_object_get(key, "id")));
	ask_column(ask_text(key, "name"), 20, false);
	printf(" %-6lld ", json_integer_value(json_object_get(key, "user")));
	print_scopes(key);
	print_limit(key, "creates_limit");
	print_limit(key, "redirects_limit");
	print_limit(key, "limit_period_s");
	printf("%-10.10s %-19.19s %.10s\n", ask_text(key, "expires_at"), ask_text(key, "last_used_at"),
	       ask_text(key, "revoked_at"));
}

static int list(struct client *c, struct args *a)
{
	return ask_list(c, a, "/api/v1/keys", "keys",
	                "ID     NAME                 USER   SCOPES                          CREATES    "
	                "REDIRECTS  PERIOD     EXPIRES    USED                REVOKED",
	                print_key);
}

static int revoke(struct client *c, struct args *a)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/keys/", a->words[0], "");
	return ask_and_print(c, a, "DELETE", path, "revoked %s", a->words[0]);
}

static const struct command create_command = {
    .name = "key create",
    .arguments = "NAME",
    .summary = "Create an API key and print it, once",
    .examples = "curt key create reports --scopes read,stats --user ada@example.com",
    .fields = &key_fields,
    .field_flag = FIELD_CREATE,
    .argument_field = "name",
    .prepare = record_prepare,
    .ask = create,
};

static const struct command list_command = {.name = "key list", .summary = "List API keys", .ask = list};

static const struct command revoke_command = {
    .name = "key revoke", .arguments = "ID", .summary = "Revoke an API key", .ask = revoke};

const struct command key_command = {
    .name = "key",
    .summary = "Create, list or revoke API keys",
    .subcommands = (const struct command *const[]){&create_command, &list_command, &revoke_command, NULL},
};
