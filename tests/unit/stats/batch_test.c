/* From a log that a writer wrote to what the sink gets. */
#include "event/reader.h"
#include "lib/event_kit.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"
#include "stats/batch.h"

#define NOW          SAMPLE_TIME_MS
#define FIREFOX      "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"
#define TIME_TOO_FAR 253402300800000LL

enum { EVENTS_MAX = 200, SEGMENT_BYTES_MAX = 1 << 20, WINDOW_MS = 24 * 3600 * 1000 };

static struct temp dir;
static struct event_log *events;
static struct event_writer *w;
static struct batch *batch;
static struct batch_config config;
static const struct event_visitor nobody;

static int make(void **state)
{
	temp_init(&dir);
	log_level_set(LOG_ERROR + 1);
	config = (struct batch_config){.events_max = EVENTS_MAX, .dedup_key = DEDUP_ID, .seen_ms = WINDOW_MS};
	memset(config.dedup_secret, 7, sizeof(config.dedup_secret));
	assert_int_equal(agents_new(64, &config.agents, NULL), 0);
	assert_int_equal(dead_letters_new(dir.path, &config.dead_letters, NULL), 0);
	events = kit_log_open(dir.path, &kit_settings, 1);
	w = event_log_writer(events, 0);
	return 0;
}

static int release(void **state)
{
	batch_free(batch);
	batch = NULL;
	event_log_close(events);
	dead_letters_free(config.dead_letters);
	places_close(config.places);
	agents_free(config.agents);
	temp_release(&dir);
	return 0;
}

/* A queue whose texts are in the segment that `text_reader` reads. */
static struct event_reader *text_reader;

static struct str segment_text(struct queue *q, struct queue_stream *stream, uint32_t at,
                               char out[EVENT_STRING_BYTES_MAX])
{
	(void)q;
	(void)stream;
	return event_reader_string(text_reader, at, out);
}

static const struct queue_ops queue_ops = {.text = segment_text};
static struct queue queue = {&queue_ops};
static bool in_doubt; /* the events that are fed */

static int add(struct event_reader *r, struct queue_stream *stream, const struct event *ev)
{
	const struct queue_event event = {
	    .id = {r->node, r->segment, ev->position}, .stream = stream, .event = ev, .in_doubt = in_doubt};
	text_reader = r;
	return batch_add(batch, &queue, &event);
}

static void stream_release(struct queue_stream *stream)
{
	if (stream->reader_data)
		stream->reader_data_free(stream->reader_data);
}

/* Reads the writer's segment from `from` on into a batch that has just begun. */
static const struct sink_batch *feed(uint64_t from)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev;
	struct queue_stream strings = {0};
	assert_int_equal(event_writer_flush(w, NOW), 0);
	if (!batch)
		assert_int_equal(batch_new(&config, &batch), 0);
	batch_begin(batch, NOW);
	uint64_t end = EVENT_HEADER_BYTES + event_writer_written(w);
	assert_int_equal(event_reader_open(&r, dir.path, event_segment(1, 0, 0), from, NULL), 0);
	while (!batch_is_full(batch) && event_reader_next(&r, end, &ev) == 1)
		assert_int_equal(add(&r, &strings, &ev), 0);
	stream_release(&strings);
	return batch_result(batch);
}

static void click(const char *agent, const char *referrer, const char *language)
{
	struct event_visit v = {.time_ms = NOW, .link = 5, .visitor = 9, .key = STR("key")};
	const struct event_visitor from = {str_of(agent), str_of(referrer), str_of(language)};
	assert_true(event_writer_visit(w, &v, &from));
}

static void impression(const char *id, const char *user, const char *ad, int64_t time_ms)
{
	const struct event_impression i = {time_ms, NOW, str_of(id), str_of(user), str_of(ad)};
	assert_true(event_writer_impression(w, &i));
}

static void assert_text(struct str got, const char *want)
{
	if (!str_eq(got, str_of(want)) || !got.ptr != !want)
		fail_msg("'%.*s' instead of '%s'", STR_ARG(got), want ? want : "(none)");
}

static const struct dimension_set *set_of(const struct sink_batch *b, size_t visit)
{
	assert_true(visit < b->visit_count && b->visits[visit].set < b->set_count);
	return &b->sets[b->visits[visit].set];
}

static struct str text_of(const struct sink_batch *b, uint32_t index)
{
	if (index == SINK_NO_TEXT)
		return STR_NULL;
	assert_true(index < b->text_count);
	return b->texts[index];
}

TEST(a_click_is_enriched)
{
	click(FIREFOX, "https://News.example/story", "de-AT");
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->visit_count, 1);
	const struct sink_visit *v = &b->visits[0];
	assert_int_equal(v->time_ms, NOW);
	assert_int_equal(v->link, 5);
	assert_int_equal(v->visitor, 9);
	assert_text(text_of(b, v->agent), FIREFOX);
	assert_text(text_of(b, v->referrer), "https://News.example/story");
	assert_int_equal(v->place, SINK_NO_TEXT);
	assert_int_equal(v->path, SINK_NO_TEXT);
	const struct dimension_set *s = set_of(b, 0);
	assert_int_equal(s->kind, VISIT_CLICK);
	assert_text(s->dims[DIM_BROWSER], "Firefox");
	assert_text(s->dims[DIM_OS], "Linux");
	assert_text(s->dims[DIM_DEVICE], "Desktop");
	assert_text(s->dims[DIM_BOT], NULL);
	assert_text(s->dims[DIM_REFERRER], "news.example");
	assert_text(s->dims[DIM_LANGUAGE], "de");
	assert_text(s->dims[DIM_COUNTRY], NULL);
	assert_text(s->dims[DIM_SOURCE], "link");
	assert_int_equal(b->tally.clicks, 1);
	assert_int_equal(b->now_ms, NOW);
}

TEST(visits_alike_share_a_set)
{
	click(FIREFOX, "https://a.example/1", "de");
	click(FIREFOX, "https://a.example/2", "de-CH"); /* another text, the same host and language */
	click(FIREFOX, "https://b.example/", "de");
	click("curl/7.88.1", NULL, NULL);
	click(NULL, NULL, NULL);
	click(NULL, NULL, NULL);
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->visit_count, 6);
	assert_int_equal(b->set_count, 4);
	assert_int_equal(b->visits[0].set, b->visits[1].set);
	assert_int_not_equal(b->visits[0].set, b->visits[2].set);
	assert_int_equal(b->visits[4].set, b->visits[5].set);
	assert_int_equal(b->visits[0].agent, b->visits[2].agent);
	assert_int_not_equal(b->visits[0].referrer, b->visits[1].referrer);
	assert_text(set_of(b, 3)->dims[DIM_BOT], "http-library");
	assert_text(set_of(b, 4)->dims[DIM_BOT], "no-user-agent");
	assert_int_equal(b->visits[4].agent, SINK_NO_TEXT);
}

TEST(kinds_and_sources_are_kept_apart)
{
	for (int kind = 0; kind < EVENT_VISIT_KINDS; kind++) {
		struct event_visit v = {.time_ms = NOW,
		                        .link = 3,
		                        .kind = (uint8_t)kind,
		                        .source = kind % 2 ? EVENT_SOURCE_QR : EVENT_SOURCE_LINK,
		                        .key = kind == EVENT_ORPHAN_ROOT ? STR("") : STR("wp-login.php")};
		assert_true(event_writer_visit(w, &v, &nobody));
	}
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->visit_count, EVENT_VISIT_KINDS);
	assert_int_equal(b->set_count, EVENT_VISIT_KINDS);
	for (size_t i = 0; i < b->visit_count; i++) {
		bool orphan = visit_is_orphan((enum visit_kind)i);
		assert_int_equal(set_of(b, i)->kind, i);
		assert_text(set_of(b, i)->dims[DIM_SOURCE], i % 2 ? "qr" : "link");
		assert_int_equal(b->visits[i].link, orphan ? 0 : 3);
		assert_text(text_of(b, b->visits[i].path), i == VISIT_UNKNOWN ? "wp-login.php" : NULL);
	}
	assert_int_equal(b->tally.clicks, 3);
	assert_int_equal(b->tally.orphans, 2);
}

static void visit_from(const char *country, unsigned len, const uint8_t *address)
{
	struct event_visit v = {.time_ms = NOW, .link = 1, .address_len = (uint8_t)len};
	memcpy(v.country, country, 2);
	memcpy(v.address, address, len);
	assert_true(event_writer_visit(w, &v, &nobody));
}

TEST(a_country_comes_from_the_header_or_else_from_the_address)
{
	static const uint8_t munich[] = {192, 0, 2}, nowhere[] = {10, 0, 0},
	                     paris[] = {0x20, 1, 0xd, 0xb8, 0, 1};
	char path[TEMP_PATH_BYTES], command[TEMP_PATH_BYTES + 64];
	temp_path(&dir, "city.mmdb", path);
	snprintf(command, sizeof(command), "python3 tests/support/mmdb.py city '%s'", path);
	assert_int_equal(system(command), 0);
	assert_int_equal(places_open(path, &config.places, NULL), 0);
	visit_from("AT", 3, munich);
	visit_from("\0\0", 3, munich);
	visit_from("XX", 6, paris); /* the proxy does not know */
	visit_from("de", 3, munich);
	visit_from("\0\0", 3, nowhere);
	visit_from("US", 0, nowhere);
	visit_from("\0\0", 3, munich);
	const struct sink_batch *b = feed(0);
	static const char *const countries[] = {"AT", "DE", "FR", "DE", NULL, "US", "DE"};
	static const char *const places[] = {
	    "Bavaria\nMunich", "Bavaria\nMunich", "Île-de-France\nParis", "Bavaria\nMunich", NULL, NULL,
	    "Bavaria\nMunich"};
	assert_int_equal(b->visit_count, ARRAY_LEN(countries));
	for (size_t i = 0; i < ARRAY_LEN(countries); i++) {
		assert_text(set_of(b, i)->dims[DIM_COUNTRY], countries[i]);
		assert_text(text_of(b, b->visits[i].place), places[i]);
	}
	assert_int_equal(b->visits[2].address_len, 6);
	assert_memory_equal(b->visits[2].address, paris, 6);
}

TEST(the_same_id_counts_once)
{
	impression("a", "u", "ad", NOW);
	impression("a", "other", "other", NOW + 1);
	impression("b", "u", "ad", NOW);
	impression("a", "u", "ad", NOW);
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->impression_count, 2);
	assert_int_equal(b->tally.impressions, 4);
	assert_int_equal(b->tally.duplicates, 2);
	assert_text(b->impressions[0].id, "a");
	assert_text(b->impressions[0].user, "u");
	assert_text(b->impressions[0].ad, "ad");
	assert_int_equal(b->impressions[0].time_ms, NOW);
	assert_int_equal(b->impressions[0].received_ms, NOW);
	assert_text(b->impressions[1].id, "b");
	uint8_t print[SINK_FINGERPRINT_BYTES];
	memcpy(print, b->impressions[0].fingerprint, sizeof(print));
	b = feed(0); /* another batch: the sink must know them again */
	assert_int_equal(b->impression_count, 2);
	assert_memory_equal(print, b->impressions[0].fingerprint, sizeof(print));
	assert_memory_not_equal(print, b->impressions[1].fingerprint, sizeof(print));
}

TEST(of_those_in_doubt_all_stay_for_a_sink_that_can_be_asked)
{
	in_doubt = true;
	for (int i = 0; i < 3; i++) {
		impression("a", "u", "ad", NOW);
		impression("b", "u", "ad", NOW);
	}
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->impression_count, 2); /* nobody can be asked */
	batch_free(batch);
	batch = NULL;
	config.keeps_in_doubt = true;
	b = feed(0);
	assert_int_equal(b->impression_count, 6);
	assert_int_equal(b->tally.impressions, 6);
	assert_int_equal(b->tally.duplicates, 0);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(b->impressions[i].same_as, i < 2 ? 0 : 1 + i % 2);
		assert_true(b->impressions[i].in_doubt);
	}
	in_doubt = false;
	b = feed(0);
	assert_int_equal(b->impression_count, 2);
	assert_int_equal(b->tally.duplicates, 4);
}

TEST(the_same_tuple_counts_once)
{
	config.dedup_key = DEDUP_TUPLE;
	impression("a", "u", "ad", NOW);
	impression("a", "u", "ad", NOW);
	impression("a", "u", "ad", NOW + 1);
	impression("a", "u", "da", NOW);
	impression("a", "ua", "d", NOW); /* the same letters in a row */
	impression("au", "a", "d", NOW);
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->impression_count, 5);
	assert_int_equal(b->tally.duplicates, 1);
}

TEST(the_longest_texts_fit)
{
	static char text[EVENT_FIELD_BYTES_MAX];
	memset(text, 'x', sizeof(text));
	const struct str field = str_n(text, sizeof(text));
	config.dedup_key = DEDUP_TUPLE;
	assert_true(event_writer_impression(w, &(struct event_impression){NOW, NOW, field, field, field}));
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->impression_count, 1);
	assert_int_equal(b->impressions[0].ad.len, EVENT_FIELD_BYTES_MAX);
}

static unsigned letters_saying(const char *reason)
{
	struct buf CLEANUP(buf_release) text = {0};
	char path[TEMP_PATH_BYTES];
	temp_path(&dir, "dead-letters.ndjson", path);
	assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
	buf_char(&text, '\0');
	unsigned n = 0;
	for (const char *at = text.data; (at = strstr(at, reason)); at++)
		n++;
	return n;
}

TEST(unusable_visits_go_to_the_dead_letters)
{
	struct event_visit bad[] = {
	    {.time_ms = 0, .link = 1},
	    {.time_ms = TIME_TOO_FAR, .link = 1},
	    {.time_ms = NOW, .link = 0},
	    {.time_ms = NOW, .link = 1, .address_len = 4},
	    {.time_ms = -1000, .kind = EVENT_ORPHAN_KEY, .key = STR("k")},
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int64_t time_ms = bad[i].time_ms;
		assert_true(event_writer_visit(w, &bad[i], &nobody));
		assert_int_equal(bad[i].time_ms, time_ms);
	}
	click(FIREFOX, NULL, NULL);
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->visit_count, 1);
	assert_int_equal(b->tally.clicks, 5);
	assert_int_equal(b->tally.orphans, 1);
	assert_int_equal(b->tally.unusable_clicks, 4);
	assert_int_equal(letters_saying("its time is out of range"), 3);
	assert_int_equal(letters_saying("it names no link"), 1);
	assert_int_equal(letters_saying("neither an IPv4 nor an IPv6 network"), 1);
}

TEST(unusable_impressions_go_to_the_dead_letters)
{
	impression("", "u", "ad", NOW);
	impression("a", "", "ad", NOW);
	impression("a", "u", "", NOW);
	impression("a", "u", "ad", 0);
	impression("a", "u", "ad", TIME_TOO_FAR);
	impression("a", "u", "ad", TIME_TOO_FAR - 1);
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->impression_count, 1); /* an unusable one does not make it a duplicate */
	assert_int_equal(b->tally.impressions, 6);
	assert_int_equal(b->tally.unusable_impressions, 5);
	assert_int_equal(b->tally.duplicates, 0);
	assert_int_equal(letters_saying("it has no id, userId or adId"), 3);
	assert_int_equal(letters_saying("its time is out of range"), 2);
}

/* The bounds of the log allow three texts together to be long; one alone must not be. */
TEST(an_impression_with_one_text_too_long_is_unusable)
{
	static char text[2 * EVENT_FIELD_BYTES_MAX];
	struct event ev = {.kind = EVENT_IMPRESSION};
	struct event_reader r = {.fd = -1};
	struct queue_stream strings = {0};
	memset(text, 'x', sizeof(text));
	ev.impression = (struct event_impression){NOW, NOW, STR("a"), STR("b"), str_n(text, sizeof(text))};
	assert_int_equal(batch_new(&config, &batch), 0);
	batch_begin(batch, NOW);
	assert_int_equal(add(&r, &strings, &ev), 0);
	assert_int_equal(batch_result(batch)->impression_count, 0);
	assert_int_equal(batch_result(batch)->tally.unusable_impressions, 1);
	assert_int_equal(letters_saying("one of its texts is too long"), 1);
	stream_release(&strings);
}

TEST(tallies_are_added_up)
{
	for (unsigned i = 0; i < 3; i++) {
		event_writer_rejected(w, 5);
		assert_int_equal(event_writer_flush(w, NOW), 0);
	}
	const struct sink_batch *b = feed(0);
	assert_int_equal(b->tally.rejected, 15);
	assert_int_equal(b->tally.dropped_clicks, 0);
	assert_int_equal(b->visit_count + b->impression_count, 0);
}

TEST(strings_from_before_the_reader_began_are_fetched)
{
	click(FIREFOX, "https://a.example/", "de");
	assert_int_equal(event_writer_flush(w, NOW), 0);
	uint64_t from = EVENT_HEADER_BYTES + event_writer_written(w);
	click(FIREFOX, "https://a.example/", "de");
	const struct sink_batch *b = feed(from);
	assert_int_equal(b->visit_count, 1);
	assert_text(set_of(b, 0)->dims[DIM_BROWSER], "Firefox");
	assert_text(set_of(b, 0)->dims[DIM_REFERRER], "a.example");
	assert_text(set_of(b, 0)->dims[DIM_LANGUAGE], "de");
	assert_text(text_of(b, b->visits[0].agent), FIREFOX);
}

TEST(a_mention_that_leads_nowhere_reads_as_none)
{
	click(FIREFOX, NULL, NULL);
	feed(0);
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev = {.kind = EVENT_VISIT};
	ev.visit = (struct event_visit){
	    .time_ms = NOW, .link = 1, .agent = 65, .referrer = 1 << 30, .key = STR("")};
	struct queue_stream strings = {0};
	assert_int_equal(event_reader_open(&r, dir.path, event_segment(1, 0, 0), 0, NULL), 0);
	assert_int_equal(add(&r, &strings, &ev), 0);
	const struct sink_batch *b = batch_result(batch);
	assert_int_equal(b->visit_count, 2);
	assert_text(set_of(b, 1)->dims[DIM_BOT], "no-user-agent");
	assert_int_equal(b->visits[1].referrer, SINK_NO_TEXT);
	stream_release(&strings);
}

/* So many strings that the words are forgotten between two batches, while the segment is read on. */
TEST(forgotten_words_are_found_again)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct queue_stream strings = {0};
	struct event ev, visit = {0};
	click(FIREFOX, "https://a.example/", "de");
	assert_int_equal(event_writer_flush(w, NOW), 0);
	assert_int_equal(batch_new(&config, &batch), 0);
	batch_begin(batch, NOW);
	assert_int_equal(event_reader_open(&r, dir.path, event_segment(1, 0, 0), 0, NULL), 0);
	while (event_reader_next(&r, EVENT_HEADER_BYTES + event_writer_written(w), &ev) == 1) {
		assert_int_equal(add(&r, &strings, &ev), 0);
		visit = ev.kind == EVENT_VISIT ? ev : visit;
	}
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; !batch_is_full(batch); i++) {
			char text[32];
			int len = snprintf(text, sizeof(text), "text %u of %d", i, round);
			ev = (struct event){.kind = EVENT_STRING, .position = 1 << 20 | i};
			ev.string = str_n(text, (size_t)len);
			assert_int_equal(add(&r, &strings, &ev), 0);
			assert_true(i < INTERN_MAX);
		}
		batch_begin(batch, NOW);
		assert_false(batch_is_full(batch));
		assert_int_equal(add(&r, &strings, &visit), 0);
		const struct sink_batch *b = batch_result(batch);
		assert_int_equal(b->visit_count, 1);
		assert_int_equal(b->set_count, 1);
		assert_text(set_of(b, 0)->dims[DIM_BROWSER], "Firefox");
		assert_text(set_of(b, 0)->dims[DIM_REFERRER], "a.example");
		assert_text(set_of(b, 0)->dims[DIM_LANGUAGE], "de");
		assert_text(text_of(b, b->visits[0].referrer), "https://a.example/");
	}
	stream_release(&strings);
}

TEST(a_batch_is_full_at_its_bound)
{
	for (unsigned i = 0; i < EVENTS_MAX; i++) {
		char id[16];
		snprintf(id, sizeof(id), "%u", i);
		impression(id, "u", "ad", NOW);
		click(FIREFOX, NULL, NULL);
	}
	const struct sink_batch *b = feed(0);
	assert_true(batch_is_full(batch));
	assert_int_equal(b->visit_count + b->impression_count, EVENTS_MAX);
}

TEST(duplicates_fill_a_batch_too)
{
	for (unsigned i = 0; i < 3 * EVENTS_MAX; i++)
		impression("same", "u", "ad", NOW);
	const struct sink_batch *b = feed(0);
	assert_true(batch_is_full(batch));
	assert_int_equal(b->impression_count, 1);
	assert_int_equal(b->tally.duplicates, EVENTS_MAX - 1);
}

TEST(the_same_id_beyond_the_window_needs_another_batch)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct queue_stream strings = {0};
	struct event ev = {
	    .kind = EVENT_IMPRESSION,
	    .impression = {
	        .time_ms = NOW, .received_ms = NOW, .id = STR("a"), .user = STR("u"), .ad = STR("ad")}};
	assert_int_equal(batch_new(&config, &batch), 0);
	batch_begin(batch, NOW);
	assert_int_equal(add(&r, &strings, &ev), 0);
	ev.impression.received_ms = NOW + WINDOW_MS - 1;
	assert_int_equal(add(&r, &strings, &ev), 0);
	assert_int_equal(batch_result(batch)->tally.duplicates, 1);
	assert_false(batch_is_full(batch));
	ev.impression.received_ms = NOW + WINDOW_MS;
	assert_int_equal(add(&r, &strings, &ev), ERR_LIMIT);
	assert_true(batch_is_full(batch));
	assert_int_equal(batch_result(batch)->impression_count, 1);
	assert_int_equal(batch_result(batch)->tally.impressions, 2);
	batch_begin(batch, NOW);
	assert_int_equal(add(&r, &strings, &ev), 0);
	assert_int_equal(batch_result(batch)->impression_count, 1);
	stream_release(&strings);
}

TEST(the_first_visits_are_news_with_their_keys)
{
	size_t count;
	impression("a", "u", "ad", NOW);
	for (unsigned i = 0; i < BATCH_RECENT_MAX + 10; i++) {
		char key[16];
		struct event_visit v = {.time_ms = NOW, .link = 1};
		v.key = str_n(key, (size_t)snprintf(key, sizeof(key), "key%u", i));
		assert_true(event_writer_visit(w, &v, &nobody));
	}
	const struct sink_batch *b = feed(0);
	const struct live_visit *recent = batch_recent(batch, &count);
	assert_int_equal(count, BATCH_RECENT_MAX);
	for (size_t i = 0; i < count; i++) {
		char want[32];
		snprintf(want, sizeof(want), "key%zu", i);
		assert_int_equal(recent[i].visit, i);
		assert_text(str_n(recent[i].key, recent[i].key_len), want);
	}
	assert_int_equal(b->visit_count, BATCH_RECENT_MAX + 10);
	batch_begin(batch, NOW);
	batch_recent(batch, &count);
	assert_int_equal(count, 0);
	assert_int_equal(batch_result(batch)->visit_count, 0);
	assert_int_equal(batch_result(batch)->tally.clicks, 0);
}

TEST_MAIN(.setup = make, .teardown = release)
