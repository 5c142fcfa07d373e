#include "base/crc32c.h"
#include "lib/test.h"

enum { BYTES = 300, ALIGNMENTS = 16 };

/* Memory of exactly this length, so that a sanitizer sees a byte too far. */
static uint8_t *pattern(size_t len)
{
	uint8_t *data = malloc(len > 0 ? len : 1);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 167 + (i >> 3) + 13);
	return data;
}

/* From RFC 3720, appendix B.4, and the usual check word. */
TEST(known_texts_have_their_known_sums)
{
	uint8_t data[32] = {0};
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(0, "", 0), 0);
	assert_int_equal(crc32c(0, data, sizeof(data)), 0x8a9136aa);
	memset(data, 0xff, sizeof(data));
	assert_int_equal(crc32c(0, data, sizeof(data)), 0x62a8ab43);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	assert_int_equal(crc32c(0, data, sizeof(data)), 0x46dd794e);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(31 - i);
	assert_int_equal(crc32c(0, data, sizeof(data)), 0x113fdb5c);
}

TEST(both_ways_agree_for_every_length_and_alignment)
{
	assert_int_equal(crc32c_portable(0, "123456789", 9), 0xe3069283);
	for (size_t shift = 0; shift < ALIGNMENTS; shift++) {
		for (size_t len = 0; len <= BYTES; len++) {
			uint8_t *data = pattern(shift + len);
			assert_int_equal(crc32c(0, data + shift, len), crc32c_portable(0, data + shift, len));
			assert_int_equal(crc32c(0xdeadbeef, data + shift, len),
			                 crc32c_portable(0xdeadbeef, data + shift, len));
			free(data);
		}
	}
}

TEST(a_sum_can_be_continued_at_any_place)
{
	uint8_t *data = pattern(BYTES);
	uint32_t whole = crc32c(0, data, BYTES);
	for (size_t cut = 0; cut <= BYTES; cut++) {
		assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, BYTES - cut), whole);
		uint32_t first = crc32c_portable(0, data, cut);
		assert_int_equal(crc32c(first, data + cut, BYTES - cut), whole);
		assert_int_equal(crc32c_portable(first, data + cut, BYTES - cut), whole);
	}
	free(data);
}

TEST(every_flipped_bit_changes_the_sum)
{
	uint8_t *data = pattern(BYTES);
	uint32_t whole = crc32c(0, data, BYTES);
	for (size_t bit = 0; bit < 8 * BYTES; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(crc32c(0, data, BYTES), whole);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	free(data);
}

TEST_MAIN()
