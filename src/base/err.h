/*
 * Errors, grouped by what the caller does next. A function returns 0 (or a count) or one of these;
 * adapters translate a vendor's codes once, at their edge. Control-plane calls also take a
 * `struct err *` (which may be NULL) for a sentence that a person can act on.
 */
#pragma once

#include "base/def.h"

enum {
	ERR_NOT_FOUND = -1,   /* it is not there: tell the client so */
	ERR_CONFLICT = -2,    /* it is there already, or changed underneath: choose another */
	ERR_INVALID = -3,     /* the input is wrong: tell the client what to fix; never retry */
	ERR_LIMIT = -4,       /* a limit was reached: refuse now, it may work later */
	ERR_BUSY = -5,        /* somebody else holds it: wait or give up */
	ERR_UNAVAILABLE = -6, /* a backend or the system failed and nothing was done: may be retried */
	ERR_UNCERTAIN = -7,   /* it may or may not have happened: resolve before retrying */
	ERR_CORRUPT = -8,     /* stored bytes are not what was written: stop and say so */
	ERR_NOMEM = -9,       /* memory ran out: fail this one request */
};

struct err {
	char text[512];
};

/* Fills the sentence when `e` is not NULL; returns `code`, so that a failure is one line. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts `setting` before a sentence that does not name it; returns `code`, and for 0 does nothing. */
int err_about(struct err *e, int code, const char *setting);

/* The code's name in lower case with dashes ("not-found"), for logs. */
const char *err_name(int code);
