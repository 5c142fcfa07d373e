#include "config/ini.h"
#include "lib/test.h"

static void assert_section(struct ini_reader *r, unsigned line, const char *name)
{
	struct ini_item item;
	assert_int_equal(ini_next(r, &item), INI_SECTION);
	assert_int_equal(r->line, line);
	assert_true(str_eq(item.name, str_of(name)));
}

static void assert_pair(struct ini_reader *r, unsigned line, const char *name, const char *value)
{
	struct ini_item item;
	assert_int_equal(ini_next(r, &item), INI_PAIR);
	assert_int_equal(r->line, line);
	assert_true(str_eq(item.name, str_of(name)));
	assert_true(str_eq(item.value, str_of(value)));
}

static void assert_end(struct ini_reader *r)
{
	struct ini_item item;
	assert_int_equal(ini_next(r, &item), INI_END);
	assert_int_equal(ini_next(r, &item), INI_END);
}

static void assert_bad(struct str text, unsigned line, const char *hint)
{
	struct ini_reader r;
	struct ini_item item;
	enum ini_kind kind;
	ini_reader_init(&r, text);
	do
		kind = ini_next(&r, &item);
	while (kind == INI_SECTION || kind == INI_PAIR);
	assert_int_equal(kind, INI_BAD);
	assert_int_equal(r.line, line);
	if (!strstr(r.problem, hint))
		fail_msg("'%s' does not say '%s'", r.problem, hint);
}

TEST(sections_and_pairs_come_with_their_lines)
{
	struct ini_reader r;
	ini_reader_init(&r,
	                STR("# head\n\n[serve]\nlisten=:80\n ; more\n\n\tworkers\t =  4  \n[ log ]\nfile ="));
	assert_section(&r, 3, "serve");
	assert_pair(&r, 4, "listen", ":80");
	assert_pair(&r, 7, "workers", "4");
	assert_section(&r, 8, "log");
	assert_pair(&r, 9, "file", "");
	assert_end(&r);
}

TEST(a_value_may_hold_comment_signs_quotes_and_equals)
{
	struct ini_reader r;
	ini_reader_init(&r, STR("a = x ;y # z\nb = \"q\" = 'r'\nc==\n"));
	assert_pair(&r, 1, "a", "x ;y # z");
	assert_pair(&r, 2, "b", "\"q\" = 'r'");
	assert_pair(&r, 3, "c", "=");
	assert_end(&r);
}

TEST(a_line_may_be_longer_than_other_readers_take)
{
	char text[5000] = "url = ";
	memset(text + 6, 'x', sizeof(text) - 6);
	struct ini_reader r;
	struct ini_item item;
	ini_reader_init(&r, str_n(text, sizeof(text)));
	assert_int_equal(ini_next(&r, &item), INI_PAIR);
	assert_int_equal(item.value.len, sizeof(text) - 6);
}

TEST(an_indented_line_is_a_line_of_its_own)
{
	struct ini_reader r;
	ini_reader_init(&r, STR("a = 1\n  b = 2\n"));
	assert_pair(&r, 1, "a", "1");
	assert_pair(&r, 2, "b", "2");
	assert_end(&r);
}

TEST(foreign_line_ends_and_a_byte_order_mark_do_not_matter)
{
	struct ini_reader r;
	ini_reader_init(&r, STR("\xef\xbb\xbf[log]\r\nlevel = info\r\n\r\n"));
	assert_section(&r, 1, "log");
	assert_pair(&r, 2, "level", "info");
	assert_end(&r);
}

TEST(empty_text_has_nothing)
{
	struct ini_reader r;
	ini_reader_init(&r, STR_NULL);
	assert_end(&r);
	ini_reader_init(&r, STR("\n\n  \n# only\n; comments"));
	assert_end(&r);
}

TEST(what_is_not_ini_is_bad_at_its_line)
{
	assert_bad(STR("a = 1\nnonsense\n"), 2, "name = value");
	assert_bad(STR("\n[serve\n"), 2, "[name]");
	assert_bad(STR("[serve] # comment\n"), 1, "alone on its line");
	assert_bad(STR("[\n"), 1, "[name]");
	assert_bad(STR("= 1\n"), 1, "no name");
	assert_bad(STR("a = 1\nb = \x1b[0m\n"), 2, "control character");
	assert_bad(STR("a = x\0y\n"), 1, "control character");
	assert_bad(STR("a = 1\rb = 2\n"), 1, "control character");
}

TEST(no_byte_anywhere_makes_the_reader_leave_its_text)
{
	const char text[] = "[s]\na = 1\n# c\nb=2\n";
	for (size_t at = 0; at < sizeof(text) - 1; at++) {
		for (int byte = 0; byte < 256; byte++) {
			char copy[sizeof(text) - 1]; /* without a NUL: a sanitizer sees a step beyond */
			memcpy(copy, text, sizeof(copy));
			copy[at] = (char)byte;
			struct ini_reader r;
			struct ini_item item;
			enum ini_kind kind;
			ini_reader_init(&r, str_n(copy, sizeof(copy)));
			do
				kind = ini_next(&r, &item);
			while (kind == INI_SECTION || kind == INI_PAIR);
			assert_in_range(r.line, 1, 5);
		}
	}
}

TEST_MAIN()
