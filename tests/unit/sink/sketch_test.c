#include "lib/test.h"
#include "sink/sketch.h"

#include <math.h>

static uint64_t random_state;

/* splitmix64: different from the mix that the sketch's hashes come from in use. */
static uint32_t random_hash(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)(z >> 32);
}

static void fill(struct sketch *s, uint64_t seed, unsigned count)
{
	random_state = seed;
	sketch_init(s);
	for (unsigned i = 0; i < count; i++)
		sketch_add(s, random_hash());
}

TEST(few_are_counted_exactly)
{
	struct sketch s;
	sketch_init(&s);
	assert_int_equal(sketch_estimate(&s), 0);
	for (unsigned i = 1; i <= SKETCH_LIST_MAX; i++) {
		assert_true(sketch_add(&s, i * 0x9e3779b9u));
		assert_false(sketch_add(&s, i * 0x9e3779b9u));
		assert_int_equal(sketch_estimate(&s), i);
	}
}

/* Over many sketches the error has no bias and the spread that 4,096 registers promise: 1.6 %. */
TEST(many_are_counted_within_the_promised_error)
{
	static const unsigned counts[] = {65, 200, 1000, 4000, 10000, 12000, 20000, 50000, 200000};
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		enum { SKETCHES = 60 };
		double sum = 0, squares = 0;
		for (unsigned i = 0; i < SKETCHES; i++) {
			struct sketch s;
			fill(&s, 1000 * k + i, counts[k]);
			double error = (double)sketch_estimate(&s) / counts[k] - 1;
			sum += error;
			squares += error * error;
		}
		assert_true(fabs(sum / SKETCHES) < 0.008);
		assert_true(sqrt(squares / SKETCHES) < 0.022);
	}
}

TEST(adding_again_changes_nothing)
{
	struct sketch s;
	fill(&s, 7, 5000);
	random_state = 7;
	for (unsigned i = 0; i < 5000; i++)
		assert_false(sketch_add(&s, random_hash()));
}

TEST(merging_is_the_same_as_adding_to_one_sketch)
{
	static const unsigned counts[] = {0, 1, 40, SKETCH_LIST_MAX, SKETCH_LIST_MAX + 1, 30000};
	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
			struct sketch one, other, both;
			uint8_t bytes[SKETCH_BYTES_MAX], merged[SKETCH_BYTES_MAX];
			fill(&one, 1, counts[i]);
			fill(&other, 2, counts[k]);
			fill(&both, 1, counts[i]);
			random_state = 2;
			for (unsigned n = 0; n < counts[k]; n++)
				sketch_add(&both, random_hash());
			sketch_merge(&one, &other);
			size_t len = sketch_write(&both, bytes);
			assert_int_equal(sketch_write(&one, merged), len);
			assert_memory_equal(merged, bytes, len);
		}
}

TEST(what_is_stored_comes_back)
{
	static const unsigned counts[] = {0, 1, SKETCH_LIST_MAX, SKETCH_LIST_MAX + 1, 30000};
	for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
		struct sketch s, back;
		uint8_t bytes[SKETCH_BYTES_MAX], again[SKETCH_BYTES_MAX];
		fill(&s, k, counts[k]);
		size_t len = sketch_write(&s, bytes);
		assert_true(sketch_read(&back, bytes, len));
		assert_int_equal(sketch_estimate(&back), sketch_estimate(&s));
		assert_int_equal(sketch_write(&back, again), len);
		assert_memory_equal(again, bytes, len);
	}
}

TEST(other_bytes_are_refused)
{
	struct sketch s;
	uint8_t bytes[SKETCH_BYTES_MAX + 4] = {0};
	assert_false(sketch_read(&s, bytes, 3));
	assert_false(sketch_read(&s, bytes, 8)); /* the same hash twice */
	assert_false(sketch_read(&s, bytes, (SKETCH_LIST_MAX + 1) * 4));
	assert_false(sketch_read(&s, bytes, sizeof(bytes)));
	memset(bytes, 0xff, sizeof(bytes));
	assert_false(sketch_read(&s, bytes, SKETCH_BYTES_MAX)); /* a rank that no hash has */
}

TEST_MAIN()
