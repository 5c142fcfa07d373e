/*
 * Settings from descriptor tables. Each module exports a struct and rows that describe it; this module knows
 * none of them. A value comes from, weakest first:
 *
 *   the row's default
 *   the INI file      [section], then name = value
 *   the environment   CURT_SECTION_NAME
 *   a flag            --section-name VALUE or --section-name=VALUE
 *
 * Rows of section "serve" leave the section out of the variable and the flag: CURT_DATA, --data.
 *
 * Anything unknown, malformed or out of bounds is an error. Its sentence names the place (file and line,
 * variable, or flag), the value, and what would be right. A failed load changes nothing.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "config/suggest.h"

enum conf_type {
	CONF_BOOL,     /* bool: true/false, yes/no, on/off */
	CONF_UINT,     /* uint64_t: decimal */
	CONF_BYTES,    /* uint64_t: decimal with an optional k, m, g (powers of 1024), also KiB MiB GiB */
	CONF_DURATION, /* uint64_t milliseconds: number with ms, s, m, h, d; a unit is required */
	CONF_STRING,   /* char *, owned by the group; never NULL after conf_load */
	CONF_ENUM,     /* int: index into `choices` */
};

enum {
	CONF_RELOADABLE = 1, /* SIGHUP may change it */
	CONF_SECRET = 2,     /* never printed */
};

struct conf_row {
	const char *section;
	const char *name;
	enum conf_type type;
	size_t offset;              /* of the field in the group's target */
	const char *def;            /* default, in the same notation a user would write */
	uint64_t min, max;          /* for the numeric types; max 0 means no bound */
	const char *const *choices; /* CONF_ENUM: NULL-terminated */
	unsigned flags;
	const char *help; /* one sentence, for --help and docs/configuration.md */
};

/* A row for `field` of the target; what else it needs follows: .min, .max, .choices, .flags. */
#define CONF_ROW(target_, section_, name_, type_, field_, def_, help_, ...)                             \
	{                                                                                               \
		.section = section_, .name = name_, .type = type_, .offset = offsetof(target_, field_), \
		.def = def_, .help = help_, ##__VA_ARGS__                                               \
	}

struct conf_group {
	const struct conf_row *rows;
	size_t row_count;
	void *target;
};

struct conf_source {
	const char *file;               /* NULL: none */
	char *const *env;               /* NULL-terminated "NAME=value" */
	const char *const *env_ignored; /* NULL-terminated CURT_ names that are not settings */
	char *const *args;              /* flags and values that conf_check_flag has accepted */
	int arg_count;
};

/* Fills every group's target. On failure the targets hold nothing that needs freeing. */
int conf_load(const struct conf_group *groups, size_t group_count, const struct conf_source *from,
              struct err *e);

/* Applies again what is CONF_RELOADABLE. Other differences are reported through `changed`: the caller logs
 * that they need a restart. On failure nothing changes. */
int conf_reload(const struct conf_group *groups, size_t group_count, const struct conf_source *from,
                void (*changed)(const char *section, const char *name), struct err *e);

void conf_release(const struct conf_group *groups, size_t group_count);

/*
 * Checks the flag at args[*index] with its value, and moves *index to the last argument that belongs to it.
 * ERR_NOT_FOUND: no setting has this flag, and `nearest` has the nearest; ERR_INVALID: its value is wrong.
 */
int conf_check_flag(const struct conf_group *groups, size_t group_count, char *const *args, int arg_count,
                    int *index, struct suggestion *nearest, struct err *e);

/* The settings as the text of `--help`, as docs/configuration.md, and as a list of flags. */
void conf_help(const struct conf_group *groups, size_t group_count, struct buf *out);
void conf_markdown(const struct conf_group *groups, size_t group_count, struct buf *out);
void conf_flags(const struct conf_group *groups, size_t group_count, struct buf *out);

/* Appends the words of `text`, which starts at `column`. Lines are broken before `width` and continue at
 * `indent`; a newline in the text begins a new line there. */
void conf_wrap(struct buf *out, struct str text, size_t column, size_t indent, size_t width);
