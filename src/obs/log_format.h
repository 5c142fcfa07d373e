/*
 * One line of the log as bytes: "2026-11-15T05:00:00.123Z info  module: text", or a JSON object with time,
 * level, module and message. Control characters and bytes that are not UTF-8 come out escaped: hostile input
 * in the text can neither end the line, nor control a terminal, nor break the JSON.
 */
#pragma once

#include "base/str.h"

enum log_format { LOG_TEXT, LOG_JSON };

struct log_entry {
	int64_t time_ms;
	int level;          /* enum log_level */
	const char *module; /* a string that lives as long as the process */
	struct str text;    /* at most LOG_TEXT_MAX bytes */
};

enum {
	LOG_TEXT_MAX = 2048,
	LOG_MODULE_MAX = 32,
	LOG_ENTRY_BYTES_MAX = 6 * (LOG_TEXT_MAX + LOG_MODULE_MAX) + 128, /* a byte becomes six at most */
};

extern const char *const log_level_names[];  /* NULL-terminated, by enum log_level */
extern const char *const log_format_names[]; /* NULL-terminated, by enum log_format */

/* Writes the line with its newline, without a NUL; returns its length. */
size_t log_entry_format(const struct log_entry *entry, enum log_format format, char out[LOG_ENTRY_BYTES_MAX]);
