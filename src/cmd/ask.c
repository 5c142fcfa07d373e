#include "cmd/ask.h"

#include "cmd/command.h"

#include <curl/curl.h>
#include <stdlib.h>

static int print_problem(int status, const struct buf *response)
{
	json_t *problem = json_loadb(response->data ? response->data : "", response->len, 0, NULL);
	const char *detail = json_string_value(json_object_get(problem, "detail"));
	int r = detail ? cmd_fail("%s", detail) : cmd_fail("the server answered with status %d", status);
	json_decref(problem);
	return r;
}

/* What others have put into titles and names is shown on a terminal: without its control characters. */
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

int ask(struct client *c, const char *method, const char *path, json_t *body, bool print_json, json_t **ret)
{
	struct err e;
	struct buf CLEANUP(buf_release) response = {0};
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	int status;
	int r = client_call(c, method, path, str_of(text), &response, &status, &e);
	free(text);
	*ret = NULL;
	if (r < 0)
		return cmd_fail("%s", e.text);
	if (status >= 300)
		return print_problem(status, &response);
	if (print_json) {
		fwrite(response.data, 1, response.len, stdout);
		return 0;
	}
	*ret = response.len > 0 ? json_loadb(response.data, response.len, 0, NULL) : NULL;
	if (*ret)
		make_printable(*ret);
	return 0;
}

const char *ask_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text ? text : "-";
}

bool ask_set_text(json_t *body, const char *name, const char *text)
{
	return !text || json_object_set_new(body, name, json_string(text)) == 0;
}

char *ask_segment(const char *text)
{
	char *escaped = curl_easy_escape(NULL, text, 0);
	char *copy = escaped ? strdup(escaped) : NULL;
	curl_free(escaped);
	ASSERT(copy);
	return copy;
}
