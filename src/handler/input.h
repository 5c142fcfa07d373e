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

/* What is wrong with a request. One field that is at fault is named: "invalid-field" or a more specific code.
 * Otherwise the code is "invalid-body". */
struct input_err {
	const char *code;
	bool has_field;
	char field[48]; /* shortened */
	struct err sentence;
};

/* Fill it and return ERR_INVALID. */
int input_wrong_body(struct input_err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
int input_wrong_field(struct input_err *e, const char *field, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* ERR_INVALID: 400 with the message. Other errors: as problem_reply_store. */
void input_reply_failed(struct http_conn *c, int err, const struct input_err *e);

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

/* ERR_INVALID with a message if the body is not a JSON object. The functions below expect one. */
int input_check(struct str body, struct input_err *e);

bool input_has(struct str body, const char *name);

/* A string member, in the arena; STR_NULL: there is none, or out of memory. */
struct str input_peek(struct str body, const char *name, struct arena *arena);

/* Copies strings to the arena. ERR_INVALID with a message, or ERR_NOMEM; then the outputs are undefined. */
int input_fields(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
                 struct input_err *e);

/* Checks the body first. */
int input_read(struct str body, const struct input_field *fields, size_t count, struct arena *arena,
               struct input_err *e);

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

/* As input_read. Checks the limits and enumerations of the rows; the caller checks further rules. */
int input_record_read(struct str body, struct input_record *r, struct arena *arena, struct input_err *e);

/* The parameter `limit`, or `otherwise` without it. False: answered with 400. */
bool input_limit(struct http_conn *c, struct str query, uint64_t otherwise, uint64_t max, uint64_t *ret);

/* The parameters `limit` and `cursor` of a list that is ordered by id. False: answered with 400. */
struct page_input {
	uint64_t after; /* the last id of the previous page */
	uint64_t limit;
};
bool input_page(struct http_conn *c, struct str query, uint64_t limit_otherwise, uint64_t limit_max,
                struct page_input *ret);
