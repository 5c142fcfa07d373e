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

/* What create and update have in common; NULL when a text is not UTF-8. */
static json_t *body_of(const struct link_options *o, const char *url)
{
	json_t *body = json_object();
	bool fine = ask_set_text(body, "original_url", url) && ask_set_text(body, "alias", o->alias) &&
	            ask_set_text(body, "title", o->title) && ask_set_text(body, "note", o->note);
	if (o->expires && strcmp(o->expires, "never") == 0)
		json_object_set_new(body, "expires_at", json_null());
	else
		fine &= ask_set_text(body, "expires_at", o->expires);
	if (o->status)
		json_object_set_new(body, "redirect_status", json_integer(strtol(o->status, NULL, 10)));
	if (o->tags[0]) {
		json_t *tags = json_array();
		for (size_t i = 0; o->tags[i]; i++)
			fine &= json_array_append_new(tags, json_string(o->tags[i])) == 0;
		json_object_set_new(body, "tags", tags);
	}
	if (o->enable || o->disable)
		json_object_set_new(body, "enabled", json_boolean(o->enable));
	if (!fine) {
		json_decref(body);
		cmd_fail("an argument is not UTF-8 text; check the terminal's encoding");
		return NULL;
	}
	return body;
}

static void print_link(const json_t *link)
{
	static const char *const fields[] = {"short_url", "original_url", "created_at", "expires_at",
	                                     "title",     "note",         "owner"};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		printf("%-13s %s\n", fields[i], ask_text(link, fields[i]));
	printf("%-13s %lld\n", "status", json_integer_value(json_object_get(link, "redirect_status")));
	printf("%-13s %lld\n", "clicks", json_integer_value(json_object_get(link, "clicks")));
	printf("%-13s %s\n", "enabled", json_is_true(json_object_get(link, "enabled")) ? "yes" : "no");
	json_t *tags = json_object_get(link, "tags");
	printf("%-13s ", "tags");
	for (size_t i = 0; i < json_array_size(tags); i++)
		printf("%s%s", i ? ", " : "", json_string_value(json_array_get(tags, i)));
	puts(json_array_size(tags) ? "" : "-");
}

static int create(struct client *c, const struct args *a, const struct link_options *o)
{
	json_t *body = body_of(o, a->words[1]), *link;
	if (!body)
		return 1;
	int r = ask(c, "POST", "/api/v1/links", body, a->json, &link);
	if (link)
		printf("%s\n", ask_text(link, "short_url"));
	json_decref(link);
	return r;
}

/* Asks about one link; gives the answer. */
static int ask_link(struct client *c, const char *method, const char *key, json_t *body, bool print_json,
                    json_t **ret)
{
	char path[512];
	char *segment CLEANUP(freep) = ask_segment(key);
	snprintf(path, sizeof(path), "/api/v1/links/%s", segment);
	return ask(c, method, path, body, print_json, ret);
}

static int show(struct client *c, const struct args *a, const char *method, json_t *body)
{
	json_t *link;
	int r = ask_link(c, method, a->words[1], body, a->json, &link);
	if (link)
		print_link(link);
	json_decref(link);
	return r;
}

static int update(struct client *c, const struct args *a, const struct link_options *o)
{
	json_t *body = body_of(o, o->url);
	return body ? show(c, a, "PATCH", body) : 1;
}

static int delete (struct client *c, const struct args *a)
{
	int r = 0;
	for (int i = 1; r == 0 && i < a->word_count; i++) {
		json_t *none;
		r = ask_link(c, "DELETE", a->words[i], NULL, false, &none);
		json_decref(none);
		if (r == 0 && !a->json)
			printf("deleted %s\n", a->words[i]);
	}
	return r;
}

/* Fetches a page behind *cursor; leaves the cursor of the next one, NULL at the end. */
static int fetch_page(struct client *c, const struct link_options *o, char **cursor, json_t **ret_page)
{
	char path[512];
	const char *limit = o->limit ? o->limit : o->all ? "1000" : "50";
	snprintf(path, sizeof(path), "/api/v1/links?limit=%s%s%s", limit, *cursor ? "&cursor=" : "",
	         *cursor ? *cursor : "");
	int r = ask(c, "GET", path, NULL, false, ret_page);
	free(steal(*cursor));
	const char *next = json_string_value(json_object_get(*ret_page, "next"));
	*cursor = next ? strdup(next) : NULL;
	return r;
}

static void print_page(const json_t *links)
{
	for (size_t i = 0; i < json_array_size(links); i++) {
		const json_t *link = json_array_get(links, i);
		printf("%-24s %-10.10s  %s%s\n", ask_text(link, "key"), ask_text(link, "expires_at"),
		       ask_text(link, "original_url"),
		       json_is_true(json_object_get(link, "enabled")) ? "" : "  (disabled)");
	}
}

/* With --all a page at a time, as text; as JSON one document, so all of it is gathered first. */
static int list(struct client *c, const struct args *a, const struct link_options *o)
{
	char *cursor CLEANUP(freep) = o->cursor ? ask_segment(o->cursor) : NULL;
	json_t *all = json_array();
	int r = 0;
	if (!a->json)
		printf("%-24s %-10s  %s\n", "KEY", "EXPIRES", "URL");
	do {
		json_t *page;
		r = fetch_page(c, o, &cursor, &page);
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

static int run(const struct args *a, const void *ctx)
{
	const struct link_options *o = ctx;
	const char *verb = a->words[0];
	bool needs_one = strcmp(verb, "create") == 0 || strcmp(verb, "get") == 0 ||
	                 strcmp(verb, "update") == 0;
	bool is_list = strcmp(verb, "list") == 0, is_delete = strcmp(verb, "delete") == 0;
	if (!needs_one && !is_list && !is_delete)
		return cmd_fail("there is no 'curt link %s'; see 'curt link --help'", verb);
	if ((needs_one && a->word_count != 2) || (is_delete && a->word_count < 2) ||
	    (is_list && a->word_count != 1))
		return cmd_fail("wrong number of arguments for 'curt link %s'; see 'curt link --help'", verb);
	uint64_t status;
	if (o->status && (!str_u64(str_of(o->status), &status) || status > 999))
		return cmd_fail("--status takes 301, 302, 307 or 308, not '%s'", o->status);
	if (o->enable && o->disable)
		return cmd_fail("--enable and --disable contradict each other; give one");
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
		r = show(&c, a, "GET", NULL);
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
