#include "cmd/ask.h"
#include "cmd/command.h"
#include "cmd/record.h"

#include <stdlib.h>

static const char usage[] =
    "usage: curt link create URL [LINK OPTION]...\n"
    "       curt link get KEY\n"
    "       curt link list [--limit N] [--cursor C] [--all]\n"
    "       curt link update KEY [LINK OPTION]...\n"
    "       curt link delete KEY...\n"
    "       curt link permit KEY USER      USER (email address or id) may follow this private link\n"
    "       curt link forbid KEY USER      ... and may not any more\n"
    "       curt link permitted KEY        who may, beside its owner and admins\n"
    "\n"
    "Asks the server that works in the data folder, or works on the folder itself when none does.\n"
    "\n"
    "link options:\n";
static const char usage_end[] =
    "common options:\n"
    "  --json             print the answer as JSON\n"
    "  --data DIR         the data folder (any setting of 'curt serve --help' may be given)\n"
    "  --server URL       ask this server instead, with --api-key KEY (or CURT_URL and CURT_API_KEY)\n";

struct link_options {
	struct record_options record; /* first: record_prepare */
	const char *limit, *cursor;
	bool all;
};

/* Creating and changing */

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

static int create(struct client *c, const struct args *a)
{
	const struct link_options *o = a->ctx;
	json_t *body = record_body(&o->record, "original_url", a->words[1]), *link;
	if (!body)
		return 1;
	int r = ask(c, "POST", "/api/v1/links", body, a->json, &link);
	if (link)
		printf("%s\n", ask_text(link, "short_url"));
	json_decref(link);
	return r;
}

static int show(struct client *c, const struct args *a, const char *method, json_t *body)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/links/", a->words[1], "");
	json_t *link;
	int r = ask(c, method, path, body, a->json, &link);
	if (link)
		print_link(link);
	json_decref(link);
	return r;
}

static int get(struct client *c, const struct args *a)
{
	return show(c, a, "GET", NULL);
}

static int update(struct client *c, const struct args *a)
{
	const struct link_options *o = a->ctx;
	json_t *body = record_body(&o->record, NULL, NULL);
	return body ? show(c, a, "PATCH", body) : 1;
}

static int delete (struct client *c, const struct args *a)
{
	int r = 0;
	for (int i = 1; r == 0 && i < a->word_count; i++) {
		char *path CLEANUP(freep) = ask_path("/api/v1/links/", a->words[i], "");
		r = ask_and_say(c, a, "DELETE", path, "deleted %s", a->words[i]);
	}
	return r;
}

/* Who may follow it */

static int change_list(struct client *c, const struct args *a, const char *method, const char *said)
{
	char *list CLEANUP(freep) = ask_path("/api/v1/links/", a->words[1], "/permissions/");
	char *path CLEANUP(freep) = ask_path(list, a->words[2], "");
	return ask_and_say(c, a, method, path, "%s is %s the list of %s", a->words[2], said, a->words[1]);
}

static int permit(struct client *c, const struct args *a)
{
	return change_list(c, a, "PUT", "on");
}

static int forbid(struct client *c, const struct args *a)
{
	return change_list(c, a, "DELETE", "off");
}

static int permitted(struct client *c, const struct args *a)
{
	char *path CLEANUP(freep) = ask_path("/api/v1/links/", a->words[1], "/permissions");
	json_t *answer;
	int r = ask(c, "GET", path, NULL, a->json, &answer);
	const json_t *users = json_object_get(answer, "users");
	if (users)
		printf("%-6s %s\n", "ID", "USER");
	for (size_t i = 0; i < json_array_size(users); i++) {
		const json_t *user = json_array_get(users, i);
		printf("%-6lld %s\n", json_integer_value(json_object_get(user, "id")),
		       ask_text(user, "name"));
	}
	if (users && strcmp(ask_text(answer, "visibility"), "public") == 0)
		puts("the link is public: everybody may follow it");
	json_decref(answer);
	return r;
}

/* Lists */

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

/* With --all a page at a time, as text; as JSON one document, so all of it is gathered first. */
static int list(struct client *c, const struct args *a)
{
	const struct link_options *o = a->ctx;
	char *cursor CLEANUP(freep) = o->cursor ? strdup(o->cursor) : NULL;
	char *limit CLEANUP(freep) = ask_path("/api/v1/links?limit=",
	                                      o->limit ? o->limit
	                                      : o->all ? "1000"
	                                               : "50",
	                                      "");
	json_t *all = json_array();
	int r = 0;
	if (!a->json)
		printf("%-24s %-10s  %s\n", "KEY", "EXPIRES", "URL");
	do {
		json_t *page;
		r = ask_page(c, limit, &cursor, &page);
		json_t *links = json_object_get(page, "links");
		if (a->json && links)
			json_array_extend(all, links);
		else
			print_page(links);
		json_decref(page);
	} while (r == 0 && o->all && cursor);
	if (r == 0 && a->json) {
		json_t *document = json_pack("{s:o, s:s?}", "links", all, "next", cursor);
		json_dumpf(document, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(document);
		return 0;
	}
	json_decref(all);
	if (r == 0 && cursor)
		printf("more with --cursor %s, or --all\n", cursor);
	return r;
}

static const struct arg_verb verbs[] = {
    {"create", 2, 2, record_prepare, create},
    {"get", 2, 2, NULL, get},
    {"list", 1, 1, NULL, list},
    {"update", 2, 2, record_prepare, update},
    {"delete", 2, ARGS_WORDS_MAX, NULL, delete},
    {"permit", 3, 3, NULL, permit},
    {"forbid", 3, 3, NULL, forbid},
    {"permitted", 2, 2, NULL, permitted},
};

int cmd_link(int argc, char **argv)
{
	struct secret CLEANUP(secret_wipe) password = {0};
	struct link_options o = {
	    .record = {.fields = &link_fields, .secret = &password, .secret_prompt = "password of the link"}};
	const struct arg_option options[] = {
	    {.name = "--limit", .value = &o.limit},
	    {.name = "--cursor", .value = &o.cursor},
	    {.name = "--all", .flag = &o.all},
	};
	const struct arg_command command = {
	    .options = options,
	    .option_count = ARRAY_LEN(options),
	    .record = &o.record,
	    .usage = usage,
	    .usage_end = usage_end,
	    .name = "link",
	    .verbs = verbs,
	    .verb_count = ARRAY_LEN(verbs),
	};
	return args_run(&command, argc, argv, &o);
}
