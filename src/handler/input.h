/*
 * Parses JSON bodies strictly: an unknown field, a missing one and one of the wrong type are errors that name
 * the field. Parses the parameters of paged lists too.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "http/conn.h"
#include "store/fields.h"

enum { INPUT_STRINGS_MAX = 32, INPUT_ITEM_BYTES_MAX = 64 };

struct input_field {
	const char *name;
	/* FIELD_STRING, FIELD_TEXT, FIELD_TAGS, FIELD_USER (a number becomes its digits): struct str.
	 * FIELD_NUMBER: uint64_t; FIELD_TIME: int64_t; FIELD_BOOL: bool. Others are as their row says. */
	enum field_type type;
	void *ret;
	bool *ret_given; /* may be NULL; was the field there? */
	bool required;
	bool may_be_null; /* null gives STR_NULL or 0; numbers must then be at least 1. Times always may */
	size_t bytes_max; /* of strings; 0: no limit */
	const struct field *row; /* of a record's field */
};

/* A parsed body. */
struct input {
	void *json;
};

/* ERR_INVALID with a message if the body is not a JSON object. */
int input_parse(struct str body, struct input *ret, struct err *e);
void input_release(struct input *in); /* zeroed is fine */

bool input_has(const struct input *in, const char *name);

/* A string member, valid until the release; STR_NULL otherwise. */
struct str input_peek(const struct input *in, const char *name);

/* Copies strings to the arena. ERR_INVALID with a message, or ERR_NOMEM; then the outputs are undefined. */
int input_fields(const struct input *in, const struct input_field *fields, size_t count, struct arena *arena,
                 struct err *e);

/* Both steps at once. */
int input_read(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
               struct err *e);

/* The fields of a record (store/fields.h) in a body. */
struct input_record {
	const struct fields *fields;
	unsigned when;                 /* FIELD_CREATE or FIELD_PATCH */
	void *record;                  /* in: the defaults; out: with the given fields */
	const struct input_field *own; /* where virtual fields go */
	size_t own_count;
	unsigned bits;                  /* out: of the given fields */
	const struct field *for_admins; /* out: the first given field that only admins may set; NULL: none */
	struct str user, secret;        /* out: not in the record; STR_NULL: not given, or null */
};

/* Parses the body to `in`, which the caller releases, and reads it as input_fields does. Checks the limits
 * and enumerations of the rows; the caller checks further rules. */
int input_record_read(struct str body, struct input *in, struct input_record *r, struct arena *arena,
                      struct err *e);

/* The parameter `limit`, or `otherwise` without it. False: answered with 400. */
bool input_limit(struct http_conn *c, struct str query, uint64_t otherwise, uint64_t max, uint64_t *ret);

/* The parameters `limit` and `cursor` of a list that is ordered by id. False: answered with 400. */
struct page_input {
	uint64_t after; /* the last id of the previous page */
	uint64_t limit;
};
bool input_page(struct http_conn *c, struct str query, uint64_t limit_otherwise, uint64_t limit_max,
                struct page_input *ret);
