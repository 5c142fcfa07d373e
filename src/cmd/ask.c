#include "cmd/ask.h"

#include "base/utf8.h"
#include "cmd/wording.h"

#include <curl/curl.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>

/* Titles and names come from other users: on a terminal they are shown without control characters. */
static void make_printable(json_t *value)
{
	const char *name;
	json_t *child;
	size_t i;
	if (json_is_string(value)) {
		char *text = strdup(json_string_value(value));
		ASSERT(text);
		for (char *p = text; *p; p++) {
			bool latin1 = (unsigned char)p[0] == 0xc2 && (unsigned char)p[1] < 0xa0;
			if (latin1)
				*p++ = ' ';
			if (latin1 || (unsigned char)*p < 0x20 || *p == 0x7f)
				*p = ' ';
		}
		json_string_set(value, text);
		free(text);
	}
	json_object_foreach(value, name, child) make_printable(child);
	json_array_foreach(value, i, child) make_printable(child);
}

static int print_problem(const struct client *c, int status, const struct buf *response)
{
	json_t *problem = json_loadb(response->data ? response->data : "", response->len, 0, NULL);
	make_printable(problem);
	struct str detail = str_of(json_string_value(json_object_get(problem, "detail")));
	struct str type = str_of(json_string_value(json_object_get(problem, "type")));
	struct buf CLEANUP(buf_release) text = {0};
	if (c->about)
		buf_printf(&text, "%s: ", c->about);
	if (str_eq(type, STR("urn:curt:key-required")))
		buf_printf(
		    &text,
		    c->key ? "%s does not take this API key: it is unknown, revoked or expired, or its user "
		             "is disabled; give another with --api-key or CURT_API_KEY"
		           : "%s needs an API key; give it with --api-key or CURT_API_KEY",
		    c->url);
	else if (str_eq(type, STR("urn:curt:no-such-address")))
		buf_printf(&text, "%s is not the address of a curt server; correct --server or CURT_URL",
		           c->url);
	else if (detail.ptr)
		wording_put(&text, c->command, detail);
	else
		buf_printf(&text, "%s answered with status %d", c->url, status);
	int r = cmd_fail("%.*s", STR_ARG(buf_view(&text)));
	json_decref(problem);
	return r;
}

/* In memory of the exact size: memory that grows leaves copies of a password behind. */
static struct str body_text(const json_t *body)
{
	size_t len = json_dumpb(body, NULL, 0, JSON_COMPACT);
	char *text = malloc(len + 1);
	ASSERT(text);
	json_dumpb(body, text, len, JSON_COMPACT);
	text[len] = '\0';
	return str_n(text, len);
}

static void body_free(json_t *body, struct str text)
{
	json_t *password = json_object_get(body, "password");
	if (json_is_string(password))
		sodium_memzero((char *)json_string_value(password), json_string_length(password));
	json_decref(body);
	if (text.ptr)
		sodium_memzero((char *)text.ptr, text.len);
	free((char *)text.ptr);
}

int ask(struct client *c, const char *method, const char *path, json_t *body, bool print_json, json_t **ret)
{
	struct err e;
	struct buf CLEANUP(buf_release) response = {0};
	struct str text = body ? body_text(body) : STR_NULL;
	int status;
	int r = client_call(c, method, path, text, &response, &status, &e);
	body_free(body, text);
	*ret = NULL;
	if (r < 0)
		return cmd_fail("%s%s%s", c->about ? c->about : "", c->about ? ": " : "", e.text);
	if (status >= 300)
		return print_problem(c, status, &response);
	json_t *answer = response.len > 0 ? json_loadb(response.data, response.len, 0, NULL) : NULL;
	if (response.len > 0 && !answer)
		return cmd_fail("the answer of %s is not JSON; check that it is a server of curt", c->url);
	if (print_json) {
		fwrite(response.data, 1, response.len, stdout);
		json_decref(answer);
		return 0;
	}
	make_printable(answer);
	*ret = answer;
	return 0;
}

int ask_page(struct client *c, const char *path, char **cursor, json_t **ret)
{
	char *before CLEANUP(freep) = steal(*cursor);
	char *from CLEANUP(freep) = before ? ask_path("&cursor=", before, "") : NULL;
	char *whole CLEANUP(freep) = NULL;
	ASSERT(asprintf(&whole, "%s%s", path, from ? from : "") >= 0);
	int r = ask(c, "GET", whole, NULL, false, ret);
	const char *next = json_string_value(json_object_get(*ret, "next"));
	*cursor = next ? strdup(next) : NULL;
	return r;
}

void ask_print_json(json_t *document)
{
	json_dumpf(document, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(document);
}

int ask_list(struct client *c, const struct args *a, const char *path, const char *member, const char *header,
             void (*print)(const json_t *row))
{
	char *cursor CLEANUP(freep) = NULL;
	char *first CLEANUP(freep) = NULL;
	bool as_json = args_has(a, "--json");
	json_t *all = json_array();
	int r;
	ASSERT(asprintf(&first, "%s?limit=1000", path) >= 0);
	do {
		json_t *page;
		r = ask_page(c, first, &cursor, &page);
		json_array_extend(all, json_object_get(page, member));
		json_decref(page);
	} while (r == 0 && cursor);
	if (r == 0 && as_json) {
		ask_print_json(json_pack("{s:O}", member, all));
	} else if (r == 0) {
		puts(header);
		for (size_t i = 0; i < json_array_size(all); i++)
			print(json_array_get(all, i));
	}
	json_decref(all);
	return r;
}

int ask_and_print(struct client *c, const struct args *a, const char *method, const char *path,
                  const char *fmt, ...)
{
	json_t *none;
	int r = ask(c, method, path, NULL, false, &none);
	json_decref(none);
	if (r != 0 || args_has(a, "--json"))
		return r;
	va_list ap;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	return 0;
}

const char *ask_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "-";
}

void ask_column(const char *text, size_t width, bool cuts)
{
	struct str rest = str_of(text);
	for (; rest.len > 0 && (width > 0 || !cuts); width -= width > 0) {
		size_t len = MAX(utf8_first(rest), 1);
		fwrite(rest.ptr, 1, len, stdout);
		rest = str_n(rest.ptr + len, rest.len - len);
	}
	printf("%*s", (int)width, "");
}

bool ask_set_text(json_t *body, const char *name, const char *text)
{
	return json_object_set_new(body, name, json_string(text)) == 0;
}

bool ask_set_number(json_t *body, const char *name, const char *text)
{
	uint64_t n;
	if (!str_u64(str_of(text), &n) || n > INT64_MAX)
		return false;
	return json_object_set_new(body, name, json_integer((json_int_t)n)) == 0;
}

bool ask_set_secret(json_t *body, const char *name, const struct secret *secret)
{
	return !memchr(secret->text, '\0', secret->len) &&
	       json_object_set_new(body, name, json_stringn(secret->text, secret->len)) == 0;
}

char *ask_segment(const char *text)
{
	char *escaped = curl_easy_escape(NULL, text, 0);
	char *copy = escaped ? strdup(escaped) : NULL;
	curl_free(escaped);
	ASSERT(copy);
	return copy;
}

char *ask_path(const char *before, const char *word, const char *after)
{
	char *segment CLEANUP(freep) = ask_segment(word);
	char *path = NULL;
	ASSERT(asprintf(&path, "%s%s%s", before, segment, after) >= 0);
	return path;
}
