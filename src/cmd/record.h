/* Options that set fields of a link, a user or an API key: the command's `fields`. */
#pragma once

#include "cmd/command.h"

#include <jansson.h>

/* For command.prepare: checks the options, and reads the password that one of them asks for. */
int record_prepare(struct args *a);

/* The body of a request with every field that was given, and the typed secret. NULL: a text is not UTF-8, and
 * that has been printed. */
json_t *record_body(struct args *a);

/* Sends that body to `path` as a POST and prints one member of the answer, or with --json all of it. */
int record_create(struct client *c, struct args *a, const char *path, const char *member);

/* Frees the body and prints that a text is not UTF-8; returns the exit status. */
int record_not_utf8(json_t *body);
