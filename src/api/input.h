/*
 * Reading a JSON object strictly: a field that is unknown, missing or of the wrong type is an error that
 * names it. jansson parses; this says which fields there are.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "store/fields.h"

enum input_type {
	INPUT_STRING,         /* struct str */
	INPUT_STRING_OR_NULL, /* struct str; null gives STR_NULL */
	INPUT_TEXT,           /* struct str for people: no control characters but line feed and tab */
	INPUT_TEXT_OR_NULL,
	INPUT_BOOL,         /* bool */
	INPUT_UINT,         /* uint64_t */
	INPUT_UINT_OR_NULL, /* uint64_t of at least 1; null gives 0 */
	INPUT_TIME_OR_NULL, /* int64_t ms; RFC 3339 text; null gives 0 */
	INPUT_USER,         /* struct str; a number is an id, and becomes its digits */
	INPUT_USER_OR_NULL,
	INPUT_ROW,     /* by the field's row, into its record: a number, an enum or a set */
	INPUT_STRINGS, /* struct str: the array as compact JSON text; at most INPUT_STRINGS_MAX of
	                  INPUT_ITEM_BYTES_MAX */
};

enum { INPUT_STRINGS_MAX = 32, INPUT_ITEM_BYTES_MAX = 64 };

struct input_field {
	const char *name;
	enum input_type type;
	void *ret;
	bool *ret_given; /* may be NULL; set to whether the field was there */
	bool required;
	size_t bytes_max;        /* of strings; 0: no bound of its own */
	const struct field *row; /* of a record's field; `ret` is then the record for INPUT_ROW */
};

/* A body that has been parsed. */
struct input {
	void *json;
};

/* ERR_INVALID with a sentence when the body is no JSON object. */
int input_parse(struct str body, struct input *ret, struct err *e);
void input_release(struct input *in); /* fine on a zeroed one */

bool input_has(const struct input *in, const char *name);

/* A member that is a string, good until the release; STR_NULL otherwise. */
struct str input_peek(const struct input *in, const char *name);

/* Strings are copied into the arena. ERR_INVALID with a sentence, or ERR_NOMEM. On failure the outputs may be
 * half filled: use none. */
int input_fields(const struct input *in, const struct input_field *fields, size_t count, struct arena *arena,
                 struct err *e);

/* Both steps at once. */
int input_read(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
               struct err *e);

/* What a request says about a record, by the record's rows. */
struct input_record {
	const struct fields *fields;
	unsigned when;                 /* FIELD_CREATE or FIELD_PATCH */
	void *record;                  /* in: the defaults; out: with what was given */
	const struct input_field *own; /* where virtual fields go */
	size_t own_count;
	unsigned bits;                  /* out: of the fields that were given */
	const struct field *for_admins; /* out: the first of them that only admins may give; NULL: none */
	struct str user, secret;        /* out: as given, not in the record; STR_NULL: not given, or null */
};

/* Parses the body, whose release is the caller's, and reads it as input_fields does. Bounds and words are
 * those of the rows; further rules of a field are the caller's to check. */
int input_record_read(struct str body, struct input *in, struct input_record *r, struct arena *arena,
                      struct err *e);
