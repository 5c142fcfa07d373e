#include "config/config.h"
#include "config/names.h"
#include "config/value.h"

static const char *default_text(const struct conf_row *row)
{
	return row->def ? row->def : ""; /* of a secret too: it stands in the program for all to read */
}

/* Of all groups together; NULL behind the last one. */
static const struct conf_row *row_at(const struct conf_group *groups, size_t group_count, size_t n)
{
	for (; group_count > 0; n -= groups->row_count, groups++, group_count--) {
		if (n < groups->row_count)
			return &groups->rows[n];
	}
	return NULL;
}

struct page {
	void (*section)(const char *name, struct buf *out);
	void (*row)(const struct conf_row *row, struct buf *out);
};

/* Rows of one section stand together, wherever their groups are. */
static void render(const struct conf_group *groups, size_t group_count, const struct page *page,
                   struct buf *out)
{
	const struct conf_row *first, *row;
	for (size_t i = 0; (first = row_at(groups, group_count, i)); i++) {
		bool came_before = false;
		for (size_t k = 0; k < i; k++)
			came_before |= strcmp(row_at(groups, group_count, k)->section, first->section) == 0;
		if (came_before)
			continue;
		page->section(first->section, out);
		for (size_t k = i; (row = row_at(groups, group_count, k)); k++) {
			if (strcmp(row->section, first->section) == 0)
				page->row(row, out);
		}
	}
}

static void help_section(const char *name, struct buf *out)
{
	buf_printf(out, "\n[%s]\n", name);
}

static void help_row(const struct conf_row *row, struct buf *out)
{
	char flag[CONF_NAME_BYTES], brief[CONF_NAME_BYTES];
	conf_flag_name(row, flag);
	conf_short_flag_name(row, brief);
	buf_printf(out, "  %s%s%s %s\n        %s\n        ", brief, brief[0] ? ", " : "", flag,
	           row->type == CONF_BOOL ? "[true|false]" : "VALUE", row->help);
	conf_value_expected(row, out);
	const char *text = default_text(row);
	if (text[0])
		buf_printf(out, "; default %s", text);
	buf_char(out, '\n');
}

void conf_help(const struct conf_group *groups, size_t group_count, struct buf *out)
{
	static const struct page page = {help_section, help_row};
	buf_str(
	    out,
	    STR("Settings, by section of the configuration file. Each has a flag (below) and a variable,\n"
	        "such as CURT_LOG_LEVEL for --log-level; a flag is stronger than a variable, and a\n"
	        "variable is stronger than the file.\n"));
	render(groups, group_count, &page, out);
}

static void markdown_section(const char *name, struct buf *out)
{
	buf_printf(out,
	           "\n## [%s]\n\n"
	           "| name | variable and flag | value | default | meaning |\n"
	           "| --- | --- | --- | --- | --- |\n",
	           name);
}

/* A bar would end the cell. */
static void put_cell(struct str text, struct buf *out)
{
	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] == '|')
			buf_char(out, '\\');
		buf_char(out, text.ptr[i]);
	}
}

static void markdown_row(const struct conf_row *row, struct buf *out)
{
	char env[CONF_NAME_BYTES], flag[CONF_NAME_BYTES], brief[CONF_NAME_BYTES];
	conf_env_name(row, env);
	conf_flag_name(row, flag);
	conf_short_flag_name(row, brief);
	buf_printf(out, "| `%s` | `%s`<br>`%s`", row->name, env, brief[0] ? brief : flag);
	buf_str(out, STR(" | "));
	CLEANUP(buf_release) struct buf expected = {0};
	conf_value_expected(row, &expected);
	put_cell(buf_view(&expected), out);
	const char *text = default_text(row);
	buf_str(out, STR(" | "));
	if (text[0]) {
		buf_char(out, '`');
		put_cell(str_of(text), out);
		buf_char(out, '`');
	}
	buf_str(out, STR(" | "));
	put_cell(str_of(row->help), out);
	if (row->flags & CONF_RELOADABLE)
		buf_str(out, STR(" SIGHUP applies a change."));
	if (row->flags & CONF_SECRET)
		buf_str(out, STR(" Secret: never shown."));
	buf_str(out, STR(" |\n"));
}

void conf_markdown(const struct conf_group *groups, size_t group_count, struct buf *out)
{
	static const struct page page = {markdown_section, markdown_row};
	buf_str(
	    out,
	    STR("# Settings\n\n"
	        "This page is made from the tables in the source. A value comes from its default, the\n"
	        "configuration file, the environment or a flag; each is stronger than the one before.\n"));
	render(groups, group_count, &page, out);
}
