#include "config/value.h"
#include "lib/test.h"

static const char *const colours[] = {"red", "green", NULL};

static const struct conf_row bool_row = {"s", "b", CONF_BOOL};
static const struct conf_row uint_row = {"s", "u", CONF_UINT, .min = 2, .max = 100};
static const struct conf_row free_row = {"s", "f", CONF_UINT};
static const struct conf_row bytes_row = {"s", "y", CONF_BYTES, .min = 1024, .max = 4ULL << 30};
static const struct conf_row duration_row = {"s", "d", CONF_DURATION, .min = 10, .max = 86400000};
static const struct conf_row string_row = {"s", "t", CONF_STRING};
static const struct conf_row enum_row = {"s", "e", CONF_ENUM, .choices = colours};
static const struct conf_row secret_row = {"s", "k", CONF_UINT, .flags = CONF_SECRET};

static struct conf_value parsed(const struct conf_row *row, const char *text)
{
	struct conf_value v = {0};
	MUST(conf_value_parse(row, str_of(text), "here", &v, &why));
	return v;
}

static const char *refused(const struct conf_row *row, const char *text)
{
	static struct err e;
	struct conf_value v;
	memset(&v, 0x5a, sizeof(v));
	struct conf_value before = v;
	assert_int_equal(conf_value_parse(row, str_of(text), "here", &v, &e), ERR_INVALID);
	assert_memory_equal(&v, &before, sizeof(v));
	assert_true(strncmp(e.text, "here: s.", 8) == 0);
	return e.text;
}

TEST(a_bool_has_three_ways_to_say_yes_and_no)
{
	static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
	for (size_t i = 0; i < 3; i++) {
		assert_true(parsed(&bool_row, yes[i]).flag);
		assert_false(parsed(&bool_row, no[i]).flag);
	}
	assert_string_equal(refused(&bool_row, "1"), "here: s.b must be true or false, not '1'");
	refused(&bool_row, "True");
	assert_string_equal(refused(&bool_row, ""), "here: s.b must be true or false, and it is empty");
}

TEST(a_number_keeps_within_its_bounds)
{
	assert_int_equal(parsed(&uint_row, "2").number, 2);
	assert_int_equal(parsed(&uint_row, "100").number, 100);
	assert_true(parsed(&free_row, "18446744073709551615").number == UINT64_MAX);
	assert_int_equal(parsed(&free_row, "0").number, 0);
	assert_string_equal(refused(&uint_row, "1"),
	                    "here: s.u must be a whole number from 2 to 100, not '1'");
	refused(&uint_row, "101");
	refused(&uint_row, "99999999999999999999");
	refused(&uint_row, "5k");
	refused(&uint_row, "-5");
	refused(&uint_row, "5.0");
	refused(&uint_row, "five");
	assert_string_equal(refused(&free_row, "x"), "here: s.f must be a whole number, not 'x'");
}

TEST(bytes_take_powers_of_1024)
{
	assert_int_equal(parsed(&bytes_row, "65536").number, 65536);
	assert_int_equal(parsed(&bytes_row, "64k").number, 65536);
	assert_int_equal(parsed(&bytes_row, "64K").number, 65536);
	assert_int_equal(parsed(&bytes_row, "64KiB").number, 65536);
	assert_int_equal(parsed(&bytes_row, "2m").number, 2 << 20);
	assert_int_equal(parsed(&bytes_row, "2MiB").number, 2 << 20);
	assert_int_equal(parsed(&bytes_row, "4g").number, 4ULL << 30);
	assert_int_equal(parsed(&bytes_row, "4GiB").number, 4ULL << 30);
	assert_non_null(strstr(refused(&bytes_row, "5g"), "from 1k to 4g"));
	refused(&bytes_row, "1");
	refused(&bytes_row, "64KB"); /* 1000 or 1024? */
	refused(&bytes_row, "64 k");
	refused(&bytes_row, "k");
	refused(&bytes_row, "18014398509481985k"); /* beyond 64 bits */
	refused(&bytes_row, "17179869188g");
}

TEST(a_duration_needs_its_unit)
{
	assert_int_equal(parsed(&duration_row, "250ms").number, 250);
	assert_int_equal(parsed(&duration_row, "5s").number, 5000);
	assert_int_equal(parsed(&duration_row, "2m").number, 120000);
	assert_int_equal(parsed(&duration_row, "1h").number, 3600000);
	assert_int_equal(parsed(&duration_row, "1d").number, 86400000);
	assert_string_equal(
	    refused(&duration_row, "5"),
	    "here: s.d must be a duration from 10ms to 1d with its unit, such as 250ms, 5s, 2m, "
	    "1h or 7d, not '5'");
	refused(&duration_row, "9ms");
	refused(&duration_row, "2d");
	refused(&duration_row, "5M");
	refused(&duration_row, "1w");
	refused(&duration_row, "1.5s");
	refused(&duration_row, "s");
	refused(&duration_row, "999999999999999999d");
}

TEST(a_string_is_copied_and_holds_no_controls)
{
	char text[] = "postgres://a b";
	struct conf_value v = parsed(&string_row, text);
	text[0] = 'X';
	assert_string_equal(v.string, "postgres://a b");
	conf_value_release(&string_row, &v);
	assert_null(v.string);
	conf_value_release(&string_row, &v);
	v = parsed(&string_row, "");
	assert_string_equal(v.string, "");
	conf_value_release(&string_row, &v);
	assert_null(strchr(refused(&string_row, "a\033b"), '\033'));
}

TEST(a_choice_is_one_of_the_list)
{
	assert_int_equal(parsed(&enum_row, "red").choice, 0);
	assert_int_equal(parsed(&enum_row, "green").choice, 1);
	assert_string_equal(refused(&enum_row, "blue"), "here: s.e must be one of red, green, not 'blue'");
	refused(&enum_row, "Red");
	refused(&enum_row, "re");
}

TEST(a_secret_is_never_quoted)
{
	assert_string_equal(refused(&secret_row, "hunter2"), "here: s.k must be a whole number");
	refused(&secret_row, "");
}

TEST(a_long_value_is_quoted_in_part)
{
	char text[400];
	memset(text, 'z', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	const char *sentence = refused(&enum_row, text);
	assert_non_null(strstr(sentence, "zzz'..."));
	assert_true(strlen(sentence) < 150);
}

TEST(values_are_stored_peeked_and_compared_by_type)
{
	struct {
		bool flag;
		int choice;
		uint64_t number;
		char *string;
	} target = {0};
	struct conf_row rows[] = {bool_row, enum_row, uint_row, string_row};
	const size_t offsets[] = {offsetof(__typeof__(target), flag), offsetof(__typeof__(target), choice),
	                          offsetof(__typeof__(target), number), offsetof(__typeof__(target), string)};
	const char *const texts[] = {"true", "green", "42", "words"}, *const others[] = {"no", "red", "43",
	                                                                                 "word"};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		rows[i].offset = offsets[i];
		struct conf_value v = parsed(&rows[i], texts[i]), same = parsed(&rows[i], texts[i]),
		                  other = parsed(&rows[i], others[i]);
		conf_value_store(&rows[i], &target, &v);
		struct conf_value there = conf_value_peek(&rows[i], &target);
		assert_true(conf_value_eq(&rows[i], &there, &same));
		assert_false(conf_value_eq(&rows[i], &there, &other));
		conf_value_release(&rows[i], &same);
		conf_value_release(&rows[i], &other);
	}
	assert_true(target.flag);
	assert_int_equal(target.choice, 1);
	assert_int_equal(target.number, 42);
	assert_string_equal(target.string, "words");
	free(target.string);
}

TEST_MAIN()
