/*
 * A strict reader of INI text that knows the line of every item.
 *
 *	# a comment, or ; a comment: the whole line
 *	[section]
 *	name = value
 *
 * Space around a section, a name and a value is ignored. A value reaches to the end of its line and may hold
 * anything but control characters; '#', ';', '=' and quotes in it have no meaning. There are no continuation
 * lines. Lines may end in CR LF, and the text may begin with a byte order mark.
 */
#pragma once

#include "base/str.h"

struct ini_reader {
	struct str rest;
	unsigned line; /* of the last item, from 1 */
	const char *problem;
};

enum ini_kind {
	INI_END,
	INI_SECTION, /* `name` */
	INI_PAIR,    /* `name` and `value` */
	INI_BAD,     /* `problem` in the reader says why, without quoting the line */
};

struct ini_item {
	struct str name;
	struct str value;
};

void ini_reader_init(struct ini_reader *r, struct str text);
enum ini_kind ini_next(struct ini_reader *r, struct ini_item *ret);
