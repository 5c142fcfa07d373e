#include "cmd/ask.h"
#include "cmd/command.h"

#include <stdlib.h>

static const char usage[] =
    "usage: curt link create URL [--alias NAME] [LINK OPTION]...\n"
    "       curt link get KEY\n"
    "       curt link list [--limit N] [--cursor C] [--all]\n"
    "       curt link update KEY [--url URL] [--enable | --disable] [LINK OPTION]...\n"
    "       curt link delete KEY...\n"
    "\n"
    "Asks the server that works in the data folder, or works on the folder itself when none does.\n"
    "\n"
    "link options:\n"
    "  --expires TIME     2027-01-31, 2027-01-31T12:00:00Z, or never; two years when not given\n"
    "  --status CODE      301, 302 (the default), 307 or 308\n"
    "  --title TEXT, --note TEXT, --tag WORD (may be repeated)\n"
    "common options:\n"
    "  --json             print the answer as JSON\n"
    "  --data DIR         the data folder (any setting of 'curt serve --help' may be given)\n"
    "  --server URL       ask this server instead, with --api-key KEY (or CURT_URL and CURT_API_KEY)\n";

struct link_options {
	const char *alias, *url, *expires, *status, *title, *note, *limit, *cursor;
	const char *tags[ARGS_REPEATS_MAX + 1];
	bool enable, disable, all;
};

/* What create and update have in common. */
static json_t *body_of(const struct link_options *o)
{
	json_t *body = json_object();
	if (o->expires)
		json_object_set_new(body, "expires_at",
		                    strcmp(o->expires, "never") == 0 ? json_null() : json_string(o->expires));
	if (o->status)
		json_object_set_new(body, "redirect_status", json_integer(strtol(o->status, NULL, 10)));
	if (o->title)
		json_object_set_new(body, "title", json_string(o->title));
	if (o->note)
		json_object_set_new(body, "note", json_string(o->note));
	if (o->tags[0]) {
		json_t *tags = json_array();
		for (size_t i = 0; o->tags[i]; i++)
			json_array_append_new(tags, json_string(o->tags[i]));
		json_object_set_new(body, "tags", tags);
	}
	if (o->enable || o->disable)
		json_object_set_new(body, "enabled", json_boolean(o->enable));
	return body;
}

static void print_link(const json_t *link)
{
	static const char *const fields[] = {"short_url", "original_url", "created_at", "expires_at",
	                                     "title",     "note",         "owner"};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		printf("%-13s %s\n", fields[i], ask_text(link, fields[i]));
	printf("%-13s %lld\n", "status", json_integer_value(json_object_get(link, "redirect_status")));
	printf("%-13s %s\n", "enabled", json_is_true(json_object_get(link, "enabled")) ? "yes" : "no");
	json_t *tags = json_object_get(link, "tags");
	printf("%-13s ", "tags");
	for (size_t i = 0; i < json_array_size(tags); i++)
		printf("%s%s", i ? ", " : "", json_string_value(json_array_get(tags, i)));
	puts(json_array_size(tags) ? "" : "-");
}

static int create(struct client *c, const struct args *a, const struct link_options *o)
{
	json_t *body = body_of(o), *link;
	json_object_set_new(body, "original_url", json_string(a->words[1]));
	if (o->alias)
		json_object_set_new(body, "alias", json_string(o->alias));
	int r = ask(c, "POST", "/api/v1/links", body, a->json, &link);
	if (link)
		printf("%s\n", ask_text(link, "short_url"));
	json_decref(link);
	return r;
}

static int one(struct client *c, const struct args *a, const char *method, json_t *body)
{
	char path[512];
	char *segment = ask_segment(a->words[1]);
	json_t *link;
	snprintf(path, sizeof(path), "/api/v1/links/%s", segment);
	free(segment);
	int r = ask(c, method, path, body, a->json, &link);
	if (link)
		print_link(link);
	json_decref(link);
	return r;
}

static int update(struct client *c, const struct args *a, const struct link_options *o)
{
	json_t *body = body_of(o);
	if (o->url)
		json_object_set_new(body, "original_url", json_string(o->url));
	return one(c, a, "PATCH", body);
}

static int delete (struct client *c, const struct args *a)
{
	int r = 0;
	for (int i = 1; r == 0 && i < a->word_count; i++) {
		char path[512];
		char *segment = ask_segment(a->words[i]);
		json_t *none;
		snprintf(path, sizeof(path), "/api/v1/links/%s", segment);
		free(segment);
		r = ask(c, "DELETE", path, NULL, false, &none);
		json_decref(none);
		if (r == 0 && !a->json)
			printf("deleted %s\n", a->words[i]);
	}
	return r;
}

/* Prints a page; gives the cursor of the next one, NULL at the end. */
static int list_page(struct client *c, const struct link_options *o, bool print_json, char **cursor)
{
	char path[512];
	json_t *page;
	snprintf(path, sizeof(path), "/api/v1/links?limit=%s%s%s",
	         o->limit ? o->limit
	         : o->all ? "1000"
	                  : "50",
	         *cursor ? "&cursor=" : "", *cursor ? *cursor : "");
	int r = ask(c, "GET", path, NULL, print_json, &page);
	free(steal(*cursor));
	json_t *links = json_object_get(page, "links");
	for (size_t i = 0; i < json_array_size(links); i++) {
		const json_t *link = json_array_get(links, i);
		printf("%-24s %-10.10s  %s%s\n", ask_text(link, "key"), ask_text(link, "expires_at"),
		       ask_text(link, "original_url"),
		       json_is_true(json_object_get(link, "enabled")) ? "" : "  (disabled)");
	}
	const char *next = json_string_value(json_object_get(page, "next"));
	*cursor = next ? strdup(next) : NULL;
	json_decref(page);
	return r;
}

static int list(struct client *c, const struct args *a, const struct link_options *o)
{
	char *cursor = o->cursor ? ask_segment(o->cursor) : NULL;
	if (!a->json)
		printf("%-24s %-10s  %s\n", "KEY", "EXPIRES", "URL");
	int r = list_page(c, o, a->json, &cursor);
	while (r == 0 && o->all && cursor)
		r = list_page(c, o, a->json, &cursor);
	if (r == 0 && cursor)
		printf("more with --cursor %s, or --all\n", cursor);
	free(cursor);
	return r;
}

static int run(const struct args *a, const struct link_options *o)
{
	const char *verb = a->words[0];
	bool needs_one = strcmp(verb, "create") == 0 || strcmp(verb, "get") == 0 ||
	                 strcmp(verb, "update") == 0;
	bool is_list = strcmp(verb, "list") == 0, is_delete = strcmp(verb, "delete") == 0;
	if (!needs_one && !is_list && !is_delete)
		return cmd_fail("there is no 'curt link %s'; see 'curt link --help'", verb);
	if ((needs_one && a->word_count != 2) || (is_delete && a->word_count < 2) ||
	    (is_list && a->word_count != 1))
		return cmd_fail("wrong number of arguments for 'curt link %s'; see 'curt link --help'", verb);
	struct err e;
	struct client c;
	if (client_open(&c, &a->client, &e) < 0)
		return cmd_fail("%s", e.text);
	int r;
	if (is_list)
		r = list(&c, a, o);
	else if (is_delete)
		r = delete (&c, a);
	else if (strcmp(verb, "create") == 0)
		r = create(&c, a, o);
	else if (strcmp(verb, "update") == 0)
		r = update(&c, a, o);
	else
		r = one(&c, a, "GET", NULL);
	client_close(&c);
	return r;
}

int cmd_link(int argc, char **argv)
{
	struct link_options o = {0};
	const struct arg_option options[] = {
	    {.name = "--alias", .value = &o.alias},     {.name = "--url", .value = &o.url},
	    {.name = "--expires", .value = &o.expires}, {.name = "--status", .value = &o.status},
	    {.name = "--title", .value = &o.title},     {.name = "--note", .value = &o.note},
	    {.name = "--tag", .repeat = o.tags},        {.name = "--limit", .value = &o.limit},
	    {.name = "--cursor", .value = &o.cursor},   {.name = "--all", .flag = &o.all},
	    {.name = "--enable", .flag = &o.enable},    {.name = "--disable", .flag = &o.disable},
	};
	struct args a;
	struct err e;
	if (args_parse(&a, argc, argv, options, ARRAY_LEN(options), &e) < 0)
		return cmd_fail("%s", e.text);
	int r;
	if (a.help || a.word_count == 0) {
		fputs(usage, a.help ? stdout : stderr);
		r = a.help ? 0 : 2;
	} else {
		r = run(&a, &o);
	}
	free(a.client.settings);
	return r;
}
