/*
 * The loader reads every source completely before it changes a target; a later source replaces the values of
 * an earlier one. A wrong value is an error even where a stronger source overrides it: the override may be
 * removed one day.
 */
#include "config/config.h"

#include "base/utf8.h"
#include "config/ini.h"
#include "config/names.h"
#include "config/value.h"
#include "os/file.h"

#include <stdio.h>
#include <stdlib.h>

enum { FILE_BYTES_MAX = 1024 * 1024, WHERE_BYTES = 320 };

struct setting {
	const struct conf_row *row;
	void *target;
	struct conf_value value;
	unsigned file_line; /* 0: the file does not set it */
};

struct loader {
	struct setting *list;
	size_t count;
	struct err *e;
};

static void loader_release(struct loader *s)
{
	for (size_t i = 0; i < s->count; i++)
		conf_value_release(s->list[i].row, &s->list[i].value);
	free(s->list);
}

static int setting_assign(struct loader *s, struct setting *to, struct str text, const char *where)
{
	struct conf_value v;
	int r = conf_value_parse(to->row, text, where, &v, s->e);
	if (r < 0)
		return r;
	conf_value_release(to->row, &to->value);
	to->value = v;
	return 0;
}

static int loader_init(struct loader *s, const struct conf_group *groups, size_t group_count)
{
	size_t count = 0;
	for (size_t g = 0; g < group_count; g++)
		count += groups[g].row_count;
	s->list = calloc(count + 1, sizeof(*s->list));
	if (!s->list)
		return err_set(s->e, ERR_NOMEM, "out of memory");
	for (size_t g = 0; g < group_count; g++) {
		for (size_t i = 0; i < groups[g].row_count; i++)
			s->list[s->count++] = (struct setting){.row = &groups[g].rows[i],
			                                       .target = groups[g].target};
	}
	for (size_t i = 0; i < count; i++) {
		int r = setting_assign(s, &s->list[i], str_of(s->list[i].row->def), "default");
		ASSERT(r != ERR_INVALID); /* a table with a wrong default is our bug */
		if (r < 0)
			return r;
	}
	return 0;
}

/* Has one of the first `count` rows this section? */
static bool section_is_among(const struct loader *s, size_t count, struct str section)
{
	for (size_t i = 0; i < count; i++) {
		if (str_eq(section, str_of(s->list[i].row->section)))
			return true;
	}
	return false;
}

/* A name that no row of the section has; with `section` STR_NULL, a section that no row has. */
static int unknown(const struct loader *s, const char *where, struct str section, struct str name)
{
	CLEANUP(buf_release) struct buf known = {0};
	struct suggestion nearest;
	suggest_init(&nearest, name);
	for (size_t i = 0; i < s->count; i++) {
		const struct conf_row *row = s->list[i].row;
		if (section.ptr ? !str_eq(section, str_of(row->section))
		                : section_is_among(s, i, str_of(row->section)))
			continue;
		suggest_offer(&nearest, section.ptr ? row->name : row->section);
		buf_printf(&known, "%s%s", known.len ? ", " : "write one of ",
		           section.ptr ? row->name : row->section);
	}
	buf_char(&known, '\0');
	const char *hint = suggest_text(&nearest, known.data);
	struct str shown = utf8_prefix(name, CONF_BYTES_SHOWN);
	if (!section.ptr)
		return err_set(s->e, ERR_INVALID, "%s: unknown section [%.*s]; %s", where, STR_ARG(shown),
		               hint);
	return err_set(s->e, ERR_INVALID, "%s: section [%.*s] has no '%.*s'; %s", where, STR_ARG(section),
	               STR_ARG(shown), hint);
}

static int take_pair(struct loader *s, const char *where, unsigned line, struct str section,
                     const struct ini_item *item)
{
	for (size_t i = 0; i < s->count; i++) {
		struct setting *to = &s->list[i];
		if (!str_eq(section, str_of(to->row->section)) || !str_eq(item->name, str_of(to->row->name)))
			continue;
		if (to->file_line)
			return err_set(s->e, ERR_INVALID,
			               "%s: %s.%s is already set in line %u; keep one of them", where,
			               to->row->section, to->row->name, to->file_line);
		to->file_line = line;
		return setting_assign(s, to, item->value, where);
	}
	return unknown(s, where, section, item->name);
}

static int loader_read_text(struct loader *s, const char *file, struct str text)
{
	struct ini_reader reader;
	ini_reader_init(&reader, text);
	struct str section = STR_NULL;
	for (;;) {
		struct ini_item item;
		enum ini_kind kind = ini_next(&reader, &item);
		char where[WHERE_BYTES];
		int r = 0;
		snprintf(where, sizeof(where), "%.256s:%u", file, reader.line);
		switch (kind) {
		case INI_END: return 0;
		case INI_BAD: return err_set(s->e, ERR_INVALID, "%s: %s", where, reader.problem);
		case INI_SECTION:
			section = item.name;
			if (!section_is_among(s, s->count, section))
				r = unknown(s, where, STR_NULL, section);
			break;
		case INI_PAIR:
			if (!section.ptr)
				return err_set(s->e, ERR_INVALID,
				               "%s: '%.*s' comes before the first [section]", where,
				               STR_ARG(utf8_prefix(item.name, CONF_BYTES_SHOWN)));
			r = take_pair(s, where, reader.line, section, &item);
			break;
		}
		if (r < 0)
			return r;
	}
}

static int loader_read_file(struct loader *s, const char *file)
{
	CLEANUP(buf_release) struct buf text = {0};
	int r = file_read(file, FILE_BYTES_MAX, &text, s->e);
	return r < 0 ? r : loader_read_text(s, file, buf_view(&text));
}

/* The setting with that name; NULL: none, and `nearest` has the nearest. */
static struct setting *find_named(const struct loader *s, struct str name,
                                  void (*name_of)(const struct conf_row *row, char out[CONF_NAME_BYTES]),
                                  struct suggestion *nearest)
{
	suggest_init(nearest, name);
	for (size_t i = 0; i < s->count; i++) {
		char known[CONF_NAME_BYTES];
		name_of(s->list[i].row, known);
		if (str_eq(name, str_of(known)))
			return &s->list[i];
		suggest_offer(nearest, known);
	}
	return NULL;
}

static bool env_is_ignored(const char *const *ignored, struct str name)
{
	for (; ignored && *ignored; ignored++) {
		if (str_eq(name, str_of(*ignored)))
			return true;
	}
	return false;
}

static int take_variable(struct loader *s, struct str name, struct str value)
{
	struct suggestion nearest;
	struct setting *to = find_named(s, name, conf_env_name, &nearest);
	if (!to) { /* CURT_DATA is CURT_SERVE_DATA */
		char full[CONF_NAME_BYTES];
		struct suggestion ignored;
		snprintf(full, sizeof(full), "CURT_SERVE_%.*s", (int)(name.len - 5), name.ptr + 5);
		to = find_named(s, str_of(full), conf_env_name, &ignored);
	}
	char where[WHERE_BYTES];
	snprintf(where, sizeof(where), "%.*s", STR_ARG(utf8_prefix(name, CONF_NAME_BYTES)));
	if (to)
		return setting_assign(s, to, value, where);
	return err_set(s->e, ERR_INVALID, "%s: unknown setting; %s", where,
	               suggest_text(&nearest, "unset this variable"));
}

static int loader_read_env(struct loader *s, const struct conf_source *from)
{
	for (char *const *entry = from->env; entry && *entry; entry++) {
		struct str value = str_of(*entry);
		struct str name = str_cut(&value, '=');
		if (!str_starts(name, STR("CURT_")) || env_is_ignored(from->env_ignored, name))
			continue;
		int r = take_variable(s, name, value);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The value of a flag without '=' is the next argument, unless that is itself a flag. */
static int flag_value(struct loader *s, const struct setting *to, const char *where,
                      const struct conf_source *from, int *index, struct str *ret)
{
	const char *next = *index + 1 < from->arg_count ? from->args[*index + 1] : NULL;
	if (next && strncmp(next, "--", 2) != 0) {
		*ret = str_of(next);
		++*index;
	} else if (to->row->type == CONF_BOOL) {
		*ret = STR("true");
	} else {
		return err_set(s->e, ERR_INVALID, "%s needs a value: write '%s VALUE' or '%s=VALUE'", where,
		               where, where);
	}
	return 0;
}

/* ERR_NOT_FOUND: no setting has this flag. */
static int take_flag(struct loader *s, const struct conf_source *from, int *index, struct suggestion *nearest)
{
	struct str value = str_of(from->args[*index]);
	struct str flag = str_cut(&value, '=');
	char where[WHERE_BYTES];
	snprintf(where, sizeof(where), "%.*s", STR_ARG(utf8_prefix(flag, CONF_NAME_BYTES)));
	struct setting *to = find_named(s, flag, conf_flag_name, nearest);
	if (!to)
		return ERR_NOT_FOUND;
	if (!value.ptr) {
		int r = flag_value(s, to, where, from, index, &value);
		if (r < 0)
			return r;
	}
	return setting_assign(s, to, value, where);
}

static int loader_read_args(struct loader *s, const struct conf_source *from)
{
	struct suggestion nearest;
	int r = 0;
	for (int i = 0; r == 0 && i < from->arg_count; i++) {
		r = take_flag(s, from, &i, &nearest);
		ASSERT(r != ERR_NOT_FOUND); /* conf_check_flag knew it */
	}
	return r;
}

int conf_check_flag(const struct conf_group *groups, size_t group_count, char *const *args, int arg_count,
                    int *index, struct suggestion *nearest, struct err *e)
{
	struct loader s = {.e = e};
	const struct conf_source from = {.args = args, .arg_count = arg_count};
	int r = loader_init(&s, groups, group_count);
	if (r == 0)
		r = take_flag(&s, &from, index, nearest);
	loader_release(&s);
	return r;
}

static int loader_read(struct loader *s, const struct conf_group *groups, size_t group_count,
                       const struct conf_source *from)
{
	int r = loader_init(s, groups, group_count);
	if (r == 0 && from->file)
		r = loader_read_file(s, from->file);
	if (r == 0)
		r = loader_read_env(s, from);
	if (r == 0)
		r = loader_read_args(s, from);
	return r;
}

/* Clears every string of the targets. */
static void strings_forget(const struct conf_group *groups, size_t group_count, bool frees)
{
	for (size_t g = 0; g < group_count; g++) {
		for (size_t i = 0; i < groups[g].row_count; i++) {
			const struct conf_row *row = &groups[g].rows[i];
			if (row->type != CONF_STRING)
				continue;
			if (frees) {
				struct conf_value v = conf_value_peek(row, groups[g].target);
				conf_value_release(row, &v);
			}
			conf_value_store(row, groups[g].target, &(struct conf_value){0});
		}
	}
}

int conf_load(const struct conf_group *groups, size_t group_count, const struct conf_source *from,
              struct err *e)
{
	struct loader s = {.e = e};
	strings_forget(groups, group_count, false);
	int r = loader_read(&s, groups, group_count, from);
	for (size_t i = 0; r == 0 && i < s.count; i++)
		conf_value_store(s.list[i].row, s.list[i].target, &s.list[i].value);
	loader_release(&s);
	return r;
}

static void setting_renew(struct setting *now, void (*changed)(const char *section, const char *name))
{
	struct conf_value before = conf_value_peek(now->row, now->target);
	if (conf_value_eq(now->row, &before, &now->value))
		return;
	if (now->row->flags & CONF_RELOADABLE) {
		conf_value_release(now->row, &before);
		conf_value_store(now->row, now->target, &now->value);
	} else if (changed) {
		changed(now->row->section, now->row->name);
	}
}

int conf_reload(const struct conf_group *groups, size_t group_count, const struct conf_source *from,
                void (*changed)(const char *section, const char *name), struct err *e)
{
	struct loader s = {.e = e};
	int r = loader_read(&s, groups, group_count, from);
	for (size_t i = 0; r == 0 && i < s.count; i++)
		setting_renew(&s.list[i], changed);
	loader_release(&s);
	return r;
}

void conf_release(const struct conf_group *groups, size_t group_count)
{
	strings_forget(groups, group_count, true);
}
