#include "cmd/ask.h"
#include "cmd/command.h"

#include <stdlib.h>

static const char usage[] =
    "usage: curt link create URL [--alias NAME] [LINK OPTION]...\n"
    "       curt link get KEY\n"
    "       curt link list [--limit N] [--cursor C] [--all]\n"
    "       curt link update KEY [--url URL] [--enable | --disable] [LINK OPTION]...\n"
    "       curt link delete KEY...\n"
    "       curt link permit KEY USER      USER (email address or id) may follow this private link\n"
    "       curt link forbid KEY USER      ... and may not any more\n"
    "       curt link permitted KEY        who may, beside its owner and admins\n"
    "\n"
    "Asks the server that works in the data folder, or works on the folder itself when none does.\n"
    "\n"
    "link options:\n"
    "  --expires TIME     2027-01-31, 2027-01-31T12:00:00Z, or never; two years when not given\n"
    "  --not-before TIME  when it begins, or none\n"
    "  --max-clicks N     how often it may be followed, or none\n"
    "  --expired-url URL  where visitors go when its time or its clicks are over, or none\n"
    "  --private, --public\n"
    "                     for its owner, admins and those that are permitted; or for everybody\n"
    "  --password         visitors must know a password, which is asked for, or read from the standard "
    "input\n"
    "                     (one line) when that is no terminal; --no-password takes it away\n"
    "  --owner USER       whose it is; for admins\n"
    "  --status CODE      301, 302 (the default), 307 or 308\n"
    "  --title TEXT, --note TEXT, --tag WORD (may be repeated)\n"
    "common options:\n"
    "  --json             print the answer as JSON\n"
    "  --data DIR         the data folder (any setting of 'curt serve --help' may be given)\n"
    "  --server URL       ask this server instead, with --api-key KEY (or CURT_URL and CURT_API_KEY)\n";

struct link_options {
	const char *alias, *url, *expires, *not_before, *expired_url, *max_clicks, *owner, *status, *title,
	    *note, *limit, *cursor;
	const char *tags[ARGS_REPEATS_MAX + 1];
	bool enable, disable, all, is_private, is_public, with_password, no_password;
	struct secret *password;
};

/* Before a server is asked */

static int check_options(const struct link_options *o)
{
	uint64_t n;
	if (o->status && (!str_u64(str_of(o->status), &n) || n > 999))
		return cmd_fail("--status takes 301, 302, 307 or 308, not '%s'", o->status);
	if (o->max_clicks && strcmp(o->max_clicks, "none") != 0 &&
	    (!str_u64(str_of(o->max_clicks), &n) || n > INT64_MAX))
		return cmd_fail("--max-clicks takes a whole number or none, not '%s'", o->max_clicks);
	if (o->enable && o->disable)
		return cmd_fail("--enable and --disable contradict each other; give one");
	if (o->is_private && o->is_public)
		return cmd_fail("--private and --public contradict each other; give one");
	if (o->with_password && o->no_password)
		return cmd_fail("--password and --no-password contradict each other; give one");
	return 0;
}

static int prepare(const struct args *a, const void *ctx)
{
	(void)a;
	const struct link_options *o = ctx;
	struct err e;
	int r = check_options(o);
	if (r == 0 && o->with_password && secret_read(o->password, "password of the link", &e) < 0)
		return cmd_fail("%s", e.text);
	return r;
}

/* Creating and changing */

/* False: a text is not UTF-8. */
static bool set_tags(json_t *body, const char *const *words)
{
	bool fine = true;
	if (!words[0])
		return true;
	json_t *tags = json_array();
	for (size_t i = 0; words[i]; i++)
		fine &= json_array_append_new(tags, json_string(words[i])) == 0;
	return json_object_set_new(body, "tags", tags) == 0 && fine;
}

static bool set_password(json_t *body, const struct link_options *o)
{
	bool fine = true;
	if (o->with_password)
		fine = ask_set_secret(body, "password", o->password);
	if (o->no_password)
		json_object_set_new(body, "password", json_null());
	secret_wipe(o->password);
	return fine;
}

/* What create and update have in common; NULL when a text is not UTF-8: that has been said. */
static json_t *body_of(const struct link_options *o, const char *url)
{
	json_t *body = json_object();
	bool fine = ask_set_text(body, "original_url", url) && ask_set_text(body, "alias", o->alias) &&
	            ask_set_text_or_none(body, "not_before", o->not_before, "none") &&
	            ask_set_text_or_none(body, "expires_at", o->expires, "never") &&
	            ask_set_text_or_none(body, "expired_url", o->expired_url, "none") &&
	            ask_set_text(body, "owner", o->owner) && ask_set_text(body, "title", o->title) &&
	            ask_set_text(body, "note", o->note) && set_tags(body, o->tags) && set_password(body, o);
	if (o->max_clicks && !ask_set_number(body, "max_clicks", o->max_clicks))
		json_object_set_new(body, "max_clicks", json_null());
	if (o->status)
		json_object_set_new(body, "redirect_status", json_integer(strtol(o->status, NULL, 10)));
	if (o->is_private || o->is_public)
		json_object_set_new(body, "visibility", json_string(o->is_private ? "private" : "public"));
	if (o->enable || o->disable)
		json_object_set_new(body, "enabled", json_boolean(o->enable));
	if (!fine) {
		json_decref(body);
		cmd_fail("an argument or the password is not UTF-8 text; check the terminal's encoding");
		return NULL;
	}
	return body;
}

static void print_link(const json_t *link)
{
	static const char *const fields[] = {"short_url",  "original_url", "created_at", "not_before",
	                                     "expires_at", "expired_url",  "visibility", "title",
	                                     "note",       "owner"};
	const json_t *max_clicks = json_object_get(link, "max_clicks");
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		printf("%-13s %s\n", fields[i], ask_text(link, fields[i]));
	printf("%-13s %s\n", "password", json_is_true(json_object_get(link, "has_password")) ? "yes" : "no");
	printf("%-13s %lld\n", "status", json_integer_value(json_object_get(link, "redirect_status")));
	printf("%-13s %lld", "clicks", json_integer_value(json_object_get(link, "clicks")));
	if (json_is_integer(max_clicks))
		printf(" of %lld", json_integer_value(max_clicks));
	printf("\n%-13s %s\n", "enabled", json_is_true(json_object_get(link, "enabled")) ? "yes" : "no");
	const json_t *tags = json_object_get(link, "tags");
	printf("%-13s ", "tags");
	for (size_t i = 0; i < json_array_size(tags); i++)
		printf("%s%s", i ? ", " : "", json_string_value(json_array_get(tags, i)));
	puts(json_array_size(tags) ? "" : "-");
}

static int create(struct client *c, const struct args *a, const void *ctx)
{
	const struct link_options *o = ctx;
	json_t *body = body_of(o, a->words[1]), *link;
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

static int get(struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
	return show(c, a, "GET", NULL);
}

static int update(struct client *c, const struct args *a, const void *ctx)
{
	const struct link_options *o = ctx;
	json_t *body = body_of(o, o->url);
	return body ? show(c, a, "PATCH", body) : 1;
}

static int delete (struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
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

static int permit(struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
	return change_list(c, a, "PUT", "on");
}

static int forbid(struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
	return change_list(c, a, "DELETE", "off");
}

static int permitted(struct client *c, const struct args *a, const void *ctx)
{
	(void)ctx;
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
		bool is_private = strcmp(ask_text(link, "visibility"), "private") == 0;
		printf("%-24s %-10.10s  %s%s%s%s\n", ask_text(link, "key"), ask_text(link, "expires_at"),
		       ask_text(link, "original_url"), is_private ? "  (private)" : "",
		       json_is_true(json_object_get(link, "has_password")) ? "  (password)" : "",
		       json_is_true(json_object_get(link, "enabled")) ? "" : "  (disabled)");
	}
}

/* With --all a page at a time, as text; as JSON one document, so all of it is gathered first. */
static int list(struct client *c, const struct args *a, const void *ctx)
{
	const struct link_options *o = ctx;
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
	static const struct ask_verb verbs[] = {
	    {"create", 2, 2, prepare, create},
	    {"get", 2, 2, NULL, get},
	    {"list", 1, 1, NULL, list},
	    {"update", 2, 2, prepare, update},
	    {"delete", 2, ARGS_WORDS_MAX, NULL, delete},
	    {"permit", 3, 3, NULL, permit},
	    {"forbid", 3, 3, NULL, forbid},
	    {"permitted", 2, 2, NULL, permitted},
	};
	return ask_verb_run("link", verbs, ARRAY_LEN(verbs), a, ctx);
}

int cmd_link(int argc, char **argv)
{
	struct secret CLEANUP(secret_wipe) password = {0};
	struct link_options o = {.password = &password};
	const struct arg_option options[] = {
	    {.name = "--alias", .value = &o.alias},
	    {.name = "--url", .value = &o.url},
	    {.name = "--expires", .value = &o.expires},
	    {.name = "--not-before", .value = &o.not_before},
	    {.name = "--expired-url", .value = &o.expired_url},
	    {.name = "--max-clicks", .value = &o.max_clicks},
	    {.name = "--private", .flag = &o.is_private},
	    {.name = "--public", .flag = &o.is_public},
	    {.name = "--password", .flag = &o.with_password},
	    {.name = "--no-password", .flag = &o.no_password},
	    {.name = "--owner", .value = &o.owner},
	    {.name = "--status", .value = &o.status},
	    {.name = "--title", .value = &o.title},
	    {.name = "--note", .value = &o.note},
	    {.name = "--tag", .repeat = o.tags},
	    {.name = "--limit", .value = &o.limit},
	    {.name = "--cursor", .value = &o.cursor},
	    {.name = "--all", .flag = &o.all},
	    {.name = "--enable", .flag = &o.enable},
	    {.name = "--disable", .flag = &o.disable},
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
