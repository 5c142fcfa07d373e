#include "cmd/ask.h"
#include "cmd/record.h"

#include <stdlib.h>

static int read_password(struct args *a)
{
	char whose[400];
	struct err e;
	snprintf(whose, sizeof(whose), "new password for %.300s", a->words[0]);
	return secret_read(&a->secret, whose, &e) < 0 ? cmd_fail("%s", e.text) : 0;
}

static int prepare_add(struct args *a)
{
	int r = record_prepare(a);
	return r != 0 || args_has(a, "--no-password") ? r : read_password(a);
}

static int add(struct client *c, struct args *a)
{
	json_t *body = record_body(a), *user;
	if (!body)
		return EXIT_FAILED;
	if (!args_has(a, "--no-password") && !ask_set_secret(body, "password", &a->secret))
		return record_not_utf8(body);
	int r = ask(c, "POST", "/api/v1/users", body, args_has(a, "--json"), &user);
	if (user)
		printf("added %s as %s, id %lld\n", ask_text(user, "email"), ask_text(user, "role"),
		       json_integer_value(json_object_get(user, "id")));
	json_decref(user);
	return r;
}

static void print_user(const json_t *user)
{
	static const char *const names[] = {"first_name", "middle_name", "last_name"};
	bool named = false;
	printf("%-6lld ", json_integer_value(json_object_get(user, "id")));
	ask_column(ask_text(user, "email"), 32, false);
	printf(" %-7s %-8s", ask_text(user, "role"),
	       json_is_true(json_object_get(user, "enabled")) ? "yes" : "no");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *name = json_string_value(json_object_get(user, names[i]));
		named |= name != NULL;
		if (name)
			printf(" %s", name);
	}
	puts(named ? "" : " -");
}

static int list(struct client *c, struct args *a)
{
	return ask_list(c, a, "/api/v1/users", "users",
	                "ID     EMAIL                            ROLE    ENABLED  NAME", print_user);
}

/* Changes a user; on success prints `done` and the user. */
static int change(struct client *c, struct args *a, json_t *body, const char *done)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/users/", a->words[0], "");
	json_t *user;
	int r = ask(c, "PATCH", path, body, args_has(a, "--json"), &user);
	if (user)
		printf("%s %s\n", done,
		       json_is_string(json_object_get(user, "email")) ? ask_text(user, "email")
		                                                      : a->words[0]);
	json_decref(user);
	return r;
}

static int passwd(struct client *c, struct args *a)
{
	json_t *body = json_object();
	bool fine = ask_set_secret(body, "password", &a->secret);
	return fine ? change(c, a, body, "changed the password of") : record_not_utf8(body);
}

static int check_role(struct args *a)
{
	return cmd_check_word(STR("ROLE"), str_of(a->words[1]),
	                      fields_find(&user_fields, STR("role"))->words);
}

static int role(struct client *c, struct args *a)
{
	char done[64];
	json_t *body = json_object();
	if (!ask_set_text(body, "role", a->words[1]))
		return record_not_utf8(body);
	snprintf(done, sizeof(done), "%.40s is now the role of", a->words[1]);
	return change(c, a, body, done);
}

static int enable(struct client *c, struct args *a)
{
	return change(c, a, json_pack("{s:b}", "enabled", 1), "enabled");
}

static int disable(struct client *c, struct args *a)
{
	return change(c, a, json_pack("{s:b}", "enabled", 0), "disabled");
}

static int sign_out(struct client *c, struct args *a)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/users/", a->words[0], "/sessions");
	return ask_and_print(c, a, "DELETE", path, "signed out %s", a->words[0]);
}

static const struct command add_command = {
    .name = "user add",
    .arguments = "EMAIL",
    .summary = "Add a user",
    .details = "On a terminal it asks for the password twice; otherwise it reads a line of standard input.",
    .examples = "curt user add ada@example.com --role editor",
    .options = (const struct command_option[]){{"--no-password",
                                                "The user cannot sign in until 'curt user passwd'."},
                                               {NULL, NULL}},
    .fields = &user_fields,
    .field_flag = FIELD_CREATE,
    .argument_field = "email",
    .prepare = prepare_add,
    .ask = add,
};

static const struct command list_command = {.name = "user list", .summary = "List users", .ask = list};

static const struct command passwd_command = {
    .name = "user passwd",
    .arguments = "USER",
    .summary = "Set a user's password and end their sessions",
    .details = "On a terminal it asks for the password twice; otherwise it reads a line of standard input.",
    .prepare = read_password,
    .ask = passwd,
};

static const struct command role_command = {
    .name = "user role",
    .arguments = "USER ROLE",
    .summary = "Change a user's role",
    .details = "A viewer sees their own links and statistics. An editor also creates, changes and deletes "
               "links. An admin sees all links and manages users and keys.",
    .prepare = check_role,
    .ask = role,
};

static const struct command disable_command = {
    .name = "user disable",
    .arguments = "USER",
    .summary = "Disable a user: end their sessions and refuse their API keys",
    .ask = disable,
};

static const struct command enable_command = {
    .name = "user enable", .arguments = "USER", .summary = "Enable a disabled user again", .ask = enable};

static const struct command sign_out_command = {
    .name = "user sign-out", .arguments = "USER", .summary = "End all sessions of a user", .ask = sign_out};

const struct command user_command = {
    .name = "user",
    .summary = "Add, list, change, disable or sign out users",
    .details = "USER is an email address or an id.",
    .subcommands = (const struct command *const[]){&add_command, &list_command, &passwd_command,
                                                   &role_command, &disable_command, &enable_command,
                                                   &sign_out_command, NULL},
};
