/*
 * Reading a JSON object strictly: a field that is unknown, missing or of the wrong type is an error that
 * names it. jansson parses; this says which fields there are.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "store/fields.h"

enum { INPUT_STRINGS_MAX = 32, INPUT_ITEM_BYTES_MAX = 64 };

struct input_field {
	const char *name;
	/* FIELD_STRING, FIELD_TEXT, FIELD_TAGS, FIELD_USER (a number becomes its digits): struct str.
	 * FIELD_NUMBER: uint64_t; FIELD_TIME: int64_t; FIELD_BOOL: bool. Others are as their row says. */
	enum field_type type;
	void *ret;
	bool *ret_given; /* may be NULL; set to whether the field was there */
	bool required;
	bool may_be_null; /* gives STR_NULL or 0; a number must then be at least 1. Times may always be */
	size_t bytes_max; /* of strings; 0: no bound of its own */
	const struct field *row; /* of a record's field */
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
