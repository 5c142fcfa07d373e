/* One question to the server and what to print of the answer: shared by the commands that ask one. */
#pragma once

#include "cmd/args.h"
#include "cmd/secret.h"

#include <jansson.h>

/*
 * Sends `body` (NULL: none; freed here, with its password overwritten) and gives the answer's JSON (NULL when
 * it is empty), or prints the problem's sentence and returns the exit status. `print_json` prints a good
 * answer as it came and gives NULL.
 */
int ask(struct client *c, const char *method, const char *path, json_t *body, bool print_json, json_t **ret);

/* Asks for a page of a list: `path` with its limit, behind *cursor (NULL: from the start), which becomes the
 * cursor of the next page, NULL at the end. */
int ask_page(struct client *c, const char *path, char **cursor, json_t **ret);
/* All pages of a list in one array; or printed as one JSON document, and then there is none. */
int ask_all(struct client *c, const char *list, const char *member, bool print_json, json_t **ret);

/* For what has no answer to show: asks without a body, and says a line when it is done, unless --json.
 * Returns the exit status. */
int ask_and_say(struct client *c, const struct args *a, const char *method, const char *path, const char *fmt,
                ...) PRINTF_LIKE(5, 6);

/* A string of an object as text for people: "-" when it is missing or null. */
const char *ask_text(const json_t *object, const char *name);

/* Sets a member unless `text` is NULL; false when it is not UTF-8. */
bool ask_set_text(json_t *body, const char *name, const char *text);

/* Likewise; false when it is not a whole number. */
bool ask_set_number(json_t *body, const char *name, const char *text);

/* False when it is not UTF-8. */
bool ask_set_secret(json_t *body, const char *name, const struct secret *secret);

/* Percent-encodes a path segment; the caller frees it. */
char *ask_segment(const char *text);

/* A path with a word in it, percent-encoded; the caller frees it. */
char *ask_path(const char *before, const char *word, const char *after);
