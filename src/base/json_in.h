/*
 * A pull parser for JSON in place (RFC 8259, strict), which allocates nothing: for events and messages a tree
 * of allocated values would cost more than the work itself. Bodies of the API are read by it too, so that
 * errors are worded once. Strings may contain NUL.
 *
 * The first error sticks: everything after it fails, and `wrong` says what it was.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { JSON_IN_DEPTH_MAX = 64 };

struct json_in {
	const char *at, *end, *start;
	const char *wrong; /* NULL: nothing yet */
};

enum json_in_kind {
	JSON_IN_NONE, /* an error, or the end */
	JSON_IN_OBJECT,
	JSON_IN_ARRAY,
	JSON_IN_STRING,
	JSON_IN_INTEGER, /* a whole number that fits, also written as 1.0 or 1e3 */
	JSON_IN_NUMBER,  /* any other */
	JSON_IN_TRUE,
	JSON_IN_FALSE,
	JSON_IN_NULL,
};

struct json_in json_in_begin(struct str text);

/* Whether only white space is left. json_in_finish makes anything else an error. */
bool json_in_at_end(struct json_in *in);
bool json_in_finish(struct json_in *in);

/* The error and its place, as a sentence about `what`: ERR_INVALID. */
int json_in_err(const struct json_in *in, const char *what, struct err *e);

/* The kind of the next value; takes nothing. All numbers are JSON_IN_NUMBER here. */
enum json_in_kind json_in_peek(struct json_in *in);

/* Takes the opening of an object or array. */
bool json_in_enter(struct json_in *in, char bracket);

/* Before each member or item: takes the comma; false at the closing bracket, which is taken, and on an error.
 * `first` is the caller's, true before the first call. */
bool json_in_more(struct json_in *in, char bracket, bool *first);

/* A member's name and its colon, or a string. Without escapes it points into the input; otherwise it is
 * decoded into `scratch`, which has `room` bytes. A longer one is no error: a name is STR_NULL then, a string
 * is cut and *ret_whole is false. */
bool json_in_name(struct json_in *in, char *scratch, size_t room, struct str *ret);
bool json_in_string(struct json_in *in, char *scratch, size_t room, struct str *ret, bool *ret_whole);

/* A number. Whole numbers that fit give JSON_IN_INTEGER and their value. */
enum json_in_kind json_in_number(struct json_in *in, int64_t *ret);

/* Takes any value whole. */
bool json_in_skip(struct json_in *in);
