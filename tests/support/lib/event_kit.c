#include "lib/event_kit.h"
#include "lib/findings_kit.h"

#include "event/log_private.h"
#include "lib/test.h"
#include "os/file.h"
#include "os/sys.h"

#include <dirent.h>

const struct event_settings kit_settings = {
    .visits = true,
    .flush_ms = 600 * 1000,
    .spool_bytes = 1 << 30,
    .segment_bytes = 1 << 26,
    .keep_ms = 1000,
    .keep_bytes = 1 << 30,
};

/* Samples */

static void sample_note(struct event_sample *s, size_t len)
{
	assert_true(s->count < SAMPLE_RECORDS_MAX && s->len + len <= SAMPLE_BYTES_MAX);
	s->at[s->count++] = s->len;
	s->len += len;
	s->at[s->count] = s->len;
}

static uint32_t sample_string(struct event_sample *s, struct str text)
{
	uint32_t at = (uint32_t)s->len;
	sample_note(s, event_encode_string(s->data + s->len, s->segment, s->len, text));
	return at;
}

static void sample_visit(struct event_sample *s, const struct event_visit *v)
{
	sample_note(s, event_encode_visit(s->data + s->len, s->segment, s->len, v));
}

static void sample_impression(struct event_sample *s, const struct event_impression *i)
{
	sample_note(s, event_encode_impression(s->data + s->len, s->segment, s->len, i));
}

static void sample_copy(struct event_sample *s, unsigned number)
{
	int64_t now_ms = SAMPLE_TIME_MS + number;
	char id[32];
	snprintf(id, sizeof(id), "event-%u", number);
	uint32_t agent = sample_string(s, STR("Mozilla/5.0 (X11; Linux x86_64)"));
	uint32_t referrer = sample_string(s, STR("https://news.example/a?b=c"));
	uint32_t language = sample_string(s, STR("de-AT"));
	struct event_visit v = {
	    .time_ms = now_ms,
	    .link = 7 + number,
	    .visitor = 0x8877665544332211ULL + number,
	    .agent = agent,
	    .referrer = referrer,
	    .language = language,
	    .kind = EVENT_CLICK,
	    .country = {'A', 'T'},
	    .address_len = 3,
	    .address = {192, 0, 2},
	    .key = STR("abc123X"),
	};
	sample_visit(s, &v);
	v.kind = EVENT_HEAD;
	v.source = EVENT_SOURCE_QR;
	v.address_len = 6;
	memcpy(v.address, (uint8_t[]){0x20, 1, 0xd, 0xb8, 0, 1}, 6);
	sample_visit(s, &v);
	sample_visit(s, &(struct event_visit){.time_ms = now_ms, .link = 1, .kind = EVENT_PREFETCH});
	sample_visit(
	    s, &(struct event_visit){
	           .time_ms = now_ms, .kind = EVENT_ORPHAN_KEY, .agent = agent, .key = STR("wp-login.php")});
	sample_visit(s, &(struct event_visit){.time_ms = now_ms, .kind = EVENT_ORPHAN_ROOT});
	sample_impression(
	    s, &(struct event_impression){now_ms - 5, now_ms, str_of(id), STR("user-é"), STR("ad\n1")});
	sample_impression(s, &(struct event_impression){1, now_ms, STR("x"), STR("y"), STR("z")});
	const struct event_tally tally = {now_ms, 3, 2};
	sample_note(s, event_encode_tally(s->data + s->len, s->segment, s->len, &tally));
}

void sample_make(struct event_sample *s, uint64_t segment, unsigned copies, bool ended)
{
	memset(s, 0, sizeof(*s));
	s->segment = segment;
	s->len = EVENT_HEADER_BYTES;
	event_header_encode(&(struct event_header){SAMPLE_NODE, segment, SAMPLE_TIME_MS}, s->data);
	for (unsigned i = 0; i < copies; i++)
		sample_copy(s, i);
	if (ended)
		sample_note(s, event_encode_end(s->data + s->len, segment, s->len, s->count, 0));
}

size_t sample_records_before(const struct event_sample *s, size_t byte)
{
	size_t n = 0;
	while (n < s->count && s->at[n + 1] <= byte)
		n++;
	return n;
}

bool sample_damage(const struct event_sample *s, enum damage what, size_t byte, struct event_sample *ret)
{
	*ret = *s;
	switch (what) {
	case DAMAGE_FLIP: ret->data[byte] ^= (uint8_t)(1 << (byte * 5 + byte / 8) % 8); break;
	case DAMAGE_ZERO: ret->data[byte] = 0; break;
	case DAMAGE_CUT: ret->len = byte; return true;
	case DAMAGES: break;
	}
	return ret->data[byte] != s->data[byte];
}

struct event_counts sample_counts(const struct event_sample *s, size_t records)
{
	struct event_counts c = {0};
	for (size_t i = 0; i < records; i++) {
		struct event ev;
		assert_int_equal(
		    event_decode(s->data + s->at[i], s->len - s->at[i], s->segment, s->at[i], &ev),
		    EVENT_VALID);
		c.impressions += ev.kind == EVENT_IMPRESSION;
		c.orphans += ev.kind == EVENT_VISIT && event_is_orphan(ev.visit.kind);
		c.clicks += ev.kind == EVENT_VISIT && !event_is_orphan(ev.visit.kind);
		c.rejected += ev.kind == EVENT_TALLY ? ev.tally.rejected : 0;
		c.dropped += ev.kind == EVENT_TALLY ? ev.tally.dropped : 0;
	}
	return c;
}

void assert_counts_equal(const struct event_counts *a, const struct event_counts *b)
{
	assert_int_equal(a->clicks, b->clicks);
	assert_int_equal(a->orphans, b->orphans);
	assert_int_equal(a->impressions, b->impressions);
	assert_int_equal(a->rejected, b->rejected);
	assert_int_equal(a->dropped, b->dropped);
	assert_int_equal(a->dropped_orphans, b->dropped_orphans);
}

static void assert_texts_equal(struct str a, struct str b)
{
	assert_int_equal(a.len, b.len);
	if (a.len > 0)
		assert_memory_equal(a.ptr, b.ptr, a.len);
}

static void assert_visits_equal(const struct event_visit *a, const struct event_visit *b)
{
	assert_int_equal(a->time_ms, b->time_ms);
	assert_int_equal(a->link, b->link);
	assert_int_equal(a->visitor, b->visitor);
	assert_int_equal(a->agent, b->agent);
	assert_int_equal(a->referrer, b->referrer);
	assert_int_equal(a->language, b->language);
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->source, b->source);
	assert_memory_equal(a->country, b->country, sizeof(a->country));
	assert_int_equal(a->address_len, b->address_len);
	assert_memory_equal(a->address, b->address, sizeof(a->address));
	assert_texts_equal(a->key, b->key);
}

void assert_events_equal(const struct event *a, const struct event *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->length, b->length);
	assert_int_equal(a->position, b->position);
	switch (a->kind) {
	case EVENT_STRING: assert_texts_equal(a->string, b->string); break;
	case EVENT_VISIT: assert_visits_equal(&a->visit, &b->visit); break;
	case EVENT_IMPRESSION:
		assert_int_equal(a->impression.time_ms, b->impression.time_ms);
		assert_int_equal(a->impression.received_ms, b->impression.received_ms);
		assert_texts_equal(a->impression.id, b->impression.id);
		assert_texts_equal(a->impression.user, b->impression.user);
		assert_texts_equal(a->impression.ad, b->impression.ad);
		break;
	case EVENT_TALLY:
		assert_int_equal(a->tally.time_ms, b->tally.time_ms);
		assert_int_equal(a->tally.rejected, b->tally.rejected);
		assert_int_equal(a->tally.dropped, b->tally.dropped);
		break;
	case EVENT_END: assert_int_equal(a->records_before_end, b->records_before_end); break;
	case EVENT_UNUSABLE: assert_texts_equal(a->unusable.text, b->unusable.text); break;
	}
}

/* Files */

void segment_file_write(const char *folder, uint64_t segment, const void *data, size_t len)
{
	char path[SEGMENT_PATH_BYTES];
	segment_path(folder, segment, path);
	/* Not O_TRUNC: some file systems flush a file that was emptied and written again, and that is slow.
	 */
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, len, 0), len);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	close(fd);
}

void segment_file_read(const char *folder, uint64_t segment, struct buf *ret)
{
	char path[SEGMENT_PATH_BYTES];
	segment_path(folder, segment, path);
	assert_int_equal(file_read(path, 1 << 28, ret, NULL), 0);
}

bool segment_file_is_there(const char *folder, uint64_t segment)
{
	char path[SEGMENT_PATH_BYTES];
	struct stat st;
	segment_path(folder, segment, path);
	return stat(path, &st) == 0;
}

/* Reading all */

static void segment_each(const char *folder, uint64_t segment,
                         void (*seen)(void *ctx, struct event_reader *r, const struct event *ev), void *ctx)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	char path[SEGMENT_PATH_BYTES];
	struct stat st;
	struct event ev;
	segment_path(folder, segment, path);
	assert_int_equal(stat(path, &st), 0);
	int got = event_reader_open(&r, folder, segment, 0, NULL);
	if (got == ERR_CORRUPT)
		return;
	assert_int_equal(got, 0);
	bool ended = false;
	while (!ended && (got = event_reader_next(&r, (uint64_t)st.st_size, &ev)) == 1) {
		seen(ctx, &r, &ev);
		ended = ev.kind == EVENT_END;
	}
	assert_true(got == 0 || got == 1 || got == ERR_CORRUPT);
}

void folder_each(const char *folder, void (*seen)(void *ctx, struct event_reader *r, const struct event *ev),
                 void *ctx)
{
	struct arena CLEANUP(arena_release) arena = {0};
	uint64_t *segments;
	size_t count;
	assert_int_equal(event_folder_list(folder, &arena, &segments, &count, NULL), 0);
	for (size_t i = 0; i < count; i++)
		segment_each(folder, segments[i], seen, ctx);
}

static void assert_mention(struct event_reader *r, uint32_t at)
{
	char text[EVENT_STRING_BYTES_MAX];
	if (at != 0)
		assert_non_null(event_reader_string(r, at, text).ptr);
}

static void count_record(void *ctx, struct event_reader *r, const struct event *ev)
{
	struct event_found *found = ctx;
	found->bytes += ev->length;
	switch (ev->kind) {
	case EVENT_STRING: found->strings++; break;
	case EVENT_VISIT:
		assert_mention(r, ev->visit.agent);
		assert_mention(r, ev->visit.referrer);
		assert_mention(r, ev->visit.language);
		found->counts.orphans += event_is_orphan(ev->visit.kind);
		found->counts.clicks += !event_is_orphan(ev->visit.kind);
		break;
	case EVENT_IMPRESSION: found->counts.impressions++; break;
	case EVENT_TALLY:
		found->tallies++;
		found->counts.rejected += ev->tally.rejected;
		found->counts.dropped += ev->tally.dropped;
		break;
	case EVENT_END: found->ended++; break;
	case EVENT_UNUSABLE: fail();
	}
}

int folder_damage(const char *folder, bool growing, struct buf *report)
{
	struct findings_kit found = findings_kit(report);
	int r = event_verify(folder, true, growing, &found.base, NULL);
	return r < 0 ? r : (int)found.base.bad_count;
}

struct event_found folder_count(const char *folder)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct event_found found = {0};
	uint64_t *segments;
	assert_int_equal(event_folder_list(folder, &arena, &segments, &found.segments, NULL), 0);
	folder_each(folder, count_record, &found);
	return found;
}

/* Logs */

struct event_log *kit_log_open(const char *folder, const struct event_settings *s, unsigned writers)
{
	struct event_log *log = NULL;
	const struct event_log_config config = {.path = folder, .settings = s, .writers = writers};
	MUST(event_log_open(&config, &log, &why));
	return log;
}

bool kit_click(struct event_writer *w, uint64_t number, int64_t now_ms)
{
	struct event_visit v = {.time_ms = now_ms, .link = number, .key = STR("key")};
	const struct event_visitor from = {STR("agent/1.0"), STR("https://from.example/"), STR("en")};
	return event_writer_visit(w, &v, &from);
}

bool kit_impression(struct event_writer *w, uint64_t number, int64_t now_ms)
{
	char id[32];
	int n = snprintf(id, sizeof(id), "i%llu", (unsigned long long)number);
	const struct event_impression i = {now_ms, now_ms, str_n(id, (size_t)n), STR("user"), STR("ad")};
	return event_writer_impression(w, &i);
}

unsigned open_descriptors(void)
{
	unsigned n = 0;
	DIR *dir = opendir("/proc/self/fd");
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int skip_sync(int fd)
{
	(void)fd;
	return 0;
}

/* Some file systems flush a file that takes another's name. */
static int rename_to_free_name(const char *from, const char *to)
{
	unlink(to);
	return os_sys_real.rename(from, to);
}

void kit_syncs_skip(void)
{
	os_sys.rename = rename_to_free_name;
	os_sys.fsync = skip_sync;
	os_sys.fdatasync = skip_sync;
}
