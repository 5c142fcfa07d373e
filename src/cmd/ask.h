/* One question to the server and what to print of the answer: shared by `link` and `key`. */
#pragma once

#include "cmd/args.h"

#include <jansson.h>

/*
 * Sends `body` (NULL: none; freed here) and gives the answer's JSON (NULL when it is empty), or prints the
 * problem's sentence and returns the exit status. `print_json` prints a good answer as it came and gives
 * NULL.
 */
int ask(struct client *c, const char *method, const char *path, json_t *body, bool print_json, json_t **ret);

/* A string of an object as text for people: "-" when it is missing or null. */
const char *ask_text(const json_t *object, const char *name);

/* Sets a member unless `text` is NULL; false when it is not UTF-8. */
bool ask_set_text(json_t *body, const char *name, const char *text);

/* Percent-encodes a path segment; the caller frees it. */
char *ask_segment(const char *text);
