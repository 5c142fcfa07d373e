/* One value of a setting: parsed, stored, compared, and described. */
#pragma once

#include "config/config.h"

enum { CONF_BYTES_SHOWN = 60 }; /* of a wrong value or name, in a message */

struct conf_value {
	union {
		bool flag;       /* CONF_BOOL */
		uint64_t number; /* CONF_UINT, CONF_BYTES, CONF_DURATION */
		int choice;      /* CONF_ENUM */
		char *string;    /* CONF_STRING, owned */
	};
};

/* `where` (file and line, variable, or flag) begins the sentence of an error. */
int conf_value_parse(const struct conf_row *row, struct str text, const char *where, struct conf_value *ret,
                     struct err *e);
void conf_value_release(const struct conf_row *row, struct conf_value *v);

/* Moves the value into the group's target, without looking at what is there. */
void conf_value_store(const struct conf_row *row, void *target, struct conf_value *v);

/* A view of what the target holds; not owned. */
struct conf_value conf_value_peek(const struct conf_row *row, const void *target);
bool conf_value_eq(const struct conf_row *row, const struct conf_value *a, const struct conf_value *b);

/* Without control characters, except tabs. */
bool conf_text_is_printable(struct str text);

/* What would be right: "a whole number from 1 to 64", "one of text, json". */
void conf_value_expected(const struct conf_row *row, struct buf *out);
