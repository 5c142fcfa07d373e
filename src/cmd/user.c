#include "cmd/ask.h"
#include "cmd/command.h"
#include "cmd/record.h"

#include <stdlib.h>

static const char usage[] =
    "usage: curt user add EMAIL [--no-password] [USER OPTION]...\n"
    "       curt user list\n"
    "       curt user passwd USER\n"
    "       curt user role USER ROLE\n"
    "       curt user disable USER\n"
    "       curt user enable USER\n"
    "       curt user sign-out USER\n"
    "\n"
    "USER is an email address or an id. ROLE is one of\n"
    "  viewer   sees their own links and statistics\n"
    "  editor   makes, changes and deletes links too (the default)\n"
    "  admin    sees everybody's links, and manages users and keys\n"
    "\n"
    "Passwords are asked for twice, or read from the standard input (one line) when that is no terminal. "
    "--no-password makes a\n"
    "user who cannot sign in until 'passwd' gives them one. A new password, 'disable' and 'sign-out' end all "
    "sessions of the\n"
    "user; 'disable' also makes their API keys worth nothing until 'enable'.\n"
    "\n"
    "user options:\n";
static const char usage_end[] =
    "common options: --json, --data DIR, --server URL, --api-key KEY; see 'curt link --help'\n";

struct user_options {
	struct record_options record;
	bool no_password;
	struct secret *password;
};

static int read_password(const struct user_options *o, const char *user)
{
	char whose[400];
	struct err e;
	snprintf(whose, sizeof(whose), "new password for %.300s", user);
	return secret_read(o->password, whose, &e) < 0 ? cmd_fail("%s", e.text) : 0;
}

static int prepare_add(const struct args *a)
{
	const struct user_options *o = a->ctx;
	return o->no_password ? 0 : read_password(o, a->words[1]);
}

static int prepare_passwd(const struct args *a)
{
	const struct user_options *o = a->ctx;
	if (o->no_password)
		return cmd_fail("a password can be changed, not taken away; 'curt user disable' keeps "
		                "somebody out");
	return read_password(o, a->words[1]);
}

static int add(struct client *c, const struct args *a)
{
	const struct user_options *o = a->ctx;
	json_t *body = record_body(&o->record, "email", a->words[1]), *user;
	bool fine = !body || o->no_password || ask_set_secret(body, "password", o->password);
	secret_wipe(o->password);
	if (!body || !fine)
		return body ? record_not_utf8(body) : 1;
	int r = ask(c, "POST", "/api/v1/users", body, a->json, &user);
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
	printf("%-6lld %-32s %-7s %-8s", json_integer_value(json_object_get(user, "id")),
	       ask_text(user, "email"), ask_text(user, "role"),
	       json_is_true(json_object_get(user, "enabled")) ? "yes" : "no");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *name = json_string_value(json_object_get(user, names[i]));
		named |= name != NULL;
		if (name)
			printf(" %s", name);
	}
	puts(named ? "" : " -");
}

static int list(struct client *c, const struct args *a)
{
	json_t *users;
	int r = ask_all(c, "/api/v1/users", "users", a->json, &users);
	if (users)
		printf("%-6s %-32s %-7s %-8s %s\n", "ID", "EMAIL", "ROLE", "ENABLED", "NAME");
	for (size_t i = 0; i < json_array_size(users); i++)
		print_user(json_array_get(users, i));
	json_decref(users);
	return r;
}

/* Changes a user; tells it with `said` and the user's name. */
static int change(struct client *c, const struct args *a, json_t *body, const char *said)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/users/", a->words[1], "");
	json_t *user;
	int r = ask(c, "PATCH", path, body, a->json, &user);
	if (user)
		printf("%s %s\n", said,
		       json_is_string(json_object_get(user, "email")) ? ask_text(user, "email")
		                                                      : a->words[1]);
	json_decref(user);
	return r;
}

static int passwd(struct client *c, const struct args *a)
{
	const struct user_options *o = a->ctx;
	json_t *body = json_object();
	bool fine = ask_set_secret(body, "password", o->password);
	secret_wipe(o->password);
	return fine ? change(c, a, body, "changed the password of") : record_not_utf8(body);
}

static int role(struct client *c, const struct args *a)
{
	char said[64];
	json_t *body = json_object();
	if (!ask_set_text(body, "role", a->words[2]))
		return record_not_utf8(body);
	snprintf(said, sizeof(said), "%.40s is now the role of", a->words[2]);
	return change(c, a, body, said);
}

static int enable(struct client *c, const struct args *a)
{
	return change(c, a, json_pack("{s:b}", "enabled", 1), "enabled");
}

static int disable(struct client *c, const struct args *a)
{
	return change(c, a, json_pack("{s:b}", "enabled", 0), "disabled");
}

static int sign_out(struct client *c, const struct args *a)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/users/", a->words[1], "/sessions");
	return ask_and_say(c, a, "DELETE", path, "signed out %s", a->words[1]);
}

static const struct arg_verb verbs[] = {
    {"add", 2, 2, prepare_add, add},          {"list", 1, 1, NULL, list},
    {"passwd", 2, 2, prepare_passwd, passwd}, {"role", 3, 3, NULL, role},
    {"enable", 2, 2, NULL, enable},           {"disable", 2, 2, NULL, disable},
    {"sign-out", 2, 2, NULL, sign_out},
};

int cmd_user(int argc, char **argv)
{
	struct secret CLEANUP(secret_wipe) password = {0};
	struct user_options o = {.record.fields = &user_fields, .password = &password};
	const struct arg_option options[] = {{.name = "--no-password", .flag = &o.no_password}};
	const struct arg_command command = {
	    .options = options,
	    .option_count = ARRAY_LEN(options),
	    .record = &o.record,
	    .usage = usage,
	    .usage_end = usage_end,
	    .name = "user",
	    .verbs = verbs,
	    .verb_count = ARRAY_LEN(verbs),
	};
	return args_run(&command, argc, argv, &o);
}
