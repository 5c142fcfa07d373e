/* The databases come from tests/support/mmdb.py, which says what is in them. */
#include "base/utf8.h"
#include "lib/test.h"
#include "os/file.h"
#include "stats/place.h"

#include <arpa/inet.h>

enum { FILE_BYTES_MAX = 1 << 20 };

/* `sample` is a word of mmdb.py, with options behind it. */
static void sample_write(const char *sample, const char *options, const char *path)
{
	char command[TEMP_PATH_BYTES + 128];
	snprintf(command, sizeof(command), "/usr/bin/python3 tests/support/mmdb.py %s '%s' %s", sample, path,
	         options);
	assert_int_equal(system(command), 0);
}

static struct places *sample_open(const struct temp *dir, const char *sample, const char *options)
{
	char path[TEMP_PATH_BYTES];
	sample_write(sample, options, temp_path(dir, "sample.mmdb", path));
	struct places *p;
	MUST(places_open(path, &p, &why));
	return p;
}

/* In memory that ends where the prefix ends, so that a sanitizer sees a byte too far. */
static struct place_info find(const struct places *p, const char *text)
{
	uint8_t address[16];
	int family = strchr(text, ':') ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(family, text, address), 1);
	size_t len = family == AF_INET ? 3 : 6;
	uint8_t *prefix = malloc(len);
	memcpy(prefix, address, len);
	struct place_info found;
	places_find(p, family, prefix, &found);
	free(prefix);
	return found;
}

static void assert_text(struct str got, const char *expected, const char *address)
{
	if (!str_eq(got, str_of(expected)) || !got.ptr != !expected)
		fail_msg("'%.*s' instead of '%s' for %s", STR_ARG(got), expected ? expected : "(null)",
		         address);
}

struct expected {
	const char *address, *country, *region, *city;
};

static void assert_places(const struct places *p, const struct expected *table, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct place_info found = find(p, table[i].address);
		assert_text(found.country, table[i].country, table[i].address);
		assert_text(found.region, table[i].region, table[i].address);
		assert_text(found.city, table[i].city, table[i].address);
	}
}

static const struct expected in_city[] = {
    {"192.0.2.0", "DE", "Bavaria", "Munich"},
    {"192.0.2.77", "DE", "Bavaria", "Munich"}, /* what is behind the prefix is not looked at */
    {"198.51.100.0", "US", "Virginia", NULL},
    {"203.0.113.0", "JP", NULL, NULL},
    {"203.0.114.0", "JP", "Tokyo", "Tokyo"},
    {"203.0.115.0", "JP", "Osaka", "Sakai"},
    {"192.0.1.0", NULL, NULL, NULL},
    {"0.0.0.0", NULL, NULL, NULL},
    {"255.255.255.255", NULL, NULL, NULL},
    {"2001:db8:1::", "FR", "Île-de-France", "Paris"},
    {"2001:db8:1:ffff::1", "FR", "Île-de-France", "Paris"},
    {"2001:db8:2::", "GB", "England", "London"},
    {"2001:db8:3::", "GB", "England", "London"},
    {"2001:db8:4::", NULL, NULL, NULL},
    {"::", NULL, NULL, NULL},
};

TEST(places_are_found_by_the_prefix_of_an_address)
{
	static const char *const record_sizes[] = {"24", "28", "32"};
	for (size_t i = 0; i < ARRAY_LEN(record_sizes); i++) {
		struct places *p = sample_open(&test_dir, "city", record_sizes[i]);
		assert_places(p, in_city, ARRAY_LEN(in_city));
		places_close(p);
	}
}

TEST(a_database_of_countries_knows_no_cities)
{
	static const struct expected table[] = {
	    {"192.0.2.0", "DE", NULL, NULL},
	    {"2001:db8:1::", "FR", NULL, NULL},
	    {"192.0.1.0", NULL, NULL, NULL},
	};
	struct places *p = sample_open(&test_dir, "country", "");
	assert_places(p, table, ARRAY_LEN(table));
	places_close(p);
}

TEST(a_database_of_ipv4_knows_no_ipv6)
{
	static const struct expected table[] = {
	    {"192.0.2.0", "DE", "Bavaria", "Munich"},
	    {"2001:db8:1::", NULL, NULL, NULL},
	};
	struct places *p = sample_open(&test_dir, "city", "24 4");
	assert_places(p, table, ARRAY_LEN(table));
	places_close(p);
}

TEST(what_is_not_an_address_is_nowhere)
{
	CLEANUP(temp_release) struct temp dir;
	temp_init(&dir);
	struct places *p = sample_open(&dir, "city", "");
	struct place_info found = {.country = STR("old")};
	places_find(p, AF_UNIX, (const uint8_t *)"", &found);
	assert_null(found.country.ptr);
	places_close(p);
}

TEST(odd_values_are_not_known_and_flat_ones_are)
{
	char longest[121] = "";
	memset(longest, 'y', 120);
	const struct expected table[] = {
	    {"192.0.2.0", NULL, NULL, NULL},    {"192.0.3.0", NULL, NULL, NULL},
	    {"192.0.4.0", NULL, NULL, longest}, {"192.0.5.0", NULL, NULL, "ok"},
	    {"192.0.6.0", "CH", NULL, NULL},    {"192.0.7.0", "NL", "Utrecht", "Zeist"},
	    {"192.0.8.0", "AT", NULL, NULL},    {"192.0.9.0", NULL, NULL, NULL},
	    {"192.0.10.0", NULL, NULL, NULL},
	};
	struct places *p = sample_open(&test_dir, "odd", "");
	assert_places(p, table, ARRAY_LEN(table));
	places_close(p);
}

TEST(a_file_that_is_not_there_is_named)
{
	char path[TEMP_PATH_BYTES];
	struct places *p = NULL;
	struct err e = {0};
	assert_int_equal(places_open(temp_path(&test_dir, "none.mmdb", path), &p, &e), ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "No such file"));
	assert_null(p);
	places_close(NULL);
}

TEST(what_is_no_database_is_refused)
{
	char path[TEMP_PATH_BYTES];
	struct places *p = NULL;
	struct err e = {0};
	assert_int_equal(places_open(test_dir.path, &p, &e), ERR_CORRUPT); /* a folder */
	static const struct str contents[] = {STR(""), STR("x"), STR("hello, world\n"),
	                                      STR("\xab\xcd\xefMaxMind.com")};
	temp_path(&test_dir, "text", path);
	for (size_t i = 0; i < ARRAY_LEN(contents); i++) {
		assert_int_equal(file_write_atomic(path, contents[i], 0600, NULL), 0);
		assert_int_equal(places_open(path, &p, &e), ERR_CORRUPT);
		assert_non_null(strstr(e.text, path));
		assert_non_null(strstr(e.text, "not a MaxMind DB"));
	}
	assert_null(p);
}

static void assert_name(struct str s)
{
	assert_true(s.len <= 120);
	for (size_t i = 0, len; i < s.len; i += len) {
		len = utf8_first(str_n(s.ptr + i, s.len - i));
		assert_true(len > 0 && (unsigned char)s.ptr[i] >= 0x20);
	}
}

/* libmaxminddb 1.7.1 forgets a list when what describes the file is damaged. The leak sanitizer, where there
 * is one, looks away while such a file is opened, and only then. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static int open_damaged(const char *path, struct places **ret)
{
	if (__lsan_disable)
		__lsan_disable();
	int r = places_open(path, ret, NULL);
	if (__lsan_enable)
		__lsan_enable();
	return r;
}

/* Opens a damaged file and asks it; whatever comes back must be fit to use. True when it could be opened. */
static bool try_damaged(const char *path, struct str content)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(content.ptr, 1, content.len, file), content.len);
	assert_int_equal(fclose(file), 0);
	struct places *p;
	if (open_damaged(path, &p) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(in_city); i++) {
		struct place_info found = find(p, in_city[i].address);
		assert_true(found.country.len == 0 || found.country.len == 2);
		assert_name(found.country);
		assert_name(found.region);
		assert_name(found.city);
	}
	places_close(p);
	return true;
}

TEST(a_file_cut_anywhere_does_no_harm)
{
	char path[TEMP_PATH_BYTES];
	CLEANUP(buf_release) struct buf whole = {0};
	sample_write("city", "", temp_path(&test_dir, "whole.mmdb", path));
	assert_int_equal(file_read(path, FILE_BYTES_MAX, &whole, NULL), 0);
	temp_path(&test_dir, "cut.mmdb", path);
	for (size_t len = 0; len < whole.len; len++) {
		bool opened = try_damaged(path, str_n(whole.data, len));
		assert_false(opened); /* what describes the file stands at its end */
		try_damaged(path, str_n(whole.data + len, whole.len - len));
	}
}

TEST(a_file_with_flipped_bits_does_no_harm)
{
	char path[TEMP_PATH_BYTES];
	CLEANUP(buf_release) struct buf file = {0};
	sample_write("city", "", temp_path(&test_dir, "whole.mmdb", path));
	assert_int_equal(file_read(path, FILE_BYTES_MAX, &file, NULL), 0);
	temp_path(&test_dir, "flipped.mmdb", path);
	static const char flips[] = {0x01, 0x04, 0x20, (char)0x80, (char)0xff};
	size_t opened = 0;
	for (size_t i = 0; i < file.len; i++) {
		for (size_t k = 0; k < sizeof(flips); k++) {
			file.data[i] = (char)(file.data[i] ^ flips[k]);
			opened += try_damaged(path, buf_view(&file));
			file.data[i] = (char)(file.data[i] ^ flips[k]);
		}
	}
	assert_true(opened > file.len); /* most were opened, and asked */
	assert_true(try_damaged(path, buf_view(&file)));
}

TEST_MAIN(.setup = test_dir_make, .teardown = test_dir_remove)
