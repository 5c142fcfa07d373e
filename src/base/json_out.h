/* Writes JSON by appending. */
#pragma once

#include "base/buf.h"

/* A quoted string. Controls, quotes and backslashes are escaped; bytes that are not UTF-8 become U+FFFD. */
void json_out_str(struct buf *b, struct str s);

/* The string, or null when it is absent (STR_NULL). */
void json_out_str_or_null(struct buf *b, struct str s);

/* A number in plain decimal. */
void json_out_u64(struct buf *b, uint64_t v);

/* An RFC 3339 time in quotes, or null for 0. */
void json_out_time(struct buf *b, int64_t ms);

/* Begins an item of an array or object: writes a comma unless it is the first. */
void json_out_next(struct buf *b);

/* Begins an array or object, as an item, or as a member if it has a name. */
void json_out_begin(struct buf *b, const char *name_or_null, char bracket);

/* A member: its name and colon, or all of it. */
void json_out_name(struct buf *b, const char *name);
void json_out_name_u64(struct buf *b, const char *name, uint64_t v);
void json_out_name_str(struct buf *b, const char *name, struct str s_or_null);
void json_out_name_time(struct buf *b, const char *name, int64_t ms);
