#include "base/crc32c.h"
#include "lib/test.h"
#include "link/tier2.h"

static struct arena arena;

static const struct link_record whole = {
    .id = 0x1122334455667788,
    .is_alias = true,
    .owner = 7,
    .api_key = 9,
    .not_before_ms = 1000,
    .expires_ms = 2000000000000,
    .redirect_status = 308,
    .enabled = true,
    .url = {"https://a.example/?q=1", 22},
    .expired_url = {"https://late.example/", 21},
};

static int release(void **state)
{
	arena_release(&arena);
	return 0;
}

static struct buf encoded(const struct link_record *link)
{
	struct buf value = {0};
	tier2_encode(link, &value);
	assert_false(value.failed);
	return value;
}

static int decode(struct str value, struct link_record *ret)
{
	struct link_record ignored;
	return tier2_decode(value, &arena, ret ? ret : &ignored);
}

TEST(what_was_encoded_comes_back, NULL, release)
{
	struct link_record got;
	struct buf CLEANUP(buf_release) value = encoded(&whole);
	assert_int_equal(decode(buf_view(&value), &got), 0);
	assert_int_equal(got.id, whole.id);
	assert_int_equal(got.owner, 7);
	assert_int_equal(got.api_key, 9);
	assert_int_equal(got.not_before_ms, 1000);
	assert_int_equal(got.expires_ms, whole.expires_ms);
	assert_int_equal(got.redirect_status, 308);
	assert_true(got.enabled && got.is_alias);
	assert_true(str_eq(got.url, whole.url));
	assert_true(str_eq(got.expired_url, whole.expired_url));
	assert_false(got.is_private);
	assert_null(got.password.ptr);
}

TEST(a_link_without_extras_comes_back_without_them, NULL, release)
{
	const struct link_record plain = {.id = 1, .redirect_status = 302, .url = STR("http://b.example/")};
	struct link_record got;
	struct buf CLEANUP(buf_release) value = encoded(&plain);
	assert_int_equal(decode(buf_view(&value), &got), 0);
	assert_null(got.expired_url.ptr);
	assert_false(got.enabled || got.is_alias);
}

TEST(that_there_is_no_link_comes_back_as_that)
{
	struct buf CLEANUP(buf_release) value = encoded(NULL);
	assert_int_equal(decode(buf_view(&value), NULL), ERR_NOT_FOUND);
}

TEST(a_value_that_is_cut_short_or_longer_is_refused)
{
	const struct link_record *const links[] = {&whole, NULL};
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		struct buf CLEANUP(buf_release) value = encoded(links[i]);
		for (size_t len = 0; len < value.len; len++)
			assert_int_equal(decode(str_n(value.data, len), NULL), ERR_CORRUPT);
		buf_char(&value, 'x');
		assert_int_equal(decode(buf_view(&value), NULL), ERR_CORRUPT);
	}
}

TEST(a_flipped_bit_is_refused_wherever_it_is)
{
	struct buf CLEANUP(buf_release) value = encoded(&whole);
	for (size_t bit = 0; bit < value.len * 8; bit++) {
		value.data[bit / 8] ^= (char)(1 << (bit % 8));
		assert_int_equal(decode(buf_view(&value), NULL), ERR_CORRUPT);
		value.data[bit / 8] ^= (char)(1 << (bit % 8));
	}
}

/* By somebody who knows how to make a checksum. */
static void seal(struct buf *value)
{
	uint32_t crc = crc32c(0, value->data + 4, value->len - 4);
	for (unsigned i = 0; i < 4; i++)
		value->data[i] = (char)(crc >> (8 * i));
}

TEST(a_byte_that_means_nothing_is_refused_even_when_it_is_sealed)
{
	enum {
		FORMAT_AT = 4,
		KIND_AT = 5,
		FLAGS_AT = 6,
		STATUS_AT = 7,
		ID_AT = 9,
		URL_LEN_AT = 49,
		URL_AT = 53
	};
	static const struct {
		size_t at;
		char byte;
	} cases[] = {
	    {FORMAT_AT, 2},
	    {KIND_AT, 'X'},
	    {KIND_AT, 'N'},
	    {FLAGS_AT, 0x7f},
	    {FLAGS_AT, 3},
	    {STATUS_AT, 0},
	    {STATUS_AT + 1, 2},
	    {URL_LEN_AT, 23},
	    {URL_LEN_AT, 21},
	    {URL_LEN_AT, 0},
	    {URL_LEN_AT + 3, 0x7f},
	    {URL_LEN_AT + 3, (char)0x80},
	    {URL_AT + 3, '\r'},
	    {URL_AT + 3, '\n'},
	    {URL_AT + 3, '\0'},
	    {URL_AT + 3, ' '},
	    {URL_AT + 3, (char)0xc3},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf CLEANUP(buf_release) value = encoded(&whole);
		assert_true(value.data[cases[i].at] != cases[i].byte);
		value.data[cases[i].at] = cases[i].byte;
		seal(&value);
		assert_int_equal(decode(buf_view(&value), NULL), ERR_CORRUPT);
	}
	struct buf CLEANUP(buf_release) value = encoded(&whole);
	memset(value.data + ID_AT, 0, 8);
	seal(&value);
	assert_int_equal(decode(buf_view(&value), NULL), ERR_CORRUPT);
}

TEST(random_bytes_are_refused)
{
	uint64_t seed = 1;
	for (unsigned i = 0; i < 20000; i++) {
		char bytes[96];
		for (size_t b = 0; b < sizeof(bytes); b++) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			bytes[b] = (char)(seed >> 56);
		}
		struct buf value = {.data = bytes, .len = 6 + seed % 90};
		bytes[4] = 1;
		bytes[5] = i % 2 ? 'L' : 'N';
		seal(&value);
		int r = decode(buf_view(&value), NULL);
		assert_true(r == ERR_CORRUPT || (r == ERR_NOT_FOUND && value.len == 6));
	}
}

TEST(only_what_is_the_same_for_everybody_may_be_shared)
{
	struct link_record link = whole;
	assert_true(tier2_holds(&link));
	link.is_private = true;
	assert_false(tier2_holds(&link));
	link = whole;
	link.password = STR("$argon2id$");
	assert_false(tier2_holds(&link));
	link = whole;
	link.max_clicks = 1;
	assert_false(tier2_holds(&link));
}

TEST_MAIN()
