/* One request to the server, and the printing of its answer: for all commands that ask a server. */
#pragma once

#include "cmd/client.h"

#include <jansson.h>

/*
 * Sends `body` (NULL: none; freed here, its password overwritten). *ret is the JSON of the answer, NULL when
 * it is empty. On failure prints the problem and returns the exit status. `print_json` prints the answer of a
 * success as it is; then *ret is NULL.
 */
int ask(struct client *c, const char *method, const char *path, json_t *body, bool print_json, json_t **ret);

/* Reads the page of a list at *cursor (NULL: the first). `path` has a query. *cursor becomes that of the next
 * page, NULL at the end. */
int ask_page(struct client *c, const char *path, char **cursor, json_t **ret);
/* Prints a whole list: the header and each row, or with --json one document. Returns the exit status. */
int ask_list(struct client *c, const struct args *a, const char *path, const char *member, const char *header,
             void (*print)(const json_t *row));

/* Prints a document as one line, and frees it. */
void ask_print_json(json_t *document);

/* For requests without a body and an answer to show: prints the line on success, unless --json is given.
 * Returns the exit status. */
int ask_and_print(struct client *c, const struct args *a, const char *method, const char *path,
                  const char *fmt, ...) PRINTF_LIKE(5, 6);

/* A string member, for people: "-" when it is missing or null. */
const char *ask_text(const json_t *object, const char *name);

/* Prints a text in a column of so many characters; a longer one is cut, or moves what follows. */
void ask_column(const char *text, size_t width, bool cuts);

/* These set a member. False: the text is not UTF-8, */
bool ask_set_text(json_t *body, const char *name, const char *text);
/* or not a whole number. */
bool ask_set_number(json_t *body, const char *name, const char *text);
bool ask_set_secret(json_t *body, const char *name, const struct secret *secret);

/* Percent-encodes a path segment; the caller frees it. */
char *ask_segment(const char *text);

/* `before`, the percent-encoded word, `after`; the caller frees it. */
char *ask_path(const char *before, const char *word, const char *after);
