#include "config/ini.h"

#include "config/value.h"

void ini_reader_init(struct ini_reader *r, struct str text)
{
	struct str mark = STR("\xef\xbb\xbf");
	if (str_starts(text, mark))
		text = str_n(text.ptr + mark.len, text.len - mark.len);
	*r = (struct ini_reader){.rest = text};
}

static enum ini_kind bad(struct ini_reader *r, const char *problem)
{
	r->problem = problem;
	return INI_BAD;
}

static enum ini_kind parse_line(struct ini_reader *r, struct str line, struct ini_item *ret)
{
	if (!conf_text_is_printable(line))
		return bad(r, "the line has a control character; remove it");
	if (line.ptr[0] == '[') {
		if (line.ptr[line.len - 1] != ']')
			return bad(r, "a section is written [name], alone on its line");
		ret->name = str_trim(str_n(line.ptr + 1, line.len - 2));
		return INI_SECTION;
	}
	struct str value = line;
	struct str name = str_cut(&value, '=');
	if (!value.ptr)
		return bad(r, "expected 'name = value', '[section]' or a comment");
	ret->name = str_trim(name);
	ret->value = str_trim(value);
	if (ret->name.len == 0)
		return bad(r, "there is no name before '='");
	return INI_PAIR;
}

enum ini_kind ini_next(struct ini_reader *r, struct ini_item *ret)
{
	while (r->rest.len > 0) {
		struct str line = str_cut(&r->rest, '\n');
		r->line++;
		if (str_ends(line, STR("\r")))
			line.len--;
		line = str_trim(line);
		if (line.len > 0 && line.ptr[0] != '#' && line.ptr[0] != ';')
			return parse_line(r, line, ret);
	}
	return INI_END;
}
