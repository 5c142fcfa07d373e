#include "cmd/ask.h"
#include "cmd/record.h"

#include <stdlib.h>

enum { EMAIL_WIDTH = 32 };

/* One line of `curt link get`. */
static void print_field(const struct field *f, const json_t *link)
{
	char name[64];
	snprintf(name, sizeof(name), "%s%s", f->type == FIELD_SECRET ? "has_" : "", f->name);
	const json_t *value = json_object_get(link, name);
	const json_t *max_clicks = json_object_get(link, "max_clicks");
	printf("%-13s ", strcmp(name, "redirect_status") == 0 ? "status" : f->name);
	for (size_t i = 0; i < json_array_size(value); i++)
		printf("%s%s", i ? ", " : "", json_string_value(json_array_get(value, i)));
	if (json_is_boolean(value))
		printf("%s", json_is_true(value) ? "yes" : "no");
	else if (json_is_integer(value))
		printf("%lld", json_integer_value(value));
	else if (json_array_size(value) == 0)
		printf("%s", ask_text(link, name));
	if (strcmp(name, "clicks") == 0 && json_is_integer(max_clicks))
		printf(" of %lld", json_integer_value(max_clicks));
	putchar('\n');
}

static void print_link(const json_t *link)
{
	static const char *const left_out[] = {"key", "updated_at", "max_clicks"};
	printf("%-13s %s\n", "short_url", ask_text(link, "short_url"));
	for (size_t i = 0; i < link_fields.count; i++) {
		const struct field *f = &link_fields.rows[i];
		bool shown = field_is_shown(f) && f->type != FIELD_VIRTUAL;
		for (size_t k = 0; shown && k < ARRAY_LEN(left_out); k++)
			shown = strcmp(f->name, left_out[k]) != 0;
		if (shown)
			print_field(f, link);
	}
}

static int create(struct client *c, struct args *a)
{
	return record_create(c, a, "/api/v1/links", "short_url");
}

static int show(struct client *c, struct args *a, const char *method, json_t *body)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/links/", a->words[0], "");
	json_t *link;
	int r = ask(c, method, path, body, args_has(a, "--json"), &link);
	if (link)
		print_link(link);
	json_decref(link);
	return r;
}

static int get(struct client *c, struct args *a)
{
	return show(c, a, "GET", NULL);
}

static int update(struct client *c, struct args *a)
{
	json_t *body = record_body(a);
	return body ? show(c, a, "PATCH", body) : EXIT_FAILED;
}

static int delete (struct client *c, struct args *a)
{
	int r = 0;
	for (int i = 0; i < a->word_count; i++) {
		char *path CLEANUP(freep) = ask_path("/api/v1/links/", a->words[i], "");
		c->about = a->word_count > 1 ? a->words[i] : NULL;
		int failed = ask_and_print(c, a, "DELETE", path, "deleted %s", a->words[i]);
		r = r ? r : failed;
	}
	return r;
}

static int change_list(struct client *c, struct args *a, const char *method, const char *where)
{
	char *list CLEANUP(freep) = ask_path("/api/v1/links/", a->words[0], "/permissions/");
	char *path CLEANUP(freep) = ask_path(list, a->words[1], "");
	return ask_and_print(c, a, method, path, "%s is %s the list of %s", a->words[1], where, a->words[0]);
}

static int permit(struct client *c, struct args *a)
{
	return change_list(c, a, "PUT", "on");
}

static int forbid(struct client *c, struct args *a)
{
	return change_list(c, a, "DELETE", "off");
}

static int permitted(struct client *c, struct args *a)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/links/", a->words[0], "/permissions");
	json_t *answer;
	int r = ask(c, "GET", path, NULL, args_has(a, "--json"), &answer);
	const json_t *users = json_object_get(answer, "users");
	if (users)
		printf("%-6s %-*s %s\n", "ID", EMAIL_WIDTH, "EMAIL", "NAME");
	for (size_t i = 0; i < json_array_size(users); i++) {
		const json_t *user = json_array_get(users, i);
		printf("%-6lld ", json_integer_value(json_object_get(user, "id")));
		ask_column(ask_text(user, "email"), EMAIL_WIDTH, false);
		printf(" %s\n", ask_text(user, "name"));
	}
	if (users && strcmp(ask_text(answer, "visibility"), "public") == 0)
		puts("the link is public: everybody may follow it");
	json_decref(answer);
	return r;
}

static void print_page(const json_t *links)
{
	for (size_t i = 0; i < json_array_size(links); i++) {
		const json_t *link = json_array_get(links, i);
		bool is_private = strcmp(ask_text(link, "visibility"), "private") == 0;
		printf("%-24s %-10.10s  %s%s%s%s\n", ask_text(link, "key"), ask_text(link, "expires_at"),
		       ask_text(link, "original_url"), is_private ? "  (private)" : "",
		       json_is_true(json_object_get(link, "has_password")) ? "  (password)" : "",
		       json_is_true(json_object_get(link, "enabled")) ? "" : "  (disabled)");
	}
}

/* As text a page at a time; as JSON all pages are collected, since it is one document. */
static int list(struct client *c, struct args *a)
{
	bool all = args_has(a, "--all"), as_json = args_has(a, "--json");
	const char *from = args_value(a, "--cursor"), *limit = args_value(a, "--limit");
	char *cursor CLEANUP(freep) = from ? strdup(from) : NULL;
	char *path CLEANUP(freep) = ask_path("/api/v1/links?limit=", limit ? limit : all ? "1000" : "50", "");
	json_t *collected = json_array();
	bool has_header = false;
	int r = 0;
	do {
		json_t *page;
		r = ask_page(c, path, &cursor, &page);
		if (r == 0 && !as_json && !has_header)
			printf("%-24s %-10s  %s\n", "KEY", "EXPIRES", "URL");
		has_header = true;
		json_t *links = json_object_get(page, "links");
		if (as_json && links)
			json_array_extend(collected, links);
		else
			print_page(links);
		json_decref(page);
	} while (r == 0 && all && cursor);
	if (r == 0 && as_json) {
		ask_print_json(json_pack("{s:o, s:s?}", "links", collected, "next", cursor));
		return 0;
	}
	json_decref(collected);
	if (r == 0 && cursor)
		printf("more with --cursor %s, or --all\n", cursor);
	return r;
}

static const struct command create_command = {
    .name = "link create",
    .arguments = "URL",
    .summary = "Create a link and print its short URL",
    .examples =
        "curt link create https://example.com/a/long/address\n"
        "curt link create https://example.com/offer --alias offer --max-clicks 100 --expires 2030-01-31",
    .fields = &link_fields,
    .field_flag = FIELD_CREATE,
    .argument_field = "original_url",
    .prepare = record_prepare,
    .ask = create,
};

static const struct command get_command = {
    .name = "link get", .arguments = "KEY", .summary = "Show a link", .ask = get};

static const struct command list_command = {
    .name = "link list",
    .summary = "List links, the newest first",
    .options = (const struct command_option[]){{"--limit N", "Links per page, 1 to 1000; 50 by default."},
                                               {"--cursor C", "Start at this page; the one before prints C."},
                                               {"--all", "List all pages."},
                                               {NULL, NULL}},
    .ask = list,
};

static const struct command update_command = {
    .name = "link update",
    .arguments = "KEY",
    .summary = "Change a link",
    .examples = "curt link update offer --url https://example.com/new --expires never",
    .fields = &link_fields,
    .field_flag = FIELD_PATCH,
    .prepare = record_prepare,
    .ask = update,
};

static const struct command delete_command = {
    .name = "link delete",
    .arguments = "KEY...",
    .summary = "Delete links",
    .details = "All are tried. The exit status is 1 when one could not be deleted.",
    .ask = delete};

static const struct command permit_command = {.name = "link permit",
                                              .arguments = "KEY USER",
                                              .summary = "Let a user follow a private link",
                                              .details = "USER is an email address or an id.",
                                              .examples = "curt link permit minutes ada@example.com",
                                              .ask = permit};

static const struct command forbid_command = {
    .name = "link forbid", .arguments = "KEY USER", .summary = "Take that permission away", .ask = forbid};

static const struct command permitted_command = {
    .name = "link permitted",
    .arguments = "KEY",
    .summary = "List the users who may follow a private link, besides its owner and admins",
    .ask = permitted};

const struct command link_command = {
    .name = "link",
    .summary = "Create, show, list, change or delete links",
    .subcommands = (const struct command *const[]){&create_command, &get_command, &list_command,
                                                   &update_command, &delete_command, &permit_command,
                                                   &forbid_command, &permitted_command, NULL},
};
