/*
 * Every source is read whole into a list of settings, one for each row, before a target is touched: a later
 * source replaces what an earlier one said. A wrong value is an error even where a stronger source overrides
 * it, since somebody will one day remove the override.
 */
#include "config/config.h"

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
	unsigned file_line; /* where the file sets it; 0: it does not */
};

struct settings {
	struct setting *list;
	size_t count;
	bool secret_flag; /* a secret stands among the arguments, perhaps torn from its flag by a space */
	struct err *e;
};

static void settings_release(struct settings *s)
{
	for (size_t i = 0; i < s->count; i++)
		conf_value_release(s->list[i].row, &s->list[i].value);
	free(s->list);
}

static int setting_assign(struct settings *s, struct setting *to, struct str text, const char *where)
{
	struct conf_value v;
	int r = conf_value_parse(to->row, text, where, &v, s->e);
	if (r < 0)
		return r;
	conf_value_release(to->row, &to->value);
	to->value = v;
	return 0;
}

static int settings_init(struct settings *s, const struct conf_group *groups, size_t group_count)
{
	size_t count = 0;
	for (size_t g = 0; g < group_count; g++)
		count += groups[g].row_count;
	s->list = calloc(count + 1, sizeof(*s->list));
	if (!s->list)
		return err_set(s->e, ERR_NOMEM, "memory ran out while reading the settings");
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

/* ---- the file ---- */

/* Among the sections of the first `count` rows. */
static bool section_is_among(const struct settings *s, size_t count, struct str section)
{
	for (size_t i = 0; i < count; i++) {
		if (str_eq(section, str_of(s->list[i].row->section)))
			return true;
	}
	return false;
}

static int unknown_section(const struct settings *s, const char *where, struct str section)
{
	CLEANUP(buf_release) struct buf known = {0};
	for (size_t i = 0; i < s->count; i++) {
		const char *name = s->list[i].row->section;
		if (!section_is_among(s, i, str_of(name)))
			buf_printf(&known, "%s%s", known.len ? ", " : "", name);
	}
	return err_set(s->e, ERR_INVALID, "%s: there is no section [%.*s]; the sections are %.*s", where,
	               (int)MIN(section.len, 60), section.ptr, STR_ARG(buf_view(&known)));
}

static int unknown_key(const struct settings *s, const char *where, struct str section, struct str name)
{
	CLEANUP(buf_release) struct buf known = {0};
	struct conf_nearest nearest;
	conf_nearest_init(&nearest, name);
	for (size_t i = 0; i < s->count; i++) {
		const struct conf_row *row = s->list[i].row;
		if (!str_eq(section, str_of(row->section)))
			continue;
		conf_nearest_offer(&nearest, row->name);
		buf_printf(&known, "%s%s", known.len ? ", " : "", row->name);
	}
	if (nearest.best[0])
		return err_set(s->e, ERR_INVALID, "%s: section [%.*s] has no '%.*s'; did you mean '%s'?",
		               where, STR_ARG(section), (int)MIN(name.len, 60), name.ptr, nearest.best);
	return err_set(s->e, ERR_INVALID, "%s: section [%.*s] has no '%.*s'; it has %.*s", where,
	               STR_ARG(section), (int)MIN(name.len, 60), name.ptr, STR_ARG(buf_view(&known)));
}

static int take_pair(struct settings *s, const char *where, unsigned line, struct str section,
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
	return unknown_key(s, where, section, item->name);
}

static int settings_from_text(struct settings *s, const char *file, struct str text)
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
				r = unknown_section(s, where, section);
			break;
		case INI_PAIR:
			if (!section.ptr)
				return err_set(s->e, ERR_INVALID,
				               "%s: '%.*s' stands before the first [section]", where,
				               (int)MIN(item.name.len, 60), item.name.ptr);
			r = take_pair(s, where, reader.line, section, &item);
			break;
		}
		if (r < 0)
			return r;
	}
}

static int settings_from_file(struct settings *s, const char *file)
{
	CLEANUP(buf_release) struct buf text = {0};
	int r = file_read(file, FILE_BYTES_MAX, &text, s->e);
	return r < 0 ? r : settings_from_text(s, file, buf_view(&text));
}

/* ---- the environment and the flags ---- */

/* What a row is called there; "": it has no such name. */
typedef void name_fn(const struct conf_row *row, char out[CONF_NAME_BYTES]);

/* The setting that has the name by one of the functions; those that have another are offered. */
static struct setting *find_named(const struct settings *s, struct str name, name_fn *const names[2],
                                  struct conf_nearest *nearest)
{
	conf_nearest_init(nearest, name);
	for (size_t i = 0; i < s->count; i++) {
		for (size_t k = 0; k < 2 && names[k]; k++) {
			char known[CONF_NAME_BYTES];
			names[k](s->list[i].row, known);
			if (known[0] && str_eq(name, str_of(known)))
				return &s->list[i];
			if (known[0])
				conf_nearest_offer(nearest, known);
		}
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

static int take_variable(struct settings *s, struct str name, struct str value)
{
	struct conf_nearest nearest;
	struct setting *to = find_named(s, name, (name_fn *const[2]){conf_env_name}, &nearest);
	char where[WHERE_BYTES];
	snprintf(where, sizeof(where), "%.*s", (int)MIN(name.len, 80), name.ptr);
	if (to)
		return setting_assign(s, to, value, where);
	return err_set(s->e, ERR_INVALID, "%s: there is no such setting%s%s%s", where,
	               nearest.best[0] ? "; did you mean " : "; unset this variable", nearest.best,
	               nearest.best[0] ? "?" : "");
}

static int settings_from_env(struct settings *s, const struct conf_source *from)
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

/* What follows a flag without '=': the next argument, unless that is itself a flag. */
static int flag_value(struct settings *s, const struct setting *to, const char *where,
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

static int take_flag(struct settings *s, const struct conf_source *from, int *index)
{
	struct str value = str_of(from->args[*index]);
	struct str flag = str_cut(&value, '=');
	char where[WHERE_BYTES];
	snprintf(where, sizeof(where), "%.*s", (int)MIN(flag.len, 80), flag.ptr);
	struct conf_nearest nearest;
	struct setting *to = find_named(s, flag, (name_fn *const[2]){conf_flag_name, conf_short_flag_name},
	                                &nearest);
	if (!to)
		return err_set(s->e, ERR_INVALID, "%s: there is no such flag%s%s%s", where,
		               nearest.best[0] ? "; did you mean " : "; --help lists all of them",
		               nearest.best, nearest.best[0] ? "?" : "");
	s->secret_flag |= (to->row->flags & CONF_SECRET) != 0;
	if (!value.ptr) {
		int r = flag_value(s, to, where, from, index, &value);
		if (r < 0)
			return r;
	}
	return setting_assign(s, to, value, where);
}

static int settings_from_args(struct settings *s, const struct conf_source *from)
{
	for (int i = 0; i < from->arg_count; i++) {
		const char *arg = from->args[i];
		if (strncmp(arg, "--", 2) != 0)
			return err_set(
			    s->e, ERR_INVALID,
			    "argument %d%s%.60s%s is not a flag such as --listen; --help lists all of "
			    "them",
			    i + 1, s->secret_flag ? "" : ", '", s->secret_flag ? "" : arg,
			    s->secret_flag ? "" : "',");
		int r = take_flag(s, from, &i);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the face ---- */

static int settings_load(struct settings *s, const struct conf_group *groups, size_t group_count,
                         const struct conf_source *from)
{
	int r = settings_init(s, groups, group_count);
	if (r == 0 && from->file)
		r = settings_from_file(s, from->file);
	if (r == 0)
		r = settings_from_env(s, from);
	if (r == 0)
		r = settings_from_args(s, from);
	return r;
}

/* Leaves none in the targets. */
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
	struct settings s = {.e = e};
	strings_forget(groups, group_count, false);
	int r = settings_load(&s, groups, group_count, from);
	for (size_t i = 0; r == 0 && i < s.count; i++)
		conf_value_store(s.list[i].row, s.list[i].target, &s.list[i].value);
	settings_release(&s);
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
	struct settings s = {.e = e};
	int r = settings_load(&s, groups, group_count, from);
	for (size_t i = 0; r == 0 && i < s.count; i++)
		setting_renew(&s.list[i], changed);
	settings_release(&s);
	return r;
}

void conf_release(const struct conf_group *groups, size_t group_count)
{
	strings_forget(groups, group_count, true);
}
