/*
 * The process's log, on standard error or in a file. A caller formats into its thread's own ring and goes on;
 * one flusher thread writes. A full ring drops the line and counts it, so logging never stalls a worker.
 *
 * Before log_start and after log_stop lines go straight to standard error.
 */
#pragma once

#include "base/err.h"
#include "config/config.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log_settings {
	int level;        /* enum log_level */
	int format;       /* 0: text, 1: one JSON object a line */
	const char *file; /* "" or NULL: standard error */
};

extern const struct conf_row log_rows[];
extern const size_t log_row_count;

int log_start(const struct log_settings *s, struct err *e);
void log_stop(void);   /* writes out what is buffered */
void log_reopen(void); /* after rotation: SIGHUP */
void log_level_set(int level);

/* `module` is a folder of src. The text is an event, then key=value pairs, without a newline at the end;
 * control bytes come out escaped. */
void log_line(enum log_level level, const char *module, const char *fmt, ...) PRINTF_LIKE(3, 4);
uint64_t log_dropped(void);

#define log_debug(module, ...) log_line(LOG_DEBUG, module, __VA_ARGS__)
#define log_info(module, ...)  log_line(LOG_INFO, module, __VA_ARGS__)
#define log_warn(module, ...)  log_line(LOG_WARN, module, __VA_ARGS__)
#define log_error(module, ...) log_line(LOG_ERROR, module, __VA_ARGS__)
