/*
 * Records as bytes. What is not exactly what was written, where it was written, is never valid; each record
 * is handed over in memory that ends where its bytes end.
 */
#include "base/crc32c.h"
#include "lib/event_kit.h"
#include "lib/test.h"

enum { POSITION = 64 };

static enum event_fault decode_copy(const uint8_t *data, size_t len, uint64_t segment, uint64_t position,
                                    struct event *ret)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	memcpy(copy, data, len);
	enum event_fault fault = event_decode(copy, len, segment, position, ret);
	free(copy);
	return fault;
}

/* For every record of a sample. */
static void each_record(void (*check)(uint8_t *record, size_t len, uint64_t position))
{
	struct event_sample s;
	sample_make(&s, SAMPLE_SEGMENT, 1, true);
	assert_int_equal(s.count, SAMPLE_RECORDS_EACH + 1);
	for (size_t i = 0; i < s.count; i++)
		check(s.data + s.at[i], s.at[i + 1] - s.at[i], s.at[i]);
}

TEST(visits_come_back_as_they_were)
{
	uint8_t record[EVENT_RECORD_BYTES_MAX];
	char key[EVENT_KEY_BYTES_MAX];
	memset(key, 'k', sizeof(key));
	for (int kind = 0; kind < EVENT_VISIT_KINDS; kind++) {
		for (size_t len = 0; len <= EVENT_KEY_BYTES_MAX; len++) {
			struct event got, want = {.kind = EVENT_VISIT, .position = POSITION};
			want.visit = (struct event_visit){
			    .time_ms = INT64_MAX - kind,
			    .link = UINT64_MAX,
			    .visitor = 1,
			    .agent = 64,
			    .referrer = UINT32_MAX,
			    .language = 70,
			    .kind = (uint8_t)kind,
			    .source = kind % EVENT_SOURCES,
			    .country = {'D', 'E'},
			    .address_len = 6,
			    .address = {1, 2, 3, 4, 5, 255},
			    .key = str_n(key, len),
			};
			want.length = (uint32_t)event_encode_visit(record, 1, POSITION, &want.visit);
			assert_int_equal(want.length, EVENT_VISIT_BYTES + len);
			assert_int_equal(event_decode(record, want.length, 1, POSITION, &got), EVENT_VALID);
			assert_events_equal(&got, &want);
		}
	}
}

TEST(impressions_come_back_as_they_were)
{
	static const size_t lengths[] = {0, 1, 77, EVENT_FIELD_BYTES_MAX};
	uint8_t record[EVENT_RECORD_BYTES_MAX];
	char texts[3 * EVENT_FIELD_BYTES_MAX];
	for (size_t i = 0; i < sizeof(texts); i++)
		texts[i] = (char)i;
	for (size_t i = 0; i < 64; i++) {
		struct event got, want = {.kind = EVENT_IMPRESSION, .position = POSITION};
		want.impression = (struct event_impression){
		    .time_ms = -1,
		    .received_ms = INT64_MIN,
		    .id = str_n(texts, lengths[i % 4]),
		    .user = str_n(texts + EVENT_FIELD_BYTES_MAX, lengths[i / 4 % 4]),
		    .ad = str_n(texts + 2 * EVENT_FIELD_BYTES_MAX, lengths[i / 16]),
		};
		want.length = (uint32_t)event_encode_impression(record, 1, POSITION, &want.impression);
		assert_int_equal(event_decode(record, want.length, 1, POSITION, &got), EVENT_VALID);
		assert_events_equal(&got, &want);
	}
}

TEST(the_other_kinds_come_back_as_they_were)
{
	uint8_t record[EVENT_RECORD_BYTES_MAX];
	char text[EVENT_STRING_BYTES_MAX];
	memset(text, 's', sizeof(text));
	for (size_t len = 0; len <= EVENT_STRING_BYTES_MAX; len++) {
		struct event got, want = {.kind = EVENT_STRING, .position = POSITION};
		want.string = str_n(text, len);
		want.length = (uint32_t)event_encode_string(record, 1, POSITION, want.string);
		assert_int_equal(event_decode(record, want.length, 1, POSITION, &got), EVENT_VALID);
		assert_events_equal(&got, &want);
	}
	struct event got, tally = {.kind = EVENT_TALLY, .length = EVENT_TALLY_BYTES, .position = POSITION};
	tally.tally = (struct event_tally){-5, UINT64_MAX, 7};
	assert_int_equal(event_encode_tally(record, 1, POSITION, &tally.tally), EVENT_TALLY_BYTES);
	assert_int_equal(event_decode(record, EVENT_TALLY_BYTES, 1, POSITION, &got), EVENT_VALID);
	assert_events_equal(&got, &tally);
	struct event end = {.kind = EVENT_END,
	                    .flags = EVENT_END_BY_RECOVERY,
	                    .length = EVENT_END_BYTES,
	                    .position = POSITION,
	                    .records_before_end = UINT64_MAX - 1};
	assert_int_equal(event_encode_end(record, 1, POSITION, end.records_before_end, EVENT_END_BY_RECOVERY),
	                 EVENT_END_BYTES);
	assert_int_equal(event_decode(record, EVENT_END_BYTES, 1, POSITION, &got), EVENT_VALID);
	assert_events_equal(&got, &end);
}

static void check_place(uint8_t *record, size_t len, uint64_t position)
{
	struct event ev;
	assert_int_equal(decode_copy(record, len, SAMPLE_SEGMENT, position, &ev), EVENT_VALID);
	for (int bit = 0; bit < 64; bit++) {
		assert_int_equal(decode_copy(record, len, SAMPLE_SEGMENT ^ 1ULL << bit, position, &ev),
		                 EVENT_BAD_CHECKSUM);
		assert_int_equal(decode_copy(record, len, SAMPLE_SEGMENT, position ^ 1ULL << bit, &ev),
		                 EVENT_BAD_CHECKSUM);
	}
	for (uint64_t other = 0; other < 4096; other++) {
		if (other != position)
			assert_int_equal(decode_copy(record, len, SAMPLE_SEGMENT, other, &ev),
			                 EVENT_BAD_CHECKSUM);
	}
	assert_int_equal(decode_copy(record, len, position, SAMPLE_SEGMENT, &ev), EVENT_BAD_CHECKSUM);
}

TEST(a_record_is_valid_at_its_place_only)
{
	each_record(check_place);
}

static void check_flips(uint8_t *record, size_t len, uint64_t position)
{
	struct event ev;
	for (size_t bit = 0; bit < 8 * len; bit++) {
		record[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(decode_copy(record, len, SAMPLE_SEGMENT, position, &ev), EVENT_VALID);
		record[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

TEST(no_record_survives_a_flipped_bit)
{
	each_record(check_flips);
}

/* Any other value of any byte, not only single bits. */
static void check_bytes(uint8_t *record, size_t len, uint64_t position)
{
	struct event ev;
	for (size_t i = 0; i < len; i++) {
		uint8_t was = record[i];
		for (unsigned value = 0; value < 256; value++) {
			record[i] = (uint8_t)value;
			enum event_fault fault = decode_copy(record, len, SAMPLE_SEGMENT, position, &ev);
			assert_int_equal(fault == EVENT_VALID, value == was);
		}
		record[i] = was;
	}
}

TEST(no_record_survives_another_byte)
{
	each_record(check_bytes);
}

static void check_cuts(uint8_t *record, size_t len, uint64_t position)
{
	struct event ev;
	uint8_t tail[EVENT_RECORD_BYTES_MAX] = {0};
	for (size_t cut = 0; cut < len; cut++) {
		assert_int_equal(decode_copy(record, cut, SAMPLE_SEGMENT, position, &ev), EVENT_CUT);
		/* A file that was made longer before its bytes came has zeros there. */
		memcpy(tail, record, cut);
		memset(tail + cut, 0, len);
		if (memcmp(tail, record, len) != 0)
			assert_int_not_equal(decode_copy(tail, len, SAMPLE_SEGMENT, position, &ev),
			                     EVENT_VALID);
	}
}

TEST(no_record_survives_a_cut)
{
	each_record(check_cuts);
}

TEST(what_follows_a_record_does_not_matter)
{
	struct event_sample s;
	struct event ev;
	sample_make(&s, SAMPLE_SEGMENT, 1, true);
	for (size_t i = 0; i < s.count; i++) {
		assert_int_equal(event_decode(s.data + s.at[i], s.len - s.at[i], s.segment, s.at[i], &ev),
		                 EVENT_VALID);
		assert_int_equal(ev.length, s.at[i + 1] - s.at[i]);
	}
}

/* Records whose checksum is right although their content is not: only a bug of ours could write them. */
static enum event_fault decode_forged(uint8_t *record, size_t length, unsigned kind)
{
	struct event ev;
	uint8_t place[16] = {1};
	place[8] = POSITION;
	record[4] = (uint8_t)length;
	record[5] = (uint8_t)(length >> 8);
	record[6] = (uint8_t)kind;
	uint32_t sum = crc32c(crc32c(0, place, sizeof(place)), record + 4, length > 4 ? length - 4 : 0);
	for (int i = 0; i < 4; i++)
		record[i] = (uint8_t)(sum >> 8 * i);
	return decode_copy(record, MAX(length, (size_t)EVENT_RECORD_BYTES_MIN), 1, POSITION, &ev);
}

TEST(lengths_beyond_the_bounds_of_a_kind_are_refused)
{
	static const struct {
		unsigned kind;
		size_t min, max;
	} bounds[] = {
	    {EVENT_STRING, 8, 8 + EVENT_STRING_BYTES_MAX},
	    {EVENT_VISIT, EVENT_VISIT_BYTES, EVENT_VISIT_BYTES + EVENT_KEY_BYTES_MAX},
	    {EVENT_TALLY, EVENT_TALLY_BYTES, EVENT_TALLY_BYTES},
	    {EVENT_END, EVENT_END_BYTES, EVENT_END_BYTES},
	};
	static uint8_t record[EVENT_RECORD_BYTES_MAX];
	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		for (size_t len = 0; len <= 2048; len++) {
			memset(record, 0, sizeof(record));
			enum event_fault fault = decode_forged(record, len, bounds[i].kind);
			bool fits = len >= bounds[i].min && len <= bounds[i].max;
			assert_int_equal(fault, fits ? EVENT_VALID : EVENT_BAD_LENGTH);
		}
		memset(record, 0, sizeof(record));
		assert_int_equal(decode_forged(record, EVENT_RECORD_BYTES_MAX, bounds[i].kind),
		                 EVENT_BAD_LENGTH);
	}
}

TEST(an_impression_is_as_long_as_its_texts)
{
	static uint8_t record[EVENT_RECORD_BYTES_MAX];
	for (size_t len = 0; len <= 2048; len++) {
		memset(record, 0, sizeof(record));
		record[24] = 10; /* the id */
		enum event_fault fault = decode_forged(record, len, EVENT_IMPRESSION);
		bool fits = len >= EVENT_IMPRESSION_BYTES &&
		            len <= EVENT_IMPRESSION_BYTES + 3 * EVENT_FIELD_BYTES_MAX;
		if (len == EVENT_IMPRESSION_BYTES + 10)
			assert_int_equal(fault, EVENT_VALID);
		else
			assert_int_equal(fault, fits ? EVENT_BAD_BODY : EVENT_BAD_LENGTH);
	}
}

TEST(unknown_kinds_are_refused)
{
	uint8_t record[64] = {0};
	for (unsigned kind = 0; kind < 256; kind++) {
		enum event_fault fault = decode_forged(record, 16, kind);
		if (kind < EVENT_STRING || kind > EVENT_END)
			assert_int_equal(fault, EVENT_BAD_KIND);
		else
			assert_int_not_equal(fault, EVENT_BAD_KIND);
	}
}

TEST(a_visit_with_impossible_fields_is_refused)
{
	static const struct {
		size_t at;
		unsigned valid_below;
	} fields[] = {{44, EVENT_VISIT_KINDS}, {45, EVENT_SOURCES}, {48, 7}};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		for (unsigned value = 0; value < 256; value++) {
			uint8_t record[EVENT_VISIT_BYTES] = {0};
			record[fields[i].at] = (uint8_t)value;
			assert_int_equal(decode_forged(record, sizeof(record), EVENT_VISIT),
			                 value < fields[i].valid_below ? EVENT_VALID : EVENT_BAD_BODY);
		}
	}
}

TEST(a_header_comes_back_as_it_was)
{
	const struct event_header h = {SAMPLE_NODE, SAMPLE_SEGMENT, SAMPLE_TIME_MS};
	struct event_header got;
	uint8_t bytes[EVENT_HEADER_BYTES];
	event_header_encode(&h, bytes);
	assert_memory_equal(bytes, "curtlog\n", 8);
	assert_true(event_header_decode(bytes, &got));
	assert_int_equal(got.node, h.node);
	assert_int_equal(got.segment, h.segment);
	assert_int_equal(got.created_ms, h.created_ms);
}

TEST(no_header_survives_another_byte)
{
	struct event_header got;
	uint8_t bytes[EVENT_HEADER_BYTES];
	event_header_encode(&(struct event_header){SAMPLE_NODE, SAMPLE_SEGMENT, SAMPLE_TIME_MS}, bytes);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		uint8_t was = bytes[i];
		for (unsigned value = 0; value < 256; value++) {
			bytes[i] = (uint8_t)value;
			assert_int_equal(event_header_decode(bytes, &got), value == was);
		}
		bytes[i] = was;
	}
}

/* Another version's header has a right checksum, and is not ours to read. */
TEST(a_header_of_another_version_is_refused)
{
	static const size_t at[] = {8, 12};
	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		struct event_header got;
		uint8_t bytes[EVENT_HEADER_BYTES];
		event_header_encode(&(struct event_header){1, 2, 3}, bytes);
		bytes[at[i]]++;
		uint32_t sum = crc32c(0, bytes, 60);
		for (int byte = 0; byte < 4; byte++)
			bytes[60 + byte] = (uint8_t)(sum >> 8 * byte);
		assert_false(event_header_decode(bytes, &got));
	}
}

TEST(ids_are_written_in_hexadecimal)
{
	char out[EVENT_ID_TEXT_BYTES];
	struct str id = event_id_format(0xabc, event_segment(1, 2, 3), 0xfffffff0, out);
	assert_int_equal(id.len, 16 + 1 + 16 + 1 + 8);
	assert_memory_equal(id.ptr, "0000000000000abc-0000000102000003-fffffff0", id.len);
}

TEST(segment_numbers_order_by_boot_then_writer_then_sequence)
{
	assert_true(event_segment(1, 255, 0xffffff) < event_segment(2, 0, 0));
	assert_true(event_segment(1, 0, 0xffffff) < event_segment(1, 1, 0));
	assert_int_equal(event_segment_boot(event_segment(0xffffffff, 255, 1)), 0xffffffff);
}

TEST(every_fault_has_its_words)
{
	for (int a = EVENT_VALID; a <= EVENT_BAD_BODY; a++) {
		for (int b = a + 1; b <= EVENT_BAD_BODY + 1; b++)
			assert_string_not_equal(event_fault_text((enum event_fault)a),
			                        event_fault_text((enum event_fault)b));
	}
}

TEST_MAIN()
