/* Events as messages: what goes out comes back as it was, and whatever else comes does no harm. */
#include "lib/event_kit.h"
#include "lib/test.h"
#include "queue/wire.h"

#include <jansson.h>

enum { KAFKA_MS = 1789000000500LL - 1789000000000LL }; /* after SAMPLE_TIME_MS */
static const struct event_id id = {0xfedcba9876543210ULL, (uint64_t)7 << 32 | 3 << 24 | 2, 0x1234};

/* On the heap and of its exact size, so that the address sanitizer sees every byte too far. */
static void decode(enum wire_topic topic, struct str text, struct wire_message *ret)
{
	char *copy = malloc(text.len + 1);
	assert_non_null(copy);
	char *exact = realloc(copy, text.len ? text.len : 1);
	assert_non_null(exact);
	memcpy(exact, text.ptr, text.len);
	wire_decode(topic, str_n(exact, text.len), SAMPLE_TIME_MS + KAFKA_MS, ret);
	/* A reader may look at all of it. */
	static volatile unsigned char sum;
	const struct str texts[] = {ret->texts.agent, ret->texts.referrer, ret->texts.language,
	                            ret->event.kind == EVENT_VISIT        ? ret->event.visit.key
	                            : ret->event.kind == EVENT_IMPRESSION ? ret->event.impression.id
	                                                                  : STR_NULL};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		for (size_t k = 0; k < texts[i].len; k++)
			sum = (unsigned char)(sum + (unsigned char)texts[i].ptr[k]);
	}
	if (ret->event.kind == EVENT_VISIT)
		assert_true(ret->event.visit.kind < EVENT_VISIT_KINDS &&
		            ret->event.visit.source < EVENT_SOURCES &&
		            ret->event.visit.key.len <= EVENT_KEY_BYTES_MAX);
	free(exact);
}

static void assert_str(struct str got, struct str want)
{
	if (!str_eq(got, want))
		fail_msg("\"%.*s\" is not \"%.*s\"", STR_ARG(got), STR_ARG(want));
}

static struct event visit_event(void)
{
	return (struct event){
	    .kind = EVENT_VISIT,
	    .visit = {.time_ms = SAMPLE_TIME_MS,
	              .link = 42,
	              .visitor = 0x00ff00ff00ff00ffULL,
	              .kind = EVENT_CLICK,
	              .source = EVENT_SOURCE_QR,
	              .country = {'C', 'H'},
	              .address_len = 6,
	              .address = {0x20, 1, 0xd, 0xb8, 0, 1},
	              .key = STR("aB3")},
	};
}

static const struct wire_texts visit_texts = {STR("Mozilla/5.0"), STR("https://a.example/?q=1"),
                                              STR("de-CH")};

static void assert_round_trip(const struct event *ev, const struct wire_texts *texts)
{
	struct buf CLEANUP(buf_release) out = {0};
	struct wire_message *m = malloc(sizeof(*m));
	assert_non_null(m);
	wire_encode(&out, id, ev, texts);
	assert_false(out.failed);
	json_t *json = json_loadb(out.data, out.len, 0, NULL);
	if (!json)
		fail_msg("this is no JSON: %.*s", (int)out.len, out.data);
	json_decref(json);
	wire_decode(wire_topic_of(ev), buf_view(&out), 0, m);
	struct event want = *ev, got = m->event;
	want.position = got.position = 0;
	want.length = got.length = 0;
	want.flags = got.flags = 0;
	if (want.kind == EVENT_VISIT) /* those are places in the log */
		want.visit.agent = want.visit.referrer = want.visit.language = 0;
	if (got.kind == EVENT_UNUSABLE)
		fail_msg("%s: %.*s", got.unusable.reason, (int)out.len, out.data);
	assert_events_equal(&want, &got);
	assert_true(m->has_id && event_id_equals(m->id, id));
	assert_str(m->texts.agent, texts->agent);
	assert_str(m->texts.referrer, texts->referrer);
	assert_str(m->texts.language, texts->language);
	free(m);
}

TEST(events_of_all_kinds_come_back_as_they_were)
{
	static struct event_sample s;
	sample_make(&s, SAMPLE_SEGMENT, 3, false);
	size_t sent = 0;
	for (size_t i = 0; i < s.count; i++) {
		struct event ev;
		assert_int_equal(event_decode(s.data + s.at[i], s.len - s.at[i], s.segment, s.at[i], &ev),
		                 EVENT_VALID);
		assert_int_equal(wire_is_sent(&ev), ev.kind != EVENT_STRING);
		if (!wire_is_sent(&ev))
			continue;
		assert_round_trip(&ev, ev.kind == EVENT_VISIT ? &visit_texts : &(struct wire_texts){0});
		sent++;
	}
	assert_int_equal(sent, 3 * 8);
}

TEST(every_kind_source_and_network_comes_back)
{
	for (unsigned n = 0; n < EVENT_VISIT_KINDS * EVENT_SOURCES * 256; n++) {
		struct event ev = visit_event();
		ev.visit.kind = (uint8_t)(n % EVENT_VISIT_KINDS);
		ev.visit.source = (uint8_t)(n % EVENT_SOURCES);
		ev.visit.address_len = n % 3 ? n % 3 * 3 : 0;
		for (unsigned i = 0; i < sizeof(ev.visit.address); i++)
			ev.visit.address[i] = i < ev.visit.address_len ? (uint8_t)(n * (i + 3) / 5) : 0;
		assert_round_trip(&ev, &visit_texts);
	}
}

TEST(numbers_at_their_bounds_come_back)
{
	struct event ev = visit_event();
	ev.visit.time_ms = INT64_MAX;
	ev.visit.link = INT64_MAX;
	ev.visit.visitor = UINT64_MAX;
	assert_round_trip(&ev, &visit_texts);
	ev = (struct event){.kind = EVENT_TALLY, .tally = {1, INT64_MAX, 0}};
	assert_round_trip(&ev, &(struct wire_texts){0});
}

/* All bytes, at all lengths that matter. */
TEST(texts_of_any_bytes_come_back_byte_for_byte)
{
	char bytes[EVENT_STRING_BYTES_MAX];
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 7);
	for (size_t len = 0; len <= sizeof(bytes); len += len < 300 ? 1 : 181) {
		struct event ev = visit_event();
		const struct wire_texts texts = {str_n(bytes, len), str_n(bytes + sizeof(bytes) - len, len),
		                                 str_n(bytes, MIN(len, (size_t)35))};
		ev.visit.key = str_n(bytes + 3, MIN(len, (size_t)EVENT_KEY_BYTES_MAX));
		assert_round_trip(&ev, &texts);
		ev = (struct event){.kind = EVENT_IMPRESSION,
		                    .impression = {1, 2,
		                                   str_n(bytes, MIN(len, (size_t)EVENT_FIELD_BYTES_MAX)),
		                                   STR("\xc3\xa9\n\"\\"), STR("\xff")}};
		assert_round_trip(&ev, &(struct wire_texts){0});
	}
}

TEST(other_teams_read_plain_fields)
{
	struct buf CLEANUP(buf_release) out = {0};
	struct event ev = visit_event();
	wire_encode(&out, id, &ev, &(struct wire_texts){.agent = STR("caf\xe9")});
	assert_str(buf_view(&out),
	           STR("{\"eventId\":\"fedcba9876543210-0000000703000002-00001234\",\"ts\":1789000000000,"
	               "\"kind\":\"click\",\"link\":42,\"key\":\"aB3\",\"visitor\":\"00ff00ff00ff00ff\","
	               "\"agent\":\"caf\xef\xbf\xbd\",\"agentHex\":\"636166e9\",\"country\":\"CH\","
	               "\"address\":\"2001:db8:1::/48\",\"source\":\"qr\"}"));
	out.len = 0;
	ev = (struct event){.kind = EVENT_IMPRESSION,
	                    .impression = {5, 6, STR("i"), STR("a \"user\""), STR("ad")}};
	wire_encode(&out, id, &ev, &(struct wire_texts){0});
	assert_str(buf_view(&out),
	           STR("{\"id\":\"i\",\"ts\":5,\"userId\":\"a \\\"user\\\"\",\"adId\":\"ad\","
	               "\"receivedAt\":6,\"eventId\":\"fedcba9876543210-0000000703000002-00001234\"}"));
}

TEST(an_invalid_country_is_left_out)
{
	struct buf CLEANUP(buf_release) out = {0};
	struct event ev = visit_event();
	memcpy(ev.visit.country, "\"\xff", 2);
	wire_encode(&out, id, &ev, &visit_texts);
	assert_null(memmem(out.data, out.len, "country", 7));
}

TEST(the_key_keeps_what_belongs_together_together)
{
	char a[WIRE_KEY_BYTES_MAX], b[WIRE_KEY_BYTES_MAX];
	struct event ev = visit_event();
	assert_str(wire_key(&ev, a), STR("42"));
	ev.visit.kind = EVENT_HEAD;
	ev.visit.time_ms++;
	assert_str(wire_key(&ev, a), STR("42"));
	ev.visit.link = UINT64_MAX;
	assert_str(wire_key(&ev, a), STR("18446744073709551615"));
	ev.visit.kind = EVENT_ORPHAN_KEY;
	struct event other = ev;
	other.visit.key = STR("aB4");
	assert_str(wire_key(&ev, a), STR("-aB3"));
	assert_str(wire_key(&other, b), STR("-aB4"));
	ev = (struct event){.kind = EVENT_IMPRESSION, .impression.id = STR("an id")};
	assert_str(wire_key(&ev, a), STR("an id"));
	ev = (struct event){.kind = EVENT_TALLY};
	assert_str(wire_key(&ev, a), STR("-"));
	assert_int_equal(wire_topic_of(&ev), WIRE_VISITS);
}

TEST(another_teams_impression_is_one)
{
	static struct wire_message m;
	static const char *const texts[] = {
	    "{\"id\":\"x\",\"ts\":1789000000123,\"userId\":\"u\",\"adId\":\"a\"}",
	    " \n{ \"adId\" : \"a\" , \"more\" : { \"deep\" : [ 1 , { \"id\" : \"no\" } , null ] } "
	    ",\t\"userId\":\"\\u0075\","
	    "\"ts\":1789000000123, \"id\":\"\\u0078\" } \r\n",
	    "{\"id\":\"y\",\"id\":\"x\",\"eventId\":\"550e8400-e29b-41d4-a716-446655440000\",\"adId\":\"a\","
	    "\"userId\":\"u\",\"ts\":1789000000123,\"a name that is longer than any of ours\":1.5e3}",
	};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		wire_decode(WIRE_IMPRESSIONS, str_of(texts[i]), SAMPLE_TIME_MS + KAFKA_MS, &m);
		if (m.event.kind == EVENT_UNUSABLE)
			fail_msg("%s: %s", m.event.unusable.reason, texts[i]);
		assert_int_equal(m.event.kind, EVENT_IMPRESSION);
		assert_false(m.has_id);
		assert_str(m.event.impression.id, STR("x"));
		assert_str(m.event.impression.user, STR("u"));
		assert_str(m.event.impression.ad, STR("a"));
		assert_int_equal(m.event.impression.time_ms, 1789000000123LL);
		assert_int_equal(m.event.impression.received_ms, SAMPLE_TIME_MS + KAFKA_MS);
	}
}

/* Who has fields of that name means something else by them: his events must not vanish as repetitions. */
TEST(another_teams_event_id_is_not_taken_for_one_of_ours)
{
	static struct wire_message m;
	static const char *const ids[] = {
	    "2026-11-15",
	    "1-2-3",
	    "",
	    "--",
	    "550e8400-e29b-41d4-a716-446655440000",
	    "fedcba9876543210-0000000703000002-1234",
	    "fedcba9876543210-0000000703000002-000001234",
	    "fedcba9876543210-0000000703000002-0000123g",
	    "FEDCBA9876543210-0000000703000002-00001234",
	    "fedcba9876543210_0000000703000002-00001234",
	    "fedcba9876543210-000000070300000-200001234",
	    " edcba9876543210-0000000703000002-00001234",
	};
	char text[256];
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		snprintf(text, sizeof(text),
		         "{\"id\":\"x\",\"ts\":1789000000123,\"userId\":\"u\",\"adId\":\"a\","
		         "\"receivedAt\":5,\"eventId\":\"%s\"}",
		         ids[i]);
		wire_decode(WIRE_IMPRESSIONS, str_of(text), SAMPLE_TIME_MS + KAFKA_MS, &m);
		assert_int_equal(m.event.kind, EVENT_IMPRESSION);
		if (m.has_id)
			fail_msg("this was believed: %s", ids[i]);
		assert_int_equal(m.event.impression.received_ms, SAMPLE_TIME_MS + KAFKA_MS);
	}
	/* One of ours has been received, too. */
	decode(WIRE_IMPRESSIONS,
	       STR("{\"id\":\"x\",\"ts\":1789000000123,\"userId\":\"u\",\"adId\":\"a\","
	           "\"eventId\":\"fedcba9876543210-0000000703000002-00001234\"}"),
	       &m);
	assert_int_equal(m.event.kind, EVENT_IMPRESSION);
	assert_false(m.has_id);
	decode(WIRE_IMPRESSIONS,
	       STR("{\"id\":\"x\",\"ts\":1789000000123,\"userId\":\"u\",\"adId\":\"a\",\"receivedAt\":5,"
	           "\"eventId\":\"fedcba9876543210-0000000703000002-0000123400001234\"}"),
	       &m);
	assert_true(m.has_id);
	assert_int_equal(m.id.position, 0x0000123400001234);
}

TEST(another_teams_time_may_be_in_seconds_but_not_in_the_future)
{
	static struct wire_message m;
	decode(WIRE_IMPRESSIONS, STR("{\"id\":\"x\",\"ts\":1789000000,\"userId\":\"u\",\"adId\":\"a\"}"), &m);
	assert_int_equal(m.event.impression.time_ms, 1789000000000LL);
	decode(WIRE_IMPRESSIONS, STR("{\"id\":\"x\",\"ts\":1789003600501,\"userId\":\"u\",\"adId\":\"a\"}"),
	       &m);
	assert_int_equal(m.event.kind, EVENT_UNUSABLE);
	decode(WIRE_IMPRESSIONS, STR("{\"id\":\"x\",\"ts\":1789003600500,\"userId\":\"u\",\"adId\":\"a\"}"),
	       &m);
	assert_int_equal(m.event.kind, EVENT_IMPRESSION);
}

TEST(what_is_no_event_is_unusable_and_says_why)
{
	static struct wire_message m;
	static const struct {
		enum wire_topic topic;
		const char *text;
	} wrong[] = {
	    {WIRE_IMPRESSIONS, ""},
	    {WIRE_IMPRESSIONS, "null"},
	    {WIRE_IMPRESSIONS, "[]"},
	    {WIRE_IMPRESSIONS, "{\"id\":\"x\"} {}"},
	    {WIRE_IMPRESSIONS, "{\"id\":5}"},
	    {WIRE_IMPRESSIONS, "{\"ts\":\"5\"}"},
	    {WIRE_IMPRESSIONS, "{\"ts\":1.5}"},
	    {WIRE_IMPRESSIONS, "{\"ts\":-1}"},
	    {WIRE_IMPRESSIONS, "{\"id\":\"\\ud800\"}"},
	    {WIRE_IMPRESSIONS, "{\"id\":\"\xff\"}"},
	    {WIRE_IMPRESSIONS, "{\"id\":\"\\u0000\"}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"agent\":\"a\\u0000\"}"},
	    {WIRE_IMPRESSIONS, "{\"idHex\":\"abc\"}"},
	    {WIRE_IMPRESSIONS, "{\"idHex\":\"zz\"}"},
	    {WIRE_VISITS, "{}"},
	    {WIRE_VISITS, "{\"kind\":\"clack\",\"ts\":5,\"link\":1}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"source\":\"post\"}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":-1}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"visitor\":\"xyz\"}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"visitor\":\"00000000000000000\"}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"address\":\"256.0.0.0/24\"}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"address\":\"10.0.0.0/8\"}"},
	    {WIRE_VISITS, "{\"kind\":\"click\",\"ts\":5,\"link\":1,\"address\":\"1:2:3::/48x\"}"},
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct str text = str_of(wrong[i].text);
		wire_decode(wrong[i].topic, text, SAMPLE_TIME_MS, &m);
		if (m.event.kind != EVENT_UNUSABLE)
			fail_msg("this was taken: %s", wrong[i].text);
		assert_true(strlen(m.event.unusable.reason) > 5);
		assert_int_equal(m.event.unusable.is_impression, wrong[i].topic == WIRE_IMPRESSIONS);
		assert_int_equal(m.event.unusable.time_ms, SAMPLE_TIME_MS);
		assert_str(m.event.unusable.text, text);
		assert_false(m.has_id);
	}
}

/* A text that is longer than it can have been here is cut, or too long. */
TEST(texts_beyond_all_bounds_stay_within_ours)
{
	static struct wire_message m;
	for (unsigned escaped = 0; escaped < 2; escaped++) {
		struct buf CLEANUP(buf_release) text = {0};
		buf_str(&text, STR("{\"kind\":\"click\",\"ts\":5,\"link\":1,\"agent\":\""));
		for (unsigned i = 0; i < 20000; i++)
			buf_str(&text, escaped ? STR("\\n") : STR("n"));
		buf_str(&text, STR("\",\"key\":\""));
		for (unsigned i = 0; i < 300; i++)
			buf_char(&text, 'k');
		buf_str(&text, STR("\"}"));
		decode(WIRE_VISITS, buf_view(&text), &m);
		assert_int_equal(m.event.kind, escaped ? EVENT_UNUSABLE : EVENT_VISIT);
		assert_true(m.texts.agent.len <= EVENT_STRING_BYTES_MAX);
	}
}

/* Messages as they are, and what can happen to them. */
static void sample_messages(struct buf *visit, struct buf *impression)
{
	struct event ev = visit_event();
	wire_encode(visit, id, &ev,
	            &(struct wire_texts){STR("ca\"f\xe9\n"), STR("https://x/\xc3\xa9"), STR("de")});
	ev = (struct event){.kind = EVENT_IMPRESSION,
	                    .impression = {5, 6, STR("i\t"), STR("u\xf0\x9f\x98\x80"), STR("ad")}};
	wire_encode(impression, id, &ev, &(struct wire_texts){0});
}

TEST(every_beginning_of_a_message_is_unusable)
{
	static struct wire_message m;
	struct buf texts[WIRE_TOPICS] = {{0}, {0}};
	sample_messages(&texts[WIRE_VISITS], &texts[WIRE_IMPRESSIONS]);
	for (unsigned topic = 0; topic < WIRE_TOPICS; topic++) {
		for (size_t len = 0; len < texts[topic].len; len++) {
			decode(topic, str_n(texts[topic].data, len), &m);
			assert_int_equal(m.event.kind, EVENT_UNUSABLE);
		}
		decode(topic, buf_view(&texts[topic]), &m);
		assert_int_not_equal(m.event.kind, EVENT_UNUSABLE);
	}
	buf_release(&texts[0]);
	buf_release(&texts[1]);
}

TEST(no_changed_byte_does_harm)
{
	static struct wire_message m;
	struct buf texts[WIRE_TOPICS] = {{0}, {0}};
	sample_messages(&texts[WIRE_VISITS], &texts[WIRE_IMPRESSIONS]);
	for (unsigned topic = 0; topic < WIRE_TOPICS; topic++) {
		struct buf *t = &texts[topic];
		for (size_t i = 0; i < t->len; i++) {
			char was = t->data[i];
			for (unsigned change = 1; change < 256; change += change < 16 ? 1 : 13) {
				t->data[i] = (char)(was ^ (char)change);
				decode(topic, buf_view(t), &m);
				decode(1 - topic, buf_view(t), &m);
			}
			t->data[i] = was;
		}
	}
	buf_release(&texts[0]);
	buf_release(&texts[1]);
}

TEST_MAIN()
