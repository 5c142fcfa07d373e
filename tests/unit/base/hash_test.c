#include "base/hash.h"
#include "lib/test.h"

static const uint64_t seed = 0x0123456789abcdefULL;

TEST(the_same_bytes_and_seed_give_the_same_hash)
{
	char unaligned[32] = "xhello, short links";
	assert_true(hash_str(STR("hello, short links"), seed) == hash_bytes(unaligned + 1, 18, seed));
	assert_true(hash_u64(42, seed) == hash_u64(42, seed));
	assert_true(hash_bytes(NULL, 0, seed) == hash_str(STR(""), seed));
}

TEST(another_seed_gives_another_hash)
{
	assert_true(hash_str(STR("abcdefg"), seed) != hash_str(STR("abcdefg"), seed + 1));
	assert_true(hash_u64(42, seed) != hash_u64(42, seed + 1));
}

TEST(trailing_zero_bytes_count)
{
	static const char zeros[64];
	for (size_t a = 0; a < sizeof(zeros); a++) {
		for (size_t b = 0; b < a; b++)
			assert_true(hash_bytes(zeros, a, seed) != hash_bytes(zeros, b, seed));
	}
}

TEST(every_flipped_bit_changes_about_half_of_the_hash)
{
	unsigned char data[24];
	for (size_t len = 1; len <= sizeof(data); len++) {
		for (size_t i = 0; i < len; i++)
			data[i] = (unsigned char)(i * 37 + len);
		uint64_t before = hash_bytes(data, len, seed);
		unsigned changed = 0;
		for (size_t bit = 0; bit < len * 8; bit++) {
			data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
			changed += (unsigned)__builtin_popcountll(before ^ hash_bytes(data, len, seed));
			data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
		}
		unsigned average = changed / (unsigned)(len * 8);
		assert_in_range(average, 26, 38);
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

enum { MANY = 200000 };

static void assert_spread(uint64_t *hashes)
{
	unsigned buckets[256] = {0};
	for (size_t i = 0; i < MANY; i++)
		buckets[hashes[i] & 255]++;
	for (size_t i = 0; i < 256; i++)
		assert_in_range(buckets[i], MANY / 256 * 8 / 10, MANY / 256 * 12 / 10);
	qsort(hashes, MANY, sizeof(*hashes), compare);
	for (size_t i = 1; i < MANY; i++)
		assert_true(hashes[i] != hashes[i - 1]);
}

TEST(similar_inputs_spread_evenly_and_do_not_collide)
{
	uint64_t *hashes = calloc(MANY, sizeof(*hashes));
	assert_non_null(hashes);
	for (unsigned i = 0; i < MANY; i++) {
		char key[16];
		snprintf(key, sizeof(key), "%07u", i);
		hashes[i] = hash_str(str_of(key), seed);
	}
	assert_spread(hashes);
	for (unsigned i = 0; i < MANY; i++)
		hashes[i] = hash_u64(i, seed);
	assert_spread(hashes);
	free(hashes);
}

TEST_MAIN()
