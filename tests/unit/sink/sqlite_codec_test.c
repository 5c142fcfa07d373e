#include "lib/test.h"
#include "sink/sqlite_codec.h"

static uint64_t random_state = 88172645463325252;

static uint64_t random_u64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state >> (random_state & 63);
}

static struct str bytes_of(const void *data, size_t len)
{
	return str_n(data, len);
}

TEST(every_number_comes_back)
{
	uint8_t bytes[VARINT_BYTES_MAX];
	for (int bit = 0; bit < 64; bit++) {
		for (uint64_t value = (1ULL << bit) - 1, i = 0; i < 3; i++, value++) {
			uint8_t *end = varint_put(bytes, value);
			assert_true(end <= bytes + VARINT_BYTES_MAX);
			struct blob_reader r = blob_reader_of(bytes_of(bytes, (size_t)(end - bytes)));
			assert_int_equal(varint_get(&r), value);
			assert_ptr_equal(r.at, end);
			assert_false(r.bad);
			assert_int_equal(zigzag_back(zigzag((int64_t)value)), (int64_t)value);
		}
	}
	assert_int_equal(zigzag(-1), 1);
	assert_int_equal(zigzag_back(zigzag(INT64_MIN)), INT64_MIN);
}

TEST(a_number_without_an_end_is_bad)
{
	static const uint8_t cut[] = {0x80, 0x80},
	                     endless[11] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01};
	struct blob_reader r = blob_reader_of(bytes_of(cut, sizeof(cut)));
	assert_int_equal(varint_get(&r), 0);
	assert_true(r.bad);
	r = blob_reader_of(bytes_of(endless, sizeof(endless)));
	varint_get(&r);
	assert_true(r.bad);
	r = blob_reader_of(STR_NULL);
	varint_get(&r);
	assert_true(r.bad);
}

TEST(counts_add_up)
{
	CLEANUP(counts_release) struct counts all = {0};
	uint64_t expected[200] = {0};
	for (int round = 0; round < 50; round++) {
		CLEANUP(counts_release) struct counts some = {0};
		CLEANUP(buf_release) struct buf blob = {0};
		for (uint64_t id = random_u64() % 7; id < ARRAY_LEN(expected); id += 1 + random_u64() % 9) {
			uint64_t n = random_u64() >> 8;
			assert_int_equal(counts_append(&some, id, n), 0);
			expected[id] += n;
		}
		counts_write(&some, &blob);
		assert_int_equal(counts_add_blob(&all, buf_view(&blob)), 0);
	}
	uint64_t sum = 0;
	for (size_t i = 0; i < all.count; i++) {
		assert_true(i == 0 || all.items[i - 1].id < all.items[i].id);
		assert_int_equal(all.items[i].n, expected[all.items[i].id]);
		sum += all.items[i].n;
		expected[all.items[i].id] = 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		assert_int_equal(expected[i], 0);
	assert_int_equal(counts_sum(&all), sum);
}

TEST(counts_out_of_order_are_corrupt)
{
	static const uint8_t twice[] = {5, 1, 0, 1}, cut[] = {5, 1, 3};
	CLEANUP(counts_release) struct counts c = {0};
	assert_int_equal(counts_add_blob(&c, bytes_of(twice, sizeof(twice))), ERR_CORRUPT);
	c.count = 0;
	assert_int_equal(counts_add_blob(&c, bytes_of(cut, sizeof(cut))), ERR_CORRUPT);
}

TEST(runs_come_back_in_order_and_joined)
{
	CLEANUP(runs_release) struct runs r = {0}, back = {0};
	CLEANUP(buf_release) struct buf blob = {0};
	runs_append(&r, (struct run){.minute = 3, .first = 100, .count = 5});
	runs_append(&r, (struct run){.minute = 1, .first = 500, .count = 2});
	runs_append(&r, (struct run){.minute = 3, .first = 90, .count = 10}); /* touches the first */
	runs_append(&r, (struct run){.minute = 4, .first = 105, .count = 1}); /* another minute */
	runs_append(&r, (struct run){.minute = 0, .first = 7, .count = 3});
	runs_normalize(&r, 10);
	runs_write(&r, &blob);
	assert_int_equal(runs_add_blob(&back, buf_view(&blob), 60), 0);
	static const struct run expected[] = {{61, 500, 2}, {63, 90, 15}, {64, 105, 1}};
	assert_int_equal(back.count, ARRAY_LEN(expected));
	assert_memory_equal(back.items, expected, sizeof(expected));
}

TEST(the_first_runs_are_moved_to_the_end)
{
	CLEANUP(runs_release) struct runs r = {0};
	for (uint64_t i = 0; i < 20; i++)
		runs_append(&r, (struct run){.first = i});
	assert_int_equal(runs_rotate(&r, 3), 0);
	assert_int_equal(r.count, 20);
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(r.items[i].first, (i + 3) % 20);
}

TEST(a_run_that_is_partly_there_is_kept)
{
	CLEANUP(runs_release) struct runs r = {0};
	runs_append(&r, (struct run){.minute = 0, .first = 10, .count = 5});
	runs_normalize(&r, 14);
	assert_int_equal(r.count, 1);
	runs_normalize(&r, 15);
	assert_int_equal(r.count, 0);
}

TEST(of_a_minute_that_is_partly_there_all_runs_are_kept)
{
	CLEANUP(runs_release) struct runs r = {0};
	runs_append(&r, (struct run){.minute = 1, .first = 10, .count = 5});
	runs_append(&r, (struct run){.minute = 2, .first = 20, .count = 5});
	runs_append(&r, (struct run){.minute = 2, .first = 40, .count = 5});
	runs_append(&r, (struct run){.minute = 3, .first = 30, .count = 5});
	runs_normalize(&r, 44);
	static const struct run expected[] = {{2, 20, 5}, {2, 40, 5}};
	assert_int_equal(r.count, ARRAY_LEN(expected));
	assert_memory_equal(r.items, expected, sizeof(expected));
	runs_normalize(&r, 45);
	assert_int_equal(r.count, 0);
}

TEST(visits_come_back)
{
	enum { VISITS = 500 };
	uint8_t keys[VISITS * KEY_BYTES_MAX], details[VISITS * DETAILS_BYTES_MAX];
	static struct visit_key k[VISITS];
	static struct visit_details d[VISITS];
	uint8_t *key_end = keys, *detail_end = details;
	struct keys_state state_in = {0}, state_out = {0};
	for (int i = 0; i < VISITS; i++) {
		k[i] = (struct visit_key){.time_ms = (int64_t)random_u64(),
		                          .link = random_u64() >> 1,
		                          .set = (uint32_t)random_u64() >> 1,
		                          .click = random_u64() & 1};
		d[i] = (struct visit_details){.agent = random_u64(),
		                              .path = random_u64(),
		                              .address_len = (uint8_t)(random_u64() % 3 * 3)};
		for (int b = 0; b < d[i].address_len; b++)
			d[i].address[b] = (uint8_t)random_u64();
		key_end = visit_key_put(key_end, &state_in, &k[i]);
		detail_end = visit_details_put(detail_end, &d[i]);
	}
	struct blob_reader kr = blob_reader_of(bytes_of(keys, (size_t)(key_end - keys)));
	struct blob_reader dr = blob_reader_of(bytes_of(details, (size_t)(detail_end - details)));
	for (int i = 0; i < VISITS; i++) {
		struct visit_key key;
		struct visit_details detail;
		visit_key_get(&kr, &state_out, &key);
		assert_int_equal(key.time_ms, k[i].time_ms);
		assert_int_equal(key.link, k[i].link);
		assert_int_equal(key.set, k[i].set);
		assert_int_equal(key.click, k[i].click);
		visit_details_get(&dr, &detail);
		assert_memory_equal(&detail, &d[i], sizeof(detail));
	}
	assert_false(kr.bad || dr.bad);
	assert_ptr_equal(dr.at, dr.end);
}

TEST(no_bytes_lead_out_of_the_blob)
{
	for (int round = 0; round < 20000; round++) {
		size_t len = random_u64() % 24;
		char *bytes = len ? test_malloc(len)
		                  : NULL; /* of that very size: a sanitizer sees the edge */
		for (size_t i = 0; i < len; i++)
			bytes[i] = (char)random_u64();
		CLEANUP(counts_release) struct counts c = {0};
		CLEANUP(runs_release) struct runs r = {0};
		counts_add_blob(&c, bytes_of(bytes, len));
		runs_add_blob(&r, bytes_of(bytes, len), 0);
		struct blob_reader b = blob_reader_of(bytes_of(bytes, len));
		while (b.at < b.end)
			visit_details_skip(&b);
		assert_ptr_equal(b.at, b.end);
		test_free(bytes);
	}
}

TEST_MAIN()
