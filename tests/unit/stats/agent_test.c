/* uap-core's own examples come with its rules; both are Debian's package, which the build needs. */
#include "base/buf.h"
#include "lib/test.h"
#include "stats/agent.h"
#include "stats/agent_rules.h"
#include "stats/required_literals.h"

#include <ctype.h>
#include <yaml.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define UAP_CORE "/usr/share/uap-core/"

/* ---- reading uap-core's files: lists of mappings of fields to texts ---- */

struct fields {
	struct arena *mem;
	struct str agent; /* of an example */
	struct str family;
	struct agent_rule rule; /* of a rule */
};

static void field_set(struct fields *f, const char *name, struct str text)
{
	text = arena_str(f->mem, text);
	if (strcmp(name, "user_agent_string") == 0)
		f->agent = text;
	else if (strcmp(name, "family") == 0)
		f->family = text;
	else if (strcmp(name, "regex") == 0)
		f->rule.regex = text;
	else if (strcmp(name, "regex_flag") == 0)
		f->rule.ignore_case = str_eq(text, STR("i"));
}

/* Appends what is read to `out`: of struct fields. */
static void yaml_read(struct arena *mem, const char *path, struct buf *out)
{
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	yaml_parser_t parser;
	yaml_event_t event = {0};
	char name[64] = "";
	int depth = 0, list = -1;
	struct fields f = {0};
	assert_true(yaml_parser_initialize(&parser));
	yaml_parser_set_input_file(&parser, file);
	do {
		yaml_event_delete(&event);
		assert_true(yaml_parser_parse(&parser, &event));
		if (event.type == YAML_SEQUENCE_START_EVENT) {
			list++; /* rules: browsers, systems, devices */
			depth++;
		} else if (event.type == YAML_MAPPING_START_EVENT) {
			f = (struct fields){.mem = mem, .rule.list = (enum agent_list)list};
			depth++;
		} else if (event.type == YAML_SEQUENCE_END_EVENT) {
			depth--;
		} else if (event.type == YAML_MAPPING_END_EVENT) {
			if (depth-- == 3)
				buf_append(out, &f, sizeof(f));
		} else if (event.type == YAML_SCALAR_EVENT && depth == 3) {
			const char *text = (const char *)event.data.scalar.value;
			if (name[0]) {
				field_set(&f, name, str_n(text, event.data.scalar.length));
				name[0] = '\0';
			} else {
				snprintf(name, sizeof(name), "%s", text);
			}
		}
	} while (event.type != YAML_STREAM_END_EVENT);
	yaml_event_delete(&event);
	yaml_parser_delete(&parser);
	fclose(file);
	assert_false(out->failed);
}

struct rows {
	struct arena mem;
	struct buf buf;
	const struct fields *at;
	size_t count;
};

static void rows_read(struct rows *r, const char *path)
{
	yaml_read(&r->mem, path, &r->buf);
	r->at = (const struct fields *)(const void *)r->buf.data;
	r->count = r->buf.len / sizeof(*r->at);
}

static void rows_release(struct rows *r)
{
	buf_release(&r->buf);
	arena_release(&r->mem);
}

static void skip_without_uap_core(void)
{
	if (access(UAP_CORE "tests/test_ua.yaml", R_OK) != 0) {
		print_message("uap-core's examples are not in " UAP_CORE "\n");
		skip();
	}
}

static struct agents *agents_of(size_t cache_entries_max)
{
	struct agents *a;
	assert_int_equal(agents_new(cache_entries_max, &a, NULL), 0);
	return a;
}

static void assert_str(struct str got, struct str expected, struct str of)
{
	if (!str_eq(got, expected))
		fail_msg("'%.*s' instead of '%.*s' for %.*s", STR_ARG(got), STR_ARG(expected), STR_ARG(of));
}

/* ---- names ---- */

static void assert_named(const char *const *files, size_t count, size_t rows_min, size_t field)
{
	skip_without_uap_core();
	CLEANUP(rows_release) struct rows rows = {0};
	for (size_t i = 0; i < count; i++)
		rows_read(&rows, files[i]);
	assert_true(rows.count > rows_min);
	struct agents *a = agents_of(100);
	for (size_t i = 0; i < rows.count; i++) {
		struct agent_info info;
		agents_find(a, rows.at[i].agent, &info);
		const struct str *name = (const struct str *)((const char *)&info + field);
		assert_str(*name, rows.at[i].family, rows.at[i].agent);
	}
	assert_int_equal(agents_read_stats(a).skipped, 0);
	agents_free(a);
}

TEST(browsers_are_named_as_uap_core_wants_it)
{
	static const char *const files[] = {
	    UAP_CORE "tests/test_ua.yaml",
	    UAP_CORE "test_resources/firefox_user_agent_strings.yaml",
	    UAP_CORE "test_resources/opera_mini_user_agent_strings.yaml",
	    UAP_CORE "test_resources/podcasting_user_agent_strings.yaml",
	    UAP_CORE "test_resources/pgts_browser_list.yaml",
	};
	assert_named(files, ARRAY_LEN(files), 10000, offsetof(struct agent_info, browser));
}

TEST(systems_are_named_as_uap_core_wants_it)
{
	static const char *const files[] = {UAP_CORE "tests/test_os.yaml",
	                                    UAP_CORE "test_resources/additional_os_tests.yaml"};
	assert_named(files, ARRAY_LEN(files), 400, offsetof(struct agent_info, os));
}

TEST(what_uap_core_calls_a_spider_is_a_bot)
{
	skip_without_uap_core();
	CLEANUP(rows_release) struct rows rows = {0};
	rows_read(&rows, UAP_CORE "tests/test_device.yaml");
	struct agents *a = agents_of(100);
	size_t spiders = 0;
	for (size_t i = 0; i < rows.count; i++) {
		struct agent_info info;
		agents_find(a, rows.at[i].agent, &info);
		if (str_eq(rows.at[i].family, STR("Spider"))) {
			assert_str(info.device, STR("Bot"), rows.at[i].agent);
			assert_non_null(info.bot.ptr);
			spiders++;
		}
	}
	assert_true(rows.count > 10000 && spiders > 50);
	assert_int_equal(agents_read_stats(a).skipped, 0);
	agents_free(a);
}

/* ---- needs ---- */

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the texts in order, so that a table can name them. */
static void join_sorted(struct buf *out, char **texts, size_t count, const char *between)
{
	qsort(texts, count, sizeof(*texts), compare_texts);
	for (size_t i = 0; i < count; i++) {
		buf_printf(out, "%s%s", i ? between : "", texts[i]);
		free(texts[i]);
	}
}

/* As "a|b & c", words and needs in alphabetical order. */
static void needs_print(const struct literal_set *needs, struct buf *out)
{
	char *clauses[32];
	size_t count = 0;
	for (; needs; needs = needs->next) {
		char *words[256];
		size_t n = 0;
		for (const struct required_literal *w = needs->words; w; w = w->next)
			words[n++] = strndup(w->text.ptr, w->text.len);
		struct buf clause = {0};
		join_sorted(&clause, words, n, "|");
		buf_char(&clause, '\0');
		clauses[count++] = clause.data;
	}
	join_sorted(out, clauses, count, " & ");
	buf_char(out, '\0');
}

TEST(needs_of_an_expression_are_what_every_match_contains)
{
	static const struct {
		const char *regex, *needs;
	} table[] = {
	    /* texts */
	    {"Firefox", "firefox"},
	    {"(Firefox)/(\\d+)\\.(\\d+)", "firefox/"},
	    {"via ggpht\\.com GoogleImageProxy", "via ggpht.com googleimageproxy"},
	    {"a", ""},
	    {"", ""},
	    {"\\d+", ""},
	    {".", ""},
	    {"ab.cd", "ab & cd"},
	    {"ab\\scd", "ab & cd"},
	    {"\\[FB.{0,300};(FBAV)/(\\d+)", ";fbav/ & [fb"},
	    {"\\(StatusCake\\)", "(statuscake)"},
	    /* places are not texts, and do not part them */
	    {"^Nokia$", "nokia"},
	    {"\\bDell\\B", "dell"},
	    {"Win\\b32", "win32"},
	    /* alternatives */
	    {"foo|bar", "bar|foo"},
	    {"(?:foo|bar)baz", "barbaz|foobaz"},
	    {"x(?:foo|bar)", "xbar|xfoo"},
	    {"(foo|)bar", "bar|foobar"},
	    {"foo|", ""},
	    {"foo|.", ""},
	    {"foo|b", ""},
	    {"(?:foo.bazzz|quux)", "bazzz|quux"},
	    {"(?:foo.bazzz|q.)", ""},
	    {"(?:(?:aa|bb)c|dd)e", "aace|bbce|dde"},
	    /* classes */
	    {"Black[bB]erry", "blackberry"},
	    {"[Ss][Pp][Ii][Dd][Ee][Rr]", "spider"},
	    {"ab[xyz]cd", "abxcd|abycd|abzcd"},
	    {"ab[0-9]cd", "ab & cd"},
	    {"ab[^x]cd", "ab & cd"},
	    {"ab[\\d]cd", "ab & cd"},
	    {"ab[a-]cd", "ab-cd|abacd"},
	    {"ab[\\-x]cd", "ab-cd|abxcd"},
	    {"ab[]x]cd", "ab]cd|abxcd"},
	    {"ab[^]x]cd", "ab & cd"},
	    {"ab[\\]]cd", "ab]cd"},
	    {"ab[abcde]cd", "ab & cd"},
	    /* repetitions */
	    {"ab?cd", "abcd|acd"},
	    {"abc?", "ab|abc"},
	    {"abx*cd", "ab & cd"},
	    {"abx+cd", "ab & cd"},
	    {"ab(?:foo)+cd", "ab & cd & foo"},
	    {"ab(?:foo)*cd", "ab & cd"},
	    {"ab(?:foo){0,2}cd", "ab & cd"},
	    {"ab(?:foo){0,1}cd", "abcd|abfoocd"},
	    {"ab(?:foo){2}cd", "ab & cd & foo"},
	    {"ab(?:foo){1,}cd", "ab & cd & foo"},
	    {"ab(?:foo){1}cd", "abfoocd"},
	    {"ab(?:f.o)?cd", "ab & cd"},
	    {"ab(?:foo)??cd", "abcd|abfoocd"},
	    {"ab(?:foo)++cd", "ab & cd & foo"},
	    {"UC? ?Browser", "u browser|ubrowser|uc browser|ucbrowser"},
	    {"ab{x", "ab{x"},
	    {"ab{2x}", "ab{2x}"},
	    /* looking around takes no part of the text */
	    {"Tablet(?! PC)", "tablet"},
	    {"(?<!cu)bot", "bot"},
	    {"foo(?=bar)", "foo"},
	    {"(?<=foo)bar", "bar"},
	    /* not understood: nothing is promised */
	    {"foo(?i)bar", ""},
	    {"foo(?>bar)", ""},
	    {"foo(?<name>bar)", ""},
	    {"(*UTF)foo", ""},
	    {"foo\\x41", ""},
	    {"(foo)\\1", ""},
	    {"foo\\Qbar\\E", ""},
	    {"foo[[:alpha:]]", ""},
	    {"foox{,3}", ""},
	    /* not expressions at all, but nothing bad happens */
	    {"foo(bar", ""},
	    {"foo)bar", ""},
	    {"foo[bar", ""},
	    {"foo[\\", ""},
	    {"foo\\", ""},
	    {"foo(?", ""},
	};
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		CLEANUP(arena_release) struct arena mem = {0};
		CLEANUP(buf_release) struct buf got = {0};
		struct literal_set *needs;
		bool names_fixed;
		assert_int_equal(required_literals_find(&mem, str_of(table[i].regex), &needs, &names_fixed),
		                 0);
		needs_print(needs, &got);
		if (strcmp(got.data, table[i].needs) != 0)
			fail_msg("%s needs '%s' instead of '%s'", table[i].regex, got.data, table[i].needs);
	}
}

TEST(names_are_fixed_when_the_first_group_can_only_be_one_of_a_few)
{
	static const struct {
		const char *regex;
		bool fixed;
	} table[] = {
	    {"(Firefox)/(\\d+)", true}, {"(?:x|y)(iPod|iPhone|iPad).*", true},
	    {"(Black[bB]erry)", true},  {"(\\w+)Bot", false},
	    {"(.{0,20})/1", false},     {"Firefox", false},
	    {"(Java).(\\d+)", true},    {"((?:Ant-|)Nutch|[a-z]+bot)", false},
	};
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		CLEANUP(arena_release) struct arena mem = {0};
		struct literal_set *needs;
		bool fixed;
		assert_int_equal(required_literals_find(&mem, str_of(table[i].regex), &needs, &fixed), 0);
		if (fixed != table[i].fixed)
			fail_msg("%s", table[i].regex);
	}
}

TEST(deep_nesting_is_given_up_not_followed)
{
	enum { DEPTH = 100000 };
	CLEANUP(arena_release) struct arena mem = {0};
	CLEANUP(buf_release) struct buf regex = {0};
	for (int i = 0; i < DEPTH; i++)
		buf_char(&regex, '(');
	buf_str(&regex, STR("foo"));
	for (int i = 0; i < DEPTH; i++)
		buf_char(&regex, ')');
	struct literal_set *needs;
	bool fixed;
	assert_int_equal(required_literals_find(&mem, buf_view(&regex), &needs, &fixed), 0);
	assert_null(needs);
}

TEST(alternatives_beyond_a_bound_still_give_needs)
{
	CLEANUP(arena_release) struct arena mem = {0};
	CLEANUP(buf_release) struct buf regex = {0};
	for (int i = 100; i < 400; i++)
		buf_printf(&regex, "%sname%d", i > 100 ? "|" : "(", i);
	buf_str(&regex, STR(")end"));
	struct literal_set *needs;
	bool fixed;
	assert_int_equal(required_literals_find(&mem, buf_view(&regex), &needs, &fixed), 0);
	assert_non_null(needs);
	assert_non_null(needs->next); /* the names, and "end" */
	assert_null(needs->next->next);
	assert_false(fixed);
}

/* ---- rules ---- */

/* The rules of uap-core without any of our cleverness: each is tried in its turn. */
struct oracle {
	struct rows rows;
	pcre2_code **codes;
	pcre2_match_data *match;
};

static void oracle_init(struct oracle *o)
{
	*o = (struct oracle){.match = pcre2_match_data_create(1, NULL)};
	rows_read(&o->rows, UAP_CORE "regexes.yaml");
	o->codes = calloc(o->rows.count, sizeof(pcre2_code *));
	for (size_t i = 0; i < o->rows.count; i++) {
		const struct agent_rule *rule = &o->rows.at[i].rule;
		int error;
		PCRE2_SIZE where;
		uint32_t options = PCRE2_DOLLAR_ENDONLY | (rule->ignore_case ? PCRE2_CASELESS : 0);
		o->codes[i] = pcre2_compile((PCRE2_SPTR)rule->regex.ptr, rule->regex.len, options, &error,
		                            &where, NULL);
		assert_non_null(o->codes[i]);
		pcre2_jit_compile(o->codes[i], PCRE2_JIT_COMPLETE);
	}
}

static void oracle_release(struct oracle *o)
{
	for (size_t i = 0; i < o->rows.count; i++)
		pcre2_code_free(o->codes[i]);
	free(o->codes);
	pcre2_match_data_free(o->match);
	rows_release(&o->rows);
}

static struct str oracle_first(const struct oracle *o, enum agent_list list, struct str text)
{
	for (size_t i = 0; i < o->rows.count; i++) {
		const struct agent_rule *rule = &o->rows.at[i].rule;
		if (rule->list == list &&
		    pcre2_match(o->codes[i], (PCRE2_SPTR)text.ptr, text.len, 0, 0, o->match, NULL) >= 0)
			return rule->regex;
	}
	return STR("none");
}

static struct agent_rules *rules_of(const struct rows *rows)
{
	struct agent_rule *all = calloc(rows->count, sizeof(*all));
	for (size_t i = 0; i < rows->count; i++)
		all[i] = rows->at[i].rule;
	struct agent_rules *rules;
	assert_int_equal(agent_rules_new(all, rows->count, &rules), 0);
	free(all);
	return rules;
}

static void assert_same_rules(const struct oracle *o, struct agent_rules *rules, struct str text)
{
	struct agent_match matches[AGENT_LISTS];
	agent_rules_match(rules, text, matches);
	for (enum agent_list list = AGENT_LIST_BROWSER; list <= AGENT_LIST_DEVICE; list++) {
		const struct agent_rule *rule = matches[list].rule;
		assert_str(rule ? rule->regex : STR("none"), oracle_first(o, list, text), text);
	}
}

TEST(the_same_rules_win_as_when_each_is_tried)
{
	skip_without_uap_core();
	CLEANUP(oracle_release) struct oracle o;
	oracle_init(&o);
	struct agent_rules *rules = rules_of(&o.rows);
	CLEANUP(rows_release) struct rows rows = {0};
	rows_read(&rows, UAP_CORE "tests/test_ua.yaml");
	rows_read(&rows, UAP_CORE "tests/test_os.yaml");
	for (size_t i = 0; i < rows.count; i++)
		assert_same_rules(&o, rules, rows.at[i].agent);
	/* Far fewer were tried than the thousand there are. */
	assert_in_range(agent_rules_read_stats(rules).runs / rows.count, 1, 20);
	assert_int_equal(agent_rules_read_stats(rules).skipped, 0);
	agent_rules_free(rules);
}

/* Halves of two agents, in another case or with a piece cut out: near misses of many rules. */
TEST(the_same_rules_win_for_garbled_agents)
{
	skip_without_uap_core();
	CLEANUP(oracle_release) struct oracle o;
	oracle_init(&o);
	struct agent_rules *rules = rules_of(&o.rows);
	CLEANUP(rows_release) struct rows rows = {0};
	rows_read(&rows, UAP_CORE "tests/test_ua.yaml");
	rows_read(&rows, UAP_CORE "tests/test_os.yaml");
	unsigned random = 1;
	for (size_t i = 0; i < rows.count; i++) {
		char text[512];
		random = random * 1103515245 + 12345;
		struct str a = rows.at[i].agent, b = rows.at[(random >> 8) % rows.count].agent;
		int len = snprintf(text, sizeof(text), "%.*s%.*s", (int)(a.len / 2), a.ptr,
		                   (int)(b.len - b.len / 3), b.ptr + b.len / 3);
		size_t used = MIN((size_t)len, sizeof(text) - 1);
		for (size_t k = 0; k < used; k++) {
			int c = (unsigned char)text[k];
			text[k] = (char)(i % 3 == 0 ? toupper(c) : i % 3 == 1 ? tolower(c) : c);
		}
		assert_same_rules(&o, rules, str_n(text, used));
	}
	agent_rules_free(rules);
}

static struct agent_rules *rules_new(const struct agent_rule *rules, size_t count)
{
	struct agent_rules *r;
	assert_int_equal(agent_rules_new(rules, count, &r), 0);
	return r;
}

TEST(the_first_matching_rule_of_each_list_wins)
{
	static const struct agent_rule table[] = {
	    {.list = AGENT_LIST_OS, .regex = STR("(Lin)ux"), .value = STR("one")},
	    {.list = AGENT_LIST_BROWSER, .regex = STR("(b)ar.(x)?(z)"), .value = STR("two")},
	    {.list = AGENT_LIST_OS, .regex = STR("nux"), .value = STR("three")},
	    {.list = AGENT_LIST_BROWSER, .regex = STR("BAR"), .ignore_case = true, .value = STR("four")},
	};
	struct agent_rules *r = rules_new(table, ARRAY_LEN(table));
	struct agent_match m[AGENT_LISTS];
	agent_rules_match(r, STR("foobar/z Linux"), m);
	assert_str(m[AGENT_LIST_OS].rule->value, STR("one"), STR("os"));
	assert_str(m[AGENT_LIST_OS].groups[0], STR("Linux"), STR("os"));
	assert_str(m[AGENT_LIST_OS].groups[1], STR("Lin"), STR("os"));
	assert_null(m[AGENT_LIST_OS].groups[2].ptr); /* it has one only, */
	assert_null(m[AGENT_LIST_OS].groups[3].ptr); /* whatever another rule had */
	assert_str(m[AGENT_LIST_BROWSER].rule->value, STR("two"), STR("browser"));
	assert_null(m[AGENT_LIST_BROWSER].groups[2].ptr); /* the one that took no part */
	assert_str(m[AGENT_LIST_BROWSER].groups[3], STR("z"), STR("browser"));
	assert_null(m[AGENT_LIST_DEVICE].rule);

	agent_rules_match(r, STR("foobar linux"), m);
	assert_str(m[AGENT_LIST_OS].rule->value, STR("three"), STR("os"));
	assert_str(m[AGENT_LIST_BROWSER].rule->value, STR("four"), STR("browser"));

	agent_rules_match(r, STR("neither"), m);
	assert_null(m[AGENT_LIST_OS].rule);
	assert_null(m[AGENT_LIST_BROWSER].rule);
	agent_rules_free(r);
}

TEST(a_rule_is_compiled_when_it_is_first_tried)
{
	static const struct agent_rule table[] = {
	    {.list = AGENT_LIST_OS, .regex = STR("Windows \\d")},
	    {.list = AGENT_LIST_OS, .regex = STR("Linux \\d")},
	};
	struct agent_rules *r = rules_new(table, ARRAY_LEN(table));
	struct agent_match m[AGENT_LISTS];
	agent_rules_match(r, STR("Macintosh"), m);
	assert_int_equal(agent_rules_read_stats(r).compiled, 0);
	agent_rules_match(r, STR("Linux x"), m);
	agent_rules_match(r, STR("Linux 5"), m);
	assert_int_equal(agent_rules_read_stats(r).compiled, 1);
	assert_int_equal(agent_rules_read_stats(r).runs, 2);
	agent_rules_free(r);
}

/* For "(a+)+[bc]$" this is a million steps: beyond our limit, and far below PCRE's own. */
#define ENDLESS "aaaaaaaaaaaaaaaaaaaab!"

TEST(a_rule_that_meets_its_limit_does_not_match_and_the_next_is_tried)
{
	static const struct agent_rule table[] = {
	    {.list = AGENT_LIST_OS, .regex = STR("(a+)+[bc]$"), .value = STR("endless")},
	    {.list = AGENT_LIST_OS, .regex = STR("aaaa"), .value = STR("simple")},
	};
	struct agent_rules *r = rules_new(table, ARRAY_LEN(table));
	struct agent_match m[AGENT_LISTS];
	agent_rules_match(r, STR(ENDLESS), m);
	assert_str(m[AGENT_LIST_OS].rule->value, STR("simple"), STR("os"));
	assert_int_equal(agent_rules_read_stats(r).skipped, 1);
	agent_rules_match(r, STR("aaaab"), m); /* and it is not lost for other texts */
	assert_str(m[AGENT_LIST_OS].rule->value, STR("endless"), STR("os"));
	agent_rules_free(r);
}

TEST(a_text_that_meets_many_limits_is_given_up)
{
	struct agent_rule table[20];
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		table[i] = (struct agent_rule){.list = AGENT_LIST_OS, .regex = STR("(a+)+[bc]$")};
	struct agent_rules *r = rules_new(table, ARRAY_LEN(table));
	struct agent_match m[AGENT_LISTS];
	agent_rules_match(r, STR(ENDLESS), m);
	assert_null(m[AGENT_LIST_OS].rule);
	assert_in_range(agent_rules_read_stats(r).runs, 1, 5);
	agent_rules_free(r);
}

TEST(a_rule_that_pcre_refuses_is_skipped_and_counted)
{
	static const struct agent_rule table[] = {
	    {.list = AGENT_LIST_OS, .regex = STR("Linux("), .value = STR("broken")},
	    {.list = AGENT_LIST_OS, .regex = STR("Linux"), .value = STR("good")},
	};
	struct agent_rules *r = rules_new(table, ARRAY_LEN(table));
	struct agent_match m[AGENT_LISTS];
	agent_rules_match(r, STR("Linux"), m);
	assert_str(m[AGENT_LIST_OS].rule->value, STR("good"), STR("os"));
	assert_int_equal(agent_rules_read_stats(r).skipped, 1);
	agent_rules_free(r);
}

TEST(no_rules_match_nothing)
{
	struct agent_rules *r = rules_new(NULL, 0);
	struct agent_match m[AGENT_LISTS];
	agent_rules_match(r, STR("Linux"), m);
	for (int list = 0; list < AGENT_LISTS; list++)
		assert_null(m[list].rule);
	agent_rules_free(r);
}

/* ---- devices and bots ---- */

#define IOS    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
#define CHROME "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "

TEST(devices_have_a_class)
{
	static const struct {
		const char *device, *browser, *os, *agent;
	} table[] = {
	    {"Mobile", "Mobile Safari", "iOS", IOS "Version/17.2 Mobile/15E148 Safari/604.1"},
	    {"Mobile", "Chrome Mobile iOS", "iOS", IOS "CriOS/120.0.6099.119 Mobile/15E148 Safari/604.1"},
	    {"Tablet", "Mobile Safari", "iOS",
	     "Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
	     "Version/16.6 Mobile/15E148 Safari/604.1"},
	    {"Mobile", "Chrome Mobile", "Android",
	     "Mozilla/5.0 (Linux; Android 10; K) " CHROME "Mobile Safari/537.36"},
	    {"Tablet", "Chrome", "Android", "Mozilla/5.0 (Linux; Android 10; K) " CHROME "Safari/537.36"},
	    {"Mobile", "Chrome Mobile", "Android",
	     "Mozilla/5.0 (Linux; Android 13; SM-G991B) " CHROME "Mobile Safari/537.36"},
	    {"Tablet", "Samsung Internet", "Android",
	     "Mozilla/5.0 (Linux; Android 13; SM-X700) AppleWebKit/537.36 (KHTML, like Gecko) "
	     "SamsungBrowser/23.0 Chrome/115.0.0.0 Safari/537.36"},
	    {"Tablet", "Chrome", "Android",
	     "Mozilla/5.0 (Linux; Android 9; Lenovo TB-X605F) " CHROME "Safari/537.36"},
	    {"Mobile", "Firefox Mobile", "Android",
	     "Mozilla/5.0 (Android 13; Mobile; rv:121.0) Gecko/121.0 Firefox/121.0"},
	    {"Tablet", "Firefox Mobile", "Android",
	     "Mozilla/5.0 (Android 13; Tablet; rv:121.0) Gecko/121.0 Firefox/121.0"},
	    {"Mobile", "Android", "Android",
	     "Dalvik/2.1.0 (Linux; U; Android 13; Pixel 7 Build/TQ3A.230805.001)"},
	    {"Tablet", "Amazon Silk", "Android",
	     "Mozilla/5.0 (Linux; Android 9; KFONWI Build/PS7233) AppleWebKit/537.36 (KHTML, like Gecko) "
	     "Silk/108.4.6 like Chrome/108.0.5359.220 Safari/537.36"},
	    {"Desktop", "Chrome", "Windows",
	     "Mozilla/5.0 (Windows NT 10.0; Win64; x64) " CHROME "Safari/537.36"},
	    {"Desktop", "IE", "Windows",
	     "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; Trident/4.0; Tablet PC 2.0)"},
	    {"Desktop", "Safari", "Mac OS X",
	     "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
	     "Version/17.2 Safari/605.1.15"},
	    {"Desktop", "Firefox", "Linux",
	     "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"},
	    {"Desktop", "Firefox", "Ubuntu",
	     "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"},
	    {"Desktop", "Chrome", "Chrome OS",
	     "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) " CHROME "Safari/537.36"},
	    {"Mobile", "IE Mobile", "Windows Phone",
	     "Mozilla/5.0 (compatible; MSIE 10.0; Windows Phone 8.0; Trident/6.0; IEMobile/10.0; ARM; Touch; "
	     "NOKIA; Lumia 920)"},
	    {"Mobile", "Nokia Services (WAP) Browser", "Other", "Nokia3200/1.0 () Profile/MIDP-1.0"},
	    {"Tablet", "BlackBerry WebKit", "BlackBerry Tablet OS",
	     "Mozilla/5.0 (PlayBook; U; RIM Tablet OS 2.1.0; en-US) AppleWebKit/536.2+ (KHTML, like Gecko) "
	     "Version/7.2.1.0 Safari/536.2+"},
	    {"TV", "Safari", "Tizen",
	     "Mozilla/5.0 (SMART-TV; LINUX; Tizen 6.0) AppleWebKit/537.36 (KHTML, like Gecko) "
	     "76.0.3809.146/6.0 TV Safari/537.36"},
	    {"TV", "Chrome", "Web0S",
	     "Mozilla/5.0 (Web0S; Linux/SmartTV) AppleWebKit/537.36 (KHTML, like Gecko) "
	     "Chrome/79.0.3945.79 Safari/537.36 WebAppManager"},
	    {"TV", "Chrome", "Android",
	     "Mozilla/5.0 (Linux; Android 9; BRAVIA 4K GB Build/PTT1.190515.001) " CHROME "Safari/537.36"},
	    {"TV", "Amazon Silk", "Android",
	     "Mozilla/5.0 (Linux; Android 9; AFTKA) AppleWebKit/537.36 (KHTML, like Gecko) Silk/112.5.1 like "
	     "Chrome/112.0.5615.213 Safari/537.36"},
	    {"TV", "HbbTV", "Panasonic", "HbbTV/1.2.1 (;Panasonic;VIERA 2013;3.672;4101-0003 0002-0000;)"},
	    {"TV", "Roku", "Roku", "Roku/DVP-5.4 (035.04E01110A)"},
	    {"TV", "Edge", "Windows",
	     "Mozilla/5.0 (Windows NT 10.0; Win64; x64; Xbox; Xbox One) " CHROME
	     "Safari/537.36 Edge/44.18363.8131"},
	    {"TV", "Safari", "Other",
	     "Mozilla/5.0 (PlayStation; PlayStation 5/2.26) AppleWebKit/605.1.15 (KHTML, like Gecko) "
	     "Version/13.0 Safari/605.1.15"},
	    {"Other", "NetFront NX", "Other",
	     "Mozilla/5.0 (PlayStation Vita 1.81) AppleWebKit/531.22.8 (KHTML, like Gecko) Silk/3.2"},
	    {"Other", "Apple Watch App", "WatchOS", "atc/1.0 watchOS/5.2 model/Watch4,4 build/16T225"},
	    {"Other", "Other", "Other", "SomethingWeNeverKnewExisted"},
	    {"Mobile", "Chrome Mobile", "Android",
	     "Mozilla/5.0 (Linux; Android 11; CUBOT NOTE 20) " CHROME "Mobile Safari/537.36"},
	    {"Mobile", "Chrome Mobile", "Android",
	     "Mozilla/5.0 (Linux; Android 9; CUBOT_P30 Build/PPR1.180610.011) " CHROME
	     "Mobile Safari/537.36"},
	};
	struct agents *a = agents_of(100);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		struct str agent = str_of(table[i].agent);
		struct agent_info info;
		agents_find(a, agent, &info);
		assert_str(info.device, str_of(table[i].device), agent);
		assert_str(info.browser, str_of(table[i].browser), agent);
		assert_str(info.os, str_of(table[i].os), agent);
		assert_str(info.bot, STR(""), agent);
		assert_null(info.bot.ptr);
	}
	agents_free(a);
}

TEST(machines_are_reported_with_a_reason)
{
	static const struct {
		const char *reason, *agent;
	} table[] = {
	    {"no-user-agent", ""},
	    {"no-user-agent", " \t"},
	    {"no-user-agent", "-"},
	    {"crawler", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"},
	    {"crawler", "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) " CHROME
	                "Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"},
	    {"crawler", "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)"},
	    {"crawler", "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.0)"},
	    {"crawler", "Mozilla/5.0 (compatible; Baiduspider/2.0)"},
	    {"crawler",
	     "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)"},
	    {"crawler", "my own crawler 1.0"},
	    {"crawler", "Mozilla/5.0 (compatible; Qwantify/2.4w)"}, /* uap-core alone knows it */
	    {"crawler", "SomeService/1.0 (+https://example.com/about)"},
	    {"preview", "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)"},
	    {"preview",
	     "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) AppleWebKit/601.2.4 (KHTML, like Gecko) "
	     "Version/9.0.1 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0"},
	    {"preview", "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"},
	    {"preview", "Twitterbot/1.0"},
	    {"preview", "WhatsApp/2.23.20.0 A"},
	    {"preview", "TelegramBot (like TwitterBot)"},
	    {"preview", "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)"},
	    {"preview",
	     "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)"},
	    {"preview", "http.rb/5.1.1 (Mastodon/4.2.1; +https://mastodon.social/)"},
	    {"monitor", "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)"},
	    {"monitor", "Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)"},
	    {"monitor", "kube-probe/1.27"},
	    {"monitor", "Better Uptime Bot Mozilla/5.0 (Macintosh)"},
	    {"headless", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
	                 "HeadlessChrome/120.0.0.0 Safari/537.36"},
	    {"headless", "Mozilla/5.0 (Unknown; Linux x86_64) AppleWebKit/538.1 (KHTML, like Gecko) "
	                 "PhantomJS/2.1.1 Safari/538.1"},
	    {"feed", "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)"},
	    {"scanner", "Mozilla/5.0 (compatible; Nmap Scripting Engine; https://nmap.org/book/nse.html)"},
	    {"scanner", "sqlmap/1.7.2#stable (https://sqlmap.org)"},
	    {"http-library", "curl/7.88.1"},
	    {"http-library", "curl"},
	    {"http-library", "Wget/1.21.3"},
	    {"http-library", "python-requests/2.31.0"},
	    {"http-library", "Python-urllib/3.11"},
	    {"http-library", "Python/3.11 aiohttp/3.8.4"},
	    {"http-library", "Go-http-client/1.1"},
	    {"http-library", "Java/17.0.5"},
	    {"http-library", "okhttp/4.12.0"},
	    {"http-library", "Apache-HttpClient/4.5.14 (Java/17.0.5)"},
	    {"http-library", "libwww-perl/6.67"},
	    {"http-library", "axios/1.6.2"},
	    {"http-library", "node-fetch/1.0 (+https://github.com/bitinn/node-fetch)"},
	    {"http-library", "PostmanRuntime/7.36.0"},
	};
	struct agents *a = agents_of(100);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		struct str agent = str_of(table[i].agent);
		struct agent_info info;
		agents_find(a, agent, &info);
		assert_str(info.bot, str_of(table[i].reason), agent);
		assert_str(info.device, STR("Bot"), agent);
	}
	struct agent_info info;
	agents_find(a, STR_NULL, &info);
	assert_str(info.bot, STR("no-user-agent"), STR("none"));
	assert_str(info.browser, STR("Other"), STR("none"));
	agents_free(a);
}

/* ---- hostile agents ---- */

static void assert_sane(const struct agent_info *info, struct str agent)
{
	const struct str texts[] = {info->browser, info->os};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		assert_in_range(texts[i].len, 1, 64);
		for (size_t k = 0; k < texts[i].len; k++) {
			unsigned char c = (unsigned char)texts[i].ptr[k];
			if (c < 0x20 || c == 0x7f)
				fail_msg("a control character in the answer to %.*s", STR_ARG(agent));
		}
	}
	bool known = false;
	for (int d = AGENT_DEVICE_OTHER; d <= AGENT_DEVICE_BOT; d++)
		known |= str_eq(info->device, agent_device_name((enum agent_device)d));
	assert_true(known);
}

TEST(hostile_agents_get_an_answer)
{
	struct agents *a = agents_of(10);
	struct agent_info info;
	unsigned random = 7;
	char text[2000];
	for (int round = 0; round < 2000; round++) { /* every byte there is */
		size_t len = (size_t)round % sizeof(text);
		for (size_t i = 0; i < len; i++) {
			random = random * 1103515245 + 12345;
			text[i] = (char)(random >> 16);
		}
		agents_find(a, str_n(text, len), &info);
		assert_sane(&info, str_n(text, len));
	}
	/* Repetitions that make rules go back and forth. */
	static const char *const pieces[] = {
	    "Bot",
	    "bot ",
	    "a",
	    " ",
	    ";",
	    "; ",
	    "Mozilla/5.0 (",
	    "Android 4.0; ",
	    "Spider",
	    "crawl ",
	    "/1.",
	    "Windows Phone 8; IEMobile/1;",
	    "Android Application a - ",
	    "CFNetwork/1 Darwin/1",
	    "AAAA Bot 1",
	    "iPhone",
	    "HbbTV/1.1.1 (;;;;;)",
	    "[FB;",
	    "\\",
	    "(((((",
	    "%20",
	    "\xff\xfe",
	    "\xc3\xa9",
	};
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
			CLEANUP(buf_release) struct buf agent = {0};
			while (agent.len < 300)
				buf_str(&agent, str_of(pieces[i]));
			while (agent.len < 600)
				buf_str(&agent, str_of(pieces[k]));
			agents_find(a, buf_view(&agent), &info);
			assert_sane(&info, buf_view(&agent));
		}
	}
	agents_free(a);
}

TEST(a_name_that_is_not_fit_to_print_is_other)
{
	struct agents *a = agents_of(10);
	struct agent_info info;
	agents_find(a, STR("ok-bot/1.0"), &info);
	assert_str(info.browser, STR("ok-bot"), STR("plain"));
	static const struct str agents[] = {STR("\001xbot"), STR("\x80xbot"), STR("\xc2\x85xbot")};
	for (size_t i = 0; i < ARRAY_LEN(agents); i++) {
		agents_find(a, agents[i], &info);
		assert_str(info.browser, STR("Other"), agents[i]);
	}
	char text[200];
	int len = snprintf(text, sizeof(text), "%0100d/1 CFNetwork/1.0", 0);
	agents_find(a, str_n(text, (size_t)len), &info);
	assert_str(info.browser, STR("Other"), str_n(text, (size_t)len));
	assert_int_equal(agents_read_stats(a).names_refused, 4);
	agents_free(a);
}

TEST(what_is_behind_512_bytes_is_not_looked_at)
{
	struct agents *a = agents_of(10);
	struct agent_info info;
	char text[600];
	memset(text, 'x', sizeof(text));
	memcpy(text, "Linux ", 6);
	memcpy(text + 512, "Firefox/1.0", 11);
	agents_find(a, str_n(text, sizeof(text)), &info);
	assert_str(info.browser, STR("Other"), STR("cut"));
	assert_str(info.os, STR("Linux"), STR("cut"));
	agents_find(a, str_n(text, 512), &info);
	assert_int_equal(agents_read_stats(a).hits, 1); /* it is the same agent */
	agents_free(a);
}

/* ---- answers and names are kept, within bounds ---- */

static struct str made_up(char text[64], const char *pattern, unsigned n)
{
	return str_n(text, (size_t)snprintf(text, 64, pattern, n));
}

TEST(nothing_is_compiled_before_the_first_unknown_agent)
{
	struct agents *a = agents_of(10);
	struct agent_info info;
	agents_find(a, STR(""), &info);
	assert_int_equal(agents_read_stats(a).rules_compiled, 0);
	assert_int_equal(agents_read_stats(a).hits, 1);
	agents_find(a, STR("curl/8.0"), &info);
	assert_in_range(agents_read_stats(a).rules_compiled, 1, 50);
	agents_free(a);
}

TEST(a_known_agent_costs_no_rule)
{
	struct agents *a = agents_of(10);
	struct agent_info first, second;
	agents_find(a, STR("curl/8.0"), &first);
	struct agents_stats before = agents_read_stats(a);
	agents_find(a, STR(" curl/8.0 "), &second);
	struct agents_stats after = agents_read_stats(a);
	assert_int_equal(after.rules_run, before.rules_run);
	assert_int_equal(after.hits, 1);
	assert_int_equal(after.misses, 1);
	assert_str(second.browser, first.browser, STR("curl"));
	assert_str(second.bot, STR("http-library"), STR("curl"));
	agents_find(a, STR("curl/8.1"), &second);
	assert_int_equal(agents_read_stats(a).misses, 2);
	agents_free(a);
}

TEST(answers_are_bounded_and_those_in_use_stay)
{
	enum { ENTRIES = 64, HOT = 16 };
	struct agents *a = agents_of(ENTRIES);
	struct agent_info info;
	char text[64];
	for (unsigned round = 0; round < 2000; round++) {
		agents_find(a, made_up(text, "Once/%u.0", round), &info);
		agents_find(a, made_up(text, "Often/%u.0", round % HOT), &info);
		assert_in_range(agents_read_stats(a).entries, 1, ENTRIES);
	}
	struct agents_stats stats = agents_read_stats(a);
	assert_int_equal(stats.entries, ENTRIES);
	assert_int_equal(stats.misses, 2000 + HOT);
	assert_int_equal(stats.evictions, stats.misses - ENTRIES);
	agents_free(a);
}

TEST(without_room_every_agent_is_unknown)
{
	struct agents *a = agents_of(0);
	struct agent_info info;
	agents_find(a, STR("curl/8.0"), &info);
	agents_find(a, STR("curl/8.0"), &info);
	assert_str(info.browser, STR("curl"), STR("curl"));
	assert_int_equal(agents_read_stats(a).misses, 2);
	assert_int_equal(agents_read_stats(a).entries, 0);
	agents_free(a);
}

TEST(an_answer_outlives_its_place_in_the_table)
{
	struct agents *a = agents_of(4);
	struct agent_info kept, info;
	agents_find(a, STR("Peculiarbot/1.0"), &kept);
	char text[64];
	for (unsigned i = 0; i < 1000; i++)
		agents_find(a, made_up(text, "Filler%ubot/1.0", i), &info);
	assert_str(kept.browser, STR("Peculiarbot"), STR("kept"));
	assert_str(kept.bot, STR("crawler"), STR("kept"));
	agents_find(a, STR("Peculiarbot/1.0"), &info);
	assert_ptr_equal(info.browser.ptr, kept.browser.ptr); /* kept once */
	agents_free(a);
}

TEST(made_up_names_are_bounded_and_leave_room_for_real_ones)
{
	struct agents *a = agents_of(10);
	struct agent_info info;
	char text[64];
	for (unsigned i = 0; i < 6000; i++)
		agents_find(a, made_up(text, "Flood%ubot/1.0", i), &info);
	assert_str(info.browser, STR("Other"), STR("the last"));
	struct agents_stats stats = agents_read_stats(a);
	assert_in_range(stats.names, 4096, 4096 + 10);
	assert_in_range(stats.names_refused, 6000 - 4096, 6000 - 4096 + 10);
	agents_find(a, STR("Flood1bot/2.0"), &info); /* known already */
	assert_str(info.browser, STR("Flood1bot"), STR("Flood1bot"));
	agents_find(a, STR("Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"), &info);
	assert_str(info.browser, STR("Firefox"), STR("Firefox")); /* first seen after the flood */
	assert_str(info.os, STR("Linux"), STR("Linux"));
	agents_free(a);
}

TEST_MAIN()
