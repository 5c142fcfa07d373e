// needs: src/event/*.c src/os/*.c src/obs/log*.c
// packages: libsodium liburcu-qsbr
// flags: -max_len=4096
/*
 * Any bytes as a segment: they are read, scanned and verified, and all agree on how far it is valid. The
 * first byte says what is put right before, so that what is guarded by it is met too: 1 the header, 2 the
 * checksums; and with 4 a log is opened on it, which is slow.
 */
#include "base/crc32c.h"
#include "event/log_private.h"
#include "event/reader.h"
#include "lib/findings_kit.h"
#include "obs/log.h"
#include "os/sys.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define SEGMENT event_segment(1, 0, 0)
enum { MEND_HEADER = 1, MEND_CHECKSUMS = 2, RECOVER = 4, FILE_BYTES_MAX = 8192 };

static char folder[64];
static const struct event_settings settings = {
    .flush_ms = 600000, .spool_bytes = 1 << 20, .segment_bytes = 1 << 20};

static int skip_sync(int fd)
{
	(void)fd;
	return 0;
}

static void folder_remove(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	if (system(command) != 0)
		perror(folder);
}

static void begin(void)
{
	if (folder[0])
		return;
	snprintf(folder, sizeof(folder), "/tmp/curt-fuzz-XXXXXX");
	ASSERT(mkdtemp(folder));
	atexit(folder_remove);
	log_level_set(LOG_ERROR + 1);
	os_sys.fsync = skip_sync;
	os_sys.fdatasync = skip_sync;
}

/* Gives every record that could be one the checksum of its place. */
static void mend_checksums(uint8_t *file, size_t len)
{
	size_t at = EVENT_HEADER_BYTES;
	while (len - MIN(at, len) >= EVENT_RECORD_BYTES_MIN) {
		uint64_t place[2] = {htole64(SEGMENT), htole64(at)};
		size_t length = file[at + 4] | (size_t)file[at + 5] << 8;
		if (length < EVENT_RECORD_BYTES_MIN || length > len - at)
			return;
		uint32_t sum = htole32(crc32c(crc32c(0, place, sizeof(place)), file + at + 4, length - 4));
		memcpy(file + at, &sum, sizeof(sum));
		at += length;
	}
}

static void file_write(const uint8_t *data, size_t len)
{
	char path[SEGMENT_PATH_BYTES];
	segment_path(folder, SEGMENT, path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ASSERT(fd >= 0);
	ASSERT(pwrite(fd, data, len, 0) == (ssize_t)len && ftruncate(fd, (off_t)len) == 0);
	close(fd);
}

/* Every byte of a text is looked at, so that a sanitizer sees one that is not there. */
static unsigned touch(struct str text)
{
	unsigned sum = 0;
	for (size_t i = 0; i < text.len; i++)
		sum += (unsigned char)text.ptr[i];
	return sum;
}

static unsigned touch_event(const struct event_reader *r, const struct event *ev)
{
	char text[EVENT_STRING_BYTES_MAX];
	switch (ev->kind) {
	case EVENT_STRING: return touch(ev->string);
	case EVENT_VISIT:
		ASSERT(ev->visit.kind < EVENT_VISIT_KINDS && ev->visit.source < EVENT_SOURCES);
		ASSERT(ev->visit.address_len <= sizeof(ev->visit.address));
		return touch(ev->visit.key) + touch(event_reader_string(r, ev->visit.agent, text));
	case EVENT_IMPRESSION:
		return touch(ev->impression.id) + touch(ev->impression.user) + touch(ev->impression.ad);
	case EVENT_TALLY:
	case EVENT_END:
	case EVENT_UNUSABLE: break;
	}
	return 0;
}

/* Reads until it stops; where. */
static uint64_t read_all(const struct event_scan *scan)
{
	struct event_reader CLEANUP(event_reader_close) r = {.fd = -1};
	struct event ev;
	volatile unsigned sum = 0;
	uint64_t records = 0;
	bool ended = false;
	int got = event_reader_open(&r, folder, SEGMENT, 0, NULL);
	ASSERT((got == 0) == scan->header_valid);
	if (got < 0)
		return 0;
	while (!ended && (got = event_reader_next(&r, scan->size, &ev)) == 1) {
		ended = ev.kind == EVENT_END;
		records += !ended;
		sum += touch_event(&r, &ev);
	}
	(void)sum;
	ASSERT(ended == scan->ended && records == scan->records);
	ASSERT(got != ERR_CORRUPT || r.fault == scan->fault);
	return r.position;
}

/* Opening keeps what is valid, and opening again finds the same. */
static void recover(const struct event_scan *before)
{
	const struct event_log_config config = {.path = folder, .settings = &settings};
	char path[SEGMENT_PATH_BYTES];
	struct stat st;
	for (int i = 0; i < 2; i++) {
		struct event_log *log = NULL;
		struct event_scan after;
		ASSERT(event_log_open(&config, &log, NULL) == 0);
		struct event_counts backlog = event_log_backlog(log);
		event_log_close(log);
		ASSERT(memcmp(&backlog, &before->counts, sizeof(backlog)) == 0);
		segment_path(folder, SEGMENT, path);
		if (stat(path, &st) != 0) {
			ASSERT(before->size <= EVENT_HEADER_BYTES);
			return;
		}
		ASSERT(event_scan(folder, SEGMENT, 0, &after, NULL) == 0);
		ASSERT(after.records == before->records);
		ASSERT(memcmp(&after.counts, &before->counts, sizeof(after.counts)) == 0);
		bool sealed = before->header_valid && before->valid_again_at == 0;
		ASSERT(after.ended == sealed);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static uint8_t file[FILE_BYTES_MAX];
	struct event_scan scan;
	struct buf CLEANUP(buf_release) report = {0};
	if (len < 1 || len > FILE_BYTES_MAX)
		return 0;
	begin();
	unsigned mend = data[0];
	len--;
	memcpy(file, data + 1, len);
	if (mend & MEND_HEADER && len >= EVENT_HEADER_BYTES)
		event_header_encode(&(struct event_header){1, SEGMENT, 1}, file);
	if (mend & MEND_CHECKSUMS)
		mend_checksums(file, len);
	file_write(file, len);
	ASSERT(event_scan(folder, SEGMENT, 0, &scan, NULL) == 0);
	ASSERT(scan.size == len && scan.valid_end <= len);
	ASSERT(read_all(&scan) == scan.valid_end);
	struct findings_kit found = findings_kit(&report);
	ASSERT(event_verify(folder, true, false, &found.base, NULL) == 0);
	ASSERT(found.base.bad_count <= 1);
	ASSERT(report.len > 0 && !report.failed);
	if (mend & RECOVER)
		recover(&scan);
	return 0;
}
