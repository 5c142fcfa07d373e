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
