/* Options of the command line that set fields of a link, a user or an API key, by their rows. */
#pragma once

#include "cmd/args.h"
#include "cmd/secret.h"
#include "store/fields.h"

#include <jansson.h>
#include <stdio.h>

struct record_options {
	const struct fields *fields;
	struct secret *secret;     /* what a FIELD_SECRET becomes; NULL: none has an option */
	const char *secret_prompt; /* "password of the link" */
	struct {
		const char *text;
		bool on[2]; /* "--off|--on" */
	} values[FIELDS_MAX];
	const char *words[ARGS_REPEATS_MAX + 1]; /* of the one option that may be repeated */
};

/* Adds the options to `to`, which has room for RECORD_OPTIONS_MAX: how many there are. */
enum { RECORD_OPTIONS_MAX = 2 * FIELDS_MAX };
size_t record_options_add(struct record_options *r, struct arg_option *to);

void record_options_help(const struct fields *s, FILE *to);

/* For arg_verb: are the options right, and what is the secret? The `ctx` begins with the struct
 * record_options.
 */
int record_prepare(const struct args *a);

/* The body of a request with what was given, the secret too, which is wiped; `field` (may be NULL) is `word`.
 * NULL: a text is not UTF-8, and that has been said. */
json_t *record_body(const struct record_options *r, const char *field, const char *word);

/* Frees the body and says so; returns the exit status. */
int record_not_utf8(json_t *body);
