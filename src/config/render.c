#include "config/config.h"
#include "config/names.h"
#include "config/value.h"

enum { HELP_INDENT = 8, HELP_WIDTH = 80, MARKDOWN_WIDTH = 100 };

void conf_wrap(struct buf *out, struct str text, size_t column, size_t indent, size_t width)
{
	bool first = true;
	for (struct str rest = text; rest.ptr;) {
		struct str line = str_cut(&rest, '\n');
		while (line.ptr) {
			struct str word = str_cut(&line, ' ');
			if (first || column + 1 + word.len <= width) {
				column += !first;
				buf_str(out, first ? STR("") : STR(" "));
			} else {
				buf_printf(out, "\n%*s", (int)indent, "");
				column = indent;
			}
			buf_str(out, word);
			column += word.len;
			first = false;
		}
		if (rest.ptr) {
			buf_printf(out, "\n%*s", (int)indent, "");
			column = indent;
			first = true;
		}
	}
	buf_char(out, '\n');
}

/* The nth row of all groups together; NULL behind the last one. */
static const struct conf_row *row_at(const struct conf_group *groups, size_t group_count, size_t n)
{
	for (; group_count > 0; n -= groups->row_count, groups++, group_count--) {
		if (n < groups->row_count)
			return &groups->rows[n];
	}
	return NULL;
}

struct conf_format {
	void (*section)(const char *name, struct buf *out);
	void (*row)(const struct conf_row *row, struct buf *out);
};

/* A section comes once, with its rows of all groups. */
static void render(const struct conf_group *groups, size_t group_count, const struct conf_format *format,
                   struct buf *out)
{
	const struct conf_row *first, *row;
	for (size_t i = 0; (first = row_at(groups, group_count, i)); i++) {
		bool came_before = false;
		for (size_t k = 0; k < i; k++)
			came_before |= strcmp(row_at(groups, group_count, k)->section, first->section) == 0;
		if (came_before)
			continue;
		format->section(first->section, out);
		for (size_t k = i; (row = row_at(groups, group_count, k)); k++) {
			if (strcmp(row->section, first->section) == 0)
				format->row(row, out);
		}
	}
}

static void help_section(const char *name, struct buf *out)
{
	buf_printf(out, "\n[%s]\n", name);
}

static void help_row(const struct conf_row *row, struct buf *out)
{
	CLEANUP(buf_release) struct buf value = {0};
	char flag[CONF_NAME_BYTES];
	conf_flag_name(row, flag);
	buf_printf(out, "  %s %s\n%*s", flag, row->type == CONF_BOOL ? "[true|false]" : "VALUE", HELP_INDENT,
	           "");
	conf_wrap(out, str_of(row->help), HELP_INDENT, HELP_INDENT, HELP_WIDTH);
	conf_value_expected(row, &value);
	if (row->def && row->def[0])
		buf_printf(&value, "; default %s", row->def);
	buf_printf(out, "%*s", HELP_INDENT, "");
	conf_wrap(out, buf_view(&value), HELP_INDENT, HELP_INDENT, HELP_WIDTH);
}

void conf_help(const struct conf_group *groups, size_t group_count, struct buf *out)
{
	static const struct conf_format format = {help_section, help_row};
	buf_str(out, STR("Settings, by section of the configuration file (--config FILE). Each has a flag,\n"
	                 "listed here, and a variable, such as CURT_LOG_LEVEL for --log-level. Flags\n"
	                 "override variables, and variables override the file.\n"));
	render(groups, group_count, &format, out);
}

static void markdown_section(const char *name, struct buf *out)
{
	buf_printf(out, "\n## [%s]\n", name);
}

static void markdown_row(const struct conf_row *row, struct buf *out)
{
	CLEANUP(buf_release) struct buf help = {0}, value = {0};
	char env[CONF_NAME_BYTES], flag[CONF_NAME_BYTES];
	conf_env_name(row, env);
	conf_flag_name(row, flag);
	buf_printf(out, "\n### %s.%s\n\n", row->section, row->name);
	buf_printf(&help, "%s%s%s", row->help,
	           row->flags & CONF_RELOADABLE ? " SIGHUP applies a change without a restart." : "",
	           row->flags & CONF_SECRET ? " Secret: curt never prints the value." : "");
	conf_wrap(out, buf_view(&help), 0, 0, MARKDOWN_WIDTH);
	buf_printf(out, "\n- Flag `%s`, variable `%s`\n- ", flag, env);
	buf_str(&value, STR("Value: "));
	conf_value_expected(row, &value);
	conf_wrap(out, buf_view(&value), 2, 2, MARKDOWN_WIDTH);
	if (row->def && row->def[0])
		buf_printf(out, "- Default: `%s`\n", row->def);
}

/* The head of docs/configuration.md: what config.h and ini.h say, for users. */
static const char markdown_syntax[] =
    "# Settings\n"
    "\n"
    "`make docs` writes this page from the tables in the source. A value comes from, weakest first:\n"
    "\n"
    "1. its default\n"
    "2. the settings file: `--config FILE`, else `CURT_CONFIG`, else `/etc/curt/curt.conf` if it exists\n"
    "3. the environment: `CURT_SECTION_NAME`, for example `CURT_LOG_LEVEL`\n"
    "4. a flag: `--section-name VALUE` or `--section-name=VALUE`, for example `--log-level debug`\n"
    "\n"
    "Settings of the section `serve` leave the section out: `--data`, `CURT_DATA`. `CURT_SERVE_DATA` works\n"
    "too. All commands check all values before they do anything. A value of the wrong type is an error\n"
    "even where a stronger source replaces it, and so is an unknown variable that begins with `CURT_`.\n"
    "\n"
    "## Settings file\n"
    "\n"
    "```ini\n"
    "# A comment is a whole line.\n"
    "; So is this.\n"
    "[serve]\n"
    "listen = 0.0.0.0:8080\n"
    "base_url = https://s.example\n"
    "trusted_proxies = 10.0.0.0/8, loopback\n"
    "drain_time = 10s\n"
    "\n"
    "[limits]\n"
    "creates = 100\n"
    "period = 1m\n"
    "\n"
    "[events]\n"
    "spool_bytes = 2g\n"
    "```\n"
    "\n"
    "| part | rule |\n"
    "| --- | --- |\n"
    "| section | `[name]`, alone on its line; it may come again |\n"
    "| setting | `name = value`, once, after its section; spaces around both are ignored |\n"
    "| comment | a line that begins with `#` or `;`; after a value, both are part of the value |\n"
    "| value | reaches to the end of the line; there are no quotes, escapes or continuation lines |\n"
    "| bytes | at most 1 MiB, no control characters except tabs; lines end with LF or CR LF |\n"
    "\n"
    "An unknown section or name, a repeated setting and a wrong value are errors. The message names the\n"
    "file, the line and the right form.\n"
    "\n"
    "| value | written as |\n"
    "| --- | --- |\n"
    "| true or false | `true` or `false`, `yes` or `no`, `on` or `off` |\n"
    "| whole number | digits: `3`, not `3.0` or `1e3` |\n"
    "| bytes | digits and a unit: `k`, `m`, `g` or `KiB`, `MiB`, `GiB`, powers of 1024; none means bytes |\n"
    "| duration | digits and one unit, always: `ms`, `s`, `m`, `h`, `d`; `90m`, not `1h30m` |\n"
    "| one of several words | the word in lower case |\n"
    "| text | anything, or nothing where the setting may be empty |\n"
    "| list | entries separated by commas; spaces around them are ignored |\n"
    "\n"
    "In `queue.options`, spaces count, and a comma within a value is written twice.\n";

void conf_markdown(const struct conf_group *groups, size_t group_count, struct buf *out)
{
	static const struct conf_format format = {markdown_section, markdown_row};
	buf_str(out, str_of(markdown_syntax));
	render(groups, group_count, &format, out);
}

void conf_flags(const struct conf_group *groups, size_t group_count, struct buf *out)
{
	const struct conf_row *row;
	for (size_t i = 0; (row = row_at(groups, group_count, i)); i++) {
		char flag[CONF_NAME_BYTES];
		conf_flag_name(row, flag);
		buf_printf(out, "%s%s", i ? " " : "", flag);
	}
}
